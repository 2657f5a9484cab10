//! One connection of a benchmark at one side: what it sends, and what it receives and checks.
//!
//! No clock and no waiting: [`Flow::turn`] is called between polls of the driver. Invariant: memory is that of the posted
//! receives and one source, however many messages pass.

use super::content::{Check, Pattern};
use super::times::Times;
use super::wire::Run;
use sdr_sdk::connection::{
    Connection, ConnectionConfig, ConnectionDriver, Received, RecvResult, SendResult, Transfer,
};
use sdr_sdk::context::Context;
use sdr_sdk::engine::EngineCounters;
use sdr_sdk::memory::{RecvBuf, SendBuf};
use sdr_sdk::qp::{RecvQp, SendQp};
use sdr_sdk::reliability::Scheme;
use sdr_sdk::types::{Nanos, Seq};
use std::collections::VecDeque;
use std::sync::Arc;

/// Between warm-up and measuring, at most.
const LONGEST_QUIET: Nanos = Nanos::from_millis(500);

/// What all connections of a run share at one side.
pub struct Shared {
    pub run: Run,
    pub pattern: Pattern,
    pub scheme: Arc<dyn Scheme>,
    pub context: Context,
    /// Filled with the pattern, when this side sends.
    source: Option<SendBuf>,
}

impl Shared {
    /// Takes the memory that sending needs.
    pub fn new(run: Run, scheme: Arc<dyn Scheme>, context: &Context, sends: bool) -> Result<Self, String> {
        let pattern = Pattern::new(run.seed);
        let source = sends.then(|| {
            let mut source = context.register(Pattern::source_len(run.size) as usize)?;
            pattern.fill(&mut source);
            Ok::<_, sdr_sdk::context::RegisterError>(source.freeze())
        });
        let source = source.transpose().map_err(|e| e.to_string())?;
        Ok(Self { run, pattern, scheme, context: context.clone(), source })
    }
}

/// Which end of the connection this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// Messages on their way out.
#[derive(Default)]
pub struct Outflow {
    stream: u64,
    first: Seq,
    next: u64,
    under_way: VecDeque<(bool, Nanos, Transfer<SendResult>)>,
    stopped: bool,
    /// The slowest message of the warm-up.
    warmup_took: Nanos,
    quiet_until: Option<Nanos>,
    pub delivered: u64,
    pub measured: u64,
    pub failed: u64,
    pub why: Option<String>,
    /// The first measured call, and the last end.
    pub span: Option<(Nanos, Nanos)>,
    pub packets: u64,
    pub repairs: u64,
    pub parity: u64,
    pub times: Times,
}

/// Messages on their way in.
#[derive(Default)]
pub struct Inflow {
    stream: u64,
    first: Seq,
    posted: VecDeque<Transfer<RecvResult>>,
    checks: VecDeque<(Received, Check, bool)>,
    /// Whole, warm-up included.
    pub arrived: u64,
    /// Whole or not.
    pub ended: u64,
    pub measured: u64,
    pub corrupt: u64,
    pub failed: u64,
    pub why: Option<String>,
    /// Counted when no packet of a measured message had come.
    base: EngineCounters,
}

/// One connection.
pub struct Flow {
    pub connection: Connection,
    pub out: Option<Outflow>,
    pub in_: Option<Inflow>,
    shared: Arc<Shared>,
}

impl Flow {
    /// Connection `index` of the run, over a connected queue pair.
    pub fn new(
        shared: &Arc<Shared>,
        role: Role,
        index: u32,
        halves: (SendQp, RecvQp),
    ) -> Result<(Self, ConnectionDriver), String> {
        let run = &shared.run;
        let (payload, max) = (halves.0.payload(), halves.0.max_message());
        let (send_first, recv_first) = (halves.0.next_seq(), halves.1.next_seq());
        if run.size > max {
            let size = netem::units::ByteSize(run.size);
            return Err(format!(
                "{size} messages need larger packets: the path takes {payload} bytes a packet, {max} a message"
            ));
        }
        let mut config =
            ConnectionConfig::default().scheme(shared.scheme.clone()).per_chunk(run.per_chunk(payload));
        config.rate = run.payload_rate(payload);
        config.congestion = run.congestion.control();
        let (connection, driver) = Connection::new(halves.0, halves.1, config);
        let (sends, receives) = match role {
            Role::Client => (run.forward, run.reverse),
            Role::Server => (run.reverse, run.forward),
        };
        // Two streams a connection, one a direction.
        let stream = |forward: bool| u64::from(index) * 2 + u64::from(forward);
        let is_client = role == Role::Client;
        let out =
            sends.then(|| Outflow { stream: stream(is_client), first: send_first, ..Outflow::default() });
        let in_ =
            receives.then(|| Inflow { stream: stream(!is_client), first: recv_first, ..Inflow::default() });
        let mut flow = Self { connection, out, in_, shared: shared.clone() };
        if let Some(in_) = &mut flow.in_ {
            for _ in 0..run.receives() {
                let buf = shared.context.register(run.size as usize).map_err(|e| e.to_string())?;
                in_.posted.push_back(flow.connection.recv(buf));
            }
        }
        Ok((flow, driver))
    }

    /// Takes what has ended and starts what may be started; whether anything was done, and more may be at once.
    pub fn turn(&mut self, now: Nanos) -> bool {
        let mut busy = false;
        if let Some(out) = &mut self.out {
            busy |= out.turn(now, &self.connection, &self.shared);
        }
        if let Some(in_) = &mut self.in_ {
            in_.follow_warmup(self.connection.stats().arrivals, self.shared.run.warmup);
            busy |= in_.turn(&self.connection, &self.shared);
        }
        busy
    }

    /// What was received, for a report.
    pub fn arrivals(&self) -> EngineCounters {
        let now = self.connection.stats().arrivals;
        let base = self.in_.as_ref().map_or(EngineCounters::default(), |i| i.base);
        EngineCounters {
            seen: now.seen - base.seen,
            fresh: now.fresh - base.fresh,
            duplicate: now.duplicate - base.duplicate,
            late: now.late - base.late,
            out_of_range: now.out_of_range - base.out_of_range,
        }
    }
}

impl Outflow {
    /// Sends nothing new.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether everything has been sent and has ended.
    pub fn over(&self) -> bool {
        self.stopped && self.under_way.is_empty()
    }

    /// Gives up what is under way; it has `failed`, or nobody wants it any more.
    pub fn abandon(&mut self, failed: bool) {
        self.stop();
        self.failed += if failed { self.under_way.len() as u64 } else { 0 };
        self.under_way.clear();
    }

    fn turn(&mut self, now: Nanos, connection: &Connection, shared: &Shared) -> bool {
        let run = &shared.run;
        let mut i = 0;
        while let Some((measured, since, transfer)) = self.under_way.get_mut(i) {
            let Some(result) = transfer.try_take() else {
                i += 1;
                continue;
            };
            let (measured, since) = (*measured, *since);
            self.under_way.remove(i);
            self.ended(now, measured, since, result, connection);
        }
        let mut busy = false;
        while !self.stopped && (self.under_way.len() as u64) < run.inflight {
            let measured = self.next >= run.warmup;
            if measured && self.span.is_none() && !self.warmed_up(now) {
                break;
            }
            let counted = run.count.is_some_and(|count| self.next >= run.warmup + count);
            let late =
                run.duration.is_some_and(|d| self.span.is_some_and(|(from, _)| now.since(from).0 >= d));
            if counted || late {
                self.stop();
                break;
            }
            let Some(source) = &shared.source else { return busy };
            let window = source.slice(shared.pattern.start(self.stream, self.next), run.size as usize);
            self.next += 1;
            if measured {
                self.span.get_or_insert((now, now));
            }
            self.under_way.push_back((measured, now, connection.send(window, None)));
            busy = true;
        }
        busy
    }

    /// Whether measuring may begin: when copies of packets of the warm-up, which may still be on their way, have arrived
    /// too. None of them is slower than the slowest message was.
    fn warmed_up(&mut self, now: Nanos) -> bool {
        let quiet = self.warmup_took.min(LONGEST_QUIET);
        self.under_way.is_empty() && now >= *self.quiet_until.get_or_insert(now + quiet)
    }

    fn ended(
        &mut self,
        now: Nanos,
        measured: bool,
        since: Nanos,
        result: SendResult,
        connection: &Connection,
    ) {
        match result {
            Ok(done) => {
                self.delivered += 1;
                if measured {
                    self.measured += 1;
                    self.packets += done.packets;
                    self.repairs += done.repairs;
                    self.parity += done.parity;
                    self.times.record(done.at.since(since).0);
                    self.span = self.span.map(|(from, to)| (from, to.max(done.at)));
                } else {
                    self.warmup_took = self.warmup_took.max(done.at.since(since));
                }
            }
            Err(e) => {
                self.failed += 1;
                self.why.get_or_insert_with(|| e.counted_from(self.first).to_string());
                self.span = self.span.map(|(from, to)| (from, to.max(now)));
                if connection.ended() {
                    self.stop();
                }
            }
        }
    }
}

impl Inflow {
    /// What comes between the last message of the warm-up and the first packet after it are copies of packets of the
    /// warm-up: they are not measured.
    fn follow_warmup(&mut self, now: EngineCounters, warmup: u64) {
        if self.ended < warmup || now.fresh == self.base.fresh {
            self.base = now;
        }
    }

    fn turn(&mut self, connection: &Connection, shared: &Shared) -> bool {
        while let Some(result) = self.posted.front_mut().and_then(Transfer::try_take) {
            self.posted.pop_front();
            self.ended += 1;
            match result {
                Ok(got) => self.arrived(got, connection, shared),
                Err(e) => {
                    let ended = connection.ended();
                    if !ended {
                        self.failed += 1;
                    }
                    self.why.get_or_insert_with(|| e.why.counted_from(self.first).to_string());
                    if let Some(buf) = e.buf.filter(|_| !ended) {
                        self.posted.push_back(connection.recv(buf));
                    }
                }
            }
        }
        let Some((got, check, measured)) = self.checks.front_mut() else { return false };
        if check.go_on(&shared.pattern, &got.buf) {
            let (wrong, measured) = (check.wrong(), *measured);
            self.corrupt += u64::from(wrong && measured);
            if let Some((got, ..)) = self.checks.pop_front() {
                self.post(got.buf, connection);
            }
        }
        true
    }

    fn arrived(&mut self, got: Received, connection: &Connection, shared: &Shared) {
        let run = &shared.run;
        let number = got.seq.0.wrapping_sub(self.first.0);
        self.arrived += 1;
        let measured = number >= run.warmup;
        if measured {
            self.measured += 1;
        }
        if !run.verify {
            return self.post(got.buf, connection);
        }
        let wrong_length = got.len as u64 != run.size;
        let check = Check::new(shared.pattern.start(self.stream, number), got.len, wrong_length);
        self.checks.push_back((got, check, measured));
    }

    fn post(&mut self, buf: RecvBuf, connection: &Connection) {
        self.posted.push_back(connection.recv(buf));
    }

    /// Whether nothing waits to be checked.
    pub fn checked(&self) -> bool {
        self.checks.is_empty()
    }
}
