//! Doing something with the store until it is done: the one way in which a store that is away is waited for.
//!
//! What differs from caller to caller is what has them give up, and they say it. Whatever that is, it is looked at between two tries
//! and never within one: a write that was begun is waited for, because it may be done.

use std::future::Future;
use std::time::Duration;

use holdpoint_store::{Error, Result};
use tokio_util::sync::CancellationToken;

/// The first pause before the store is tried again.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
/// The longest one.
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// How long somebody goes on trying.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until<'a> {
    /// Until it is done, whatever else ends meanwhile: nobody else would do it.
    Done,
    /// Until it is done or this says stop: then it is somebody else's to do, or nobody's.
    Told(&'a CancellationToken),
}

/// Why it was not done, or is not known to be.
#[derive(Debug)]
pub(crate) enum GivenUp {
    /// Somebody said stop. `unknown`: one of the tries may have been done all the same.
    Told { unknown: bool },
    /// The store says what no waiting mends.
    Refused(Error),
}

/// Does it until it is done. `waits` is what the log says meanwhile.
pub(crate) async fn keep_at<T, F, W>(
    mut what: F,
    until: Until<'_>,
    waits: &str,
) -> std::result::Result<T, GivenUp>
where
    F: FnMut() -> W,
    W: Future<Output = Result<T>>,
{
    let mut pause = AGAIN_FIRST;
    let mut unknown = false;
    loop {
        match what().await {
            Ok(done) => return Ok(done),
            Err(error) if error.passes() => {
                tracing::warn!(%error, retry_in_ms = pause.as_millis(), "the store is away; {waits}");
                unknown |= matches!(error, Error::CommitUnknown(_));
            }
            Err(error) => return Err(GivenUp::Refused(error)),
        }
        match until {
            Until::Done => tokio::time::sleep(pause).await,
            Until::Told(stop) => tokio::select! {
                biased;
                () = stop.cancelled() => return Err(GivenUp::Told { unknown }),
                () = tokio::time::sleep(pause) => {}
            },
        }
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    fn away() -> Result<u32> {
        Err(Error::Unavailable("gone".into()))
    }

    /// Answers in this order, each after a second.
    fn tries(answers: impl IntoIterator<Item = Result<u32>>) -> Mutex<VecDeque<Result<u32>>> {
        Mutex::new(answers.into_iter().collect())
    }

    async fn next(tries: &Mutex<VecDeque<Result<u32>>>) -> Result<u32> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tries.lock().unwrap().pop_front().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_is_tried_again_less_and_less_often() {
        let tries = tries((0..8).map(|_| away()).chain([Ok(7)]));
        let began = Instant::now();
        assert_eq!(keep_at(|| next(&tries), Until::Done, "it waits").await.unwrap(), 7);
        let pauses = 50 + 100 + 200 + 400 + 800 + 1_600 + 2_000 + 2_000;
        assert_eq!(began.elapsed().as_millis(), 9 * 1_000 + pauses);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waiting_does_not_mend_is_not_tried_again() {
        let tries = tries([away(), Err(Error::Corrupt("gone".into())), Ok(7)]);
        let given_up = keep_at(|| next(&tries), Until::Done, "it waits").await;
        assert!(matches!(given_up, Err(GivenUp::Refused(Error::Corrupt(_)))), "{given_up:?}");
        assert_eq!(tries.lock().unwrap().len(), 1);
    }

    /// The word comes in the middle of the first try, which is waited for: it was done.
    #[tokio::test(start_paused = true)]
    async fn nobody_gives_up_within_a_try() {
        let (tries, stop) = (tries([Ok(7)]), CancellationToken::new());
        let told = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            stop.cancel();
        };
        let (done, ()) = tokio::join!(keep_at(|| next(&tries), Until::Told(&stop), "it waits"), told);
        assert_eq!(done.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_told_to_stop_does_so_after_a_try_and_knows_whether_it_may_have_been_done() {
        for (first, unknown) in [(away(), false), (Err(Error::CommitUnknown("gone".into())), true)] {
            let (tries, stop) = (tries([first, Ok(7)]), CancellationToken::new());
            stop.cancel();
            let given_up = keep_at(|| next(&tries), Until::Told(&stop), "it waits").await;
            assert!(
                matches!(given_up, Err(GivenUp::Told { unknown: was }) if was == unknown),
                "{given_up:?}"
            );
            assert_eq!(tries.lock().unwrap().len(), 1, "one try, and no second");
        }
    }
}
