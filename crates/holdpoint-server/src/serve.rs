//! Binding, accepting, and stopping in order.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdpoint::Runtime;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::connection::{Connections, Limits, serve_connection};
use crate::front::Front;
use crate::host::Place;
use crate::{
    CONNECTIONS_MAX, DRAIN_TIMEOUT, HEARTBEAT_INTERVAL_MAX, OperatorToken, STREAMS_MAX, ServerConfig,
    ServerError,
};

/// Pause after a connection could not be accepted for want of something that comes back (file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections the system holds until they are accepted.
const BACKLOG: u32 = 1024;
/// Bytes the system holds for a client that does not read.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;

/// The way to a server.
pub struct Server;

/// A server that has its address and does not answer yet.
pub struct BoundServer {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    front: Front,
    config: ServerConfig,
    closing: CancellationToken,
}

impl Server {
    /// Takes the address. Nothing is answered before [`BoundServer::serve`].
    ///
    /// # Errors
    /// When the address is not loopback, is taken, or something in the configuration does not do.
    pub async fn bind(
        runtime: Runtime,
        config: ServerConfig,
        token: OperatorToken,
    ) -> Result<BoundServer, ServerError> {
        if !config.listen.ip().is_loopback() {
            return Err(ServerError::NotLoopback(config.listen));
        }
        if config.heartbeat.is_zero() || config.heartbeat > HEARTBEAT_INTERVAL_MAX {
            return Err(ServerError::Heartbeat(config.heartbeat));
        }
        let listener = listen(config.listen).map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => ServerError::Taken(config.listen),
            _ => ServerError::Bind { address: config.listen, source },
        })?;
        let address =
            listener.local_addr().map_err(|source| ServerError::Bind { address: config.listen, source })?;
        let closing = CancellationToken::new();
        let app = Arc::new(App::new(runtime, &config, token, Place::of(address), closing.clone())?);
        let front = Front::new(Arc::clone(&app), crate::routes::router(&app));
        Ok(BoundServer { listener, address, app, front, config, closing })
    }
}

impl BoundServer {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as clients write it: `http://127.0.0.1:8410`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers until `shutdown` is done. Then open streams are told to come back and end, requests in progress are
    /// answered, running tools get their grace, and the runtime and its store are closed.
    ///
    /// # Errors
    /// When connections can no longer be accepted; the runtime is shut down in this case too.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
        let connections = TaskTracker::new();
        let turning = tokio::spawn(crate::stream::turn(Arc::clone(&self.app.wheel), self.app.heartbeat));
        let accepted = self.accept_until(shutdown, &connections).await;
        self.closing.cancel();
        connections.close();
        if tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
            tracing::warn!(open = connections.len(), "connections were still open when the server stopped");
        }
        turning.abort();
        // Decisions whose clients did not wait for the answer.
        self.app.work.close();
        if tokio::time::timeout(DRAIN_TIMEOUT, self.app.work.wait()).await.is_err() {
            tracing::warn!(open = self.app.work.len(), "requests were still at work when the server stopped");
        }
        self.app.runtime.shutdown(self.config.shutdown_grace).await;
        accepted
    }

    async fn accept_until(
        &self,
        shutdown: impl Future<Output = ()>,
        connections: &TaskTracker,
    ) -> Result<(), ServerError> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let all = Connections {
            front: self.front.clone(),
            limits: Limits::of(&self.config),
            closing: self.closing.clone(),
            tasks: connections.clone(),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        };
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            // A place first: when all are taken, new connections wait in the system's queue.
            let accepted = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, self.listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                accepted = accepted => accepted,
            };
            // The semaphore is never closed.
            let Ok(place) = place else { return Ok(()) };
            match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(ready(stream), all.clone(), place));
                }
                Err(error) if passes(&error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Err(error) => return Err(ServerError::Accept(error)),
            }
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port of a server that has just ended is free; one that is listened on is taken all the same.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit it. Without it the system keeps megabytes for each client that does not read.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Small events are to leave at once.
fn ready(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    stream
}

/// Whether accepting can go on after this error: a client that was gone already, or resources that come back.
fn passes(error: &std::io::Error) -> bool {
    // EMFILE and ENFILE have no kind of their own.
    const OUT_OF_FILES: [i32; 2] = [24, 23];
    matches!(
        error.kind(),
        std::io::ErrorKind::ConnectionAborted
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::ConnectionRefused
            | std::io::ErrorKind::Interrupted
            | std::io::ErrorKind::OutOfMemory
    ) || error.raw_os_error().is_some_and(|code| OUT_OF_FILES.contains(&code))
}

impl std::fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundServer").field("address", &self.address).finish_non_exhaustive()
    }
}
