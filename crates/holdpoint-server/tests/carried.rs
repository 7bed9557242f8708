//! A stream over HTTP/1.1 is carried on its own, and looks to its client like any other answer.
#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::time::Duration;

use common::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn waiting() -> (Running, serde_json::Value, String) {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let request = server.suspended().await;
    let path = format!("/v1/runs/{}/events", run_of(&request));
    (server, request, path)
}

#[tokio::test]
async fn the_head_of_a_stream_says_what_every_answer_says() {
    let (server, request, path) = waiting().await;
    let mut stream = server.events(&path).await;
    assert_eq!(stream.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("cache-control", "no-cache, no-transform"),
        ("x-content-type-options", "nosniff"),
        ("vary", "Origin"),
    ] {
        assert_eq!(stream.header(name), Some(value), "{name}");
    }
    assert_eq!(stream.header("content-length"), None);
    let date = stream.header("date").unwrap();
    assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    server.approve(&request).await;
    assert_eq!(stream.rest().await.last().unwrap().kind(), "finish");
}

/// The one answer after which nothing is answered on the connection; what came before it on the same one is.
#[tokio::test]
async fn a_stream_is_the_last_answer_of_its_connection() {
    let (server, request, path) = waiting().await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let one = server.request("GET", "/healthz").bytes();
    for _ in 0..3 {
        connection.write_all(&one).await.unwrap();
        let mut read = [0; 4_096];
        let n = connection.read(&mut read).await.unwrap();
        assert!(read[..n].starts_with(b"HTTP/1.1 200"));
    }
    // The next request is there before the stream is answered.
    let both = [server.request("GET", &path).bytes(), one].concat();
    connection.write_all(&both).await.unwrap();
    let mut stream = Sse::open(connection).await;
    stream.until("approval_request").await;
    server.approve(&request).await;
    let rest = stream.rest().await;
    assert_eq!(rest.last().unwrap().kind(), "finish");
}

/// Answers that wait to be read stand before the stream and stay whole.
#[tokio::test]
async fn answers_that_are_not_out_yet_are_not_lost_to_a_stream() {
    let (server, request, path) = waiting().await;
    let many = server.request("GET", "/openapi.json").bytes().repeat(40);
    let all = [many, server.request("GET", &path).bytes()].concat();
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(&all).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.approve(&request).await;
    let mut read = Vec::new();
    let whole = async {
        while !String::from_utf8_lossy(&read).contains("\"type\":\"finish\"") {
            let mut some = [0; 65_536];
            let n = connection.read(&mut some).await.unwrap();
            assert!(n > 0, "cut after {} bytes", read.len());
            read.extend_from_slice(&some[..n]);
        }
    };
    tokio::time::timeout(PATIENCE, whole).await.unwrap();
    let text = String::from_utf8_lossy(&read);
    assert_eq!(text.matches("HTTP/1.1 200").count(), 41);
    assert_eq!(text.matches("\"openapi\":").count(), 40);
}

/// A client of HTTP/1.0 knows no chunks, and gets the stream plain.
#[tokio::test]
async fn an_old_client_gets_the_stream_without_chunks() {
    let (server, request, path) = waiting().await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let old = String::from_utf8(server.request("GET", &path).bytes()).unwrap();
    connection.write_all(old.replace("HTTP/1.1", "HTTP/1.0").as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.approve(&request).await;
    let mut read = Vec::new();
    tokio::time::timeout(PATIENCE, connection.read_to_end(&mut read)).await.unwrap().unwrap();
    let text = String::from_utf8(read).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    assert!(body.starts_with(": holdpoint\n") && body.contains("\"type\":\"finish\""), "{body}");
}

#[tokio::test]
async fn asked_for_the_head_alone_a_stream_is_not_opened() {
    let (server, _, path) = waiting().await;
    let reply = server.request("HEAD", &path).send().await;
    assert_eq!((reply.status, reply.body.as_str()), (200, ""));
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert!(server.get("/metrics").await.body.contains("\nholdpoint_streams_open 0\n"));
}

/// A client that goes away is noticed although nothing is sent to it, and nothing is kept for it.
#[tokio::test]
async fn a_stream_whose_client_is_gone_is_over() {
    let (server, _, path) = waiting().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = server.events(&path).await;
        stream.until("suspended").await;
        streams.push(stream);
    }
    assert!(server.get("/metrics").await.body.contains("\nholdpoint_streams_open 20\n"));
    drop(streams);
    let gone = async {
        while !server.get("/metrics").await.body.contains("\nholdpoint_streams_open 0\n") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}
