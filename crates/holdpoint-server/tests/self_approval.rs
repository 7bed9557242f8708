//! A command that was approved cannot approve the next one: it does not have the operator's token.

#![cfg(unix)]

mod common;

use common::*;
use holdpoint::prelude::*;
use holdpoint_tools::builtin::{Workdir, bash};
use serde_json::json;

#[tokio::test]
async fn an_approved_bash_that_posts_its_own_next_approval_gets_401() {
    let folder = tempfile::tempdir().unwrap();
    let workdir = Workdir::open(folder.path()).unwrap();
    let model = Scripted::new("script")
        .rule(When::any().has_tool_result(true), Answer::text("done"))
        .rule(
            When::any(),
            Answer::call("c1", "Bash", r#"{"command":"true"}"#).and_call(
                "c2",
                "Bash",
                r#"{"command":"touch taken"}"#,
            ),
        )
        .build();
    let server = serve(Agent::builder("main", model).tools([bash(&workdir)])).await;
    let waiting = server.post("/chat", r#"{"query":"go"}"#).await.json();
    let requests: Vec<_> =
        waiting["interactions"].as_array().unwrap().iter().map(|one| one["request"].clone()).collect();

    // It is even told which request to approve, and looks for the token where it could be.
    let body = json!({"requestId": requests[1]["requestId"], "decision": "approve"}).to_string();
    let (address, port) = (server.address, server.address.port());
    let post = format!(
        "POST /chat/approval HTTP/1.1\\r\\nHost: {address}\\r\\nContent-Type: application/json\\r\\nContent-Length: {}\\r\\nConnection: close\\r\\n\\r\\n{}",
        body.len(),
        body.replace('"', "\\\"")
    );
    let command = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf \"{post}\" >&3; cat <&3; env; tr '\\0' '\\n' </proc/$PPID/environ; tr '\\0' '\\n' </proc/$PPID/cmdline"
    );
    let edit = json!({
        "decision": "approve_with",
        "digest": requests[0]["digest"],
        "arguments": json!({"command": command}).to_string(),
    });
    let reply = server.decide(&requests[0], &edit).await;
    assert_eq!(reply.status, 200, "{reply:?}");

    let mut stream = server.events(&format!("/v1/runs/{}/events", run_of(&requests[0]))).await;
    let said = stream.until("tool_result").await.data().to_string();
    assert!(said.contains("HTTP/1.1 401"), "{said}");
    assert!(!said.contains(&server.token), "the token is nowhere the command can look");
    assert_eq!(server.status_of(&requests[1]).await, "pending");
    assert!(!folder.path().join("taken").exists());
    assert_eq!(server.decide(&requests[1], &json!({"decision": "decline"})).await.status, 200);
    stream.until("finish").await;
    assert!(!folder.path().join("taken").exists());
}
