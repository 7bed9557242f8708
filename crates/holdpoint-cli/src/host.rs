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
        .hint("stop it, or choose another port with `listen` under `[server]`; port 0 takes a free one")),
        // Whatever else is wrong with the address, the server says it better.
        Err(_) => Ok(()),
    }
}

/// Whether the process is told to stop: SIGTERM, or Ctrl-C. Listens from the moment it is made.
pub(crate) struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| Fail::new(format!("signals cannot be listened for: {error}")))
        };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Comes when it is.
    pub(crate) async fn told(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        tracing::info!("stopping: no new calls are started, running ones get time to end");
    }
}
