//! The memory that the host and the workers of an engine share for one queue pair, and how it is taken back.
//!
//! A slot's *stamp* says whether it is armed and for which generation. Workers check it and then set bits in the slot's
//! [`PacketBits`]; between the two the host may close the slot. So workers look at slots only inside a [`Section`],
//! marked by an odd counter of their own, and the host takes bits back only after a `Grace`: every worker was outside
//! of a section after the slot was closed, or has left the one it was in. Invariant, on which all unsafe code here
//! rests: *the pointer of a slot is set before the stamp says armed, and is not taken out before a grace has passed
//! since the stamp stopped saying so.*

use crate::bitmap::{HostBitmap, PacketBits};
use crate::engine::{EngineCounters, Mark, Progress};
use crate::fabric::{CompletionRun, QueueSpec};
use crate::imm::ImmLayout;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence};
use crate::types::{Channel, ChunkIndex, Generation, PacketOffset, Seq, SlotGen};
use std::ptr;
use std::sync::Arc;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// Keeps what one worker writes off the cache lines (in pairs, as they are prefetched) of the others.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// One counter a worker: odd while the worker is inside a [`Section`].
#[derive(Debug)]
pub struct WorkerEpochs {
    counters: Box<[Padded<AtomicU64>]>,
}

impl WorkerEpochs {
    /// Counters of `workers` workers, and for each its right to enter sections.
    pub fn new(workers: usize) -> (Arc<Self>, Vec<WorkerEpoch>) {
        let counters = (0..workers).map(|_| Padded(AtomicU64::new(0))).collect();
        let epochs = Arc::new(Self { counters });
        let handles =
            (0..workers).map(|index| WorkerEpoch { epochs: epochs.clone(), index, count: 0 }).collect();
        (epochs, handles)
    }
}

/// A worker's own counter; there is one of it, so that only one section is open on it at a time.
#[derive(Debug)]
pub struct WorkerEpoch {
    epochs: Arc<WorkerEpochs>,
    index: usize,
    /// What the counter holds.
    count: u64,
}

impl WorkerEpoch {
    fn store(&self, order: Ordering) {
        self.epochs.counters[self.index].0.store(self.count, order);
    }

    /// Starts a batch: until the section is dropped, no bits that it can see are taken back. A forgotten section holds
    /// back retirements until the next one ends.
    pub fn enter(&mut self) -> Section<'_> {
        self.count |= 1;
        self.store(Ordering::Relaxed);
        // Pairs with the fence in `Grace::begin`: either the host's snapshot sees the odd counter, or the stamps read
        // from here on are no older than what the host wrote before its fence.
        fence(Ordering::SeqCst);
        Section { epoch: self }
    }
}

/// A worker at work on a batch.
#[derive(Debug)]
pub struct Section<'w> {
    epoch: &'w mut WorkerEpoch,
}

impl Section<'_> {
    /// The part of the batch that came in on `channel` for one queue pair. None when the table belongs to another
    /// group of workers, whose sections nobody waits for, or has no such channel.
    pub fn batch<'s>(&'s self, table: &'s SlotTable, channel: Channel) -> Option<Batch<'s>> {
        if !Arc::ptr_eq(&self.epoch.epochs, &table.epochs) {
            return None;
        }
        let state = &table.channels.get(usize::from(channel.0))?.0;
        let index = u32::from(channel.0);
        Some(Batch { table, channel: state, index, sums: EngineCounters::default(), any: None, home: None })
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        // Release: whoever sees the even counter comes after everything this section did.
        self.epoch.count = self.epoch.count.wrapping_add(1);
        self.epoch.store(Ordering::Release);
    }
}

/// The host's wait until sections that may know of a closed slot are over.
#[derive(Debug)]
struct Grace {
    /// The odd counters at the snapshot; zero for a worker that need not be waited for.
    inside: Box<[u64]>,
}

impl Grace {
    fn new(epochs: &WorkerEpochs) -> Self {
        Self { inside: vec![0; epochs.counters.len()].into() }
    }

    /// Starts the wait for all slots that were closed before.
    fn begin(&mut self, epochs: &WorkerEpochs) {
        // Pairs with the fence in `WorkerEpoch::enter`.
        fence(Ordering::SeqCst);
        for (seen, counter) in self.inside.iter_mut().zip(&epochs.counters) {
            let now = counter.0.load(Ordering::Acquire);
            *seen = if now & 1 == 1 { now } else { 0 };
        }
    }

    /// Whether every worker was outside at the snapshot or has changed its counter since.
    fn passed(&mut self, epochs: &WorkerEpochs) -> bool {
        let mut passed = true;
        for (seen, counter) in self.inside.iter_mut().zip(&epochs.counters) {
            if *seen != 0 && counter.0.load(Ordering::Acquire) != *seen {
                *seen = 0;
            }
            passed &= *seen == 0;
        }
        passed
    }
}

/// Stamp of a slot without bits.
const FREE: u64 = 0;
const ARMED: u64 = 1 << 32;
/// Stamp of a slot whose bits a worker may still hold.
const CLOSED: u64 = 2 << 32;

fn stamp(state: u64, g: Generation) -> u64 {
    state | u64::from(g.0)
}

#[derive(Debug)]
#[repr(align(32))]
struct Slot {
    /// State and generation.
    stamp: AtomicU64,
    seq: AtomicU64,
    /// From `Arc::into_raw`; the slot owns that count.
    bits: AtomicPtr<PacketBits>,
}

/// Marks a progress word as stored; offsets have at most 22 bits.
const SEEN: u64 = 1 << 31;

/// What the one worker of a channel writes and the host reads: no read-modify-write needed.
#[derive(Debug)]
struct ChannelState {
    /// Low half of the furthest seq, then `SEEN`, then the offset; of any packet, and of packets at home here.
    any: AtomicU64,
    home: AtomicU64,
    seen: AtomicU64,
    fresh: AtomicU64,
    duplicate: AtomicU64,
    late: AtomicU64,
    out_of_range: AtomicU64,
    /// Packets seen of each generation; empty when there are more than [`COUNTED_GENERATIONS`].
    generations: Box<[AtomicU64]>,
}

impl ChannelState {
    fn new(generations: u32) -> Self {
        let zero = || AtomicU64::new(0);
        let counted = if generations <= COUNTED_GENERATIONS { generations } else { 0 };
        Self {
            any: zero(),
            home: zero(),
            seen: zero(),
            fresh: zero(),
            duplicate: zero(),
            late: zero(),
            out_of_range: zero(),
            generations: (0..counted).map(|_| zero()).collect(),
        }
    }
}

/// Adds to a counter with a single writer. Release: whoever sees the sum comes after the work that it counts.
fn add(counter: &AtomicU64, n: u64) {
    if n != 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Release);
    }
}

/// Most generations for which completions are counted apart. Fabrics with exact counts have 2 to 8.
pub const COUNTED_GENERATIONS: u32 = 64;

/// The slots of one queue pair, as the workers see them.
#[derive(Debug)]
pub struct SlotTable {
    layout: ImmLayout,
    user_immediate: bool,
    slots: Box<[Slot]>,
    channels: Box<[Padded<ChannelState>]>,
    epochs: Arc<WorkerEpochs>,
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        for slot in &self.slots {
            let bits = slot.bits.load(Ordering::Relaxed);
            if !bits.is_null() {
                // SAFETY: the slot owns the count it got from `Arc::into_raw`. A batch borrows the table, so no worker
                // is between a stamp and its bits any more.
                drop(unsafe { Arc::from_raw(bits) });
            }
        }
    }
}

impl SlotTable {
    /// How immediates are divided.
    pub fn layout(&self) -> ImmLayout {
        self.layout
    }
}

/// Packets of one channel and queue pair on their way from completions to bits. Dropping it publishes the sums.
#[derive(Debug)]
pub struct Batch<'s> {
    table: &'s SlotTable,
    channel: &'s ChannelState,
    index: u32,
    sums: EngineCounters,
    /// Low half of the furthest seq, and the offset; of any packet, and of packets at home on this channel.
    any: Option<(u32, u32)>,
    home: Option<(u32, u32)>,
}

impl Batch<'_> {
    /// Checks one run of completions against its slot and sets its bits. Nothing that a packet can carry makes it panic.
    #[inline]
    pub fn record(&mut self, run: &CompletionRun) {
        let packets = u64::from(run.packets);
        self.sums.seen += packets;
        let (slot, PacketOffset(first)) = self.table.layout.decode(run.imm);
        match self.table.slots.get(usize::from(slot.0)) {
            Some(s) if s.stamp.load(Ordering::Acquire) == stamp(ARMED, run.generation) => {
                // SAFETY: the stamp was armed inside a section (a batch borrows one, of the table's own workers), so
                // the pointer, set before the stamp, is not taken out until the section ends.
                let bits = unsafe { &*s.bits.load(Ordering::Relaxed) };
                self.record_armed(run, first, bits, s.seq.load(Ordering::Relaxed) as u32);
            }
            _ => self.sums.late += packets,
        }
        // Last, because an equal count at the sender lets the host use the generation again: by then no completion of
        // it may be waiting to be checked.
        if let Some(counter) = self.channel.generations.get(usize::from(run.generation.0)) {
            add(counter, packets);
        }
    }

    #[inline]
    fn record_armed(&mut self, run: &CompletionRun, first: u32, bits: &PacketBits, seq: u32) {
        let mut outside = run.packets;
        // A run of completions may go on from the last data packet to the first extra one.
        for part in bits.shape().inside(first, run.packets) {
            if part.start < part.end {
                let inside = part.end - part.start;
                outside -= inside;
                self.record_inside(run.user, part.start, inside, bits, seq);
            }
        }
        self.sums.out_of_range += u64::from(outside);
    }

    #[inline]
    fn record_inside(&mut self, user: u32, first: u32, inside: u32, bits: &PacketBits, seq: u32) {
        if self.table.user_immediate {
            let (fragments, mask) = user_fragments(self.table.layout, first, inside);
            bits.record_user(user & mask, fragments);
        }
        let fresh = bits.record(first, inside).fresh;
        self.sums.fresh += u64::from(fresh);
        self.sums.duplicate += u64::from(inside - fresh);
        self.any = Some(further(self.any, (seq, first + (inside - 1))));
        let channels = self.table.channels.len() as u32;
        let per_chunk = u32::from(bits.shape().per_chunk());
        if let Some(last) = last_at_home(first, inside, per_chunk, channels, self.index) {
            self.home = Some(further(self.home, (seq, last)));
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let (c, s) = (self.channel, &self.sums);
        add(&c.fresh, s.fresh);
        add(&c.duplicate, s.duplicate);
        add(&c.late, s.late);
        add(&c.out_of_range, s.out_of_range);
        add(&c.seen, s.seen);
        for (word, new) in [(&c.any, self.any), (&c.home, self.home)] {
            if let Some(new) = new {
                let (seq, offset) = further(unpack(word.load(Ordering::Relaxed)), new);
                // Release, after the bits: whoever sees the mark sees all that arrived before it on this channel.
                word.store(u64::from(seq) << 32 | SEEN | u64::from(offset), Ordering::Release);
            }
        }
    }
}

/// The last of `packets` (at least one) packets from `first` whose home is channel `index`.
fn last_at_home(first: u32, packets: u32, per_chunk: u32, channels: u32, index: u32) -> Option<u32> {
    let last = first + (packets - 1);
    if channels == 1 {
        return Some(last);
    }
    let chunk = last / per_chunk;
    let back = (chunk + channels - index) % channels;
    if back == 0 {
        return Some(last);
    }
    let end = chunk.checked_sub(back - 1)? * per_chunk;
    end.checked_sub(1).filter(|&p| p >= first)
}

fn unpack(progress: u64) -> Option<(u32, u32)> {
    (progress & SEEN != 0).then_some(((progress >> 32) as u32, (progress & (SEEN - 1)) as u32))
}

/// The later of two positions; seqs are compared as serial numbers.
fn further(a: Option<(u32, u32)>, b: (u32, u32)) -> (u32, u32) {
    match a {
        Some(a) if a.0 == b.0 => (a.0, a.1.max(b.1)),
        Some(a) if (b.0.wrapping_sub(a.0) as i32) < 0 => a,
        _ => b,
    }
}

/// Which fragments of the user immediate `packets` (at least one) consecutive packets carry: bit i for fragment i, and
/// the bits that these fragments have in the value.
fn user_fragments(layout: ImmLayout, first: u32, packets: u32) -> (u32, u32) {
    let (n, bits) = (layout.fragments(), layout.user_bits());
    let (carried, from) = (packets.min(n), first % n);
    // All fragments fill the value exactly, so that wrapping around is a rotation.
    let value = (u32::MAX >> (32 - carried * bits)).rotate_left(from * bits);
    let ones = u64::from(u32::MAX >> (32 - carried)) << from;
    (((ones | ones >> n) & ((1 << n) - 1)) as u32, value)
}

/// Why a slot was not armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// Slot or generation beyond what the queue pair was opened with.
    #[error("slot {} generation {} does not exist", .0.slot, .0.generation.0)]
    NoSuchSlot(SlotGen),
    /// Its previous use has not been retired.
    #[error("slot {} is armed or still being retired", .0.slot)]
    InUse(SlotGen),
}

/// What the host wrote to a slot last.
#[derive(Clone, Copy, Debug)]
struct Held {
    stamp: u64,
    seq: Seq,
}

/// The host's side of a [`SlotTable`]: arms and closes slots, and takes bits back. There is one for each table.
#[derive(Debug)]
pub struct SlotControl {
    table: Arc<SlotTable>,
    generations: u32,
    /// One a slot: the host need not read back what it shares, which also keeps loom's search complete.
    held: Box<[Held]>,
    /// The latest seq that was armed; progress is told relative to it.
    latest: Seq,
    /// Closed, waiting for a grace to begin; and waiting for it to pass.
    closed: Vec<SlotGen>,
    waiting: Vec<SlotGen>,
    grace: Grace,
}

impl SlotControl {
    /// A table of free slots, read by the workers of `epochs`; `first` is the first message.
    pub fn new(spec: &QueueSpec, first: Seq, epochs: &Arc<WorkerEpochs>) -> Self {
        let slot = |_| Slot {
            stamp: AtomicU64::new(FREE),
            seq: AtomicU64::new(0),
            bits: AtomicPtr::new(ptr::null_mut()),
        };
        let table = SlotTable {
            layout: spec.layout,
            user_immediate: spec.user_immediate,
            slots: (0..spec.slots).map(slot).collect(),
            channels: (0..spec.channels).map(|_| Padded(ChannelState::new(spec.generations))).collect(),
            epochs: epochs.clone(),
        };
        Self {
            table: Arc::new(table),
            generations: spec.generations,
            held: vec![Held { stamp: FREE, seq: first }; spec.slots as usize].into(),
            latest: first,
            closed: Vec::new(),
            waiting: Vec::new(),
            grace: Grace::new(epochs),
        }
    }

    /// What the workers need.
    pub fn table(&self) -> &Arc<SlotTable> {
        &self.table
    }

    /// Lets completions of `at` into `bits`, which are clear.
    pub fn arm(&mut self, at: SlotGen, bits: Arc<PacketBits>) -> Result<(), SlotError> {
        let index = usize::from(at.slot.0);
        let (slot, held) = match (self.table.slots.get(index), self.held.get_mut(index)) {
            (Some(slot), Some(held)) if u32::from(at.generation.0) < self.generations => (slot, held),
            _ => return Err(SlotError::NoSuchSlot(at)),
        };
        if held.stamp != FREE {
            return Err(SlotError::InUse(at));
        }
        *held = Held { stamp: stamp(ARMED, at.generation), seq: at.seq };
        slot.bits.store(Arc::into_raw(bits).cast_mut(), Ordering::Relaxed);
        slot.seq.store(at.seq.0, Ordering::Relaxed);
        // Release: a worker that sees the stamp sees the pointer, and the bits cleared.
        slot.stamp.store(held.stamp, Ordering::Release);
        self.latest = self.latest.latest(at.seq);
        Ok(())
    }

    /// Lets no more completions in; [`reclaim`](Self::reclaim) gives the bits back later. False when `at` is not armed.
    pub fn close(&mut self, at: SlotGen) -> bool {
        let index = usize::from(at.slot.0);
        let Some(held) = self.held.get_mut(index) else { return false };
        if held.stamp != stamp(ARMED, at.generation) || held.seq != at.seq {
            return false;
        }
        held.stamp = stamp(CLOSED, at.generation);
        self.table.slots[index].stamp.store(held.stamp, Ordering::Relaxed);
        self.closed.push(at);
        true
    }

    /// Hands out the bits of every closed slot that no worker can touch any more, and frees the slot. Returns whether
    /// some are left to wait for. One fence and one snapshot serve all slots closed since the last.
    pub fn reclaim(&mut self, mut each: impl FnMut(SlotGen, Arc<PacketBits>)) -> bool {
        loop {
            if self.waiting.is_empty() {
                if self.closed.is_empty() {
                    return false;
                }
                std::mem::swap(&mut self.waiting, &mut self.closed);
                self.grace.begin(&self.table.epochs);
            }
            if !self.grace.passed(&self.table.epochs) {
                return true;
            }
            for at in self.waiting.drain(..) {
                let index = usize::from(at.slot.0);
                let slot = &self.table.slots[index];
                let bits = slot.bits.load(Ordering::Relaxed);
                slot.bits.store(ptr::null_mut(), Ordering::Relaxed);
                slot.stamp.store(FREE, Ordering::Relaxed);
                self.held[index].stamp = FREE;
                // SAFETY: `close` puts an armed slot on the list once, so the pointer is that of `arm` and the slot's
                // count is taken over once; a grace has passed since, so no worker has the pointer.
                each(at, unsafe { Arc::from_raw(bits) });
            }
        }
    }

    /// Packets of one chunk of `at` that have arrived; zero when it is neither armed nor closed.
    pub fn packets(&self, at: SlotGen, c: ChunkIndex) -> u64 {
        let index = usize::from(at.slot.0);
        match self.held.get(index) {
            Some(held) if held.stamp != FREE && held.seq == at.seq => {}
            _ => return 0,
        }
        let bits = self.table.slots[index].bits.load(Ordering::Relaxed);
        // SAFETY: the slot is not free, so it owns a count of these bits; only `reclaim`, with `&mut self`, takes it.
        unsafe { &*bits }.packets(c)
    }

    /// How far a channel has come.
    pub fn progress(&self, channel: Channel) -> Option<Progress> {
        let state = &self.table.channels.get(usize::from(channel.0))?.0;
        let mark = |word: &AtomicU64| {
            let (seq, offset) = unpack(word.load(Ordering::Acquire))?;
            // Only armed messages make progress, and those are within 2^31 of the latest.
            let behind = (self.latest.0 as u32).wrapping_sub(seq) as i32;
            Some(Mark { seq: self.latest.minus(i64::from(behind) as u64), offset: PacketOffset(offset) })
        };
        Some(Progress { home: mark(&state.home), any: mark(&state.any)? })
    }

    /// Packets seen of one generation; zero when they are not counted ([`COUNTED_GENERATIONS`]).
    pub fn counted(&self, g: Generation) -> u64 {
        let of = |c: &Padded<ChannelState>| {
            c.0.generations.get(usize::from(g.0)).map(|n| n.load(Ordering::Acquire))
        };
        self.table.channels.iter().filter_map(of).fold(0, u64::wrapping_add)
    }

    /// Sums over all channels. While workers run, `seen` is the least of the sums, never ahead of the others.
    pub fn counters(&self) -> EngineCounters {
        let mut sum = EngineCounters::default();
        for Padded(c) in &self.table.channels {
            // First, because workers store it last.
            sum.seen += c.seen.load(Ordering::Acquire);
            sum.fresh += c.fresh.load(Ordering::Acquire);
            sum.duplicate += c.duplicate.load(Ordering::Acquire);
            sum.late += c.late.load(Ordering::Acquire);
            sum.out_of_range += c.out_of_range.load(Ordering::Acquire);
        }
        sum
    }
}
