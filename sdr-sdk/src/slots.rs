//! Receive slots: seq, generations, drain and retire. Alone calls arm, disarm and retire on the two seams.
//!
//! Not here: what a slot's packets mean (schemes) and what travels back (link). Invariants: a slot is armed for seq only
//! when seq - S is retired and seq - S*G is drained; the slot, never a handle, holds the buffer of an armed or retiring
//! receive; a buffer leaves the slot only after both `Disarmed` and `Retired`.

use crate::bitmap::{HostBitmap, Shape};
use crate::control::CtsEntry;
use crate::engine::{CompletionEngine, EngineError};
use crate::fabric::{Fabric, FabricError, Grant, Landing, QueueSpec};
use crate::memory::RecvBuf;
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
        /// Time since the poll after `complete`.
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

/// Memory of a receive: the user's buffer, and that of extra packets.
pub(crate) type Buffers = (RecvBuf, Option<RecvBuf>);

/// What a receive lands in, and how its packets are cut.
pub(crate) struct Posting {
    pub(crate) buf: RecvBuf,
    /// Whole packets.
    pub(crate) extra: Option<RecvBuf>,
    pub(crate) payload: u32,
    pub(crate) per_chunk: u8,
}

impl Posting {
    pub(crate) fn shape(&self) -> Shape {
        let packets = |len: usize| len.div_ceil(self.payload as usize) as u32;
        let extra = self.extra.as_ref().map_or(0, |e| packets(e.len()));
        Shape::new(packets(self.buf.len()), self.per_chunk).with_extra(extra)
    }

    fn into_buffers(self) -> Buffers {
        (self.buf, self.extra)
    }

    fn landing(&self) -> Landing {
        // Without extra packets the last data chunk need not be whole for offsets behind it.
        let extra = self.extra.as_ref().map(RecvBuf::raw).filter(|e| !e.is_empty());
        let first_extra = self.shape().first_extra();
        Landing { dst: self.buf.raw(), extra, payload: self.payload, first_extra }
    }

    fn cts(&self, grant: Grant) -> CtsEntry {
        let &Self { payload, per_chunk, .. } = self;
        CtsEntry { bytes: self.buf.len() as u64, per_chunk, payload, extra: self.shape().extra(), grant }
    }
}

/// Where the buffers of a retired receive wait for their `Retire` handle.
#[derive(Default)]
pub(crate) struct RetireCell(Mutex<CellState>);

#[derive(Default)]
struct CellState {
    result: Option<Result<RecvBuf, RetireError>>,
    extra: Option<RecvBuf>,
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
        // A waker is foreign code: it is cloned before the lock is taken, and the old one dropped after it.
        let mut waker = Some(waker.clone());
        let mut s = self.lock();
        if s.result.is_none() {
            std::mem::swap(&mut s.waker, &mut waker);
        }
        s.result.take()
    }

    /// The extra buffer, once the other one is there.
    pub(crate) fn take_extra(&self) -> Option<RecvBuf> {
        self.lock().extra.take()
    }

    /// Nobody waits any more; the waker, to be dropped where no lock is held.
    pub(crate) fn retract(&self) -> Option<Waker> {
        self.lock().waker.take()
    }

    fn put(&self, r: Result<RecvBuf, RetireError>, extra: Option<RecvBuf>, wakers: &mut Vec<Waker>) {
        let mut s = self.lock();
        (s.result, s.extra) = (Some(r), extra);
        wakers.extend(s.waker.take());
    }
}

enum Slot {
    Free,
    /// Without an entry until the fabric confirmed that the key works.
    Armed {
        seq: Seq,
        posting: Posting,
        cts: Option<CtsEntry>,
    },
    Retiring(Retiring),
}

struct Retiring {
    seq: Seq,
    /// None where arming failed half way: the caller has its buffers.
    posting: Option<Posting>,
    disarmed: bool,
    quiescent: bool,
    /// The first pass that saw it. The time of the pass before it may be long past, when nothing was due.
    since: Option<Nanos>,
    cell: Arc<RetireCell>,
}

/// The receive slots of one queue pair.
pub(crate) struct RecvSlots {
    q: QueueSet,
    spec: QueueSpec,
    /// The next receive to be posted.
    next: Seq,
    /// Everything before it may be told to the peer.
    granted: Seq,
    /// Everything before it was completed here.
    retired: Seq,
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
    /// The peer's newest statement: first seq of a round (S messages) that is wholly closed, packets posted on its
    /// generation up to the end of that round.
    posted: Option<(Seq, u64)>,
}

impl RecvSlots {
    pub(crate) fn new(q: QueueSet, spec: QueueSpec, first: Seq, lifetime: Nanos, exact_counts: bool) -> Self {
        let exact = exact_counts.then(|| ExactDrain {
            lost: vec![0; spec.generations as usize].into_boxed_slice(),
            posted: None,
        });
        Self {
            q,
            spec,
            next: first,
            granted: first,
            retired: first,
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

    /// The next receive to be posted.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// One past the last receive that the peer may be told of.
    pub(crate) fn granted(&self) -> Seq {
        self.granted
    }

    /// Everything before it was completed here: the peer need not start it any more.
    pub(crate) fn retired(&self) -> Seq {
        self.retired
    }

    /// The peer's cumulative `closed`.
    pub(crate) fn closed(&self) -> Seq {
        self.closed
    }

    /// Receives that are armed.
    pub(crate) fn armed(&self) -> u32 {
        self.armed
    }

    /// Whether buffers of completed receives wait for fabric or engine.
    pub(crate) fn retiring(&self) -> bool {
        self.retiring > 0
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
        matches!(self.table[at.slot.0 as usize], Slot::Free)
            && self.next.minus(self.reuse()).before(self.drained)
    }

    /// When waiting alone makes slots reusable or a retirement overdue.
    pub(crate) fn wake_at(&self, retire_deadline: Nanos) -> Option<Nanos> {
        let drain = self.closed_log.front().map(|e| e.received + self.lifetime);
        if self.retiring == 0 {
            return drain;
        }
        let stall = self.table.iter().filter_map(|s| match s {
            Slot::Retiring(r) if Arc::strong_count(&r.cell) > 1 => r.since.map(|t| t + retire_deadline),
            _ => None,
        });
        drain.into_iter().chain(stall).min()
    }

    /// Arms the next slot for `posting`; call only when `ready`. A refusal consumes nothing.
    pub(crate) fn arm(
        &mut self,
        fabric: &mut dyn Fabric,
        engine: &mut dyn CompletionEngine,
        posting: Posting,
    ) -> Result<(SlotGen, Arc<dyn HostBitmap>), (Buffers, ArmError)> {
        let at = slot_gen(&self.spec, self.next);
        let bitmap = match engine.arm(self.q, at, posting.shape()) {
            Ok(b) => b,
            Err(e) => return Err((posting.into_buffers(), e.into())),
        };
        let slot = &mut self.table[at.slot.0 as usize];
        match fabric.arm(self.q, at, &posting.landing()) {
            Ok(grant) => {
                let cts = grant.map(|grant| posting.cts(grant));
                *slot = Slot::Armed { seq: at.seq, posting, cts };
                self.armed += 1;
                self.next = self.next.next();
                self.advance();
                Ok((at, bitmap))
            }
            Err(e) => {
                engine.retire(self.q, at);
                let cell = Arc::default();
                let (disarmed, quiescent) = (true, false);
                let r = Retiring { seq: at.seq, posting: None, disarmed, quiescent, since: None, cell };
                *slot = Slot::Retiring(r);
                self.retiring += 1;
                Err((posting.into_buffers(), e.into()))
            }
        }
    }

    /// The fabric confirmed that the key of `at` works.
    pub(crate) fn on_armed(&mut self, at: SlotGen, grant: Grant) {
        if let Slot::Armed { seq, posting, cts } = &mut self.table[at.slot.0 as usize]
            && *seq == at.seq
        {
            *cts = Some(posting.cts(grant));
            self.advance();
        }
    }

    fn slot(&self, seq: Seq) -> &Slot {
        &self.table[slot_gen(&self.spec, seq).slot.0 as usize]
    }

    /// Moves `granted` over what is confirmed or ended, and `retired` over what is completed.
    fn advance(&mut self) {
        while self.granted.before(self.next)
            && !matches!(self.slot(self.granted), Slot::Armed { seq, cts: None, .. } if *seq == self.granted)
        {
            self.granted = self.granted.next();
        }
        while self.retired.before(self.granted)
            && !matches!(self.slot(self.retired), Slot::Armed { seq, .. } if *seq == self.retired)
        {
            self.retired = self.retired.next();
        }
    }

    /// CTS entries from `from` on. An entry is owed for each seq: a receive that ended before its entry was seen is
    /// withdrawn.
    pub(crate) fn grants(&self, from: Seq) -> impl Iterator<Item = CtsEntry> {
        let n = self.granted.distance(from).max(0) as u64;
        (0..n.min(self.spec.slots as u64)).map(move |i| match self.slot(from.plus(i)) {
            Slot::Armed { seq, cts: Some(cts), .. } if *seq == from.plus(i) => *cts,
            _ => CtsEntry::WITHDRAWN,
        })
    }

    /// What is posted for an armed receive.
    pub(crate) fn armed_posting(&self, seq: Seq) -> Option<&Posting> {
        match self.slot(seq) {
            Slot::Armed { seq: s, posting, .. } if *s == seq => Some(posting),
            _ => None,
        }
    }

    /// Closes the slot to the engine and drops the key; the buffers arrive in the cell.
    pub(crate) fn complete(
        &mut self,
        fabric: &mut dyn Fabric,
        engine: &mut dyn CompletionEngine,
        seq: Seq,
    ) -> Option<Arc<RetireCell>> {
        let at = slot_gen(&self.spec, seq);
        let slot = &mut self.table[at.slot.0 as usize];
        match std::mem::replace(slot, Slot::Free) {
            Slot::Armed { seq: s, posting, .. } if s == seq => {
                let cell = Arc::<RetireCell>::default();
                let (disarmed, quiescent, posting) = (false, false, Some(posting));
                *slot = Slot::Retiring(Retiring {
                    seq,
                    posting,
                    disarmed,
                    quiescent,
                    since: None,
                    cell: cell.clone(),
                });
                self.armed -= 1;
                self.retiring += 1;
                engine.retire(self.q, at);
                fabric.disarm(self.q, at);
                self.advance();
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
        if let Some((buf, extra)) = r.posting.take().map(Posting::into_buffers) {
            r.cell.put(Ok(buf), extra, wakers);
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
            let waited = now.since(*r.since.get_or_insert(now));
            if waited >= retire_deadline && Arc::strong_count(&r.cell) > 1 {
                let e = RetireError::EngineStalled {
                    seq: r.seq,
                    waited,
                    disarmed: r.disarmed,
                    quiescent: r.quiescent,
                };
                let cell = std::mem::take(&mut r.cell);
                cell.put(Err(e), None, wakers);
            }
        }
    }

    /// Takes the cumulative facts of a control datagram. False when the peer claims to have closed what was never
    /// granted.
    pub(crate) fn on_facts(&mut self, now: Nanos, closed: Seq, posted: Option<(Seq, u64)>) -> bool {
        if self.granted.before(closed) {
            return false;
        }
        if self.closed.before(closed) {
            self.closed = closed;
            match self.closed_log.back_mut() {
                Some(e) if now.since(e.started) < self.lifetime.mul_div(1, 16) => {
                    (e.upto, e.received) = (closed, now)
                }
                _ => self.closed_log.push_back(ClosedEntry { upto: closed, started: now, received: now }),
            }
        }
        if let (Some(x), Some(p)) = (&mut self.exact, posted) {
            x.posted = Some(p);
        }
        true
    }

    /// Moves `drained` on, by age or by equal counts. Call it only after a pass over fabric and engine that began at
    /// `now` and came up empty: what waited in our own queues is then counted, or dropped by key and stamp.
    pub(crate) fn drain(&mut self, now: Nanos, counted: impl Fn(Generation) -> u64) {
        while let Some(e) = self.closed_log.front()
            && now >= e.received + self.lifetime
        {
            self.drained = self.drained.latest(e.upto);
            self.closed_log.pop_front();
        }
        self.drain_by_count(counted);
    }

    /// Equal counts mean that nothing of a round is in flight, if the round is closed and nothing of the generation's
    /// next round was granted yet. A round drains as a whole.
    fn drain_by_count(&mut self, counted: impl Fn(Generation) -> u64) {
        let (s, reuse) = (self.spec.slots as u64, self.reuse());
        let round = self.next.minus(reuse);
        let Some(x) = &mut self.exact else { return };
        let Some((stated, posted)) = x.posted else { return };
        if !self.next.0.is_multiple_of(s) || stated != round {
            return;
        }
        let generation = slot_gen(&self.spec, round).generation;
        let (count, lost) = (counted(generation), &mut x.lost[generation.0 as usize]);
        if !self.drained.before(round.plus(s)) {
            // Drained by age: what is still uncounted never comes.
            *lost = posted.saturating_sub(count);
        } else if !self.closed.before(round.plus(s)) && posted == count.saturating_add(*lost) {
            self.drained = round.plus(s);
        }
    }
}
