//! Bytes on their way, without an acknowledgement a packet: stamps travel in line with the data, and when one comes back
//! everything sent before it has left the path, by arriving or by being lost. So it counts parity and copies, of which no
//! report speaks, as well as data.

use crate::types::Nanos;
use std::collections::VecDeque;

/// Stamps in a round trip: as many reactions fit into it, and so fine is the clock by which the window opens.
const A_ROUND_TRIP: u64 = 32;

/// Shortest time between two stamps; a hundredth of a processor at most.
const MIN_INTERVAL: Nanos = Nanos::from_micros(50);

/// Longest; what is lost in a row delays a reaction by no more.
const MAX_INTERVAL: Nanos = Nanos::from_millis(10);

/// Bytes between two stamps, unless [`PATIENCE`] intervals pass before: a stamp's datagram is half a percent of them.
const ENOUGH: u64 = 16 << 10;
const PATIENCE: u64 = 8;

/// Stamps that are remembered while none comes back.
const MOST: usize = 1_024;

#[derive(Clone, Copy, Debug)]
struct Stamp {
    at: Nanos,
    /// Bytes sent before it since the beginning, and those of them that were on their way.
    sent: u64,
    flight: u64,
}

/// The books of one direction.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    sent: u64,
    passed: u64,
    /// As the newest stamp that came back had it.
    flight: u64,
    stamps: VecDeque<Stamp>,
    /// When the last one left, and how many bytes before it.
    last: Option<(Nanos, u64)>,
    interval: Nanos,
}

impl Flight {
    /// Bytes on their way.
    pub(crate) fn bytes(&self) -> u64 {
        self.sent - self.passed
    }

    /// Bytes left.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// When the next stamp is wanted; none while nothing is on its way.
    pub(crate) fn stamp_at(&self) -> Option<Nanos> {
        let next = self.last.map_or(Nanos::ZERO, |(at, sent)| {
            let intervals = if self.sent - sent >= ENOUGH { 1 } else { PATIENCE };
            at + self.interval.mul_div(intervals, 1)
        });
        (self.bytes() > 0).then_some(next)
    }

    /// A stamp leaves at `now`, before what is sent from here on.
    pub(crate) fn stamp(&mut self, now: Nanos, rtt: Nanos) {
        self.last = Some((now, self.sent));
        self.interval = Nanos(rtt.0 / A_ROUND_TRIP).clamp(MIN_INTERVAL, MAX_INTERVAL);
        if self.stamps.len() < MOST {
            self.stamps.push_back(Stamp { at: now, sent: self.sent, flight: self.bytes() });
        }
    }

    /// A stamp of `sent` came back: bytes that it newly shows to have left the path, and those that were on their way then.
    /// Other datagrams bear stamps too; they speak for the last of ours before them.
    pub(crate) fn came_back(&mut self, sent: Nanos) -> (u64, u64) {
        let mut newest = None;
        while self.stamps.front().is_some_and(|s| s.at <= sent) {
            newest = self.stamps.pop_front();
        }
        let Some(stamp) = newest else { return (0, self.flight) };
        let passed = stamp.sent - self.passed;
        (self.passed, self.flight) = (stamp.sent, stamp.flight);
        (passed, stamp.flight)
    }
}
