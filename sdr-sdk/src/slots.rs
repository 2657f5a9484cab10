//! Receive slots: seq, generations, drain and retire. Alone calls arm, disarm and retire on the two seams.
//!
//! Not here: what a slot's packets mean (schemes) and what travels back (link). Invariants: a slot is armed for seq only
//! when seq - S is retired and seq - S*G is drained; the slot, never a handle, holds the buffer of an armed or retiring
//! receive; a buffer leaves the slot only after both `Disarmed` and `Retired`.

use crate::bitmap::{HostBitmap, Shape};
use crate::control::CtsEntry;
use crate::engine::{CompletionEngine, EngineError};
use crate::fabric::{Fabric, FabricError, QueueSpec};
use crate::memory::{RawSlice, RecvBuf};
use crate::types::{Generation, MessageId, Nanos, QueueSet, Seq, SlotGen};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Slot and generation of a message; both ends compute them, nobody allocates.
pub fn slot_gen(spec: &QueueSpec, seq: Seq) -> SlotGen {
    let s = spec.slots as u64;
    SlotGen {
        slot: MessageId((seq.0 % s) as u16),
        generation: Generation((seq.0 / s % spec.generations as u64) as u16),
        seq,
    }
}

/// Why a slot could not be armed; nothing was consumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArmError {
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why a buffer does not come back (yet).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RetireError {
    /// Fabric or engine did not confirm in time; the memory stays with the context.
    #[error("message {seq}: not retired after {waited}: {}", stalled(.disarmed, .quiescent))]
    EngineStalled {
        /// The message.
        seq: Seq,
        /// Time since `complete`.
        waited: Nanos,
        /// The fabric confirmed.
        disarmed: bool,
        /// The engine confirmed.
        quiescent: bool,
    },
}

fn stalled(disarmed: &bool, quiescent: &bool) -> &'static str {
    match (disarmed, quiescent) {
        (false, false) => "neither fabric nor engine confirmed",
        (false, true) => "the fabric did not confirm the disarm",
        _ => "an engine worker did not reach a batch boundary",
    }
}

/// Where a retired buffer waits for its `Retire` handle.
#[derive(Default)]
pub(crate) struct RetireCell(Mutex<CellState>);

#[derive(Default)]
struct CellState {
    result: Option<Result<RecvBuf, RetireError>>,
    waker: Option<Waker>,
}

impl RetireCell {
    fn lock(&self) -> MutexGuard<'_, CellState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(&self) -> Option<Result<RecvBuf, RetireError>> {
        self.lock().result.take()
    }

    /// Takes the result, or registers who to wake for it.
    pub(crate) fn take_or_register(&self, waker: &Waker) -> Option<Result<RecvBuf, RetireError>> {
        let mut s = self.lock();
        if s.result.is_none() {
            s.waker = Some(waker.clone());
        }
        s.result.take()
    }

    fn put(&self, r: Result<RecvBuf, RetireError>, wakers: &mut Vec<Waker>) {
        let mut s = self.lock();
        s.result = Some(r);
        wakers.extend(s.waker.take());
    }
}

enum Slot {
    Free,
    Armed { seq: Seq, buf: RecvBuf, cts: CtsEntry },
    Retiring(Retiring),
}

struct Retiring {
    seq: Seq,
    /// None where arming failed half way: the caller has its buffer.
    buf: Option<RecvBuf>,
    disarmed: bool,
    quiescent: bool,
    since: Nanos,
    cell: Arc<RetireCell>,
}

/// The receive slots of one queue pair.
pub(crate) struct RecvSlots {
    q: QueueSet,
    spec: QueueSpec,
    /// The next receive to be posted; everything before it was granted.
    next: Seq,
    table: Box<[Slot]>,
    armed: u32,
    retiring: u32,
    /// The peer posts nothing more on anything before it.
    closed: Seq,
    /// When `closed` was received, coarsened to L / 16, oldest first.
    closed_log: VecDeque<ClosedEntry>,
    drained: Seq,
    lifetime: Nanos,
    exact: Option<ExactDrain>,
}

/// The peer said by `received` that everything before `upto` is closed.
struct ClosedEntry {
    upto: Seq,
    started: Nanos,
    received: Nanos,
}

/// Drain by equal counts, for fabrics that never count a packet twice.
struct ExactDrain {
    /// Packets of each generation that never came: posted minus counted, fixed once L had passed.
    lost: Box<[u64]>,
    /// The peer's newest statement about the generation that is to be used next.
    posted: Option<(Generation, u64)>,
}

impl RecvSlots {
    pub(crate) fn new(q: QueueSet, spec: QueueSpec, first: Seq, lifetime: Nanos, exact_counts: bool) -> Self {
        let exact = exact_counts
            .then(|| ExactDrain { lost: vec![0; spec.generations as usize].into_boxed_slice(), posted: None });
        Self {
            q,
            spec,
            next: first,
            table: (0..spec.slots).map(|_| Slot::Free).collect(),
            armed: 0,
            retiring: 0,
            closed: first,
            closed_log: VecDeque::new(),
            drained: first,
            lifetime,
            exact,
        }
    }

    /// The next receive to be posted; one past the last grant.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// The peer's cumulative `closed`.
    pub(crate) fn closed(&self) -> Seq {
        self.closed
    }

    /// Receives that are armed.
    pub(crate) fn armed(&self) -> u32 {
        self.armed
    }

    /// L: slot reuse waits at least this long after `closed` was received.
    pub(crate) fn set_lifetime(&mut self, l: Nanos) {
        self.lifetime = l;
    }

    /// Messages between two uses of the same slot and generation.
    fn reuse(&self) -> u64 {
        self.spec.slots as u64 * self.spec.generations as u64
    }

    /// Whether the next receive can be armed now; false means `Busy`.
    pub(crate) fn ready(&self) -> bool {
        let at = slot_gen(&self.spec, self.next);
        matches!(self.table[at.slot.0 as usize], Slot::Free) && self.next.minus(self.reuse()).before(self.drained)
    }

    /// When waiting alone makes slots reusable or a retirement overdue.
    pub(crate) fn wake_at(&self, retire_deadline: Nanos) -> Option<Nanos> {
        let drain = self.closed_log.front().map(|e| e.received + self.lifetime);
        if self.retiring == 0 {
            return drain;
        }
        let stall = self.table.iter().filter_map(|s| match s {
            Slot::Retiring(r) if Arc::strong_count(&r.cell) > 1 => Some(r.since + retire_deadline),
            _ => None,
        });
        drain.into_iter().chain(stall).min()
    }

    /// Arms the next slot for `buf`; call only when `ready`. A refusal consumes nothing.
    pub(crate) fn arm(
        &mut self,
        now: Nanos,
        fabric: &mut dyn Fabric,
        engine: &mut dyn CompletionEngine,
        buf: RecvBuf,
        per_chunk: u8,
    ) -> Result<(SlotGen, Arc<dyn HostBitmap>), (RecvBuf, ArmError)> {
        let at = slot_gen(&self.spec, self.next);
        let packets = buf.len().div_ceil(self.spec.payload as usize) as u32;
        let bitmap = match engine.arm(self.q, at, Shape::new(packets, per_chunk)) {
            Ok(b) => b,
            Err(e) => return Err((buf, e.into())),
        };
        let slot = &mut self.table[at.slot.0 as usize];
        match fabric.arm(self.q, at, buf.raw()) {
            Ok(grant) => {
                let cts = CtsEntry { bytes: buf.len() as u64, per_chunk, grant };
                *slot = Slot::Armed { seq: at.seq, buf, cts };
                self.armed += 1;
                self.next = self.next.next();
                Ok((at, bitmap))
            }
            Err(e) => {
                engine.retire(self.q, at);
                let cell = Arc::default();
                let r = Retiring { seq: at.seq, buf: None, disarmed: true, quiescent: false, since: now, cell };
                *slot = Slot::Retiring(r);
                self.retiring += 1;
                Err((buf, e.into()))
            }
        }
    }

    /// CTS entries from `from` on. An entry is owed for each seq: a receive that ended before its entry was seen is
    /// withdrawn.
    pub(crate) fn grants(&self, from: Seq) -> impl Iterator<Item = CtsEntry> {
        let n = self.next.distance(from).max(0) as u64;
        (0..n.min(self.spec.slots as u64)).map(move |i| {
            match &self.table[slot_gen(&self.spec, from.plus(i)).slot.0 as usize] {
                Slot::Armed { seq, cts, .. } if *seq == from.plus(i) => *cts,
                _ => CtsEntry::WITHDRAWN,
            }
        })
    }

    /// The memory of an armed receive.
    pub(crate) fn armed_slice(&self, seq: Seq) -> Option<RawSlice> {
        match &self.table[slot_gen(&self.spec, seq).slot.0 as usize] {
            Slot::Armed { seq: s, buf, .. } if *s == seq => Some(buf.raw()),
            _ => None,
        }
    }

    /// Closes the slot to the engine and drops the key; the buffer arrives in the cell.
    pub(crate) fn complete(
        &mut self,
        now: Nanos,
        fabric: &mut dyn Fabric,
        engine: &mut dyn CompletionEngine,
        seq: Seq,
    ) -> Option<Arc<RetireCell>> {
        let at = slot_gen(&self.spec, seq);
        let slot = &mut self.table[at.slot.0 as usize];
        match std::mem::replace(slot, Slot::Free) {
            Slot::Armed { seq: s, buf, .. } if s == seq => {
                let cell = Arc::<RetireCell>::default();
                let (disarmed, quiescent, buf) = (false, false, Some(buf));
                *slot = Slot::Retiring(Retiring { seq, buf, disarmed, quiescent, since: now, cell: cell.clone() });
                self.armed -= 1;
                self.retiring += 1;
                engine.retire(self.q, at);
                fabric.disarm(self.q, at);
                Some(cell)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// The fabric confirmed.
    pub(crate) fn on_disarmed(&mut self, at: SlotGen, wakers: &mut Vec<Waker>) {
        self.confirm(at, wakers, |r| r.disarmed = true);
    }

    /// The engine confirmed.
    pub(crate) fn on_retired(&mut self, at: SlotGen, wakers: &mut Vec<Waker>) {
        self.confirm(at, wakers, |r| r.quiescent = true);
    }

    fn confirm(&mut self, at: SlotGen, wakers: &mut Vec<Waker>, mark: impl FnOnce(&mut Retiring)) {
        let slot = &mut self.table[at.slot.0 as usize];
        let Slot::Retiring(r) = slot else { return };
        if r.seq != at.seq {
            return;
        }
        mark(r);
        if !(r.disarmed && r.quiescent) {
            return;
        }
        if let Some(buf) = r.buf.take() {
            r.cell.put(Ok(buf), wakers);
        }
        *slot = Slot::Free;
        self.retiring -= 1;
    }

    /// Tells the owners of overdue retirements; their memory stays here.
    pub(crate) fn expire(&mut self, now: Nanos, retire_deadline: Nanos, wakers: &mut Vec<Waker>) {
        if self.retiring == 0 {
            return;
        }
        for slot in &mut self.table {
            let Slot::Retiring(r) = slot else { continue };
            let waited = now.since(r.since);
            if waited >= retire_deadline && Arc::strong_count(&r.cell) > 1 {
                let e = RetireError::EngineStalled {
                    seq: r.seq,
                    waited,
                    disarmed: r.disarmed,
                    quiescent: r.quiescent,
                };
                let cell = std::mem::take(&mut r.cell);
                cell.put(Err(e), wakers);
            }
        }
    }

    /// Takes the cumulative facts of a control datagram. `counted` gives the completions seen on a generation.
    ///
    /// False when the peer claims to have closed what was never granted.
    pub(crate) fn on_facts(
        &mut self,
        now: Nanos,
        closed: Seq,
        posted: Option<(Generation, u64)>,
        counted: impl Fn(Generation) -> u64,
    ) -> bool {
        if self.next.before(closed) {
            return false;
        }
        if self.closed.before(closed) {
            self.closed = closed;
            match self.closed_log.back_mut() {
                Some(e) if now.since(e.started) < self.lifetime.mul_div(1, 16) => (e.upto, e.received) = (closed, now),
                _ => self.closed_log.push_back(ClosedEntry { upto: closed, started: now, received: now }),
            }
        }
        if let (Some(x), Some(p)) = (&mut self.exact, posted) {
            x.posted = Some(p);
        }
        self.drain(now, counted);
        true
    }

    /// Moves `drained` on, by age or by equal counts.
    pub(crate) fn drain(&mut self, now: Nanos, counted: impl Fn(Generation) -> u64) {
        while let Some(e) = self.closed_log.front()
            && now >= e.received + self.lifetime
        {
            self.drained = self.drained.latest(e.upto);
            self.closed_log.pop_front();
        }
        let Some(x) = &mut self.exact else { return };
        let Some((generation, posted)) = x.posted else { return };
        // The whole previous round of the generation that is used next.
        let (s, reuse) = (self.spec.slots as u64, self.spec.slots as u64 * self.spec.generations as u64);
        let round_end = Seq(self.next.0 & !(s - 1)).minus(reuse).plus(s);
        let index = generation.0 as usize;
        if generation != slot_gen(&self.spec, self.next).generation || index >= x.lost.len() {
            return;
        }
        if !self.drained.before(round_end) {
            // Drained by age, before anything of the new round was granted: what is still uncounted never comes.
            if self.next.0.is_multiple_of(s) {
                x.lost[index] = posted.saturating_sub(counted(generation));
            }
        } else if !self.closed.before(round_end) && posted == counted(generation) + x.lost[index] {
            self.drained = round_end;
        }
    }
}
