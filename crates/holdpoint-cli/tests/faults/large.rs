//! Much in one: arguments that are as long as they may be, longer, deeper, or no text.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::bed::{asked, assert_whole, decide, events, serve, start};
use crate::common::http::Server;
use crate::common::site::{Database, Site, script};

const MIB: usize = 1024 * 1024;

/// As many bytes as a call may have, with everything in them that JSON can hold and databases have choked on.
pub fn large_arguments_and_nul_are_kept_whole_on_both_stores() {
    // Of 256 KiB: what is not the text itself is left room for.
    let text = format!("{}{}", "a\u{0}b\\u0000\u{1}\"\\\u{10ffff}", "ä".repeat(100_000));
    let arguments = json!({ "path": "log.txt", "content": text }).to_string();
    for database in [Database::File, Database::postgres()] {
        let site = Site::on(database, &script(&[("Write", Value::String(arguments.clone()))]));
        let mut serving = serve(&site);
        let run = start(&serving.server);
        serving.signal("-TERM");
        serving.wait();
        let serving = serve(&site);
        let request = asked(&serving.server, &run, "approval");
        assert_eq!(request["request"]["arguments"], arguments, "it is shown as it is");
        decide(&serving.server, &request, "approve");
        assert_whole(&serving.server, &run);
        assert_eq!(std::fs::read_to_string(site.path("work/log.txt")).unwrap(), text);
    }
}

/// A call that the model makes: what its arguments are in the provider's JSON, and how it is answered.
fn calls() -> Vec<(&'static str, Vec<String>, &'static str)> {
    let of_length = |length: usize| {
        let mut pieces = vec!["{\\\"path\\\":\\\"log.txt\\\",\\\"content\\\":\\\"".to_owned()];
        pieces.extend((0..length / MIB).map(|_| "x".repeat(MIB)));
        pieces.push("\\\"}".to_owned());
        pieces
    };
    let nested = |open: &str, close: &str| {
        vec![format!("{{\\\"path\\\":{}1{}}}", open.repeat(30_000), close.repeat(30_000))]
    };
    vec![
        ("17 MiB", of_length(17 * MIB), "arguments_too_large"),
        ("100 MiB", of_length(100 * MIB), "arguments_too_large"),
        ("lists in lists", nested("[", "]"), "invalid_arguments"),
        ("objects in objects", nested("{\\\"a\\\":", "}"), "invalid_arguments"),
        (
            "half a character",
            vec!["{\\\"path\\\":\\\"log.txt\\\",\\\"content\\\":\\\"\\\\ud800\\\"}".into()],
            "invalid_arguments",
        ),
        (
            "no text",
            vec![
                "{\\\"path\\\":\\\"log.txt\\\",\\\"content\\\":\\\"\u{1}raw\\\"}".replace('\u{1}', "\\u0001"),
            ],
            "invalid_arguments",
        ),
    ]
}

/// A provider that makes these calls, one for each conversation, by the message that begins it.
fn provider() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || answer_as_a_provider(stream));
        }
    });
    address
}

fn answer_as_a_provider(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let mut writer = stream;
    write!(writer, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut delta = |delta: &str, finish: &str| {
        // Whoever has had enough hangs up.
        let _ = write!(
            writer,
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        );
    };
    let asked = calls().into_iter().find(|(name, ..)| body.contains(&format!("make {name}.")));
    match asked {
        Some((_, pieces, _)) if !body.contains("\"role\":\"tool\"") => {
            delta(
                "{\"tool_calls\":[{\"index\":0,\"id\":\"c0\",\"function\":{\"name\":\"Write\",\"arguments\":\"\"}}]}",
                "null",
            );
            for piece in pieces {
                delta(
                    &format!(
                        "{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{piece}\"}}}}]}}"
                    ),
                    "null",
                );
            }
            delta("{}", "\"tool_calls\"");
        }
        _ => {
            delta("{\"content\":\"done\"}", "null");
            delta("{}", "\"stop\"");
        }
    }
    let _ = write!(writer, "data: [DONE]\n\n");
}

/// The most memory a process has had, in KiB.
fn peak_kib(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What a model asks with arguments that cannot be is answered as an error of its own, at no great cost of memory, and the run goes on.
pub fn arguments_that_cannot_be_are_an_error_of_the_model_and_run_nothing() {
    let provider = provider();
    for database in [Database::File, Database::postgres()] {
        let site = Site::on(database, "rules:\n  - answer: {text: unused}\n");
        let config = std::fs::read_to_string(site.config()).unwrap();
        let scripted = "provider = \"scripted\"\nscript = \"script.yaml\"";
        let real = format!(
            "provider = \"openai-compatible\"\nmodel = \"any\"\nbase_url = \"http://{provider}/v1\"\napi_key_env = \"THE_KEY\"\nretries = 0"
        );
        site.write("holdpoint.toml", &config.replace(scripted, &real));
        let mut command = site.serve();
        command.env("THE_KEY", "key");
        let serving = crate::common::process::Serving::start(command);
        let server = &serving.server;
        let peak = || peak_kib(serving.child.id());
        let (status, answer) = server.chat("nothing to do");
        assert_eq!((status, &answer["text"]), (200, &json!("done")), "{answer}");
        let before = peak();
        for (name, _, code) in calls() {
            let (status, answer) = server.chat(&format!("make {name}."));
            assert_eq!((status, &answer["text"]), (200, &json!("done")), "{name}: {answer}");
            let events = events(server, answer["runId"].as_str().unwrap());
            let result = events.iter().find(|event| event["type"] == "tool_result").unwrap();
            assert_eq!(result["toolResults"][0]["status"], code, "{name}: {result}");
            assert!(events.iter().all(|event| event["type"] != "approval_request"), "nobody is asked");
        }
        let grown = peak() - before;
        println!("{grown} KiB more at the most, for a hundred MiB and more");
        assert!(grown < 48 * 1024, "{grown} KiB more");
        assert!(!site.path("work/log.txt").exists());
    }
}

/// Sends a body, and reads the answer also where the server did not wait for all of it.
fn post_large(
    server: &Server,
    path: &str,
    headers: &str,
    body: impl FnOnce(&mut TcpStream) -> std::io::Result<()>,
) -> u16 {
    let host = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n{headers}\r\n",
        server.token
    )
    .unwrap();
    let _ = body(&mut stream);
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap_or_else(|| panic!("{path}: {line:?}")).parse().unwrap()
}

/// Bodies that are longer than any may be: refused, whether they say so or not, and nothing is done.
pub fn a_body_that_is_too_large_is_refused_and_does_nothing() {
    for database in [Database::File, Database::postgres()] {
        let site = Site::on(database, &script(&[("Bash", json!({ "command": "echo ran >> log.txt" }))]));
        let serving = serve(&site);
        let server = &serving.server;
        let run = start(server);
        let request = asked(server, &run, "approval");
        let decision = format!("/v1/interactions/{}/decision", request["requestId"].as_str().unwrap());
        let piece = vec![b'x'; MIB];
        for path in [decision.as_str(), "/chat", "/v1/tools/Bash/invoke"] {
            let open = format!(
                "{{\"decision\":\"approve_with\",\"query\":\"go\",\"digest\":{},\"arguments\":\"",
                request["request"]["digest"]
            );
            for mebibytes in [17, 100] {
                let length = open.len() + mebibytes * MIB + 2;
                let said = post_large(server, path, &format!("Content-Length: {length}\r\n"), |stream| {
                    stream.write_all(open.as_bytes())?;
                    (0..mebibytes).try_for_each(|_| stream.write_all(&piece))?;
                    stream.write_all(b"\"}")
                });
                assert_eq!(said, 413, "{path} {mebibytes}");
                let unsaid = post_large(server, path, "Transfer-Encoding: chunked\r\n", |stream| {
                    write!(stream, "{:x}\r\n{open}\r\n", open.len())?;
                    for _ in 0..mebibytes {
                        write!(stream, "{MIB:x}\r\n")?;
                        stream.write_all(&piece)?;
                        stream.write_all(b"\r\n")?;
                    }
                    stream.write_all(b"2\r\n\"}\r\n0\r\n\r\n")
                });
                assert_eq!(unsaid, 413, "{path} {mebibytes}, in chunks");
            }
            let broken = b"{\"query\":\"\xff\xfe\",\"decision\":\"approve\"}";
            let said = post_large(server, path, &format!("Content-Length: {}\r\n", broken.len()), |stream| {
                stream.write_all(broken)
            });
            assert_eq!(said, 400, "{path}: no UTF-8");
        }
        assert_eq!(server.get("/v1/runs")["items"].as_array().unwrap().len(), 1, "nothing was started");
        assert_eq!(site.lines("log.txt"), 0);
        decide(server, &asked(server, &run, "approval"), "approve");
        assert_whole(server, &run);
    }
}
