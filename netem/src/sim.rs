//! The simulated fabric: NICs joined by directed links, in virtual time.
//!
//! A NIC behaves as hardware does: keys decide where payload goes, every packet that comes in is reported, also one whose
//! payload is discarded, and a disarmed key stays live until the disarm is confirmed. Nothing here reads a clock: what is
//! due happens in the poll of the NIC that it happens to. The same seeds and calls give the same events in the same order.
//!
//! | file | what it holds |
//! |---|---|
//! | `sim.rs` | [`SimNet`], [`SimFabric`], [`SimConfig`] |
//! | `sim/net.rs` | the way of a frame: tap, link, arrival |
//! | `sim/nic.rs` | queues, keys, placement, counters |
//! | `sim/tap.rs` | test hooks |
//! | `sim/queue.rs` | events in order |
//! | `sim/pool.rs` | bytes in flight |
//! | `sim/raw.rs` | the only access to user memory |
//!
//! Choices. All channels and the control datagrams of a direction share its link. A stretch of a run that arrives whole is
//! one event, at the arrival of its last packet. `Sent` comes when the last bit of a run has left the wire; all
//! events come out of whichever channel's poll finds them. Payload is captured when
//! it is posted. A packet that does not fit is dropped without a completion. Queues accept packets only from the queues
//! that they are connected to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdr_sdk::fabric::{
    Caps, CompletionModel, CompletionRun, Event, EventSink, Fabric, FabricError, Grant, Landing, Opened,
    QueueSpec, WriteRun,
};
use sdr_sdk::memory::{Region, RegionId};
use sdr_sdk::types::{Channel, Nanos, QueueSet, SlotGen};

use crate::link::{Link, LinkSpec};
use crate::loss::LossError;
use crate::rng::derive_seed;
use crate::spec::PathSpec;
use crate::units::Probability;
use net::{Found, Net, Wire};

pub use nic::NicCounters;
pub use tap::{Direction, Forged, Frame, FrameKind, Granularity, TapFn, Verdict};

mod net;
mod nic;
mod pool;
mod queue;
#[expect(unsafe_code, reason = "the only access to user memory")]
pub(crate) mod raw;
mod tap;
#[cfg(test)]
mod tests;

/// The links between two NICs.
#[derive(Clone, Debug, PartialEq)]
pub enum SimPath {
    /// Both directions of one path.
    Path(PathSpec),
    /// Each direction by itself: from the NIC with the lower number, and back.
    Links(Box<(LinkSpec, LinkSpec)>),
}

impl From<PathSpec> for SimPath {
    fn from(path: PathSpec) -> Self {
        Self::Path(path)
    }
}

impl From<(LinkSpec, LinkSpec)> for SimPath {
    fn from(links: (LinkSpec, LinkSpec)) -> Self {
        Self::Links(Box::new(links))
    }
}

impl SimPath {
    /// Both directions of the `n`-th pair of NICs; each pair has seeds of its own.
    fn links(&self, n: u64) -> Result<(LinkSpec, LinkSpec), LossError> {
        let (mut there, mut back) = match self {
            Self::Path(path) => (path.forward()?, path.reverse()?),
            Self::Links(links) => (**links).clone(),
        };
        if n > 0 {
            there.seed = derive_seed(there.seed, n);
            back.seed = derive_seed(back.seed, n);
        }
        Ok((there, back))
    }
}

/// What the NICs of a net are like, and what joins them.
#[derive(Clone, Debug, PartialEq)]
pub struct SimConfig {
    /// The links.
    pub path: SimPath,
    /// Channels, at least 1.
    pub channels: u8,
    /// Most slots of a queue set; a power of two.
    pub slots: u32,
    /// Most generations of a queue set; a power of two up to 2^16.
    pub generations: u32,
    /// Most payload bytes of a packet.
    pub max_payload: u32,
    /// Payload bytes are carried. Without, no byte of user memory is read or written.
    pub payload_copy: bool,
    /// No packet is ever counted twice. Not with links that duplicate; copies that a tap makes are discarded.
    pub exact_counts: bool,
    /// From `disarm` to its confirmation; the key is live until then.
    pub disarm_delay: Nanos,
    /// Most packets posted on a NIC that are not `Sent`; none is no limit.
    pub post_limit: Option<u64>,
    /// Most control datagrams of a NIC that have not left the wire; none is no limit.
    pub control_limit: Option<u32>,
}

impl Default for SimConfig {
    /// A perfect path, 1,024 slots, 2^16 generations, 4 channels, 4 KiB packets that are carried and counted exactly.
    fn default() -> Self {
        Self {
            path: SimPath::Path(PathSpec::default()),
            channels: 4,
            slots: 1 << 10,
            generations: 1 << 16,
            max_payload: 4096,
            payload_copy: true,
            exact_counts: true,
            disarm_delay: Nanos::ZERO,
            post_limit: None,
            control_limit: None,
        }
    }
}

/// Why a net was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The loss parameters do not fit together.
    #[error(transparent)]
    Loss(#[from] LossError),
    /// A count that is promised to be exact on a link that duplicates.
    #[error("exact counts and a link that duplicates packets with probability {duplicate}; give up one")]
    ExactCounts {
        /// The link's.
        duplicate: Probability,
    },
    /// A number that a net cannot have.
    #[error("{what} is {asked}, give {allowed}")]
    Config {
        /// Name of the field.
        what: &'static str,
        /// The value.
        asked: u64,
        /// What is allowed.
        allowed: &'static str,
    },
}

type Shared = Arc<Mutex<Net>>;

fn lock(net: &Shared) -> MutexGuard<'_, Net> {
    // A panic under the lock is a caller's broken promise or a panicking tap. Keys and memory are never half changed; at
    // worst the run that the tap panicked over is never `Sent`.
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The net itself: test hooks and counters. Its NICs are [`SimFabric`]s. Cheap to clone.
#[derive(Clone)]
pub struct SimNet(Shared);

impl SimNet {
    /// Two NICs: the first has number 0, the second number 1.
    ///
    /// # Errors
    /// As [`SimError`] says.
    pub fn pair(config: SimConfig) -> Result<(Self, SimFabric, SimFabric), SimError> {
        let net = Self::build(config, 2)?;
        let (a, b) = (SimFabric::new(&net.0, 0), SimFabric::new(&net.0, 1));
        Ok((net, a, b))
    }

    /// `nics` NICs, each pair joined by a path of its own.
    ///
    /// # Errors
    /// As [`SimError`] says.
    pub fn mesh(config: SimConfig, nics: u16) -> Result<(Self, Vec<SimFabric>), SimError> {
        let net = Self::build(config, nics)?;
        let fabrics = (0..nics).map(|nic| SimFabric::new(&net.0, nic)).collect();
        Ok((net, fabrics))
    }

    fn build(config: SimConfig, nics: u16) -> Result<Self, SimError> {
        check_config(&config, nics)?;
        let n = usize::from(nics);
        let mut wires: Vec<Option<Wire>> = (0..n * n).map(|_| None).collect();
        let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
        for (pair, (a, b)) in (0..).zip(pairs) {
            let (there, back) = config.path.links(pair)?;
            for (from, to, spec) in [(a, b, there), (b, a, back)] {
                if config.exact_counts && spec.duplicate > Probability::ZERO {
                    return Err(SimError::ExactCounts { duplicate: spec.duplicate });
                }
                wires[from * n + to] = Some(Wire { link: Link::new(spec)?, tap: None });
            }
        }
        Ok(Self(Arc::new(Mutex::new(Net::new(config, nics, wires)))))
    }

    /// Lets `decide` judge each frame of a direction, in place of an earlier tap.
    ///
    /// # Panics
    /// When the net has no such direction.
    pub fn tap(
        &self,
        direction: Direction,
        granularity: Granularity,
        decide: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static,
    ) {
        lock(&self.0).wire(direction).tap = Some(tap::Tap { granularity, decide: Box::new(decide) });
    }

    /// Takes the tap away.
    ///
    /// # Panics
    /// When the net has no such direction.
    pub fn untap(&self, direction: Direction) {
        lock(&self.0).wire(direction).tap = None;
    }

    /// A packet that nobody posted arrives at the end of `direction` at `at`; at once when that is past. It takes no wire
    /// time and passes no tap.
    ///
    /// # Panics
    /// When the net has no such direction.
    pub fn inject(&self, direction: Direction, at: Nanos, packet: Forged) {
        let mut net = lock(&self.0);
        net.wire(direction);
        net.inject(direction.to, at, packet);
    }

    /// Reads or changes a link. It holds for packets posted from here on. The net is locked meanwhile.
    ///
    /// # Panics
    /// When the net has no such direction.
    pub fn link<R>(&self, direction: Direction, f: impl FnOnce(&mut Link) -> R) -> R {
        f(&mut lock(&self.0).wire(direction).link)
    }

    /// What a NIC counted.
    ///
    /// # Panics
    /// When the net has no such NIC.
    pub fn counters(&self, nic: u16) -> NicCounters {
        lock(&self.0).nics[usize::from(nic)].counters
    }

    /// When a NIC has work next; none when nothing is in flight to it.
    ///
    /// # Panics
    /// When the net has no such NIC.
    pub fn nic_wake_at(&self, nic: u16) -> Option<Nanos> {
        lock(&self.0).wake_at(nic)
    }

    /// When any NIC has work next; none when nothing is in flight.
    pub fn wake_at(&self) -> Option<Nanos> {
        let net = lock(&self.0);
        (0..net.nics.len() as u16).filter_map(|nic| net.wake_at(nic)).min()
    }
}

fn check_config(config: &SimConfig, nics: u16) -> Result<(), SimError> {
    let power_of_two = |n: u32| n.is_power_of_two();
    for (what, asked, good, allowed) in [
        ("number of NICs", nics.into(), nics >= 2, "at least 2"),
        ("channels", config.channels.into(), config.channels >= 1, "at least 1"),
        (
            "slots",
            config.slots,
            power_of_two(config.slots) && config.slots <= 1 << 10,
            "a power of two up to 1024",
        ),
        (
            "generations",
            config.generations,
            power_of_two(config.generations) && config.generations <= 1 << 16,
            "a power of two up to 65536",
        ),
        ("max_payload", config.max_payload, config.max_payload >= 1, "at least 1"),
    ] {
        if !good {
            return Err(SimError::Config { what, asked: asked.into(), allowed });
        }
    }
    Ok(())
}

/// One NIC of a [`SimNet`]. Dropping it closes its queues.
pub struct SimFabric {
    net: Shared,
    nic: u16,
    caps: Caps,
    /// Scratch of `poll`, which tells the sink after it released the lock.
    found: Vec<Found>,
    spare: Vec<Vec<u8>>,
}

impl SimFabric {
    fn new(net: &Shared, nic: u16) -> Self {
        let caps = {
            let SimConfig { channels, slots, generations, max_payload, exact_counts, .. } = lock(net).config;
            Caps::new(channels, slots, generations, max_payload, exact_counts)
        };
        Self { net: net.clone(), nic, caps, found: Vec::new(), spare: Vec::new() }
    }

    /// Its number in the net.
    pub fn nic(&self) -> u16 {
        self.nic
    }

    fn with_nic<R>(&self, f: impl FnOnce(&mut nic::Nic, &SimConfig) -> R) -> R {
        let net = &mut *lock(&self.net);
        f(&mut net.nics[usize::from(self.nic)], &net.config)
    }
}

impl Drop for SimFabric {
    fn drop(&mut self) {
        self.with_nic(|nic, _| nic.close_all());
    }
}

// SAFETY: memory of `arm` is written in `place` alone, under a key that `Disarmed` or `close` takes away; memory of `post`
// is read within the call; completions follow the copy.
#[expect(unsafe_code, reason = "promises what `Fabric` asks")]
unsafe impl Fabric for SimFabric {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn completions(&self, _ch: Channel) -> CompletionModel<'_> {
        CompletionModel::Batch
    }

    fn open(&mut self, spec: &QueueSpec) -> Result<Opened, FabricError> {
        let name = self.with_nic(|nic, config| nic.open(spec, config))?;
        Ok(Opened { q: QueueSet(name.q), address: name.to_bytes(), queues: Vec::new() })
    }

    fn connect(&mut self, q: QueueSet, peer: &[u8]) -> Result<(), FabricError> {
        lock(&self.net).connect(self.nic, q, peer)
    }

    fn close(&mut self, q: QueueSet) {
        self.with_nic(|nic, _| nic.close(q));
    }

    fn register(&mut self, region: &Region) -> Result<RegionId, FabricError> {
        Ok(self.with_nic(|nic, _| nic.register(region)))
    }

    /// # Panics
    /// When a receive is armed in the region.
    fn deregister(&mut self, region: RegionId) {
        self.with_nic(|nic, _| nic.deregister(region));
    }

    fn arm(&mut self, q: QueueSet, at: SlotGen, to: &Landing) -> Result<Option<Grant>, FabricError> {
        self.with_nic(|nic, _| nic.arm(q, at, to))
    }

    /// Counts the delay from the latest `now` of the net. What is not armed is confirmed as well.
    fn disarm(&mut self, q: QueueSet, at: SlotGen) {
        lock(&self.net).disarm(self.nic, q, at);
    }

    /// Takes nothing on queues that are not connected.
    ///
    /// # Panics
    /// When a run names a slot, generation, channel or offset that its queues do not have, or its bytes are not those of
    /// its packets.
    fn post(&mut self, now: Nanos, ch: Channel, runs: &[WriteRun]) -> u64 {
        lock(&self.net).post(self.nic, now, ch, runs)
    }

    fn control(&mut self, now: Nanos, q: QueueSet, msg: &[u8]) -> bool {
        lock(&self.net).control(self.nic, now, q, msg)
    }

    fn poll(&mut self, now: Nanos, _ch: Channel, out: &mut dyn EventSink) -> bool {
        let more = lock(&self.net).poll(self.nic, now, &mut self.found, &mut self.spare);
        for found in self.found.drain(..) {
            match found {
                Found::Sent { q, at, packets } => out.event(Event::Sent { q, at, packets }),
                Found::Disarmed { q, at } => out.event(Event::Disarmed { q, at }),
                Found::Control { q, mut bytes } => {
                    out.event(Event::Control { q, bytes: &bytes });
                    bytes.clear();
                    self.spare.push(bytes);
                }
            }
        }
        more
    }

    fn take_completions(&mut self, ch: Channel, out: &mut Vec<CompletionRun>) {
        self.with_nic(|nic, _| {
            if let Some(runs) = nic.completions.get_mut(usize::from(ch.0)) {
                out.append(runs);
            }
        });
    }

    fn wake_at(&self) -> Option<Nanos> {
        lock(&self.net).wake_at(self.nic)
    }
}
