//! `holdpoint serve` as a process: how it starts, what it refuses, how it stops, what it never says.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::io::{Read, Seek, SeekFrom, Write};
use std::net::TcpListener;

use common::process::Serving;
use common::site::{Site, script};
use common::terminal::Terminal;
use common::{http, until};
use serde_json::json;

fn bash(command: &str) -> String {
    script(&[("Bash", json!({ "command": command }))])
}

/// Starts it where it must not start; gives the exit code and what it said.
fn refused(site: &Site) -> String {
    Serving::try_start(site.serve()).err().expect("it started")
}

#[test]
fn the_first_line_is_all_a_program_needs() {
    let site = Site::new(&bash("true"));
    let serving = Serving::start(site.serve());
    let fields: Vec<_> = serving.line.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["token", "type", "url"]);
    assert_eq!(serving.line["type"], "server");
    assert_eq!(serving.server.token.len(), 64, "256 bits");
    assert_eq!(serving.server.get("/v1/agents")["items"][0]["name"], "main");
}

#[test]
fn every_start_has_a_token_of_its_own() {
    let site = Site::new(&bash("true"));
    let mut first = Serving::start(site.serve());
    let old = first.server.token.clone();
    first.signal("-TERM");
    assert!(first.wait().success());
    let second = Serving::start(site.serve());
    assert_ne!(second.server.token, old);
    assert_eq!(http::send(&second.server.url, Some(&old), "GET", "/v1/runs", None).0, 401);
}

#[test]
fn a_terminal_gets_a_block_to_read_and_the_token_once() {
    let site = Site::new(&bash("true"));
    let mut terminal = Terminal::start(&["serve", "--config", &site.config()], &[("NO_COLOR", "1")]);
    terminal.wait_for("Holdpoint is running\n  address   http://127.0.0.1:");
    terminal.wait_for("  token     ");
    terminal.wait_for("Ctrl-C stops the server");
    terminal.type_line("\u{3}");
    let (output, code) = terminal.end();
    assert_eq!(code, 0, "{output}");
    let token = output.split("token     ").nth(1).unwrap().split('\n').next().unwrap();
    assert_eq!((token.len(), output.matches(token).count()), (64, 1));
}

#[test]
fn a_taken_port_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let site = Site::new(&bash("true"));
    site.configure("", "");
    let config = std::fs::read_to_string(site.config()).unwrap().replace("127.0.0.1:0", &address.to_string());
    site.write("holdpoint.toml", &config);
    let said = refused(&site);
    assert!(said.starts_with("Some(1): error: something else listens on"), "{said}");
    assert!(said.contains(&address.to_string()) && said.contains("\n\nhint: stop it"), "{said}");
    assert!(!site.path("data/holdpoint.db").exists(), "nothing was touched");
}

#[test]
fn an_address_that_others_can_reach_is_refused() {
    let site = Site::new(&bash("true"));
    let config = std::fs::read_to_string(site.config()).unwrap().replace("127.0.0.1:0", "0.0.0.0:0");
    site.write("holdpoint.toml", &config);
    let said = refused(&site);
    assert!(said.starts_with("Some(2): ") && said.contains("is not a loopback address"), "{said}");
}

#[test]
fn a_bad_configuration_is_shown_with_its_line_and_what_to_write() {
    let site = Site::new(&bash("true"));
    site.configure("", "aproval_timeout = \"30s\"");
    let said = refused(&site);
    assert!(said.starts_with("Some(2): error: the configuration"), "{said}");
    assert!(
        said.contains("| aproval_timeout = \"30s\"\n")
            && said.contains("hint: did you mean `approval_timeout`?"),
        "{said}"
    );
}

#[test]
fn what_decides_must_not_lie_where_the_tools_work() {
    let site = Site::new(&bash("true"));
    site.configure("", "");
    let config = std::fs::read_to_string(site.config()).unwrap();
    for (from, to, what) in [
        ("workdir = \"work\"", "workdir = \".\"", "the configuration"),
        ("database = \"data/", "database = \"work/deep/", "the database"),
    ] {
        site.write("holdpoint.toml", &config.replace(from, to));
        let said = refused(&site);
        assert!(said.starts_with(&format!("Some(2): error: {what} `")), "{said}");
        assert!(said.contains("where the tools of agent `main` work\n\nhint: move one of them"), "{said}");
    }
}

#[test]
fn a_rule_that_can_never_apply_is_a_warning_at_the_start() {
    let site = Site::new(&bash("true"));
    site.configure("", "[[agents.policies]]\ndeny = [\"bash\"]");
    let mut serving = Serving::start(site.serve());
    serving.signal("-TERM");
    assert!(serving.wait().success());
    let said = serving.said();
    assert!(
        said.starts_with("warning: ") && said.contains("the rule deny = \"bash\" can never apply"),
        "{said}"
    );
}

#[test]
fn a_second_process_on_the_same_database_is_refused_and_the_first_goes_on() {
    let site = Site::new(&bash("true"));
    let first = Serving::start(site.serve());
    let said = refused(&site);
    assert!(
        said.starts_with("Some(1): error: the database `") && said.contains("another process has"),
        "{said}"
    );
    assert_eq!(first.server.chat("go").0, 202);
}

#[test]
fn a_database_of_a_newer_version_is_left_alone() {
    let site = Site::new(&bash("true"));
    let mut serving = Serving::start(site.serve());
    serving.signal("-TERM");
    assert!(serving.wait().success());
    // The version of the schema stands in the header of the file.
    let path = site.path("data/holdpoint.db");
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(60)).unwrap();
    file.write_all(&99_u32.to_be_bytes()).unwrap();
    drop(file);
    let before = std::fs::read(&path).unwrap();
    let said = refused(&site);
    assert!(said.contains("was written by a newer version (99"), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let site = Site::new(&bash("true"));
    std::fs::create_dir(site.path("data")).unwrap();
    site.write("data/holdpoint.db", &"my diary\n".repeat(1000));
    let said = refused(&site);
    assert!(said.starts_with("Some(1): error: the database `"), "{said}");
    assert_eq!(std::fs::read_to_string(site.path("data/holdpoint.db")).unwrap(), "my diary\n".repeat(1000));
}

/// An open stream does not keep it from stopping, and is told that this is the server's end and not the run's.
#[test]
fn a_signal_ends_it_in_order_and_what_waits_goes_on_waiting() {
    let site = Site::new(&bash("echo ran >> log.txt"));
    for signal in ["-TERM", "-INT"] {
        let mut serving = Serving::start(site.serve());
        let (_, answer) = serving.server.chat("go");
        let run = answer["runId"].as_str().unwrap().to_owned();
        let server = serving.server.clone();
        let path = format!("/v1/runs/{run}/events");
        let stream =
            std::thread::spawn(move || http::send(&server.url, Some(&server.token), "GET", &path, None));
        std::thread::sleep(std::time::Duration::from_millis(300));
        let began = std::time::Instant::now();
        serving.signal(signal);
        assert!(serving.wait().success());
        assert!(began.elapsed().as_secs() < 5, "{signal}: {:?}", began.elapsed());
        let (status, events) = stream.join().unwrap();
        assert_eq!(status, 200);
        assert!(
            events.contains("\"type\":\"closing\"") && events.contains("\"reason\":\"shutdown\""),
            "{events}"
        );
    }
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.pending().len(), 2);
    assert_eq!(site.lines("log.txt"), 0);
}

/// A command that is still running gets its time, and its result is kept.
#[test]
fn a_running_tool_may_end_before_the_server_does() {
    let site = Site::new(&bash("echo began >> log.txt; sleep 1; echo ended >> log.txt"));
    let mut serving = Serving::start(site.serve());
    let (_, answer) = serving.server.chat("go");
    let run = answer["runId"].as_str().unwrap().to_owned();
    assert_eq!(serving.server.decide(&serving.server.pending()[0], "approve", json!({})).0, 200);
    until("the command", || (site.lines("log.txt") == 1).then_some(()));
    serving.signal("-TERM");
    assert!(serving.wait().success());
    assert_eq!(site.lines("log.txt"), 2);
    let serving = Serving::start(site.serve());
    assert_eq!(serving.server.ended(&run)["text"], "done");
    assert_eq!(site.lines("log.txt"), 2, "it ran once");
}

#[test]
fn neither_the_token_nor_at_info_an_argument_is_logged() {
    for (level, arguments_too) in [("debug", false), ("info", true)] {
        let site = Site::new(&bash("echo s3cr3t-argument"));
        let mut command = site.serve();
        command.env("HOLDPOINT_LOG", level);
        let mut serving = Serving::start(command);
        serving.server.chat("my s3cr3t-question");
        serving.server.decide(&serving.server.pending()[0], "approve", json!({ "reason": "s3cr3t-reason" }));
        until("the end", || {
            let runs = serving.server.get("/v1/runs");
            (runs["items"][0]["status"] == "finished").then_some(())
        });
        serving.signal("-TERM");
        assert!(serving.wait().success());
        let token = serving.server.token.clone();
        let said = serving.said();
        assert!(said.contains("serving") && !said.contains(&token), "{said}");
        assert!(!arguments_too || !said.contains("s3cr3t"), "{said}");
    }
}

/// An approved command is run by the user the server runs as. What it must not have is the operator's word.
#[test]
fn an_approved_command_cannot_approve_the_next_one() {
    let site = Site::new(&script(&[
        ("Bash", json!({ "command": "true" })),
        ("Bash", json!({ "command": "echo second >> log.txt" })),
    ]));
    let serving = Serving::start(site.serve());
    let server = &serving.server;
    let (_, answer) = server.chat("go");
    let run = answer["runId"].as_str().unwrap().to_owned();
    let pending = server.pending();
    let at = |index: &str| pending.iter().find(|row| row["request"]["toolCallId"] == index).unwrap();
    let (first, second) = (at("c0"), at("c1"));
    let (id, digest) = (second["requestId"].as_str().unwrap(), second["request"]["digest"].as_str().unwrap());
    let address = server.url.strip_prefix("http://").unwrap();
    let port = address.rsplit_once(':').unwrap().1;
    let strict = json!({ "decision": "approve", "digest": digest }).to_string();
    let lenient = json!({ "requestId": id, "decision": "approve" }).to_string();
    let posts = [(format!("/v1/interactions/{id}/decision"), strict), ("/chat/approval".to_owned(), lenient)];
    // Everything it can find: its environment, its parent's, its parent's arguments, and no Authorization of its own.
    let mut attack = String::from(
        "env > seen.txt; tr '\\0' '\\n' < /proc/$PPID/environ >> seen.txt; tr '\\0' '\\n' < /proc/$PPID/cmdline >> seen.txt\n",
    );
    for (path, body) in &posts {
        for token in
            ["", "Authorization: Bearer\\r\\n", "Authorization: Bearer 00\\r\\n", "Cookie: token=00\\r\\n"]
        {
            attack.push_str(&format!(
                "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'POST {path} HTTP/1.1\\r\\nHost: {address}\\r\\n{token}Content-Type: application/json\\r\\nContent-Length: {}\\r\\nConnection: close\\r\\n\\r\\n%s' '{body}' >&3; head -n1 <&3 >> posts.txt; exec 3>&-\n",
                body.len()
            ));
        }
    }
    let edited = json!({ "command": attack }).to_string();
    assert_eq!(server.decide(first, "approve_with", json!({ "arguments": edited })).0, 200);
    until("the attack", || (site.lines("posts.txt") == 8).then_some(()));
    let posts = std::fs::read_to_string(site.path("work/posts.txt")).unwrap();
    assert!(posts.lines().all(|line| line.starts_with("HTTP/1.1 401")), "{posts}");
    let seen = std::fs::read_to_string(site.path("work/seen.txt")).unwrap();
    assert!(seen.contains("PATH=") && seen.contains("holdpoint\nserve\n"), "it did look: {seen}");
    assert!(!seen.contains(&server.token), "{seen}");
    until("the second request alone", || (server.pending().len() == 1).then_some(()));
    assert_eq!(site.lines("log.txt"), 0);
    assert_eq!(server.decide(second, "decline", json!({})).0, 200);
    assert_eq!(server.ended(&run)["text"], "done");
    assert_eq!(site.lines("log.txt"), 0);
}

/// A token in the environment of whoever starts the server is not handed on to commands.
#[test]
fn a_commands_environment_is_scrubbed() {
    let site = Site::new(&bash("env"));
    let mut command = site.serve();
    command.env("HOLDPOINT_TOKEN", "inherited-token").env("OPENAI_API_KEY", "inherited-key");
    let serving = Serving::start(command);
    let (_, answer) = serving.server.chat("go");
    let run = answer["runId"].as_str().unwrap().to_owned();
    serving.server.decide(&serving.server.pending()[0], "approve", json!({}));
    serving.server.ended(&run);
    let path = format!("/v1/runs/{run}/events");
    let (_, events) = http::send(&serving.server.url, Some(&serving.server.token), "GET", &path, None);
    assert!(events.contains("PATH=") && !events.contains("inherited"), "{events}");
}

/// Prompts are bypassed by the operator's configuration alone, never by a client's word; and it is on record.
#[test]
fn bypassing_prompts_is_off_unless_the_configuration_says_otherwise() {
    let site = Site::new(&bash("echo ran >> log.txt"));
    let body = json!({ "query": "go", "bypassApproval": true });
    let mut serving = Serving::start(site.serve());
    let (status, refusal) = serving.server.post("/chat", &body);
    assert_eq!((status, &refusal["code"]), (403, &json!("bypass_not_granted")), "{refusal}");
    assert_eq!(serving.server.get("/v1/runs")["items"], json!([]), "before the run exists");
    serving.signal("-TERM");
    serving.wait();
    let said = serving.said();
    let line = said.lines().find(|line| line.contains("a request to bypass approval was refused"));
    assert!(line.is_some_and(|line| line.contains("operator")), "who tried is in the log: {said}");
    site.configure("bypass_approval = true", "");
    let serving = Serving::start(site.serve());
    let (status, answer) = serving.server.post("/chat", &body);
    assert_eq!((status, &answer["text"]), (200, &json!("done")), "{answer}");
    assert_eq!(site.lines("log.txt"), 1);
    let run = answer["runId"].as_str().unwrap();
    let (_, events) = http::send(
        &serving.server.url,
        Some(&serving.server.token),
        "GET",
        &format!("/v1/runs/{run}/events"),
        None,
    );
    assert!(events.contains("\"bypass\":\"operator\""), "{events}");
}

/// The room is gone, then it is there again: nothing ran meanwhile, and nothing is lost.
#[test]
fn on_a_full_disk_nothing_is_acknowledged_and_nothing_runs() {
    let site = Site::new(&bash("echo ran >> log.txt"));
    let data = site.path("data");
    std::fs::create_dir(&data).unwrap();
    let mut serving = on_a_small_disk(&site);
    let server = serving.server.clone();
    let (_, answer) = server.chat("go");
    let run = answer["runId"].as_str().unwrap().to_owned();
    let request = server.pending()[0].clone();
    // The disk is mounted in the server's own view of the file system.
    let disk = format!("/proc/{}/root{}", serving.child.id(), data.display());
    let filler = format!("{disk}/filler");
    fill(&filler);

    let (status, refusal) = server.decide(&request, "approve", json!({}));
    assert_eq!((status, &refusal["code"]), (507, &json!("store_full")), "{refusal}");
    let (status, refusal) = server.chat("and this");
    assert_eq!((status, &refusal["code"]), (507, &json!("store_full")), "{refusal}");
    assert_eq!(server.pending().len(), 1, "what was there is still there to be read");
    assert_eq!(site.lines("log.txt"), 0);

    std::fs::remove_file(&filler).unwrap();
    let (status, taken) = server.decide(&request, "approve", json!({}));
    assert_eq!(status, 200, "{taken}");
    assert_eq!(server.ended(&run)["text"], "done");
    assert_eq!(site.lines("log.txt"), 1);
    serving.signal("-TERM");
    assert!(serving.wait().success());
}

fn fill(path: &str) {
    let mut file = std::fs::File::create(path).unwrap();
    for size in [64 * 1024, 4096, 512, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

/// The server in a mount namespace of its own, where the folder of its database is a disk of 2 MiB.
fn on_a_small_disk(site: &Site) -> Serving {
    let serve = site.serve();
    let mut command = std::process::Command::new("unshare");
    if !std::fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t") {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--mount", "sh", "-c", "mount -t tmpfs -o size=2m tmpfs \"$0\" && exec \"$@\""])
        .arg(site.path("data"))
        .arg(serve.get_program())
        .args(serve.get_args())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(std::process::Stdio::null());
    Serving::start(command)
}

#[test]
fn the_configuration_may_be_yaml() {
    let site = Site::new(&bash("true"));
    site.write(
        "holdpoint.yaml",
        "server: {listen: '127.0.0.1:0', database: data/holdpoint.db}\n\
         models: {script: {provider: scripted, script: script.yaml}}\n\
         agents:\n  - name: main\n    model: script\n    workdir: work\n    approval_timeout: 24h\n",
    );
    let path = site.path("holdpoint.yaml");
    let serving = Serving::start(common::process::command(&["serve", "--config", path.to_str().unwrap()]));
    let (status, answer) = serving.server.chat("go");
    assert_eq!(status, 202);
    assert!(answer["interactions"][0]["request"]["deadline"].is_string(), "{answer}");
}

#[test]
fn without_a_configuration_it_says_where_it_looked() {
    let home = tempfile::tempdir().unwrap();
    let mut command = common::process::command(&["serve"]);
    command.env("HOME", home.path()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let looked = home.path().join(".config/holdpoint/holdpoint.toml");
    assert!(
        said.contains(looked.to_str().unwrap()) && said.contains("hint: name one with --config FILE"),
        "{said}"
    );
}
