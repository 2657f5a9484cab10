//! One queue pair inside the context's lock: both halves, the link, the mailboxes of the layer above.

use crate::control::{self, Datagram, Header};
use crate::engine::CompletionEngine;
use crate::fabric::{Fabric, QueueSpec};
use crate::qp::link::{Closed, Load, PeerLink};
use crate::qp::send_side::SendSide;
use crate::slots::RecvSlots;
use crate::types::{Nanos, QueueSet, Seq};
use std::collections::VecDeque;
use std::task::Waker;

/// Datagrams of the layer above that wait here, each way; more are dropped, as a network would.
const MAILBOX: usize = 256;

/// A datagram that the fabric had no room for is offered again after this.
const CONTROL_RETRY: Nanos = Nanos::from_micros(20);

/// Settings that the context hands down.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) lifetime: Nanos,
    pub(crate) retire_deadline: Nanos,
    pub(crate) initial_rtt: Nanos,
}

/// What a queue pair counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCounters {
    /// Packets handed to the fabric.
    pub packets_posted: u64,
    /// Control datagrams sent.
    pub control_sent: u64,
    /// Control datagrams received and understood.
    pub control_received: u64,
    /// Control datagrams that made no sense.
    pub control_malformed: u64,
    /// Datagrams of the layer above dropped because nobody fetched them.
    pub mailbox_dropped: u64,
}

pub(crate) struct QpCore {
    pub(crate) q: QueueSet,
    pub(crate) spec: QueueSpec,
    pub(crate) link: PeerLink,
    pub(crate) send: SendSide,
    pub(crate) recv: RecvSlots,
    pub(crate) counters: QpCounters,
    timing: Timing,
    pub(crate) connected: bool,
    /// Payload bytes of a packet that the path to the peer carries, and the path from it as far as it said.
    pub(crate) path_out: u32,
    pub(crate) path_in: u32,
    /// The layer above waits for the peer, even if nothing is posted here.
    pub(crate) expecting: bool,
    /// For our send half (from the peer's receive half), and for our receive half.
    pub(crate) to_send_half: VecDeque<Box<[u8]>>,
    pub(crate) to_recv_half: VecDeque<Box<[u8]>>,
    outbox: VecDeque<(bool, Box<[u8]>)>,
    scratch: Vec<u8>,
    /// The fabric had no room for a datagram.
    control_full: bool,
}

impl QpCore {
    pub(crate) fn new(
        q: QueueSet,
        spec: QueueSpec,
        send_first: Seq,
        recv_first: Seq,
        timing: Timing,
        exact_counts: bool,
    ) -> Self {
        Self {
            q,
            spec,
            link: PeerLink::new(recv_first, timing.initial_rtt),
            send: SendSide::new(q, spec, send_first, exact_counts),
            recv: RecvSlots::new(q, spec, recv_first, timing.lifetime, exact_counts),
            counters: QpCounters::default(),
            timing,
            connected: false,
            path_out: spec.payload,
            path_in: spec.payload,
            expecting: false,
            to_send_half: VecDeque::new(),
            to_recv_half: VecDeque::new(),
            outbox: VecDeque::new(),
            scratch: Vec::with_capacity(crate::fabric::MAX_CONTROL),
            control_full: false,
        }
    }

    fn load(&self) -> Load {
        // A completed receive too, until the peer said that it is closed: its slot waits for that, and a lost datagram
        // is repeated only when somebody asks.
        let unclosed = self.recv.closed().before(self.recv.granted());
        let busy = self.expecting || self.recv.armed() > 0 || unclosed || self.send.open_messages() > 0;
        Load { busy, granted: self.recv.granted() }
    }

    /// A verified control datagram came in.
    pub(crate) fn on_control(&mut self, now: Nanos, bytes: &[u8]) {
        let Ok(d) = Datagram::decode(bytes) else {
            self.counters.control_malformed += 1;
            return;
        };
        self.counters.control_received += 1;
        if !self.link.on_header(now, &d.header, self.recv.granted()) {
            return self.link.close(Closed::Protocol("it confirms grants that were never given"));
        }
        if self.link.closed().is_some() {
            return;
        }
        // Never more than before: a late datagram says what was true earlier.
        self.path_in = self.path_in.min(d.header.path.unwrap_or(u32::MAX).max(1));
        if !self.recv.on_facts(now, d.header.closed, d.header.drain) {
            return self.link.close(Closed::Protocol("it closes messages that were never granted"));
        }
        if d.entries().any(|(_, e)| !e.fits(&self.spec)) {
            return self.link.close(Closed::Protocol("it grants a receive that no message can have"));
        }
        let mut entries = d.entries().peekable();
        if entries.peek().is_some() {
            self.send.on_grants(d.first(), entries.map(|(_, e)| e));
            // New ones are to be confirmed; known ones show that the confirmation was lost.
            self.link.owe();
        }
        // Grants seen bound it: a claim beyond them names messages that were never granted here.
        let seen = self.send.granted();
        let retired = if seen.before(d.header.retired) { seen } else { d.header.retired };
        let closed = self.send.closed();
        self.send.on_retired(retired);
        if self.send.closed() != closed {
            self.link.owe();
        }
        if !d.upper.is_empty() {
            let inbox = if d.header.to_receiver { &mut self.to_recv_half } else { &mut self.to_send_half };
            if inbox.len() < MAILBOX {
                inbox.push_back(d.upper.into());
            } else {
                self.counters.mailbox_dropped += 1;
            }
        }
    }

    /// Queues a datagram of the layer above; false when too many wait.
    pub(crate) fn post_datagram(&mut self, to_receiver: bool, upper: &[u8]) -> bool {
        let room = self.outbox.len() < MAILBOX && upper.len() <= control::MAX_UPPER;
        if room {
            self.outbox.push_back((to_receiver, upper.into()));
        }
        room
    }

    /// Fabric and engine came up empty in a pass that began at `now`: slots whose time is over are free.
    pub(crate) fn drain(&mut self, now: Nanos, engine: &dyn CompletionEngine) {
        self.recv.drain(now, |g| engine.counted(self.q, g));
    }

    /// Posts what waits and sends what is due.
    pub(crate) fn flush(&mut self, now: Nanos, fabric: &mut dyn Fabric, wakers: &mut Vec<Waker>) {
        self.recv.set_lifetime(self.timing.lifetime.max(self.link.rtt.peak_rtt().mul_div(4, 1)));
        self.recv.expire(now, self.timing.retire_deadline, wakers);
        if self.link.closed().is_none() {
            while let Some((to_receiver, upper)) = self.outbox.pop_front() {
                if !self.send_control(now, fabric, to_receiver, &upper) {
                    self.outbox.push_front((to_receiver, upper));
                    break;
                }
            }
            // After the datagrams: what announces a message goes before its packets.
            let closed = self.send.closed();
            self.counters.packets_posted += self.send.flush(now, fabric);
            if self.send.closed() != closed {
                self.link.owe();
            }
        }
        // Each datagram takes as many grants as fit; the bound is what S grants need.
        for _ in 0..64 {
            let load = self.load();
            if !self.link.due(now, load) || !self.send_control(now, fabric, false, &[]) {
                break;
            }
        }
    }

    fn send_control(&mut self, now: Nanos, fabric: &mut dyn Fabric, to_receiver: bool, upper: &[u8]) -> bool {
        let load = self.load();
        let from = self.link.cts_from(now, load);
        let mut h = Header {
            to_receiver,
            reply_wanted: false,
            close: None,
            granted: load.granted,
            grants_seen: self.send.granted(),
            closed: self.send.closed(),
            retired: self.recv.retired(),
            drain: self.send.drain_statement(),
            sent_at: now,
            echo: None,
            path: (self.path_out < self.spec.payload).then_some(self.path_out),
        };
        self.link.stamp(now, &mut h);
        self.scratch.clear();
        let entries = from.into_iter().flat_map(|from| self.recv.grants(from));
        let first = from.unwrap_or(load.granted);
        let Ok(written) = control::encode(&h, first, entries, upper, &mut self.scratch) else { return true };
        self.control_full = !fabric.control(now, self.q, &self.scratch);
        if self.control_full {
            return false;
        }
        self.counters.control_sent += 1;
        self.link.sent(now, written);
        true
    }

    /// The path to the peer carries no larger packets any more.
    pub(crate) fn on_path_payload(&mut self, payload: u32) {
        if payload < self.path_out {
            self.path_out = payload;
            self.link.owe();
        }
    }

    /// The fabric is done with source memory.
    pub(crate) fn on_sent(&mut self, seq: Seq, packets: u64) {
        let closed = self.send.closed();
        self.send.on_sent(seq, packets);
        if self.send.closed() != closed {
            self.link.owe();
        }
    }

    /// The stream of a message ended.
    pub(crate) fn end_message(&mut self, seq: Seq, discard: bool) {
        let closed = self.send.closed();
        self.send.end(seq, discard);
        if self.send.closed() != closed {
            self.link.owe();
        }
    }

    /// When the fabric has what this queue pair waits for: room, or word of a receive that was completed since the context
    /// was polled.
    pub(crate) fn fabric_wake_at(&self, fabric: &dyn Fabric) -> Option<Nanos> {
        let waits = self.recv.retiring() || self.send.queued();
        if waits { fabric.wake_at() } else { None }
    }

    /// When `flush` has something to do without news.
    pub(crate) fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        let link = self.link.wake_at(now, self.load());
        let link = if self.control_full { Some(now + CONTROL_RETRY) } else { link };
        [link, self.recv.wake_at(self.timing.retire_deadline)].into_iter().flatten().min()
    }
}
