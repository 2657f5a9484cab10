//! Test hooks: a tap decides over frames before the link sees them, and forged packets come from nowhere.

use sdr_sdk::types::{Channel, Generation, Nanos, QueueSet, SlotGen};

/// From which NIC to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direction {
    /// Sending NIC.
    pub from: u16,
    /// Receiving NIC.
    pub to: u16,
}

impl Direction {
    /// From the first NIC of a pair to the second.
    pub const A_TO_B: Self = Self { from: 0, to: 1 };
    /// From the second NIC of a pair to the first.
    pub const B_TO_A: Self = Self { from: 1, to: 0 };
}

/// What a tap is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When it was posted.
    pub now: Nanos,
    /// The sender's queues.
    pub q: QueueSet,
    /// What it carries.
    pub kind: FrameKind<'a>,
}

/// Contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind<'a> {
    /// A run of packets, or one packet for a tap that asked for [`Granularity::Packet`].
    Data {
        /// Channel.
        channel: Channel,
        /// Message.
        at: SlotGen,
        /// First packet, counted in the message.
        first: u32,
        /// Packets.
        packets: u32,
    },
    /// A control datagram without the NIC's checksum.
    Control(&'a [u8]),
}

/// What becomes of a frame. It holds for every packet of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The link decides.
    Pass,
    /// It never reaches the link, takes no wire time and counts as lost.
    Drop,
    /// What the link delivers arrives so much later.
    Delay(Nanos),
    /// What the link delivers arrives a second time so much later. A NIC with exact counts discards the copy.
    Duplicate(Nanos),
    /// What the link delivers arrives with a wrong bit.
    Corrupt,
}

/// How often a tap is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// Once a posted run.
    #[default]
    Run,
    /// Once a packet. Neighbours with the same verdict still travel as one run.
    Packet,
}

/// Called for each frame under the net's lock: it must not call the net or its fabrics.
pub type TapFn = dyn FnMut(&Frame<'_>) -> Verdict + Send;

pub(super) struct Tap {
    pub(super) granularity: Granularity,
    pub(super) decide: Box<TapFn>,
}

/// A packet that nobody posted; a network without keys does not know its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forged {
    /// A data packet.
    Data {
        /// The receiver's queues.
        q: QueueSet,
        /// Generation of the queue it comes in on.
        generation: Generation,
        /// Channel it comes in on.
        channel: Channel,
        /// Its immediate, as it is.
        imm: u32,
        /// Its payload.
        bytes: Vec<u8>,
    },
    /// A control datagram.
    Control {
        /// The receiver's queues.
        q: QueueSet,
        /// Its bytes.
        bytes: Vec<u8>,
        /// The checksum is right.
        valid: bool,
    },
}
