//! The relay's clocks; the one place where it reads them.

use std::time::{Duration, Instant, SystemTime};

use sdr_sdk::types::Nanos;

/// Monotonic time since the relay was bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Both clocks at once, to place the kernel's wall-clock times of arrival.
    pub(super) fn reading(&self) -> Reading {
        // In this order a preemption in between makes arrivals look later, never earlier.
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Reading { wall, now: self.now() }
    }
}

/// An instant by the wall clock and by the relay's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    wall: Duration,
    now: Nanos,
}

impl Reading {
    /// The relay's time of a past instant by the wall clock; now, when that is unknown or lies ahead.
    pub(super) fn place(&self, stamp: Option<Duration>) -> Nanos {
        let age = stamp.map_or(Duration::ZERO, |at| self.wall.saturating_sub(at));
        self.now.since(Nanos(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_placed_by_its_age() {
        let reading = Reading { wall: Duration::from_secs(1_000), now: Nanos::from_millis(50) };
        let placed = |nanos| reading.place(Some(Duration::from_nanos(nanos)));
        assert_eq!(placed(999_999_000_000), Nanos::from_millis(49));
        assert_eq!(placed(1_000_000_000_001), Nanos::from_millis(50), "ahead of the wall clock");
        assert_eq!(placed(0), Nanos::ZERO, "before the relay was bound");
        assert_eq!(reading.place(None), Nanos::from_millis(50));
    }
}
