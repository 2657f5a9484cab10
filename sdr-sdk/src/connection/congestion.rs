//! How fast a connection sends: congestion control, without IO and without a clock.
//!
//! A [`CongestionControl`] makes a [`Controller`] for each connection's sending direction. The pacer tells it what left
//! and what came back, and obeys its pace and its window; whatever leaves counts: first transmissions, repairs, parity,
//! copies. Invariant: the controller sees payload bytes and times alone, and no packet is sent for its sake but the probes
//! of `flight`.
//!
//! | file | what it holds |
//! |---|---|
//! | `congestion/fixed.rs` | [`Fixed`]: the configured rate, whatever the path says |
//! | `congestion/delay.rs` | [`Delay`]: a window that keeps the queue short |
//! | `congestion/queue.rs` | how long the queue is, and how long the path without |
//! | `congestion/drops.rs` | whether losses are a full queue's |
//! | `congestion/flight.rs` | what is on its way, from stamps that come back |

#![forbid(unsafe_code)]

mod delay;
mod drops;
mod fixed;
pub(super) mod flight;
mod queue;
#[cfg(test)]
mod tests;

pub use delay::Delay;
pub use fixed::Fixed;

use crate::types::Nanos;

/// A way to decide how fast to send.
pub trait CongestionControl: Send + Sync {
    /// For people: reports, command lines.
    fn name(&self) -> &'static str;

    /// What controls one connection.
    fn start(&self, start: &Start) -> Box<dyn Controller>;
}

/// What is known before anything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The configured rate in bits of payload a second.
    pub rate: Option<u64>,
    /// Payload bytes of a full packet.
    pub payload: u32,
    /// Round trip as far as it was measured.
    pub rtt: Nanos,
}

/// A stamp that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// When it left.
    pub sent: Nanos,
    /// Its round trip.
    pub rtt: Nanos,
    /// Bytes that have left the path since the stamp before, by arriving or by being lost.
    pub passed: u64,
    /// Bytes that were on their way when it left.
    pub flight: u64,
}

/// What the receiver found since it last told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that it looked for.
    pub packets: u64,
    /// Those that were missing.
    pub missing: u64,
    /// Bursts of missing ones.
    pub bursts: u64,
}

/// Controls one direction of a connection. `now` never goes back.
pub trait Controller: Send {
    /// A stamp came back.
    fn echo(&mut self, now: Nanos, echo: &Echo);

    /// The receiver told of losses.
    fn losses(&mut self, now: Nanos, losses: &Losses);

    /// Full packets have `payload` bytes from now on. Rate and window stay what they are in bytes.
    fn resize(&mut self, payload: u32);

    /// Picoseconds from one full packet to the next; zero: as fast as the fabric takes them.
    fn pace(&self) -> u64;

    /// Most bytes on their way; None when their number does not matter, and then no stamps are sent for it.
    fn window(&self) -> Option<u64>;

    /// Nobody else wants what the configured rate leaves: redundancy may be generous.
    fn spare_parity(&self) -> bool;
}

/// Picoseconds a packet of `payload` bytes at `rate` bits a second; zero without a rate.
pub(super) fn packet_ps(rate: Option<u64>, payload: u32) -> u64 {
    rate.map_or(0, |r| (u128::from(payload) * 8 * 1_000_000_000_000 / u128::from(r.max(1))) as u64)
}
