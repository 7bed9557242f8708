//! A TCP proxy that can be told to misbehave: between an instance and its database, or a client and a server.
//!
//! What is swallowed is not lost but late, as on a network that drops packets for a while: once the way is open again it
//! arrives, like what TCP sends again. A test that wants it lost cuts the connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes of what the client said that are kept to know a connection by.
const SAID_MAX: usize = 64 * 1024;

/// What becomes of what is sent one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It arrives.
    Open,
    /// It arrives so much later.
    Delayed(Duration),
    /// Nothing arrives, nobody is told, and the connection stays up.
    Swallowed,
}

/// How a proxy treats connections that it does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    /// Closed at once.
    Shut,
    /// Accepted, and nothing comes of it for as long as this lasts.
    Silent,
}

/// A proxy. It ends, and all its connections with it, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    threads: Option<tokio::runtime::Runtime>,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    door: watch::Sender<Door>,
    /// For connections that are made from now on.
    ways: Mutex<(Way, Way)>,
    links: Mutex<Vec<Arc<Link>>>,
}

/// One connection through a proxy.
#[derive(Debug)]
pub struct Link {
    /// To the server, and back; `None` ends it.
    up: watch::Sender<Option<Way>>,
    down: watch::Sender<Option<Way>>,
    said: Mutex<Vec<u8>>,
}

impl Link {
    /// What becomes of what the client sends, and of what the server does.
    pub fn set(&self, up: Way, down: Way) {
        // One that has ended stays so.
        for (sender, way) in [(&self.up, up), (&self.down, down)] {
            sender.send_if_modified(|now| now.is_some() && now.replace(way) != Some(way));
        }
    }

    /// Ends it.
    pub fn cut(&self) {
        self.up.send_replace(None);
        self.down.send_replace(None);
    }

    /// Whether it is still there.
    pub fn is_up(&self) -> bool {
        self.up.borrow().is_some()
    }

    /// Whether the client has sent this in the first 64 KiB.
    pub fn has_said(&self, words: &str) -> bool {
        guard(&self.said).windows(words.len()).any(|said| said == words.as_bytes())
    }
}

impl Proxy {
    /// A proxy to this address, everything open.
    ///
    /// # Panics
    /// When no port is free.
    pub fn to(upstream: SocketAddr) -> Self {
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = threads.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            upstream,
            door: watch::Sender::new(Door::Open),
            ways: Mutex::new((Way::Open, Way::Open)),
            links: Mutex::default(),
        });
        threads.spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, threads: Some(threads) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything passes, on connections old and new.
    pub fn open(&self) {
        self.set(Way::Open, Way::Open);
        self.state.door.send_replace(Door::Open);
    }

    /// What becomes of what clients send, and of what the server does, on connections old and new.
    pub fn set(&self, up: Way, down: Way) {
        *guard(&self.state.ways) = (up, down);
        for link in self.links() {
            link.set(up, down);
        }
    }

    /// A partition: nothing arrives, either way, and no new connection comes about; nobody is told.
    pub fn swallow(&self) {
        self.state.door.send_replace(Door::Silent);
        self.set(Way::Swallowed, Way::Swallowed);
    }

    /// New connections are closed at once; those that there are stay.
    pub fn refuse(&self) {
        self.state.door.send_replace(Door::Shut);
    }

    /// Ends all connections; new ones are as before.
    pub fn cut(&self) {
        for link in guard(&self.state.links).drain(..) {
            link.cut();
        }
    }

    /// The connections that are up.
    pub fn links(&self) -> Vec<Arc<Link>> {
        let mut links = guard(&self.state.links);
        links.retain(|link| link.is_up());
        links.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        match *state.door.borrow() {
            Door::Shut => continue,
            Door::Open | Door::Silent => {}
        }
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let mut door = state.door.subscribe();
            let Ok(door) = door.wait_for(|door| *door != Door::Silent).await.map(|door| *door) else {
                return;
            };
            if door == Door::Open {
                connect(client, &state).await;
            }
        });
    }
}

async fn connect(client: TcpStream, state: &State) {
    let Ok(server) = TcpStream::connect(state.upstream).await else { return };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let link = {
        // Held until it is in the list: a switch reaches every connection, through here or through there.
        let ways = guard(&state.ways);
        let link = Arc::new(Link {
            up: watch::Sender::new(Some(ways.0)),
            down: watch::Sender::new(Some(ways.1)),
            said: Mutex::default(),
        });
        guard(&state.links).push(Arc::clone(&link));
        link
    };
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let up = tokio::spawn(pump(client_reads, server_writes, link.up.subscribe(), Some(Arc::clone(&link))));
    let down = tokio::spawn(pump(server_reads, client_writes, link.down.subscribe(), None));
    let _ = up.await;
    let _ = down.await;
    link.cut();
}

/// Carries what is read to where it is written, as the way is at that moment, until either ends. The end of the one is an end
/// of what is written to the other, and comes as late as everything else.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut way: watch::Receiver<Option<Way>>,
    link: Option<Arc<Link>>,
) {
    let mut buffer = [0; 16 * 1024];
    loop {
        let length = tokio::select! {
            length = from.read(&mut buffer) => length.unwrap_or(0),
            _ = way.wait_for(Option::is_none) => return,
        };
        if let Some(link) = &link {
            let mut said = guard(&link.said);
            let room = SAID_MAX - said.len();
            said.extend_from_slice(&buffer[..length.min(room)]);
        }
        let Ok(now) = way.wait_for(|way| *way != Some(Way::Swallowed)).await.map(|way| *way) else { return };
        match now {
            Some(Way::Open) => {}
            Some(Way::Delayed(late)) => tokio::time::sleep(late).await,
            // Not after the wait.
            Some(Way::Swallowed) | None => return,
        }
        let written = tokio::select! {
            written = to.write_all(&buffer[..length]) => written,
            _ = way.wait_for(Option::is_none) => return,
        };
        if length == 0 || written.is_err() {
            return;
        }
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
