//! Two contexts over a simulated net whose fabrics count what they hold, stepped from event to event.

use netem::PathSpec;
use netem::sim::{SimConfig, SimFabric, SimNet};
use netem::spec::PathLength;
use netem::units::BitRate;
use sdr_sdk::connection::{Connection, ConnectionConfig, ConnectionDriver};
use sdr_sdk::context::{Context, ContextConfig, QpConfig};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::{
    Caps, CompletionModel, CompletionRun, Event, EventSink, Fabric, FabricError, Grant, Landing, Opened,
    QueueSpec, WriteRun,
};
use sdr_sdk::memory::{Region, RegionId};
use sdr_sdk::qp::{PostError, RecvHandle, RecvQp, SendHandle, SendQp};
use sdr_sdk::types::{Channel, Nanos, QueueSet, SlotGen};
use sdr_sdk::{RecvBuf, SendBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Payload of a packet.
pub const PAYLOAD: usize = 64;
/// Packets and bytes of a usual message; the last packet is short.
pub const PACKETS: u32 = 24;
pub const BYTES: usize = PACKETS as usize * PAYLOAD - 5;
/// Slots of a usual queue pair.
pub const SLOTS: u32 = 4;
/// One way.
pub const DELAY: Nanos = Nanos::from_micros(500);

/// What a fabric holds, and what it is told to do wrong.
#[derive(Default)]
pub struct Ledger {
    pub regions: AtomicI64,
    pub queues: AtomicI64,
    pub dropped: AtomicBool,
    pub refuse_arm: AtomicBool,
    /// The next poll reports this queue set as broken.
    pub break_queue: Mutex<Option<QueueSet>>,
    pub last_queue: Mutex<Option<QueueSet>>,
}

impl Ledger {
    pub fn regions(&self) -> i64 {
        self.regions.load(Ordering::Relaxed)
    }

    pub fn queues(&self) -> i64 {
        self.queues.load(Ordering::Relaxed)
    }
}

struct Counting(SimFabric, Arc<Ledger>);

impl Drop for Counting {
    fn drop(&mut self) {
        self.1.dropped.store(true, Ordering::Relaxed);
    }
}

// SAFETY: everything that touches memory is the simulated fabric's.
unsafe impl Fabric for Counting {
    fn caps(&self) -> Caps {
        self.0.caps()
    }
    fn completions(&self, ch: Channel) -> CompletionModel<'_> {
        self.0.completions(ch)
    }
    fn open(&mut self, spec: &QueueSpec) -> Result<Opened, FabricError> {
        let r = self.0.open(spec)?;
        self.1.queues.fetch_add(1, Ordering::Relaxed);
        *self.1.last_queue.lock().unwrap() = Some(r.q);
        Ok(r)
    }
    fn connect(&mut self, q: QueueSet, peer: &[u8]) -> Result<(), FabricError> {
        self.0.connect(q, peer)
    }
    fn close(&mut self, q: QueueSet) {
        self.1.queues.fetch_sub(1, Ordering::Relaxed);
        self.0.close(q);
    }
    fn register(&mut self, region: &Region) -> Result<RegionId, FabricError> {
        self.1.regions.fetch_add(1, Ordering::Relaxed);
        self.0.register(region)
    }
    fn deregister(&mut self, region: RegionId) {
        self.1.regions.fetch_sub(1, Ordering::Relaxed);
        self.0.deregister(region);
    }
    fn arm(&mut self, q: QueueSet, at: SlotGen, to: &Landing) -> Result<Option<Grant>, FabricError> {
        if self.1.refuse_arm.swap(false, Ordering::Relaxed) {
            return Err(FabricError::Provider { operation: "arm", code: 12 });
        }
        self.0.arm(q, at, to)
    }
    fn disarm(&mut self, q: QueueSet, at: SlotGen) {
        self.0.disarm(q, at);
    }
    fn post(&mut self, now: Nanos, ch: Channel, runs: &[WriteRun]) -> u64 {
        self.0.post(now, ch, runs)
    }
    fn control(&mut self, now: Nanos, q: QueueSet, msg: &[u8]) -> bool {
        self.0.control(now, q, msg)
    }
    fn poll(&mut self, now: Nanos, ch: Channel, out: &mut dyn EventSink) -> bool {
        if let Some(q) = self.1.break_queue.lock().unwrap().take() {
            let generation = sdr_sdk::Generation(0);
            out.event(Event::QueueError { q, channel: ch, generation, code: 77 });
        }
        self.0.poll(now, ch, out)
    }
    fn take_completions(&mut self, ch: Channel, out: &mut Vec<CompletionRun>) {
        self.0.take_completions(ch, out);
    }
    fn wake_at(&self) -> Option<Nanos> {
        self.0.wake_at()
    }
}

/// Settings of a world.
#[derive(Clone)]
pub struct Setup {
    pub sim: SimConfig,
    pub context: ContextConfig,
    pub qp: QpConfig,
}

impl Default for Setup {
    fn default() -> Self {
        let mut context = ContextConfig::default();
        context.initial_rtt = Nanos::from_millis(1);
        let mut qp = QpConfig::default();
        qp.slots = SLOTS;
        let path = PathSpec {
            length: PathLength::Rtt(DELAY + DELAY),
            rate: Some(BitRate::new(200_000_000).unwrap()),
            ..PathSpec::default()
        };
        let sim = SimConfig {
            path: path.into(),
            channels: 2,
            generations: 4,
            max_payload: PAYLOAD as u32,
            ..SimConfig::default()
        };
        Self { sim, context, qp }
    }
}

/// Both halves of both ends.
pub struct Ends {
    pub send: [SendQp; 2],
    pub recv: [RecvQp; 2],
}

/// Two ends and the clock.
pub struct World {
    pub net: SimNet,
    pub ledger: [Arc<Ledger>; 2],
    pub contexts: [Option<Context>; 2],
    pub drivers: [Option<ConnectionDriver>; 2],
    pub setup: Setup,
    now: Nanos,
    wake: [Option<Nanos>; 2],
    same: u32,
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let (net, a, b) = SimNet::pair(setup.sim.clone()).unwrap();
        let ledger: [Arc<Ledger>; 2] = Default::default();
        let open = |f, l: &Arc<Ledger>| {
            let engine = Box::new(HostEngine::new(setup.sim.channels));
            Some(Context::open(Box::new(Counting(f, l.clone())), engine, setup.context).unwrap())
        };
        let contexts = [open(a, &ledger[0]), open(b, &ledger[1])];
        let wake = [Some(Nanos::ZERO); 2];
        Self { net, ledger, contexts, drivers: [None, None], setup, now: Nanos::ZERO, wake, same: 0 }
    }

    pub fn context(&self, end: usize) -> &Context {
        self.contexts[end].as_ref().unwrap()
    }

    /// One more connected queue pair.
    pub fn connect(&mut self) -> Ends {
        let qp = self.setup.qp;
        let (a, b) = (self.context(0).create_qp(&qp).unwrap(), self.context(1).create_qp(&qp).unwrap());
        let (to_a, to_b) = (a.info().clone(), b.info().clone());
        let ((sa, ra), (sb, rb)) = (a.connect(&to_b).unwrap(), b.connect(&to_a).unwrap());
        self.touch();
        Ends { send: [sa, sb], recv: [ra, rb] }
    }

    /// A connection over one more queue pair; its drivers are polled from now on.
    pub fn connection(&mut self, config: ConnectionConfig) -> [Connection; 2] {
        let Ends { send: [sa, sb], recv: [ra, rb] } = self.connect();
        let (ca, da) = Connection::new(sa, ra, config.clone());
        let (cb, db) = Connection::new(sb, rb, config);
        self.drivers = [Some(da), Some(db)];
        [ca, cb]
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Calls were made: both ends are polled at the next step.
    pub fn touch(&mut self) {
        self.wake = [Some(self.now); 2];
    }

    fn due(&self, end: usize) -> Option<Nanos> {
        self.contexts[end].as_ref()?;
        [self.wake[end], self.net.nic_wake_at(end as u16)].into_iter().flatten().min()
    }

    /// Moves time to the next event up to `limit`, polls who has work there; false when there is none.
    pub fn step_to(&mut self, limit: Nanos) -> bool {
        let next = [self.due(0), self.due(1)].into_iter().flatten().min();
        let Some(next) = next.filter(|&n| n <= limit) else {
            self.now = self.now.max(limit);
            self.same = 0;
            return false;
        };
        let next = next.max(self.now);
        self.same = if next == self.now { self.same + 1 } else { 0 };
        assert!(self.same < 10_000, "time stands still at {next}");
        self.now = next;
        for end in 0..2 {
            if self.due(end).is_some_and(|d| d <= next) {
                let a = self.contexts[end].as_ref().and_then(|c| c.poll(next));
                let b = self.drivers[end].as_mut().and_then(|d| d.poll(next));
                self.wake[end] = [a, b].into_iter().flatten().min();
            }
        }
        true
    }

    pub fn run(&mut self, time: Nanos) {
        let t = self.now + time;
        while self.step_to(t) {}
    }

    /// Polls both ends now, then steps until `done`, at most `time` longer; whether it was.
    pub fn until(&mut self, time: Nanos, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let t = self.now + time;
        self.touch();
        loop {
            if done(self) {
                return true;
            }
            if !self.step_to(t) {
                return done(self);
            }
        }
    }

    /// `len` bytes that message `n` is made of.
    pub fn filled(&self, end: usize, n: u64, len: usize) -> SendBuf {
        let mut b = self.context(end).register(len).unwrap();
        b.copy_from_slice(&pattern(n, len));
        b.freeze()
    }

    pub fn empty(&self, end: usize, len: usize) -> RecvBuf {
        self.context(end).register(len).unwrap()
    }

    /// Regions that live beside the one this call makes.
    pub fn live_regions(&self, end: usize) -> i64 {
        let probe = self.context(end).register(1).unwrap();
        let n = self.ledger[end].regions() - 1;
        drop(probe);
        n
    }

    /// Message `n` over the queue pair, from end 0 to end 1; `Err` says where it got stuck.
    pub fn pass(&mut self, ends: &Ends, n: u64) -> Result<(), String> {
        self.pass_over(&ends.send[0], &ends.recv[1], n)
    }

    pub fn pass_over(&mut self, send: &SendQp, recv: &RecvQp, n: u64) -> Result<(), String> {
        let handle = self.post_recv(recv)?;
        let seq = handle.seq();
        let sent = self.post_send(send, n)?;
        if sent.seq() != seq {
            return Err(format!("the send is {}, the receive {seq}", sent.seq()));
        }
        if !self.until(Nanos::from_secs(3), |_| handle.bitmap().is_full()) {
            return Err(format!("message {seq} does not become whole: {:?}", sent.poll()));
        }
        let mut retire = handle.complete();
        let mut back = None;
        self.until(Nanos::from_secs(3), |_| {
            back = back.take().or_else(|| retire.try_take());
            back.is_some()
        });
        match back {
            Some(Ok(buf)) if buf[..] == pattern(n, BYTES)[..] => Ok(()),
            Some(Ok(_)) => Err(format!("message {seq} has wrong bytes")),
            other => Err(format!("message {seq}: the buffer does not come back: {other:?}")),
        }
    }

    /// Posts a receive as soon as it is taken.
    pub fn post_recv(&mut self, recv: &RecvQp) -> Result<RecvHandle, String> {
        let mut buf = Some(self.empty(1, BYTES));
        let mut handle = None;
        let posted = self.until(Nanos::from_secs(3), |_| match recv.recv(buf.take().unwrap(), 4) {
            Ok(h) => {
                handle = Some(h);
                true
            }
            Err(e) => {
                buf = Some(e.into_buf());
                false
            }
        });
        self.touch();
        if posted { Ok(handle.unwrap()) } else { Err("no receive can be posted".into()) }
    }

    /// Posts a send as soon as it is taken.
    pub fn post_send(&mut self, send: &SendQp, n: u64) -> Result<SendHandle, String> {
        let mut buf = Some(self.filled(0, n, BYTES));
        let mut handle = None;
        let mut why = String::new();
        let posted = self.until(Nanos::from_secs(3), |_| match send.send(buf.take().unwrap(), None) {
            Ok(h) => {
                handle = Some(h);
                true
            }
            Err(e) => {
                why = e.to_string();
                let fatal = matches!(e, PostError::Closed(..));
                buf = Some(e.into_buf());
                fatal
            }
        });
        self.touch();
        match (posted, handle) {
            (true, Some(h)) => Ok(h),
            _ => Err(format!("no send can be posted: {why}")),
        }
    }
}

/// The bytes of message `n`; none is zero.
pub fn pattern(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((n as usize * 37 + i * 7 + i / 251) % 255) as u8 + 1).collect()
}
