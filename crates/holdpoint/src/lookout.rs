//! The lookout: one reader of the log for everything that is watched in this process.
//!
//! What this process stores it shows by itself. What others store of a watched run - or what an answer that was lost
//! left unsaid - is read here: once for a run, however many watch it, and looked for with one query for all of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use holdpoint_store::{Known, NumberedEvents, Result};
use tokio::time::Instant;

use crate::inner::Inner;
use crate::room::Watched;

/// Events read from the log at once.
pub(crate) const LOG_PAGE: usize = 256;
/// Logs read at a time.
const READS_AT_ONCE: usize = 8;
/// How soon a log that could not be read is asked for again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How often it is asked which watched runs have moved, where no other instance writes: what would be found then was stored here, by a call whose answer was lost.
const LOOK_EVERY_ALONE: Duration = Duration::from_secs(10);

/// Sees to it that watchers are shown what is stored, until the runtime stops.
pub(crate) async fn look_out(rt: Arc<Inner>) {
    let every = || rt.look_every().unwrap_or(LOOK_EVERY_ALONE);
    let mut everything = rt.ears.everything();
    let mut look_at = Instant::now() + every();
    loop {
        tokio::select! {
            () = rt.hub.rung() => {}
            () = tokio::time::sleep_until(look_at) => {
                look_at = Instant::now() + every();
                look(&rt).await;
            }
            // The runtime holds the other end, and we hold the runtime.
            _ = everything.changed() => {
                look_at = look_at.min(rt.ears.soon());
                continue;
            }
            () = rt.shutdown.cancelled() => return,
        }
        let reads = rt.hub.behind().into_iter().map(|watched| read(&rt, watched));
        let failed = futures_util::stream::iter(reads)
            .buffer_unordered(READS_AT_ONCE)
            .filter(|read| std::future::ready(read.is_err()))
            .count();
        if failed.await > 0 {
            // Asked again soon: what could not be read has moved still.
            look_at = look_at.min(Instant::now() + READ_AGAIN);
        }
    }
}

/// Rings the watched runs of which more is stored than was shown.
async fn look(rt: &Inner) {
    let watched = rt.hub.watched();
    if watched.is_empty() {
        return;
    }
    let known = watched.into_iter().map(|Watched { cx, run, last }| Known { tenant: cx.tenant, run, last });
    match rt.store.moved(&known.collect::<Vec<_>>()).await {
        Ok(moved) => moved.into_iter().for_each(|run| rt.hub.ring(run)),
        Err(error) => tracing::warn!(%error, "watched runs could not be looked at; their streams wait"),
    }
}

/// Reads a run's log to its end, and shows it.
async fn read(rt: &Inner, Watched { cx, run, last: mut after }: Watched) -> Result<()> {
    loop {
        let read = rt.store.events(&cx, run, after, LOG_PAGE).await;
        let log: NumberedEvents = read
            .inspect_err(|error| {
                tracing::warn!(%run, %error, "the log of a watched run could not be read; its streams wait");
            })?
            .unwrap_or_default();
        let whole = log.len() < LOG_PAGE;
        match rt.hub.fill(run, log) {
            Some(last) if !whole => after = last,
            Some(_) | None => return Ok(()),
        }
    }
}
