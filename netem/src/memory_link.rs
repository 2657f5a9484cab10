//! A link in memory between two software NICs, with or without a path between them.
//!
//! [`MemoryNet`] is the net with its test hooks, [`MemoryLink`] one end of it for
//! [`SoftFabric`]. Without a path frames are handed over at once and a full buffer holds
//! the sender back; with one each direction passes an [`RtLink`]. Time is an argument, so the whole NIC runs in virtual
//! time, or in real time where `now` is. Each direction has a lock of its own. What is held is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sdr_sdk::context::{ContextConfig, QpConfig};
use sdr_sdk::fabric::soft::wire::{HEADER, MAX_PAYLOAD};
use sdr_sdk::fabric::soft::{Endpoint, Link as NicLink, SoftFabric};
use sdr_sdk::types::{Channel, Nanos};

use crate::link::Link;
use crate::loss::LossError;
use crate::pair::{Halves, Net, PairError, QpPair};
use crate::relay::{Limits, RtLink, RtLinkStats};
use crate::sim::{Direction, SimError, Verdict};
use crate::spec::PathSpec;

#[cfg(test)]
mod tests;

/// Frames taken by one call of `recv`.
const BATCH: usize = 128;
/// Empty buffers that a direction keeps.
const SPARE: usize = 1 << 12;
/// IPv4 and UDP headers, which count against an MTU.
const IP_UDP: usize = 28;

/// What a [`MemoryNet`] is like.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryConfig {
    /// The path; none hands frames over at once.
    pub path: Option<PathSpec>,
    /// Channels.
    pub channels: u8,
    /// Largest payload of a frame, in bytes.
    pub max_payload: usize,
    /// End 0 has an address for each channel, as a client over UDP has. End 1 always has one for all.
    pub address_per_channel: bool,
    /// Bytes that a direction holds before the sender is held back: waiting for the receiver where there is no path, waiting
    /// for the wire where the path has a rate and no queue of its own.
    pub buffer: usize,
}

impl Default for MemoryConfig {
    /// No path, 4 channels, everything that fits a datagram, an address a channel, 4 MiB.
    fn default() -> Self {
        Self { path: None, channels: 4, max_payload: MAX_PAYLOAD, address_per_channel: true, buffer: 4 << 20 }
    }
}

/// A frame as a tap sees it, before the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFrame<'a> {
    /// When it was sent.
    pub now: Nanos,
    /// Channel of the link that it was sent on.
    pub channel: Channel,
    /// The sender's address.
    pub from: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// Header and payload.
    pub bytes: &'a [u8],
}

/// Called for each frame under the direction's lock: it must not call the net.
pub type MemoryTap = dyn FnMut(&MemoryFrame<'_>) -> Verdict + Send;

/// What one direction counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// Frames that the sender handed over.
    pub frames: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Dropped by the tap.
    pub dropped: u64,
    /// Longer than the path's MTU: dropped.
    pub too_long: u64,
    /// For an address that the other end does not have: dropped.
    pub unrouted: u64,
    /// Times that the sender was held back.
    pub held_back: u64,
    /// Frames injected.
    pub injected: u64,
    /// Frames that the receiver took, injected ones included.
    pub received: u64,
}

struct Held {
    from: SocketAddr,
    bytes: Vec<u8>,
}

enum Late {
    /// Passes the path then.
    Enters(SocketAddr, Held),
    /// Is there then.
    Arrives(Held),
}

/// One direction.
struct Wire {
    /// Of the sender, by channel.
    sources: Vec<SocketAddr>,
    /// Of the receiver, by channel.
    route: Vec<SocketAddr>,
    path: Option<RtLink<SocketAddr>>,
    /// Arrived.
    ready: VecDeque<Held>,
    ready_bytes: usize,
    /// Held by a tap, and injected: by time, then in order.
    late: BTreeMap<(Nanos, u64), Late>,
    order: u64,
    tap: Option<Box<MemoryTap>>,
    mtu: Option<usize>,
    buffer: usize,
    /// The sender was held back; when it may come again, as far as time alone decides that.
    full: Option<Option<Nanos>>,
    spare: Vec<Vec<u8>>,
    counters: MemoryCounters,
}

impl Wire {
    /// None when there is room, otherwise when there will be.
    fn full(&mut self, now: Nanos) -> Option<Option<Nanos>> {
        let Some(path) = &mut self.path else {
            return (self.ready_bytes >= self.buffer).then_some(None);
        };
        let link = path.link_mut();
        let backlog = link.backlog(now).0;
        if link.spec().queue.is_some() || backlog < self.buffer as u64 {
            return None;
        }
        // Half the buffer is free when what is on the wire beyond it has left.
        let all = link.busy_until().since(now);
        let half = self.buffer as u64 / 2;
        Some(Some(now + all.mul_div(backlog - half, backlog)))
    }

    fn send(
        &mut self,
        now: Nanos,
        channel: Channel,
        to: SocketAddr,
        headers: &[[u8; HEADER]],
        payload: &[u8],
        size: usize,
    ) -> usize {
        let from = self.sources[usize::from(channel.0).min(self.sources.len() - 1)];
        for (i, header) in headers.iter().enumerate() {
            self.full = self.full(now);
            if self.full.is_some() {
                self.counters.held_back += 1;
                return i;
            }
            let start = (i * size).min(payload.len());
            let part = &payload[start..payload.len().min(start + size)];
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.extend_from_slice(header);
            bytes.extend_from_slice(part);
            self.counters.frames += 1;
            self.counters.bytes += bytes.len() as u64;
            self.judge(now, channel, to, Held { from, bytes });
        }
        headers.len()
    }

    /// Lets the tap decide.
    fn judge(&mut self, now: Nanos, channel: Channel, to: SocketAddr, mut held: Held) {
        let frame = MemoryFrame { now, channel, from: held.from, to, bytes: &held.bytes };
        match self.tap.as_mut().map_or(Verdict::Pass, |decide| decide(&frame)) {
            Verdict::Pass => {}
            Verdict::Drop => {
                self.counters.dropped += 1;
                return self.recycle(held.bytes);
            }
            Verdict::Delay(later) => return self.later(now + later, Late::Enters(to, held)),
            Verdict::Duplicate(later) => {
                let copy = Held { from: held.from, bytes: held.bytes.clone() };
                self.later(now + later, Late::Enters(to, copy));
            }
            Verdict::Corrupt => {
                // Another bit each time, the same ones in every repetition.
                let bit = (self.counters.frames.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) as usize
                    % (held.bytes.len() * 8);
                held.bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        self.enter(now, to, held);
    }

    fn later(&mut self, at: Nanos, late: Late) {
        self.order += 1;
        self.late.insert((at, self.order), late);
    }

    /// Into the path.
    fn enter(&mut self, now: Nanos, to: SocketAddr, held: Held) {
        let lost = if self.mtu.is_some_and(|mtu| held.bytes.len() + IP_UDP > mtu) {
            Some(&mut self.counters.too_long)
        } else if !self.route.contains(&to) {
            Some(&mut self.counters.unrouted)
        } else {
            None
        };
        if let Some(lost) = lost {
            *lost += 1;
            return self.recycle(held.bytes);
        }
        match &mut self.path {
            Some(path) => {
                path.push(now, held.from, &held.bytes);
                self.recycle(held.bytes);
            }
            None => self.arrive(held),
        }
    }

    fn arrive(&mut self, held: Held) {
        self.ready_bytes += held.bytes.len();
        self.ready.push_back(held);
    }

    /// What arrived by `now`, into `out`, as far as that has room.
    fn take(&mut self, now: Nanos, out: &mut Vec<Held>) {
        while let Some(entry) = self.late.first_entry().filter(|e| e.key().0 <= now) {
            let ((at, _), late) = entry.remove_entry();
            match late {
                Late::Enters(to, held) => self.enter(at, to, held),
                Late::Arrives(held) => self.arrive(held),
            }
        }
        while out.len() < BATCH {
            let held = match self.ready.pop_front() {
                Some(held) => {
                    self.ready_bytes -= held.bytes.len();
                    held
                }
                None => match self.path.as_mut().and_then(|p| p.pop_due(now)) {
                    Some(frame) => Held { from: frame.tag, bytes: frame.bytes },
                    None => return,
                },
            };
            self.counters.received += 1;
            out.push(held);
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// When the receiver has work.
    fn arrives_at(&self) -> Option<Nanos> {
        if !self.ready.is_empty() {
            return Some(Nanos::ZERO);
        }
        let late = self.late.keys().next().map(|k| k.0);
        [late, self.path.as_ref().and_then(RtLink::next_due)].into_iter().flatten().min()
    }

    /// When a sender that was held back has room again.
    fn room_at(&self) -> Option<Nanos> {
        match self.full? {
            Some(at) => Some(at),
            None => (self.ready_bytes < self.buffer).then_some(Nanos::ZERO),
        }
    }
}

/// Two ends and the wires between them; cheap to clone.
#[derive(Clone)]
pub struct MemoryNet {
    wires: Arc<[Mutex<Wire>; 2]>,
    channels: u8,
    max_payload: usize,
}

impl MemoryNet {
    /// A net without frames. End 0 has the addresses 10.0.0.1:4000 and up, end 1 has 10.0.0.2:4000.
    ///
    /// # Errors
    /// [`LossError`] when the path's loss parameters do not fit together.
    pub fn new(config: &MemoryConfig) -> Result<Self, LossError> {
        let address = |end: u8, channel: u8| {
            SocketAddr::from((Ipv4Addr::new(10, 0, 0, end + 1), 4000 + u16::from(channel)))
        };
        let ports = if config.address_per_channel { config.channels } else { 1 };
        let addresses = [(0..ports).map(|ch| address(0, ch)).collect(), vec![address(1, 0)]];
        let links = match &config.path {
            Some(path) => [Some(path.forward()?), Some(path.reverse()?)],
            None => [None, None],
        };
        let wire = |from: usize| -> Result<_, LossError> {
            let path = links[from].clone().map(|spec| RtLink::new(spec, Limits::default())).transpose()?;
            Ok(Mutex::new(Wire {
                sources: addresses[from].clone(),
                route: addresses[1 - from].clone(),
                path,
                ready: VecDeque::new(),
                ready_bytes: 0,
                late: BTreeMap::new(),
                order: 0,
                tap: None,
                mtu: None,
                buffer: config.buffer.max(1),
                full: None,
                spare: Vec::new(),
                counters: MemoryCounters::default(),
            }))
        };
        let wires = Arc::new([wire(0)?, wire(1)?]);
        Ok(Self { wires, channels: config.channels, max_payload: config.max_payload })
    }

    fn wire(&self, from: usize) -> MutexGuard<'_, Wire> {
        // Only a tap can panic under the lock; what it was shown is lost then.
        self.wires[from].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An end, 0 or 1. A second one for the same end takes its place, as a process that was started again.
    pub fn end(&self, end: usize) -> MemoryLink {
        MemoryLink { net: self.clone(), end, inbox: Vec::with_capacity(BATCH) }
    }

    /// Where frames for `channel` of an end go.
    pub fn address(&self, end: usize, channel: Channel) -> SocketAddr {
        let wire = self.wire(end);
        wire.sources[usize::from(channel.0).min(wire.sources.len() - 1)]
    }

    /// From here on the channel of an end has another address, as behind a translator that forgot it; what goes to the old
    /// one is lost.
    pub fn rebind(&self, end: usize, channel: Channel, to: SocketAddr) {
        let old = self.address(end, channel);
        for a in self.wire(end).sources.iter_mut().filter(|a| **a == old) {
            *a = to;
        }
        for a in self.wire(1 - end).route.iter_mut().filter(|a| **a == old) {
            *a = to;
        }
    }

    /// Lets `decide` judge each frame of a direction, in place of an earlier tap.
    pub fn tap(
        &self,
        direction: Direction,
        decide: impl FnMut(&MemoryFrame<'_>) -> Verdict + Send + 'static,
    ) {
        self.wire(direction.from.into()).tap = Some(Box::new(decide));
    }

    /// Takes the tap away.
    pub fn untap(&self, direction: Direction) {
        self.wire(direction.from.into()).tap = None;
    }

    /// A frame that the other end did not send arrives at `at`, as if from `from`. It passes no tap and no path.
    pub fn inject(&self, direction: Direction, at: Nanos, from: SocketAddr, bytes: &[u8]) {
        let mut wire = self.wire(direction.from.into());
        wire.counters.injected += 1;
        let mut copy = wire.spare.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        wire.later(at, Late::Arrives(Held { from, bytes: copy }));
    }

    /// Frames that are longer with IP and UDP headers are lost on the way, without a word.
    pub fn set_mtu(&self, direction: Direction, mtu: Option<usize>) {
        self.wire(direction.from.into()).mtu = mtu;
    }

    /// Reads or changes the link of a direction; None where there is no path.
    pub fn link<R>(&self, direction: Direction, f: impl FnOnce(&mut Link) -> R) -> Option<R> {
        self.wire(direction.from.into()).path.as_mut().map(|path| f(path.link_mut()))
    }

    /// What the path of a direction did; None where there is none.
    pub fn path_stats(&self, direction: Direction) -> Option<RtLinkStats> {
        self.wire(direction.from.into()).path.as_ref().map(RtLink::stats)
    }

    /// What a direction counted.
    pub fn counters(&self, direction: Direction) -> MemoryCounters {
        self.wire(direction.from.into()).counters
    }

    /// When an end has something to receive, or room again to send.
    pub fn wake_at(&self, end: usize) -> Option<Nanos> {
        let arrival = self.wire(1 - end).arrives_at();
        [arrival, self.wire(end).room_at()].into_iter().flatten().min()
    }
}

/// One end of a [`MemoryNet`].
pub struct MemoryLink {
    net: MemoryNet,
    end: usize,
    /// Scratch of `recv`, which hands frames over without the lock.
    inbox: Vec<Held>,
}

impl NicLink for MemoryLink {
    fn channels(&self) -> u8 {
        self.net.channels
    }

    fn max_payload(&self) -> usize {
        self.net.max_payload
    }

    fn local_addr(&self) -> SocketAddr {
        self.net.address(self.end, Channel(0))
    }

    fn send(
        &mut self,
        now: Nanos,
        ch: Channel,
        to: SocketAddr,
        headers: &[[u8; HEADER]],
        payload: &[u8],
        size: usize,
    ) -> Option<usize> {
        Some(self.net.wire(self.end).send(now, ch, to, headers, payload, size))
    }

    fn recv(&mut self, now: Nanos, ch: Channel, f: &mut dyn FnMut(SocketAddr, &[u8])) -> bool {
        // The channel stands in the frame; all of them are read in one pass.
        if ch != Channel(0) {
            return false;
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        self.net.wire(1 - self.end).take(now, &mut inbox);
        let more = inbox.len() == BATCH;
        inbox.iter().for_each(|held| f(held.from, &held.bytes));
        if !inbox.is_empty() {
            let mut wire = self.net.wire(1 - self.end);
            for held in inbox.drain(..) {
                match &mut wire.path {
                    Some(path) => path.recycle(held.bytes),
                    None => wire.recycle(held.bytes),
                }
            }
        }
        self.inbox = inbox;
        more
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.net.wake_at(self.end)
    }
}

impl Net for MemoryNet {
    fn wake_at(&self, end: usize) -> Option<Nanos> {
        MemoryNet::wake_at(self, end)
    }
}

impl QpPair<MemoryNet> {
    /// Two software NICs over a net in memory, and what makes further connections on them.
    ///
    /// # Errors
    /// [`PairError`], when settings are refused.
    pub fn memory(
        config: &MemoryConfig,
        context: ContextConfig,
        qp: &QpConfig,
    ) -> Result<(Self, [Halves; 2], [Endpoint; 2]), PairError> {
        let net = MemoryNet::new(config).map_err(SimError::Loss)?;
        let [(a, ea), (b, eb)] = [0, 1].map(|end| SoftFabric::new(net.end(end)));
        let (pair, halves) = Self::over(net, [Box::new(a), Box::new(b)], context, qp)?;
        Ok((pair, halves, [ea, eb]))
    }
}
