//! Software NICs over a link in memory, under every fault that needs no more than a tap: with headers, checksums and an address
//! a channel, and the scheme that finds losses.

use netem::PairConfig;
use sdr_tests::bed;
use std::sync::Arc;

type Net = sdr_tests::soft_net::SoftNet;
type Bed = bed::Bed<Net>;

/// Fewer of the cases that only differ in numbers.
const FEWER: bool = true;

fn config(path: &str) -> PairConfig {
    bed::config_of(path, Arc::new(sdr_sdk::reliability::SrNack))
}

fn usual() -> PairConfig {
    config(bed::USUAL)
}

#[expect(clippy::duplicate_mod, reason = "once for each net")]
#[path = "cancel.rs"]
mod cancel;
#[expect(clippy::duplicate_mod, reason = "once for each net")]
#[path = "control.rs"]
mod control;
#[expect(clippy::duplicate_mod, reason = "once for each net")]
#[path = "ends.rs"]
mod ends;
#[expect(clippy::duplicate_mod, reason = "once for each net")]
#[path = "path.rs"]
mod path;
#[expect(clippy::duplicate_mod, reason = "once for each net")]
#[path = "slots.rs"]
mod slots;
