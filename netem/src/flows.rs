//! Connections that share a bottleneck: what each gets, and how long the queue is, in virtual time.
//!
//! All connections lie between the same two NICs, so that everything they send in a direction passes one link with one
//! bounded queue; each has its own sender, its own congestion control and its own start. Payload is not carried.
//!
//! | file | what it holds |
//! |---|---|
//! | `flows.rs` | what is asked for, what comes out |
//! | `flows/bed.rs` | the two ends and their traffic |

use crate::pair::PairError;
use crate::spec::PathSpec;
use crate::units::BitRate;
use sdr_sdk::connection::congestion::CongestionControl;
use sdr_sdk::reliability::Scheme;
use sdr_sdk::types::Nanos;
use std::sync::Arc;

mod bed;
#[cfg(test)]
mod tests;

/// Points of the time series.
const POINTS: u64 = 40;

/// The queue is looked at so often in a round trip.
const LOOKS: u64 = 20;

/// Several connections over one link.
#[derive(Clone)]
pub struct Flows {
    /// The link; it needs a rate.
    pub path: PathSpec,
    /// Connections.
    pub flows: u32,
    /// How messages become whole.
    pub scheme: Arc<dyn Scheme>,
    /// How fast each connection sends.
    pub congestion: Arc<dyn CongestionControl>,
    /// Rate that each connection is configured with, in bits of payload a second.
    pub rate: Option<u64>,
    /// Bytes of a message.
    pub bytes: u64,
    /// Payload bytes a packet.
    pub payload: u32,
    /// Messages under way at a time on each connection.
    pub inflight: u32,
    /// Virtual time.
    pub duration: Nanos,
    /// Connection i begins after i times this.
    pub stagger: Nanos,
    /// The round trip of connection i is longer by i times this.
    pub farther: Nanos,
    /// The link's rate changes.
    pub changes: Vec<(Nanos, BitRate)>,
}

/// What an interval saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its end.
    pub at: Nanos,
    /// Delivered on each connection, bits a second.
    pub goodput: Vec<f64>,
    /// Of what the link can carry.
    pub utilisation: f64,
    /// Mean wait in the queue.
    pub queue: Nanos,
    /// Of the packets and datagrams offered to the queue, those that it dropped.
    pub queue_loss: f64,
}

/// What came out. The second half is that of the time; the first belongs to the starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Delivered messages of each connection in the second half, bits a second.
    pub goodput: Vec<f64>,
    /// Bits on the wire in the second half, of what the link can carry.
    pub utilisation: f64,
    /// (sum x)^2 / (n sum x^2) of the goodputs: 1 when all are alike, 1/n when one has everything.
    pub jain: f64,
    /// Of all packets and datagrams offered to the queue in the second half, those that it dropped.
    pub queue_loss: f64,
    /// The same over the whole time, starts included.
    pub queue_loss_all: f64,
    /// Mean wait in the queue in the second half.
    pub queue_mean: Nanos,
    /// 99 % of the time the wait in the queue is no longer, in the second half.
    pub queue_p99: Nanos,
    /// Packets sent: all, of them repairs and parity.
    pub packets: (u64, u64, u64),
    /// Messages delivered, and messages that failed.
    pub messages: (u64, u64),
    /// Intervals of a 40th of the time.
    pub series: Vec<Point>,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowsError {
    /// The ends could not be set up.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// Nothing is shared without a rate.
    #[error("the path has no rate; give one, such as rate=10Gbit")]
    NoRate,
    /// A number that cannot be.
    #[error("{what} is {asked}, give {allowed}")]
    Setting {
        /// Its name.
        what: &'static str,
        /// The value.
        asked: u64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Memory could not be mapped.
    #[error("memory for the messages: {0}")]
    Memory(String),
}

impl Flows {
    fn check(&self) -> Result<BitRate, FlowsError> {
        let rate = self.path.rate.ok_or(FlowsError::NoRate)?;
        let rtt = self.path.rtt().0.max(1);
        for (what, asked, good, allowed) in [
            ("flows", self.flows.into(), (1..=64).contains(&self.flows), "1 to 64"),
            ("inflight", self.inflight.into(), (1..=512).contains(&self.inflight), "1 to 512"),
            ("bytes", self.bytes, (1..=1 << 34).contains(&self.bytes), "1 B to 16 GiB"),
            ("payload", self.payload.into(), self.payload > 0, "at least 1 B"),
            ("duration in ns", self.duration.0, self.duration.0 / 40 >= rtt, "at least 40 round trips"),
        ] {
            if !good {
                return Err(FlowsError::Setting { what, asked, allowed });
            }
        }
        Ok(rate)
    }

    /// Bytes that the path holds without a queue.
    pub fn bdp(&self) -> u64 {
        let rate = self.path.rate.map_or(0, |r| r.bits_per_second());
        (u128::from(rate) * u128::from(self.path.rtt().0) / 8_000_000_000) as u64
    }

    /// Runs it, while `go_on` says so; it is asked once a point.
    ///
    /// # Errors
    /// As [`FlowsError`] says. Messages that fail are counted, not errors.
    pub fn run(&self, go_on: &dyn Fn() -> bool) -> Result<Option<Outcome>, FlowsError> {
        let rate = self.check()?;
        bed::Bed::new(self, rate)?.run(go_on)
    }
}

/// Jain's index of fairness; 0 when nobody got anything.
pub fn jain(x: &[f64]) -> f64 {
    let (sum, squares) = x.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares == 0.0 { 0.0 } else { sum * sum / (x.len() as f64 * squares) }
}
