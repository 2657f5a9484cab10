//! The formulas against the values of the paper's figures, against packet-level simulation, and against chance.

mod chance;
mod figures;
mod laws;
mod stripes;

use super::{SchemeModel, Setting};
use crate::types::Nanos;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// 400 Gbit/s, 25 ms, packets of 4 KiB, independent losses.
fn long_haul(bytes: u64, loss: f64) -> Setting {
    let rtt = Nanos::from_millis(25);
    Setting { bytes, packet_bytes: 4 * KIB, rate_bps: 400_000_000_000, rtt, loss, burst: 1.0 }
}

fn scheme(name: &str) -> SchemeModel {
    name.parse().expect("a scheme")
}

/// Mean, p50, p99 and p99.9 as multiples of the lossless bound.
fn slowdown(name: &str, setting: &Setting) -> super::Summary {
    let law = scheme(name).law(setting).expect("a setting");
    super::Summary::of(&*law).per(setting.lower_bound())
}

#[track_caller]
fn near(what: &str, got: f64, wanted: f64, share: f64) {
    assert!((got / wanted - 1.0).abs() <= share, "{what}: {got}, wanted {wanted} within {share}");
}
