//! Software NICs over sockets, under every fault that needs no more than a tap, in virtual time: frames pass the kernel, and the
//! path behind it decides when they are seen.

use netem::PairConfig;
use sdr_tests::bed;
use std::sync::Arc;

type Net = sdr_tests::udp_net::UdpNet;
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
