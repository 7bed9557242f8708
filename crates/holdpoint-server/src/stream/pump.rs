//! The stream on its own: a connection that carries frames to its end and does nothing else.
//!
//! An HTTP library keeps buffers for a connection, for the request that may come next and the head that may be written
//! then: some sixteen kilobytes. Of a connection that says what happens to a run for hours, nothing more is asked, so it is
//! taken out of the library's hands once the answer is known: what is left is the socket and the view.

use std::fmt::Write as _;

use holdpoint::store::{Clock, SystemClock};
use http::response::Parts;
use http::{HeaderValue, header};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Frames;

/// Frames that wait are written together, up to about this many bytes.
const TOGETHER_BYTES: usize = 64 * 1024;

/// Writes the head of the answer, and then frames until the stream ends or the client goes.
///
/// # Errors
/// When the connection breaks, or the client takes nothing for too long.
pub(crate) async fn pump<I>(mut io: I, head: Parts, mut frames: Frames) -> std::io::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    io.write_all(&written(head)).await?;
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame,
            () = gone(&mut io) => return Ok(()),
        };
        let Some(frame) = frame else { break };
        let mut chunks = Vec::with_capacity(frame.len() + 16);
        chunk(&mut chunks, &frame);
        while chunks.len() < TOGETHER_BYTES
            && let Some(frame) = frames.ready()
        {
            chunk(&mut chunks, &frame);
        }
        io.write_all(&chunks).await?;
    }
    io.write_all(b"0\r\n\r\n").await?;
    io.shutdown().await
}

/// One chunk of a body whose length is not known.
fn chunk(out: &mut Vec<u8>, frame: &[u8]) {
    if frame.is_empty() {
        // An empty chunk is the end of the body.
        return;
    }
    out.extend_from_slice(format!("{:x}\r\n", frame.len()).as_bytes());
    out.extend_from_slice(frame);
    out.extend_from_slice(b"\r\n");
}

/// Comes when the client is gone. What it says meanwhile is not listened to: it was told that the connection closes.
async fn gone(io: &mut (impl AsyncRead + Unpin)) {
    let mut ignored = [0; 64];
    while io.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
}

fn written(mut head: Parts) -> Vec<u8> {
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    let date = SystemClock::new().now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let mut start = String::new();
    let reason = head.status.canonical_reason().unwrap_or_default();
    let _ = write!(start, "HTTP/1.1 {} {reason}\r\ndate: {date}\r\n", head.status.as_str());
    let mut written = start.into_bytes();
    for (name, value) in &head.headers {
        written.extend_from_slice(name.as_str().as_bytes());
        written.extend_from_slice(b": ");
        written.extend_from_slice(value.as_bytes());
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(b"\r\n");
    written
}
