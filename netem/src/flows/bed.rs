//! Two ends with several connections between them, and the traffic on each: so many messages under way, always.

use super::{Flows, FlowsError, LOOKS, Outcome, POINTS, Point, jain};
use crate::pair::{PairError, QpPair};
use crate::sim::{Direction, FrameKind, Granularity, SimConfig, SimPath, Verdict};
use crate::trial::PayloadFree;
use crate::units::BitRate;
use sdr_sdk::connection::{Connection, ConnectionConfig, ConnectionDriver, RecvResult, SendResult, Transfer};
use sdr_sdk::context::{ContextConfig, QpConfig};
use sdr_sdk::imm::ImmLayout;
use sdr_sdk::memory::SendBuf;
use sdr_sdk::types::Nanos;
use std::collections::VecDeque;
use std::sync::Arc;

/// A NIC tells of what came in so late: far below a queue that matters, and a fraction of the events.
const MODERATION: u64 = 512;

/// Receives posted beyond the messages under way, so that a grant is always there.
const AHEAD: u32 = 4;

/// One connection's traffic.
struct Flow {
    ends: [Connection; 2],
    begins: Nanos,
    sends: VecDeque<Transfer<SendResult>>,
    recvs: VecDeque<Transfer<RecvResult>>,
    delivered: u64,
    failed: u64,
    over: bool,
}

/// Sums at an instant.
#[derive(Clone, Default)]
struct Sums {
    delivered: Vec<u64>,
    carried: u64,
    offered: u64,
    dropped: u64,
}

pub(super) struct Bed<'a> {
    spec: &'a Flows,
    rate: BitRate,
    qps: QpPair,
    flows: Vec<Flow>,
    drivers: [Vec<ConnectionDriver>; 2],
    source: SendBuf,
}

impl<'a> Bed<'a> {
    pub(super) fn new(spec: &'a Flows, rate: BitRate) -> Result<Self, FlowsError> {
        let sim = SimConfig {
            path: SimPath::Path(spec.path.clone()),
            channels: 1,
            max_payload: spec.payload,
            payload_copy: false,
            exact_counts: false,
            ..SimConfig::default()
        };
        let context = ContextConfig::default().initial_rtt(spec.path.rtt());
        let qp = QpConfig::default().layout(ImmLayout::L8_22_2);
        let (mut qps, first) = QpPair::new(sim, context, &qp)?;
        qps.moderate(spec.path.rtt().mul_div(1, MODERATION));
        let mut halves = vec![first];
        for _ in 1..spec.flows {
            let made = |end: usize| qps.contexts[end].create_qp(&qp).map_err(PairError::from);
            let (a, b) = (made(0)?, made(1)?);
            let (to_a, to_b) = (a.info().clone(), b.info().clone());
            halves.push([
                a.connect(&to_b).map_err(PairError::from)?,
                b.connect(&to_a).map_err(PairError::from)?,
            ]);
        }
        let mut config = ConnectionConfig::default()
            .scheme(spec.scheme.clone())
            .congestion(spec.congestion.clone())
            .coder(Arc::new(PayloadFree))
            .progress_deadline(spec.path.rtt().mul_div(1_000, 1).max(Nanos::from_secs(60)));
        config.rate = spec.rate;
        let memory = |e: sdr_sdk::context::RegisterError| FlowsError::Memory(e.to_string());
        let source = qps.contexts[0].register(spec.bytes as usize).map_err(memory)?.freeze();
        let mut drivers = [Vec::new(), Vec::new()];
        let mut flows = Vec::new();
        for (i, halves) in halves.into_iter().enumerate() {
            let [(ca, da), (cb, db)] = halves.map(|(s, r)| Connection::new(s, r, config.clone()));
            drivers[0].push(da);
            drivers[1].push(db);
            let mut recvs = VecDeque::new();
            for _ in 0..spec.inflight + AHEAD {
                let buf = qps.contexts[1].register(spec.bytes as usize).map_err(memory)?;
                recvs.push_back(cb.recv(buf));
            }
            flows.push(Flow {
                ends: [ca, cb],
                begins: spec.stagger.mul_div(i as u64, 1),
                sends: VecDeque::new(),
                recvs,
                delivered: 0,
                failed: 0,
                over: false,
            });
        }
        let bed = Self { spec, rate, qps, flows, drivers, source };
        bed.spread();
        Ok(bed)
    }

    /// Gives each connection a round trip of its own. Queues are named in the order in which they were made.
    fn spread(&self) {
        let farther = self.spec.farther;
        if farther == Nanos::ZERO {
            return;
        }
        for direction in [Direction::A_TO_B, Direction::B_TO_A] {
            self.qps.net.tap(direction, Granularity::Run, move |frame| {
                let (FrameKind::Data { .. } | FrameKind::Control(_)) = frame.kind;
                Verdict::Delay(farther.mul_div(frame.q.0.into(), 2))
            });
        }
    }

    fn sums(&self) -> Sums {
        let (carried, counters) = self.qps.net.link(Direction::A_TO_B, |l| (l.carried(), l.counters()));
        Sums {
            delivered: self.flows.iter().map(|f| f.delivered).collect(),
            carried,
            offered: counters.offered,
            dropped: counters.queue_drops,
        }
    }

    /// Starts what may be started and takes what has ended; true when somebody has to be told.
    fn turn(&mut self) -> bool {
        let now = self.qps.now();
        let mut news = false;
        for flow in self.flows.iter_mut().filter(|f| f.begins <= now && !f.over) {
            while let Some(result) = flow.sends.front_mut().and_then(Transfer::try_take) {
                flow.sends.pop_front();
                match result {
                    Ok(done) => flow.delivered += done.bytes,
                    Err(_) => flow.failed += 1,
                }
            }
            while let Some(result) = flow.recvs.front_mut().and_then(Transfer::try_take) {
                flow.recvs.pop_front();
                let buf = result.map_or_else(|e| e.buf, |got| Some(got.buf));
                if let Some(buf) = buf {
                    flow.recvs.push_back(flow.ends[1].recv(buf));
                    news = true;
                }
            }
            flow.over = flow.ends.iter().any(Connection::ended);
            while !flow.over && flow.sends.len() < self.spec.inflight as usize {
                flow.sends.push_back(flow.ends[0].send(self.source.clone(), None));
                news = true;
            }
        }
        news
    }

    /// Lets everything up to `t` happen.
    fn run_until(&mut self, t: Nanos) {
        loop {
            let (qps, drivers) = (&mut self.qps, &mut self.drivers);
            let poll = |end: usize, now| {
                let wanted = drivers[end].iter_mut().filter_map(|d| d.poll(now));
                wanted.min()
            };
            let moved = qps.step_to(t, poll);
            if self.turn() {
                self.qps.touch(0);
                self.qps.touch(1);
            } else if !moved {
                return;
            }
        }
    }

    pub(super) fn run(mut self, go_on: &dyn Fn() -> bool) -> Result<Option<Outcome>, FlowsError> {
        let spec = self.spec;
        let step = Nanos(spec.duration.0 / POINTS);
        let look = Nanos((spec.path.rtt().0 / LOOKS).max(1));
        let mut changes = spec.changes.iter().peekable();
        let mut series = Vec::new();
        let mut waits: Vec<Nanos> = Vec::new();
        let mut capacity = [0.0; 2];
        let mut middle = Sums::default();
        let mut before = self.sums();
        for point in 1..=POINTS {
            if !go_on() {
                return Ok(None);
            }
            let (begin, end) = (self.qps.now(), Nanos(step.0 * point));
            let first_wait = waits.len();
            let mut room = 0.0;
            while self.qps.now() < end {
                while let Some((_, rate)) = changes.next_if(|(at, _)| *at <= self.qps.now()) {
                    self.rate = *rate;
                    self.qps.net.link(Direction::A_TO_B, |l| l.set_rate(Some(*rate)));
                }
                let now = self.qps.now();
                let next = (now + look).min(end);
                room += next.since(now).as_secs_f64() * self.rate.bits_per_second() as f64;
                self.run_until(next);
                waits.push(self.qps.net.link(Direction::A_TO_B, |l| l.busy_until().since(next)));
            }
            let here = self.sums();
            let seconds = end.since(begin).as_secs_f64();
            let mean =
                waits[first_wait..].iter().map(|w| w.0).sum::<u64>() / (waits.len() - first_wait) as u64;
            series.push(Point {
                at: end,
                goodput: here.goodput(&before, seconds),
                utilisation: (here.carried - before.carried) as f64 * 8.0 / room,
                queue: Nanos(mean),
                queue_loss: here.queue_loss(&before),
            });
            capacity[usize::from(point > POINTS / 2)] += room;
            if point == POINTS / 2 {
                middle = here.clone();
                waits.clear();
            }
            before = here;
        }
        waits.sort_unstable();
        let goodput = before.goodput(&middle, step.as_secs_f64() * (POINTS / 2) as f64);
        let stats = self.flows.iter().map(|f| f.ends[0].stats());
        let packets = stats.fold((0, 0, 0), |(n, r, p), s| (n + s.sent, r + s.repairs, p + s.parity));
        Ok(Some(Outcome {
            jain: jain(&goodput),
            utilisation: (before.carried - middle.carried) as f64 * 8.0 / capacity[1],
            queue_loss: before.queue_loss(&middle),
            queue_loss_all: before.queue_loss(&Sums::default()),
            queue_mean: Nanos(waits.iter().map(|w| w.0).sum::<u64>() / waits.len().max(1) as u64),
            queue_p99: waits.get(waits.len() * 99 / 100).copied().unwrap_or_default(),
            packets,
            messages: (
                self.flows.iter().map(|f| f.delivered / spec.bytes).sum(),
                self.flows.iter().map(|f| f.failed).sum(),
            ),
            goodput,
            series,
        }))
    }
}

impl Sums {
    fn goodput(&self, before: &Self, seconds: f64) -> Vec<f64> {
        let bits = |(a, b): (&u64, &u64)| (a - b) as f64 * 8.0 / seconds;
        self.delivered.iter().zip(&before.delivered).map(bits).collect()
    }

    fn queue_loss(&self, before: &Self) -> f64 {
        (self.dropped - before.dropped) as f64 / (self.offered - before.offered).max(1) as f64
    }
}
