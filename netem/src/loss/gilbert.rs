//! Bursts in time.
//!
//! The two-state chain moves with wire time, not with packets: a sparse stream meets the same bad periods as a dense one.
//! Time is cut into epochs of many bursts, and each epoch starts in the stationary law with a seed of its own. So the bad
//! periods are a function of the seed and of time alone, whatever is sent, and an idle hour costs no more than one epoch.

use std::ops::Range;

use crate::rng::{Geometric, Random, derive_seed};
use crate::wire::{Cadence, Picos};

/// Mean number of bursts in an epoch. An epoch's edge cuts a burst with probability `p`, so this many keep the mean burst
/// length right to better than 1 percent; more would make a landing after a gap dearer.
const BURSTS_PER_EPOCH: f64 = 128.0;

/// A Gilbert-Elliott chain in slots, with loss 0 in the good state and 1 in the bad.
#[derive(Clone, Debug)]
pub(super) struct GilbertElliott {
    p: f64,
    /// Slots a bad (good) period lasts beyond its first.
    bad_rest: Geometric,
    good_rest: Geometric,
    slots_per_epoch: u64,
    slot: u128,
    seed: u64,
    epoch: Range<u128>,
    rng: Random,
    bad: bool,
    /// The current period; its end may lie beyond the epoch.
    period: Range<u128>,
}

impl GilbertElliott {
    /// Mean bad period `burst` slots, mean good one `burst (1 - p) / p`, which gives the average loss `p`; `p > 0`.
    pub(super) fn new(p: f64, burst: f64, slot: Picos, seed: u64) -> Self {
        let good = burst * (1.0 - p) / p;
        Self {
            p,
            bad_rest: Geometric::new(1.0 / burst),
            good_rest: Geometric::new((1.0 / good).min(1.0)),
            slots_per_epoch: ((burst + good) * BURSTS_PER_EPOCH).ceil() as u64,
            slot: slot.0.max(1),
            seed,
            epoch: 0..0,
            rng: Random::new(seed),
            bad: false,
            period: 0..0,
        }
    }

    pub(super) fn set_slot(&mut self, slot: Picos) {
        self.slot = slot.0.max(1);
        self.epoch = 0..0;
    }

    pub(super) fn survivors(&mut self, run: &Cadence, packets: u32, out: &mut Vec<Range<u32>>) {
        let mut from = 0;
        while from < packets {
            let period_end = self.seek(run.at(from).0);
            let end = run.first_from(Picos(period_end), packets);
            if !self.bad {
                match out.last_mut() {
                    Some(last) if last.end == from => last.end = end,
                    _ => out.push(from..end),
                }
            }
            from = end;
        }
    }

    /// Makes the period at `t` the current one and gives its end, which is after `t`.
    fn seek(&mut self, t: u128) -> u128 {
        if !self.epoch.contains(&t) || t < self.period.start {
            self.enter_epoch(t);
        }
        while self.period.end <= t {
            let start = self.period.end;
            self.bad = !self.bad;
            self.begin_period(start);
        }
        self.period.end.min(self.epoch.end)
    }

    fn enter_epoch(&mut self, t: u128) {
        let length = u128::from(self.slots_per_epoch).saturating_mul(self.slot);
        let index = t / length;
        let start = index * length;
        self.epoch = start..start.saturating_add(length);
        self.rng = Random::new(derive_seed(self.seed, index as u64));
        self.bad = self.rng.chance(self.p);
        // Geometric periods have no memory: what is left of the one under way has the law of a fresh one.
        self.begin_period(start);
    }

    fn begin_period(&mut self, start: u128) {
        let rest = if self.bad { &self.bad_rest } else { &self.good_rest };
        let slots = rest.draw(&mut self.rng).saturating_add(1);
        self.period = start..start.saturating_add(u128::from(slots).saturating_mul(self.slot));
    }
}
