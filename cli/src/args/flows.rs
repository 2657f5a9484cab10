//! What `sdr sim flows` was given.

use super::{burst, mtu, positive_duration, whole};
use clap::{Args, ValueEnum};
use netem::units::{BitRate, ByteSize, Duration, Probability};
use sdr_sdk::connection::congestion::{CongestionControl, Delay, Fixed};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How fast connections send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Congestion {
    /// At the rate that is configured, whatever the path says
    Fixed,
    /// As fast as the path takes it with a short queue
    Delay,
}

impl Congestion {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Delay => "delay",
        }
    }

    /// The control itself.
    pub fn control(self) -> Arc<dyn CongestionControl> {
        match self {
            Self::Fixed => Arc::new(Fixed),
            Self::Delay => Arc::new(Delay),
        }
    }
}

/// A queue: bytes, or a part of what the path holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueSize {
    /// Bytes.
    Bytes(ByteSize),
    /// Times rate x RTT.
    Bdp(f64),
}

impl FromStr for QueueSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(share) = text.strip_suffix("bdp") {
            let share = share.parse().ok().filter(|s| (1e-3..=1e3).contains(s));
            return share
                .map(Self::Bdp)
                .ok_or_else(|| "write 0.001bdp to 1000bdp, such as 0.1bdp".to_owned());
        }
        match ByteSize::from_str(text) {
            Ok(bytes) if bytes.0 > 0 => Ok(Self::Bytes(bytes)),
            Ok(_) => {
                Err("write a size above 0, such as 1MiB, or a part of rate x RTT, such as 0.1bdp".to_owned())
            }
            Err(e) => Err(e.to_string()),
        }
    }
}

impl fmt::Display for QueueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => bytes.fmt(f),
            Self::Bdp(share) => write!(f, "{share}bdp"),
        }
    }
}

/// `sdr sim flows`.
#[derive(Args, Clone)]
pub struct FlowsArgs {
    /// Connections
    #[arg(long, value_name = "N", default_value = "4", value_parser = |s: &str| whole(s, 1..=64))]
    pub flows: u64,
    /// How fast they send; fixed: each at the whole rate of the link
    #[arg(long, value_name = "NAME", default_value = "delay")]
    pub congestion: Congestion,
    /// The same without control as well, side by side
    #[arg(long)]
    pub compare: bool,
    /// Reliability scheme
    #[arg(long, value_name = "NAME", default_value = "hybrid")]
    pub scheme: String,
    /// Message length
    #[arg(long, value_name = "BYTES", default_value = "1MiB")]
    pub size: ByteSize,
    /// Messages under way at a time on each connection [default: three times what the path holds, over all connections]
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 1..=512))]
    pub inflight: Option<u64>,
    /// Payload bytes of a packet
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = mtu)]
    pub mtu: ByteSize,
    /// Virtual time, at least 40 round trips
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = positive_duration)]
    pub duration: Duration,
    /// Connection i begins after i times this
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    pub stagger: Duration,
    /// The round trip of connection i is longer by i times this
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    pub farther: Duration,
    /// Everything random follows from it
    #[arg(long, value_name = "N", default_value = "1", value_parser = |s: &str| whole(s, 0..=u64::MAX))]
    pub seed: u64,
    /// Print one JSON document instead of the table, with a time series
    #[arg(long)]
    pub json: bool,

    /// Rate
    #[arg(long, value_name = "RATE", default_value = "10Gbit", help_heading = "Link")]
    pub rate: BitRate,
    /// Round-trip time
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = positive_duration, help_heading = "Link")]
    pub rtt: Duration,
    /// Most bytes that wait before the wire, or a part of rate x RTT
    #[arg(long, value_name = "BYTES", default_value = "1bdp", help_heading = "Link")]
    pub queue: QueueSize,
    /// Loss on the wire, in packets, beside what the queue drops
    #[arg(long, value_name = "P", default_value = "0", help_heading = "Link")]
    pub loss: Probability,
    /// Mean burst of those losses in packets
    #[arg(long, value_name = "PACKETS", default_value = "1", value_parser = burst, help_heading = "Link")]
    pub burst: f64,
}

pub const EXAMPLES: &str = "\
Examples:
  sdr sim flows --flows 4 --compare
  sdr sim flows --flows 8 --queue 0.1bdp --loss 1e-3 --json
  sdr sim flows --flows 2 --stagger 500ms --farther 10ms --duration 8s";
