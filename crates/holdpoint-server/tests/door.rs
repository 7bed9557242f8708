//! The door: who is let in, by which name, from which page, with what kind of body.

mod common;

use common::*;
use holdpoint_server::{OperatorToken, Server, ServerConfig, ServerError};
use serde_json::json;

const ALL: [(&str, &str); 20] = [
    ("POST", "/chat"),
    ("POST", "/chat/stream"),
    ("POST", "/chat/approval"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/runs/0198c5a0-0000-7000-8000-000000000000"),
    ("GET", "/v1/runs/0198c5a0-0000-7000-8000-000000000000/events"),
    ("POST", "/v1/runs/0198c5a0-0000-7000-8000-000000000000/cancel"),
    ("POST", "/v1/tools/Read/invoke"),
    ("GET", "/v1/interactions"),
    ("GET", "/v1/interactions/events"),
    ("GET", "/v1/interactions/0f5a3c1e-7d64-4c53-9d61-5b7e5a1f0c11"),
    ("POST", "/v1/interactions/0f5a3c1e-7d64-4c53-9d61-5b7e5a1f0c11/decision"),
    ("GET", "/v1/agents"),
    ("POST", "/v1/policy/explain"),
    ("GET", "/v1/audit"),
    ("GET", "/v1/audit/verify"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/no/such/route"),
    ("POST", "/no/such/route"),
];

async fn plain() -> (Log, Running) {
    let log = Log::default();
    let server = serve(assistant(&log, one_call("pay", r#"{"sum":5}"#))).await;
    (log, server)
}

#[tokio::test]
async fn nothing_but_its_health_answers_without_the_operators_token() {
    let (log, server) = plain().await;
    let token = &server.token;
    let near = format!("{}0", &token[..token.len() - 1]);
    let near = if near == *token { format!("{}1", &token[..token.len() - 1]) } else { near };
    let wrong = [
        ("X-Nothing", String::new()),
        ("Authorization", "Bearer ".into()),
        ("Authorization", format!("Bearer {near}")),
        ("Authorization", format!("Bearer  {token}")),
        ("Authorization", token.clone()),
        ("Authorization", format!("Basic {token}")),
        // A browser would send these by itself, or write them down.
        ("Cookie", format!("token={token}; Authorization=Bearer {token}")),
        ("X-Api-Key", token.clone()),
    ];
    for (method, path) in ALL {
        for (name, value) in &wrong {
            let reply =
                Request::new(server.address, method, path).header(name, value).json("{}").send().await;
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (401, "unauthenticated"),
                "{method} {path} {name}"
            );
            assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"holdpoint\""));
            assert!(!reply.body.contains(token.as_str()));
        }
        let in_url = format!("{path}?access_token={token}&token={token}");
        let reply = Request::new(server.address, method, &in_url).json("{}").send().await;
        assert_eq!(reply.status, 401, "{method} {path} with the token in the URL");
        let bearer = format!("Bearer {token}");
        let twice = server.request(method, path).header("Authorization", &bearer).json("{}").send().await;
        assert_eq!(twice.status, 401, "two of them");
    }
    for path in ["/healthz", "/readyz"] {
        let reply = Request::new(server.address, "GET", path).send().await;
        assert_eq!(reply.status, 200, "{path}");
    }
    assert!(log.calls().is_empty());
}

#[tokio::test]
async fn a_name_that_is_not_ours_is_turned_away_on_every_route() {
    let (_, server) = plain().await;
    let port = server.address.port();
    let foreign = [
        None,
        Some(String::new()),
        Some(format!("evil.example:{port}")),
        Some("127.0.0.1".into()),
        Some(format!("127.0.0.1:{port}@evil.example")),
        Some(format!("127.0.0.1.evil.example:{port}")),
        Some(format!("0.0.0.0:{port}")),
        Some(format!("127.0.0.1:{}", port ^ 1)),
    ];
    for (method, path) in ALL.into_iter().chain([("GET", "/healthz"), ("GET", "/readyz")]) {
        for host in &foreign {
            let reply = server.request(method, path).host(host.as_deref()).json("{}").send().await;
            assert!(matches!(reply.status, 400 | 421), "{method} {path} {host:?}: {}", reply.status);
        }
    }
    for own in [format!("localhost:{port}"), format!("[::1]:{port}"), format!("127.0.0.1:{port}")] {
        let reply = server.request("GET", "/v1/agents").host(Some(&own)).send().await;
        assert_eq!(reply.status, 200, "{own}");
    }
    let two =
        server.request("GET", "/v1/agents").header("Host", &format!("evil.example:{port}")).send().await;
    assert!(matches!(two.status, 400 | 421), "{two:?}");
    let absolute = format!("http://evil.example:{port}/v1/agents");
    assert_eq!(server.request("GET", &absolute).send().await.status, 421);
}

#[tokio::test]
async fn a_page_of_another_origin_can_neither_send_nor_read() {
    let log = Log::default();
    let config = ServerConfig { allowed_origins: vec!["https://app.example".into()], ..config() };
    let agent = assistant(&log, one_call("pay", r#"{"sum":5}"#));
    let server = serve_runtime(runtime(agent), config).await;
    let request = server.suspended().await;
    let body = json!({"requestId": request["requestId"], "decision": "approve"}).to_string();
    let own = format!("http://127.0.0.1:{}", server.address.port());

    for foreign in [
        "https://evil.example",
        "null",
        "https://app.example.evil.example",
        "http://app.example",
        "http://127.0.0.1:1",
        "",
    ] {
        let posted =
            server.request("POST", "/chat/approval").header("Origin", foreign).json(&body).send().await;
        assert_eq!((posted.status, posted.code().as_str()), (403, "wrong_origin"), "{foreign}");
        let read = server.request("GET", "/v1/interactions").header("Origin", foreign).send().await;
        assert_eq!(read.status, 403);
        let preflight = Request::new(server.address, "OPTIONS", "/chat/approval")
            .header("Origin", foreign)
            .header("Access-Control-Request-Method", "POST")
            .send()
            .await;
        for reply in [posted, read, preflight] {
            assert_eq!(reply.header("access-control-allow-origin"), None, "{foreign}");
            assert_eq!(reply.header("access-control-allow-credentials"), None);
        }
    }
    let silent = server.request("POST", "/chat/approval").header("Sec-Fetch-Site", "cross-site").json(&body);
    assert_eq!(silent.send().await.status, 403);
    assert_eq!(server.status_of(&request).await, "pending");

    let preflight = Request::new(server.address, "OPTIONS", "/chat/approval")
        .header("Origin", "https://app.example")
        .header("Access-Control-Request-Method", "POST")
        .send()
        .await;
    assert_eq!(
        (preflight.status, preflight.header("access-control-allow-origin")),
        (204, Some("https://app.example"))
    );
    assert_eq!(preflight.header("access-control-allow-credentials"), None);
    for good in ["https://app.example", &own] {
        let reply = server.request("GET", "/v1/agents").header("Origin", good).send().await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, Some(good)));
        assert_eq!(reply.header("vary"), Some("Origin"));
    }
}

#[tokio::test]
async fn a_body_that_is_not_plain_json_is_not_read() {
    let (log, server) = plain().await;
    let request = server.suspended().await;
    let body = json!({"requestId": request["requestId"], "decision": "approve"}).to_string();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        "application/jsonp",
        "text/plain; x=application/json",
        "application/json; charset=utf-16",
        "application/json;charset=\"ISO-8859-1\"",
    ] {
        let reply = server
            .request("POST", "/chat/approval")
            .header("Content-Type", kind)
            .body(body.clone())
            .send()
            .await;
        assert_eq!((reply.status, reply.code().as_str()), (415, "not_json"), "{kind}");
    }
    let none = server.request("POST", "/chat/approval").body(body.clone()).send().await;
    assert_eq!(none.status, 415);
    for encoding in ["gzip", "br", "zstd", "deflate", "gzip, gzip", "identity, gzip"] {
        // Refused before the token is looked at, and so with certainty before anything is expanded.
        let reply = Request::new(server.address, "POST", "/chat/approval")
            .header("Content-Encoding", encoding)
            .json(&body)
            .send()
            .await;
        assert_eq!((reply.status, reply.code().as_str()), (415, "encoded_body"), "{encoding}");
    }
    assert_eq!(server.status_of(&request).await, "pending");
    let good =
        server.request("POST", "/chat/approval").header("Content-Type", "Application/JSON; charset=utf-8");
    assert_eq!(good.body(body).send().await.status, 200);
    server.ended(&run_of(&request)).await;
    assert_eq!(log.calls().len(), 1);
}

#[tokio::test]
async fn every_answer_says_what_may_be_done_with_it() {
    let (_, server) = plain().await;
    for (method, path) in ALL.into_iter().filter(|(_, path)| !path.ends_with("events")) {
        let reply = server.request(method, path).json("{}").send().await;
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("x-frame-options"), Some("DENY"), "{path}");
        assert!(
            reply.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"),
            "{path}"
        );
        if reply.status >= 400 {
            reply.code();
        }
    }
}

#[tokio::test]
async fn an_unknown_route_and_a_wrong_method_are_said_as_problems() {
    let (_, server) = plain().await;
    for path in ["/", "/v1", "/v1/", "/v1/runs/", "/v2/runs", "/chat/", "/v1/interactions/a/b/c", "/console"]
    {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{path}");
    }
    for (method, path, allow) in
        [("POST", "/v1/runs", "GET, HEAD"), ("DELETE", "/v1/runs", "GET, HEAD"), ("GET", "/chat", "POST")]
    {
        let reply = server.request(method, path).json("{}").send().await;
        assert_eq!((reply.status, reply.code().as_str()), (405, "wrong_method"), "{method} {path}");
        assert_eq!(reply.header("allow"), Some(allow));
    }
}

#[tokio::test]
async fn a_server_listens_on_this_machine_alone_and_says_so_when_it_cannot() {
    let agent = || runtime(assistant(&Log::default(), three_calls()));
    let token = || OperatorToken::generate().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0", "192.168.1.2:8410"] {
        let config = ServerConfig { listen: address.parse().unwrap(), ..config() };
        let refused = Server::bind(agent(), config, token()).await.unwrap_err();
        assert!(matches!(refused, ServerError::NotLoopback(_)), "{address}");
        assert!(refused.to_string().contains(address), "{refused}");
    }
    let first = Server::bind(agent(), config(), token()).await.unwrap();
    assert_eq!(first.url(), format!("http://{}", first.local_addr()));
    let taken = ServerConfig { listen: first.local_addr(), ..config() };
    let refused = Server::bind(agent(), taken, token()).await.unwrap_err();
    assert!(matches!(refused, ServerError::Taken(_)), "{refused}");
    for beat in [0, 31] {
        let config = ServerConfig { heartbeat: std::time::Duration::from_secs(beat), ..config() };
        assert!(matches!(Server::bind(agent(), config, token()).await, Err(ServerError::Heartbeat(_))));
    }
    let config = ServerConfig { allowed_origins: vec!["*".into()], ..config() };
    assert!(matches!(Server::bind(agent(), config, token()).await, Err(ServerError::Origin(_))));
}
