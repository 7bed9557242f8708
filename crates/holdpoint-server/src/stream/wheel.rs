//! The wheel of heartbeats: one timer for all streams.
//!
//! It turns a fifteenth of the heartbeat's interval at a time. A stream that has just sent something is due one turn short
//! of a whole round from there, and waits at that place of the wheel; most are due elsewhere when it comes round, for they
//! have sent something meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

/// Places on the wheel.
const PLACES: u64 = 16;

/// The wheel.
#[derive(Default)]
pub(crate) struct Wheel {
    turns: AtomicU64,
    places: [Notify; PLACES as usize],
}

impl Wheel {
    /// The turn at which a stream is due that sends something now.
    pub(super) fn due(&self) -> u64 {
        self.turns.load(Ordering::Acquire) + PLACES - 1
    }

    /// Comes when the wheel has turned this far.
    pub(super) async fn turned_to(&self, due: u64) {
        // Listens before it looks, so that no turn is missed between the two.
        let turned = self.place(due).notified();
        if self.turns.load(Ordering::Acquire) < due {
            turned.await;
        }
    }

    fn turn(&self) {
        let turn = self.turns.fetch_add(1, Ordering::AcqRel) + 1;
        self.place(turn).notify_waiters();
    }

    fn place(&self, turn: u64) -> &Notify {
        &self.places[(turn % PLACES) as usize]
    }
}

/// Turns the wheel, so that no stream is quiet for longer than this.
pub(crate) async fn turn(wheel: Arc<Wheel>, heartbeat: Duration) {
    let mut turns = interval(heartbeat / (PLACES as u32 - 1));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick of an interval comes at once.
    turns.tick().await;
    loop {
        turns.tick().await;
        wheel.turn();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_is_quiet_for_longer_than_the_heartbeat() {
        const HEARTBEAT: Duration = Duration::from_secs(15);
        let wheel = Arc::new(Wheel::default());
        tokio::spawn(turn(Arc::clone(&wheel), HEARTBEAT));
        let mut streams = Vec::new();
        for n in 0..50 {
            let wheel = Arc::clone(&wheel);
            streams.push(tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(n * 333)).await;
                let mut sent = Instant::now();
                for _ in 0..10 {
                    let due = wheel.due();
                    wheel.turned_to(due).await;
                    let quiet = sent.elapsed();
                    assert!(quiet <= HEARTBEAT + Duration::from_millis(20), "quiet for {quiet:?}");
                    assert!(quiet >= HEARTBEAT - Duration::from_millis(1_020), "after {quiet:?} already");
                    sent = Instant::now();
                }
            }));
        }
        for stream in streams {
            stream.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_is_over_is_not_waited_for() {
        let wheel = Wheel::default();
        let due = wheel.due();
        (0..PLACES).for_each(|_| wheel.turn());
        tokio::time::timeout(Duration::from_secs(1), wheel.turned_to(due)).await.unwrap();
    }
}
