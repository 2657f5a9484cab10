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
//! | [`striped`] | with parity: all of a message, or its end |

#![forbid(unsafe_code)]

pub mod arrived;
pub mod channels;
pub mod ledger;
pub mod ranges;
mod runs;
pub mod selective_repeat;
pub mod sr_nack;
pub mod striped;

pub use arrived::{Arrived, PacketView};
pub use channels::{ChannelView, Channels};
pub use ranges::RangeSet;
pub use selective_repeat::SelectiveRepeat;
pub use sr_nack::SrNack;
pub use striped::{Loss, Plan, Stripe, Striped, Stripes};

use crate::ec::Code;
use crate::types::{Channel, Nanos, Seq};
use std::borrow::Cow;
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
    /// Packets beyond the message that the receive has memory for.
    pub extra: u32,
    /// Number of the first of them.
    pub first_extra: u32,
}

/// What is known of the path when a scheme decides.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// What is known of its losses.
    pub loss: Loss,
    /// Parity beyond what the losses ask for costs nobody anything: the rate is ours alone.
    pub spare_parity: bool,
    /// Messages of the connection that are not done.
    pub unfinished: Unfinished,
}

impl Conditions {
    /// A path of this round trip and so many channels of which nothing else is known, one message at a time, no pace.
    pub fn clean(rtt: Nanos, channels: u8) -> Self {
        Self {
            rtt,
            min_rtt: rtt,
            packet_time_ps: 0,
            room: u32::MAX,
            channels: ChannelView::new(channels),
            loss: Loss::default(),
            unfinished: Unfinished { messages: 1, bytes: 0 },
            spare_parity: true,
        }
    }
}

/// Messages that were posted and are not done, the one in question included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// How many.
    pub messages: u32,
    /// Their bytes.
    pub bytes: u64,
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
    /// They are parity: `first` counts from the first extra packet.
    pub parity: bool,
}

/// What a report says.
#[derive(Clone, Debug)]
pub enum Say<'a> {
    /// What arrived and what did not.
    Status(Status<'a>),
    /// Packets that the sender should send (again), ascending; extra packets by their number in the receive.
    Want(&'a [Range<u32>]),
}

/// What has arrived of a message when its receiver is asked.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Its packets.
    pub data: &'a Arrived,
    /// Its extra packets, counted from the first.
    pub parity: &'a Arrived,
}

/// A stripe of which data is missing and parity arrived to make up for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The stripe.
    pub stripe: Stripe,
    /// Rows of the data that is missing, ascending.
    pub missing: Vec<u8>,
    /// As many rows of parity that arrived, ascending.
    pub parity: Vec<u8>,
}

/// An announced plan outside the limits of the scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{scheme} announced with k = {}, m = {}, interleave = {}", .plan.k, .plan.m, .plan.interleave)]
pub struct PlanError {
    /// As announced.
    pub plan: Plan,
    /// The scheme.
    pub scheme: Cow<'static, str>,
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
        Self::from(m, 0)
    }

    /// What a message has from packet `first` on.
    pub fn from(m: &MessageSpec, first: u32) -> Self {
        let per_chunk = (m.channels > 1).then_some(u32::from(m.per_chunk.max(1)));
        Self { next: first.min(m.packets), total: m.packets, per_chunk }
    }

    /// The first packet that was not sent.
    pub fn sent(&self) -> u32 {
        self.next
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
        (packets > 0).then_some(SendRun { first, packets, channel, repair: false, parity: false })
    }
}

/// Whether a message can be handed to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something is missing.
    Pending,
    /// What is missing follows from what arrived: [`SchemeReceiver::shortages`].
    Solvable,
    /// Every byte is in place.
    Whole,
}

/// A way to make messages whole.
pub trait Scheme: Send + Sync {
    /// For people: reports, command lines.
    fn name(&self) -> Cow<'static, str>;

    /// For the peer: announced with every message.
    fn wire_id(&self) -> u8;

    /// Parity covers all of a message, however long it is.
    fn protects_all(&self) -> bool {
        false
    }

    /// Extra packets that a receive should have; `m` is the longest message that it takes.
    fn extra(&self, _m: &MessageSpec, _c: &Conditions) -> u32 {
        0
    }

    /// The code that parity is made with, for a scheme that sends any.
    fn code(&self) -> Code {
        Code::Mds
    }

    /// What it would do with a message, and why, for people; None where there is no choice.
    fn explain(&self, _m: &MessageSpec, _c: &Conditions) -> Option<String> {
        None
    }

    /// The sending half for one message.
    fn sender(&self, m: &MessageSpec, c: &Conditions) -> Box<dyn SchemeSender>;

    /// The receiving half for one message, as it was announced.
    ///
    /// # Errors
    /// A plan that no sender of this scheme makes.
    fn receiver(
        &self,
        m: &MessageSpec,
        plan: &Plan,
        c: &Conditions,
    ) -> Result<Box<dyn SchemeReceiver>, PlanError>;
}

/// Sending half of a scheme for one message. It lives until the receiver says that the message is done.
pub trait SchemeSender: Send {
    /// What is announced.
    fn plan(&self) -> Plan {
        Plan::default()
    }

    /// How parity packets are made, for a scheme that sends any.
    fn stripes(&self) -> Option<Stripes> {
        None
    }

    /// News from the peer; late, repeated, reordered, partial or false. Work is bounded by the ranges listed and the
    /// packets newly known to have arrived.
    fn on_status(&mut self, now: Nanos, status: &Status<'_>, c: &Conditions);

    /// The peer wants packets (again). Work is bounded by the ranges.
    fn on_want(&mut self, _now: Nanos, _wanted: &mut dyn Iterator<Item = Range<u32>>, _c: &Conditions) {}

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

/// Receiving half of a scheme for one message. In its [`Conditions`] the pace is the one announced, and `room` means nothing.
pub trait SchemeReceiver: Send {
    /// Something arrived, or the time of [`wake_at`](Self::wake_at) came. Afterwards what both views
    /// [found](Arrived::found) is forgotten.
    fn on_progress(&mut self, now: Nanos, v: &View<'_>, c: &Conditions) -> Outcome;

    /// Part `part`, from 0, of what to report; None when there is no more. Where the datagram ends before a list does, the
    /// scheme learns how far it came, and says the rest next.
    fn report<'a>(&'a mut self, now: Nanos, v: &View<'a>, c: &Conditions, part: u32) -> Option<Say<'a>>;

    /// Of the [`Status`] just given, what lies before `to` was written.
    fn reported(&mut self, to: u32);

    /// Of the [`Say::Want`] just given, so many ranges were written.
    fn named(&mut self, _ranges: usize) {}

    /// Repairs of packets before it may have arrived: they are looked for before a report.
    fn overdue(&self, _now: Nanos, _c: &Conditions) -> u32 {
        0
    }

    /// Data before it was sent or asked for: it is looked at, also where nothing that arrived shows that it was sent.
    fn asked(&self) -> u32 {
        0
    }

    /// There is something to report that should not wait for more packets or for a quarter of a round trip.
    fn urgent(&self) -> bool {
        false
    }

    /// When [`on_progress`](Self::on_progress) wants to be called without anything having arrived.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// After [`Outcome::Solvable`]: every stripe that lacks data. When all of it is computed the message is whole.
    fn shortages(&self, _v: &View<'_>) -> Vec<Shortage> {
        Vec::new()
    }

    /// How stripes are laid out, for a scheme that has any.
    fn stripes(&self) -> Option<Stripes> {
        None
    }
}
