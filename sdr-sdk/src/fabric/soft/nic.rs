//! The NIC itself, under its lock: connections, keys, what comes in and what goes out.
//!
//! It knows no sockets: frames pass through a [`Link`]. Invariants: a frame is looked at only after its checksum, and acts
//! on a connection only with that connection's token; what answers a stranger is never longer than what he sent.

mod arrivals;

use super::handshake::Handshake;
use super::link::{Link, Reply};
use super::path::{Echo, Path, SMALLEST, Turn};
use super::replay::Seen;
use super::shown::Shown;
use super::wire::{HEADER, Header, PacketType};
use crate::fabric::keys::KeyTable;
use crate::fabric::{
    CompletionRun, Event, EventSink, FabricError, Landing, MAX_CONTROL, QueueSpec, WriteRun,
};
use crate::types::{Channel, Generation, Nanos, QueueSet, SlotGen};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

/// Most packets handed to the link at once.
const MAX_SEGMENTS: usize = 64;

/// Challenges of one channel that are remembered. All of them may leave at once, but not sooner again than a time after.
const CHALLENGES: usize = 8;

/// That time: one in five milliseconds, whatever comes in.
const CHALLENGES_LAST: Nanos = Nanos::from_millis(40);

/// Shortest time between two challenges to the same address, as long as the first is remembered.
const CHALLENGE_INTERVAL: Nanos = Nanos::from_millis(50);

/// The nonce for an address is good for one to two of these.
const NONCE_EPOCH: Nanos = Nanos::from_secs(8);

/// What a NIC counted; packets of messages unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftCounters {
    /// Handed to the link.
    pub sent: u64,
    /// Came in for a connection, discarded ones included.
    pub received: u64,
    /// Frames that failed type, length or checksum.
    pub corrupt: u64,
    /// Frames of another version, damaged ones perhaps.
    pub other_version: u64,
    /// Frames with a wrong connection or token.
    pub forged: u64,
    /// Control datagrams and challenges whose number came in before, or is too old to tell: dropped.
    pub duplicate: u64,
    /// No key: payload discarded.
    pub null_key: u64,
    /// Did not fit the buffer or the queue pair's shape: dropped.
    pub out_of_range: u64,
    /// Refused on the way out: too long for the path, forbidden, nobody there.
    pub refused: u64,
    /// Probes of what the path carries, sent because data seemed to be lost for its size.
    pub path_probes: u64,
    /// Control datagrams sent.
    pub control_sent: u64,
    /// Control datagrams that came in.
    pub control_received: u64,
}

/// What the peer's datagrams have to carry, and where ours go.
struct Peer {
    id: u32,
    token: u64,
    /// Of channel 0.
    address: SocketAddr,
    /// By channel: where one has an address of its own, as far as it has shown one.
    own: Box<[Option<SocketAddr>]>,
}

impl Peer {
    /// Where frames of a channel go.
    fn at(&self, channel: Channel) -> Option<SocketAddr> {
        self.own.get(usize::from(channel.0)).map(|own| own.unwrap_or(self.address))
    }

    /// Whether it was found at `at` on any channel.
    fn is_at(&self, at: SocketAddr) -> bool {
        self.address == at || self.own.contains(&Some(at))
    }

    /// A channel was found at `to`. Those that never showed an address are where channel 0 is.
    fn moves(&mut self, channel: Channel, to: SocketAddr) {
        match self.own.get_mut(usize::from(channel.0)) {
            Some(_) if channel == Channel(0) => {
                let old = std::mem::replace(&mut self.address, to);
                self.own.iter_mut().filter(|own| **own == Some(old)).for_each(|own| *own = None);
            }
            Some(own) => *own = Some(to),
            None => {}
        }
    }
}

/// Addresses that were challenged, and when.
type Challenges = [Option<(SocketAddr, Nanos)>; CHALLENGES];

struct Connection {
    id: u32,
    token: u64,
    spec: QueueSpec,
    keys: KeyTable,
    peer: Option<Peer>,
    /// By channel: who was challenged lately, and when. Only spares challenges: the nonces are computed.
    challenged: Box<[Challenges]>,
    /// By channel: numbers of the control datagrams and challenges that came in.
    seen: Box<[Seen]>,
    /// By channel: the number of the next datagram.
    next: Box<[u64]>,
    shown: Shown,
    path: Path,
    /// Answers to the peer's probes.
    echo: Echo,
}

impl Connection {
    /// Header of the next datagram on a channel, of a kind that has neither generation nor immediate.
    fn header(&mut self, kind: PacketType, channel: Channel) -> Option<Header> {
        let peer = self.peer.as_ref()?;
        let next = self.next.get_mut(usize::from(channel.0))?;
        let number = *next;
        *next += 1;
        Some(Header { channel, ..template(kind, peer.id, peer.token, number) })
    }
}

/// Connections and counters of a NIC; its link is beside it, so that both can be borrowed.
pub(super) struct Nic {
    /// By queue set; none once closed, and a number is not given twice.
    connections: Vec<Option<Box<Connection>>>,
    by_id: HashMap<u32, QueueSet>,
    next_region: u32,
    random: RandomState,
    drawn: u64,
    pub(super) handshake: Handshake,
    pub(super) completions: Vec<Vec<CompletionRun>>,
    sent: Vec<(QueueSet, SlotGen, u64)>,
    disarmed: Vec<(QueueSet, SlotGen)>,
    /// Connections whose path is being probed, and paths that carry less than before.
    probing: Vec<QueueSet>,
    narrowed: Vec<(QueueSet, u32)>,
    pub(super) replies: Vec<Reply>,
    pub(super) counters: SoftCounters,
    headers: Vec<[u8; HEADER]>,
}

impl Nic {
    pub(super) fn new(channels: u8) -> Self {
        let random = RandomState::new();
        Self {
            connections: Vec::new(),
            by_id: HashMap::new(),
            next_region: 0,
            handshake: Handshake::new(RandomState::new()),
            random,
            drawn: 0,
            completions: (0..channels).map(|_| Vec::new()).collect(),
            sent: Vec::new(),
            disarmed: Vec::new(),
            probing: Vec::new(),
            narrowed: Vec::new(),
            replies: Vec::new(),
            counters: SoftCounters::default(),
            headers: Vec::with_capacity(MAX_SEGMENTS),
        }
    }

    /// A number that others cannot guess: the hash of a counter under the process's random keys.
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.random.hash_one(self.drawn)
    }

    pub(super) fn open(&mut self, spec: &QueueSpec) -> (QueueSet, u32, u64) {
        let q = QueueSet(self.connections.len() as u32);
        let id = loop {
            let id = self.draw() as u32;
            // Zero names no connection.
            if id != 0 && !self.by_id.contains_key(&id) {
                break id;
            }
        };
        let token = self.draw();
        let connection = Connection {
            id,
            token,
            spec: *spec,
            keys: KeyTable::new(spec.slots),
            peer: None,
            challenged: vec![[None; CHALLENGES]; usize::from(spec.channels)].into(),
            seen: (0..spec.channels).map(|_| Seen::new()).collect(),
            next: vec![0; usize::from(spec.channels)].into(),
            shown: Shown::new(spec.channels),
            path: Path::new(spec.payload, spec.channels),
            echo: Echo::default(),
        };
        self.by_id.insert(id, q);
        self.connections.push(Some(Box::new(connection)));
        (q, id, token)
    }

    fn get(&mut self, q: QueueSet) -> Option<&mut Connection> {
        self.connections.get_mut(q.0 as usize)?.as_deref_mut()
    }

    pub(super) fn connect(
        &mut self,
        q: QueueSet,
        id: u32,
        token: u64,
        address: SocketAddr,
    ) -> Result<(), FabricError> {
        let c = self.get(q).ok_or(FabricError::Peer("the queues are not open"))?;
        let own = vec![None; usize::from(c.spec.channels)].into();
        c.peer = Some(Peer { id, token, address, own });
        Ok(())
    }

    pub(super) fn close(&mut self, q: QueueSet) {
        if let Some(c) = self.connections.get_mut(q.0 as usize).and_then(Option::take) {
            self.by_id.remove(&c.id);
        }
        self.completions.iter_mut().for_each(|ch| ch.retain(|run| run.q != q));
        self.sent.retain(|s| s.0 != q);
        self.disarmed.retain(|d| d.0 != q);
        self.probing.retain(|p| *p != q);
        self.narrowed.retain(|n| n.0 != q);
    }

    pub(super) fn region(&mut self) -> u32 {
        self.next_region += 1;
        self.next_region
    }

    /// # Safety
    /// As [`KeyTable::arm`].
    pub(super) unsafe fn arm(&mut self, q: QueueSet, at: SlotGen, to: &Landing) -> Result<(), FabricError> {
        let refused = |what| FabricError::Provider { operation: what, code: 22 };
        let c = self.get(q).ok_or(refused("arm on queues that are not open"))?;
        to.check(&c.spec)?;
        // SAFETY: the caller promises what `KeyTable::arm` asks.
        let armed = unsafe { c.keys.arm(at, *to) };
        if armed { Ok(()) } else { Err(refused("arm of an armed slot, or of none")) }
    }

    pub(super) fn disarm(&mut self, q: QueueSet, at: SlotGen) {
        if let Some(c) = self.get(q) {
            c.keys.take(at);
            self.disarmed.push((q, at));
        }
    }

    pub(super) fn post(&mut self, link: &mut dyn Link, now: Nanos, ch: Channel, runs: &[WriteRun]) -> u64 {
        let mut taken = 0;
        for run in runs {
            // Not by `get`: counters and scratch are used beside it.
            let c = self.connections.get_mut(run.q.0 as usize).and_then(Option::as_deref_mut);
            let Some(c) = c else { break };
            let (Some(peer), Some(next)) = (&c.peer, c.next.get_mut(usize::from(ch.0))) else { break };
            let Some(to) = peer.at(ch) else { break };
            let payload = run.payload as usize;
            // SAFETY: the contract of `post`: the source is valid and unchanged until `Sent` is reported for it.
            let bytes = unsafe { std::slice::from_raw_parts(run.src.as_ptr(), run.src.len()) };
            let most = MAX_SEGMENTS.min(super::wire::MAX_PAYLOAD / (payload + HEADER)).max(1);
            let mut done = 0u32;
            while done < run.packets {
                let n = most.min((run.packets - done) as usize);
                let start = done as usize * payload;
                let part = &bytes[start..bytes.len().min(start + n * payload)];
                self.headers.clear();
                for (i, packet) in part.chunks(payload).enumerate() {
                    let offset = crate::types::PacketOffset(run.first + done + i as u32);
                    let header = Header {
                        kind: PacketType::Data,
                        flags: 0,
                        connection: peer.id,
                        token: peer.token,
                        number: *next + i as u64,
                        channel: ch,
                        generation: run.at.generation,
                        imm: c.spec.layout.encode(run.at.slot, offset, run.user),
                    };
                    let mut out = [0; HEADER];
                    header.write(&mut out, packet);
                    self.headers.push(out);
                }
                let Some(sent) = link.send(now, ch, to, &self.headers, part, payload) else {
                    self.counters.refused += n as u64;
                    done += n as u32;
                    // Perhaps for their size; whether it is that the probes tell.
                    let id = || self.random.hash_one((run.q, *next, now));
                    if run.payload > SMALLEST && c.path.doubt(now, run.payload, None, id) {
                        self.probing.push(run.q);
                    }
                    continue;
                };
                *next += sent as u64;
                c.shown.sent(now, ch);
                self.counters.sent += sent as u64;
                done += sent as u32;
                if sent < n {
                    break;
                }
            }
            if done > 0 {
                self.sent.push((run.q, run.at, done.into()));
            }
            taken += u64::from(done);
            if done < run.packets {
                break;
            }
        }
        taken
    }

    pub(super) fn control(&mut self, link: &mut dyn Link, now: Nanos, q: QueueSet, msg: &[u8]) -> bool {
        let Some(c) = self.get(q).filter(|_| msg.len() <= MAX_CONTROL) else { return false };
        let Some(to) = c.peer.as_ref().map(|peer| peer.address) else { return false };
        let Some(header) = c.header(PacketType::Control, Channel(0)) else { return false };
        c.shown.sent(now, Channel(0));
        let mut out = [0; HEADER];
        header.write(&mut out, msg);
        match link.send(now, Channel(0), to, &[out], msg, msg.len()) {
            Some(0) => return false,
            Some(_) => self.counters.control_sent += 1,
            None => self.counters.refused += 1,
        }
        true
    }

    /// Tells what was found outside of arrivals.
    pub(super) fn report(&mut self, out: &mut dyn EventSink) {
        for (q, at, packets) in self.sent.drain(..) {
            out.event(Event::Sent { q, at, packets });
        }
        for (q, at) in self.disarmed.drain(..) {
            out.event(Event::Disarmed { q, at });
        }
        for (q, payload) in self.narrowed.drain(..) {
            out.event(Event::PathPayload { q, payload });
        }
    }

    /// Something waits to be reported.
    pub(super) fn ready(&self) -> bool {
        !(self.sent.is_empty() && self.disarmed.is_empty() && self.narrowed.is_empty())
    }

    /// Packets of `payload` bytes seem not to reach the peer. True when that is going to be found out from now on.
    pub(super) fn doubt(&mut self, now: Nanos, q: QueueSet, payload: u32, rtt: Nanos) -> bool {
        let id = self.draw();
        let begins =
            self.get(q).is_some_and(|c| c.peer.is_some() && c.path.doubt(now, payload, Some(rtt), || id));
        if begins {
            self.probing.push(q);
        }
        begins
    }

    /// When a path is to be probed again.
    pub(super) fn probes_at(&self) -> Option<Nanos> {
        let connection = |q: &QueueSet| self.connections.get(q.0 as usize)?.as_deref();
        self.probing.iter().filter_map(|q| connection(q)?.path.wake_at()).min()
    }

    /// The link had no room for some of what was to be sent; perhaps for probes.
    pub(super) fn probes_crowded(&mut self) {
        for q in &self.probing {
            if let Some(c) = self.connections.get_mut(q.0 as usize).and_then(Option::as_deref_mut) {
                c.path.crowded();
            }
        }
    }

    /// Sends the probes that are due.
    pub(super) fn probe_paths(&mut self, now: Nanos) {
        let Self { probing, connections, replies, narrowed, counters, .. } = self;
        probing.retain(|q| {
            let c = connections.get_mut(q.0 as usize).and_then(Option::as_deref_mut);
            let Some(c) = c else { return false };
            match c.path.poll(now) {
                Turn::Waits => {}
                Turn::Send(probes) => {
                    for probe in probes {
                        let to = c.peer.as_ref().and_then(|peer| peer.at(probe.channel));
                        if let (Some(to), Some(h)) = (to, c.header(PacketType::PathProbe, probe.channel)) {
                            replies.push(Reply::new(probe.channel, to, &h, probe.bytes()));
                            counters.path_probes += 1;
                        }
                    }
                }
                Turn::Over { narrowed: to } => {
                    narrowed.extend(to.map(|payload| (*q, payload)));
                    return false;
                }
            }
            true
        });
    }
}

/// A header without queue and immediate.
pub(super) fn template(kind: PacketType, connection: u32, token: u64, number: u64) -> Header {
    Header {
        kind,
        flags: 0,
        connection,
        token,
        number,
        channel: Channel(0),
        generation: Generation(0),
        imm: 0,
    }
}
