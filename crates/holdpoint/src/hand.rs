//! The runs that this process takes up by itself: as many at a time as there is room for, so that a start with very many of them
//! neither fills the memory nor stands in the way of what people ask for meanwhile. The others stay where they are, and any other
//! instance may take them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use holdpoint_protocol::RunId;
use tokio::time::Instant;

/// How many are being read and carried on for the first time.
const FRESH_MAX: usize = 128;
/// How long one counts as such: what takes longer waits for a model or a tool, and costs little.
const FRESH: Duration = Duration::from_secs(10);
/// How many are in hand in all.
const HELD_MAX: usize = 1_024;
/// The pause before a run that could not be carried on is taken up again, at first and at most.
const AGAIN_FIRST: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// What was taken up.
#[derive(Default)]
pub(crate) struct Hand {
    held: HashMap<RunId, Instant>,
    again: HashMap<RunId, (Instant, Duration)>,
    /// Runs that are owned here and were driven by nobody when that was last looked at.
    pub(crate) undriven: HashSet<RunId>,
}

impl Hand {
    /// How many more can be taken up. `lives` says whether a run is still carried on here.
    pub(crate) fn room(&mut self, now: Instant, lives: impl Fn(RunId) -> bool) -> usize {
        self.held.retain(|run, _| lives(*run));
        let fresh = self.held.values().filter(|since| now.duration_since(**since) < FRESH).count();
        FRESH_MAX.saturating_sub(fresh).min(HELD_MAX.saturating_sub(self.held.len()))
    }

    /// One is taken up.
    pub(crate) fn take(&mut self, run: RunId, now: Instant) {
        self.held.insert(run, now);
    }

    /// Whether a run that was owned and undriven before is to be taken up again, and from now on when it is next.
    pub(crate) fn tries(&mut self, run: RunId, now: Instant) -> bool {
        let (at, pause) = self.again.get(&run).copied().unwrap_or((now, AGAIN_FIRST));
        if at > now {
            return false;
        }
        self.again.insert(run, (now + pause, (pause * 2).min(AGAIN_MAX)));
        true
    }

    /// Forgets the tries of what is owned no more, or is carried on.
    pub(crate) fn again_only_undriven(&mut self) {
        let undriven = &self.undriven;
        self.again.retain(|run, _| undriven.contains(run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(n))
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_many_at_once_and_for_more_as_time_passes_up_to_a_bound() {
        let (mut hand, mut n) = (Hand::default(), 0);
        let mut rooms = Vec::new();
        for _ in 0..10 {
            let now = Instant::now();
            let room = hand.room(now, |_| true);
            rooms.push(room);
            for _ in 0..room {
                n += 1;
                hand.take(run(n), now);
            }
            assert_eq!(hand.room(now, |_| true), 0);
            tokio::time::advance(FRESH).await;
        }
        assert_eq!(rooms, [128, 128, 128, 128, 128, 128, 128, 128, 0, 0]);
        assert_eq!(hand.room(Instant::now(), |one| one != run(7)), 1, "what has ended makes room");
        assert_eq!(hand.room(Instant::now(), |_| false), 128);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_cannot_be_carried_on_is_tried_less_and_less_often() {
        let mut hand = Hand::default();
        let mut tried = Vec::new();
        for second in 0..120 {
            if hand.tries(run(1), Instant::now()) {
                tried.push(second);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(tried, [0, 2, 6, 14, 30, 62]);
        hand.again_only_undriven();
        assert!(hand.tries(run(1), Instant::now()), "one that was carried on meanwhile is taken up at once");
    }
}
