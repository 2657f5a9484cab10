//! How long the queue is: the round trip beyond the smallest one.
//!
//! The smallest round trip is a plain minimum. It is sound as long as it is seen again now and then, which the cuts of
//! [`Delay`](super::Delay) see to, for they let the queue run empty; when it is not, somebody else keeps a queue or the path
//! has become longer, and it has to be [forgotten](Queue::forget) in favour of what is measured with a small window.

use crate::types::Nanos;

/// Target as a part of the smallest round trip: a twentieth.
const TARGET_SHARE: u64 = 20;

/// Least target: below, hosts and interrupts are measured rather than queues.
const MIN_TARGET: Nanos = Nanos::from_micros(20);

/// The target is at least this many times the mean difference of neighbouring samples. A queue moves little from one to the
/// next: that difference is noise.
const NOISE: u64 = 4;

/// Of so many samples in a row the smallest counts: a single late one is no queue.
const FILTER: usize = 4;

/// What round trips say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Smallest round trip; MAX before the first.
    base: Nanos,
    /// When one close to it was seen last.
    confirmed: Nanos,
    recent: [Nanos; FILTER],
    count: usize,
    last: Option<Nanos>,
    /// Mean difference of neighbours.
    noise: Nanos,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            base: Nanos::MAX,
            confirmed: Nanos::ZERO,
            recent: [Nanos::MAX; FILTER],
            count: 0,
            last: None,
            noise: Nanos::ZERO,
        }
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self, now: Nanos, rtt: Nanos) {
        self.base = self.base.min(rtt);
        if rtt <= self.base + Nanos(self.target().0 / 4) {
            self.confirmed = now;
        }
        if let Some(last) = self.last.replace(rtt) {
            let off = rtt.0.abs_diff(last.0).min(self.base.0);
            self.noise = Nanos((15 * self.noise.0 + off) / 16);
        }
        self.recent[self.count % FILTER] = rtt;
        self.count += 1;
    }

    /// Samples from here on are another matter than those before.
    pub(super) fn turn(&mut self) {
        self.count = 0;
    }

    /// The queue, once enough samples came since the [`turn`](Self::turn).
    pub(super) fn delay(&self) -> Option<Nanos> {
        let least = self.recent.iter().copied().fold(Nanos::MAX, Nanos::min);
        (self.count >= FILTER).then(|| least.since(self.base))
    }

    /// What it should not exceed.
    pub(super) fn target(&self) -> Nanos {
        if self.base == Nanos::MAX {
            return Nanos::MAX;
        }
        let noise = Nanos(NOISE * self.noise.0).min(Nanos(self.base.0 / 2));
        Nanos(self.base.0 / TARGET_SHARE).max(MIN_TARGET).max(noise)
    }

    /// The path without a queue, when it was measured.
    pub(super) fn base(&self) -> Option<Nanos> {
        (self.base < Nanos::MAX).then_some(self.base)
    }

    /// Time since the base was seen.
    pub(super) fn doubt(&self, now: Nanos) -> Nanos {
        now.since(self.confirmed)
    }

    /// The base is `rtt` from here on.
    pub(super) fn forget(&mut self, now: Nanos, rtt: Nanos) {
        (self.base, self.confirmed, self.last) = (rtt, now, None);
        self.turn();
    }
}
