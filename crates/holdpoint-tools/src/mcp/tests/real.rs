//! Servers nobody here wrote: `@modelcontextprotocol/server-filesystem` and `server-everything`.

use std::process::{Child, Command, Stdio};

use serde_json::json;
use tokio::time::sleep;

use super::*;

/// The program of a server; fails with the command that installs it.
fn program(name: &str) -> String {
    let path = folder().join("node_modules/@modelcontextprotocol").join(name).join("dist/index.js");
    assert!(
        path.exists(),
        "the test servers are not installed; run: npm ci --prefix crates/holdpoint-tools/tests/mcp"
    );
    path.display().to_string()
}

#[tokio::test]
async fn the_filesystem_server_lists_writes_and_reads() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().display().to_string();
    let config = McpServerConfig::stdio("node", [program("server-filesystem"), root.clone()]);
    let server = McpServer::start("files", config).unwrap();
    let snapshot = ready(&server).await;
    assert!(snapshot.unusable.is_empty(), "{:?}", snapshot.unusable);
    let definition = tool(&server, "files__read_text_file").offered.definition;
    assert_eq!(definition.effect, crate::EffectClass::AtMostOnce);
    assert!(definition.claims.as_deref().is_some_and(|claims| claims.contains("\"readOnlyHint\":true")));
    let path = format!("{root}/note.txt");
    call(&tool(&server, "files__write_file"), json!({"path": path, "content": "hällo"})).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hällo");
    let read = call(&tool(&server, "files__read_text_file"), json!({"path": path})).await.unwrap();
    let read = serde_json::to_string(&read.content).unwrap();
    assert!(read.contains("hällo"), "{read}");
    let error =
        call(&tool(&server, "files__read_text_file"), json!({"path": "/etc/passwd"})).await.unwrap_err();
    assert!(error.code == "TOOL_ERROR" && error.message.contains("Access denied"), "{error}");
    server.close().await;
}

#[tokio::test]
async fn the_everything_server_works_over_stdio() {
    let config = McpServerConfig::stdio("node", [program("server-everything"), "stdio".to_owned()]);
    let server = McpServer::start("every", config).unwrap();
    ready(&server).await;
    exercise(&server).await;
    server.close().await;
}

#[tokio::test]
async fn the_everything_server_works_over_http_and_is_found_again_after_a_restart() {
    let http = HttpServer::start(free_port()).await;
    let server = McpServer::start("every", McpServerConfig::http(http.url())).unwrap();
    ready(&server).await;
    exercise(&server).await;
    let echo = tool(&server, "every__echo");
    let port = http.port;
    drop(http);
    let error = call(&echo, json!({"message": "hi"})).await.unwrap_err();
    assert_eq!(error.code, "SERVER_UNAVAILABLE", "{error}");
    assert!(error.not_executed);
    let _http = HttpServer::start(port).await;
    let said = loop {
        match call(&echo, json!({"message": "again"})).await {
            Ok(output) => break text(output),
            Err(error) => assert!(error.not_executed, "{error}"),
        }
    };
    assert!(said.contains("again"), "{said}");
}

async fn exercise(server: &McpServer) {
    let snapshot = server.snapshot();
    assert!(snapshot.tools.len() >= 8, "{snapshot:?}");
    assert!(snapshot.unusable.is_empty(), "{:?}", snapshot.unusable);
    let said = text(call(&tool(server, "every__echo"), json!({"message": "hi"})).await.unwrap());
    assert!(said.contains("hi"), "{said}");
    let image = call(&tool(server, "every__get-tiny-image"), json!({})).await.unwrap();
    let image = serde_json::to_value(image.content).unwrap();
    let parts = image["parts"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["image"]["media_type"] == "image/png"), "{parts:?}");
    let structured =
        call(&tool(server, "every__get-structured-content"), json!({"location": "Chicago"})).await.unwrap();
    let ResultContent::Json(structured) = structured.content else { panic!("{structured:?}") };
    assert!(structured.get().contains("temperature"), "{structured}");
    let reports = Reports::default();
    let report = |message: Option<&str>, fraction: Option<f64>| reports.add(message, fraction);
    let long = tool(server, "every__trigger-long-running-operation");
    call_with(&long, json!({"duration": 1, "steps": 4}), &CancellationToken::new(), &report).await.unwrap();
    let fractions = reports.fractions();
    assert!(
        !fractions.is_empty() && fractions.is_sorted() && fractions.iter().all(|f| (0.0..=1.0).contains(f))
    );
    let cancel = CancellationToken::new();
    let stop = async {
        sleep(Duration::from_millis(300)).await;
        cancel.cancel();
    };
    let (ended, ()) =
        tokio::join!(call_with(&long, json!({"duration": 30, "steps": 3}), &cancel, &|_, _| {}), stop);
    assert!(ended.unwrap_err().outcome_unknown);
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct HttpServer {
    child: Child,
    port: u16,
}

impl HttpServer {
    async fn start(port: u16) -> Self {
        let child = Command::new("node")
            .args([&program("server-everything"), "streamableHttp"])
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, port };
        for _ in 0..1500 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return server;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the server did not come up");
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
