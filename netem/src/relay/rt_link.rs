//! One direction of a link with the bytes in it.
//!
//! A [`Link`] says when each packet arrives; this keeps the bytes until then, in order of arrival, and damages those that
//! arrive corrupt. It takes `now` as an argument, so it runs in real time and in virtual time alike, and the same seed
//! and calls give the same frames. What it holds is bounded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sdr_sdk::types::Nanos;

use super::pool::Pool;
use crate::link::{Counters, Delivery, Link, LinkSpec};
use crate::loss::LossError;
use crate::rng::{Random, derive_seed};

#[cfg(test)]
mod tests;

/// Sub-stream of the link's seed for the bits that corruption flips; the link itself counts its own up from 0.
const CORRUPTION_STREAM: u64 = u64::MAX;

/// The most that a direction holds, queued and on its way. A frame that finds it full is dropped; a copy that the link
/// makes is kept, so one frame more may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of frames.
    pub bytes: usize,
    /// Frames.
    pub frames: usize,
}

impl Default for Limits {
    /// 256 MiB and 2^20 frames: two seconds at 1 Gbit/s.
    fn default() -> Self {
        Self { bytes: 256 << 20, frames: 1 << 20 }
    }
}

/// A frame that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<T> {
    /// As it was pushed.
    pub tag: T,
    /// As it was pushed, or one bit different. Give it back with [`RtLink::recycle`].
    pub bytes: Vec<u8>,
}

impl<T> AsRef<[u8]> for Frame<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What a direction has done, and what it holds.
///
/// Frames that came out are `link.delivered + link.duplicated - held_frames`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtLinkStats {
    /// The link's own counters; it was not offered what found the direction full.
    pub link: Counters,
    /// Frames dropped because the direction held its most.
    pub overflows: u64,
    /// Frames held.
    pub held_frames: usize,
    /// Bytes held.
    pub held_bytes: usize,
}

/// A link and the frames in it, each with a tag of the caller's.
#[derive(Debug)]
pub struct RtLink<T = ()> {
    link: Link,
    limits: Limits,
    /// When due, in which order pushed, and where.
    queue: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    slots: Vec<Option<Frame<T>>>,
    free_slots: Vec<usize>,
    held_bytes: usize,
    pushed: u64,
    overflows: u64,
    latest: Nanos,
    pool: Pool,
    flips: Random,
    /// Scratch of `push`.
    deliveries: Vec<Delivery>,
}

impl<T: Copy> RtLink<T> {
    /// An idle link.
    ///
    /// # Errors
    /// [`LossError`] when the loss parameters do not fit together.
    pub fn new(spec: LinkSpec, limits: Limits) -> Result<Self, LossError> {
        Ok(Self {
            flips: Random::new(derive_seed(spec.seed, CORRUPTION_STREAM)),
            link: Link::new(spec)?,
            limits,
            queue: BinaryHeap::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            held_bytes: 0,
            pushed: 0,
            overflows: 0,
            latest: Nanos::ZERO,
            pool: Pool::default(),
            deliveries: Vec::new(),
        })
    }

    /// The link, to change its parameters on the way.
    pub fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Counters and what is held.
    pub fn stats(&self) -> RtLinkStats {
        RtLinkStats {
            link: self.link.counters(),
            overflows: self.overflows,
            held_frames: self.queue.len(),
            held_bytes: self.held_bytes,
        }
    }

    /// Sends a frame at `now`; an instant before the last one counts as the last.
    pub fn push(&mut self, now: Nanos, tag: T, bytes: &[u8]) {
        self.latest = self.latest.max(now);
        if self.queue.len() >= self.limits.frames || self.held_bytes + bytes.len() > self.limits.bytes {
            self.overflows += 1;
            return;
        }
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut deliveries = std::mem::take(&mut self.deliveries);
        self.link.send_run(self.latest, 1, size, size, &mut deliveries);
        for delivery in deliveries.drain(..) {
            let mut copy = self.pool.copy(bytes);
            if delivery.corrupt {
                self.flip_a_bit(&mut copy);
            }
            self.hold(delivery.arrival, Frame { tag, bytes: copy });
        }
        self.deliveries = deliveries;
    }

    fn flip_a_bit(&mut self, bytes: &mut [u8]) {
        let bit = self.flips.below(bytes.len() as u64 * 8);
        if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn hold(&mut self, due: Nanos, frame: Frame<T>) {
        self.held_bytes += frame.bytes.len();
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(frame);
        self.queue.push(Reverse((due, self.pushed, slot)));
        self.pushed += 1;
    }

    /// When the next frame arrives.
    pub fn next_due(&self) -> Option<Nanos> {
        self.queue.peek().map(|Reverse((due, ..))| *due)
    }

    /// The next frame that has arrived by `now`; of those that arrive together, the one pushed first.
    pub fn pop_due(&mut self, now: Nanos) -> Option<Frame<T>> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse((_, _, slot)) = self.queue.pop()?;
        let frame = self.slots[slot].take()?;
        self.free_slots.push(slot);
        self.held_bytes -= frame.bytes.len();
        Some(frame)
    }

    /// Takes the bytes of a frame back for the next.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.pool.give(bytes);
    }
}
