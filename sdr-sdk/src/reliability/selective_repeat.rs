//! Selective Repeat: each packet has its own timer and is sent again when it expires before the packet is reported.
//!
//! The scheme of arXiv 2505.05366 section 4.1.1, at packets instead of chunks. The sender keeps what was sent and not
//! reported as ranges, and what was sent when as runs, oldest first; there is no list of packets. Invariants: a packet
//! that was sent and not reported is in exactly one run of that list, and the oldest run starts with such a packet; a
//! packet that was reported once is never sent again.

use super::ranges::RangeSet;
use super::{
    Arrived, Conditions, MessageSpec, Outcome, Scheme, SchemeReceiver, SchemeSender, SendRun, Status,
};
use crate::types::Nanos;
use std::collections::VecDeque;

/// Smallest retransmission timeout. On shorter paths reports are late by the receiver's polling and the hosts'
/// scheduling rather than by the path, and a smaller timeout would send again what has arrived.
pub const MIN_RTO: Nanos = Nanos::from_millis(1);

/// How much later than sent a packet may be booked (1 % of the smallest timeout), so that runs that a driver hands out
/// a little late share an entry.
const MERGE_SLACK_PS: u64 = MIN_RTO.0 * 1_000 / 100;

/// Selective Repeat with a timeout of (1 + alpha) RTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectiveRepeat {
    alpha_milli: u32,
}

impl SelectiveRepeat {
    /// A timeout of `1 + alpha_milli / 1000` times the smoothed RTT: alpha is what queues on the path may add.
    pub fn new(alpha_milli: u32) -> Self {
        Self { alpha_milli }
    }

    /// The timeout on a path with this RTT.
    pub fn rto(&self, rtt: Nanos) -> Nanos {
        let scaled = rtt.0 as u128 * (1_000 + self.alpha_milli as u128) / 1_000;
        Nanos(u64::try_from(scaled).unwrap_or(u64::MAX)).max(MIN_RTO)
    }
}

impl Default for SelectiveRepeat {
    /// Alpha = 2: the timeout of 3 RTT that the paper evaluates.
    fn default() -> Self {
        Self::new(2_000)
    }
}

impl Scheme for SelectiveRepeat {
    fn name(&self) -> &'static str {
        "sr"
    }

    fn wire_id(&self) -> u8 {
        1
    }

    fn sender(&self, m: &MessageSpec) -> Box<dyn SchemeSender> {
        Box::new(Sender::new(*self, m.packets))
    }

    fn receiver(&self, _m: &MessageSpec) -> Box<dyn SchemeReceiver> {
        Box::<Receiver>::default()
    }
}

/// Packets that left back to back. Times are picoseconds since the message's first packet: 213 days fit.
#[derive(Clone, Copy, Debug)]
struct Flight {
    first: u32,
    packets: u32,
    /// When the first left.
    start: u64,
    /// From one packet to the next.
    gap: u64,
    /// How much `start` was moved by merging.
    shifted: u64,
}

impl Flight {
    fn end(&self) -> u32 {
        self.first + self.packets
    }

    /// When the packet after the last would leave.
    fn through(&self) -> u64 {
        self.start.saturating_add(self.gap.saturating_mul(self.packets as u64))
    }

    /// Forgets the packets below `first`.
    fn advance(&mut self, first: u32) {
        let gone = first - self.first;
        self.start = self.start.saturating_add(self.gap.saturating_mul(gone as u64));
        self.packets -= gone;
        self.first = first;
    }

    /// How many packets from the first on will have waited `rto` when they leave again, one every `pace` from `now`.
    fn expired(&self, now: u64, rto: u64, pace: u64) -> u32 {
        let Some(margin) = now.checked_sub(self.start.saturating_add(rto)) else {
            return 0;
        };
        match self.gap.saturating_sub(pace) {
            // Leaving again at least as slowly as they left: each has waited if the first has.
            0 => self.packets,
            gain => u32::try_from(margin / gain + 1).unwrap_or(u32::MAX).min(self.packets),
        }
    }
}

/// Sending half: first transmissions in increasing order, repairs before them as they expire.
#[derive(Debug)]
pub struct Sender {
    config: SelectiveRepeat,
    total: u32,
    /// First packet that was never sent.
    fresh: u32,
    /// Sent and not reported.
    unacked: RangeSet,
    /// Oldest first.
    flights: VecDeque<Flight>,
    /// Instant from which times in `flights` count.
    origin: Option<Nanos>,
    /// When all that was handed out is through.
    free: u64,
}

impl Sender {
    /// For a message of `total` packets.
    pub fn new(config: SelectiveRepeat, total: u32) -> Self {
        Self {
            config,
            total,
            fresh: 0,
            unacked: RangeSet::new(),
            flights: VecDeque::new(),
            origin: None,
            free: 0,
        }
    }

    /// Packets sent and not yet reported.
    pub fn unacknowledged(&self) -> u32 {
        self.unacked.count()
    }

    /// Restores the invariant of the oldest run.
    fn drop_reported(&mut self) {
        while let Some(oldest) = self.flights.front_mut() {
            match self.unacked.next_from(oldest.first) {
                Some(r) if r.start < oldest.end() => return oldest.advance(r.start),
                _ => self.flights.pop_front(),
            };
        }
    }

    /// Enters a run that leaves from `now` on.
    fn depart(&mut self, now: u64, first: u32, packets: u32, gap: u64) {
        let start = now.max(self.free);
        let new = Flight { first, packets, start, gap, shifted: 0 };
        self.free = new.through();
        if let Some(last) = self.flights.back_mut() {
            let late = start.saturating_sub(last.through());
            if last.end() == first && last.gap == gap && last.shifted + late <= MERGE_SLACK_PS {
                last.start += late;
                last.shifted += late;
                last.packets += packets;
                return;
            }
        }
        self.flights.push_back(new);
    }
}

impl SchemeSender for Sender {
    fn on_status(&mut self, _now: Nanos, s: &Status<'_>, _c: &Conditions) {
        // What was not sent is not in `unacked`: no report can acknowledge it.
        self.unacked.remove(0..s.base);
        self.unacked.retain_within(s.from..s.to, s.missing.clone());
        self.drop_reported();
    }

    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        if budget == 0 {
            return None;
        }
        let origin = *self.origin.get_or_insert(now);
        let now = picos(now.since(origin));
        let gap = c.packet_time_ps;
        if let Some(oldest) = self.flights.front_mut() {
            let expired = oldest.expired(now, picos(self.config.rto(c.rtt)), gap);
            if expired > 0 {
                let first = oldest.first;
                let unacked = self.unacked.next_from(first).map_or(0, |r| r.end - first);
                let packets = expired.min(unacked).min(budget);
                oldest.advance(first + packets);
                self.drop_reported();
                self.depart(now, first, packets, gap);
                return Some(SendRun { first, packets, repair: true });
            }
        }
        let first = self.fresh;
        let packets = budget.min(self.total - first);
        if packets == 0 {
            return None;
        }
        self.fresh += packets;
        self.unacked.insert(first..self.fresh);
        self.depart(now, first, packets, gap);
        Some(SendRun { first, packets, repair: false })
    }

    /// With nothing left to send for the first time: exactly when the oldest unreported packet expires.
    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        if self.fresh < self.total {
            return Some(Nanos::ZERO);
        }
        let oldest = self.flights.front()?;
        Some(self.origin? + Nanos(oldest.start.div_ceil(1_000)) + self.config.rto(c.rtt))
    }
}

fn picos(d: Nanos) -> u64 {
    d.0.saturating_mul(1_000)
}

/// Receiving half: whole when everything arrived; reports all that is missing, oldest first, over as many datagrams as
/// that takes.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Where the next report continues.
    resume: u32,
    covered: u32,
}

impl SchemeReceiver for Receiver {
    fn on_progress(&mut self, _now: Nanos, arrived: &Arrived) -> Outcome {
        if arrived.is_whole() { Outcome::Whole } else { Outcome::Pending }
    }

    fn report<'a>(&mut self, _now: Nanos, arrived: &'a Arrived) -> Status<'a> {
        self.covered = arrived.covered();
        arrived.status(self.resume.max(arrived.base()))
    }

    fn reported(&mut self, to: u32) {
        self.resume = if to < self.covered { to } else { 0 };
    }
}

#[cfg(test)]
mod monte_carlo;
#[cfg(test)]
mod tests;
