//! Packet bitmap to chunk bitmap (SDR-RDMA sections 3.1.1 and 3.2.1), lock-free, for any number of writers.
//!
//! [`PacketBits`] is what an engine in host memory writes, [`Bitmap`] is how everybody reads, whatever wrote it. Neither
//! knows slots or generations. Invariant: a chunk's byte becomes 1 exactly once, after all its packets were recorded,
//! and whoever sees it with Acquire sees the payload that was written before each of those records.

use crate::sync::{AtomicU8, AtomicU64, Ordering};
use crate::types::ChunkIndex;
use bitvec::vec::BitVec;
use std::ops::Range;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// How a receive is divided: chunks of data, then chunks of extra packets.
///
/// Packet offsets and chunk numbers run on from data to extra. Extra begins at a chunk boundary, so the last data chunk may
/// be followed by offsets that belong to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    packets: u32,
    /// Computed once, because each record asks for it.
    first_extra: u32,
    extra: u32,
    per_chunk: u8,
}

impl Shape {
    /// `packets` packets in chunks of `per_chunk` (1 to 64); the last chunk may be shorter.
    ///
    /// # Panics
    /// When `per_chunk` is not in 1..=64.
    pub fn new(packets: u32, per_chunk: u8) -> Self {
        assert!((1..=64).contains(&per_chunk), "a chunk has 1 to 64 packets, not {per_chunk}");
        let n = u32::from(per_chunk);
        Self { packets, first_extra: packets.div_ceil(n).saturating_mul(n), extra: 0, per_chunk }
    }

    /// The same data followed by `extra` packets, in chunks of their own; the last one may be shorter.
    pub fn with_extra(self, extra: u32) -> Self {
        Self { extra, ..self }
    }

    /// Data packets in the receive.
    pub fn packets(self) -> u32 {
        self.packets
    }

    /// Extra packets behind the data.
    pub fn extra(self) -> u32 {
        self.extra
    }

    /// Offset of the first extra packet: the data packets rounded up to whole chunks.
    pub fn first_extra(self) -> u32 {
        self.first_extra
    }

    /// One past the last offset that belongs to the receive.
    pub fn end(self) -> u32 {
        if self.extra == 0 { self.packets } else { self.first_extra.saturating_add(self.extra) }
    }

    /// Those of `packets` packets from `first` that belong to the receive: of the data, and of the extra packets. Either
    /// range may be empty, and then starts anywhere.
    #[inline]
    pub fn inside(self, first: u32, packets: u32) -> [Range<u32>; 2] {
        let end = first.saturating_add(packets);
        let extra_end = self.first_extra.saturating_add(self.extra);
        [first..end.min(self.packets), first.max(self.first_extra)..end.min(extra_end)]
    }

    /// Packets a chunk.
    pub fn per_chunk(self) -> u8 {
        self.per_chunk
    }

    /// Chunks of data in the receive.
    pub fn chunks(self) -> u32 {
        self.packets.div_ceil(self.per_chunk as u32)
    }

    /// Chunks of data and of extra packets.
    pub fn all_chunks(self) -> u32 {
        self.end().div_ceil(self.per_chunk as u32)
    }
}

/// What an engine shows in host memory for one armed slot.
pub trait HostBitmap: Send + Sync {
    /// Division of the receive.
    fn shape(&self) -> Shape;
    /// One byte a chunk, those of extra packets last: 1 once all its packets arrived, stored with Release after the payload.
    fn chunks(&self) -> &[AtomicU8];
    /// User immediate: the value in the low half, a mask of the fragments received in the high half (bit i of it for
    /// fragment i, which rides in the packets with offset mod fragments = i).
    fn user(&self) -> &AtomicU64;
}

/// What one [`PacketBits::record`] changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Packets that were not there before.
    pub fresh: u32,
    /// Chunks whose last packet was among them.
    pub chunks: u32,
}

/// Packet bits, chunk bytes and user immediate of one receive, in host memory.
///
/// A 64-bit word holds `floor(64 / per_chunk)` whole chunks, so that the result of a single `fetch_or` decides whether
/// a chunk is complete and who completed it.
#[derive(Debug)]
pub struct PacketBits {
    shape: Shape,
    /// Packets that a word holds: a multiple of the chunk, 33 to 64.
    word_packets: u32,
    word_chunks: u32,
    /// All packets of a chunk; at bit 0.
    full: u64,
    /// The chunks that may be shorter, the last one of data and the last one of all, and all packets of them. Where one does
    /// not exist, its number is that of no chunk.
    last_data: u32,
    last_data_full: u64,
    last: u32,
    last_full: u64,
    words: Box<[AtomicU64]>,
    chunks: Box<[AtomicU8]>,
    user: AtomicU64,
}

/// The lowest `n` bits; `n` is 1 to 64.
fn low_bits(n: u32) -> u64 {
    u64::MAX >> (64 - n)
}

impl PacketBits {
    /// Nothing has arrived.
    pub fn new(shape: Shape) -> Self {
        let per_chunk = u32::from(shape.per_chunk);
        let word_chunks = 64 / per_chunk;
        let chunks = shape.all_chunks();
        // Packets in the last of the chunks that `packets` make.
        let rest = |packets: u32| match packets % per_chunk {
            0 => per_chunk,
            rest => rest,
        };
        let last = if shape.extra > 0 { shape.extra } else { shape.packets };
        Self {
            shape,
            word_packets: word_chunks * per_chunk,
            word_chunks,
            full: low_bits(per_chunk),
            last_data: shape.chunks().wrapping_sub(1),
            last_data_full: low_bits(rest(shape.packets)),
            last: chunks.wrapping_sub(1),
            last_full: low_bits(rest(last)),
            words: (0..chunks.div_ceil(word_chunks)).map(|_| AtomicU64::new(0)).collect(),
            chunks: (0..chunks).map(|_| AtomicU8::new(0)).collect(),
            user: AtomicU64::new(0),
        }
    }

    /// Back to nothing has arrived. Exclusive access proves that no worker and no reader is left.
    pub fn clear(&mut self) {
        // Whole values instead of stores: loom's atomics have no `get_mut`, and this compiles to memset.
        self.words.fill_with(|| AtomicU64::new(0));
        self.chunks.fill_with(|| AtomicU8::new(0));
        self.user = AtomicU64::new(0);
    }

    /// Records `packets` consecutive packets from `first`, whose payload the caller has already placed; packets that do not
    /// belong to the receive are ignored. One atomic operation for each word of 33 to 64 packets.
    #[inline]
    pub fn record(&self, first: u32, packets: u32) -> Recorded {
        let mut done = Recorded::default();
        for Range { start, end } in self.shape.inside(first, packets) {
            if start < end {
                self.record_inside(start, end, &mut done);
            }
        }
        done
    }

    #[inline]
    fn record_inside(&self, first: u32, end: u32, done: &mut Recorded) {
        // W is 64 in the common case of a power of two; a shift is several times cheaper than the division.
        let (mut word, mut bit) = match self.word_packets {
            64 => (first / 64, first % 64),
            w => (first / w, first % w),
        };
        let mut left = end - first;
        loop {
            let n = left.min(self.word_packets - bit);
            let mask = low_bits(n) << bit;
            // Release hands over this writer's payload, Acquire takes over that of the packets before it: the Release
            // store of the chunk byte then covers the payload of all writers.
            let old = self.words[word as usize].fetch_or(mask, Ordering::AcqRel);
            let fresh = mask & !old;
            if fresh != 0 {
                done.fresh += fresh.count_ones();
                done.chunks += self.publish(word, old | fresh, fresh);
            }
            left -= n;
            if left == 0 {
                return;
            }
            word += 1;
            bit = 0;
        }
    }

    /// Sets the bytes of the chunks that `fresh` completed. Of two writers, one sees the other's bits in its `fetch_or`
    /// result and has a fresh bit itself; nobody else can complete that chunk again.
    #[inline]
    fn publish(&self, word: u32, now: u64, fresh: u64) -> u32 {
        let per_chunk = u32::from(self.shape.per_chunk);
        let base = word * self.word_chunks;
        let (from, to) = match per_chunk {
            64 => (0, 0),
            p => (fresh.trailing_zeros() / p, fresh.ilog2() / p),
        };
        let mut published = 0;
        for i in from..=to {
            let chunk = base + i;
            let full = match chunk {
                c if c == self.last => self.last_full,
                c if c == self.last_data => self.last_data_full,
                _ => self.full,
            };
            let full = full << (i * per_chunk);
            if now & full == full && fresh & full != 0 {
                self.chunks[chunk as usize].store(1, Ordering::Release);
                published += 1;
            }
        }
        published
    }

    /// Adds fragments of the user immediate: `value` with its bits in place, bit i of `fragments` for fragment i. Call
    /// it before the [`record`](Self::record) of the same packets, so that a full bitmap implies the whole immediate.
    #[inline]
    pub fn record_user(&self, value: u32, fragments: u32) {
        let add = u64::from(fragments) << 32 | u64::from(value);
        // Most packets repeat what is known; a load keeps the cache line shared between the writers.
        if self.user.load(Ordering::Relaxed) & add != add {
            self.user.fetch_or(add, Ordering::Relaxed);
        }
    }

    /// Packets of one chunk that have arrived, bit i = packet i of the chunk; zero beyond the end.
    pub fn packets(&self, c: ChunkIndex) -> u64 {
        let Some(word) = self.words.get((c.0 / self.word_chunks) as usize) else { return 0 };
        let shift = c.0 % self.word_chunks * u32::from(self.shape.per_chunk);
        (word.load(Ordering::Acquire) >> shift) & self.full
    }

    /// `clear` as a host without exclusive access would do it.
    #[cfg(all(test, loom))]
    pub(crate) fn clear_shared(&self) {
        self.words.iter().for_each(|w| w.store(0, Ordering::Relaxed));
        self.chunks.iter().for_each(|c| c.store(0, Ordering::Relaxed));
    }

    /// Bytes of heap memory.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.chunks)
    }
}

impl HostBitmap for PacketBits {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn chunks(&self) -> &[AtomicU8] {
        &self.chunks
    }

    fn user(&self) -> &AtomicU64 {
        &self.user
    }
}

/// Reads the chunk bytes of any engine. Every load is Acquire: the payload of a chunk that reads as set may be read.
///
/// The bytes are read one at a time: they are written as bytes while we look, and Rust leaves racing atomic accesses of
/// different sizes undefined.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap<'a> {
    chunks: &'a [AtomicU8],
}

impl<'a> Bitmap<'a> {
    /// A view of the data chunks of `b`.
    pub fn new(b: &'a dyn HostBitmap) -> Self {
        Self::first(b, b.shape().chunks())
    }

    /// A view of the data chunks of `b` and of the chunks of extra packets behind them.
    pub fn with_extra(b: &'a dyn HostBitmap) -> Self {
        Self::first(b, b.shape().all_chunks())
    }

    fn first(b: &'a dyn HostBitmap, n: u32) -> Self {
        let chunks = b.chunks();
        Self { chunks: &chunks[..(n as usize).min(chunks.len())] }
    }

    fn at(self, i: usize) -> bool {
        self.chunks[i].load(Ordering::Acquire) != 0
    }

    /// Whether chunk `c` has arrived; false beyond the end.
    pub fn is_set(self, c: ChunkIndex) -> bool {
        self.chunks.get(c.0 as usize).is_some_and(|b| b.load(Ordering::Acquire) != 0)
    }

    /// The first chunk of `[from, to)` that has not arrived, or `to`.
    pub fn complete_until(self, from: ChunkIndex, to: ChunkIndex) -> ChunkIndex {
        let end = (to.0 as usize).min(self.chunks.len());
        let found = (from.0 as usize..end).find(|&i| !self.at(i));
        ChunkIndex(found.map_or(to.0, |i| i as u32))
    }

    /// Chunks that have arrived.
    pub fn count(self) -> u32 {
        (0..self.chunks.len()).map(|i| u32::from(self.at(i))).sum()
    }

    /// Whether all chunks have arrived; so it is for a receive of no packets.
    pub fn is_full(self) -> bool {
        // The last chunks arrive last.
        (0..self.chunks.len()).rev().all(|i| self.at(i))
    }

    /// The chunks that have not arrived, as maximal ranges in increasing order.
    pub fn missing(self) -> Missing<'a> {
        Missing { bitmap: self, next: 0 }
    }

    /// Copies to `out`, one bit a chunk. Allocates only when `out` has less capacity than chunks.
    pub fn snapshot_into(self, out: &mut BitVec) {
        out.clear();
        out.resize(self.chunks.len(), false);
        out.force_align();
        let words = out.as_raw_mut_slice().iter_mut();
        for (word, bytes) in words.zip(self.chunks.chunks(usize::BITS as usize)) {
            *word = bytes
                .iter()
                .enumerate()
                .fold(0, |w, (i, b)| w | usize::from(b.load(Ordering::Acquire) != 0) << i);
        }
    }
}

impl<'a> From<&'a dyn HostBitmap> for Bitmap<'a> {
    fn from(b: &'a dyn HostBitmap) -> Self {
        Self::new(b)
    }
}

/// Iterator of [`Bitmap::missing`].
#[derive(Clone, Debug)]
pub struct Missing<'a> {
    bitmap: Bitmap<'a>,
    next: usize,
}

impl Iterator for Missing<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        let chunks = self.bitmap.chunks.len();
        let from = (self.next..chunks).find(|&i| !self.bitmap.at(i));
        let Some(from) = from else {
            self.next = chunks;
            return None;
        };
        let to = (from + 1..chunks).find(|&i| self.bitmap.at(i)).unwrap_or(chunks);
        // `to` was seen set, and set is final.
        self.next = to + 1;
        Some(from as u32..to as u32)
    }
}
