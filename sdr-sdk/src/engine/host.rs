//! The engine on host cores, for fabrics that hand completions over in runs ([`CompletionModel::Batch`]).
//!
//! A [`Worker`] turns the completions of one channel into bits; [`HostEngine`] is the host half, and runs its workers
//! inside [`poll`](CompletionEngine::poll), one batch a channel. The two halves share only the slot tables, so workers
//! can move to threads of their own. This file has no unsafe code: `table` upholds what retiring promises.

use crate::bitmap::{HostBitmap, PacketBits, Shape};
use crate::engine::table::{SlotControl, SlotError, SlotTable, WorkerEpoch, WorkerEpochs};
use crate::engine::{CompletionEngine, EngineCounters, EngineError, Polled, Progress};
use crate::fabric::{CompletionModel, CompletionRun, Event, EventSink, Fabric, QueueNumber, QueueSpec};
use crate::types::{Channel, ChunkIndex, Generation, Nanos, QueueSet, Seq, SlotGen};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

#[cfg(all(test, not(loom)))]
mod tests;

/// Most runs that a worker records in one batch; what is left waits for the next poll.
pub const RUNS_A_BATCH: usize = 1024;

/// Turns the completions of one channel into bits.
#[derive(Debug)]
pub struct Worker {
    channel: Channel,
    epoch: WorkerEpoch,
    /// Sorted by queue set.
    tables: Vec<(QueueSet, Arc<SlotTable>)>,
    /// Taken from the fabric; those from `next` on have not been recorded.
    taken: Vec<CompletionRun>,
    next: usize,
}

impl Worker {
    /// The worker of `channel`, without queue pairs.
    pub fn new(channel: Channel, epoch: WorkerEpoch) -> Self {
        Self { channel, epoch, tables: Vec::new(), taken: Vec::new(), next: 0 }
    }

    /// Makes completions of `q` go to `table`.
    pub fn add(&mut self, q: QueueSet, table: Arc<SlotTable>) {
        match self.tables.binary_search_by_key(&q, |t| t.0) {
            Ok(i) => self.tables[i].1 = table,
            Err(i) => self.tables.insert(i, (q, table)),
        }
    }

    /// Forgets `q`, also its completions that wait here: the fabric may give the number to other queues.
    pub fn remove(&mut self, q: QueueSet) {
        self.tables.retain(|t| t.0 != q);
        self.taken.drain(..self.next);
        self.next = 0;
        self.taken.retain(|run| run.q != q);
    }

    /// Records runs as one batch. Those of unknown queue pairs are left out.
    pub fn record(&mut self, runs: &[CompletionRun]) {
        record(&mut self.epoch, &self.tables, self.channel, runs);
    }

    /// Takes what came in on the channel, unless some of the last still waits, and records a bounded part of it. True
    /// when some is left.
    pub fn poll(&mut self, f: &mut dyn Fabric) -> bool {
        if self.next == self.taken.len() {
            self.taken.clear();
            self.next = 0;
            f.take_completions(self.channel, &mut self.taken);
        }
        let end = self.taken.len().min(self.next + RUNS_A_BATCH);
        if self.next < end {
            record(&mut self.epoch, &self.tables, self.channel, &self.taken[self.next..end]);
            self.next = end;
        }
        self.next < self.taken.len()
    }
}

fn record(
    epoch: &mut WorkerEpoch,
    tables: &[(QueueSet, Arc<SlotTable>)],
    channel: Channel,
    runs: &[CompletionRun],
) {
    let section = epoch.enter();
    for same in runs.chunk_by(|a, b| a.q == b.q) {
        let Ok(i) = tables.binary_search_by_key(&same[0].q, |t| t.0) else { continue };
        let Some(mut batch) = section.batch(&tables[i].1, channel) else { continue };
        for run in same {
            batch.record(run);
        }
    }
}

/// Bitmaps of retired receives, for the next receives of the same shape: small messages come by the thousand.
#[derive(Debug, Default)]
struct Pool(VecDeque<Arc<PacketBits>>);

impl Pool {
    const MOST: usize = 32;
    /// Beyond this size clearing costs as much as allocating, and the pool would hold much memory.
    const LARGEST: usize = 64 << 10;

    fn put(&mut self, bits: Arc<PacketBits>) {
        if bits.heap_bytes() <= Self::LARGEST {
            if self.0.len() == Self::MOST {
                self.0.pop_front();
            }
            self.0.push_back(bits);
        }
    }

    fn get(&mut self, shape: Shape) -> Arc<PacketBits> {
        // The oldest are the likeliest to have lost their last reader.
        for i in 0..self.0.len() {
            if self.0[i].shape() == shape
                && let Some(bits) = Arc::get_mut(&mut self.0[i])
            {
                bits.clear();
                if let Some(bits) = self.0.remove(i) {
                    return bits;
                }
            }
        }
        Arc::new(PacketBits::new(shape))
    }
}

/// Host half of the engine, and the workers of all channels.
#[derive(Debug)]
pub struct HostEngine {
    workers: Vec<Worker>,
    epochs: Arc<WorkerEpochs>,
    queues: BTreeMap<QueueSet, SlotControl>,
    /// Queue pairs with closed slots, without repetition.
    retiring: Vec<QueueSet>,
    pool: Pool,
    /// The last pass that left nothing waiting here.
    recorded: u64,
}

impl HostEngine {
    /// An engine for a fabric with `channels` channels.
    pub fn new(channels: u8) -> Self {
        let (epochs, handles) = WorkerEpochs::new(usize::from(channels));
        let workers = (0..channels).map(Channel).zip(handles).map(|(c, e)| Worker::new(c, e)).collect();
        Self {
            workers,
            epochs,
            queues: BTreeMap::new(),
            retiring: Vec::new(),
            pool: Pool::default(),
            recorded: 0,
        }
    }
}

// SAFETY: bits are set by `Batch::record` alone, behind the stamp, and `Retired` is reported when `reclaim` hands the
// bits back, after a grace.
unsafe impl CompletionEngine for HostEngine {
    fn attach(&mut self, _ch: Channel, m: &CompletionModel<'_>) -> Result<(), EngineError> {
        match m {
            CompletionModel::Batch => Ok(()),
            _ => Err(EngineError::Unsupported),
        }
    }

    fn open(
        &mut self,
        q: QueueSet,
        spec: &QueueSpec,
        _queues: &[QueueNumber],
        first: Seq,
    ) -> Result<(), EngineError> {
        if usize::from(spec.channels) > self.workers.len() {
            return Err(EngineError::Full("that many channels"));
        }
        if !spec.slots.is_power_of_two() || spec.slots > spec.layout.max_slots() {
            return Err(EngineError::Misuse("slots are a power of two that the immediate can name"));
        }
        if !spec.generations.is_power_of_two() || spec.generations > 1 << 16 {
            return Err(EngineError::Misuse("generations are a power of two up to 2^16"));
        }
        if self.queues.contains_key(&q) {
            return Err(EngineError::Misuse("the queue pair is open"));
        }
        let control = SlotControl::new(spec, first, &self.epochs);
        for worker in self.workers.iter_mut().take(usize::from(spec.channels)) {
            worker.add(q, control.table().clone());
        }
        self.queues.insert(q, control);
        Ok(())
    }

    fn close(&mut self, q: QueueSet) {
        for worker in &mut self.workers {
            worker.remove(q);
        }
        self.queues.remove(&q);
        self.retiring.retain(|r| *r != q);
    }

    fn arm(&mut self, q: QueueSet, at: SlotGen, shape: Shape) -> Result<Arc<dyn HostBitmap>, EngineError> {
        let Some(control) = self.queues.get_mut(&q) else {
            return Err(EngineError::Misuse("the queue pair is not open"));
        };
        if shape.end() > control.table().layout().max_packets() {
            return Err(EngineError::Full("more packets than the immediate can number"));
        }
        let bits = self.pool.get(shape);
        let view = bits.clone();
        match control.arm(at, bits) {
            Ok(()) => Ok(view),
            Err(SlotError::NoSuchSlot(_)) => Err(EngineError::Misuse("slot or generation does not exist")),
            Err(SlotError::InUse(_)) => Err(EngineError::Misuse("the slot's previous use is not retired")),
        }
    }

    fn retire(&mut self, q: QueueSet, at: SlotGen) {
        let closed = self.queues.get_mut(&q).is_some_and(|c| c.close(at));
        debug_assert!(closed, "retire of a slot that is not armed: {q:?} {at:?}");
        if closed && !self.retiring.contains(&q) {
            self.retiring.push(q);
        }
    }

    fn poll(&mut self, pass: u64, now: Nanos, f: &mut dyn Fabric, out: &mut dyn EventSink) -> Polled {
        let mut more = false;
        for worker in &mut self.workers {
            more |= worker.poll(f);
        }
        let Self { queues, retiring, pool, .. } = self;
        retiring.retain(|&q| {
            let Some(control) = queues.get_mut(&q) else { return false };
            control.reclaim(|at, bits| {
                pool.put(bits);
                out.event(Event::Retired { q, at });
            })
        });
        if !more {
            self.recorded = pass;
        }
        Polled { recorded: self.recorded, wake_at: more.then_some(now) }
    }

    fn packets(&self, q: QueueSet, at: SlotGen, c: ChunkIndex) -> u64 {
        self.queues.get(&q).map_or(0, |control| control.packets(at, c))
    }

    fn progress(&self, q: QueueSet, ch: Channel) -> Option<Progress> {
        self.queues.get(&q)?.progress(ch)
    }

    fn counted(&self, q: QueueSet, generation: Generation) -> u64 {
        self.queues.get(&q).map_or(0, |control| control.counted(generation))
    }

    fn counters(&self, q: QueueSet) -> EngineCounters {
        self.queues.get(&q).map(SlotControl::counters).unwrap_or_default()
    }
}
