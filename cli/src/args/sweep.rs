//! What `sdr sim run` was given.

use super::{MAX_THREADS, whole};
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// `sdr sim run`.
#[derive(Args, Clone)]
pub struct RunArgs {
    /// The plan, a TOML file
    #[arg(value_name = "PLAN.toml")]
    pub plan: PathBuf,
    /// File that gets a row for each cell as soon as it is done, and that an interrupted run goes on with [default: rows go
    /// to stdout at the end]
    #[arg(long, value_name = "FILE.csv")]
    pub out: Option<PathBuf>,
    /// File that gets the rows as one JSON document at the end
    #[arg(long, value_name = "FILE.json")]
    pub json: Option<PathBuf>,
    /// Only every n-th cell, from the i-th on; 1/n to n/n together are the whole
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    pub shard: Shard,
    /// Threads, which share the samples of a cell [default: all cores]
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 1..=MAX_THREADS))]
    pub threads: Option<u64>,
}

/// A part of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    index: usize,
    of: usize,
}

/// More than any cluster has.
const MAX_SHARDS: usize = 1_000_000;

impl Shard {
    /// Whether the cell is a part of it.
    pub fn has(self, cell: usize) -> bool {
        cell % self.of == self.index
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((i, of)) if (1..=MAX_SHARDS).contains(&of) && (1..=of).contains(&i) => {
                Ok(Self { index: i - 1, of })
            }
            _ => Err(format!("write i/n with n from 1 to {MAX_SHARDS} and i from 1 to n, such as 3/16")),
        }
    }
}

pub const ABOUT: &str = "\
Every cell of a plan: grids over anything that 'sdr sim' takes

A plan is TOML: [defaults], and one or more [[grid]]. Their keys are size, mtu, rate, rtt, distance, medium, loss, burst, jitter, \
reorder, dup, corrupt, queue, estimate, samples, seed, alpha and scheme, as the flags of 'sdr sim', and what neither says is as \
there. A value is a text or a number; an array of values is an axis, and each combination of a grid's axes is a cell. A cell that \
several grids have is run once. max_mean and max_p999 (slowdowns) and max_wire (packets sent beyond the message, as a share of \
it) are limits: a cell fails that is above one at the lower end of its 95 % interval.

Each cell has a row. Its samples follow from the plan's seed and its own parameters alone: neither threads, shards nor other \
cells change any column but the last three, which are of the run itself. 'sdr sim --seed CELL_SEED' with the row's parameters \
gives the same samples.

A run that was interrupted, even killed, goes on when it is given the same --out: rows that are there are kept, and cells without \
one are run. The plan may have got more cells, other limits (rows are judged anew), or its cells in another order; a file with the \
row of a cell that the plan does not have is refused. Shards write files of their own, which are put together by concatenation, \
without the header of all but the first; no command is needed.";

pub const EXAMPLES: &str = "\
Examples:
  sdr sim run benches/plans/smoke.toml
  sdr sim run plan.toml --out plan.csv --json plan.json
  sdr sim run plan.toml --out part-$SLURM_ARRAY_TASK_ID.csv --shard $SLURM_ARRAY_TASK_ID/16
  (head -n 1 part-1.csv; tail -q -n +2 part-*.csv) > plan.csv
  sdr sim run plan.toml --out plan.csv        says whether all are there, runs what is missing, judges

A plan of twelve cells:
  [defaults]
  samples = 1000
  loss = [1e-5, 1e-3]
  max_mean = 1.02
  [[grid]]
  scheme = [\"hybrid\", \"ec:32,8\", \"sr-nack\"]
  size = [\"8MiB\", \"1GiB\"]

Exit codes: 0 all is done and within its limits, 1 a cell failed or is outside, 2 the plan or the command line is wrong,
130 ended by Ctrl-C; the cell under way is lost, the rows before it are kept.";
