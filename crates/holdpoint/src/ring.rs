//! A buffer that many read: what is put in is kept until everybody who was there has read it, and no longer.
//!
//! It takes memory for what waits in it and for nothing else, so that a reader to whom nothing happens costs next to
//! nothing. It is bounded: whoever is behind by more than the bound is told, and goes on with the oldest that is left.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Room that is kept although nothing waits in it.
const ROOM_KEPT: usize = 8;

/// The buffer.
pub(crate) struct Ring<T> {
    kept: Mutex<Kept<T>>,
    bell: Notify,
    bound: usize,
}

struct Kept<T> {
    /// The number of the first of `items`, counted since the buffer was made.
    first: u64,
    /// Each with how many have yet to read it. Whoever has yet to read one has yet to read all that follow.
    items: VecDeque<(T, usize)>,
    readers: usize,
}

/// One who reads.
pub(crate) struct Reader<T> {
    ring: Arc<Ring<T>>,
    at: u64,
}

/// The reader was too slow, and something it had not read is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lagged;

impl<T> Ring<T> {
    /// An empty one that holds at most so many.
    pub(crate) fn new(bound: usize) -> Arc<Self> {
        let kept = Kept { first: 0, items: VecDeque::new(), readers: 0 };
        Arc::new(Self { kept: Mutex::new(kept), bell: Notify::new(), bound })
    }

    /// Reads what is put in from here on.
    pub(crate) fn read(self: &Arc<Self>) -> Reader<T> {
        let mut kept = self.lock();
        kept.readers += 1;
        let at = kept.end();
        drop(kept);
        Reader { ring: Arc::clone(self), at }
    }

    /// Puts one in. With nobody to read it, it is gone.
    pub(crate) fn push(&self, item: T) {
        let mut kept = self.lock();
        if kept.readers == 0 {
            return;
        }
        let readers = kept.readers;
        kept.items.push_back((item, readers));
        if kept.items.len() > self.bound {
            kept.items.pop_front();
            kept.first += 1;
        }
        drop(kept);
        self.bell.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Kept<T>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Kept<T> {
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Lets go of what everybody has read.
    fn clear(&mut self) {
        while self.items.front().is_some_and(|(_, readers)| *readers == 0) {
            self.items.pop_front();
            self.first += 1;
        }
        if self.items.is_empty() && self.items.capacity() > ROOM_KEPT {
            self.items = VecDeque::new();
        }
    }
}

impl<T: Clone> Reader<T> {
    /// The next one. May be dropped while it waits, and called again.
    pub(crate) async fn next(&mut self) -> Result<T, Lagged> {
        loop {
            // Listens before it looks, so that nothing is put in between unheard.
            let rung = self.ring.bell.notified();
            if let Some(read) = Self::take(&self.ring, &mut self.at) {
                return read;
            }
            rung.await;
        }
    }

    fn take(ring: &Ring<T>, at: &mut u64) -> Option<Result<T, Lagged>> {
        let mut kept = ring.lock();
        if *at < kept.first {
            *at = kept.first;
            return Some(Err(Lagged));
        }
        let place = usize::try_from(*at - kept.first).ok()?;
        let (item, readers) = kept.items.get_mut(place)?;
        *readers -= 1;
        let item = item.clone();
        *at += 1;
        kept.clear();
        Some(Ok(item))
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let mut kept = self.ring.lock();
        kept.readers -= 1;
        let unread = usize::try_from(self.at.saturating_sub(kept.first)).unwrap_or(usize::MAX);
        for (_, readers) in kept.items.iter_mut().skip(unread) {
            *readers -= 1;
        }
        kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(ring: &Ring<u32>) -> (usize, usize) {
        let kept = ring.lock();
        (kept.items.len(), kept.items.capacity())
    }

    #[tokio::test]
    async fn what_everybody_has_read_is_kept_no_longer() {
        let ring = Ring::new(1_024);
        ring.push(0);
        assert_eq!(held(&ring), (0, 0), "nobody was there to read it");
        let (mut one, mut two) = (ring.read(), ring.read());
        (1..=100).for_each(|n| ring.push(n));
        for n in 1..=100 {
            assert_eq!(one.next().await, Ok(n));
        }
        assert_eq!(held(&ring).0, 100, "the other has read nothing yet");
        let late = ring.read();
        for n in 1..=60 {
            assert_eq!(two.next().await, Ok(n));
        }
        assert_eq!(held(&ring).0, 40);
        drop(two);
        assert_eq!(held(&ring), (0, 0), "the rest was kept for one that has gone");
        drop((one, late));
        ring.push(1);
        assert_eq!(held(&ring), (0, 0));
    }

    #[tokio::test]
    async fn a_reader_that_is_too_far_behind_is_told_and_others_are_not_touched() {
        let ring = Ring::new(4);
        let (mut slow, mut fast) = (ring.read(), ring.read());
        for n in 0..10 {
            ring.push(n);
            assert_eq!(fast.next().await, Ok(n));
        }
        assert_eq!(held(&ring).0, 4);
        assert_eq!(slow.next().await, Err(Lagged));
        for n in 6..10 {
            assert_eq!(slow.next().await, Ok(n));
        }
        assert_eq!(held(&ring).0, 0);
    }

    #[tokio::test]
    async fn whoever_waits_hears_what_is_put_in() {
        let ring = Ring::new(4);
        let mut readers: Vec<_> = (0..100).map(|_| ring.read()).collect();
        let waiting = readers.iter_mut().map(Reader::next);
        let waiting = futures_util::future::join_all(waiting);
        let (heard, ()) = tokio::join!(waiting, async {
            tokio::task::yield_now().await;
            ring.push(7);
        });
        assert!(heard.iter().all(|heard| *heard == Ok(7)));
        assert_eq!(held(&ring).0, 0);
    }
}
