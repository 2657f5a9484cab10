//! Reliability schemes: what decides which packets of a message are sent, and when, and what the receiver reports.
//!
//! A scheme is two state machines a message, one at each end. They do no IO, have no clock (`now` is an argument) and
//! work on runs of packets. They know neither slots nor fabrics: the sender hands out [`SendRun`]s, the receiver looks
//! at [`Arrived`], and a [`Status`] travels between them over a path that loses, repeats and reorders. Invariant: a
//! status is cumulative and valid alone, so that any subset of them, in any order, leads to the same end.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ranges`] | a set of packet numbers as ranges |
//! | [`arrived`] | the receiver's view of one message |
//! | [`channels`] | which channels deliver |
//! | [`ledger`] | what was sent and not reported: timers, presumed losses |
//! | [`selective_repeat`] | a timer a packet, no redundancy |
//! | [`sr_nack`] | the same, with losses found by what arrived since |

#![forbid(unsafe_code)]

pub mod arrived;
pub mod channels;
pub mod ledger;
pub mod ranges;
mod runs;
pub mod selective_repeat;
pub mod sr_nack;

pub use arrived::{Arrived, PacketView};
pub use channels::{ChannelView, Channels};
pub use ranges::RangeSet;
pub use selective_repeat::SelectiveRepeat;
pub use sr_nack::SrNack;

use crate::types::{Channel, Nanos, Seq};
use std::ops::Range;

/// A message, as both ends know it before its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSpec {
    /// Its number.
    pub seq: Seq,
    /// Its length in bytes; may be zero.
    pub bytes: u64,
    /// Its length in packets; zero when it has no bytes.
    pub packets: u32,
    /// Payload bytes of every packet but the last.
    pub payload: u32,
    /// Channels of the queue pair, at least one.
    pub channels: u8,
    /// Packets a chunk of the receive, at least one: a chunk's first transmissions leave on one channel.
    pub per_chunk: u8,
}

/// What is known of the path when a scheme decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Smoothed round-trip time.
    pub rtt: Nanos,
    /// Smallest round-trip time of late: the path with empty queues.
    pub min_rtt: Nanos,
    /// Pace: picoseconds from one full packet to the next. Zero: as fast as the fabric takes them.
    pub packet_time_ps: u64,
    /// Packets that may leave for the first time now: without a pace, what is on its way is bounded. Repairs are free.
    pub room: u32,
    /// Which channels deliver.
    pub channels: ChannelView,
}

/// What the receiver said of a message. All packets of `[0, base)` arrived; of `[from, to)` all arrived but `missing`.
///
/// Nothing is said of other packets. It comes from the peer: a scheme trusts none of the numbers.
#[derive(Clone, Debug)]
pub struct Status<'a> {
    /// Every packet below it arrived.
    pub base: u32,
    /// First packet of the window that `missing` describes.
    pub from: u32,
    /// End of that window, exclusive.
    pub to: u32,
    /// Packets of the window that have not arrived; ascending, disjoint.
    pub missing: Missing<'a>,
}

impl<'a> Status<'a> {
    /// A status as it was decoded from a report.
    pub fn listed(base: u32, window: Range<u32>, missing: &'a [Range<u32>]) -> Self {
        Self { base, from: window.start, to: window.end, missing: Missing::Listed(missing.iter()) }
    }
}

/// Missing packets of a [`Status`], without a copy of either end's storage.
#[derive(Clone, Debug)]
pub enum Missing<'a> {
    /// From a report.
    Listed(std::slice::Iter<'a, Range<u32>>),
    /// From the receiver's own books.
    Tracked(ranges::Iter<'a>),
    /// From a REPORT frame.
    Reported(crate::connection::frames::Missing<'a>),
}

impl Iterator for Missing<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        match self {
            Self::Listed(it) => it.next().cloned(),
            Self::Tracked(it) => it.next(),
            Self::Reported(it) => it.next(),
        }
    }
}

/// Consecutive packets to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRun {
    /// First packet.
    pub first: u32,
    /// Number of packets; at least one.
    pub packets: u32,
    /// The channel they leave on.
    pub channel: Channel,
    /// They were sent before.
    pub repair: bool,
}

/// First transmissions of a message, in increasing order: what was never sent.
#[derive(Clone, Debug)]
pub struct Fresh {
    next: u32,
    total: u32,
    /// None when there is one channel: runs need not end with chunks.
    per_chunk: Option<u32>,
}

impl Fresh {
    /// All of a message.
    pub fn new(m: &MessageSpec) -> Self {
        let per_chunk = (m.channels > 1).then_some(u32::from(m.per_chunk.max(1)));
        Self { next: 0, total: m.packets, per_chunk }
    }

    /// Whether everything was sent once.
    pub fn is_done(&self) -> bool {
        self.next == self.total
    }

    /// Whether something can be sent for the first time now.
    pub fn ready(&self, c: &Conditions) -> bool {
        !self.is_done() && c.room > 0
    }

    /// The next run, on the home of its chunk.
    pub fn next(&mut self, budget: u32, c: &Conditions) -> Option<SendRun> {
        let first = self.next;
        let chunk = self.per_chunk.map_or(0, |n| first / n);
        let end = self.per_chunk.map_or(self.total, |n| (chunk + 1).saturating_mul(n).min(self.total));
        self.on(c.channels.home(chunk), budget.min(end - first).min(c.room))
    }

    /// The next `packets`, or as many as there are, on a channel of the caller's choice.
    pub fn on(&mut self, channel: Channel, packets: u32) -> Option<SendRun> {
        let first = self.next;
        let packets = packets.min(self.total - first);
        self.next += packets;
        (packets > 0).then_some(SendRun { first, packets, channel, repair: false })
    }
}

/// Whether a message can be handed to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something is missing.
    Pending,
    /// Every byte is in place.
    Whole,
}

/// A way to make messages whole.
pub trait Scheme: Send + Sync {
    /// For people: reports, command lines.
    fn name(&self) -> &'static str;

    /// For the peer: announced with every message.
    fn wire_id(&self) -> u8;

    /// The sending half for one message.
    fn sender(&self, m: &MessageSpec) -> Box<dyn SchemeSender>;

    /// The receiving half for one message.
    fn receiver(&self, m: &MessageSpec) -> Box<dyn SchemeReceiver>;
}

/// Sending half of a scheme for one message. It lives until the receiver says that the message is done.
pub trait SchemeSender: Send {
    /// News from the peer; late, repeated, reordered, partial or false. Work is bounded by the ranges listed and the
    /// packets newly known to have arrived.
    fn on_status(&mut self, now: Nanos, status: &Status<'_>, c: &Conditions);

    /// The next run to inject, of at most `budget` packets; call it again until `None` or until the budget is spent.
    ///
    /// Its packets are taken to leave one every [`Conditions::packet_time_ps`], the first at `now` or when the run
    /// before it is through, whichever is later. `now` never goes back.
    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun>;

    /// When [`next`](Self::next) has something without news from the peer; an instant that has passed means now.
    fn wake_at(&self, c: &Conditions) -> Option<Nanos>;

    /// Says what became of packets since it was last asked, where the scheme knows.
    fn tell(&mut self, _now: Nanos, _rtt: Nanos, _channels: &mut Channels) {}
}

/// Receiving half of a scheme for one message.
pub trait SchemeReceiver: Send {
    /// Something arrived, or the time of [`wake_at`](Self::wake_at) came.
    fn on_progress(&mut self, now: Nanos, arrived: &Arrived) -> Outcome;

    /// What to report. Where the datagram ends before the list does, the report ends at the first packet that found no
    /// room, and the rest is due next.
    fn report<'a>(&mut self, now: Nanos, arrived: &'a Arrived) -> Status<'a>;

    /// The last [`report`](Self::report) found room up to `to` (exclusive), so that the next one continues there.
    fn reported(&mut self, to: u32);

    /// There is something to report that should not wait for more packets or for a quarter of a round trip.
    fn urgent(&self) -> bool {
        false
    }

    /// When [`on_progress`](Self::on_progress) wants to be called without anything having arrived.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }
}
