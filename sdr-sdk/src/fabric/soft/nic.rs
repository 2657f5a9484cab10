//! The NIC itself, under its lock: connections, keys, what comes in and what goes out.
//!
//! It knows no sockets: frames pass through a [`Link`]. Invariants: a frame is looked at only after its checksum, and acts
//! on a connection only with that connection's token; what answers a stranger is never longer than what he sent.

use super::handshake::Handshake;
use super::link::{Link, Reply};
use super::wire::{HEADER, Header, PacketType, WireError, parse};
use crate::fabric::keys::{KeyTable, Placement};
use crate::fabric::{CompletionRun, Event, EventSink, FabricError, MAX_CONTROL, QueueSpec, WriteRun};
use crate::memory::RawSlice;
use crate::types::{Channel, Generation, Nanos, QueueSet, SlotGen};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

/// Most packets handed to the link at once.
const MAX_SEGMENTS: usize = 64;

/// Shortest time between two challenges in a row to the same address of one channel.
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
    /// No key: payload discarded.
    pub null_key: u64,
    /// Did not fit the buffer or the queue pair's shape: dropped.
    pub out_of_range: u64,
    /// Refused on the way out: too long for the path, forbidden, nobody there.
    pub refused: u64,
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

struct Connection {
    id: u32,
    token: u64,
    spec: QueueSpec,
    keys: KeyTable,
    peer: Option<Peer>,
    /// By channel: who was challenged last, and when. Only spares challenges: the nonces are computed.
    challenged: Box<[Option<(SocketAddr, Nanos)>]>,
    /// Number of the next datagram.
    number: u64,
}

/// Connections and counters of a NIC; its link is beside it, so that both can be borrowed.
pub(super) struct Nic {
    connections: HashMap<QueueSet, Connection>,
    by_id: HashMap<u32, QueueSet>,
    next_q: u32,
    next_region: u32,
    random: RandomState,
    drawn: u64,
    pub(super) handshake: Handshake,
    pub(super) completions: Vec<Vec<CompletionRun>>,
    sent: Vec<(QueueSet, SlotGen, u64)>,
    disarmed: Vec<(QueueSet, SlotGen)>,
    pub(super) replies: Vec<Reply>,
    pub(super) counters: SoftCounters,
    headers: Vec<[u8; HEADER]>,
}

impl Nic {
    pub(super) fn new(channels: u8) -> Self {
        let random = RandomState::new();
        Self {
            connections: HashMap::new(),
            by_id: HashMap::new(),
            next_q: 0,
            next_region: 0,
            handshake: Handshake::new(RandomState::new()),
            random,
            drawn: 0,
            completions: (0..channels).map(|_| Vec::new()).collect(),
            sent: Vec::new(),
            disarmed: Vec::new(),
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
        let q = QueueSet(self.next_q);
        self.next_q += 1;
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
            challenged: vec![None; usize::from(spec.channels)].into(),
            number: 0,
        };
        self.by_id.insert(id, q);
        self.connections.insert(q, connection);
        (q, id, token)
    }

    pub(super) fn connect(
        &mut self,
        q: QueueSet,
        id: u32,
        token: u64,
        address: SocketAddr,
    ) -> Result<(), FabricError> {
        let Some(c) = self.connections.get_mut(&q) else {
            return Err(FabricError::Peer("the queues are not open"));
        };
        let own = vec![None; usize::from(c.spec.channels)].into();
        c.peer = Some(Peer { id, token, address, own });
        Ok(())
    }

    pub(super) fn close(&mut self, q: QueueSet) {
        if let Some(c) = self.connections.remove(&q) {
            self.by_id.remove(&c.id);
        }
        self.completions.iter_mut().for_each(|ch| ch.retain(|run| run.q != q));
        self.sent.retain(|s| s.0 != q);
        self.disarmed.retain(|d| d.0 != q);
    }

    pub(super) fn region(&mut self) -> u32 {
        self.next_region += 1;
        self.next_region
    }

    /// # Safety
    /// As [`KeyTable::arm`].
    pub(super) unsafe fn arm(&mut self, q: QueueSet, at: SlotGen, dst: RawSlice) -> Result<(), FabricError> {
        let refused = |what| FabricError::Provider { operation: what, code: 22 };
        let c = self.connections.get_mut(&q).ok_or(refused("arm on queues that are not open"))?;
        // SAFETY: the caller promises what `KeyTable::arm` asks.
        let armed = unsafe { c.keys.arm(at, dst) };
        if armed { Ok(()) } else { Err(refused("arm of an armed slot, or of none")) }
    }

    pub(super) fn disarm(&mut self, q: QueueSet, at: SlotGen) {
        if let Some(c) = self.connections.get_mut(&q) {
            c.keys.take(at);
            self.disarmed.push((q, at));
        }
    }

    pub(super) fn post(&mut self, link: &mut dyn Link, now: Nanos, ch: Channel, runs: &[WriteRun]) -> u64 {
        let mut taken = 0;
        for run in runs {
            let Some(c) = self.connections.get_mut(&run.q) else { break };
            let Some(peer) = &c.peer else { break };
            let Some(to) = peer.at(ch) else { break };
            let payload = c.spec.payload as usize;
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
                        number: c.number + i as u64,
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
                    continue;
                };
                c.number += sent as u64;
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
        let Some(c) = self.connections.get_mut(&q) else { return false };
        let Some(peer) = c.peer.as_ref().filter(|_| msg.len() <= MAX_CONTROL) else { return false };
        let header = frame(PacketType::Control, peer.id, peer.token, c.number, msg);
        match link.send(now, Channel(0), peer.address, &[header], msg, msg.len()) {
            Some(0) => false,
            Some(_) => {
                c.number += 1;
                self.counters.control_sent += 1;
                true
            }
            None => {
                self.counters.refused += 1;
                true
            }
        }
    }

    /// Tells what was found outside of arrivals.
    pub(super) fn report(&mut self, out: &mut dyn EventSink) {
        for (q, at, packets) in self.sent.drain(..) {
            out.event(Event::Sent { q, at, packets });
        }
        for (q, at) in self.disarmed.drain(..) {
            out.event(Event::Disarmed { q, at });
        }
    }

    /// Something waits to be reported.
    pub(super) fn ready(&self) -> bool {
        !self.sent.is_empty() || !self.disarmed.is_empty()
    }

    /// One frame came in on `ch`.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        ch: Channel,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut dyn EventSink,
    ) {
        let (header, payload) = match parse(bytes) {
            Ok(parsed) => parsed,
            Err(WireError::Version(_)) => {
                self.counters.other_version += 1;
                self.handshake.other_version(ch, from, bytes, &mut self.replies);
                return;
            }
            Err(_) => {
                self.counters.corrupt += 1;
                return;
            }
        };
        match header.kind {
            PacketType::Hello
            | PacketType::Probe
            | PacketType::Retry
            | PacketType::Accept
            | PacketType::ProbeAck => {
                self.handshake.receive(now, ch, from, &header, payload, &mut self.replies);
            }
            PacketType::PathChallenge => {
                // Answered with the same bytes, to whoever knows the connection: no longer, no state.
                if self.connection(&header).is_some() {
                    self.replies.push(Reply::echo(
                        PacketType::PathResponse,
                        ch,
                        from,
                        &header,
                        payload,
                        self,
                    ));
                }
            }
            PacketType::PathResponse => self.on_response(now, &header, from, payload),
            PacketType::Control => {
                let Some(q) = self.connection(&header) else { return };
                self.counters.control_received += 1;
                self.learn(now, q, header.channel, ch, from, payload.len());
                out.event(Event::Control { q, bytes: payload });
            }
            PacketType::Data => self.place(now, ch, from, &header, payload),
            PacketType::Confirm => {
                if let Some(q) = self.connection(&header) {
                    self.learn(now, q, header.channel, ch, from, payload.len());
                }
            }
        }
    }

    /// The open connection that a frame names with the right token.
    fn connection(&mut self, h: &Header) -> Option<QueueSet> {
        let q = self.by_id.get(&h.connection).copied();
        let q = q.filter(|q| self.connections.get(q).is_some_and(|c| c.token == h.token && c.peer.is_some()));
        self.counters.forged += u64::from(q.is_none());
        q
    }

    fn place(&mut self, now: Nanos, ch: Channel, from: SocketAddr, h: &Header, payload: &[u8]) {
        let Some(q) = self.connection(h) else { return };
        self.learn(now, q, h.channel, ch, from, payload.len());
        let Some(c) = self.connections.get(&q) else { return };
        let spec = &c.spec;
        let (slot, offset) = spec.layout.decode(h.imm);
        let shaped = h.channel.0 < spec.channels
            && u32::from(slot.0) < spec.slots
            && u32::from(h.generation.0) < spec.generations
            && (1..=spec.payload as usize).contains(&payload.len());
        if !shaped {
            self.counters.out_of_range += 1;
            return;
        }
        match c.keys.place(slot, h.generation, u64::from(offset.0) * u64::from(spec.payload), payload) {
            Placement::Placed => {}
            Placement::Null => self.counters.null_key += 1,
            Placement::OutOfRange => {
                self.counters.out_of_range += 1;
                return;
            }
        }
        self.counters.received += 1;
        let layout = spec.layout;
        let run = CompletionRun {
            q,
            generation: h.generation,
            imm: h.imm,
            packets: 1,
            user: layout.user_fragment(h.imm),
        };
        let runs = &mut self.completions[usize::from(h.channel.0)];
        if !runs.last_mut().is_some_and(|last| extend(layout, last, &run)) {
            runs.push(run);
        }
    }

    /// A frame with the right token came from `from`, with `len` bytes of payload: once that address answered a challenge, ours
    /// for the channel go there. Whoever replays frames from elsewhere cannot keep a challenge from the peer, because each
    /// address has its own nonce; and he is sent no more than he sent.
    fn learn(
        &mut self,
        now: Nanos,
        q: QueueSet,
        channel: Channel,
        ch: Channel,
        from: SocketAddr,
        len: usize,
    ) {
        let Some(c) = self.connections.get_mut(&q) else { return };
        let Some(peer) = &c.peer else { return };
        if peer.at(channel).is_none_or(|at| at == from) || len < size_of::<u64>() {
            return;
        }
        let last = &mut c.challenged[usize::from(channel.0)];
        if last.is_some_and(|(to, at)| to == from && now < at + CHALLENGE_INTERVAL) {
            return;
        }
        *last = Some((from, now));
        let kind = PacketType::PathChallenge;
        let header = Header { channel, ..template(kind, peer.id, peer.token, c.number) };
        c.number += 1;
        let nonce = nonce(&self.random, q, channel, from, now.0 / NONCE_EPOCH.0);
        self.replies.push(Reply::new(ch, from, &header, nonce.to_vec()));
    }

    fn on_response(&mut self, now: Nanos, h: &Header, from: SocketAddr, payload: &[u8]) {
        let Some(q) = self.connection(h) else { return };
        let epoch = now.0 / NONCE_EPOCH.0;
        let right = |epoch| nonce(&self.random, q, h.channel, from, epoch) == *payload;
        if (right(epoch) || right(epoch.wrapping_sub(1)))
            && let Some(peer) = self.connections.get_mut(&q).and_then(|c| c.peer.as_mut())
        {
            peer.moves(h.channel, from);
        }
    }

    /// What the peer of a connection has to be named by, for an answer that goes back on it.
    pub(super) fn answer_names(&self, h: &Header) -> (u32, u64) {
        let c = self.by_id.get(&h.connection).and_then(|q| self.connections.get(q));
        c.and_then(|c| c.peer.as_ref()).map_or((0, 0), |p| (p.id, p.token))
    }
}

/// What an address has to send back to be believed.
fn nonce(secret: &RandomState, q: QueueSet, channel: Channel, at: SocketAddr, epoch: u64) -> [u8; 8] {
    secret.hash_one((q, channel, at, epoch)).to_be_bytes()
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

fn frame(kind: PacketType, connection: u32, token: u64, number: u64, payload: &[u8]) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    template(kind, connection, token, number).write(&mut out, payload);
    out
}

/// Joins a packet to the run before it when it is its next one.
fn extend(layout: crate::ImmLayout, last: &mut CompletionRun, next: &CompletionRun) -> bool {
    let (slot, first) = layout.decode(last.imm);
    let (next_slot, offset) = layout.decode(next.imm);
    let follows = (last.q, last.generation, slot) == (next.q, next.generation, next_slot)
        && u64::from(first.0) + u64::from(last.packets) == u64::from(offset.0);
    // A fragment that came before in this run must say the same.
    let fits = last.packets < layout.fragments() || last.user & fragment_bits(layout, offset.0) == next.user;
    if follows && fits {
        last.packets += 1;
        last.user |= next.user;
    }
    follows && fits
}

fn fragment_bits(layout: crate::ImmLayout, offset: u32) -> u32 {
    let u = layout.user_bits();
    ((1 << u) - 1) << (offset % layout.fragments() * u)
}
