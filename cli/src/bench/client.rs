//! The client's side of a run, from the first datagram to the last report.

use super::flow::{Flow, Role, Shared};
use super::side::Side;
use super::talk::Talk;
use super::watch::Watch;
use super::wire::{Incoming, MAX_MESSAGE, Outgoing, Run, ToClient, ToServer};
use crate::CommandError;
use crate::ends::End;
use crate::link::LinkThread;
use crate::{schemes, usage};
use netem::relay::RelayStats;
use sdr_sdk::context::QpConfig;
use sdr_sdk::fabric::soft::{CONNECT_DEADLINE, ConnectError};
use sdr_sdk::imm::ImmLayout;
use sdr_sdk::qp::{RecvQp, SendQp};
use sdr_sdk::types::{Nanos, Seq};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long the server may take to answer the request.
const ANSWER_DEADLINE: Nanos = Nanos::from_secs(10);

/// After Ctrl-C: what is under way may still arrive within this.
const GRACE: Nanos = Nanos::from_secs(2);

/// Every wait in a run has a deadline of its own; this is none.
const NEVER: Nanos = Nanos::MAX;

/// What is run, on the client's side.
pub struct Plan {
    pub run: Run,
    pub channels: u8,
    /// Payload bytes of a packet at most; zero: what the path takes.
    pub mtu: u32,
}

/// What came out.
pub struct Measured {
    /// Payload bytes of a packet.
    pub payload: u32,
    pub channels: u8,
    /// Whether batches go to the kernel as one.
    pub gso: bool,
    pub sent: Outgoing,
    pub received: Incoming,
    /// The server's; none when it could not tell any more.
    pub server_sent: Option<Outgoing>,
    pub server_received: Option<Incoming>,
    /// Counters of the link since the warm-up.
    pub link: Option<(RelayStats, RelayStats)>,
    pub min_rtt: Option<Nanos>,
    pub cpu_s: f64,
    pub interrupted: bool,
    /// Why it ended early.
    pub lost: Option<String>,
}

impl Measured {
    /// Of a run that was interrupted before anything could be.
    pub fn nothing() -> Self {
        Self {
            payload: 0,
            channels: 0,
            gso: false,
            sent: Outgoing::default(),
            received: Incoming::default(),
            server_sent: Some(Outgoing::default()),
            server_received: Some(Incoming::default()),
            link: None,
            min_rtt: None,
            cpu_s: 0.0,
            interrupted: true,
            lost: None,
        }
    }
}

/// Runs it from `end` against the server at `to`, which `link` may be in front of.
pub fn run(
    plan: &Plan,
    mut end: End,
    to: SocketAddr,
    link: Option<&LinkThread>,
    stop: &AtomicBool,
    watch: &mut Watch,
) -> Result<Measured, CommandError> {
    let failed = |line: String| CommandError::Failed(line);
    let scheme = schemes::find(&plan.run.scheme)?;
    let halves = connect(&mut end, to, std::iter::once(Talk::qp()), stop)?.pop();
    let halves = halves.ok_or_else(|| failed("no connection".to_owned()))?;
    let (mut talk, driver) = Talk::new("the server", &end.context, halves, MAX_MESSAGE).map_err(failed)?;
    end.driver.add(driver);
    talk.say(&ToServer::Run(plan.run.clone())).map_err(failed)?;
    let key = match hear(&mut end, &mut talk, stop)? {
        ToClient::Accepted { key } => key,
        ToClient::Refused { why } => return Err(failed(format!("{to} refused: {why}"))),
        _ => return Err(failed(format!("{to} answered something else than it was asked"))),
    };
    let shared =
        Arc::new(Shared::new(plan.run.clone(), scheme, &end.context, plan.run.forward).map_err(failed)?);
    let mut side = Side::new(shared.clone(), &end.endpoint);
    let configs = (0..plan.run.connections).map(|i| {
        QpConfig::default()
            .layout(layout(plan.run.size))
            .channels(plan.channels)
            .payload(plan.mtu)
            .first(Seq(key), Seq(key.wrapping_add(1 + u64::from(i))))
    });
    let mut payload = 0;
    for (i, halves) in (0..).zip(connect(&mut end, to, configs, stop)?) {
        payload = halves.0.payload();
        let (flow, driver) = Flow::new(&shared, Role::Client, i, halves).map_err(failed)?;
        end.driver.add(driver);
        side.flows.push(flow);
    }
    let mut course = Course::new(stop, link, watch);
    let clock = end.driver.clock();
    end.driver.run(NEVER, |driver| {
        while side.turn(clock.now()) {
            driver.turn();
        }
        course.turn(clock.now(), &mut side, &mut talk).then_some(())
    });
    course.watch.end(clock.now(), &side);
    let Course { server_sent, server_received, base, interrupted, lost, .. } = course;
    let (cpu, relay) = base.unwrap_or((usage::cpu_seconds(), None));
    if let Some(lost) = &lost
        && side.so_far().messages == 0
    {
        return Err(failed(lost.clone()));
    }
    Ok(Measured {
        payload,
        channels: plan.channels,
        gso: end.gso,
        sent: side.outgoing(),
        received: side.incoming(),
        server_sent,
        server_received,
        link: relay.and_then(|before| Some((before, link?.stats()))),
        min_rtt: side.min_rtt(),
        cpu_s: usage::cpu_seconds() - cpu,
        interrupted: interrupted.is_some(),
        lost,
    })
}

/// Long messages have fewer slots.
fn layout(size: u64) -> ImmLayout {
    // The smallest payload that the path may turn out to take.
    const LEAST: u64 = 1_152;
    if size <= LEAST * u64::from(ImmLayout::L10_18_4.max_packets()) {
        ImmLayout::L10_18_4
    } else {
        ImmLayout::L8_22_2
    }
}

/// Connects queue pairs of these shapes, all at once; in their order.
fn connect(
    end: &mut End,
    to: SocketAddr,
    configs: impl Iterator<Item = QpConfig>,
    stop: &AtomicBool,
) -> Result<Vec<(SendQp, RecvQp)>, CommandError> {
    let failed = |e: ConnectError| CommandError::Failed(e.to_string());
    let dial = |config| end.endpoint.connect(&end.context, to, config);
    let mut dialing = configs.map(dial).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut done: Vec<_> = dialing.iter().map(|_| None).collect();
    // The attempts end by themselves; this is for a clock that jumps.
    let deadline = end.driver.clock().now() + CONNECT_DEADLINE + Nanos::from_secs(1);
    let over = end.driver.run(deadline, |_| {
        for (dialing, done) in dialing.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            match dialing.poll() {
                Some(Ok(halves)) => *done = Some(halves),
                Some(Err(e)) => return Some(Err(failed(e))),
                None => {}
            }
        }
        let stopped = stop.load(Ordering::Relaxed).then_some(Err(CommandError::Interrupted));
        stopped.or(done.iter().all(Option::is_some).then_some(Ok(())))
    });
    over.unwrap_or_else(|| Err(CommandError::Failed(format!("no answer from {to}"))))?;
    Ok(done.into_iter().flatten().collect())
}

fn hear(end: &mut End, talk: &mut Talk, stop: &AtomicBool) -> Result<ToClient, CommandError> {
    let deadline = end.driver.clock().now() + ANSWER_DEADLINE;
    let heard = end.driver.run(deadline, |_| match stop.load(Ordering::Relaxed) {
        true => Some(Err(CommandError::Interrupted)),
        false => talk.hear().map_err(CommandError::Failed).transpose(),
    });
    heard.unwrap_or_else(|| {
        Err(CommandError::Failed(format!("the server said nothing within {ANSWER_DEADLINE}")))
    })
}

/// From the first message to the server's report.
struct Course<'a> {
    stop: &'a AtomicBool,
    link: Option<&'a LinkThread>,
    watch: &'a mut Watch,
    /// Processor time and the link's counters when measuring began.
    base: Option<(f64, Option<RelayStats>)>,
    said_finished: bool,
    server_sent: Option<Outgoing>,
    server_received: Option<Incoming>,
    /// When Ctrl-C came.
    interrupted: Option<Nanos>,
    lost: Option<String>,
}

impl<'a> Course<'a> {
    fn new(stop: &'a AtomicBool, link: Option<&'a LinkThread>, watch: &'a mut Watch) -> Self {
        Self {
            stop,
            link,
            watch,
            base: None,
            said_finished: false,
            server_sent: None,
            server_received: None,
            interrupted: None,
            lost: None,
        }
    }

    /// Whether it is over.
    fn turn(&mut self, now: Nanos, side: &mut Side, talk: &mut Talk) -> bool {
        if self.base.is_none() && side.measuring() {
            self.base = Some((usage::cpu_seconds(), self.link.map(LinkThread::stats)));
            self.watch.begin(now);
        }
        self.watch.turn(now, side);
        if let Err(e) = self.talk(now, side, talk) {
            side.abandon(true);
            self.lost = Some(match side.so_far().failed {
                0 => e,
                1 => format!("{e}, 1 message unfinished"),
                n => format!("{e}, {n} messages unfinished"),
            });
            return true;
        }
        if self.link.is_some_and(|l| !l.running()) {
            self.lost = Some("the emulated link stopped".to_owned());
            side.abandon(true);
            return true;
        }
        if let Some(since) = self.interrupted
            && now.since(since) >= GRACE
        {
            side.abandon(false);
            return true;
        }
        // A connection that ended by itself takes no part any more; the report says how far it came.
        let all = self.server_received.is_some() && self.server_sent.is_some();
        all && self.said_finished && talk.heard() && side.received(now)
    }

    fn talk(&mut self, now: Nanos, side: &mut Side, talk: &mut Talk) -> Result<(), String> {
        if self.stop.load(Ordering::Relaxed) && self.interrupted.is_none() {
            self.interrupted = Some(now);
            side.stop();
            talk.say(&ToServer::Stop)?;
        }
        if !self.said_finished && side.sent() {
            self.said_finished = true;
            talk.say(&ToServer::Finished(side.outgoing()))?;
        }
        match talk.hear()? {
            Some(ToClient::Finished(outgoing)) => {
                side.promise(now, outgoing.delivered.clone());
                self.server_sent = Some(outgoing);
            }
            Some(ToClient::Received(incoming)) => self.server_received = Some(incoming),
            Some(ToClient::Accepted { .. } | ToClient::Refused { .. }) | None => {}
        }
        Ok(())
    }
}
