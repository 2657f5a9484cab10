//! The keys of a plan: what they are called, and what they set.

use crate::args::{self, SimArgs};
use crate::schemes;
use netem::trial::Trial;
use netem::units;
use std::fmt::Display;
use std::str::FromStr;

/// Keys that may be axes. The first varies slowest: cells of a size stay together, so that shards get their share of the large
/// ones, and the schemes of a setting are neighbours.
pub const KEYS: [&str; 18] = [
    "size", "mtu", "rate", "rtt", "distance", "medium", "loss", "burst", "jitter", "reorder", "dup",
    "corrupt", "queue", "estimate", "samples", "seed", "alpha", "scheme",
];

/// Keys of limits, which have one value a grid.
pub const LIMITS: [&str; 3] = ["max_mean", "max_p999", "max_wire"];

/// What a row says of its cell, in the order of its columns.
pub const PARAMETERS: [&str; 19] = [
    "scheme",
    "size",
    "mtu",
    "rate",
    "rtt",
    "distance",
    "medium",
    "loss",
    "burst",
    "jitter",
    "reorder",
    "dup",
    "corrupt",
    "queue",
    "estimate",
    "alpha",
    "samples",
    "seed",
    "cell_seed",
];

/// Columns behind those that make a cell's samples what they are, up to its number of samples.
const CONTENT: usize = 16;

/// Sets what `key` stands for, or says what is allowed.
pub fn set(args: &mut SimArgs, key: &str, text: &str) -> Result<(), String> {
    let path = &mut args.path;
    match key {
        "scheme" => {
            schemes::find(text).map_err(|e| e.to_string())?;
            args.scheme = text.to_owned();
        }
        "size" => args.size = read(text)?,
        "mtu" => args.mtu = args::mtu(text)?,
        "estimate" => args.estimate = text.parse()?,
        "alpha" => args.alpha = args::alpha(text)?,
        "samples" => args.samples = args::whole(text, 1..=args::MAX_SAMPLES)?,
        "seed" => args.seed = Some(args::whole(text, 0..=u64::MAX)?),
        "rate" => path.rate = Some(read(text)?),
        "rtt" => path.rtt = Some(read(text)?),
        "distance" => path.distance = Some(read(text)?),
        "medium" => path.medium = Some(read(text)?),
        "loss" => path.loss = Some(read(text)?),
        "burst" => path.burst = Some(args::burst(text)?),
        "jitter" => path.jitter = Some(read(text)?),
        "reorder" => path.reorder = Some(read(text)?),
        "dup" => path.dup = Some(read(text)?),
        "corrupt" => path.corrupt = Some(read(text)?),
        "queue" => path.queue = Some(read(text)?),
        _ => return Err(format!("the key is unknown; keys are {}", KEYS.join(", "))),
    }
    Ok(())
}

fn read<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: T::Err| e.to_string())
}

/// The cell's columns, each in one form whatever it was written as, and the seed of its samples.
///
/// `seed` is the plan's. The number of samples does not enter: more of them begin with the same.
pub fn describe(args: &SimArgs, trial: &Trial, seed: u64) -> (Vec<String>, u64) {
    let path = &trial.path;
    let some = |text: Option<String>| text.unwrap_or_default();
    let (distance, medium) = match path.length {
        netem::spec::PathLength::Rtt(_) => (None, None),
        netem::spec::PathLength::Distance(distance, medium) => (Some(distance), Some(medium)),
    };
    let mut columns = vec![
        trial.scheme.name().into_owned(),
        args.size.to_string(),
        args.mtu.to_string(),
        some(path.rate.map(|rate| rate.to_string())),
        units::Duration(path.rtt()).to_string(),
        some(distance.map(|d| d.to_string())),
        some(medium.map(|m| m.to_string())),
        path.loss.to_string(),
        path.burst.to_string(),
        units::Duration(path.jitter).to_string(),
        path.reorder.to_string(),
        path.duplicate.to_string(),
        path.corrupt.to_string(),
        some(path.queue.map(|queue| queue.to_string())),
        args.estimate.to_string(),
        // It means nothing to the others: cells that differ in it alone are one.
        if args.scheme == "sr" { args.alpha.to_string() } else { String::new() },
    ];
    let cell_seed = netem::rng::derive_seed(seed, hash(&columns));
    debug_assert_eq!(columns.len(), CONTENT);
    columns.extend([args.samples.to_string(), seed.to_string(), cell_seed.to_string()]);
    (columns, cell_seed)
}

/// FNV-1a, 64 bits: a row's seed must not change with a release of the standard library.
fn hash(columns: &[String]) -> u64 {
    let bytes = columns.iter().flat_map(|c| c.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
