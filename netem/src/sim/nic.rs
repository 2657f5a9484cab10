//! One NIC: queues, keys, placement and what it counted. It knows nothing of links.

use sdr_sdk::fabric::{CompletionRun, FabricError, Grant, Landing, QueueSpec};
use sdr_sdk::memory::{RawSlice, Region, RegionId};
use sdr_sdk::types::{Channel, Generation, MessageId, Nanos, PacketOffset, QueueSet, SlotGen};

use super::SimConfig;
use super::pool::BufferId;
use super::queue::EventQueue;
use super::raw::Destination;
use super::tap::Forged;

/// EINVAL, the code of a refused argument.
const INVALID: i32 = 22;

/// What a NIC counted since the net was made. Packets are data packets unless control is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicCounters {
    /// Packets posted here.
    pub sent: u64,
    /// Payload bytes of them.
    pub sent_bytes: u64,
    /// Packets posted here that the link or a tap dropped.
    pub lost: u64,
    /// Packets that came in and whose completion was reported, `null_key` included.
    pub delivered: u64,
    /// Payload bytes that went into an armed buffer, or would have without `payload_copy`.
    pub placed_bytes: u64,
    /// Packets that came in as a copy made on the way.
    pub duplicate: u64,
    /// Packets and control datagrams that failed the checksum.
    pub corrupt: u64,
    /// Packets without a key: payload discarded, completion reported.
    pub null_key: u64,
    /// Packets that the armed receive does not have, or that are beyond the queue's limits: dropped.
    pub out_of_range: u64,
    /// Packets and control datagrams for queues that are closed or not connected to the sender: dropped.
    pub vanished: u64,
    /// Control datagrams sent.
    pub control_sent: u64,
    /// Control datagrams sent that the link or a tap dropped.
    pub control_lost: u64,
    /// Control datagrams handed to the user.
    pub control_delivered: u64,
}

/// A queue set in a net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueRef {
    pub(super) nic: u16,
    pub(super) q: u32,
}

impl QueueRef {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(6);
        bytes.extend(self.nic.to_be_bytes());
        bytes.extend(self.q.to_be_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let &[n0, n1, q0, q1, q2, q3] = bytes else { return None };
        Some(Self { nic: u16::from_be_bytes([n0, n1]), q: u32::from_be_bytes([q0, q1, q2, q3]) })
    }
}

struct Key {
    at: SlotGen,
    to: Destination,
    disarming: bool,
}

/// The queues of one queue pair.
pub(super) struct Queue {
    pub(super) spec: QueueSpec,
    pub(super) peer: Option<QueueRef>,
    keys: Box<[Option<Key>]>,
    /// Packets posted and not reported as sent.
    pub(super) posted: u64,
    /// Control datagrams that have not left the wire.
    pub(super) control_posted: u32,
}

/// Back-to-back packets of one message that arrive together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) channel: Channel,
    pub(super) generation: Generation,
    pub(super) slot: MessageId,
    pub(super) first: u32,
    pub(super) packets: u32,
    /// Payload bytes of a full one.
    pub(super) payload: u32,
    /// Payload bytes of the last; the others are full.
    pub(super) last_bytes: u32,
    /// The whole user immediate.
    pub(super) user: u32,
}

impl Data {
    /// Packets, counted from the front, that the receive has a place for, and their bytes.
    fn fitting(&self, to: &Landing) -> (u32, u64) {
        let (full, last) = (u64::from(to.payload), u64::from(self.last_bytes));
        if last > full || (self.packets > 1 && self.payload != to.payload) {
            // Cut in another way than was granted.
            return (0, 0);
        }
        let (room, short) = to.room(self.first);
        let room = room.len() as u64;
        let len = u64::from(self.packets - 1) * full + last;
        if len <= room && (short || last == full) {
            return (self.packets, len);
        }
        // Only full packets are left: the last one is what does not fit.
        let packets = u64::from(self.packets - 1).min(room / full);
        (packets as u32, packets * full)
    }
}

/// What comes in from a link.
pub(super) enum Arrival {
    Data { from: QueueRef, to: QueueRef, data: Data, payload: Option<Payload>, fate: Fate },
    Control { from: QueueRef, to: QueueRef, datagram: BufferId, fate: Fate },
    Forged(Box<Forged>),
}

/// What happened to a frame on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) copy: bool,
    pub(super) corrupt: bool,
}

/// Where the bytes of a [`Data`] begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    pub(super) buffer: BufferId,
    pub(super) offset: u64,
}

/// What is due on the NIC itself.
pub(super) enum Local {
    Sent { q: QueueRef, at: SlotGen, packets: u64 },
    ControlSent { q: QueueRef },
    Disarm { q: QueueRef, at: SlotGen },
}

struct Registered {
    base: usize,
    len: usize,
}

pub(super) struct Nic {
    id: u16,
    /// By number; none once closed, and a number is not given twice.
    queues: Vec<Option<Queue>>,
    regions: Vec<Option<Registered>>,
    pub(super) arrivals: EventQueue<Arrival>,
    pub(super) local: EventQueue<Local>,
    pub(super) completions: Vec<Vec<CompletionRun>>,
    /// Sums over the queues.
    pub(super) posted: u64,
    pub(super) control_posted: u32,
    /// The latest `now` it was handed.
    pub(super) clock: Nanos,
    pub(super) counters: NicCounters,
}

impl Nic {
    pub(super) fn new(id: u16, channels: u8) -> Self {
        Self {
            id,
            queues: Vec::new(),
            regions: Vec::new(),
            arrivals: EventQueue::new(),
            local: EventQueue::new(),
            completions: (0..channels).map(|_| Vec::new()).collect(),
            posted: 0,
            control_posted: 0,
            clock: Nanos::ZERO,
            counters: NicCounters::default(),
        }
    }

    /// Time as the NIC knows it after a call at `now`.
    pub(super) fn tick(&mut self, now: Nanos) -> Nanos {
        self.clock = self.clock.max(now);
        self.clock
    }

    pub(super) fn open(&mut self, spec: &QueueSpec, config: &SimConfig) -> Result<QueueRef, FabricError> {
        check_spec(spec, config)?;
        let q = self.queues.len() as u32;
        self.queues.push(Some(Queue {
            spec: *spec,
            peer: None,
            keys: (0..spec.slots).map(|_| None).collect(),
            posted: 0,
            control_posted: 0,
        }));
        Ok(QueueRef { nic: self.id, q })
    }

    /// An open queue set and its name.
    pub(super) fn named(&mut self, q: QueueSet) -> Option<(QueueRef, &mut Queue)> {
        let nic = self.id;
        let queue = self.queues.get_mut(q.0 as usize)?.as_mut()?;
        Some((QueueRef { nic, q: q.0 }, queue))
    }

    /// The queue set that `of` names, unless it is closed.
    pub(super) fn queue(&mut self, of: QueueRef) -> Option<&mut Queue> {
        self.queues.get_mut(of.q as usize)?.as_mut()
    }

    pub(super) fn close(&mut self, q: QueueSet) {
        let Some(queue) = self.queues.get_mut(q.0 as usize).and_then(Option::take) else { return };
        self.posted -= queue.posted;
        self.control_posted -= queue.control_posted;
        self.completions.iter_mut().for_each(|ch| ch.retain(|run| run.q != q));
    }

    pub(super) fn close_all(&mut self) {
        (0..self.queues.len() as u32).for_each(|q| self.close(QueueSet(q)));
    }

    pub(super) fn register(&mut self, region: &Region) -> RegionId {
        let n = self.regions.iter().position(Option::is_none).unwrap_or(self.regions.len());
        if n == self.regions.len() {
            self.regions.push(None);
        }
        self.regions[n] = Some(Registered { base: region.base().addr().get(), len: region.len() });
        RegionId(n as u32)
    }

    pub(super) fn deregister(&mut self, region: RegionId) {
        let mut keys = self.queues.iter().flatten().flat_map(|q| q.keys.iter().flatten());
        let armed = keys.any(|k| k.to.landing().slices().any(|s| s.region() == region));
        assert!(!armed, "{region:?} is deregistered with a receive armed in it");
        if let Some(entry) = self.regions.get_mut(region.0 as usize) {
            *entry = None;
        }
    }

    /// Whether the memory is in the registered region that it names.
    pub(super) fn is_registered(&self, memory: RawSlice) -> bool {
        let Some(Some(r)) = self.regions.get(memory.region().0 as usize) else { return false };
        let at = memory.as_ptr().addr();
        at >= r.base && at - r.base <= r.len && memory.len() <= r.len - (at - r.base)
    }

    pub(super) fn arm(
        &mut self,
        q: QueueSet,
        at: SlotGen,
        to: &Landing,
    ) -> Result<Option<Grant>, FabricError> {
        if !to.slices().all(|s| self.is_registered(s)) {
            return Err(FabricError::Provider { operation: "arm with memory not registered", code: INVALID });
        }
        let Some((_, queue)) = self.named(q) else {
            return Err(FabricError::Provider { operation: "arm on queues not open", code: INVALID });
        };
        check_limit("generation", at.generation.0.into(), u64::from(queue.spec.generations) - 1)?;
        to.check(&queue.spec)?;
        let slots = u64::from(queue.spec.slots);
        let Some(key) = queue.keys.get_mut(usize::from(at.slot.0)) else {
            return Err(FabricError::Limit { what: "slot", asked: at.slot.0.into(), allowed: slots - 1 });
        };
        if key.is_some() {
            return Err(FabricError::Provider { operation: "arm of an armed slot", code: INVALID });
        }
        *key = Some(Key { at, to: Destination::armed(to), disarming: false });
        Ok(Some(Grant::default()))
    }

    /// The name of the queues when a disarm is to be confirmed later; one is, for each use of a slot.
    pub(super) fn begin_disarm(&mut self, q: QueueSet, at: SlotGen) -> Option<QueueRef> {
        let (name, queue) = self.named(q)?;
        match queue.keys.get_mut(usize::from(at.slot.0)) {
            Some(Some(key)) if key.at == at => (!std::mem::replace(&mut key.disarming, true)).then_some(name),
            _ => Some(name),
        }
    }

    /// Takes the key away; false when the queues are gone.
    pub(super) fn end_disarm(&mut self, of: QueueRef, at: SlotGen) -> bool {
        let Some(queue) = self.queue(of) else { return false };
        if let Some(key) = queue.keys.get_mut(usize::from(at.slot.0)) {
            key.take_if(|k| k.at == at);
        }
        true
    }

    /// Packets left the wire; false when the queues are gone.
    pub(super) fn left_the_wire(&mut self, of: QueueRef, packets: u64) -> bool {
        let Some(queue) = self.queue(of) else { return false };
        queue.posted -= packets;
        self.posted -= packets;
        true
    }

    pub(super) fn control_left_the_wire(&mut self, of: QueueRef) {
        let Some(queue) = self.queue(of) else { return };
        queue.control_posted -= 1;
        self.control_posted -= 1;
    }

    /// Places what has a key for it and reports what came in. `bytes` is the payload, unless payloads are not carried.
    pub(super) fn place(&mut self, q: QueueSet, d: Data, bytes: Option<&[u8]>) {
        let Some(queue) = self.queues.get_mut(q.0 as usize).and_then(Option::as_mut) else {
            self.counters.vanished += u64::from(d.packets);
            return;
        };
        let spec = &queue.spec;
        let known = d.channel.0 < spec.channels
            && u32::from(d.generation.0) < spec.generations
            && u32::from(d.slot.0) < spec.slots
            && (1..=spec.payload).contains(&d.last_bytes);
        let mut packets = if known { d.packets } else { 0 };
        match queue.keys.get(usize::from(d.slot.0)) {
            Some(Some(key)) if packets > 0 && key.at.generation == d.generation => {
                let len;
                (packets, len) = d.fitting(key.to.landing());
                if let (Some(bytes), true) = (bytes, packets > 0) {
                    key.to.write(d.first, &bytes[..len as usize]);
                }
                self.counters.placed_bytes += len;
            }
            _ => self.counters.null_key += u64::from(packets),
        }
        self.counters.out_of_range += u64::from(d.packets - packets);
        if packets == 0 {
            return;
        }
        self.counters.delivered += u64::from(packets);
        self.completions[usize::from(d.channel.0)].push(CompletionRun {
            q,
            generation: d.generation,
            imm: spec.layout.encode(d.slot, PacketOffset(d.first), d.user),
            packets,
            user: d.user & fragment_mask(spec, d.first, packets),
        });
    }
}

/// The bits of the user immediate that packets `first..first + packets` carry.
fn fragment_mask(spec: &QueueSpec, first: u32, packets: u32) -> u32 {
    let (bits, fragments) = (spec.layout.user_bits(), spec.layout.fragments());
    if packets >= fragments {
        return u32::MAX;
    }
    // The fragments fill 32 bits, so that wrapping around is a rotation.
    ((1u32 << (packets * bits)) - 1).rotate_left(first % fragments * bits)
}

fn check_spec(spec: &QueueSpec, config: &SimConfig) -> Result<(), FabricError> {
    check_limit("channels", spec.channels.into(), config.channels.into())?;
    check_limit("slots", spec.slots.into(), config.slots.min(spec.layout.max_slots()).into())?;
    check_limit("generations", spec.generations.into(), config.generations.into())?;
    check_limit("payload", spec.payload.into(), config.max_payload.into())?;
    for (what, n, allowed) in [
        ("channels, at least one,", u32::from(spec.channels.min(1)), 1),
        ("slots, a power of two,", spec.slots, config.slots),
        ("generations, a power of two,", spec.generations, config.generations),
        ("payload, at least one byte,", spec.payload.min(1), 1),
    ] {
        if !n.is_power_of_two() {
            return Err(FabricError::Limit { what, asked: n.into(), allowed: allowed.into() });
        }
    }
    Ok(())
}

fn check_limit(what: &'static str, asked: u64, allowed: u64) -> Result<(), FabricError> {
    if asked > allowed { Err(FabricError::Limit { what, asked, allowed }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sdr_sdk::ImmLayout;

    use super::*;

    #[test]
    fn runs_are_clipped_to_the_part_that_they_are_in() {
        let region = Region::map(1000).unwrap();
        let all = region.slice(RegionId(0));
        // 25 bytes of data in packets of 10, and three extra packets from offset 4 on.
        let to =
            Landing { dst: all.slice(0, 25), extra: Some(all.slice(100, 30)), payload: 10, first_extra: 4 };
        let fits = |first, packets, payload, last_bytes| {
            let (channel, generation, slot) = (Channel(0), Generation(0), MessageId(0));
            Data { channel, generation, slot, first, packets, payload, last_bytes, user: 0 }.fitting(&to)
        };
        assert_eq!(fits(0, 3, 10, 5), (3, 25));
        assert_eq!((fits(0, 3, 10, 6), fits(0, 9, 10, 10)), ((2, 20), (2, 20)));
        assert_eq!((fits(1, 1, 10, 1), fits(2, 1, 99, 5), fits(2, 1, 10, 6)), ((1, 1), (1, 5), (0, 0)));
        assert_eq!((fits(3, 1, 10, 1), fits(3, 4, 10, 10)), ((0, 0), (0, 0)), "the hole");
        assert_eq!((fits(4, 3, 10, 10), fits(4, 9, 10, 10)), ((3, 30), (3, 30)));
        assert_eq!((fits(5, 2, 10, 9), fits(6, 1, 10, 9), fits(7, 1, 10, 10)), ((1, 10), (0, 0), (0, 0)));
        assert_eq!((fits(0, 2, 8, 8), fits(0, 2, 12, 5), fits(0, 1, 12, 11)), ((0, 0), (0, 0), (0, 0)));
        assert_eq!(fits(u32::MAX, 1, 10, 10), (0, 0));
        let data = Landing::data(all.slice(0, 25), 10);
        let run = Data {
            channel: Channel(0),
            generation: Generation(0),
            slot: MessageId(0),
            first: 1,
            packets: 9,
            payload: 10,
            last_bytes: 1,
            user: 0,
        };
        assert_eq!(run.fitting(&data), (1, 10));
    }

    proptest! {
        #[test]
        fn fragments_of_a_run_are_those_of_its_packets(wide: bool, first in 0u32..40, packets in 1u32..40, user: u32) {
            let layout = if wide { ImmLayout::L8_22_2 } else { ImmLayout::L10_18_4 };
            let spec = QueueSpec { layout, channels: 1, slots: 1, generations: 1, payload: 1, user_immediate: true };
            let naive = (first..first + packets)
                .map(|o| layout.user_fragment(layout.encode(MessageId(1), PacketOffset(o), user)))
                .fold(0, |a, b| a | b);
            prop_assert_eq!(user & fragment_mask(&spec, first, packets), naive);
        }

        #[test]
        fn addresses_survive_the_exchange(nic: u16, q: u32) {
            let name = QueueRef { nic, q };
            prop_assert_eq!(QueueRef::from_bytes(&name.to_bytes()), Some(name));
        }
    }
}
