//! The sending direction: announces messages, injects what their schemes ask for at the connection's pace, ends them
//! when the peer says so.
//!
//! It uses the queue pair's public calls alone. Invariant: a message's first packet never leaves before its ANNOUNCE.

use crate::connection::coding::Parity;
use crate::connection::frames::{Announce, Encoder, Frame, Frames, MAX_ANNOUNCE, Status as DoneStatus};
use crate::connection::loss_meter::LossMeter;
use crate::connection::pacing::Pacer;
use crate::connection::scratch::Scratch;
use crate::connection::transfer::{Cell, Delivered, SendResult, TransferError};
use crate::connection::{ConnectionConfig, ConnectionStats, SendRequest, largest_packet};
use crate::control::MAX_UPPER;
use crate::ec::Coder;
use crate::memory::SendBuf;
use crate::qp::{NextGrant, PostError, SendQp, Stream};
use crate::reliability::{
    Channels, Conditions, Loss, MessageSpec, Missing, Plan, Scheme, SchemeSender, SendRun, Status, Unfinished,
};
use crate::repeat::AnnounceRepeater;
use crate::types::{Nanos, PacketOffset, Seq};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

/// Runs that may wait at the queue pair before injection pauses.
const QUEUED_RUNS: usize = 32;

/// Without a pace, bytes sent for the first time that no report has covered yet: half of what a socket buffer holds by
/// default. A long path needs a rate to be filled.
const UNSEEN: u64 = 4 << 20;

/// A message whose peer says nothing new for so long, and for four round trips, has its packets' size doubted.
const DOUBT: Nanos = Nanos::from_millis(200);

/// Waiting messages that count as part of a stream.
const MOST_BEHIND: usize = 256;

/// A message that has its number.
struct Outgoing {
    seq: Seq,
    stream: Stream,
    buf: SendBuf,
    spec: MessageSpec,
    scheme: Box<dyn SchemeSender>,
    parity: Option<Parity>,
    announce: Announce,
    repeat: AnnounceRepeater,
    cell: Arc<Cell<SendResult>>,
    packets: u64,
    repairs: u64,
    parity_packets: u64,
    /// One past the furthest packet sent.
    frontier: u32,
    /// Best that any report said: packets before it arrived, and how far the peer has looked.
    reported: (u32, u32),
    progress_at: Nanos,
}

/// A message without its number. Without a request its transfer was dropped: it only uses up a number.
struct Waiting {
    request: Option<SendRequest>,
    since: Nanos,
}

pub(super) struct Sending {
    qp: SendQp,
    scheme: Arc<dyn Scheme>,
    /// What the path carries, see [`Path`](crate::qp::Path).
    payload: u32,
    pacer: Pacer,
    channels: Channels,
    /// What the peer saw of the path, and what is known of it without.
    losses: LossMeter,
    known_loss: Option<Loss>,
    scratch_pool: Scratch,
    coder: Arc<dyn Coder>,
    waiting: VecDeque<Waiting>,
    active: VecDeque<Outgoing>,
    grant_deadline: Nanos,
    progress_deadline: Nanos,
    scratch: Vec<u8>,
    /// The queue pair has as many runs as it should hold; when some left, the fabric says so.
    full: bool,
    now: Nanos,
    conditions: Option<Conditions>,
}

impl Sending {
    pub(super) fn new(qp: SendQp, config: &ConnectionConfig) -> Self {
        let payload = qp.payload();
        Self {
            scheme: config.scheme.clone(),
            payload,
            pacer: Pacer::new(config, payload, qp.path().rtt),
            channels: Channels::new(qp.channels()),
            losses: LossMeter::default(),
            known_loss: config.loss,
            scratch_pool: Scratch::new(config.parity_memory(qp.rtt())),
            coder: config.coder.clone(),
            waiting: VecDeque::new(),
            active: VecDeque::new(),
            grant_deadline: config.grant_deadline,
            progress_deadline: config.progress_deadline,
            scratch: Vec::with_capacity(MAX_UPPER),
            full: false,
            now: Nanos::ZERO,
            conditions: None,
            qp,
        }
    }

    pub(super) fn qp(&self) -> &SendQp {
        &self.qp
    }

    /// The path as it was seen last.
    pub(super) fn conditions(&self) -> Option<Conditions> {
        self.conditions
    }

    pub(super) fn last_poll(&self) -> Nanos {
        self.now
    }

    /// Nothing accepted is unfinished.
    pub(super) fn idle(&self) -> bool {
        self.waiting.iter().all(|w| w.request.is_none()) && self.active.is_empty()
    }

    /// The oldest message whose outcome is not known.
    pub(super) fn first_open(&self) -> Seq {
        self.active.front().map_or(self.qp.next_seq(), |m| m.seq)
    }

    pub(super) fn enqueue(&mut self, now: Nanos, requests: &mut VecDeque<SendRequest>) {
        self.waiting.extend(requests.drain(..).map(|request| Waiting { request: Some(request), since: now }));
    }

    /// Messages without a number.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Ends the messages whose transfer was dropped, and lets go of their memory. What has its number is given up, what
    /// waits for one keeps its place; the peer sees either closed.
    pub(super) fn cancel_dropped(&mut self) {
        for w in &mut self.waiting {
            w.request.take_if(|r| r.cell.cancelled());
        }
        let (gone, kept) = std::mem::take(&mut self.active).into_iter().partition(|m| m.cell.cancelled());
        let gone: VecDeque<Outgoing> = gone;
        self.active = kept;
        gone.into_iter().for_each(|m| drop(m.stream.abort()));
    }

    /// Ends everything with an error.
    pub(super) fn fail(&mut self, why: &TransferError, wakers: &mut Vec<Waker>) {
        for request in self.waiting.drain(..).filter_map(|w| w.request) {
            request.cell.finish(Err(why.clone()), wakers);
        }
        for m in self.active.drain(..) {
            m.cell.finish(Err(why.clone()), wakers);
            m.stream.abort();
        }
    }

    pub(super) fn poll(
        &mut self,
        now: Nanos,
        stats: &mut ConnectionStats,
        wakers: &mut Vec<Waker>,
    ) -> Option<Nanos> {
        self.now = now;
        let path = self.qp.path();
        self.pacer.heard(now, path.sample);
        let mut c = Conditions {
            rtt: path.rtt,
            min_rtt: path.min_rtt,
            packet_time_ps: self.pacer.packet_ps(),
            room: 0,
            channels: self.channels.view(),
            loss: self.known_loss.unwrap_or_else(|| self.losses.loss()),
            spare_parity: self.pacer.spare_parity(),
            unfinished: Unfinished::default(),
        };
        self.conditions = Some(c);
        self.take_frames(now, &c, stats, wakers);
        self.fit_path(now, &c, path.payload, wakers);
        c.packet_time_ps = self.pacer.packet_ps();
        c.room = self.room();
        self.start(now, &c, wakers);
        self.expire(now, &c, wakers);
        self.announce(now, &c, stats);
        if self.pacer.probe(now) {
            self.qp.probe();
        }
        self.channels.poll(now, c.rtt);
        self.inject(now, &mut c, path.queued_runs, stats);
        self.encode_ahead();
        self.wake_at(&c)
    }

    /// Messages that are not done, with the next one of `bytes`; those behind it are taken to be like it.
    fn unfinished(&self, bytes: u64) -> Unfinished {
        let active: u64 = self.active.iter().map(|m| m.spec.bytes).sum();
        let waiting = self.waiting.len().min(MOST_BEHIND);
        let messages = (self.active.len() + waiting) as u32;
        Unfinished { messages, bytes: active + bytes.saturating_mul(waiting as u64) }
    }

    fn take_frames(
        &mut self,
        now: Nanos,
        c: &Conditions,
        stats: &mut ConnectionStats,
        wakers: &mut Vec<Waker>,
    ) {
        while let Some(bytes) = self.qp.take_datagram() {
            for frame in Frames::new(&bytes) {
                match frame {
                    Ok(Frame::Report(r)) => {
                        let Some(i) = self.index(r.span.seq) else { continue };
                        let m = &mut self.active[i];
                        m.repeat.mentioned();
                        let best = (m.reported.0.max(r.span.base), m.reported.1.max(r.span.to));
                        if best != m.reported {
                            (m.reported, m.progress_at) = (best, now);
                        }
                        let missing = Missing::Reported(r.missing());
                        let status = Status { base: r.span.base, from: r.span.from, to: r.span.to, missing };
                        m.scheme.on_status(now, &status, c);
                        m.scheme.tell(now, c.rtt, &mut self.channels);
                    }
                    Ok(Frame::Done(list)) => {
                        for (seq, status) in list {
                            self.done(now, seq, status, stats, wakers);
                        }
                    }
                    Ok(Frame::Want(w)) => {
                        let Some(i) = self.index(w.seq) else { continue };
                        let m = &mut self.active[i];
                        m.repeat.mentioned();
                        m.scheme.on_want(now, &mut w.ranges(), c);
                    }
                    Ok(Frame::Loss(count)) => {
                        self.losses.told(&count);
                        self.pacer.told(now, &count);
                    }
                    Ok(Frame::Announce(_)) | Err(_) => stats.malformed += 1,
                }
            }
        }
    }

    fn index(&self, seq: Seq) -> Option<usize> {
        self.active.binary_search_by(|m| m.seq.serial_cmp(seq)).ok()
    }

    fn done(
        &mut self,
        now: Nanos,
        seq: Seq,
        status: DoneStatus,
        stats: &mut ConnectionStats,
        wakers: &mut Vec<Waker>,
    ) {
        let index = self.index(seq);
        let Some(m) = index.and_then(|i| self.active.remove(i)) else {
            // Said again: the peer lacks our `closed`. Or it is not started; then the peer says it again.
            return self.qp.repeat_facts();
        };
        // Who was behind it had to wait until now.
        if let Some(next) = index.and_then(|i| self.active.get_mut(i)) {
            next.progress_at = now;
        }
        let result = match status {
            DoneStatus::Whole => {
                stats.delivered += 1;
                let (packets, repairs, parity) = (m.packets, m.repairs, m.parity_packets);
                Ok(Delivered { seq, bytes: m.spec.bytes, packets, repairs, parity, at: now })
            }
            DoneStatus::Cancelled => Err(TransferError::CancelledByReceiver { seq }),
            DoneStatus::TooLong => {
                Err(TransferError::TooLong { seq, len: m.spec.bytes, posted: m.stream.grant().bytes })
            }
            DoneStatus::Refused => Err(TransferError::Refused { seq, scheme: self.scheme.name() }),
        };
        m.cell.finish(result, wakers);
        m.stream.abort();
    }

    /// Gives waiting messages their number, as far as the peer has granted receives.
    fn start(&mut self, now: Nanos, c: &Conditions, wakers: &mut Vec<Waker>) {
        while let (Some(w), Some(grant)) = (self.waiting.front(), self.qp.next_grant()) {
            if let Some(r) = w.request.as_ref().filter(|r| !self.qp.accepts(&r.buf)) {
                let e = TransferError::NotPostable(PostError::Foreign(()).to_string());
                r.cell.finish(Err(e), wakers);
                self.waiting.pop_front();
                continue;
            }
            let len = w.request.as_ref().map_or(0, |r| r.buf.len() as u64);
            // Too long for the grant: the number is used up without packets, and both ends learn why.
            let open = if len > grant.bytes { 0 } else { len };
            let spec = self.spec(&grant, open);
            let c = &Conditions { unfinished: self.unfinished(open), ..*c };
            // Foreign code: when it panics, the request still waits and is failed with the others.
            let mut scheme = self.scheme.sender(&spec, c);
            let parity = self.parity(&spec, &*scheme);
            if parity.is_none() && scheme.stripes().is_some_and(|s| s.rows > 0) {
                scheme = self.scheme.sender(&MessageSpec { extra: 0, ..spec }, c);
            }
            let plan = scheme.plan();
            let Ok(stream) = self.qp.stream_start(open, None) else { return };
            let Some(Waiting { request, .. }) = self.waiting.pop_front() else { return };
            if let Some(request) = request
                && let Some(m) = self.begin(now, request, stream, grant, (scheme, plan, parity), wakers)
            {
                self.active.push_back(m);
            }
            // Who waits next has waited for us until now.
            if let Some(next) = self.waiting.front_mut() {
                next.since = now;
            }
        }
    }

    fn spec(&self, grant: &NextGrant, bytes: u64) -> MessageSpec {
        MessageSpec {
            seq: grant.seq,
            bytes,
            packets: bytes.div_ceil(grant.payload as u64) as u32,
            payload: grant.payload,
            channels: self.qp.channels(),
            per_chunk: grant.per_chunk.max(1),
            extra: grant.extra,
            first_extra: grant.first_extra(),
        }
    }

    fn begin(
        &self,
        now: Nanos,
        request: SendRequest,
        stream: Stream,
        grant: NextGrant,
        (scheme, plan, parity): (Box<dyn SchemeSender>, Plan, Option<Parity>),
        wakers: &mut Vec<Waker>,
    ) -> Option<Outgoing> {
        let (seq, bytes) = (grant.seq, request.buf.len() as u64);
        if grant.withdrawn {
            request.cell.finish(Err(TransferError::CancelledByReceiver { seq }), wakers);
            return None;
        }
        let too_long = bytes > grant.bytes;
        if too_long {
            let e = TransferError::TooLong { seq, len: bytes, posted: grant.bytes };
            request.cell.finish(Err(e), wakers);
        }
        let spec = self.spec(&grant, bytes);
        if largest_packet(&spec) > self.payload && !too_long {
            let e = TransferError::PathMtu { seq, was: grant.payload, now: self.payload };
            request.cell.finish(Err(e), wakers);
            return None;
        }
        let spec = MessageSpec { packets: if too_long { 0 } else { spec.packets }, ..spec };
        let announce = Announce {
            seq,
            bytes,
            scheme: self.scheme.wire_id(),
            k: plan.k,
            m: plan.m,
            interleave: plan.interleave,
            symbol: spec.payload,
            pace: self.pacer.promised_ps(),
            user: request.user,
        };
        Some(Outgoing {
            seq,
            stream,
            spec,
            parity,
            scheme,
            announce,
            repeat: AnnounceRepeater::new(now),
            buf: request.buf,
            cell: request.cell,
            packets: 0,
            repairs: 0,
            parity_packets: 0,
            frontier: 0,
            reported: (0, 0),
            progress_at: now,
        })
    }

    /// Memory for what a scheme may send beside the message; none when there is none to be had.
    fn parity(&mut self, spec: &MessageSpec, scheme: &dyn SchemeSender) -> Option<Parity> {
        let stripes = scheme.stripes().filter(|s| s.rows > 0)?;
        let qp = &self.qp;
        let memory = self.scratch_pool.take(Parity::bytes(spec, &stripes), |len| qp.register(len))?;
        Parity::new(spec, stripes, self.scheme.code(), memory).ok()
    }

    /// Computes parity that will be needed, a little at a time.
    fn encode_ahead(&mut self) {
        for m in &mut self.active {
            if let Some(p) = &mut m.parity
                && p.ahead(&*self.coder, &m.buf).is_ok_and(|more| more)
            {
                return;
            }
        }
    }

    fn expire(&mut self, now: Nanos, c: &Conditions, wakers: &mut Vec<Waker>) {
        while let Some(w) = self.waiting.front() {
            let (since, waited) = (w.since, now.since(w.since));
            if waited < self.grant_deadline {
                break;
            }
            if let Some(request) = &w.request {
                let e = TransferError::NoReceive { seq: self.qp.next_seq(), waited };
                request.cell.finish(Err(e), wakers);
            }
            self.waiting.pop_front();
            // Who was behind it lacked the same receive, since the last one that was granted.
            if let Some(next) = self.waiting.front_mut() {
                next.since = next.since.max(since);
            }
        }
        // Messages are injected oldest first: what the oldest does is progress of all behind it.
        while let Some(m) = self.active.front() {
            let idle = now.since(m.progress_at);
            if idle < self.progress_deadline {
                return;
            }
            let Some(m) = self.active.pop_front() else { return };
            let e = TransferError::Stalled {
                operation: "send",
                seq: m.seq,
                idle,
                packets: m.spec.packets,
                arrived: m.reported.0,
                repairs: m.repairs,
                rtt: c.rtt,
            };
            m.cell.finish(Err(e), wakers);
            m.stream.abort();
        }
    }

    /// Doubts the packets' size where nothing new arrives, and ends what is cut too large for the path.
    fn fit_path(&mut self, now: Nanos, c: &Conditions, carried: u32, wakers: &mut Vec<Waker>) {
        if self.payload != carried {
            self.pacer.resize(carried);
            self.payload = carried;
            let (gone, kept): (VecDeque<_>, _) =
                std::mem::take(&mut self.active).into_iter().partition(|m| largest_packet(&m.spec) > carried);
            self.active = kept;
            for m in gone {
                let e = TransferError::PathMtu { seq: m.seq, was: m.spec.payload, now: carried };
                m.cell.finish(Err(e), wakers);
                m.stream.abort();
            }
            // What the others did was wait.
            self.active.iter_mut().for_each(|m| m.progress_at = now);
        }
        if let Some(m) = self.active.front().filter(|m| m.doubt_at(c) <= now) {
            self.qp.doubt_payload(now, largest_packet(&m.spec));
        }
    }

    fn announce(&mut self, now: Nanos, c: &Conditions, stats: &mut ConnectionStats) {
        let mut due = self.active.iter_mut().filter(|m| m.repeat.due(now)).peekable();
        while due.peek().is_some() {
            self.scratch.clear();
            let mut e = Encoder::new(&mut self.scratch, MAX_UPPER);
            for m in due.by_ref() {
                if !e.announce(&m.announce) {
                    break;
                }
                m.repeat.sent(now, c.rtt);
                stats.announces += 1;
                if e.room() < MAX_ANNOUNCE {
                    break;
                }
            }
            if !self.qp.post_datagram(&self.scratch) {
                return;
            }
        }
    }

    /// Hands runs to the queue pair, oldest message first, as the pace allows.
    fn inject(&mut self, now: Nanos, c: &mut Conditions, mut queued: usize, stats: &mut ConnectionStats) {
        let mut budget = 0;
        loop {
            self.full = queued >= QUEUED_RUNS;
            if self.full {
                return;
            }
            if budget == 0 {
                budget = self.pacer.budget(now, c.rtt);
            }
            if budget == 0 {
                return self.pacer.hold_back(self.has_due(now, c));
            }
            c.channels = self.channels.view();
            let mut due = self.active.iter_mut().filter(|m| m.repeat.announced());
            let next = due.find_map(|m| {
                let wanted = m.scheme.wake_at(c).is_some_and(|t| t <= now);
                let run = if wanted { m.scheme.next(now, budget, c) } else { None };
                m.scheme.tell(now, c.rtt, &mut self.channels);
                run.map(|run| (m, run))
            });
            let Some((m, run)) = next else { return self.pacer.hold_back(false) };
            let Some((first, bytes)) = m.bytes_of(&run, &*self.coder) else { return };
            // Refused only when the peer gave the receive up or the queue pair closed: the outcome is on its way.
            if m.stream.extend(PacketOffset(first), &bytes, run.channel).is_err() {
                return;
            }
            queued += 1;
            // A scheme that hands out more than it may has used up what there was.
            budget = budget.saturating_sub(run.packets);
            self.pacer.sent(now, run.packets);
            self.channels.sent(now, run.channel, c.rtt);
            if !run.repair && !run.parity {
                m.frontier = m.frontier.max(run.first + run.packets);
                c.room = c.room.saturating_sub(run.packets);
            }
            m.packets += run.packets as u64;
            stats.sent += run.packets as u64;
            if run.parity {
                m.parity_packets += run.packets as u64;
                stats.parity += run.packets as u64;
            }
            if run.repair {
                m.repairs += run.packets as u64;
                stats.repairs += run.packets as u64;
            }
        }
    }

    /// Packets that may leave for the first time.
    fn room(&self) -> u32 {
        if self.pacer.packet_ps() > 0 {
            return u32::MAX;
        }
        let unseen: u64 =
            self.active.iter().map(|m| u64::from(m.frontier.saturating_sub(m.reported.1))).sum();
        let most = (UNSEEN / u64::from(self.payload)).max(64);
        most.saturating_sub(unseen) as u32
    }

    /// Whether a scheme wants to send.
    fn has_due(&self, now: Nanos, c: &Conditions) -> bool {
        let mut announced = self.active.iter().filter(|m| m.repeat.announced());
        announced.any(|m| m.scheme.wake_at(c).is_some_and(|t| t <= now))
    }

    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        let free = self.pacer.free_at();
        let grant = self.waiting.front().map(|w| w.since + self.grant_deadline);
        let active = self.active.iter().flat_map(|m| {
            let inject = m.scheme.wake_at(c).filter(|_| !self.full).map(|t| t.max(free));
            [inject, m.repeat.wake_at()]
        });
        let stalled = self.active.front().map(|m| m.progress_at + self.progress_deadline);
        let doubt = self.active.front().filter(|m| m.packets > 0);
        let doubt = doubt.map(|m| m.doubt_at(c).max(self.now + DOUBT));
        let others = [grant, stalled, doubt, self.pacer.probe_at()];
        active.chain(others).flatten().min()
    }
}

impl Outgoing {
    /// When the size of its packets is doubted; never of those that left none.
    fn doubt_at(&self, c: &Conditions) -> Nanos {
        let patience = c.rtt.mul_div(4, 1).max(DOUBT);
        if self.packets == 0 { Nanos::MAX } else { self.progress_at + patience }
    }

    /// Number of a run's first packet in the receive, and the run's bytes. None when there is nothing to send.
    fn bytes_of(&mut self, run: &SendRun, coder: &dyn Coder) -> Option<(u32, SendBuf)> {
        if run.parity {
            let packets = run.first..run.first.checked_add(run.packets)?;
            let bytes = self.parity.as_mut()?.packets(coder, &self.buf, packets).ok()?;
            return Some((self.spec.first_extra + run.first, bytes));
        }
        let payload = u64::from(self.spec.payload);
        let start = u64::from(run.first) * payload;
        let len = (u64::from(run.packets) * payload).min(self.spec.bytes.saturating_sub(start));
        (len > 0).then(|| (run.first, self.buf.slice(start as usize, len as usize)))
    }
}
