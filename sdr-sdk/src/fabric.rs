//! The first seam: what carries packets and owns keys.
//!
//! A fabric is non-blocking, has no threads, works on runs of packets and knows neither slots' states nor reliability.
//! It places payload only where a key is armed, and it may report packets whose
//! payload it discarded, as a NULL key does. Invariant: after [`Event::Disarmed`] no packet of that [`SlotGen`] touches the buffer any more.

pub mod keys;
pub mod soft;

use crate::imm::ImmLayout;
use crate::memory::{RawSlice, Region, RegionId};
use crate::types::{Channel, Generation, Nanos, QueueSet, SlotGen};
use std::os::fd::BorrowedFd;

/// Largest control datagram in bytes: 1,200 with the header of the software NIC, which passes every path that IPv6 allows:
/// 1,248 of 1,280 bytes with its headers.
pub const MAX_CONTROL: usize = 1_164;

/// What a fabric can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// Channels it serves.
    pub channels: u8,
    /// Slots it can hold keys for in one queue set; a power of two.
    pub slots: u32,
    /// Generations: uses of a slot that travel on distinguishable queues; a power of two.
    pub generations: u32,
    /// Largest payload of one packet, in bytes.
    pub max_payload: u32,
    /// No packet is ever counted twice and discarded ones are counted too, so that equal counts at both ends mean that
    /// nothing is in flight. A network that may duplicate does not have it, nor Soft-RoCE.
    pub exact_counts: bool,
}

impl Caps {
    /// Capabilities of a fabric; every number as documented on the fields.
    pub const fn new(
        channels: u8,
        slots: u32,
        generations: u32,
        max_payload: u32,
        exact_counts: bool,
    ) -> Self {
        Self { channels, slots, generations, max_payload, exact_counts }
    }
}

/// What a queue pair asks of the fabric and the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Division of the immediate.
    pub layout: ImmLayout,
    /// Channels, at most [`Caps::channels`].
    pub channels: u8,
    /// Slots S; a power of two.
    pub slots: u32,
    /// Generations G; a power of two.
    pub generations: u32,
    /// Most payload bytes of a packet; what a message is cut into is settled by its receive, see [`Landing`].
    pub payload: u32,
    /// User immediates travel in the packets.
    pub user_immediate: bool,
}

/// How completions leave the fabric. An engine says which of these it takes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CompletionModel<'a> {
    /// [`Fabric::take_completions`] hands them over in runs.
    Batch,
    /// 64-byte completion entries in shared memory; the engine advances the consumer index itself.
    Cqe64Ring(RingMemory<'a>),
}

/// Memory that another process or a device writes: an address here, and how somebody else gets at it. No reference.
#[derive(Clone, Copy, Debug)]
pub struct RingMemory<'a> {
    /// First byte of the mapping, in this process.
    pub base: std::ptr::NonNull<u8>,
    /// Bytes of the mapping.
    pub len: usize,
    /// What a second process maps; none where only a device does.
    pub fd: Option<BorrowedFd<'a>>,
    /// First entry, from `base`.
    pub entries: usize,
    /// Number of entries as a power of two.
    pub log_entries: u8,
    /// Consumer index, big-endian 32 bit, from `base`; written by the engine.
    pub consumer: usize,
}

/// One queue as completion entries name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueNumber {
    /// 24 bits.
    pub number: u32,
    /// Its channel.
    pub channel: Channel,
    /// Its generation.
    pub generation: Generation,
}

/// What [`Fabric::open`] made.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Queues.
    pub q: QueueSet,
    /// Their address, opaque to everyone but the same kind of fabric.
    pub address: Vec<u8>,
    /// How completion entries name them; empty with [`CompletionModel::Batch`].
    pub queues: Vec<QueueNumber>,
}

/// What the peer needs to write into an armed slot; travels in the CTS. Zero where the fabric derives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Remote key.
    pub key: u32,
    /// Remote address of the message's first byte.
    pub address: u64,
}

/// Where the packets of one receive go, and how long they are.
///
/// Packets from offset 0 on land in `dst`, `payload` bytes apart; each may be shorter than that, for the message may end
/// before the receive does. Packets from `first_extra` on land in `extra`, `payload` bytes apart, and are full. Offsets
/// that are neither, behind `dst` or behind `extra`, reach no memory.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    /// The data.
    pub dst: RawSlice,
    /// Scratch memory for redundancy: whole packets.
    pub extra: Option<RawSlice>,
    /// Bytes of a full packet; at least one, at most [`QueueSpec::payload`].
    pub payload: u32,
    /// Offset of the first packet of `extra`, at or behind the last one of `dst`; of no meaning without `extra`.
    pub first_extra: u32,
}

impl Landing {
    /// Data alone.
    pub fn data(dst: RawSlice, payload: u32) -> Self {
        Self { dst, extra: None, payload, first_extra: 0 }
    }

    /// Both pieces of memory.
    pub fn slices(&self) -> impl Iterator<Item = RawSlice> {
        [Some(self.dst), self.extra].into_iter().flatten()
    }

    /// The memory from packet `first` to the end of the part that it is in, empty where it is in none, and whether
    /// packets there may be short.
    pub fn room(&self, first: u32) -> (RawSlice, bool) {
        let (part, from, short) = match self.extra {
            Some(extra) if first >= self.first_extra => (extra, first - self.first_extra, false),
            _ => (self.dst, first, true),
        };
        let start = (u64::from(from) * u64::from(self.payload)).min(part.len() as u64) as usize;
        (part.slice(start, part.len() - start), short)
    }

    /// What every fabric asks of a landing on queues of this kind.
    ///
    /// # Errors
    /// The number that is out of its limits.
    pub fn check(&self, spec: &QueueSpec) -> Result<(), FabricError> {
        let limit = |what, asked, allowed| Err(FabricError::Limit { what, asked, allowed });
        let payload = u64::from(self.payload);
        if payload == 0 || self.payload > spec.payload {
            return limit("payload of a receive", payload, spec.payload.into());
        }
        let data = (self.dst.len() as u64).div_ceil(payload);
        let (extra, end) = match self.extra {
            Some(extra) => {
                let extra = extra.len() as u64;
                (extra, u64::from(self.first_extra) + extra / payload)
            }
            None => (0, data),
        };
        if extra % payload != 0 {
            return limit("bytes of extra packets beyond whole ones", extra % payload, 0);
        }
        if self.extra.is_some() && data > self.first_extra.into() {
            return limit("packets before the first extra one", data, self.first_extra.into());
        }
        let max = u64::from(spec.layout.max_packets());
        if end > max { limit("packets of a receive", end, max) } else { Ok(()) }
    }
}

/// Consecutive packets of one message, to be written on one channel. They are all data, or all extra packets.
#[derive(Clone, Copy, Debug)]
pub struct WriteRun {
    /// Queues of the queue pair.
    pub q: QueueSet,
    /// Slot and generation of the message.
    pub at: SlotGen,
    /// The peer's grant for it.
    pub grant: Grant,
    /// First packet.
    pub first: u32,
    /// Number of packets; at least one.
    pub packets: u32,
    /// Bytes of a full packet, as the receiver granted it: [`Landing::payload`].
    pub payload: u32,
    /// The bytes of exactly these packets; every packet but the last is full, and the last one of extra packets too.
    pub src: RawSlice,
    /// The user immediate, cut into fragments by the layout; zero when unused.
    pub user: u32,
}

/// Consecutive packets that came in on one channel and generation, in offset order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionRun {
    /// Queues they came in on.
    pub q: QueueSet,
    /// Generation of the queue they came in on.
    pub generation: Generation,
    /// Immediate of the first packet.
    pub imm: u32,
    /// Number of packets; at least one.
    pub packets: u32,
    /// OR of the packets' [`ImmLayout::user_fragment`]s; the first `packets` fragments from the first offset are valid.
    pub user: u32,
}

/// What fabric and engine report.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// `packets` more of the posted packets of `at` need their source memory no longer and will not leave any more;
    /// also those that a failing queue flushed.
    Sent {
        /// Queues.
        q: QueueSet,
        /// The message.
        at: SlotGen,
        /// Packets newly done.
        packets: u64,
    },
    /// The key of `at` works now; only where `arm` did not give the grant at once.
    Armed {
        /// Queues.
        q: QueueSet,
        /// What was armed.
        at: SlotGen,
        /// What the peer needs.
        grant: Grant,
    },
    /// No packet of `at` touches memory any more; with a single generation, no completion of it is handed over any
    /// more either.
    Disarmed {
        /// Queues.
        q: QueueSet,
        /// What was disarmed.
        at: SlotGen,
    },
    /// No engine worker touches the bitmap of `at` any more.
    Retired {
        /// Queues.
        q: QueueSet,
        /// What was retired.
        at: SlotGen,
    },
    /// The engine's workers are gone or make no progress.
    EngineFailed {
        /// Engine's code.
        code: u32,
    },
    /// A control datagram, integrity already verified by the fabric.
    Control {
        /// Queues it was sent to.
        q: QueueSet,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The path to the peer carries no packets of more than `payload` bytes any more.
    PathPayload {
        /// Queues.
        q: QueueSet,
        /// Payload bytes of a packet; less than before.
        payload: u32,
    },
    /// One queue is unusable until it is rebuilt.
    QueueError {
        /// Queues.
        q: QueueSet,
        /// Its channel.
        channel: Channel,
        /// Its generation.
        generation: Generation,
        /// Provider's code.
        code: u32,
    },
}

/// Takes what a poll found.
pub trait EventSink {
    /// Called once an event.
    fn event(&mut self, e: Event<'_>);
}

impl<F: FnMut(Event<'_>)> EventSink for F {
    fn event(&mut self, e: Event<'_>) {
        self(e);
    }
}

/// Why a fabric refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A limit of the fabric was exceeded.
    #[error("{what} is {asked}, the fabric allows {allowed}")]
    Limit {
        /// What was asked for.
        what: &'static str,
        /// The value.
        asked: u64,
        /// The largest allowed value.
        allowed: u64,
    },
    /// The peer's address cannot be used.
    #[error("peer address not usable: {0}")]
    Peer(&'static str),
    /// The provider failed.
    #[error("{operation} failed with code {code}")]
    Provider {
        /// The call.
        operation: &'static str,
        /// The provider's code.
        code: i32,
    },
}

/// Carries packets and owns keys.
///
/// # Safety
/// The context lets go of memory on the word of this trait. An implementation writes to the landing of `arm` only from
/// that call until it reported [`Event::Disarmed`] or returned from `close`; it reads the `src` of `post` only until it
/// reported [`Event::Sent`] for those packets or returned from `close`; it uses a region only between `register` and
/// `deregister`. Completions are reported after the payload is in place, and only for packets that were verified.
pub unsafe trait Fabric: Send {
    /// What it can do; constant.
    fn caps(&self) -> Caps;

    /// How completions of `ch` are handed over; constant.
    fn completions(&self, ch: Channel) -> CompletionModel<'_>;

    /// Creates the queues of a queue pair. The bytes are its address, opaque to everyone but the same kind of fabric.
    /// A `QueueSet` is never given twice by one fabric, so that what is left of a closed one names nothing.
    fn open(&mut self, spec: &QueueSpec) -> Result<Opened, FabricError>;

    /// Connects the queues to the peer's.
    fn connect(&mut self, q: QueueSet, peer: &[u8]) -> Result<(), FabricError>;

    /// Destroys the queues. Nothing of them touches memory afterwards; no further events.
    fn close(&mut self, q: QueueSet);

    /// Makes memory usable for `post` and `arm`. The region outlives the registration.
    fn register(&mut self, region: &Region) -> Result<RegionId, FabricError>;

    /// Undoes `register`; nothing is armed in or posted from the region.
    fn deregister(&mut self, region: RegionId);

    /// Lets packets of `at` into the landing, and no other packets. Without a grant the key works only from
    /// [`Event::Armed`] on; `disarm` is allowed before that.
    fn arm(&mut self, q: QueueSet, at: SlotGen, to: &Landing) -> Result<Option<Grant>, FabricError>;

    /// Takes the key away; answered by [`Event::Disarmed`] once no packet can touch the buffer.
    fn disarm(&mut self, q: QueueSet, at: SlotGen);

    /// Posts runs in order on one channel; returns how many packets were taken, counted from the front.
    fn post(&mut self, now: Nanos, ch: Channel, runs: &[WriteRun]) -> u64;

    /// Sends a control datagram of at most [`MAX_CONTROL`] bytes, unreliably; false when there is no room now.
    fn control(&mut self, now: Nanos, q: QueueSet, msg: &[u8]) -> bool;

    /// Packets of `payload` bytes seem not to reach the peer, although it is heard; `rtt` is the round trip as far as known.
    /// A fabric that can find out what the path carries does, within bounds however often it is asked, and reports
    /// [`Event::PathPayload`] when that is less.
    fn doubt_payload(&mut self, _now: Nanos, _q: QueueSet, _payload: u32, _rtt: Nanos) {}

    /// Makes progress on `ch` and reports it; what belongs to no channel (control) is reported with channel 0. Bounded work a call; true when it stopped at the bound, so that packets
    /// may still wait.
    fn poll(&mut self, now: Nanos, ch: Channel, out: &mut dyn EventSink) -> bool;

    /// Appends the completions of `ch` ([`CompletionModel::Batch`] only).
    fn take_completions(&mut self, ch: Channel, out: &mut Vec<CompletionRun>);

    /// The engine took `total` (wrapping) completions of a queue since it was opened: so many receive entries are free.
    fn consumed(&mut self, _number: u32, _total: u32) {}

    /// The engine found an error entry in the ring; the fabric reports [`Event::QueueError`] and rebuilds.
    fn completion_error(&mut self, _number: u32, _code: u32) {}

    /// When `poll` has work next without outside input, if known.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Readable when `poll` has work, where the fabric has such a thing.
    fn wait_fd(&self, _ch: Channel) -> Option<BorrowedFd<'_>> {
        None
    }
}
