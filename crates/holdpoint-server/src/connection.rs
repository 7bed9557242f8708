//! One connection: HTTP/1.1, or HTTP/2 by prior knowledge, with every wait bounded.

use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::front::Front;
use crate::stall::Stall;
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

/// Serves a connection until it ends, or until the server stops and what is in progress is answered.
pub(crate) async fn serve_connection(
    stream: TcpStream,
    front: Front,
    limits: Limits,
    closing: CancellationToken,
) {
    // Before a byte has come, neither hyper's nor anybody's timeout runs: this one does.
    let first = tokio::time::timeout(limits.header_timeout, is_http2(&stream));
    let http2 = tokio::select! {
        () = closing.cancelled() => return,
        first = first => match first {
            Ok(Ok(http2)) => http2,
            Ok(Err(_)) | Err(_) => return,
        },
    };
    let io = TokioIo::new(Stall::new(stream, limits.write_stall_timeout));
    let service = hyper::service::service_fn(move |request| front.clone().answer(request));
    let ended = if http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_PING)
            .keep_alive_timeout(limits.write_stall_timeout)
            .max_concurrent_streams(HTTP2_STREAMS_MAX)
            .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
            .max_header_list_size(u32::try_from(HEAD_MAX_BYTES).unwrap_or(u32::MAX));
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        // Without a timer hyper's header timeout does nothing (https://github.com/tokio-rs/axum/issues/2741).
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(HEAD_MAX_BYTES);
        let mut connection = std::pin::pin!(builder.serve_connection(io, service));
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Err(error) = ended {
        // A client that went away, was too slow, or speaks something else. None of it is ours to repair.
        tracing::debug!(%error, "a connection ended early");
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
