//! What each stripe still lacks, as its receiver sees it.

use super::super::{Arrived, RangeSet};
use super::stripes::{Stripe, Stripes};
use std::ops::Range;

/// For every stripe, data packets that are missing less parity packets that arrived.
///
/// It follows the two views by their changes, so that its cost is that of the losses and of the parity that arrives.
/// Packets at and beyond the views' ends count as neither: what it says of a group holds once all its data was looked at.
#[derive(Clone, Debug)]
pub struct Balance {
    stripes: Stripes,
    need: Vec<i32>,
    /// Stripes with a positive need.
    short: u32,
    /// Protected data packets that are missing.
    missing: u32,
    data_covered: u32,
    parity_covered: u32,
}

impl Balance {
    /// Nothing was looked at.
    pub fn new(stripes: Stripes) -> Self {
        Self {
            need: vec![0; stripes.count() as usize],
            short: 0,
            missing: 0,
            data_covered: stripes.start,
            parity_covered: 0,
            stripes,
        }
    }

    /// Stripes that cannot be solved by what arrived.
    pub fn short(&self) -> u32 {
        self.short
    }

    /// Protected data packets that are missing.
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// Symbols that a stripe lacks to be solved; negative when it has parity to spare.
    pub fn need(&self, s: Stripe) -> i32 {
        self.need[self.stripes.index(s)]
    }

    fn add(&mut self, s: Stripe, by: i32) {
        let need = &mut self.need[self.stripes.index(s)];
        let before = *need;
        *need += by;
        match (before > 0, *need > 0) {
            (false, true) => self.short += 1,
            (true, false) => self.short -= 1,
            _ => {}
        }
    }

    /// Follows the views.
    pub fn update(&mut self, data: &Arrived, parity: &Arrived) {
        // What is found was counted as missing before, or it is beyond what was counted.
        for r in data.found() {
            for p in r.start.max(self.stripes.start)..r.end.min(self.data_covered) {
                self.missing -= 1;
                self.add(self.stripes.of_data(p).0, -1);
            }
        }
        let fresh = self.data_covered..data.covered().max(self.data_covered);
        self.data_covered = fresh.end;
        for r in data.missing().within(fresh) {
            self.missing += r.end - r.start;
            for p in r {
                self.add(self.stripes.of_data(p).0, 1);
            }
        }
        let most = self.stripes.parity_packets();
        for r in parity.found() {
            for e in r.start..r.end.min(self.parity_covered) {
                self.add(self.stripes.of_parity(e).0, -1);
            }
        }
        let fresh = self.parity_covered..parity.covered().min(most).max(self.parity_covered);
        self.parity_covered = fresh.end;
        for r in arrived_within(parity.missing(), fresh) {
            for e in r {
                self.add(self.stripes.of_parity(e).0, -1);
            }
        }
    }

    /// The first parity packet that was not looked at.
    pub fn parity_covered(&self) -> u32 {
        self.parity_covered
    }
}

/// The complement of `missing` in `window`.
pub fn arrived_within(missing: &RangeSet, window: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let mut at = window.start;
    let gaps = missing.within(window.clone()).chain(std::iter::once(window.end..window.end));
    gaps.filter_map(move |gap| {
        let r = at..gap.start;
        at = gap.end;
        (!r.is_empty()).then_some(r)
    })
}

#[cfg(test)]
mod tests;
