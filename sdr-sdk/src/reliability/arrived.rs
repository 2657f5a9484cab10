//! What has arrived of one message, as its receiver sees it: two numbers and the packets between that are missing.
//!
//! It is read from the chunk bytes, and from the packet bits where a chunk is incomplete: those may cost a round trip
//! to a device. It holds nothing for a chunk in which nothing is missing. Invariant: every packet below `covered` was
//! looked at; it arrived unless `missing` has it, and it may have arrived since.

use super::ranges::RangeSet;
use super::{Missing, Status};
use crate::bitmap::Shape;
use crate::types::ChunkIndex;
use std::ops::Range;

/// What can be read of an armed receive.
pub trait PacketView {
    /// Division of the receive; at least as long as the message. Chunks of extra packets are numbered behind those of data.
    fn shape(&self) -> Shape;

    /// Whether all packets of the receive in chunk `c` arrived: its byte in host memory, loaded with Acquire.
    fn chunk(&self, c: ChunkIndex) -> bool;

    /// The first chunk of `[from, to)` that is incomplete, or `to`.
    ///
    /// An implementation that sees the bytes side by side compares eight at a time.
    fn complete_until(&self, from: ChunkIndex, to: ChunkIndex) -> ChunkIndex {
        ChunkIndex((from.0..to.0).find(|&c| !self.chunk(ChunkIndex(c))).unwrap_or(to.0))
    }

    /// Bit i: packet i of chunk `c` arrived. May cost a round trip to a device.
    fn packets(&self, c: ChunkIndex) -> u64;
}

/// The receiver's view of one message, or of its extra packets; each counts from zero.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// Chunk of the receive that has the first packet.
    first_chunk: u32,
    total: u32,
    covered: u32,
    missing: RangeSet,
    /// What was missing and arrived, since it was last forgotten.
    found: Vec<Range<u32>>,
    /// Where `recheck` continues: in turn, and after what it found last.
    next_check: u32,
    next_found: u32,
}

impl Arrived {
    /// Nothing has arrived of a message of `total` packets, which may be fewer than those of its receive.
    pub fn new(total: u32) -> Self {
        Self::part(0, total)
    }

    /// The same of `total` packets that begin with a chunk of the receive.
    pub fn part(first_chunk: u32, total: u32) -> Self {
        let (missing, found) = (RangeSet::new(), Vec::new());
        Self { first_chunk, total, covered: 0, missing, found, next_check: 0, next_found: 0 }
    }

    /// Packets in the message.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Every packet below it was looked at.
    pub fn covered(&self) -> u32 {
        self.covered
    }

    /// Packets below [`covered`](Self::covered) that had not arrived when they were last looked at.
    pub fn missing(&self) -> &RangeSet {
        &self.missing
    }

    /// Packets that were missing and arrived, since [`forget_found`](Self::forget_found); in no order, each once.
    pub fn found(&self) -> &[Range<u32>] {
        &self.found
    }

    /// Empties [`found`](Self::found).
    pub fn forget_found(&mut self) {
        self.found.clear();
    }

    /// Every packet below it arrived.
    pub fn base(&self) -> u32 {
        self.missing.first().unwrap_or(self.covered)
    }

    /// Packets that arrived.
    pub fn count(&self) -> u32 {
        self.covered - self.missing.count()
    }

    /// Whether every packet arrived.
    pub fn is_whole(&self) -> bool {
        self.covered == self.total && self.missing.is_empty()
    }

    /// What can be said of the packets from `from` on.
    pub fn status(&self, from: u32) -> Status<'_> {
        let from = from.min(self.covered);
        let missing = Missing::Tracked(self.missing.within(from..self.covered));
        Status { base: self.base(), from, to: self.covered, missing }
    }

    /// Looks at the packets from [`covered`](Self::covered) to `until` (exclusive): one more than the highest one seen.
    ///
    /// Packet bits are read once for each incomplete chunk on the way. The chunk of `until` is mostly one of them;
    /// where that read is dear and more packets are on their way, round `until` down to a chunk.
    pub fn update(&mut self, view: &(impl PacketView + ?Sized), until: u32) {
        let until = until.min(self.total);
        let per_chunk = view.shape().per_chunk() as u32;
        let base = self.first_chunk;
        while self.covered < until {
            let c = self.covered / per_chunk;
            let start = c * per_chunk;
            let last = ChunkIndex(base + until.div_ceil(per_chunk));
            let complete = view.complete_until(ChunkIndex(base + c), last).0 - base;
            if c < complete {
                self.find(start..self.covered, std::iter::empty());
                self.covered = complete.saturating_mul(per_chunk).min(self.total);
                continue;
            }
            let end = start.saturating_add(per_chunk).min(self.total);
            let bits = view.packets(ChunkIndex(base + c)) & low_bits(end - start);
            let seen = start + (u64::BITS - bits.leading_zeros());
            let end = end.min(until).max(seen);
            self.find(start..self.covered, gaps(bits, start..end));
            for gap in gaps(bits, start..end).filter(|gap| self.covered < gap.end) {
                self.missing.insert(gap.start.max(self.covered)..gap.end);
            }
            self.covered = self.covered.max(end);
        }
    }

    /// Looks again at chunks in which packets are missing, until it has found `budget` of them as they were; returns how
    /// many packets arrived. So the work is bounded by what arrived, and all of it is found when nothing is missing.
    ///
    /// It goes on where it last found something, for half of the budget, because repairs come in increasing order; then,
    /// in turn, with all others. Packet bits are read only where the chunk's byte does not tell: more than one packet of it
    /// is missing.
    pub fn recheck(&mut self, view: &(impl PacketView + ?Sized), budget: u32) -> u32 {
        let before = self.missing.count();
        let mut here = self.next_found;
        let mut vain = 0;
        while vain < budget / 2
            && let Some(next) = self.missing.next_from(here)
        {
            let (end, found) = self.recheck_chunk(view, next.start);
            here = end;
            if found {
                self.next_found = end;
            } else {
                vain += 1;
            }
        }
        // Once around from where the last call stopped.
        let halfway = self.next_check;
        let mut second_half = false;
        while vain < budget {
            let mut next = self.missing.next_from(self.next_check);
            if next.is_none() && !second_half {
                second_half = true;
                next = self.missing.next_from(0);
            }
            let Some(next) = next.filter(|r| !second_half || r.start < halfway) else {
                break;
            };
            let (end, found) = self.recheck_chunk(view, next.start);
            self.next_check = end;
            if found {
                self.next_found = end;
            } else {
                vain += 1;
            }
        }
        before - self.missing.count()
    }

    /// Looks again at what is missing before `end`, until it has found `budget` chunks of it as they were; for who knows that
    /// repairs may be there. As [`recheck`](Self::recheck) otherwise.
    pub fn recheck_below(&mut self, view: &(impl PacketView + ?Sized), end: u32, budget: u32) {
        let shape = view.shape();
        let per_chunk = shape.per_chunk() as u32;
        // One walk finds the chunks in which something may have changed; most are as they were.
        let mut moved = Vec::new();
        let (mut vain, mut checked) = (0, 0);
        // Whole chunks, or what is missing behind `end` would not be seen to be in its chunk.
        let end = end.div_ceil(per_chunk).saturating_mul(per_chunk);
        let mut ranges = self.missing.within(0..end).peekable();
        'looking: while let Some(r) = ranges.next() {
            for c in r.start.max(checked) / per_chunk..r.end.div_ceil(per_chunk) {
                if vain + moved.len() as u32 >= budget {
                    break 'looking;
                }
                let chunk_end = (c + 1).saturating_mul(per_chunk);
                if chunk_end <= checked {
                    continue;
                }
                checked = chunk_end;
                // With one packet missing the chunk's byte tells all.
                let alone = r.len() == 1 && ranges.peek().is_none_or(|next| next.start >= chunk_end);
                let whole = chunk_end <= self.covered && chunk_end <= self.total;
                if view.chunk(ChunkIndex(self.first_chunk + c)) || !(alone && whole) {
                    moved.push(c * per_chunk);
                } else {
                    vain += 1;
                }
            }
        }
        for first in moved {
            if let Some(r) = self.missing.next_from(first) {
                self.recheck_chunk(view, r.start.max(first));
            }
        }
    }

    /// Looks again at the chunk of `packet`: its end, and whether something of it arrived.
    fn recheck_chunk(&mut self, view: &(impl PacketView + ?Sized), packet: u32) -> (u32, bool) {
        let shape = view.shape();
        let per_chunk = shape.per_chunk() as u32;
        let c = packet / per_chunk;
        let start = c * per_chunk;
        let end = start.saturating_add(per_chunk).min(self.total);
        let chunk = ChunkIndex(self.first_chunk + c);
        if view.chunk(chunk) {
            return (end, self.find(start..end, std::iter::empty()));
        }
        let whole_chunk = end - start == per_chunk || (self.first_chunk == 0 && end == shape.packets());
        let mut lost = self.missing.within(start..end);
        let alone = lost.next().is_some_and(|r| r.len() == 1) && lost.next().is_none();
        if whole_chunk && alone && end <= self.covered {
            return (end, false);
        }
        let bits = view.packets(chunk);
        (end, self.find(start..end, gaps(bits, start..end)))
    }

    /// Of what was missing in `window`, all but `still` arrived; whether that is anything.
    fn find(&mut self, window: Range<u32>, still: impl IntoIterator<Item = Range<u32>>) -> bool {
        if self.missing.next_from(window.start).is_none_or(|r| r.start >= window.end) {
            return false;
        }
        let before = self.found.len();
        self.found.extend(self.missing.within(window.clone()));
        if self.missing.retain_within(window, still) == 0 {
            self.found.truncate(before);
            return false;
        }
        // Of a chunk: the ranges are few.
        let was: Vec<_> = self.found.drain(before..).collect();
        for r in was {
            let mut at = r.start;
            for left in self.missing.within(r.clone()).chain(std::iter::once(r.end..r.end)) {
                if at < left.start {
                    self.found.push(at..left.start);
                }
                at = left.end;
            }
        }
        true
    }
}

/// A mask of the lowest `n` (0 to 64) bits.
fn low_bits(n: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - n).unwrap_or(0)
}

/// The packets of `chunk` (at most 64) whose bit is clear; bit 0 is its first packet.
fn gaps(bits: u64, chunk: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let mut left = !bits & low_bits(chunk.end - chunk.start);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let from = left.trailing_zeros();
        let to = from + (left >> from).trailing_ones();
        left &= !low_bits(to);
        Some(chunk.start + from..chunk.start + to)
    })
}

#[cfg(test)]
mod tests;
