//! What a client can send, hold and keep open is bounded, and others are served meanwhile.

mod common;

use std::time::{Duration, Instant};

use common::*;
use holdpoint::core::limits::BODY_MAX_BYTES;
use holdpoint::prelude::*;
use holdpoint_server::ServerConfig;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn agent() -> holdpoint::AgentBuilder {
    assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))
}

/// Before a token is looked at, and before anything is parsed.
#[tokio::test]
async fn a_body_has_a_size_whatever_its_head_says() {
    let server = serve(agent()).await;
    let said = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        server.address,
        BODY_MAX_BYTES + 1
    );
    let reply = exchange(server.address, said.as_bytes()).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "body_too_large"));

    // The largest there may be is read, and refused for what is in it.
    let query = "x".repeat(BODY_MAX_BYTES - r#"{"query":1,"a":""}"#.len());
    let largest = format!(r#"{{"query":1,"a":"{query}"}}"#);
    assert_eq!(largest.len(), BODY_MAX_BYTES);
    assert_eq!(server.post("/chat", &largest).await.status, 400);
    assert_eq!(server.post("/chat", &format!("{largest} ")).await.status, 413);

    // Without a length: cut off where it gets too long, not where it ends.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        server.address, server.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, "[".repeat(64 * 1024));
    let mut sent = 0;
    while sent < 200 * 1024 * 1024 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
        sent += 64 * 1024;
    }
    assert!(sent < 64 * 1024 * 1024, "the server stopped reading after {sent} bytes");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
}

/// A time that no person could mean is a mistake, and no time without an end.
#[tokio::test]
async fn a_time_that_a_client_gives_people_has_the_bounds_of_a_configured_one() {
    let server = serve(agent()).await;
    for ms in [
        "0",
        "-1",
        "1.5",
        "1e3",
        "999",
        "315360000001",
        "18446744073709551615",
        "18446744073709551616",
        "\"5s\"",
        "null",
    ] {
        let reply = server.post("/chat", &format!(r#"{{"query":"go","approvalTimeoutMs":{ms}}}"#)).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "bad_json"), "{ms}");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.contains("`approvalTimeoutMs`")
                && detail.contains("from 1000 ")
                && detail.contains(" 315360000000 "),
            "{detail}"
        );
    }
    for ms in ["1000", "315360000000"] {
        let reply = server.post("/chat", &format!(r#"{{"query":"go","approvalTimeoutMs":{ms}}}"#)).await;
        assert_eq!(reply.status, 202, "{ms}");
    }
    assert_eq!(server.get("/v1/runs").await.json()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_body_that_is_nested_too_deep_is_refused() {
    let server = serve(agent()).await;
    let request = server.suspended().await;
    for depth in [66, 127, 128, 100_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let body = format!(
                r#"{{"decision":"approve_with","digest":{},"arguments":{{"a":{deep}}}}}"#,
                request["digest"]
            );
            let path = format!("/v1/interactions/{}/decision", request["requestId"].as_str().unwrap());
            let reply = server.post(&path, &body).await;
            assert_eq!((reply.status, reply.code().as_str()), (400, "bad_json"), "{depth}");
        }
    }
    assert_eq!(server.status_of(&request).await, "pending");
}

/// https://github.com/tokio-rs/axum/issues/2741 - hyper's own timeout does nothing without a timer, and nothing at
/// all before the first byte.
#[tokio::test]
async fn slow_heads_are_closed_and_others_served_meanwhile() {
    let config = ServerConfig { header_timeout: Duration::from_millis(500), ..config() };
    let server = serve_runtime(runtime(agent()), config).await;
    let began = Instant::now();
    // Nothing at all; a letter that both versions of HTTP begin with; a head that never ends; an idle second request.
    let beginnings: [&[u8]; 5] =
        [b"", b"P", b"PRI * HTTP/2.0\r\n\r\nS", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-A: ", b"G"];
    let mut slow = Vec::new();
    for n in 0..500 {
        let address = server.address;
        slow.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(beginnings[n % beginnings.len()]).await;
            let drip = n % beginnings.len() >= 3;
            let mut answer = [0; 1024];
            loop {
                match tokio::time::timeout(Duration::from_millis(100), stream.read(&mut answer)).await {
                    Ok(Ok(0) | Err(_)) => return,
                    Ok(Ok(_)) => {}
                    Err(_quiet) if drip => {
                        let _ = stream.write_all(b"a").await;
                    }
                    Err(_quiet) => {}
                }
            }
        }));
    }
    for _ in 0..5 {
        let asked = Instant::now();
        assert_eq!(server.get("/v1/agents").await.status, 200);
        assert!(asked.elapsed() < Duration::from_secs(2), "others are served");
    }
    for one in slow {
        tokio::time::timeout(PATIENCE, one).await.unwrap().unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn a_slow_body_is_given_up() {
    let config = ServerConfig { body_timeout: Duration::from_millis(200), ..config() };
    let server = serve_runtime(runtime(agent()), config).await;
    let head = format!(
        "POST /chat HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{{",
        server.address, server.token
    );
    let reply = exchange(server.address, head.as_bytes()).await;
    assert_eq!((reply.status, reply.code().as_str()), (408, "body_too_slow"));
}

/// A reader that does not read costs a bounded buffer, is cut, and misses nothing that is stored; one that
/// reads gets all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_cut_and_the_run_and_others_are_not_touched() {
    const PIECES: usize = 1_500;
    let words = format!("{} ", "x".repeat(3_000)).repeat(PIECES);
    let model = Scripted::new("script")
        .rule(
            When::any().has_tool_result(true),
            Answer::text(words.trim_end()).pace(Duration::from_millis(1)),
        )
        .rule(When::any(), Answer::call("c1", "Read", r#"{"path":"a"}"#).after(Duration::from_millis(100)))
        .build();
    let server = serve(assistant(&Log::default(), model)).await;
    let mut slow = server.chat_stream(&json!({"query": "go"})).await;
    let run = slow.event().await.unwrap().data()["runId"].as_str().unwrap().to_owned();
    let path = format!("/v1/runs/{run}/events");
    let mut fast = server.events(&path).await;
    let fast = tokio::spawn(async move { fast.rest().await });
    // The slow one sees that the first round is over, and stops reading. The run goes on to its end all the same.
    slow.until("round_committed").await;
    let fast = fast.await.unwrap();
    assert_eq!(fast.last().unwrap().kind(), "finish");
    assert_eq!(fast.iter().filter(|frame| frame.kind() == "token").count(), PIECES);
    assert_eq!(server.ended(&run).await["finish"], "success");

    let frames = slow.rest().await;
    let last = frames.last().unwrap();
    assert_eq!((last.kind(), last.id), ("closing", None));
    assert_eq!(last.data()["reason"], "slow_reader");
    assert!(last.data()["retryAfterMs"].as_u64().unwrap() >= 1_000);
    assert!(frames.len() < PIECES);
    assert!(
        !frames.iter().any(|frame| matches!(frame.kind(), "finish" | "error")),
        "the run has not said its end here"
    );
    let committed = fast.iter().find(|frame| frame.kind() == "round_committed").unwrap().id.unwrap();
    let back = server.request("GET", &path).header("Last-Event-ID", &committed.to_string());
    let rest = back.stream().await.rest().await;
    let whole = durable(&fast);
    assert_eq!(durable(&rest), whole[usize::try_from(committed).unwrap()..]);
    assert!(server.get("/metrics").await.body.contains("\nholdpoint_streams_cut_total 1\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_client_takes_nothing_is_broken_off() {
    let log = Log::default();
    let config = ServerConfig { write_stall_timeout: Duration::from_millis(300), ..config() };
    // Larger than what the system buffers for a connection.
    let big = Scripted::new("script").rule(When::any(), Answer::text("x".repeat(900_000))).build();
    let server = serve_runtime(runtime(assistant(&log, big)), config).await;
    let body = json!({"query": "go", "conversationId": "talk"}).to_string();
    for _ in 0..12 {
        assert_eq!(server.post("/chat", &body).await.status, 200);
    }
    let runs = server.get("/v1/runs").await.json();
    let mut stalled = Vec::new();
    for run in runs["items"].as_array().unwrap() {
        // Many requests on one connection, and not one answer read.
        let path = format!("/v1/runs/{}", run["runId"].as_str().unwrap());
        stalled.push(server.request("GET", &path).bytes());
    }
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&stalled.concat()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    // The server has given up: what it had sent can be read, and then the connection is at its end.
    let mut read = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await.unwrap();
    let answers = String::from_utf8_lossy(&read).matches("HTTP/1.1 200").count();
    assert!(
        end.is_err() || answers < stalled.len(),
        "{answers} answers were sent to a client that took none"
    );
    assert_eq!(server.get("/v1/agents").await.status, 200);
}

/// Many streams and a decision beside them, on one connection by prior knowledge.
#[tokio::test]
async fn over_http2_streams_do_not_starve_a_decision() {
    let server = serve(agent()).await;
    let request = server.suspended().await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    tokio::spawn(connection);
    let build = |method: &str, path: &str, body: String| {
        http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", server.address))
            .header("Authorization", format!("Bearer {}", server.token))
            .header("Content-Type", "application/json")
            .body(body)
            .unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..8 {
        let path = format!("/v1/runs/{}/events", run_of(&request));
        let reply = sender.send_request(build("GET", &path, String::new())).await.unwrap();
        assert_eq!((reply.status().as_u16(), reply.version()), (200, http::Version::HTTP_2));
        streams.push(reply);
    }
    let body = json!({"decision": "approve", "digest": request["digest"]}).to_string();
    let path = format!("/v1/interactions/{}/decision", request["requestId"].as_str().unwrap());
    let reply = sender.send_request(build("POST", &path, body)).await.unwrap();
    assert_eq!(reply.status().as_u16(), 200);
    for stream in streams {
        use http_body_util::BodyExt;
        let whole = tokio::time::timeout(PATIENCE, stream.into_body().collect()).await.unwrap().unwrap();
        let text = String::from_utf8(whole.to_bytes().to_vec()).unwrap();
        assert!(text.contains("\"type\":\"finish\""));
    }
    // By another name it is not ours here, either.
    let foreign = http::Request::builder().uri("http://evil.example/healthz").body(String::new()).unwrap();
    assert_eq!(sender.send_request(foreign).await.unwrap().status().as_u16(), 421);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_clients_come_back_at_once() {
    let server = serve(agent()).await;
    let request = server.suspended().await;
    let path = format!("/v1/runs/{}/events", run_of(&request));
    let came = futures_util::future::join_all((0..300).map(|_| async {
        let mut stream = server.request("GET", &path).header("Last-Event-ID", "1").stream().await;
        let retry = stream.next().await.unwrap().retry.unwrap();
        stream.until("approval_request").await;
        (stream, retry)
    }))
    .await;
    let spread: std::collections::HashSet<u64> = came.iter().map(|(_, retry)| *retry).collect();
    assert!(spread.len() > 100, "retries are spread");
    server.approve(&request).await;
    for (mut stream, _) in came {
        stream.until("finish").await;
    }
}
