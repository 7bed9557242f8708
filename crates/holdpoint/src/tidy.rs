//! Makes room, from time to time: what is older than it has to be kept, in small batches, beside everything else.

use std::sync::Arc;
use std::time::Duration;

use crate::inner::Inner;

/// How often it is looked for what can go.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// How long after the start for the first time: others start at the same moment, and have better things to do.
const FIRST_AFTER: Duration = Duration::from_secs(5);
/// Conversations that go at once.
const BATCH: usize = 200;
/// The pause after each batch: whoever decides goes first.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes room until the runtime stops. Without a time to keep, no conversation goes.
pub(crate) async fn keep_tidy(rt: Arc<Inner>, keep: Option<Duration>) {
    let mut wait = FIRST_AFTER;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = EVERY,
            () = rt.shutdown.cancelled() => return,
        }
        tokio::select! {
            () = make_room(&rt, keep) => {}
            () = rt.shutdown.cancelled() => return,
        }
    }
}

async fn make_room(rt: &Inner, keep: Option<Duration>) {
    let (mut conversations, mut runs, mut weeks) = (0, 0, 0);
    loop {
        match rt.store.tidy(keep, BATCH).await {
            Ok(tidied) => {
                conversations += tidied.conversations;
                runs += tidied.runs;
                weeks += tidied.weeks;
                if !tidied.more {
                    break;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "nothing more can be deleted now; it is tried again");
                break;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    if conversations + weeks > 0 {
        tracing::info!(conversations, runs, weeks, "deleted what need not be kept any longer");
    }
}
