//! A connection that breaks when the other side takes nothing of what is written for too long.
//!
//! A client that stops reading its stream would otherwise hold its connection, and what is buffered for it, for as
//! long as it likes. It loses nothing: it comes back with `Last-Event-ID`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// An IO whose writes fail once none of them has gone on for `limit`.
pub(crate) struct Stall<I> {
    io: I,
    limit: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Something was written and not seen out yet.
    unflushed: Arc<AtomicBool>,
}

impl<I> Stall<I> {
    pub(crate) fn new(io: I, limit: Duration) -> Self {
        Self { io, limit, waiting: None, unflushed: Arc::default() }
    }

    /// Whether something was written that is not out yet, from here on.
    pub(crate) fn unflushed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unflushed)
    }

    /// Passes a result on, and watches the time while there is none.
    fn watch<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        match waiting.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                // Polled again, it fails again.
                waiting.as_mut().reset(Instant::now());
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
            }
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Stall<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Stall<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.unflushed.store(true, Ordering::Relaxed);
        let result = Pin::new(&mut self.io).poll_write(cx, buf);
        self.watch(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.unflushed.store(true, Ordering::Relaxed);
        let result = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.watch(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(cx);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.unflushed.store(false, Ordering::Relaxed);
        }
        self.watch(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_shutdown(cx);
        self.watch(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_takes_fails_in_time() {
        let (near, _far) = duplex(8);
        let mut io = Stall::new(near, Duration::from_secs(30));
        let began = Instant::now();
        let error = io.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_slow_but_reads_is_not_cut() {
        let (near, mut far) = duplex(8);
        let mut io = Stall::new(near, Duration::from_secs(30));
        let reader = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                far.read_exact(&mut [0; 8]).await.unwrap();
            }
            far
        });
        io.write_all(&[0; 64]).await.unwrap();
        reader.await.unwrap();
    }
}
