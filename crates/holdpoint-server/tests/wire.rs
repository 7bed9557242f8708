//! The wire of a whole run, as a client sees it: what changes here changes for everybody who reads it.

#![allow(clippy::unwrap_used)] // these are tests

mod common;

use std::collections::HashMap;

use common::*;
use serde_json::json;

/// Ids, times and digests by the order in which they appear, so that the text is the same each time.
#[derive(Default)]
struct Normal {
    names: HashMap<String, String>,
}

impl Normal {
    fn text(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (taken, kind) = Self::next(rest);
            if kind.is_empty() {
                out.push_str(&rest[..taken]);
            } else if kind == "time" {
                // Two of them may or may not be the same millisecond.
                out.push_str("<time>");
            } else {
                let count = self.names.len() + 1;
                let name =
                    self.names.entry(rest[..taken].to_owned()).or_insert_with(|| format!("<{kind} {count}>"));
                out.push_str(name);
            }
            rest = &rest[taken..];
        }
        out
    }

    /// How much of the text belongs together, and what it is.
    fn next(text: &str) -> (usize, &'static str) {
        let shape = |pattern: &str| {
            text.len() >= pattern.len()
                && text.bytes().zip(pattern.bytes()).all(|(found, wanted)| match wanted {
                    b'x' => found.is_ascii_hexdigit() && !found.is_ascii_uppercase(),
                    b'0' => found.is_ascii_digit(),
                    other => found == other,
                })
        };
        if shape("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
            (36, "id")
        } else if text.starts_with("sha256:") {
            ("sha256:".len() + 64, "digest")
        } else if shape("0000-00-00T00:00:00") {
            (text.find('Z').unwrap() + 1, "time")
        } else {
            (text.chars().next().unwrap().len_utf8(), "")
        }
    }
}

fn wire(frames: &[Frame]) -> String {
    let mut normal = Normal::default();
    let mut out = String::new();
    for frame in frames.iter().filter(|frame| frame.data.is_some()) {
        let id = frame.id.map_or("    -".to_owned(), |id| format!("{id:>5}"));
        out.push_str(&format!("{id} {}\n", normal.text(&frame.data().to_string())));
    }
    out
}

#[tokio::test]
async fn the_wire_of_a_whole_run() {
    let server = serve(assistant(&Log::default(), three_calls())).await;
    let mut stream = server.chat_stream(&json!({"query": "go"})).await;
    let mut frames = Vec::new();
    let mut requests = Vec::new();
    while let Some(frame) = stream.next().await {
        if frame.kind() == "approval_request" {
            requests.push(frame.data().clone());
        }
        let suspended = frame.kind() == "suspended";
        frames.push(frame);
        if suspended {
            // One after the other, so that the order of events is one and the same.
            let words = json!({"decision": "decline", "reason": "not that file"});
            server.decide(&requests[0], &words).await;
            while frames.last().unwrap().kind() != "tool_result" {
                frames.push(stream.next().await.unwrap());
            }
            server.approve(&requests[1]).await;
        }
    }
    insta::assert_snapshot!(wire(&frames));
}

#[tokio::test]
async fn the_answers_of_a_run_that_is_not_streamed() {
    let server = serve(assistant(&Log::default(), one_call("pay", r#"{"sum":5}"#))).await;
    let mut normal = Normal::default();
    let mut out = String::new();
    let mut say = |what: &str, reply: &Reply| {
        let body = serde_json::to_string_pretty(&reply.json()).unwrap();
        out.push_str(&format!("{what}\n{} {}\n\n", reply.status, normal.text(&body)));
    };
    let waiting = server.post("/chat", r#"{"query":"go","conversationId":"talk"}"#).await;
    let request = waiting.json()["interactions"][0]["request"].clone();
    say("POST /chat", &waiting);
    let stale =
        server.decide(&request, &json!({"decision": "approve", "digest": "sha256:of another call"})).await;
    say("POST decision, of something else", &stale);
    say("POST decision", &server.approve(&request).await);
    server.ended(&run_of(&request)).await;
    say("POST decision, the other way", &server.decide(&request, &json!({"decision": "decline"})).await);
    let lenient = json!({"requestId": request["requestId"], "decision": "no"}).to_string();
    say("POST /chat/approval, the other way", &server.post("/chat/approval", &lenient).await);
    say("GET run", &server.get(&format!("/v1/runs/{}", run_of(&request))).await);
    insta::assert_snapshot!(out);
}
