//! What `sdr model` was given.

use super::{burst, mtu, whole};
use clap::Args;
use netem::units::{BitRate, ByteSize, Distance, Duration, Medium, Probability};
use sdr_sdk::model::SchemeModel;
use std::str::FromStr;

/// `sdr model`.
#[derive(Args, Clone)]
pub struct ModelArgs {
    /// Reliability scheme: sr, sr-nack, ec:K,M, xor:K,M or hybrid
    #[arg(long, value_name = "NAME", default_value = "sr", value_parser = scheme)]
    pub scheme: SchemeModel,
    /// A ring allreduce over N sites, with a buffer of --size at each, instead of one message; its quantiles are drawn, from
    /// the same seed each time
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 2..=MAX_SITES))]
    pub allreduce: Option<u64>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub setting: SettingArgs,
}

/// A message on a path, as the formulas see them.
#[derive(Args, Clone)]
pub struct SettingArgs {
    /// Message length
    #[arg(long, value_name = "BYTES", default_value = "128MiB")]
    pub size: ByteSize,
    /// Payload bytes of a packet
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = mtu)]
    pub mtu: ByteSize,

    /// Rate
    #[arg(long, value_name = "RATE", default_value = "400Gbit", help_heading = "Link")]
    pub rate: BitRate,
    /// Round-trip time [default: 25ms]
    #[arg(long, value_name = "TIME", help_heading = "Link")]
    pub rtt: Option<Duration>,
    /// One-way length, instead of --rtt
    #[arg(long, value_name = "KM", help_heading = "Link")]
    pub distance: Option<Distance>,
    /// What carries the light over --distance: vacuum or fibre [default: vacuum]
    #[arg(long, value_name = "NAME", help_heading = "Link")]
    pub medium: Option<Medium>,
    /// Average loss in packets, at most 0.99
    #[arg(long, value_name = "P", default_value = "1e-5", help_heading = "Link")]
    pub loss: Probability,
    /// Mean burst of losses in packets; 1 means independent losses; xor has no formula for others
    #[arg(long, value_name = "PACKETS", default_value = "1", value_parser = burst, help_heading = "Link")]
    pub burst: f64,
}

/// The work grows with the square.
const MAX_SITES: u64 = 64;

fn scheme(text: &str) -> Result<SchemeModel, String> {
    SchemeModel::from_str(text).map_err(|e| e.to_string())
}

pub const EXAMPLES: &str = "\
Examples:
  sdr model --scheme sr --rate 400Gbit --rtt 25ms --loss 1e-5 --size 128MiB
  sdr model --scheme ec:32,8 --loss 1e-3 --size 8GiB --json
  sdr model --scheme hybrid --distance 3750km --medium fibre --loss 1e-2 --burst 16 --size 1GiB
  sdr model --scheme sr-nack --allreduce 8 --size 1GiB --loss 1e-4";
