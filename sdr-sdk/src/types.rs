//! Newtypes for numbers that must not be mixed.
//!
//! Counters that live as long as a connection wrap; they are compared as serial numbers (RFC 1982), never with `<`.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Nanoseconds: an instant since an arbitrary origin, or a duration. Protocol code is handed `now`, it never asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin, and the empty duration.
    pub const ZERO: Self = Self(0);
    /// Later than every instant in use.
    pub const MAX: Self = Self(u64::MAX);

    /// Whole microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// Whole milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Whole seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }

    /// Seconds as a float, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds as a float, for reports.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// `self - earlier`, or zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `self * num / den` without overflow in between.
    pub const fn mul_div(self, num: u64, den: u64) -> Self {
        Self((self.0 as u128 * num as u128 / den as u128) as u64)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, d: Self) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, d: Self) {
        *self = *self + d;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, d: Self) -> Self {
        self.since(d)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 1_000 => write!(f, "{n} ns"),
            n if n < 1_000_000 => write!(f, "{:.1} us", n as f64 / 1e3),
            n if n < 1_000_000_000 => write!(f, "{:.3} ms", n as f64 / 1e6),
            n => write!(f, "{:.3} s", n as f64 / 1e9),
        }
    }
}

/// Message number of one direction of a queue pair: 64 bits, wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The next message.
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// `n` messages later.
    pub const fn plus(self, n: u64) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// `n` messages earlier.
    pub const fn minus(self, n: u64) -> Self {
        Self(self.0.wrapping_sub(n))
    }

    /// How far `self` is ahead of `other`; negative when behind.
    pub const fn distance(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }

    /// Serial-number order: `self` comes before `other`.
    pub const fn before(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// The later of the two.
    pub const fn latest(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// Serial-number order.
    pub fn serial_cmp(self, other: Self) -> Ordering {
        self.distance(other).cmp(&0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index! {
    /// The slot of a message, as it stands in the immediate: `seq mod S`.
    MessageId(u16)
}
index! {
    /// Which use of a slot: `(seq / S) mod G`. Carried by the queue a packet travels on, never by the immediate.
    Generation(u16)
}
index! {
    /// Packet number inside a message.
    PacketOffset(u32)
}
index! {
    /// Chunk number inside a message; a chunk is 1 to 64 packets.
    ChunkIndex(u32)
}
index! {
    /// One completion queue and the worker that polls it; the queue pairs of a context share its channels.
    Channel(u8)
}
index! {
    /// The queues (channels x generations) of one queue pair in a fabric.
    QueueSet(u32)
}

/// One use of a slot: what a fabric arms a key for and an engine a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotGen {
    /// Slot in the immediate.
    pub slot: MessageId,
    /// Generation on the queue.
    pub generation: Generation,
    /// The message both were computed from.
    pub seq: Seq,
}
