//! Selective repeat under every fault.

use netem::PairConfig;
use sdr_tests::bed;
use std::sync::Arc;

type Net = netem::SimNet;
type Bed = bed::Bed<Net>;

/// Fewer of the cases that only differ in numbers.
const FEWER: bool = false;

fn config(path: &str) -> PairConfig {
    bed::config_of(path, Arc::new(sdr_sdk::reliability::SelectiveRepeat::default()))
}

fn usual() -> PairConfig {
    config(bed::USUAL)
}

#[expect(clippy::duplicate_mod, reason = "once for each scheme")]
#[path = "cancel.rs"]
mod cancel;
#[expect(clippy::duplicate_mod, reason = "once for each scheme")]
#[path = "control.rs"]
mod control;
#[expect(clippy::duplicate_mod, reason = "once for each scheme")]
#[path = "ends.rs"]
mod ends;
#[expect(clippy::duplicate_mod, reason = "once for each scheme")]
#[path = "garbage.rs"]
mod garbage;
#[expect(clippy::duplicate_mod, reason = "once for each scheme")]
#[path = "path.rs"]
mod path;
#[expect(clippy::duplicate_mod, reason = "once for each scheme")]
#[path = "slots.rs"]
mod slots;
#[expect(clippy::duplicate_mod, reason = "once for each scheme")]
#[path = "traffic.rs"]
mod traffic;
