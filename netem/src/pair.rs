//! Two ends in virtual time: time moves only by [`Pair::step`], from one event to the next.
//!
//! [`QpPair`] has contexts and connected queue pairs, for tests of the SDK calls; [`Pair`] puts a connection on each end. Both
//! take any fabric whose net is a [`Net`]; the simulated one is the usual.
//! Nothing waits and nothing is skipped: an end is polled when something is due for it, and not otherwise. Invariant:
//! `now` never goes back, and does not stand still while work is said to be due.

use crate::sim::{SimConfig, SimError, SimNet};
use sdr_sdk::connection::{Connection, ConnectionConfig, ConnectionDriver};
use sdr_sdk::context::{Context, ContextConfig, OpenError, QpConfig};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::Fabric;
use sdr_sdk::qp::{ConnectError, RecvQp, SendQp};
use sdr_sdk::types::Nanos;

/// Polls of one end at one instant; more means that it asks to be polled without doing anything.
const POLLS_AN_INSTANT: u32 = 10_000;

/// Why two ends could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The net was refused.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A context or queue pair was refused.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The queue pairs do not fit together.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// What joins the fabrics of two ends.
pub trait Net {
    /// When an end has work that comes from the net; none when nothing is in flight to it.
    fn wake_at(&self, end: usize) -> Option<Nanos>;
}

impl Net for SimNet {
    fn wake_at(&self, end: usize) -> Option<Nanos> {
        self.nic_wake_at(end as u16)
    }
}

/// Two contexts over a net, one connected queue pair between them.
pub struct QpPair<N = SimNet> {
    /// Test hooks and counters of the net; end 0 is NIC 0.
    pub net: N,
    /// One context an end.
    pub contexts: [Context; 2],
    now: Nanos,
    /// When an end asked to be polled, beside what the net has for it.
    wake: [Option<Nanos>; 2],
    /// A stopped end is not polled, as a process that was stopped.
    stopped: [bool; 2],
    same_instant: u32,
    moderation: Nanos,
}

/// The halves of one end.
pub type Halves = (SendQp, RecvQp);

impl QpPair {
    /// Two ends of the same settings in a simulated net. `qp` is end 0's; end 1 has the directions exchanged.
    ///
    /// # Errors
    /// As [`PairError`] says.
    pub fn new(
        sim: SimConfig,
        context: ContextConfig,
        qp: &QpConfig,
    ) -> Result<(Self, [Halves; 2]), PairError> {
        let (net, a, b) = SimNet::pair(sim)?;
        Self::over(net, [Box::new(a), Box::new(b)], context, qp)
    }
}

impl<N: Net> QpPair<N> {
    /// Two ends on `fabrics`, which `net` joins.
    ///
    /// # Errors
    /// [`PairError`], when settings are refused.
    pub fn over(
        net: N,
        fabrics: [Box<dyn Fabric>; 2],
        context: ContextConfig,
        qp: &QpConfig,
    ) -> Result<(Self, [Halves; 2]), PairError> {
        let open = |fabric: Box<dyn Fabric>| {
            let engine = Box::new(HostEngine::new(fabric.caps().channels));
            Context::open(fabric, engine, context)
        };
        let [a, b] = fabrics;
        let contexts = [open(a)?, open(b)?];
        let mut mirrored = *qp;
        (mirrored.send_first, mirrored.recv_first) = (qp.recv_first, qp.send_first);
        let (a, b) = (contexts[0].create_qp(qp)?, contexts[1].create_qp(&mirrored)?);
        let (to_a, to_b) = (a.info().clone(), b.info().clone());
        let halves = [a.connect(&to_b)?, b.connect(&to_a)?];
        let zero = Some(Nanos::ZERO);
        let pair = Self {
            net,
            contexts,
            now: Nanos::ZERO,
            wake: [zero, zero],
            stopped: [false, false],
            same_instant: 0,
            moderation: Nanos::ZERO,
        };
        Ok((pair, halves))
    }

    /// The instant.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Stops or resumes an end.
    pub fn stop(&mut self, end: usize, stopped: bool) {
        self.stopped[end] = stopped;
        self.wake[end] = Some(self.now);
    }

    /// An end looks at what arrived so long after the first of it, and then at all of it, as a NIC that moderates its
    /// interrupts lets it. Without (the default) each arrival is seen at its instant.
    pub fn moderate(&mut self, moderation: Nanos) {
        self.moderation = moderation;
    }

    /// Calls were made on the end: it is polled at the next step.
    pub fn touch(&mut self, end: usize) {
        self.wake[end] = Some(self.now);
    }

    /// When the end has work.
    fn due(&self, end: usize) -> Option<Nanos> {
        if self.stopped[end] {
            return None;
        }
        let arrived = self.net.wake_at(end).map(|t| t + self.moderation);
        [self.wake[end], arrived].into_iter().flatten().min()
    }

    /// When anything happens next.
    pub fn next_event(&self) -> Option<Nanos> {
        [self.due(0), self.due(1)].into_iter().flatten().min()
    }

    /// Moves time to `t`, or to the next event before it, and polls the ends that have work there. `extra` runs on a
    /// polled end after its context, and says when it wants to be polled again. False when nothing is due by `t`.
    pub(crate) fn step_to(&mut self, t: Nanos, mut extra: impl FnMut(usize, Nanos) -> Option<Nanos>) -> bool {
        let Some(next) = self.next_event().filter(|&n| n <= t) else {
            self.now = self.now.max(t);
            self.same_instant = 0;
            return false;
        };
        let next = next.max(self.now);
        self.same_instant = if next == self.now { self.same_instant + 1 } else { 0 };
        assert!(self.same_instant < POLLS_AN_INSTANT, "time stands still at {}", self.now);
        self.now = next;
        for end in 0..2 {
            if self.due(end).is_some_and(|d| d <= next) {
                let timers = [self.contexts[end].poll(next), extra(end, next)];
                // `due` asks for what the net has, and may moderate it: only the end's own timers count here.
                let net = self.net.wake_at(end);
                self.wake[end] = timers.into_iter().flatten().filter(|&t| Some(t) != net).min();
            }
        }
        true
    }

    /// Moves time to the next event and lets the ends act on it; false when nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.step_to(Nanos::MAX, |_, _| None)
    }

    /// Lets everything up to `t` happen; `now` is `t` afterwards.
    pub fn run_until(&mut self, t: Nanos) {
        while self.step_to(t, |_, _| None) {}
    }
}

/// Settings of a [`Pair`].
#[derive(Clone, Default)]
pub struct PairConfig {
    /// The net.
    pub sim: SimConfig,
    /// Both contexts.
    pub context: ContextConfig,
    /// Both queue pairs; end 0's view.
    pub qp: QpConfig,
    /// Both connections.
    pub connection: ConnectionConfig,
}

/// Two ends with a connection between them.
pub struct Pair<N = SimNet> {
    /// The layer below.
    pub qps: QpPair<N>,
    /// One connection an end.
    pub connections: [Connection; 2],
    drivers: [Option<ConnectionDriver>; 2],
}

impl Pair {
    /// Two connected ends at time zero; nothing was sent yet.
    ///
    /// # Errors
    /// As [`PairError`] says.
    pub fn new(config: PairConfig) -> Result<Self, PairError> {
        let (qps, halves) = QpPair::new(config.sim, config.context, &config.qp)?;
        Ok(Self::over(qps, halves, &config.connection))
    }
}

impl<N: Net> Pair<N> {
    /// A connection on the halves of each end.
    pub fn over(qps: QpPair<N>, halves: [Halves; 2], config: &ConnectionConfig) -> Self {
        Self::over_each(qps, halves, [config, config])
    }

    /// The same with settings of its own for each end.
    pub fn over_each(qps: QpPair<N>, halves: [Halves; 2], config: [&ConnectionConfig; 2]) -> Self {
        let [(sa, ra), (sb, rb)] = halves;
        let (ca, da) = Connection::new(sa, ra, config[0].clone());
        let (cb, db) = Connection::new(sb, rb, config[1].clone());
        Self { qps, connections: [ca, cb], drivers: [Some(da), Some(db)] }
    }

    /// The instant.
    pub fn now(&self) -> Nanos {
        self.qps.now()
    }

    /// Calls were made on the connections: both ends are polled at the next step.
    pub fn touch(&mut self) {
        self.qps.touch(0);
        self.qps.touch(1);
    }

    /// Drops a driver, as when its thread died.
    pub fn drop_driver(&mut self, end: usize) {
        self.drivers[end] = None;
    }

    fn step_to(&mut self, t: Nanos) -> bool {
        let drivers = &mut self.drivers;
        self.qps.step_to(t, |end, now| drivers[end].as_mut().and_then(|d| d.poll(now)))
    }

    /// Moves time to the next event and lets the ends act on it; false when nothing will ever happen again.
    pub fn step(&mut self) -> bool {
        self.step_to(Nanos(u64::MAX - 1))
    }

    /// Lets everything up to `t` happen; `now` is `t` afterwards.
    pub fn run_until(&mut self, t: Nanos) {
        while self.step_to(t) {}
    }

    /// Steps until `done` gives something, or until `limit`.
    pub fn run<R>(&mut self, limit: Nanos, mut done: impl FnMut(&mut Self) -> Option<R>) -> Option<R> {
        loop {
            if let Some(r) = done(self) {
                return Some(r);
            }
            if !self.step_to(limit) {
                return done(self);
            }
        }
    }
}
