//! How much a path loses, from what is missing when it is first looked at: counted by the receiver, judged by the sender.

#![forbid(unsafe_code)]

use super::frames::LossCount;
use crate::reliability::{Arrived, Loss};
use crate::types::Nanos;
use std::collections::VecDeque;

/// Packets over which losses are remembered: older ones count for half each time.
const MEMORY: u64 = 1 << 20;

/// Least loss that is assumed: what was never lost is not proven lossless.
const FLOOR: f64 = 1e-4;

/// Counts what a receiver sees of one message; the sums are kept by its connection.
///
/// A packet that is missing at first sight may only be late, on another channel; later on it may have been repaired. Between the
/// two, a quarter of a round trip after the first look, what is missing is lost. On a single channel it is at first sight.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    counted: u32,
    /// When it was looked how far, oldest first.
    looks: VecDeque<(Nanos, u32)>,
}

impl Seen {
    /// How far can be counted now, where what is late comes within `settles`. Nothing new when that is not beyond what was counted.
    pub(super) fn ripe(&mut self, now: Nanos, covered: u32, settles: Nanos) -> Option<u32> {
        let last = self.looks.back().copied().unwrap_or_default();
        if covered > last.1 && now.since(last.0) >= Nanos(settles.0 / 16) {
            self.looks.push_back((now, covered));
        }
        let mut ripe = self.counted;
        while let Some(&(at, to)) = self.looks.front()
            && at + settles <= now
        {
            ripe = ripe.max(to);
            self.looks.pop_front();
        }
        (ripe > self.counted).then_some(ripe)
    }

    /// Counts up to `to`, which is [`ripe`](Self::ripe) or the end of a message that has ended.
    pub(super) fn count(&mut self, arrived: &Arrived, to: u32, sum: &mut LossCount) {
        let fresh = self.counted..to.max(self.counted);
        self.counted = fresh.end;
        sum.packets += u64::from(fresh.end - fresh.start);
        for r in arrived.missing().within(fresh.clone()) {
            sum.missing += u64::from(r.end - r.start);
            // One that began before was counted there.
            let goes_on = r.start == fresh.start && r.start > 0 && arrived.missing().contains(r.start - 1);
            sum.bursts += u64::from(!goes_on);
        }
    }
}

/// What a sender makes of the counts that it is told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossMeter {
    last: LossCount,
    /// Of late: packets, missing, bursts.
    packets: f64,
    missing: f64,
    bursts: f64,
}

impl LossMeter {
    /// Takes a cumulative count; one that is older than another changes nothing.
    pub(super) fn told(&mut self, count: &LossCount) {
        if count.packets <= self.last.packets {
            return;
        }
        self.packets += (count.packets - self.last.packets) as f64;
        self.missing += count.missing.saturating_sub(self.last.missing) as f64;
        self.bursts += count.bursts.saturating_sub(self.last.bursts) as f64;
        self.last = *count;
        if self.packets > MEMORY as f64 {
            self.packets /= 2.0;
            self.missing /= 2.0;
            self.bursts /= 2.0;
        }
    }

    /// An upper estimate: of x bursts in N packets of B each, (x + 2 sqrt(x + 1) + 3) B / N, as long as that is less than what is
    /// assumed of an unknown path.
    pub(super) fn loss(&self) -> Loss {
        let unknown = Loss::default();
        let x = self.bursts;
        // One burst of the length that is assumed weighs as much as one that was seen.
        let burst = ((self.missing + unknown.burst) / (x + 1.0)).max(1.0);
        let mean = if x < 1.0 { 1.0 } else { self.missing / x };
        let upper = (x + 2.0 * (x + 1.0).sqrt() + 3.0) * mean / self.packets.max(1.0);
        let seen = self.missing / self.packets.max(1.0);
        // The prior holds until the evidence says less, or more.
        let probability = upper.min(unknown.probability.max(2.0 * seen)).clamp(FLOOR, 0.5);
        Loss { probability, burst }
    }
}

#[cfg(test)]
mod tests;
