//! The sending half of a queue pair: grants received, messages begun, runs waiting for the fabric, `closed`.
//!
//! Invariants: a run is posted only for a message whose grant is here and that is not closed; a message is closed only
//! when its stream has ended and the fabric is done with the source memory of all its packets; source memory is held
//! until then.

use crate::control::{self, CtsEntry};
use crate::fabric::{Fabric, Grant, QueueSpec, WriteRun};
use crate::memory::{RawSlice, Region, SendBuf};
use crate::slots::slot_gen;
use crate::types::{Channel, Nanos, QueueSet, Seq};
use std::collections::VecDeque;
use std::sync::Arc;

/// Runs handed to the fabric in one call at most.
const BATCH: usize = 64;

/// Runs that may wait for the fabric before `stream_continue` answers `Busy`.
pub(crate) const MAX_QUEUED_RUNS: usize = 4_096;

struct Message {
    grant: Grant,
    /// Bytes of a full packet.
    payload: u32,
    user: u32,
    /// Residues (mod fragments) of the offsets posted so far, where user immediates are on.
    residues: u32,
    /// Packets queued or posted and not yet confirmed by the fabric.
    outstanding: u64,
    ended: bool,
    /// Memory that outstanding packets may be read from.
    sources: Vec<Arc<Region>>,
}

impl Message {
    fn closed(&self) -> bool {
        self.ended && self.outstanding == 0
    }

    fn hold(&mut self, buf: &SendBuf) {
        if !self.sources.iter().any(|r| Arc::ptr_eq(r, buf.region())) {
            self.sources.push(buf.region().clone());
        }
    }

    fn release(&mut self, packets: u64) {
        self.outstanding = self.outstanding.saturating_sub(packets);
        if self.outstanding == 0 {
            self.sources.clear();
        }
    }
}

struct Queued {
    seq: Seq,
    first: u32,
    packets: u32,
    payload: u32,
    src: RawSlice,
}

/// What the next message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextGrant {
    /// The message that the grant is for.
    pub seq: Seq,
    /// Length of the posted receive in bytes.
    pub bytes: u64,
    /// Packets a chunk at the receiver.
    pub per_chunk: u8,
    /// Payload bytes of every packet of the message but its last data packet; at least one.
    pub payload: u32,
    /// Packets that the receive takes behind its data, from [`first_extra`](Self::first_extra) on.
    pub extra: u32,
    /// The receiver ended this receive before anything was sent; a message started on it is thrown away.
    pub withdrawn: bool,
}

impl NextGrant {
    /// Offset of the first extra packet: the packets of the receive, whatever the message has, rounded up to whole chunks.
    pub fn first_extra(&self) -> u32 {
        let data = self.bytes.div_ceil(self.payload.max(1).into());
        // A grant is only kept when its packets fit the layout.
        control::first_extra(data, self.per_chunk).try_into().unwrap_or(u32::MAX)
    }
}

pub(crate) struct SendSide {
    q: QueueSet,
    spec: QueueSpec,
    /// Next message to be started.
    next: Seq,
    /// Grants for `next`, `next + 1`, ...
    grants: VecDeque<CtsEntry>,
    /// Everything before it is closed.
    closed: Seq,
    /// The peer completed everything before it.
    retired: Seq,
    /// Messages from `next - open.len()` to `next`.
    open: VecDeque<Message>,
    /// Runs that wait for the fabric, by channel.
    channels: Vec<VecDeque<Queued>>,
    queued_runs: usize,
    /// Packets posted on each generation, where the fabric counts exactly.
    posted: Option<Box<[u64]>>,
    batch: Vec<WriteRun>,
}

impl SendSide {
    pub(crate) fn new(q: QueueSet, spec: QueueSpec, first: Seq, exact_counts: bool) -> Self {
        Self {
            q,
            spec,
            next: first,
            grants: VecDeque::new(),
            closed: first,
            retired: first,
            open: VecDeque::new(),
            channels: (0..spec.channels).map(|_| VecDeque::new()).collect(),
            queued_runs: 0,
            posted: (exact_counts && spec.generations > 1)
                .then(|| vec![0; spec.generations as usize].into_boxed_slice()),
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Everything before it will never be posted again.
    pub(crate) fn closed(&self) -> Seq {
        self.closed
    }

    /// One past the last grant held: the cumulative `grants_seen`.
    pub(crate) fn granted(&self) -> Seq {
        self.next.plus(self.grants.len() as u64)
    }

    /// Messages begun and not closed.
    pub(crate) fn open_messages(&self) -> usize {
        self.open.len()
    }

    /// The next message to be started.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Runs that wait for the fabric.
    pub(crate) fn queued_runs(&self) -> usize {
        self.queued_runs
    }

    /// The grant that the next message would use.
    pub(crate) fn next_grant(&self) -> Option<NextGrant> {
        self.grants.front().map(|g| NextGrant {
            seq: self.next,
            bytes: g.bytes,
            per_chunk: g.per_chunk,
            payload: self.payload_of(g),
            extra: g.extra,
            withdrawn: *g == CtsEntry::WITHDRAWN || self.next.before(self.retired),
        })
    }

    /// What a withdrawn receive does not say is of no matter, as long as packets can be cut.
    fn payload_of(&self, g: &CtsEntry) -> u32 {
        if g.payload == 0 { self.spec.payload } else { g.payload }
    }

    /// Takes the grants of a CTS, which fit the queue pair, the first for `first`; true when it held any that are new.
    ///
    /// Grants are kept for S messages ahead; what does not fit is repeated by the peer until it does.
    pub(crate) fn on_grants(&mut self, first: Seq, entries: impl Iterator<Item = CtsEntry>) -> bool {
        let known = self.granted().distance(first);
        if known < 0 {
            return false;
        }
        let room = (self.spec.slots as usize).saturating_sub(self.grants.len());
        let before = self.grants.len();
        self.grants.extend(entries.skip(known as usize).take(room));
        self.grants.len() > before
    }

    /// Packets that the residues rule asks of a message with a user immediate.
    pub(crate) fn needed_packets(&self) -> u32 {
        if self.spec.user_immediate { self.spec.layout.fragments() } else { 0 }
    }

    /// Starts the next message on the grant that `next_grant` showed.
    pub(crate) fn start(&mut self, user: u32) -> Option<Seq> {
        let entry = self.grants.pop_front()?;
        let seq = self.next;
        self.next = seq.next();
        self.open.push_back(Message {
            grant: entry.grant,
            payload: self.payload_of(&entry),
            user,
            residues: 0,
            outstanding: 0,
            ended: false,
            sources: Vec::new(),
        });
        Some(seq)
    }

    fn message(&mut self, seq: Seq) -> Option<&mut Message> {
        let i = seq.distance(self.open_first());
        if i < 0 { None } else { self.open.get_mut(i as usize) }
    }

    /// The message that `open[0]` is, or would be.
    fn open_first(&self) -> Seq {
        self.next.minus(self.open.len() as u64)
    }

    /// The peer completed everything before `retired`: what was not started of it is closed, what was started is
    /// withdrawn.
    pub(crate) fn on_retired(&mut self, retired: Seq) {
        self.retired = self.retired.latest(retired);
        self.advance();
    }

    /// Whether the peer gave the message up, whole or not: nothing of it needs to be posted any more.
    pub(crate) fn withdrawn(&self, seq: Seq) -> bool {
        seq.before(self.retired)
    }

    /// Packets queued or posted and not yet confirmed; None once the message is closed.
    pub(crate) fn outstanding(&mut self, seq: Seq) -> Option<u64> {
        self.message(seq).map(|m| m.outstanding)
    }

    /// Residues of the user immediate that no posted packet carries yet, as a count.
    pub(crate) fn missing_residues(&mut self, seq: Seq) -> u32 {
        let need = self.needed_packets();
        self.message(seq).map_or(0, |m| need - m.residues.count_ones().min(need))
    }

    /// Queues packets `first..first + packets` of an open message, whose bytes are `src`, on one of the channels.
    pub(crate) fn push(&mut self, seq: Seq, first: u32, packets: u32, src: &SendBuf, channel: Channel) {
        let fragments = self.spec.layout.fragments();
        let Some(m) = self.message(seq) else { return };
        m.outstanding += packets as u64;
        m.hold(src);
        for i in 0..packets.min(fragments) {
            m.residues |= 1 << ((first + i) % fragments);
        }
        let payload = m.payload;
        self.channels[channel.0 as usize].push_back(Queued { seq, first, packets, payload, src: src.raw() });
        self.queued_runs += 1;
    }

    /// Nothing more will be pushed for `seq`. With `discard`, what still waits here is dropped.
    pub(crate) fn end(&mut self, seq: Seq, discard: bool) {
        if discard {
            for ch in 0..self.channels.len() {
                let queue = std::mem::take(&mut self.channels[ch]);
                let (gone, kept): (VecDeque<_>, VecDeque<_>) = queue.into_iter().partition(|r| r.seq == seq);
                self.channels[ch] = kept;
                self.queued_runs -= gone.len();
                let packets: u64 = gone.iter().map(|r| r.packets as u64).sum();
                if let Some(m) = self.message(seq) {
                    m.release(packets);
                }
            }
        }
        if let Some(m) = self.message(seq) {
            m.ended = true;
        }
        self.advance();
    }

    /// The fabric is done with `packets` more of a message.
    pub(crate) fn on_sent(&mut self, seq: Seq, packets: u64) {
        if let Some(m) = self.message(seq) {
            m.release(packets);
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.open.front().is_some_and(Message::closed) {
            self.open.pop_front();
        }
        // What the peer completed before it was started is never posted.
        let idle = if self.open.is_empty() { self.next.latest(self.retired) } else { self.open_first() };
        self.closed = self.closed.latest(idle);
    }

    /// Whether runs wait for room in the fabric.
    pub(crate) fn queued(&self) -> bool {
        self.queued_runs > 0
    }

    /// Posts what waits, as far as the fabric takes it. Returns the packets posted.
    pub(crate) fn flush(&mut self, now: Nanos, fabric: &mut dyn Fabric) -> u64 {
        let mut total = 0;
        for ch in 0..self.channels.len() {
            while !self.channels[ch].is_empty() {
                let offered = self.fill_batch(ch);
                let taken = fabric.post(now, Channel(ch as u8), &self.batch);
                self.posted(ch, taken);
                total += taken;
                if taken < offered {
                    break;
                }
            }
        }
        total
    }

    fn fill_batch(&mut self, ch: usize) -> u64 {
        self.batch.clear();
        let mut packets = 0;
        let first = self.open_first();
        for r in self.channels[ch].iter().take(BATCH) {
            // A message with queued runs is not closed.
            let m = &self.open[r.seq.distance(first) as usize];
            packets += r.packets as u64;
            self.batch.push(WriteRun {
                q: self.q,
                at: slot_gen(&self.spec, r.seq),
                grant: m.grant,
                first: r.first,
                packets: r.packets,
                payload: r.payload,
                src: r.src,
                user: m.user,
            });
        }
        packets
    }

    fn posted(&mut self, ch: usize, mut taken: u64) {
        while taken > 0 {
            let Some(run) = self.channels[ch].front_mut() else { return };
            let n = (run.packets as u64).min(taken);
            taken -= n;
            if let Some(p) = &mut self.posted {
                p[slot_gen(&self.spec, run.seq).generation.0 as usize] += n;
            }
            if n == run.packets as u64 {
                self.channels[ch].pop_front();
                self.queued_runs -= 1;
            } else {
                let skip = n as usize * run.payload as usize;
                run.first += n as u32;
                run.packets -= n as u32;
                run.src = run.src.slice(skip, run.src.len() - skip);
            }
        }
    }

    /// First seq of the round (S messages) that stands in the way of the next grant's generation, and the packets posted
    /// on that generation up to the round's end; once the whole round is closed and nothing of the next one was granted.
    pub(crate) fn drain_statement(&self) -> Option<(Seq, u64)> {
        let posted = self.posted.as_ref()?;
        let s = self.spec.slots as u64;
        let at = slot_gen(&self.spec, self.granted());
        let round = at.seq.minus(s * self.spec.generations as u64);
        let final_count = at.seq.0.is_multiple_of(s) && !self.closed.before(round.plus(s));
        final_count.then(|| (round, posted[at.generation.0 as usize]))
    }
}
