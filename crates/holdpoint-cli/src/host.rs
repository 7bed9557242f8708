//! Hosting a server in this process: `serve` and `demo`.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use holdpoint::{Agent, Runtime};
use holdpoint_server::{BoundServer, OperatorToken, Server, ServerConfig};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::database::Database;
use crate::fail::{Fail, Result};

/// What a server is made of.
pub(crate) struct Host {
    pub(crate) listen: SocketAddr,
    pub(crate) agents: Vec<Agent>,
    pub(crate) bypass_approval: bool,
    pub(crate) shutdown_grace: Duration,
    pub(crate) retention: Option<Duration>,
}

/// A server that has its address, and the token that opens it.
pub(crate) struct Hosted {
    pub(crate) server: BoundServer,
    pub(crate) token: OperatorToken,
}

impl Host {
    /// Opens the database, takes the address, and starts to carry on what an earlier process left.
    pub(crate) async fn start(self, database: &Database) -> Result<Hosted> {
        // First of all, so that a port that is taken is said before any run is touched.
        look_for_listener(self.listen)?;
        let store = database.open().await?;
        let mut builder = Runtime::builder().shared_store(store);
        for agent in self.agents {
            builder = builder.agent(agent);
        }
        if let Some(keep) = self.retention {
            builder = builder.retention(keep);
        }
        let bypass = self.bypass_approval;
        let runtime =
            builder.allow_bypass(move |_| bypass).build().map_err(|error| Fail::usage(error.to_string()))?;
        let config = ServerConfig {
            listen: self.listen,
            shutdown_grace: self.shutdown_grace,
            ..ServerConfig::default()
        };
        let token = OperatorToken::generate().map_err(|error| Fail::new(error.to_string()))?;
        match Server::bind(runtime.clone(), config, token.clone()).await {
            Ok(server) => Ok(Hosted { server, token }),
            Err(error) => {
                runtime.shutdown(Duration::ZERO).await;
                Err(Fail::new(error.to_string()))
            }
        }
    }
}

fn look_for_listener(listen: SocketAddr) -> Result<()> {
    match TcpListener::bind(listen) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(Fail::new(format!(
            "something else listens on {listen}"
        ))
        .hint("stop it, or choose another port (`listen` under `[server]`, --port of the demo); 0 takes a free one")),
        // Whatever else is wrong with the address, the server says it better.
        Err(_) => Ok(()),
    }
}

/// Whether the process is told to stop: SIGTERM, Ctrl-C, Ctrl-\, or a terminal that is closed. Listens from the moment it
/// is made.
pub(crate) struct StopSignal {
    signals: Vec<Signal>,
}

impl StopSignal {
    pub(crate) fn new() -> Result<Self> {
        let mut kinds = vec![SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
        // Under `nohup` a closed terminal is meant to change nothing.
        if !ignores_hangup() {
            kinds.push(SignalKind::hangup());
        }
        let listen = |kind| {
            signal(kind).map_err(|error| Fail::new(format!("signals cannot be listened for: {error}")))
        };
        Ok(Self { signals: kinds.into_iter().map(listen).collect::<Result<_>>()? })
    }

    /// Comes when it is.
    pub(crate) async fn told(mut self) {
        std::future::poll_fn(|cx| {
            let told = self.signals.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if told { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        tracing::info!("stopping: no new calls are started, running ones get time to end");
    }
}

/// Whether the process was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
