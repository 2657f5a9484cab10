//! A set of packet numbers, kept as ranges: sorted, disjoint, never touching each other.
//!
//! Every operation costs by the ranges it changes, not by the packets in them nor (a logarithm apart) by the ranges in
//! the set, because loss and the peer choose both. Measured: a ring of ranges takes 8 ns instead of 40 ns at its ends,
//! which is the usual case and once a run; in the middle it is five times slower than a tree at 30,000 ranges and
//! seventy times at a million, which half of 2^22 packets lost amounts to. The tree stays below 0.5 us for a removal.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::Range;

/// Ranges that a walk passes before a search is cheaper.
const STRIDE: u32 = 8;

/// A set of packet numbers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start of a range to its end.
    ends: BTreeMap<u32, u32>,
    count: u32,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ends: BTreeMap::new(), count: 0 }
    }

    /// Numbers in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Ranges in the set.
    pub fn ranges(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no number.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The smallest number.
    pub fn first(&self) -> Option<u32> {
        self.ends.first_key_value().map(|(&start, _)| start)
    }

    /// One more than the largest number.
    pub fn end(&self) -> Option<u32> {
        self.ends.last_key_value().map(|(_, &end)| end)
    }

    /// Whether `p` is in the set.
    pub fn contains(&self, p: u32) -> bool {
        self.ends.range(..=p).next_back().is_some_and(|(_, &end)| p < end)
    }

    /// The first range at or after `p`, without what it has below `p`.
    pub fn next_from(&self, p: u32) -> Option<Range<u32>> {
        match self.ends.range(..=p).next_back() {
            Some((_, &end)) if p < end => Some(p..end),
            _ => self.ends.range(p..).next().map(|(&start, &end)| start..end),
        }
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> Iter<'_> {
        self.within(0..u32::MAX)
    }

    /// The ranges inside `window`, ascending, cut off at its bounds.
    pub fn within(&self, window: Range<u32>) -> Iter<'_> {
        if window.is_empty() {
            return Iter { inner: self.ends.range(0..0), window };
        }
        let first = match self.ends.range(..=window.start).next_back() {
            Some((&start, &end)) if window.start < end => start,
            _ => window.start,
        };
        Iter { inner: self.ends.range(first..window.end), window }
    }

    /// Adds the numbers of `r`.
    pub fn insert(&mut self, r: Range<u32>) {
        if r.is_empty() {
            return;
        }
        let Range { mut start, mut end } = r;
        match self.ends.last_entry() {
            // Mostly the set grows at its end: no search.
            Some(mut last) if *last.key() <= start => {
                let last_end = last.get_mut();
                if start <= *last_end {
                    self.count += end.saturating_sub(*last_end);
                    *last_end = end.max(*last_end);
                    return;
                }
            }
            Some(_) => {
                while let Some((&s, &e)) = self.ends.range(..=end).next_back() {
                    if e < start {
                        break;
                    }
                    self.ends.remove(&s);
                    self.count -= e - s;
                    start = start.min(s);
                    end = end.max(e);
                }
            }
            None => {}
        }
        self.ends.insert(start, end);
        self.count += end - start;
    }

    /// Takes the numbers of `r` out; returns how many there were.
    pub fn remove(&mut self, r: Range<u32>) -> u32 {
        let before = self.count;
        if r.is_empty() {
            return 0;
        }
        while let Some((&s, end)) = self.ends.range_mut(..r.end).next_back() {
            let e = *end;
            if e <= r.start {
                break;
            }
            self.count -= e.min(r.end) - s.max(r.start);
            if s < r.start {
                *end = r.start;
            } else {
                self.ends.remove(&s);
            }
            if r.end < e {
                self.ends.insert(r.end, e);
            }
            if s <= r.start {
                break;
            }
        }
        before - self.count
    }

    /// Takes out what is inside `window` and not in `keep`; returns how many there were.
    ///
    /// `keep` is ascending; of a range that starts too early, only what lies beyond its predecessors counts. The work
    /// is bounded by the ranges of `keep` and of what is taken out, however many stay.
    pub fn retain_within(&mut self, window: Range<u32>, keep: impl IntoIterator<Item = Range<u32>>) -> u32 {
        let mut doomed = Vec::new();
        let mut walk = self.within(window.clone());
        let mut here = walk.next();
        let mut at = window.start;
        let beyond = window.end..u32::MAX;
        for k in keep.into_iter().filter(|k| !k.is_empty()).chain([beyond]) {
            let gap = at..k.start.min(window.end);
            if !gap.is_empty() {
                let mut steps = 0;
                while here.as_ref().is_some_and(|r| r.end <= gap.start) {
                    if steps == STRIDE {
                        walk = self.within(gap.start..window.end);
                    }
                    here = walk.next();
                    steps += 1;
                }
                if here.as_ref().is_some_and(|r| r.start < gap.end) {
                    doomed.push(gap);
                }
            }
            at = at.max(k.end);
            if here.is_none() || window.end <= at {
                break;
            }
        }
        doomed.into_iter().map(|gap| self.remove(gap)).sum()
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a RangeSet {
    type Item = Range<u32>;
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Ranges of a [`RangeSet`] inside a window, ascending.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    inner: btree_map::Range<'a, u32, u32>,
    window: Range<u32>,
}

impl Iterator for Iter<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        let (&start, &end) = self.inner.next()?;
        Some(start.max(self.window.start)..end.min(self.window.end))
    }
}

#[cfg(test)]
mod tests;
