//! The server of W5: Holdpoint over HTTP with the agent of the benchmark, until its input ends.

use std::time::Duration;

use holdpoint_bench_harness::{Arguments, Expect, usage};
use holdpoint_server::{OperatorToken, Server, ServerConfig};
use tokio::io::AsyncReadExt;

use crate::agent::Log;
use crate::database;
use crate::runs::Ours;

/// Serves; prints the URL and the token in one line.
pub async fn serve(arguments: &Arguments) {
    usage::raise_open_files();
    let ours = Ours::new(Log::new(Expect::Gated), Some(database::open(&arguments.path).await));
    let token = OperatorToken::generate().expect("a token");
    let shown = token.reveal().to_owned();
    // Heartbeats as often as the peers of this workload send them.
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        heartbeat: Duration::from_secs(5),
        ..ServerConfig::default()
    };
    let server = Server::bind(ours.runtime.clone(), config, token).await.expect("a server");
    println!("{} {shown}", server.local_addr());
    let stopped = async {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    server.serve(stopped).await.expect("a server");
}
