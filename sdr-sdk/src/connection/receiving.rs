//! The receiving direction: posts receives, follows their bitmaps, reports, says DONE, gives buffers back.
//!
//! It uses the queue pair's public calls alone. Invariants: a message is mentioned to the peer only after its ANNOUNCE
//! was seen, or when its receive ended; the outcome of a receive is fixed once and repeated until the peer closed it.

use crate::bitmap::{Bitmap, Shape};
use crate::connection::coding::Solving;
use crate::connection::congestion::packet_ps;
use crate::connection::frames::{
    Announce, Encoder, Frame, Frames, LossCount, MIN_REPORT, Span, Status as DoneStatus,
};
use crate::connection::loss_meter::{LossMeter, Seen};
use crate::connection::scratch::Scratch;
use crate::connection::transfer::{Cell, Received, RecvError, RecvResult, TransferError};
use crate::connection::{ConnectionConfig, ConnectionStats, RecvRequest, largest_packet};
use crate::control::MAX_UPPER;
use crate::ec::Coder;
use crate::engine::Mark;
use crate::memory::RecvBuf;
use crate::qp::{PostError, RecvHandle, RecvOptions, RecvQp, Retire};
use crate::reliability::{
    Arrived, ChannelView, Conditions, Loss, MessageSpec, Outcome, PacketView, Plan, Say, Scheme,
    SchemeReceiver, Unfinished, View,
};
use crate::repeat::{DoneRepeater, ReportPacer};
use crate::types::{Channel, ChunkIndex, Nanos, Seq};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// Chunks in which nothing arrived that are looked at again in one poll; four times as many for a report.
const RECHECK: u32 = 64;

impl PacketView for RecvHandle {
    fn shape(&self) -> Shape {
        RecvHandle::shape(self)
    }

    fn chunk(&self, c: ChunkIndex) -> bool {
        self.bitmap_with_extra().is_set(c)
    }

    fn complete_until(&self, from: ChunkIndex, to: ChunkIndex) -> ChunkIndex {
        Bitmap::complete_until(self.bitmap_with_extra(), from, to)
    }

    fn packets(&self, c: ChunkIndex) -> u64 {
        RecvHandle::packets(self, c)
    }
}

/// What is known of a message once it was announced.
struct Announced {
    bytes: u64,
    user: Option<u32>,
    spec: MessageSpec,
    arrived: Arrived,
    parity: Arrived,
    seen: Seen,
    /// How far losses can be counted now.
    ripe: Option<u32>,
    /// Announced: picoseconds a packet.
    pace: u64,
    scheme: Box<dyn SchemeReceiver>,
    /// Behind others, and nothing of it arrived: what its scheme wanted when it was thought to be first is void.
    behind: bool,
    /// What is missing is being computed, and its last step went well.
    solving: Option<Solving>,
    solves: bool,
    pacer: ReportPacer,
    progress_at: Nanos,
}

struct Incoming {
    seq: Seq,
    handle: RecvHandle,
    cell: Arc<Cell<RecvResult>>,
    message: Option<Announced>,
}

/// A receive whose outcome is fixed and whose buffer is on its way back.
struct Ending {
    retire: Retire,
    cell: Arc<Cell<RecvResult>>,
    outcome: Result<(Seq, usize, Option<u32>), TransferError>,
}

pub(super) struct Receiving {
    qp: RecvQp,
    scheme: Arc<dyn Scheme>,
    channels: u8,
    per_chunk: u32,
    progress_deadline: Nanos,
    scratch_pool: Scratch,
    coder: Arc<dyn Coder>,
    known_loss: Option<Loss>,
    /// What the path lost, as told to the peer, and when.
    seen: LossCount,
    told: (LossCount, Nanos),
    /// The pace that the peer announced last, or our own.
    pace: u64,
    waiting: VecDeque<RecvRequest>,
    /// Since when the first waiting receive has waited for a slot.
    busy_since: Option<Nanos>,
    posted: VecDeque<Incoming>,
    ending: Vec<Ending>,
    done: VecDeque<(Seq, DoneStatus, DoneRepeater)>,
    scratch: Vec<u8>,
    marks: Vec<Mark>,
}

impl Receiving {
    pub(super) fn new(qp: RecvQp, config: &ConnectionConfig) -> Self {
        Self {
            scheme: config.scheme.clone(),
            channels: qp.channels(),
            per_chunk: config.per_chunk,
            progress_deadline: config.progress_deadline,
            scratch_pool: Scratch::new(config.parity_memory(qp.rtt())),
            coder: config.coder.clone(),
            known_loss: config.loss,
            seen: LossCount::default(),
            told: (LossCount::default(), Nanos::ZERO),
            pace: packet_ps(config.rate, qp.payload()),
            waiting: VecDeque::new(),
            busy_since: None,
            posted: VecDeque::new(),
            ending: Vec::new(),
            done: VecDeque::new(),
            scratch: Vec::with_capacity(MAX_UPPER),
            marks: Vec::with_capacity(qp.channels() as usize),
            qp,
        }
    }

    /// The oldest message whose outcome is not known.
    pub(super) fn first_open(&self) -> Seq {
        self.posted.front().map_or(self.qp.next_seq(), |m| m.seq)
    }

    /// Nothing accepted is unfinished, and the peer knows every outcome.
    pub(super) fn idle(&self) -> bool {
        self.waiting.is_empty() && self.posted.is_empty() && self.ending.is_empty() && self.done.is_empty()
    }

    pub(super) fn enqueue(&mut self, _now: Nanos, requests: &mut VecDeque<RecvRequest>) {
        self.waiting.extend(requests.drain(..));
    }

    /// Receives without a slot.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Ends the receives whose transfer was dropped. What waits for a slot keeps its place, and ends when it has one.
    pub(super) fn cancel_dropped(&mut self, now: Nanos) {
        for i in (0..self.posted.len()).rev() {
            self.cancel_if_dropped(now, i);
        }
    }

    fn cancel_if_dropped(&mut self, now: Nanos, i: usize) {
        let m = &self.posted[i];
        if m.cell.cancelled() {
            let e = TransferError::CancelledByReceiver { seq: m.seq };
            self.end(now, i, Some(DoneStatus::Cancelled), Err(e));
        }
    }

    /// Takes no more messages: what has not begun to arrive is cancelled.
    pub(super) fn stop(&mut self, now: Nanos, wakers: &mut Vec<Waker>) {
        for w in self.waiting.drain(..) {
            let e = RecvError { why: TransferError::Closed, buf: Some(w.buf) };
            w.cell.finish(Err(e), wakers);
        }
        for i in (0..self.posted.len()).rev() {
            if self.posted[i].message.is_none() {
                self.end(now, i, Some(DoneStatus::Cancelled), Err(TransferError::Closed));
            }
        }
    }

    /// Ends everything with an error; true while buffers are on their way back.
    pub(super) fn fail(&mut self, now: Nanos, why: &TransferError, wakers: &mut Vec<Waker>) -> bool {
        for w in self.waiting.drain(..) {
            w.cell.finish(Err(RecvError { why: why.clone(), buf: Some(w.buf) }), wakers);
        }
        while !self.posted.is_empty() {
            self.end(now, 0, None, Err(why.clone()));
        }
        self.done.clear();
        self.collect(&mut ConnectionStats::default(), wakers);
        !self.ending.is_empty()
    }

    /// As `fail`, without waiting for the buffers: the context keeps them.
    pub(super) fn fail_now(&mut self, why: &TransferError, wakers: &mut Vec<Waker>) {
        self.fail(Nanos::ZERO, why, wakers);
        for e in self.ending.drain(..) {
            e.cell.finish(Err(RecvError { why: why.clone(), buf: None }), wakers);
        }
    }

    pub(super) fn poll(
        &mut self,
        now: Nanos,
        stats: &mut ConnectionStats,
        wakers: &mut Vec<Waker>,
    ) -> Option<Nanos> {
        let closed = self.qp.peer_closed();
        self.done.retain(|(seq, ..)| !seq.before(closed));
        self.post(now, stats, wakers);
        self.take_frames(now, stats);
        self.follow(now, closed);
        self.report(now, stats);
        self.say_done(now, stats);
        self.collect(stats, wakers);
        self.wake_at()
    }

    fn post(&mut self, now: Nanos, stats: &mut ConnectionStats, wakers: &mut Vec<Waker>) {
        let payload = self.qp.path_payload();
        while let Some(len) = self.waiting.front().map(|w| w.buf.len()) {
            // Foreign code: when it panics, the request still waits and is failed with the others.
            let extra = self.extra(len, payload);
            let Some(RecvRequest { buf, cell }) = self.waiting.pop_front() else { return };
            let options = RecvOptions { per_chunk: self.per_chunk, payload: Some(payload) };
            match self.qp.recv_with(buf, extra, options) {
                Ok(handle) => {
                    if let Some(since) = self.busy_since.take() {
                        stats.slot_wait += now.since(since);
                    }
                    self.posted.push_back(Incoming { seq: handle.seq(), handle, cell, message: None });
                    self.cancel_if_dropped(now, self.posted.len() - 1);
                }
                Err(PostError::Busy((buf, _))) => {
                    self.waiting.push_front(RecvRequest { buf, cell });
                    self.busy_since.get_or_insert(now);
                    return;
                }
                Err(e) => {
                    let why = TransferError::NotPostable(e.to_string());
                    cell.finish(Err(RecvError { why, buf: Some(e.into_buf().0) }), wakers);
                }
            }
        }
    }

    /// What is known of the path when a receive is posted or a message judged.
    fn conditions(&self, pace: u64) -> Conditions {
        let rtt = self.qp.rtt();
        let loss = self.known_loss.unwrap_or_else(|| {
            let mut meter = LossMeter::default();
            meter.told(&self.seen);
            meter.loss()
        });
        Conditions {
            rtt,
            min_rtt: self.qp.min_rtt(),
            packet_time_ps: pace,
            room: 0,
            channels: ChannelView::new(self.channels),
            loss,
            spare_parity: true,
            unfinished: Unfinished { messages: 1, bytes: 0 },
        }
    }

    /// Memory for parity behind a receive of `bytes`: what the scheme would like, as far as all posted ones can have it.
    fn extra(&mut self, bytes: usize, payload: u32) -> Option<RecvBuf> {
        let packets = (bytes as u64).div_ceil(payload.into()) as u32;
        let c = self.conditions(self.pace);
        let m = MessageSpec {
            seq: self.qp.next_seq(),
            bytes: bytes as u64,
            packets,
            payload,
            channels: self.channels,
            per_chunk: self.per_chunk as u8,
            extra: u32::MAX,
            first_extra: packets.next_multiple_of(self.per_chunk.max(1)),
        };
        let share = self.scratch_pool.most() / (self.posted.len() + self.waiting.len()).max(1);
        let wanted = self.scheme.extra(&m, &c) as usize;
        // Not every packet number is the data's: what parity would have beyond the last is left out.
        let numbers = self.qp.max_packets().saturating_sub(m.first_extra) as usize;
        let packets = wanted.min(share / payload as usize).min(numbers);
        if packets == 0 {
            return None;
        }
        let qp = &self.qp;
        let block = self.scratch_pool.take(packets * payload as usize, |len| qp.register(len))?;
        Some(block.slice(0, packets * payload as usize).lend())
    }

    fn take_frames(&mut self, now: Nanos, stats: &mut ConnectionStats) {
        while let Some(bytes) = self.qp.take_datagram() {
            for frame in Frames::new(&bytes) {
                match frame {
                    Ok(Frame::Announce(a)) => self.announced(now, &a),
                    Ok(_) | Err(_) => stats.malformed += 1,
                }
            }
        }
    }

    fn announced(&mut self, now: Nanos, a: &Announce) {
        let Ok(i) = self.posted.binary_search_by(|m| m.seq.serial_cmp(a.seq)) else {
            // Ended before it began: the sender lacks the outcome.
            if let Ok(i) = self.done.binary_search_by(|(seq, ..)| seq.serial_cmp(a.seq)) {
                self.done[i].2.asked(now);
            }
            return;
        };
        let m = &mut self.posted[i];
        if m.message.is_some() {
            return;
        }
        let seq = a.seq;
        if a.bytes > m.handle.len() {
            let e = TransferError::TooLong { seq, len: a.bytes, posted: m.handle.len() };
            return self.end(now, i, Some(DoneStatus::TooLong), Err(e));
        }
        if a.scheme != self.scheme.wire_id() || a.symbol != m.handle.payload() {
            let e = TransferError::Refused { seq, scheme: self.scheme.name() };
            return self.end(now, i, Some(DoneStatus::Refused), Err(e));
        }
        let payload = m.handle.payload();
        let spec = MessageSpec {
            seq,
            bytes: a.bytes,
            packets: a.bytes.div_ceil(u64::from(payload)) as u32,
            payload,
            channels: self.channels,
            per_chunk: self.per_chunk as u8,
            extra: m.handle.extra_packets(),
            first_extra: m.handle.first_extra(),
        };
        self.pace = a.pace;
        let plan = Plan { k: a.k, m: a.m, interleave: a.interleave };
        let scheme = match self.scheme.receiver(&spec, &plan, &self.conditions(a.pace)) {
            Ok(scheme) => scheme,
            Err(_) => return self.qp.violated("an announced code outside its limits"),
        };
        let parity = scheme.stripes().map_or(0, |s| s.parity_packets());
        let m = &mut self.posted[i];
        m.message = Some(Announced {
            bytes: a.bytes,
            user: a.user,
            arrived: Arrived::new(spec.packets),
            parity: Arrived::part(spec.first_extra / self.per_chunk.max(1), parity),
            seen: Seen::default(),
            ripe: None,
            pace: a.pace,
            spec,
            scheme,
            behind: false,
            solving: None,
            solves: false,
            pacer: ReportPacer::new(),
            progress_at: now,
        });
    }

    /// Looks at the bitmaps of messages that may have moved, and ends those that are whole or given up.
    fn follow(&mut self, now: Nanos, closed: Seq) {
        let (patience, carried) = (self.patience(), self.qp.path_payload());
        self.marks.clear();
        self.marks.extend((0..self.channels).filter_map(|ch| self.qp.progress(Channel(ch)).map(|p| p.any)));
        // Messages are injected oldest first: what an older one does is progress of all behind it.
        let (mut i, mut progress_at) = (0, Nanos::ZERO);
        let mut first = true;
        let mut c = self.conditions(0);
        let settles = if self.channels > 1 { Nanos(c.rtt.0 / 4) } else { Nanos::ZERO };
        while i < self.posted.len() {
            let m = &mut self.posted[i];
            let seq = m.seq;
            let outcome = m.message.as_mut().and_then(|a| {
                c.packet_time_ps = a.pace;
                let outcome = a.follow(now, seq, &m.handle, &self.marks, &c, (first, settles));
                let ended = matches!(outcome, Some(Outcome::Whole | Outcome::Solvable));
                if ended || a.ripe.is_some() {
                    let to = if ended { Some(a.arrived.covered()) } else { a.ripe };
                    to.into_iter().for_each(|to| a.seen.count(&a.arrived, to, &mut self.seen));
                }
                let solved = outcome == Some(Outcome::Solvable)
                    && a.solve(now, &m.handle, &*self.scheme, &*self.coder);
                if solved { Some(Outcome::Whole) } else { outcome }
            });
            first &= m.message.is_none();
            progress_at = m.message.as_ref().map_or(progress_at, |a| a.progress_at.max(progress_at));
            if outcome == Some(Outcome::Whole) {
                let Some(a) = &m.message else { return };
                let whole = (seq, a.bytes as usize, a.user);
                self.end(now, i, Some(DoneStatus::Whole), Ok(whole));
            } else if seq.before(closed) {
                // An honest sender closes only after our DONE, unless it gives up.
                let e = m.given_up(carried);
                self.end(now, i, None, Err(e));
            } else if let Some(a) = &m.message
                && now.since(progress_at) >= patience
            {
                let e = TransferError::Stalled {
                    operation: "recv",
                    seq,
                    idle: now.since(progress_at),
                    packets: a.arrived.total(),
                    arrived: a.arrived.count(),
                    repairs: 0,
                    rtt: self.qp.rtt(),
                };
                self.end(now, i, Some(DoneStatus::Cancelled), Err(e));
            } else {
                i += 1;
            }
        }
    }

    /// A round trip longer than the sender's, who learns of progress later and has more to say about the lack of it.
    fn patience(&self) -> Nanos {
        self.progress_deadline + self.qp.rtt()
    }

    /// Fixes the outcome of a posted receive; `tell` is repeated to the peer until it closed the message.
    fn end(
        &mut self,
        now: Nanos,
        i: usize,
        tell: Option<DoneStatus>,
        outcome: Result<(Seq, usize, Option<u32>), TransferError>,
    ) {
        let Some(m) = self.posted.remove(i) else { return };
        if let Some(next) = self.posted.iter_mut().skip(i).find_map(|m| m.message.as_mut()) {
            next.progress_at = now;
        }
        if let Some(status) = tell {
            let at = self.done.partition_point(|(seq, ..)| seq.before(m.seq));
            self.done.insert(at, (m.seq, status, DoneRepeater::new(now)));
        }
        self.ending.push(Ending { retire: m.handle.complete(), cell: m.cell, outcome });
    }

    fn report(&mut self, now: Nanos, stats: &mut ConnectionStats) {
        let rtt = self.qp.rtt();
        self.scratch.clear();
        let mut c = self.conditions(0);
        let mut spoke = false;
        for m in &mut self.posted {
            let Some(a) = m.message.as_mut().filter(|a| a.pacer.due(now) && a.solving.is_none()) else {
                continue;
            };
            c.packet_time_ps = a.pace;
            match a.scheme.overdue(now, &c) {
                0 => a.arrived.recheck(&m.handle, 4 * RECHECK),
                end => {
                    a.arrived.recheck_below(&m.handle, end, 16 * RECHECK);
                    a.arrived.recheck(&m.handle, RECHECK)
                }
            };
            let mut budget = a.pacer.budget();
            let mut part = 0;
            while budget >= MIN_REPORT {
                if MAX_UPPER - self.scratch.len() < MIN_REPORT {
                    self.qp.post_datagram(&self.scratch);
                    self.scratch.clear();
                }
                let room = MAX_UPPER - self.scratch.len();
                let view = View { data: &a.arrived, parity: &a.parity };
                let mut encoder = Encoder::new(&mut self.scratch, room);
                match a.scheme.report(now, &view, &c, part) {
                    None => break,
                    Some(Say::Status(s)) => {
                        let span = Span { seq: m.seq, base: s.base, from: s.from, to: s.to };
                        let Ok(r) = encoder.report(span, s.missing, budget) else { break };
                        a.scheme.reported(r.to);
                        budget -= r.bytes;
                    }
                    Some(Say::Want(ranges)) => {
                        let (named, bytes) = encoder.want(m.seq, ranges, budget);
                        if named == 0 {
                            break;
                        }
                        a.scheme.named(named);
                        budget -= bytes;
                    }
                }
                part += 1;
                stats.reports += 1;
            }
            spoke = true;
            a.pacer.sent(now, rtt);
        }
        if spoke && now.since(self.told.1) >= Nanos(rtt.0 / 16) {
            self.tell_loss(now);
        }
        if !self.scratch.is_empty() {
            self.qp.post_datagram(&self.scratch);
        }
    }

    /// Adds what the path lost to what is being written, when that is news and there is room.
    fn tell_loss(&mut self, now: Nanos) {
        let room = MAX_UPPER - self.scratch.len();
        if self.seen != self.told.0 && Encoder::new(&mut self.scratch, room).loss(&self.seen) {
            self.told = (self.seen, now);
        }
    }

    fn say_done(&mut self, now: Nanos, stats: &mut ConnectionStats) {
        if !self.done.iter().any(|(.., r)| r.due(now)) {
            return;
        }
        let rtt = self.qp.rtt();
        let mut due = self.done.iter_mut().filter(|(.., r)| r.due(now)).peekable();
        while due.peek().is_some() {
            self.scratch.clear();
            let entries = due.by_ref().map(|(seq, status, repeat)| {
                repeat.sent(now, rtt);
                (*seq, *status)
            });
            let written = Encoder::new(&mut self.scratch, MAX_UPPER).done(entries);
            stats.dones += written as u64;
            let room = MAX_UPPER - self.scratch.len();
            // With every DONE: of short messages there is no report.
            if written > 0 && Encoder::new(&mut self.scratch, room).loss(&self.seen) {
                self.told = (self.seen, now);
            }
            if written == 0 || !self.qp.post_datagram(&self.scratch) {
                return;
            }
        }
    }

    /// Hands out the buffers that came back.
    fn collect(&mut self, stats: &mut ConnectionStats, wakers: &mut Vec<Waker>) {
        self.ending.retain_mut(|e| {
            let Some(back) = e.retire.try_take() else { return true };
            let result = match (back, &e.outcome) {
                (Ok(buf), Ok((seq, len, user))) => {
                    stats.received += 1;
                    Ok(Received { seq: *seq, buf, len: *len, user: *user })
                }
                (Ok(buf), Err(why)) => Err(RecvError { why: why.clone(), buf: Some(buf) }),
                (Err(why), _) => Err(RecvError { why: why.into(), buf: None }),
            };
            e.cell.finish(result, wakers);
            false
        });
    }

    fn wake_at(&self) -> Option<Nanos> {
        // While it is solved, nothing else of it is looked at.
        let wanted = |a: &Announced| match a.solving {
            Some(_) => [a.solves.then_some(Nanos::ZERO), None],
            None => [a.pacer.wake_at(), a.scheme.wake_at().filter(|_| !a.behind)],
        };
        let posted = self.posted.iter().filter_map(|m| m.message.as_ref()).flat_map(wanted);
        let oldest = self.posted.iter().find_map(|m| m.message.as_ref());
        let stalled = oldest.map(|a| a.progress_at + self.patience());
        let done = self.done.iter().filter_map(|(.., r)| r.wake_at());
        posted.flatten().chain(stalled).chain(done).min()
    }
}

impl Incoming {
    /// Why its sender closed it before it was whole, where the path carries packets of `carried` bytes: what does not fit it the
    /// sender does not begin.
    fn given_up(&self, carried: u32) -> TransferError {
        let (seq, was) = (self.seq, self.handle.payload());
        let packet = self.message.as_ref().map_or(was, |a| largest_packet(&a.spec));
        if packet > carried {
            TransferError::PathMtu { seq, was, now: carried }
        } else {
            TransferError::CancelledBySender { seq }
        }
    }
}

impl Announced {
    /// Takes what arrived since the last look. None when nothing can have changed. A message behind others may not have begun
    /// to leave: as long as nothing of it arrived, time means nothing to it.
    fn follow(
        &mut self,
        now: Nanos,
        seq: Seq,
        handle: &RecvHandle,
        marks: &[Mark],
        c: &Conditions,
        (first, settles): (bool, Nanos),
    ) -> Option<Outcome> {
        let a = &mut self.arrived;
        let (first_extra, stripes) = (self.spec.first_extra, self.scheme.stripes());
        // How far the sender has come, in data and in extra packets. Extra packets may leave between the data.
        let high = marks.iter().map(|m| match (m.seq.serial_cmp(seq), m.offset.0.checked_sub(first_extra)) {
            (std::cmp::Ordering::Less, _) => (0, 0),
            (std::cmp::Ordering::Equal, None) => (m.offset.0 + 1, 0),
            (std::cmp::Ordering::Equal, Some(e)) => (stripes.map_or(0, |s| s.sent_before(e)), e + 1),
            (std::cmp::Ordering::Greater, _) => (u32::MAX, u32::MAX),
        });
        let (high, extra_high) = high.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
        self.ripe = None;
        if self.solving.is_some() {
            return Some(Outcome::Solvable);
        }
        self.behind = high == 0 && a.total() > 0 && !first;
        if self.behind {
            return None;
        }
        let before = a.count() + self.parity.count();
        // Data that was asked for comes behind parity, and moves no mark.
        a.update(handle, high.max(self.scheme.asked()));
        self.parity.update(handle, extra_high);
        if a.covered() == a.total() && !a.missing().is_empty() {
            a.recheck(handle, RECHECK);
            self.parity.recheck(handle, RECHECK);
        }
        self.ripe = self.seen.ripe(now, a.covered(), settles);
        if let Some(to) = self.ripe.filter(|_| settles > Nanos::ZERO) {
            // What came late, on another channel, is not lost.
            a.recheck_below(handle, to, 16 * RECHECK);
        }
        let fresh = u64::from((a.count() + self.parity.count()).saturating_sub(before));
        if fresh > 0 {
            self.progress_at = now;
            self.pacer.arrived(fresh, fresh * u64::from(self.spec.payload));
        }
        self.pacer.set_missing(!a.missing().is_empty());
        let view = View { data: &self.arrived, parity: &self.parity };
        let outcome = self.scheme.on_progress(now, &view, c);
        self.arrived.forget_found();
        self.parity.forget_found();
        self.pacer.set_urgent(self.scheme.urgent());
        Some(outcome)
    }

    /// Computes what is missing, a little at a time; true when it is done.
    fn solve(&mut self, now: Nanos, handle: &RecvHandle, scheme: &dyn Scheme, coder: &dyn Coder) -> bool {
        let (Some(stripes), Some(data), Some(extra)) =
            (self.scheme.stripes(), handle.data_slice(), handle.extra_slice())
        else {
            return false;
        };
        if self.solving.is_none() {
            let view = View { data: &self.arrived, parity: &self.parity };
            let left = self.scheme.shortages(&view);
            self.solving = Solving::new(&self.spec, stripes, scheme.code(), left).ok();
        }
        let Some(solving) = &mut self.solving else { return false };
        // SAFETY: the handle holds the receive armed; the shortages are from its own bitmap.
        let done = unsafe { solving.step(coder, data, extra) };
        // A coder that refuses is no progress: the receive stalls, and says so at its deadline.
        self.solves = done.is_ok();
        if self.solves {
            self.progress_at = now;
        }
        done.unwrap_or(false)
    }
}
