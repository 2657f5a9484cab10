//! When grants are sent again.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use crate::repeat::{interval, reached};
use crate::types::{Nanos, Seq};

/// A peer that never confirms costs at most a round in this time.
const CTS_FLOOR: Nanos = Nanos::from_millis(1);

/// Repeats the grants of one queue pair until the peer echoes them.
///
/// New grants are due at once. What is not echoed is sent again in rounds that begin at least RTT/4 apart; a round goes
/// from the oldest grant without echo to the newest grant and takes as many datagrams as it needs. New grants do not
/// put off the next round. Invariant: echoed <= cursor <= granted, in serial order.
#[derive(Clone, Debug)]
pub struct CtsRepeater {
    granted: Seq,
    echoed: Seq,
    /// Next seq of the current round; equal to `granted` between rounds.
    cursor: Seq,
    /// When the next round may begin; `None` while nothing sent awaits its echo.
    round_at: Option<Nanos>,
}

impl CtsRepeater {
    /// Nothing granted yet; the first seq is `start`.
    pub const fn new(start: Seq) -> Self {
        Self { granted: start, echoed: start, cursor: start, round_at: None }
    }

    /// Everything before `granted` is granted now. Cumulative: an older value changes nothing.
    pub fn grant(&mut self, granted: Seq) {
        self.granted = self.granted.latest(granted);
    }

    /// The peer holds every grant before `seen`. An older value changes nothing; false, and nothing changes, when it
    /// claims more than was granted, which no honest peer does.
    #[must_use]
    pub fn echo(&mut self, seen: Seq) -> bool {
        if self.granted.before(seen) {
            return false;
        }
        self.echoed = self.echoed.latest(seen);
        self.cursor = self.cursor.latest(self.echoed);
        if self.echoed == self.cursor {
            self.round_at = None;
        }
        true
    }

    /// When grants are wanted next.
    pub fn wake_at(&self) -> Option<Nanos> {
        if self.cursor == self.granted { self.round_at } else { Some(Nanos::ZERO) }
    }

    /// First seq of the entries that are due; they end before the newest grant.
    pub fn first(&self, now: Nanos) -> Option<Seq> {
        if self.cursor != self.granted {
            Some(self.cursor)
        } else {
            reached(self.round_at, now).then_some(self.echoed)
        }
    }

    /// `entries` entries from [`first`](Self::first) left. Without any, all stays due.
    pub fn sent(&mut self, now: Nanos, rtt: Nanos, entries: u64) {
        let Some(first) = self.first(now).filter(|_| entries > 0) else { return };
        let left = self.granted.distance(first).unsigned_abs();
        if first == self.echoed || self.round_at.is_none() {
            self.round_at = Some(now + interval(rtt, 4, CTS_FLOOR));
        }
        self.cursor = first.plus(entries.min(left));
    }
}
