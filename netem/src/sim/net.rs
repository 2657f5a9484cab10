//! The net under its lock: what is posted goes through tap and link into the receiver's queue of arrivals, and the
//! receiver's poll takes it out.

use std::ops::Range;

use sdr_sdk::fabric::{FabricError, MAX_CONTROL, QueueSpec, WriteRun};
use sdr_sdk::types::{Channel, MessageId, Nanos, QueueSet, SlotGen};

use super::SimConfig;
use super::nic::{Arrival, Data, Fate, Local, Nic, Payload, QueueRef};
use super::pool::Pool;
use super::raw;
use super::tap::{Direction, Forged, Frame, FrameKind, Granularity, Tap, Verdict};
use crate::link::{Delivery, DeliveryKind, Link};
use crate::rng::derive_seed;

/// Arrivals and local events that one poll handles at most; a run is one.
const POLL_BUDGET: usize = 4096;

/// Bytes of the CRC-32C that the NIC appends to a control datagram.
const CHECKSUM: usize = 4;

/// What a poll found, kept until the lock is released.
pub(super) enum Found {
    Sent { q: QueueSet, at: SlotGen, packets: u64 },
    Disarmed { q: QueueSet, at: SlotGen },
    Control { q: QueueSet, bytes: Vec<u8> },
}

/// One direction between two NICs.
pub(super) struct Wire {
    pub(super) link: Link,
    pub(super) tap: Option<Tap>,
}

pub(super) struct Net {
    pub(super) config: SimConfig,
    pub(super) nics: Vec<Nic>,
    /// By sender, then receiver; none from a NIC to itself.
    wires: Vec<Option<Wire>>,
    pub(super) pool: Pool,
    /// Events added so far.
    order: u64,
    /// Scratch.
    deliveries: Vec<Delivery>,
    verdicts: Vec<(Range<u32>, Verdict)>,
}

/// A posted run as it is on its way to the wire.
struct Outgoing<'a> {
    now: Nanos,
    channel: Channel,
    from: QueueRef,
    to: QueueRef,
    run: &'a WriteRun,
    payload: u32,
}

impl Net {
    /// `wires` by sender, then receiver.
    pub(super) fn new(config: SimConfig, nics: u16, wires: Vec<Option<Wire>>) -> Self {
        debug_assert_eq!(wires.len(), usize::from(nics).pow(2));
        Self {
            nics: (0..nics).map(|id| Nic::new(id, config.channels)).collect(),
            config,
            wires,
            pool: Pool::default(),
            order: 0,
            deliveries: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    /// # Panics
    /// When the net has no such direction.
    pub(super) fn wire(&mut self, d: Direction) -> &mut Wire {
        let nics = self.nics.len();
        let index = usize::from(d.from) * nics + usize::from(d.to);
        match self.wires.get_mut(index) {
            Some(Some(wire)) if usize::from(d.to) < nics => wire,
            _ => panic!("a net of {nics} NICs has no {d:?}"),
        }
    }

    pub(super) fn connect(&mut self, nic: u16, q: QueueSet, peer: &[u8]) -> Result<(), FabricError> {
        let peer =
            QueueRef::from_bytes(peer).ok_or(FabricError::Peer("not an address of a simulated net"))?;
        if usize::from(peer.nic) >= self.nics.len() || peer.nic == nic {
            return Err(FabricError::Peer("no other NIC of this net"));
        }
        let Some(theirs) = self.nics[usize::from(peer.nic)].queue(peer).map(|queue| queue.spec) else {
            return Err(FabricError::Peer("its queues are not open"));
        };
        let Some((_, queue)) = self.nics[usize::from(nic)].named(q) else {
            return Err(FabricError::Peer("the queues here are not open"));
        };
        if queue.peer.is_some_and(|known| known != peer) {
            return Err(FabricError::Peer("connected to another peer already"));
        }
        if theirs != queue.spec {
            return Err(FabricError::Peer("its queues have another shape"));
        }
        queue.peer = Some(peer);
        Ok(())
    }

    pub(super) fn disarm(&mut self, nic: u16, q: QueueSet, at: SlotGen) {
        let now = self.nics.iter().map(|n| n.clock).max().unwrap_or_default();
        let due = now + self.config.disarm_delay;
        let order = self.next_order();
        let nic = &mut self.nics[usize::from(nic)];
        if let Some(q) = nic.begin_disarm(q, at) {
            nic.local.push((due, order), Local::Disarm { q, at });
        }
    }

    pub(super) fn post(&mut self, nic: u16, now: Nanos, channel: Channel, runs: &[WriteRun]) -> u64 {
        let limit = self.config.post_limit.unwrap_or(u64::MAX);
        let mut taken = 0;
        for run in runs {
            let sender = &mut self.nics[usize::from(nic)];
            let now = sender.tick(now);
            let room = limit.saturating_sub(sender.posted).min(run.packets.into()) as u32;
            assert!(
                !self.config.payload_copy || sender.is_registered(run.src),
                "{run:?} is posted from memory that is not registered"
            );
            let Some((from, queue)) = sender.named(run.q) else { break };
            let (spec, Some(to)) = (queue.spec, queue.peer) else { break };
            if room == 0 {
                break;
            }
            check_run(run, channel, &spec);
            queue.posted += u64::from(room);
            sender.posted += u64::from(room);
            self.send(&Outgoing { now, channel, from, to, run, payload: run.payload }, room);
            taken += u64::from(room);
            if room < run.packets {
                break;
            }
        }
        taken
    }

    /// The first `packets` of a run, through the tap.
    fn send(&mut self, out: &Outgoing<'_>, packets: u32) {
        let direction = Direction { from: out.from.nic, to: out.to.nic };
        let mut verdicts = std::mem::take(&mut self.verdicts);
        verdicts.clear();
        match &mut self.wire(direction).tap {
            None => verdicts.push((0..packets, Verdict::Pass)),
            Some(tap) => judge(tap, out, packets, &mut verdicts),
        }
        for (part, verdict) in &verdicts {
            self.transmit(direction, out, part.clone(), *verdict);
        }
        self.verdicts = verdicts;
        let left = self.wire(direction).link.busy_until().max(out.now);
        let order = self.next_order();
        let local = &mut self.nics[usize::from(out.from.nic)].local;
        if let Some(Local::Sent { q, at, packets: n }) = local.last_at(left)
            && (*q, *at) == (out.from, out.run.at)
        {
            *n += u64::from(packets);
            return;
        }
        let sent = Local::Sent { q: out.from, at: out.run.at, packets: packets.into() };
        local.push((left, order), sent);
    }

    /// Packets of a run that share a verdict, through the link.
    fn transmit(&mut self, direction: Direction, out: &Outgoing<'_>, part: Range<u32>, verdict: Verdict) {
        let packets = part.end - part.start;
        let whole = out.run.src.len() as u64;
        let start = u64::from(part.start) * u64::from(out.payload);
        let end = (u64::from(part.end) * u64::from(out.payload)).min(whole);
        let last_bytes = (end - start - u64::from(packets - 1) * u64::from(out.payload)) as u32;

        let mut deliveries = std::mem::take(&mut self.deliveries);
        deliveries.clear();
        if verdict != Verdict::Drop {
            let link = &mut self.wire(direction).link;
            link.send_run(out.now, packets, out.payload, last_bytes, &mut deliveries);
        }
        let arrived = |d: &Delivery| if d.kind == DeliveryKind::Original { d.packets } else { 0 };
        let arrived: u32 = deliveries.iter().map(arrived).sum();
        let counters = &mut self.nics[usize::from(out.from.nic)].counters;
        counters.sent += u64::from(packets);
        counters.sent_bytes += end - start;
        counters.lost += u64::from(packets - arrived);

        let uses = deliveries.len() as u32 * copies(verdict);
        let buffer = (self.config.payload_copy && uses > 0).then(|| {
            let src = out.run.src.slice(start as usize, (end - start) as usize);
            self.pool.take(uses, |bytes| raw::capture(src, bytes))
        });
        for d in &deliveries {
            let data = Data {
                channel: out.channel,
                generation: out.run.at.generation,
                slot: out.run.at.slot,
                first: out.run.first + part.start + d.first,
                packets: d.packets,
                payload: out.payload,
                last_bytes: if d.first + d.packets == packets { last_bytes } else { out.payload },
                user: out.run.user,
            };
            let offset = u64::from(d.first) * u64::from(out.payload);
            let payload = buffer.map(|buffer| Payload { buffer, offset });
            let (from, to) = (out.from, out.to);
            self.arrive(to.nic, d, verdict, |fate| Arrival::Data { from, to, data, payload, fate });
        }
        self.deliveries = deliveries;
    }

    /// Puts what a link delivers, once or twice, among the arrivals of `nic`.
    fn arrive(&mut self, nic: u16, d: &Delivery, verdict: Verdict, arrival: impl Fn(Fate) -> Arrival) {
        let fate = Fate {
            copy: d.kind == DeliveryKind::Duplicate,
            corrupt: d.corrupt || verdict == Verdict::Corrupt,
        };
        let later = if let Verdict::Delay(later) = verdict { later } else { Nanos::ZERO };
        let order = self.next_order();
        self.nics[usize::from(nic)].arrivals.push((d.arrival + later, order), arrival(fate));
        if let Verdict::Duplicate(later) = verdict {
            let order = self.next_order();
            let fate = Fate { copy: true, ..fate };
            self.nics[usize::from(nic)].arrivals.push((d.arrival + later, order), arrival(fate));
        }
    }

    pub(super) fn control(&mut self, nic: u16, now: Nanos, q: QueueSet, msg: &[u8]) -> bool {
        let limit = self.config.control_limit;
        let sender = &mut self.nics[usize::from(nic)];
        let now = sender.tick(now);
        if msg.len() > MAX_CONTROL || limit.is_some_and(|limit| sender.control_posted >= limit) {
            return false;
        }
        let Some((from, queue)) = sender.named(q) else { return false };
        let Some(to) = queue.peer else { return false };

        let mut deliveries = std::mem::take(&mut self.deliveries);
        deliveries.clear();
        let wire = self.wire(Direction { from: nic, to: to.nic });
        let frame = Frame { now, q, kind: FrameKind::Control(msg) };
        let verdict = wire.tap.as_mut().map_or(Verdict::Pass, |tap| (tap.decide)(&frame));
        if verdict != Verdict::Drop {
            let len = (msg.len() + CHECKSUM) as u32;
            wire.link.send_run(now, 1, len, len, &mut deliveries);
        }
        let left = wire.link.busy_until().max(now);
        if !deliveries.is_empty() {
            let datagram =
                self.pool.take(deliveries.len() as u32 * copies(verdict), |b| frame_control(b, msg));
            for d in &deliveries {
                self.arrive(to.nic, d, verdict, |fate| Arrival::Control { from, to, datagram, fate });
            }
        }
        let order = self.next_order();
        let sender = &mut self.nics[usize::from(nic)];
        sender.counters.control_sent += 1;
        sender.counters.control_lost += u64::from(deliveries.is_empty());
        if limit.is_some()
            && let Some(queue) = sender.queue(from)
        {
            queue.control_posted += 1;
            sender.control_posted += 1;
            sender.local.push((left, order), Local::ControlSent { q: from });
        }
        self.deliveries = deliveries;
        true
    }

    pub(super) fn inject(&mut self, to: u16, at: Nanos, forged: Forged) {
        let order = self.next_order();
        self.nics[usize::from(to)].arrivals.push((at, order), Arrival::Forged(Box::new(forged)));
    }

    /// Handles what is due, true when some is left; `spare` holds empty buffers for control datagrams.
    pub(super) fn poll(
        &mut self,
        nic: u16,
        now: Nanos,
        found: &mut Vec<Found>,
        spare: &mut Vec<Vec<u8>>,
    ) -> bool {
        let n = usize::from(nic);
        self.nics[n].tick(now);
        for _ in 0..POLL_BUDGET {
            let nic = &mut self.nics[n];
            let (arrival, local) = (nic.arrivals.head(), nic.local.head());
            let Some((at, _)) = [arrival, local].into_iter().flatten().min() else { return false };
            if at > now {
                return false;
            }
            if arrival.is_none() || local.is_some_and(|l| Some(l) < arrival) {
                match nic.local.pop() {
                    Some(Local::Sent { q, at, packets }) if nic.left_the_wire(q, packets) => {
                        found.push(Found::Sent { q: QueueSet(q.q), at, packets });
                    }
                    Some(Local::ControlSent { q }) => nic.control_left_the_wire(q),
                    Some(Local::Disarm { q, at }) if nic.end_disarm(q, at) => {
                        found.push(Found::Disarmed { q: QueueSet(q.q), at });
                    }
                    Some(Local::Sent { .. } | Local::Disarm { .. }) | None => {}
                }
            } else if let Some(arrival) = nic.arrivals.pop() {
                self.receive(n, arrival, found, spare);
            }
        }
        true
    }

    /// When `poll` of a NIC has work next.
    pub(super) fn wake_at(&self, nic: u16) -> Option<Nanos> {
        let nic = &self.nics[usize::from(nic)];
        let due = [nic.arrivals.head(), nic.local.head()].into_iter().flatten().min();
        due.map(|(at, _)| at.max(nic.clock))
    }

    fn receive(&mut self, n: usize, arrival: Arrival, found: &mut Vec<Found>, spare: &mut Vec<Vec<u8>>) {
        let nic = &mut self.nics[n];
        let exact = self.config.exact_counts;
        match arrival {
            Arrival::Data { from, to, data, payload, fate } => {
                let packets = u64::from(data.packets);
                if nic.queue(to).is_none_or(|queue| queue.peer != Some(from)) {
                    nic.counters.vanished += packets;
                } else {
                    nic.counters.duplicate += if fate.copy { packets } else { 0 };
                    if fate.corrupt {
                        nic.counters.corrupt += packets;
                    } else if !(fate.copy && exact) {
                        let bytes = payload.map(|p| &self.pool.bytes(p.buffer)[p.offset as usize..]);
                        nic.place(QueueSet(to.q), data, bytes);
                    }
                }
                if let Some(payload) = payload {
                    self.pool.release(payload.buffer);
                }
            }
            Arrival::Control { from, to, datagram, fate } => {
                if nic.queue(to).is_none_or(|queue| queue.peer != Some(from)) {
                    nic.counters.vanished += 1;
                } else {
                    let mut bytes = spare.pop().unwrap_or_default();
                    bytes.extend_from_slice(self.pool.bytes(datagram));
                    if fate.corrupt {
                        flip_a_bit(&mut bytes, datagram_seed(n, nic.counters.corrupt));
                    }
                    receive_control(nic, QueueSet(to.q), bytes, found);
                }
                self.pool.release(datagram);
            }
            Arrival::Forged(forged) => match *forged {
                Forged::Data { q, generation, channel, imm, bytes } => {
                    let Some((_, queue)) = nic.named(q) else {
                        nic.counters.vanished += 1;
                        return;
                    };
                    let (layout, payload) = (queue.spec.layout, queue.spec.payload);
                    let (slot, offset) = layout.decode(imm);
                    let data = Data {
                        channel,
                        generation,
                        slot,
                        first: offset.0,
                        packets: 1,
                        payload,
                        last_bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                        user: layout.user_fragment(imm),
                    };
                    nic.place(q, data, self.config.payload_copy.then_some(&bytes));
                }
                Forged::Control { q, bytes, valid } => {
                    if nic.named(q).is_none() {
                        nic.counters.vanished += 1;
                        return;
                    }
                    let mut frame = spare.pop().unwrap_or_default();
                    frame_control(&mut frame, &bytes);
                    if !valid {
                        flip_a_bit(&mut frame, datagram_seed(n, nic.counters.corrupt));
                    }
                    receive_control(nic, q, frame, found);
                }
            },
        }
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
}

/// How often each delivery of a frame arrives.
fn copies(verdict: Verdict) -> u32 {
    if matches!(verdict, Verdict::Duplicate(_)) { 2 } else { 1 }
}

/// Asks the tap, and joins neighbours with the same verdict.
fn judge(tap: &mut Tap, out: &Outgoing<'_>, packets: u32, verdicts: &mut Vec<(Range<u32>, Verdict)>) {
    let step = if tap.granularity == Granularity::Packet { 1 } else { packets };
    for start in (0..packets).step_by(step as usize) {
        let (channel, at, first) = (out.channel, out.run.at, out.run.first + start);
        let kind = FrameKind::Data { channel, at, first, packets: step };
        let verdict = (tap.decide)(&Frame { now: out.now, q: out.run.q, kind });
        match verdicts.last_mut() {
            Some((part, last)) if *last == verdict => part.end = start + step,
            _ => verdicts.push((start..start + step, verdict)),
        }
    }
}

fn frame_control(frame: &mut Vec<u8>, msg: &[u8]) {
    frame.extend_from_slice(msg);
    frame.extend_from_slice(&crc32c::crc32c(msg).to_be_bytes());
}

/// Another bit each time, the same ones in every repetition.
fn datagram_seed(nic: usize, corrupt: u64) -> u64 {
    derive_seed(nic as u64, corrupt)
}

fn flip_a_bit(bytes: &mut [u8], seed: u64) {
    let bit = (seed % (bytes.len() as u64 * 8)) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Verifies the checksum and hands the datagram over without it.
pub(super) fn receive_control(nic: &mut Nic, q: QueueSet, mut bytes: Vec<u8>, found: &mut Vec<Found>) {
    let sound = match bytes.split_last_chunk::<CHECKSUM>() {
        Some((msg, crc)) => crc32c::crc32c(msg) == u32::from_be_bytes(*crc) && msg.len() <= MAX_CONTROL,
        None => false,
    };
    if !sound {
        nic.counters.corrupt += 1;
        return;
    }
    nic.counters.control_delivered += 1;
    bytes.truncate(bytes.len() - CHECKSUM);
    found.push(Found::Control { q, bytes });
}

/// # Panics
/// When the run is not one that the queues can carry: an error of the caller that a real NIC may not survive either.
fn check_run(run: &WriteRun, channel: Channel, spec: &QueueSpec) {
    let MessageId(slot) = run.at.slot;
    let payload = u64::from(run.payload);
    let (packets, len) = (u64::from(run.packets), run.src.len() as u64);
    assert!((1..=spec.payload).contains(&run.payload), "{payload} bytes a packet of {}", spec.payload);
    assert!(channel.0 < spec.channels, "{channel:?} of {} channels", spec.channels);
    assert!(u32::from(slot) < spec.slots, "slot {slot} of {}", spec.slots);
    assert!(u32::from(run.at.generation.0) < spec.generations, "generation of {run:?}");
    assert!(
        u64::from(run.first) + packets <= spec.layout.max_packets().into(),
        "{run:?} is beyond the layout"
    );
    let fits = (packets - 1) * payload < len && len <= packets * payload;
    assert!(fits, "{packets} packets of {payload} bytes do not make {len} bytes");
}
