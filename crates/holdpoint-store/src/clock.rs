//! Where time comes from.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use holdpoint_protocol::Timestamp;

/// A source of time. It never goes backwards within a process, and it counts whole milliseconds: what a store keeps
/// is what was compared.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// The clock of the machine. When it is set back, time stands still until it has caught up: a deadline that has
/// passed stays passed.
#[derive(Debug)]
pub struct SystemClock {
    latest_ms: AtomicI64,
}

impl SystemClock {
    /// The clock of the machine.
    pub fn new() -> Self {
        Self { latest_ms: AtomicI64::new(i64::MIN) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the one place that reads the system's clock
    fn now(&self) -> Timestamp {
        let read = Timestamp::now().as_millisecond();
        from_ms(self.latest_ms.fetch_max(read, Ordering::Relaxed).max(read))
    }
}

/// A clock that stands still until it is moved: for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    ms: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at this time.
    pub fn at(start: Timestamp) -> Self {
        Self { ms: AtomicI64::new(start.as_millisecond()) }
    }

    /// Moves it on.
    pub fn advance_ms(&self, ms: u64) {
        self.ms.fetch_add(i64::try_from(ms).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        from_ms(self.ms.load(Ordering::Relaxed))
    }
}

/// How long this process has gone on, by a clock that others cannot set back: the machine's own time and the calendar's, whichever
/// went further. The first stands still while a machine sleeps, the second may be set; taken together they may say too much
/// and never too little, which is the safe side for whoever has to stop in time.
#[cfg(feature = "postgres")]
#[derive(Debug)]
pub(crate) struct Passed {
    last: std::sync::Mutex<(std::time::Instant, i64, i64)>,
}

#[cfg(feature = "postgres")]
impl Passed {
    pub(crate) fn new() -> Self {
        Self { last: std::sync::Mutex::new((std::time::Instant::now(), Self::calendar_ms(), 0)) }
    }

    /// Milliseconds since it was made.
    pub(crate) fn ms(&self) -> i64 {
        self.moved_to(std::time::Instant::now(), Self::calendar_ms())
    }

    fn moved_to(&self, instant: std::time::Instant, calendar_ms: i64) -> i64 {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let own = i64::try_from(instant.saturating_duration_since(last.0).as_millis()).unwrap_or(i64::MAX);
        let calendar = calendar_ms.saturating_sub(last.1);
        if own > 0 || calendar != 0 {
            *last = (instant, calendar_ms, last.2.saturating_add(own.max(calendar).max(0)));
        }
        last.2
    }

    #[allow(clippy::disallowed_methods)] // this is the module that reads the system's clock
    fn calendar_ms() -> i64 {
        Timestamp::now().as_millisecond()
    }
}

/// A time from its milliseconds; one outside of the calendar becomes the end of it.
pub(crate) fn from_ms(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// A time some milliseconds later; never past the end of the calendar.
pub(crate) fn after(at: Timestamp, ms: u64) -> Timestamp {
    from_ms(at.as_millisecond().saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_goes_backwards() {
        let clock = SystemClock::new();
        // As if the machine had once been an hour ahead and was then set right.
        let ahead = clock.now().as_millisecond() + 3_600_000;
        clock.latest_ms.store(ahead, Ordering::Relaxed);
        assert_eq!(clock.now().as_millisecond(), ahead);
        assert_eq!(clock.now().as_millisecond(), ahead);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn time_passes_while_the_machine_sleeps_and_does_not_go_back_when_its_clock_is_set_back() {
        let passed = Passed::new();
        let (began, calendar, _) = *passed.last.lock().unwrap();
        let after = |ms| began + std::time::Duration::from_millis(ms);
        assert_eq!(passed.moved_to(after(100), calendar + 100), 100);
        assert_eq!(passed.moved_to(after(200), calendar + 60_200), 60_200, "it slept for a minute");
        assert_eq!(passed.moved_to(after(300), calendar - 3_600_000), 60_300, "the clock was set back");
        assert_eq!(passed.moved_to(after(400), calendar - 3_599_900), 60_400);
        // Less than a millisecond at a time is not lost.
        for step in 1..=20 {
            passed.moved_to(after(400) + std::time::Duration::from_micros(step * 100), calendar - 3_599_900);
        }
        assert_eq!(passed.moved_to(after(402), calendar - 3_599_900), 60_402);
    }

    #[test]
    fn a_manual_clock_moves_when_it_is_moved() {
        let clock = ManualClock::at(from_ms(1_000));
        assert_eq!(clock.now(), from_ms(1_000));
        clock.advance_ms(5);
        assert_eq!(clock.now(), from_ms(1_005));
    }

    #[test]
    fn a_time_past_the_end_of_the_calendar_is_its_end() {
        assert_eq!(after(from_ms(0), u64::MAX), Timestamp::MAX);
    }
}
