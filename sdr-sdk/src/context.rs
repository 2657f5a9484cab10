//! The context: one fabric, one engine, the memory registered with them and the queue pairs that share them.
//!
//! One lock guards it all; only the engine's bitmaps are shared without it. Nothing here has a thread or a clock: calls
//! record what is wanted, [`Context::poll`] acts on it. Invariant: memory outlives every key and every post that names
//! it, because the context closes queues before it lets go of buffers.

use crate::engine::{CompletionEngine, EngineCounters, EngineError};
use crate::fabric::{Event, Fabric, FabricError, Opened, QueueSpec};
use crate::imm::ImmLayout;
use crate::memory::{MemoryError, RecvBuf, Region, RegionId, SendBuf};
use crate::qp::core::{QpCore, Timing};
use crate::qp::{QpInfo, UnconnectedQp};
use crate::types::{Channel, Nanos, QueueSet, Seq};
use crate::wake::wake_all;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Settings of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextConfig {
    /// L: no packet is on its way longer than this; the larger of it and four RTT is used. Default 1 s.
    pub packet_lifetime: Nanos,
    /// After this a `Retire` reports that the engine or fabric is stalled. Default 1 s.
    pub retire_deadline: Nanos,
    /// Round-trip time assumed until it was measured. Default 100 ms.
    pub initial_rtt: Nanos,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            packet_lifetime: Nanos::from_secs(1),
            retire_deadline: Nanos::from_secs(1),
            initial_rtt: Nanos::from_millis(100),
        }
    }
}

impl ContextConfig {
    /// Sets [`packet_lifetime`](Self::packet_lifetime).
    pub fn packet_lifetime(self, packet_lifetime: Nanos) -> Self {
        Self { packet_lifetime, ..self }
    }

    /// Sets [`retire_deadline`](Self::retire_deadline).
    pub fn retire_deadline(self, retire_deadline: Nanos) -> Self {
        Self { retire_deadline, ..self }
    }

    /// Sets [`initial_rtt`](Self::initial_rtt).
    pub fn initial_rtt(self, initial_rtt: Nanos) -> Self {
        Self { initial_rtt, ..self }
    }
}

/// Settings of a queue pair; both sides need the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpConfig {
    /// Division of the immediate: slots against message length.
    pub layout: ImmLayout,
    /// Channels to spray over; 0 means all of the fabric.
    pub channels: u8,
    /// Payload bytes of a full packet; 0 means the fabric's largest.
    pub payload: u32,
    /// Slots S, a power of two; 0 means as many as layout and fabric allow.
    pub slots: u32,
    /// Generations G, a power of two; 0 means as many as the fabric has.
    pub generations: u32,
    /// Whether each message carries a 32-bit user immediate in its packets.
    pub user_immediate: bool,
    /// First message number of the direction that this side sends.
    pub send_first: Seq,
    /// First message number of the direction that this side receives.
    pub recv_first: Seq,
}

impl Default for QpConfig {
    fn default() -> Self {
        Self {
            layout: ImmLayout::default(),
            channels: 0,
            payload: 0,
            slots: 0,
            generations: 0,
            user_immediate: false,
            send_first: Seq(0),
            recv_first: Seq(0),
        }
    }
}

impl QpConfig {
    /// Sets [`layout`](Self::layout).
    pub fn layout(self, layout: ImmLayout) -> Self {
        Self { layout, ..self }
    }

    /// Sets [`channels`](Self::channels).
    pub fn channels(self, channels: u8) -> Self {
        Self { channels, ..self }
    }

    /// Sets [`payload`](Self::payload).
    pub fn payload(self, payload: u32) -> Self {
        Self { payload, ..self }
    }

    /// Sets [`slots`](Self::slots) and [`generations`](Self::generations).
    pub fn slots(self, slots: u32, generations: u32) -> Self {
        Self { slots, generations, ..self }
    }

    /// Sets [`user_immediate`](Self::user_immediate).
    pub fn user_immediate(self, user_immediate: bool) -> Self {
        Self { user_immediate, ..self }
    }

    /// Sets [`send_first`](Self::send_first) and [`recv_first`](Self::recv_first).
    pub fn first(self, send_first: Seq, recv_first: Seq) -> Self {
        Self { send_first, recv_first, ..self }
    }
}

/// Why a context or a queue pair could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is outside what layout and fabric allow.
    #[error("{what} = {asked}: give {allowed}")]
    Config {
        /// Which setting.
        what: &'static str,
        /// Its value.
        asked: u64,
        /// What is allowed.
        allowed: String,
    },
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Why memory could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The system refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The fabric refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

static CONTEXTS: AtomicU64 = AtomicU64::new(0);

/// Names a queue pair inside its context.
pub(crate) type QpId = usize;

/// A queue pair and the seams it acts on.
pub(crate) type Parts<'a> =
    (&'a mut QpCore, &'a mut (dyn Fabric + 'static), &'a mut (dyn CompletionEngine + 'static));

pub(crate) struct Core {
    // Before the fabric, whose rings it may have mapped: fields are dropped in order.
    pub(crate) engine: Box<dyn CompletionEngine>,
    pub(crate) fabric: Box<dyn Fabric>,
    config: ContextConfig,
    qps: Vec<Option<QpCore>>,
    by_queue: HashMap<QueueSet, QpId>,
    regions: Vec<(Arc<Region>, RegionId)>,
    /// Passes over fabric and engine so far.
    pass: u64,
    /// A pass in which the fabric came up empty, until the engine has recorded what was there then.
    dry: Option<(u64, Nanos)>,
    /// Tells contexts apart: region numbers mean nothing to another one.
    number: u64,
}

/// What one pass over fabric and engine came to.
struct Pass {
    /// The fabric stopped at its bound.
    more: bool,
    /// Everything that had come in by then is recorded: slots that were closed long enough before are free.
    drain: Option<Nanos>,
    wake_at: Option<Nanos>,
}

impl Drop for Core {
    fn drop(&mut self) {
        // Queues first: afterwards no packet and no post touches the buffers that the fields below still hold.
        for qp in self.qps.iter().flatten() {
            self.fabric.close(qp.q);
            self.engine.close(qp.q);
        }
    }
}

impl Core {
    pub(crate) fn qp(&mut self, id: QpId) -> Option<&mut QpCore> {
        self.qps.get_mut(id).and_then(Option::as_mut)
    }

    /// A queue pair together with the seams it acts on.
    pub(crate) fn parts(&mut self, id: QpId) -> Option<Parts<'_>> {
        let Self { qps, fabric, engine, .. } = self;
        qps.get_mut(id).and_then(Option::as_mut).map(|qp| (qp, &mut **fabric, &mut **engine))
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn destroy(&mut self, id: QpId) {
        let Some(qp) = self.qps.get_mut(id).and_then(Option::take) else { return };
        self.by_queue.remove(&qp.q);
        self.fabric.close(qp.q);
        self.engine.close(qp.q);
    }

    fn poll(&mut self, now: Nanos, wakers: &mut Vec<Waker>) -> Pass {
        self.pass += 1;
        let pass = self.pass;
        let Self { fabric, engine, qps, by_queue, .. } = self;
        let qp_of =
            |qps: &mut Vec<Option<QpCore>>, q| by_queue.get(&q).copied().filter(|&id| qps[id].is_some());
        let mut more = false;
        for ch in 0..fabric.caps().channels {
            more |= fabric.poll(now, Channel(ch), &mut |e: Event<'_>| match e {
                Event::Sent { q, at, packets } => {
                    if let Some(qp) = qp_of(qps, q).and_then(|id| qps[id].as_mut()) {
                        qp.on_sent(at.seq, packets);
                    }
                }
                Event::Armed { q, at, grant } => {
                    if let Some(qp) = qp_of(qps, q).and_then(|id| qps[id].as_mut()) {
                        qp.recv.on_armed(at, grant);
                    }
                }
                Event::Disarmed { q, at } => {
                    if let Some(qp) = qp_of(qps, q).and_then(|id| qps[id].as_mut()) {
                        qp.recv.on_disarmed(at, wakers);
                    }
                }
                Event::Control { q, bytes } => {
                    if let Some(qp) = qp_of(qps, q).and_then(|id| qps[id].as_mut()) {
                        qp.on_control(now, bytes);
                    }
                }
                Event::PathPayload { q, payload } => {
                    if let Some(qp) = qp_of(qps, q).and_then(|id| qps[id].as_mut()) {
                        qp.on_path_payload(payload);
                    }
                }
                Event::QueueError { q, code, .. } => {
                    if let Some(qp) = qp_of(qps, q).and_then(|id| qps[id].as_mut()) {
                        qp.link.close(crate::qp::Closed::Queue(code));
                    }
                }
                Event::Retired { .. } | Event::EngineFailed { .. } => {}
            });
        }
        let polled = engine.poll(pass, now, &mut **fabric, &mut |e: Event<'_>| match e {
            Event::Retired { q, at } => {
                if let Some(qp) = qp_of(qps, q).and_then(|id| qps[id].as_mut()) {
                    qp.recv.on_retired(at, wakers);
                }
            }
            Event::EngineFailed { code } => {
                qps.iter_mut().flatten().for_each(|qp| qp.link.close(crate::qp::Closed::Engine(code)));
            }
            _ => {}
        });
        if !more {
            self.dry.get_or_insert((pass, now));
        }
        let drain = self.dry.take_if(|d| d.0 <= polled.recorded).map(|d| d.1);
        Pass { more, drain, wake_at: polled.wake_at }
    }

    /// Regions that no buffer refers to any more go back to the system.
    fn collect_regions(&mut self) {
        let fabric = &mut self.fabric;
        self.regions.retain(|(region, id)| {
            let used = Arc::strong_count(region) > 1;
            if !used {
                fabric.deregister(*id);
            }
            used
        });
    }
}

/// One fabric and one engine, shared by all queue pairs. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    core: Arc<Mutex<Core>>,
}

const _: () = {
    const fn shared<T: Clone + Send + Sync>() {}
    shared::<Context>();
};

impl Context {
    /// Binds a fabric and an engine that can consume its completions.
    pub fn open(
        fabric: Box<dyn Fabric>,
        mut engine: Box<dyn CompletionEngine>,
        config: ContextConfig,
    ) -> Result<Self, OpenError> {
        for ch in 0..fabric.caps().channels {
            engine.attach(Channel(ch), &fabric.completions(Channel(ch)))?;
        }
        let core = Core {
            fabric,
            engine,
            config,
            qps: Vec::new(),
            by_queue: HashMap::new(),
            regions: Vec::new(),
            pass: 0,
            dry: None,
            number: CONTEXTS.fetch_add(1, Ordering::Relaxed),
        };
        Ok(Self { core: Arc::new(Mutex::new(core)) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic under the lock can only come from a fabric or engine; what was recorded before it stays valid.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maps and registers `len` bytes, zeroed. The context owns the memory; dropping all its buffers gives it back.
    pub fn register(&self, len: usize) -> Result<RecvBuf, RegisterError> {
        self.add_region(Region::map(len)?)
    }

    /// Registers memory that somebody else owns.
    ///
    /// # Safety
    /// `base..base + len` is initialised, readable and writable by the CPU, stays so, and nobody else accesses it, until
    /// [`deregister`](Self::deregister) gave it back, or this context and every buffer made from it are gone. It is
    /// registered once at a time. A layer that hands no buffer of it to others may narrow the second promise: nobody else
    /// writes what is posted to be sent, nor touches what is posted to be received into.
    pub unsafe fn register_foreign(
        &self,
        base: std::ptr::NonNull<u8>,
        len: usize,
    ) -> Result<RecvBuf, RegisterError> {
        // SAFETY: the caller promises what `foreign` asks.
        self.add_region(unsafe { Region::foreign(base, len) }?)
    }

    /// Gives a region back now, not when the context next finds it unused: afterwards the fabric does not know its memory.
    ///
    /// # Errors
    /// The buffer, while another buffer, a post or a receive still refers to its region, or when it is another context's.
    pub fn deregister(&self, buf: SendBuf) -> Result<(), SendBuf> {
        let mut core = self.lock();
        // Our entry and `buf`. More could only be made from a buffer, and `buf` is the last.
        if buf.owner() != core.number || Arc::strong_count(buf.region()) > 2 {
            return Err(buf);
        }
        // Whoever let go of it before did so with Release: his accesses are over.
        fence(Ordering::Acquire);
        drop(buf);
        core.collect_regions();
        Ok(())
    }

    fn add_region(&self, region: Arc<Region>) -> Result<RecvBuf, RegisterError> {
        let mut core = self.lock();
        core.collect_regions();
        let id = core.fabric.register(&region)?;
        core.regions.push((region.clone(), id));
        Ok(RecvBuf::whole(core.number, region, id))
    }

    /// Creates a queue pair. Exchange [`UnconnectedQp::info`] with the peer, then connect.
    pub fn create_qp(&self, config: &QpConfig) -> Result<UnconnectedQp, OpenError> {
        let mut core = self.lock();
        let caps = core.fabric.caps();
        let spec = queue_spec(config, &caps)?;
        let Opened { q, address, queues } = core.fabric.open(&spec)?;
        if let Err(e) = core.engine.open(q, &spec, &queues, config.recv_first) {
            core.fabric.close(q);
            return Err(e.into());
        }
        let timing = Timing {
            lifetime: core.config.packet_lifetime,
            retire_deadline: core.config.retire_deadline,
            initial_rtt: core.config.initial_rtt,
        };
        let (send_first, recv_first) = (config.send_first, config.recv_first);
        let qp = QpCore::new(q, spec, send_first, recv_first, timing, caps.exact_counts);
        let id = core.qps.iter().position(Option::is_none).unwrap_or(core.qps.len());
        if id == core.qps.len() {
            core.qps.push(None);
        }
        core.qps[id] = Some(qp);
        core.by_queue.insert(q, id);
        drop(core);
        let info = QpInfo { spec, send_first, recv_first, address };
        Ok(UnconnectedQp::new(self.clone(), id, info))
    }

    /// A queue of tokens for futures of this library, for programs with a loop of their own.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn events(&self) -> std::io::Result<crate::events::Events> {
        crate::events::Events::new()
    }

    /// Makes progress: takes what fabric and engine have, posts and sends what is due. Returns when to come again.
    ///
    /// `now` never goes back. Wakers are called after the lock is released.
    pub fn poll(&self, now: Nanos) -> Option<Nanos> {
        let mut wakers = Vec::new();
        let wake_at = {
            let mut core = self.lock();
            let pass = core.poll(now, &mut wakers);
            let Core { fabric, engine, qps, .. } = &mut *core;
            let mut wake_at = if pass.more { Some(now) } else { fabric.wake_at() };
            wake_at = [wake_at, pass.wake_at].into_iter().flatten().min();
            for qp in qps.iter_mut().flatten().filter(|qp| qp.connected) {
                if let Some(at) = pass.drain {
                    qp.drain(at, &**engine);
                }
                qp.flush(now, &mut **fabric, &mut wakers);
                // Asked again after the posts: only now is it known when there is room.
                let fabric_at = qp.fabric_wake_at(&**fabric);
                wake_at = [wake_at, fabric_at, qp.wake_at(now)].into_iter().flatten().min();
            }
            wake_at
        };
        wake_all(wakers);
        wake_at
    }

    /// What the engine counted on a queue pair.
    pub(crate) fn engine_counters(&self, id: QpId) -> EngineCounters {
        let mut core = self.lock();
        let Some(q) = core.qp(id).map(|qp| qp.q) else { return EngineCounters::default() };
        core.engine.counters(q)
    }
}

fn queue_spec(c: &QpConfig, caps: &crate::fabric::Caps) -> Result<QueueSpec, OpenError> {
    fn pick(what: &'static str, asked: u32, max: u32, power_of_two: bool) -> Result<u32, OpenError> {
        if asked == 0 {
            return Ok(max);
        }
        if asked > max || (power_of_two && !asked.is_power_of_two()) {
            let kind = if power_of_two { "a power of two up to " } else { "up to " };
            return Err(OpenError::Config { what, asked: asked as u64, allowed: format!("{kind}{max}") });
        }
        Ok(asked)
    }
    Ok(QueueSpec {
        layout: c.layout,
        channels: pick("channels", c.channels as u32, caps.channels as u32, false)? as u8,
        slots: pick("slots", c.slots, caps.slots.min(c.layout.max_slots()), true)?,
        generations: pick("generations", c.generations, caps.generations, true)?,
        payload: pick("payload", c.payload, caps.max_payload, false)?,
        user_immediate: c.user_immediate,
    })
}
