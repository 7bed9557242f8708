//! One connection: HTTP/1.1, or HTTP/2 by prior knowledge, with every wait bounded.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::response::Response;
use http::response::Parts;
use http::{Request, Version};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::front::Front;
use crate::stall::Stall;
use crate::stream::{Frames, pump, take_frames};
use crate::{HEAD_MAX_BYTES, ServerConfig};

/// How an HTTP/2 connection begins; no HTTP/1 method does.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long to wait for more when only the first bytes of a connection are there.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);
/// Requests at a time on one HTTP/2 connection: enough for the streams of many tabs and the decisions beside them.
const HTTP2_STREAMS_MAX: u32 = 256;
/// How often an HTTP/2 peer is asked whether it is still there.
const HTTP2_PING: Duration = Duration::from_secs(20);
/// Bytes an HTTP/2 stream may hold back for a slow reader.
const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// The bounds of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    header_timeout: Duration,
    write_stall_timeout: Duration,
}

impl Limits {
    pub(crate) fn of(config: &ServerConfig) -> Self {
        Self { header_timeout: config.header_timeout, write_stall_timeout: config.write_stall_timeout }
    }
}

/// What all connections share.
#[derive(Clone)]
pub(crate) struct Connections {
    pub(crate) front: Front,
    pub(crate) limits: Limits,
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Streams that may be carried on their own.
    pub(crate) streams: Arc<Semaphore>,
}

/// Serves a connection until it ends, or until the server stops and what is in progress is answered. `place` is given
/// back when it ends, or carries nothing but a stream from then on.
pub(crate) async fn serve_connection(stream: TcpStream, all: Connections, place: OwnedSemaphorePermit) {
    // Before a byte has come, neither hyper's nor anybody's timeout runs: this one does.
    let first = tokio::time::timeout(all.limits.header_timeout, is_http2(&stream));
    let http2 = tokio::select! {
        () = all.closing.cancelled() => return,
        first = first => match first {
            Ok(Ok(http2)) => http2,
            Ok(Err(_)) | Err(_) => return,
        },
    };
    let io = Stall::new(stream, all.limits.write_stall_timeout);
    let ended = if http2 { serve_http2(io, &all).await } else { serve_http1(io, &all).await };
    drop(place);
    if let Err(error) = ended {
        // A client that went away, was too slow, or speaks something else. None of it is ours to repair.
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn serve_http2(io: Stall<TcpStream>, all: &Connections) -> hyper::Result<()> {
    let front = all.front.clone();
    let service = service_fn(move |request| {
        let front = front.clone();
        async move { front.answer(request).await.map(with_body) }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(all.limits.write_stall_timeout)
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
        .max_header_list_size(u32::try_from(HEAD_MAX_BYTES).unwrap_or(u32::MAX));
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
    tokio::select! {
        ended = connection.as_mut() => ended,
        () = all.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

async fn serve_http1(io: Stall<TcpStream>, all: &Connections) -> hyper::Result<()> {
    let (hand, mut handed) = mpsc::channel::<Carriage>(1);
    let (front, unflushed, streams) = (all.front.clone(), io.unflushed(), Arc::clone(&all.streams));
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (front, hand, streams) = (front.clone(), hand.clone(), Arc::clone(&streams));
        let unflushed = Arc::clone(&unflushed);
        let chunked = request.version() == Version::HTTP_11;
        async move {
            let mut response = front.answer(request).await?;
            // What was answered before on this connection must be out, for hyper is not asked again.
            if !chunked || unflushed.load(Ordering::Relaxed) {
                return Ok::<_, Infallible>(with_body(response));
            }
            let Ok(place) = streams.try_acquire_owned() else { return Ok(with_body(response)) };
            let Some(frames) = take_frames(&mut response) else { return Ok(response) };
            let (head, _) = response.into_parts();
            match hand.try_send(Carriage { head, frames, place }) {
                // The connection is taken from under this answer.
                Ok(()) => std::future::pending().await,
                Err(refused) => {
                    let Carriage { head, frames, .. } = refused.into_inner();
                    Ok(Response::from_parts(head, frames.into_body()))
                }
            }
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    // Without a timer hyper's header timeout does nothing (https://github.com/tokio-rs/axum/issues/2741).
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(all.limits.header_timeout)
        .max_buf_size(HEAD_MAX_BYTES);
    let mut connection = builder.serve_connection(TokioIo::new(io), service);
    let (mut closing, mut told) = (std::pin::pin!(all.closing.cancelled()), false);
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => return ended,
            Some(carriage) = handed.recv() => {
                carriage.leave(connection.into_parts().io.into_inner(), &all.tasks);
                return Ok(());
            }
            () = closing.as_mut(), if !told => {
                told = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    }
}

/// A stream that is to be carried on its own.
struct Carriage {
    head: Parts,
    frames: Frames,
    place: OwnedSemaphorePermit,
}

impl Carriage {
    /// Carries the stream to its end, on a task that holds nothing else.
    fn leave(self, io: Stall<TcpStream>, tasks: &TaskTracker) {
        tasks.spawn(async move {
            if let Err(error) = pump(io, self.head, self.frames).await {
                tracing::debug!(%error, "a stream ended early");
            }
            drop(self.place);
        });
    }
}

fn with_body(mut response: Response) -> Response {
    match take_frames(&mut response) {
        Some(frames) => response.map(|_| frames.into_body()),
        None => response,
    }
}

/// Looks at the first bytes without taking them.
async fn is_http2(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0_u8; HTTP2_PREFACE.len()];
    loop {
        let there = stream.peek(&mut first).await?;
        if there == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if first[..there] != HTTP2_PREFACE[..there] {
            return Ok(false);
        }
        if there == first.len() {
            return Ok(true);
        }
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}
