//! When to say things again: the repetition rules of the control path, as pacers without IO.
//!
//! Each pacer answers `wake_at` (the earliest instant at which it wants to send; one in the past means at once; `None`
//! means until something happens), `due(now)`, and is told `sent(now, rtt)`. The next instant is counted from that
//! `now`, never from when it should have been: whoever comes late sends once, not a burst.
//!
//! Every interval is a fraction of the round trip as it was when last sent, kept within [`MIN_INTERVAL`] and
//! [`MAX_INTERVAL`]: a tiny round trip must not eat the processor, and a wrong, huge one must not silence a repetition
//! for longer than a peer waits before it gives up.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use crate::fabric::MAX_CONTROL;
use crate::types::Nanos;

/// Shortest interval between repetitions.
pub const MIN_INTERVAL: Nanos = Nanos::from_micros(10);

/// Longest interval between repetitions.
pub const MAX_INTERVAL: Nanos = Nanos::from_secs(1);

/// Newly arrived packets that justify a report.
pub const REPORT_PACKETS: u64 = 32;

/// A report's bytes are at most one this-many-th of the data bytes received since the last.
pub const REPORT_SHARE: u64 = 100;

const REPORT_FLOOR: Nanos = Nanos::from_micros(20);
const ANNOUNCE_FLOOR: Nanos = Nanos::from_millis(1);
const ANNOUNCE_QUICK: Nanos = Nanos::from_micros(50);

/// DONE is sent this many times in quick succession, after the first.
const DONE_QUICK: u32 = 4;

/// `rtt / parts`, at least `floor`, within the limits of this module.
pub(crate) fn interval(rtt: Nanos, parts: u64, floor: Nanos) -> Nanos {
    Nanos(rtt.0 / parts).max(floor).clamp(MIN_INTERVAL, MAX_INTERVAL)
}

pub(crate) fn reached(at: Option<Nanos>, now: Nanos) -> bool {
    at.is_some_and(|at| at <= now)
}

/// Paces the reports of one receive.
///
/// A report is due when [`REPORT_PACKETS`] packets arrived since the last and max(RTT/512, 20 us) has passed; and, while
/// something is missing or what arrived is not reported yet, whenever RTT/4 has passed since the last, however little
/// arrived: on a slow path the sender's timers would otherwise run out before there are [`REPORT_PACKETS`]. What is urgent
/// needs no packets beside. The first needs no time to pass. A report may be several datagrams of together
/// [`budget`](Self::budget) bytes; `sent` is called once for it.
#[derive(Clone, Debug)]
pub struct ReportPacer {
    packets: u64,
    bytes: u64,
    missing: bool,
    urgent: bool,
    /// The earliest report for packets, and the one for something missing.
    after_packets: Nanos,
    after_missing: Nanos,
}

impl Default for ReportPacer {
    fn default() -> Self {
        Self::new()
    }
}

impl ReportPacer {
    /// A pacer of a receive of which nothing arrived yet.
    pub const fn new() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            missing: false,
            urgent: false,
            after_packets: Nanos::ZERO,
            after_missing: Nanos::ZERO,
        }
    }

    /// `packets` that were not there before arrived, with `bytes` of payload.
    pub fn arrived(&mut self, packets: u64, bytes: u64) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether something is known to be missing now.
    pub fn set_missing(&mut self, missing: bool) {
        self.missing = missing;
    }

    /// Whether a report is wanted however few packets arrived since the last; until it left.
    pub fn set_urgent(&mut self, urgent: bool) {
        self.urgent = urgent;
    }

    /// Most bytes of the next report: a hundredth of what arrived since the last, but always one whole datagram.
    pub fn budget(&self) -> usize {
        usize::try_from(self.bytes / REPORT_SHARE).unwrap_or(usize::MAX).max(MAX_CONTROL)
    }

    /// When the next report is wanted, if nothing more arrives.
    pub fn wake_at(&self) -> Option<Nanos> {
        let packets = (self.urgent || self.packets >= REPORT_PACKETS).then_some(self.after_packets);
        let missing = (self.missing || self.packets > 0).then_some(self.after_missing);
        match (packets, missing) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// A report is wanted now.
    pub fn due(&self, now: Nanos) -> bool {
        reached(self.wake_at(), now)
    }

    /// A report left.
    pub fn sent(&mut self, now: Nanos, rtt: Nanos) {
        self.packets = 0;
        self.bytes = 0;
        self.urgent = false;
        self.after_packets = now + interval(rtt, 512, REPORT_FLOOR);
        self.after_missing = now + interval(rtt, 4, REPORT_FLOOR);
    }
}

/// Repeats the DONE of one finished receive until the peer closed its seq.
///
/// At once; four times more, RTT/512 apart; every RTT/128 until 3 RTT after the first; then after RTT/8, and each time
/// twice as long, up to [`MAX_INTERVAL`].
#[derive(Clone, Debug)]
pub struct DoneRepeater {
    /// `None` once closed.
    next: Option<Nanos>,
    first: Nanos,
    times: u32,
    /// Last interval of the last phase; zero before it.
    backoff: Nanos,
}

impl DoneRepeater {
    /// A receive that finished at `now`.
    pub const fn new(now: Nanos) -> Self {
        Self { next: Some(now), first: now, times: 0, backoff: Nanos::ZERO }
    }

    /// The peer closed the seq: nothing more to say.
    pub fn closed(&mut self) {
        self.next = None;
    }

    /// The peer shows that it lacks it: DONE is wanted at once. The pattern goes on from there.
    pub fn asked(&mut self, now: Nanos) {
        self.next = self.next.map(|next| next.min(now));
    }

    /// When DONE is wanted next; `None` once closed.
    pub const fn wake_at(&self) -> Option<Nanos> {
        self.next
    }

    /// DONE is wanted now.
    pub fn due(&self, now: Nanos) -> bool {
        reached(self.next, now)
    }

    /// DONE left.
    pub fn sent(&mut self, now: Nanos, rtt: Nanos) {
        if self.next.is_none() {
            return;
        }
        if self.times == 0 {
            self.first = now;
        }
        let wait = if self.times < DONE_QUICK {
            interval(rtt, 512, MIN_INTERVAL)
        } else if now.since(self.first).0 < rtt.0.saturating_mul(3) && self.backoff == Nanos::ZERO {
            interval(rtt, 128, MIN_INTERVAL)
        } else {
            self.backoff = if self.backoff == Nanos::ZERO {
                interval(rtt, 8, MIN_INTERVAL)
            } else {
                (self.backoff + self.backoff).min(MAX_INTERVAL)
            };
            self.backoff
        };
        self.times = self.times.saturating_add(1);
        self.next = Some(now + wait);
    }
}

/// Repeats the ANNOUNCE of one message until the receiver mentions the seq: after RTT/512, RTT/128 and RTT/32, so that the loss of
/// one delays a short message little, then every max(RTT/8, 1 ms).
#[derive(Clone, Debug)]
pub struct AnnounceRepeater {
    /// `None` once mentioned.
    next: Option<Nanos>,
    times: u32,
}

impl AnnounceRepeater {
    /// A message that may be announced from `now` on.
    pub const fn new(now: Nanos) -> Self {
        Self { next: Some(now), times: 0 }
    }

    /// It left at least once, or the receiver knows the message: packets may follow.
    pub const fn announced(&self) -> bool {
        self.times > 0
    }

    /// The receiver mentioned the seq.
    pub fn mentioned(&mut self) {
        self.times = self.times.max(1);
        self.next = None;
    }

    /// When ANNOUNCE is wanted next; `None` once mentioned.
    pub const fn wake_at(&self) -> Option<Nanos> {
        self.next
    }

    /// ANNOUNCE is wanted now.
    pub fn due(&self, now: Nanos) -> bool {
        reached(self.next, now)
    }

    /// ANNOUNCE left.
    pub fn sent(&mut self, now: Nanos, rtt: Nanos) {
        let wait = match self.times {
            0 => interval(rtt, 512, ANNOUNCE_QUICK),
            1 => interval(rtt, 128, ANNOUNCE_QUICK),
            2 => interval(rtt, 32, ANNOUNCE_QUICK),
            _ => interval(rtt, 8, ANNOUNCE_FLOOR),
        };
        self.times = self.times.saturating_add(1);
        self.next = self.next.map(|_| now + wait);
    }
}
