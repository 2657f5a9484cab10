//! How much parity a message gets, and when: the choice of a sender before the first packet.
//!
//! Too little parity costs a round trip, too much costs wire and processor only: unused parity follows the data and delays
//! nothing. So everything here errs towards more.

use super::super::{Conditions, MessageSpec};
use super::stripes::{MAX_COLUMNS, MAX_K, Plan};
use crate::model::rows::rows;
use crate::types::Nanos;

/// Probability that parity does not suffice for a message.
const FAILURE: f64 = 1e-4;

/// The same for all messages of a window in a stream, in which one that fails holds up the others.
const STREAM_FAILURE: f64 = 1e-2;

/// Least parity rows of a wide stripe where parity may be spared: with them an estimate of the loss may be ten times too low, up
/// to a loss of 1e-2.
const FLOOR: u32 = 15;

/// Least loss that is assumed where something is said or sent several times.
const LOSS_OF_REPETITIONS: f64 = 1e-2;

/// Columns of the code that a plan leaves free.
const RESERVE: u32 = 16;

/// A tail on a path without a pace, in packets.
const UNPACED_TAIL: u32 = 1_024;

/// What is known of a direction's losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Probability that a packet is lost; an upper estimate.
    pub probability: f64,
    /// Mean packets lost in a row; an upper estimate, at least 1.
    pub burst: f64,
}

impl Default for Loss {
    /// What is assumed of a path before anything was seen.
    fn default() -> Self {
        Self { probability: 1e-2, burst: 16.0 }
    }
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// What is announced.
    pub plan: Plan,
    /// Between the last data packet and the first parity packet of a shallow group, so that no burst hits both.
    pub gap: Nanos,
    /// Copies of a late repair.
    pub copies: u32,
}

/// Shortest time between two reports, about.
pub fn report_interval(rtt: Nanos) -> Nanos {
    Nanos((rtt.0 / 512).max(20_000))
}

/// How many reports in a row name a loss: so many that all are lost with less than one in ten thousand, for all losses of a round
/// trip together; at least 3.
pub fn report_copies(c: &Conditions) -> u32 {
    repetitions(c, packets_in(c.rtt, c)).clamp(3, 8)
}

/// Transmissions of each of `of` packets until all arrived but for [`FAILURE`].
fn repetitions(c: &Conditions, of: f64) -> u32 {
    // Repeating costs little, and the estimate may be ten times too low.
    let p = c.loss.probability.clamp(LOSS_OF_REPETITIONS, 0.9);
    let losses = (of * p).max(1.0);
    ((FAILURE / losses).ln() / p.ln()).ceil().max(1.0) as u32
}

fn packets_in(t: Nanos, c: &Conditions) -> f64 {
    match c.packet_time_ps {
        0 => f64::from(UNPACED_TAIL),
        ps => t.0 as f64 * 1_000.0 / ps as f64,
    }
}

/// Packets at the end of a message for which a repair that is asked for comes too late: what leaves in a round trip, and
/// in the time until a loss is noticed and reported. Too long costs little, too short much.
pub fn tail(c: &Conditions) -> u32 {
    let late = Nanos(report_interval(c.rtt).0 * 4) + c.channels.reordering;
    let packets = packets_in(c.rtt + late, c).ceil();
    if c.packet_time_ps == 0 { UNPACED_TAIL } else { packets.clamp(1.0, 1e9) as u32 }
}

/// Whether unasked parity pays where messages follow each other: `rows` of `k` in each, or none.
///
/// With a window of W round trips of data and messages of s, a lossless pipe carries min(1, W / (1 + s)). Without parity the
/// window stands still for the n repairs in a row that one of its N packets takes; with parity it does not, but parity
/// takes its share of the wire (`hybrid.md`'s rule: derived, and right in 107 of 108 simulated settings).
fn parity_pays(m: &MessageSpec, c: &Conditions, k: u32, rows: u32) -> bool {
    let on_the_way = packets_in(c.rtt, c).max(1.0);
    let payload = f64::from(m.payload.max(1));
    let window = c.unfinished.bytes as f64 / payload;
    let (w, s) = (window / on_the_way, f64::from(m.packets) / on_the_way);
    let p = c.loss.probability.clamp(1e-9, 0.5);
    let events = window / c.loss.burst.max(1.0);
    let repairs: f64 = (1..40).map(|j| -f64::exp_m1(events * f64::ln_1p(-p.powi(j)))).sum();
    let share = f64::from(rows) / f64::from(k);
    let none = (1.0 / (1.0 + p)).min(w / (1.0 + repairs + s));
    let with = (1.0 / (1.0 + share + p)).min(w / (1.0 + s));
    with > none
}

/// The parity of a message whose last [`tail`] packets are protected.
///
/// Where other messages are unfinished, this one is part of a stream: there is no floor, failures are rarer than the window's
/// messages, and parity is left out where it does not pay. Nor is there a floor where parity may not be spared.
pub fn choose(m: &MessageSpec, c: &Conditions) -> Choice {
    let protected = tail(c).min(m.packets);
    if protected == 0 {
        return Choice::default();
    }
    // The rule knows a pipe of a fixed rate. Where the rate follows the path, each message has parity as if it were alone.
    let lone = c.unfinished.messages <= 1 || !c.spare_parity;
    let failure = if lone { FAILURE } else { STREAM_FAILURE / f64::from(c.unfinished.messages) };
    let p = c.loss.probability.clamp(1e-9, 0.5);
    let burst = c.loss.burst.max(1.0);
    let mut widest = MAX_K;
    loop {
        // Depth travels in 16 bits: beyond, less is protected.
        let depth = protected.div_ceil(widest).min(u16::MAX.into());
        let k = protected.div_ceil(depth).min(widest);
        let shallow = f64::from(depth) < 4.0 * burst;
        let slots = if shallow { gap_slots(burst, c) } else { 0 };
        let least = match k {
            _ if !lone => 0,
            1 => 1,
            _ if c.spare_parity => FLOOR.min(k.max(3)),
            _ => 1,
        };
        let m0 = match rows(k, depth, p, burst, slots, failure) {
            Some(m0) if m0.max(least) + k <= MAX_COLUMNS => m0.max(least),
            // A narrower stripe has more room, down to where the loss is beyond any code.
            _ if widest > 16 => {
                widest -= 8;
                continue;
            }
            _ => MAX_COLUMNS - k,
        };
        let m0 = if lone || parity_pays(m, c, k, m0) { m0 } else { 0 };
        let plan = Plan { k: k as u16, m: m0 as u16, interleave: depth as u16 };
        let gap = Nanos((u128::from(slots) * u128::from(c.packet_time_ps) / 1_000) as u64);
        let copies = repetitions(c, packets_in(c.rtt, c)).saturating_sub(1).clamp(1, 8);
        return Choice { plan, gap, copies };
    }
}

/// Slots from data to parity: eight bursts, at most a 500th of the round trip.
fn gap_slots(burst: f64, c: &Conditions) -> u32 {
    let most = if c.packet_time_ps == 0 { 0.0 } else { packets_in(Nanos(c.rtt.0 / 500), c) };
    (8.0 * burst).min(most).floor() as u32
}

/// Extra packets worth having behind a receive of `m`.
pub fn extra(m: &MessageSpec, c: &Conditions) -> u32 {
    let choice = choose(m, c);
    let stripes = u32::from(choice.plan.interleave);
    let rows = (u32::from(choice.plan.m) + RESERVE).min(256 - u32::from(choice.plan.k));
    // A sender whose round trip differs a little needs a stripe more.
    (stripes + stripes / 16).saturating_mul(rows)
}

#[cfg(test)]
mod tests;
