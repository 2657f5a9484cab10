//! What `sdr advise` was given.

use super::model::SettingArgs;
use super::{MAX_SAMPLES, MAX_THREADS, whole};
use clap::Args;

/// `sdr advise`.
#[derive(Args, Clone)]
pub struct AdviseArgs {
    #[command(flatten)]
    pub setting: SettingArgs,
    /// Simulate N messages with each scheme too, show them beside the prediction, and say whether the ranking is theirs: exit
    /// code 1 when not
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 2..=MAX_SAMPLES))]
    pub check: Option<u64>,
    /// Threads of simulations [default: all cores]
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 1..=MAX_THREADS))]
    pub threads: Option<u64>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,
}

pub const EXAMPLES: &str = "\
Examples:
  sdr advise --rate 400Gbit --rtt 25ms --loss 1e-3 --size 128MiB
  sdr advise --loss 1e-2 --burst 16 --size 8MiB --json
  sdr advise --distance 3750km --medium fibre --loss 1e-4 --size 1GiB --check 100

Exit codes: 0 good, 1 --check found another order, 2 wrong usage, 130 ended by Ctrl-C.";
