//! Packets that were sent, as runs that know when and on which channel they left.
//!
//! Invariants: runs are disjoint and not empty. Every operation costs by the runs it changes, not by the packets in them
//! nor (a logarithm apart) by the runs that stay, because loss and the peer choose both.

use crate::types::Channel;
use std::collections::BTreeMap;
use std::ops::Range;

/// Runs that a walk passes before a search is cheaper.
const STRIDE: u32 = 8;

/// The transmission before, of a packet that was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Earlier {
    /// When the first packet of the run left; the others a little later.
    pub(super) start: u64,
    pub(super) channel: Channel,
}

/// Consecutive packets that left back to back on one channel. Times are picoseconds since the message's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) packets: u32,
    /// When the first left.
    pub(super) start: u64,
    /// From one packet to the next.
    pub(super) gap: u64,
    /// Which transmission it is a part of.
    pub(super) id: u64,
    pub(super) channel: Channel,
    pub(super) earlier: Option<Earlier>,
}

impl Run {
    pub(super) fn end(&self) -> u32 {
        self.first + self.packets
    }

    /// When packet `p`, which may be the one after the last, left.
    pub(super) fn left(&self, p: u32) -> u64 {
        self.start.saturating_add(self.gap.saturating_mul(u64::from(p - self.first)))
    }

    /// The packets of `r`, which are packets of it.
    pub(super) fn part(&self, r: Range<u32>) -> Self {
        Self { first: r.start, packets: r.end - r.start, start: self.left(r.start), ..*self }
    }
}

/// A set of packets with their last transmission.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    by_end: BTreeMap<u32, Run>,
    count: u32,
}

impl Runs {
    /// Packets in the set.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.by_end.values()
    }

    /// Adds packets that are not in the set.
    pub(super) fn insert(&mut self, run: Run) {
        self.count += run.packets;
        // What continues its predecessor in every respect becomes one with it.
        if let Some(mut before) = self.by_end.remove(&run.first) {
            if before.id == run.id && before.earlier.is_none() && run.earlier.is_none() {
                before.packets += run.packets;
                self.by_end.insert(before.end(), before);
                return;
            }
            self.by_end.insert(before.end(), before);
        }
        self.by_end.insert(run.end(), run);
    }

    pub(super) fn first(&self) -> Option<&Run> {
        self.by_end.values().next()
    }

    pub(super) fn last(&self) -> Option<&Run> {
        self.by_end.values().next_back()
    }

    /// The first run that has a packet at or after `p`.
    pub(super) fn next_from(&self, p: u32) -> Option<&Run> {
        self.by_end.range(p.checked_add(1)?..).next().map(|(_, run)| run)
    }

    /// Takes the packets of `r` out, those of transmission `id` only if one is named; appends them to `out`.
    pub(super) fn take(&mut self, r: Range<u32>, id: Option<u64>, out: &mut Vec<Run>) {
        let mut at = r.start;
        while at < r.end
            && let Some((&end, run)) = self.by_end.range_mut(at + 1..).next()
        {
            let run_first = run.first;
            if run_first >= r.end {
                return;
            }
            at = end;
            if id.is_some_and(|id| id != run.id) {
                continue;
            }
            let hit = run_first.max(r.start)..end.min(r.end);
            let (before, taken) = (run.part(run_first..hit.start), run.part(hit.clone()));
            if hit.end < end {
                *run = run.part(hit.end..end);
            } else {
                self.by_end.remove(&end);
            }
            if before.packets > 0 {
                self.by_end.insert(before.end(), before);
            }
            self.count -= taken.packets;
            out.push(taken);
        }
    }

    /// Takes out what is inside `window` and not in `keep`, and appends it to `out`.
    ///
    /// `keep` is ascending; of a range that starts too early, only what lies beyond its predecessors counts. The work
    /// is bounded by the ranges of `keep` and of what is taken out, however many stay.
    pub(super) fn take_unless(
        &mut self,
        window: Range<u32>,
        keep: impl IntoIterator<Item = Range<u32>>,
        out: &mut Vec<Run>,
    ) {
        if self.by_end.is_empty() || window.is_empty() {
            return;
        }
        let from = |p: u32| self.by_end.range(p.saturating_add(1)..);
        let mut doomed = Vec::new();
        let mut walk = from(window.start);
        let mut here = walk.next();
        let mut at = window.start;
        let beyond = window.end..u32::MAX;
        for k in keep.into_iter().filter(|k| !k.is_empty()).chain([beyond]) {
            let gap = at..k.start.min(window.end);
            if !gap.is_empty() {
                let mut steps = 0;
                while here.is_some_and(|(&end, _)| end <= gap.start) {
                    if steps == STRIDE {
                        walk = from(gap.start);
                    }
                    here = walk.next();
                    steps += 1;
                }
                if here.is_some_and(|(_, run)| run.first < gap.end) {
                    doomed.push(gap);
                }
            }
            at = at.max(k.end);
            if here.is_none() || window.end <= at {
                break;
            }
        }
        for gap in doomed {
            self.take(gap, None, out);
        }
    }
}
