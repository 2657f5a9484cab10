//! One side of a run: all its connections, and when it is through.

use super::flow::{Flow, Shared};
use super::times::Times;
use super::wire::{Incoming, Outgoing};
use sdr_sdk::fabric::soft::Endpoint;
use sdr_sdk::types::Nanos;
use std::sync::Arc;

/// How long a side waits for messages that the other says were delivered: they are here, but for its own next polls.
const SETTLE: Nanos = Nanos::from_secs(2);

/// All connections of a run at one side.
pub struct Side {
    pub shared: Arc<Shared>,
    pub flows: Vec<Flow>,
    endpoint: Endpoint,
    /// Corrupt datagrams and local drops before the run.
    base: (u64, u64),
    /// What the other side delivered, and when it said so.
    promised: Option<(Vec<u64>, Nanos)>,
}

impl Side {
    /// Without connections yet.
    pub fn new(shared: Arc<Shared>, endpoint: &Endpoint) -> Self {
        let base = (endpoint.counters().corrupt, endpoint.local_drops());
        Self { shared, flows: Vec::new(), endpoint: endpoint.clone(), base, promised: None }
    }

    /// Goes on with every connection; whether there may be more to do at once.
    pub fn turn(&mut self, now: Nanos) -> bool {
        self.flows.iter_mut().fold(false, |busy, flow| flow.turn(now) | busy)
    }

    /// Sends nothing new.
    pub fn stop(&mut self) {
        self.flows.iter_mut().filter_map(|f| f.out.as_mut()).for_each(|out| out.stop());
    }

    /// Gives up what is under way; it has `failed`, or nobody wants it any more.
    pub fn abandon(&mut self, failed: bool) {
        self.flows.iter_mut().filter_map(|f| f.out.as_mut()).for_each(|out| out.abandon(failed));
    }

    /// Whether everything has been sent and has ended.
    pub fn sent(&self) -> bool {
        self.flows.iter().filter_map(|f| f.out.as_ref()).all(|out| out.over())
    }

    /// The other side has finished, with this many delivered on each connection.
    pub fn promise(&mut self, now: Nanos, delivered: Vec<u64>) {
        self.promised = Some((delivered, now));
    }

    /// Whether everything that the other side sent is here and checked.
    pub fn received(&self, now: Nanos) -> bool {
        let Some((delivered, since)) = &self.promised else { return false };
        let mut flows = self.flows.iter().enumerate().filter_map(|(i, f)| Some((i, f, f.in_.as_ref()?)));
        flows.all(|(i, flow, in_)| {
            let here = in_.arrived >= delivered.get(i).copied().unwrap_or(0);
            in_.checked() && (here || flow.connection.ended() || now.since(*since) >= SETTLE)
        })
    }

    /// Whether the warm-up is over, in either direction.
    pub fn measuring(&self) -> bool {
        let warmup = self.shared.run.warmup;
        self.flows.iter().any(|f| {
            f.out.as_ref().is_some_and(|out| out.span.is_some())
                || f.in_.as_ref().is_some_and(|in_| in_.arrived >= warmup)
        })
    }

    /// The sum of what was sent.
    pub fn outgoing(&self) -> Outgoing {
        let mut sum = Outgoing { delivered: vec![0; self.flows.len()], ..Outgoing::default() };
        let mut span: Option<(Nanos, Nanos)> = None;
        let times = self.times();
        for (i, out) in self.flows.iter().enumerate().filter_map(|(i, f)| Some((i, f.out.as_ref()?))) {
            sum.delivered[i] = out.delivered;
            sum.messages += out.measured;
            sum.failed += out.failed;
            sum.packets += out.packets;
            sum.repairs += out.repairs;
            sum.parity += out.parity;
            sum.why = sum.why.take().or_else(|| out.why.clone());
            span = match (span, out.span) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (a, b) => a.or(b),
            };
        }
        sum.elapsed = span.map_or(0, |(from, to)| to.since(from).0);
        sum.times = times.to_sent();
        sum
    }

    fn times(&self) -> Times {
        let mut times = Times::default();
        self.flows.iter().filter_map(|f| f.out.as_ref()).for_each(|out| times.add(&out.times));
        times
    }

    /// The sum of what was received.
    pub fn incoming(&self) -> Incoming {
        let mut sum = Incoming {
            corrupt_packets: self.endpoint.counters().corrupt - self.base.0,
            local_drops: self.endpoint.local_drops() - self.base.1,
            ..Incoming::default()
        };
        for flow in &self.flows {
            sum.slot_wait += flow.connection.stats().slot_wait.0;
            let Some(in_) = &flow.in_ else { continue };
            let arrivals = flow.arrivals();
            sum.packets += arrivals.seen;
            sum.duplicate += arrivals.duplicate;
            sum.late += arrivals.late;
            sum.messages += in_.measured;
            sum.corrupt += in_.corrupt;
            sum.failed += in_.failed;
            sum.why = sum.why.take().or_else(|| in_.why.clone());
        }
        sum
    }

    /// Messages and packets sent again so far, and messages received: for what is shown while it runs.
    pub fn so_far(&self) -> Progress {
        let mut sum = Progress::default();
        for flow in &self.flows {
            if let Some(out) = &flow.out {
                sum.messages += out.measured;
                sum.repairs += out.repairs;
                sum.failed += out.failed;
            }
            sum.messages += flow.in_.as_ref().map_or(0, |i| i.measured);
        }
        sum
    }

    /// Messages and packets of the warm-up so far, of the direction that is ahead.
    pub fn warm_up(&self) -> (u64, u64) {
        let mut sum = [(0, 0); 2];
        for flow in &self.flows {
            let stats = flow.connection.stats();
            let ways = [
                (flow.out.as_ref().map_or(0, |o| o.delivered), stats.sent),
                (flow.in_.as_ref().map_or(0, |i| i.arrived), stats.arrivals.seen),
            ];
            sum.iter_mut().zip(ways).for_each(|(sum, way)| *sum = (sum.0 + way.0, sum.1 + way.1));
        }
        sum[0].max(sum[1])
    }

    /// Smallest round-trip time that was measured on a connection.
    pub fn min_rtt(&self) -> Option<Nanos> {
        self.flows.iter().map(|f| f.connection.stats().min_rtt).filter(|rtt| *rtt > Nanos::ZERO).min()
    }
}

/// Counted while it runs, both directions together.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    pub messages: u64,
    pub repairs: u64,
    pub failed: u64,
}
