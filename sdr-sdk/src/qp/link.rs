//! One queue pair's relation to its peer: when a control datagram is due, the round-trip time, life and death.
//!
//! It decides when; `qp/core.rs` builds the datagrams. Every fact is cumulative and repeated until the peer shows that it
//! has it, so that each kind may be lost. Invariant: a datagram is answered by at most one datagram, and only when
//! something is owed.

use crate::control::{CloseReason, Header};
use crate::qp::cts::CtsRepeater;
use crate::rtt::RttEstimator;
use crate::types::{Nanos, Seq};

/// Why a queue pair no longer works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// This side closed it.
    #[error("closed here")]
    Here,
    /// The peer closed it.
    #[error("closed by the peer: {0:?}")]
    Peer(CloseReason),
    /// Nothing was heard for too long while something was posted.
    #[error("peer silent for {silent} (limit {limit}, RTT {rtt})")]
    PeerSilent {
        /// Time since the last datagram or packet.
        silent: Nanos,
        /// max(3 s, 10 RTT).
        limit: Nanos,
        /// Smoothed round-trip time.
        rtt: Nanos,
    },
    /// The peer broke the protocol.
    #[error("peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// The engine lost its workers.
    #[error("engine failed with code {0}")]
    Engine(u32),
    /// The fabric lost the queues.
    #[error("queues failed with provider code {0}")]
    Queue(u32),
}

/// Shortest time between two bare answers.
const MIN_ANSWER: Nanos = Nanos::from_micros(20);

pub(crate) struct PeerLink {
    pub(crate) rtt: RttEstimator,
    closed: Option<Closed>,
    /// A CLOSE has to leave, once, and again for each datagram that comes in.
    close_owed: bool,
    /// Newest clock value of the peer, and when it came.
    peer_clock: Option<(Nanos, Nanos)>,
    last_heard: Nanos,
    /// When `due` was last asked.
    last_run: Nanos,
    started: bool,
    /// Something was posted when `due` was last asked.
    busy: bool,
    cts: CtsRepeater,
    /// Facts changed, or the peer asked for them.
    owed: bool,
    /// The peer showed that it lacks what was already told: no hurry, it may be on its way.
    repeat_owed: bool,
    probe_owed: bool,
    last_sent: Nanos,
    next_probe: Nanos,
}

/// What is posted, as far as the link's timers depend on it.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Something is posted: keep-alives run and silence is an error.
    pub(crate) busy: bool,
    /// One past our newest grant.
    pub(crate) granted: Seq,
}

impl PeerLink {
    pub(crate) fn new(first_grant: Seq, initial_rtt: Nanos) -> Self {
        Self {
            rtt: RttEstimator::new(initial_rtt),
            closed: None,
            close_owed: false,
            peer_clock: None,
            last_heard: Nanos::ZERO,
            last_run: Nanos::ZERO,
            started: false,
            busy: false,
            cts: CtsRepeater::new(first_grant),
            owed: true,
            repeat_owed: false,
            probe_owed: true,
            last_sent: Nanos::ZERO,
            next_probe: Nanos::ZERO,
        }
    }

    pub(crate) fn closed(&self) -> Option<Closed> {
        self.closed
    }

    pub(crate) fn close(&mut self, why: Closed) {
        if self.closed.is_none() {
            self.closed = Some(why);
            self.close_owed = !matches!(why, Closed::Peer(_));
        }
    }

    fn reason(&self) -> Option<CloseReason> {
        Some(match self.closed? {
            Closed::Here | Closed::Peer(_) => CloseReason::Normal,
            Closed::PeerSilent { .. } => CloseReason::PeerSilent,
            Closed::Protocol(_) => CloseReason::ProtocolViolation,
            Closed::Queue(_) | Closed::Engine(_) => CloseReason::Internal,
        })
    }

    /// Facts changed: tell the peer soon.
    pub(crate) fn owe(&mut self) {
        self.owed = true;
    }

    /// Ask the peer for an answer at once, with the next datagram.
    pub(crate) fn ask(&mut self) {
        self.probe_owed = true;
    }

    /// Tell the peer again what it seems to lack, unless it was told just now.
    pub(crate) fn owe_again(&mut self) {
        self.repeat_owed = true;
    }

    /// When a bare answer may leave, if one is owed.
    fn answer_at(&self) -> Option<Nanos> {
        let repeat = self.rtt.srtt().mul_div(1, 16).max(MIN_ANSWER);
        let wait = if self.owed { MIN_ANSWER } else { repeat };
        (self.owed || self.repeat_owed).then(|| self.last_sent + wait)
    }

    fn keep_alive(&self) -> Nanos {
        self.rtt.srtt().mul_div(1, 2).max(Nanos::from_millis(150))
    }

    fn death(&self) -> Nanos {
        self.rtt.srtt().mul_div(10, 1).max(Nanos::from_secs(3))
    }

    /// A packet or datagram came in.
    pub(crate) fn heard(&mut self, now: Nanos) {
        self.last_heard = now;
    }

    /// Takes a verified header. False when it claims what cannot be.
    pub(crate) fn on_header(&mut self, now: Nanos, h: &Header, granted: Seq) -> bool {
        self.heard(now);
        if self.peer_clock.is_none_or(|(clock, _)| clock < h.sent_at) {
            self.peer_clock = Some((h.sent_at, now));
        }
        if let Some((echo, hold)) = h.echo {
            self.rtt.on_echo(now, echo, hold);
        }
        self.cts.grant(granted);
        if !self.cts.echo(h.grants_seen) {
            return false;
        }
        self.owed |= h.reply_wanted;
        if self.closed.is_some() {
            self.close_owed = h.close.is_none();
        } else if let Some(reason) = h.close {
            self.close(Closed::Peer(reason));
        }
        true
    }

    /// First seq of the CTS entries that are due, if any are.
    pub(crate) fn cts_from(&mut self, now: Nanos, load: Load) -> Option<Seq> {
        self.cts.grant(load.granted);
        self.cts.first(now).filter(|_| self.closed.is_none())
    }

    /// Advances the timers; true when a datagram is due now, even without an upper payload.
    pub(crate) fn due(&mut self, now: Nanos, load: Load) -> bool {
        if !self.started {
            (self.started, self.last_heard, self.next_probe, self.last_run) = (true, now, now, now);
        }
        // Time in which this side did not run, or asked for nothing, is not the peer's silence.
        let stood_still = now.since(self.last_run).since(self.keep_alive());
        (self.last_heard, self.last_run) = ((self.last_heard + stood_still).min(now), now);
        if self.closed.is_some() {
            return self.close_owed;
        }
        // Silence counts only from when something was posted; nobody asks while nothing is.
        if !std::mem::replace(&mut self.busy, load.busy) {
            self.last_heard = now;
        }
        if load.busy {
            let (silent, limit) = (now.since(self.last_heard), self.death());
            if silent >= limit {
                self.close(Closed::PeerSilent { silent, limit, rtt: self.rtt.srtt() });
                return true;
            }
            if now >= self.next_probe {
                self.probe_owed = true;
            }
        }
        let answer = self.answer_at().is_some_and(|t| t <= now);
        answer || self.probe_owed || self.cts_from(now, load).is_some()
    }

    /// When `due` has to be asked next.
    pub(crate) fn wake_at(&self, now: Nanos, load: Load) -> Option<Nanos> {
        if self.closed.is_some() || !self.started {
            return (self.close_owed || !self.started).then_some(now);
        }
        let answer = self.answer_at();
        let life = load.busy.then(|| self.next_probe.min(self.last_heard + self.death()));
        [answer, life, self.cts.wake_at()].into_iter().flatten().min()
    }

    /// Fills the link's part of a header, as if it leaves now.
    pub(crate) fn stamp(&mut self, now: Nanos, h: &mut Header) {
        h.sent_at = now;
        h.echo = self.peer_clock.map(|(clock, came)| (clock, now.since(came)));
        h.reply_wanted = self.probe_owed;
        h.close = self.reason();
    }

    /// The datagram left, with that many CTS entries.
    pub(crate) fn sent(&mut self, now: Nanos, entries: usize) {
        if self.probe_owed {
            self.next_probe = now + self.keep_alive();
        }
        (self.owed, self.repeat_owed, self.probe_owed, self.close_owed) = (false, false, false, false);
        self.last_sent = now;
        self.cts.sent(now, self.rtt.srtt(), entries as u64);
    }
}
