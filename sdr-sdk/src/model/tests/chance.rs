//! Closed forms against the same random variables drawn packet by packet.

use super::*;
use crate::model::monte_carlo;

/// Five standard errors: none of a few hundred comparisons should fail by chance, whatever the seed.
const SIGMAS: f64 = 5.0;

#[track_caller]
fn agree(name: &str, setting: &Setting, samples: u32) {
    let law = scheme(name).law(setting).expect("a setting");
    let drawn = monte_carlo::run(scheme(name), setting, samples, 7).expect("a setting");
    let (mean, allowed) = (law.mean(), SIGMAS * drawn.error() + 1e-9 * law.mean());
    // What happens less than once in a run is in the mean and not in its sample.
    let rare = law.fallback().min(1.0 / f64::from(samples)) * 10.0 * setting.lower_bound();
    assert!(
        (drawn.mean() - mean).abs() <= allowed + rare,
        "{name} {setting:?}: mean {} drawn, {mean} by the formula, {allowed}",
        drawn.mean()
    );
    for q in [0.01, 0.1, 0.5, 0.9, 0.99, 0.999] {
        // Half a step later, so that a draw on the step itself counts whatever its last digit.
        let t = law.quantile(q) + 0.25 * setting.packet_time();
        let (exact, share) = (law.cdf(t), drawn.share(t));
        let sigma = (exact * (1.0 - exact) / f64::from(samples)).sqrt() + 1.0 / f64::from(samples);
        assert!((share - exact).abs() <= SIGMAS * sigma, "{name} {setting:?}: P(T <= {t}) {share} {exact}");
    }
}

/// Slower paths, so that packets count against the round trip: 16 KiB to a few MiB, 8 KiB a round trip and up.
fn slow(bytes: u64, mbps: u64, rtt_us: u64, loss: f64) -> Setting {
    Setting { rate_bps: mbps * 1_000_000, rtt: Nanos::from_micros(rtt_us), ..long_haul(bytes, loss) }
}

#[test]
fn selective_repeat() {
    for name in ["sr", "sr-nack"] {
        agree(name, &long_haul(4 * KIB, 0.1), 4_000);
        agree(name, &long_haul(100_001, 1e-2), 4_000);
        agree(name, &long_haul(8 * MIB, 1e-3), 4_000);
        agree(name, &long_haul(128 * MIB, 1e-4), 4_000);
        agree(name, &long_haul(2 * GIB, 1e-5), 4_000);
        // Much longer than O, with many boundaries between runs under way at a time.
        agree(name, &slow(4 * MIB, 1_000, 500, 1e-3), 4_000);
        agree(name, &slow(4 * MIB + 1, 1_000, 500, 0.1), 2_000);
        agree(name, &slow(MIB, 1_000, 33, 0.5), 2_000);
        agree(name, &slow(200_000, 100, 0, 0.3), 2_000);
        agree(name, &slow(64 * KIB, 10_000, 100, 0.9), 2_000);
    }
}

#[test]
fn codes() {
    for name in ["ec:32,8", "ec:4,1", "xor:32,8", "xor:10,4"] {
        agree(name, &long_haul(4 * KIB, 0.1), 4_000);
        agree(name, &long_haul(8 * MIB, 1e-2), 4_000);
        agree(name, &long_haul(MIB + 40_000, 5e-2), 4_000);
        agree(name, &slow(4 * MIB, 1_000, 500, 3e-2), 2_000);
    }
}

#[test]
fn hybrid() {
    for loss in [1e-4, 1e-3, 1e-2, 5e-2] {
        agree("hybrid", &long_haul(4 * KIB, loss), 4_000);
        agree("hybrid", &long_haul(128 * KIB, loss), 4_000);
        agree("hybrid", &long_haul(8 * MIB, loss), 4_000);
        agree("hybrid", &slow(4 * MIB, 1_000, 20_000, loss), 1_000);
    }
}

/// The scaling for bursts, against the chain itself.
#[test]
fn selective_repeat_in_bursts() {
    for (bytes, loss, burst) in
        [(8 * MIB, 1e-3, 4.0), (8 * MIB, 1e-3, 16.0), (128 * MIB, 1e-3, 16.0), (8 * MIB, 1e-2, 4.0)]
    {
        let setting = Setting { burst, ..long_haul(bytes, loss) };
        let drawn = monte_carlo::run(scheme("sr"), &setting, 4_000, 3).expect("a setting");
        let mean = scheme("sr").law(&setting).expect("a setting").mean();
        println!(
            "{bytes} {loss} {burst}: {} {}",
            mean / setting.lower_bound(),
            drawn.mean() / setting.lower_bound()
        );
        near("sr", mean, drawn.mean(), 0.05);
    }
}

#[test]
fn stripes_in_bursts() {
    for burst in [4.0, 16.0] {
        let setting = Setting { burst, ..long_haul(8 * MIB, 1e-3) };
        let law = scheme("ec:32,8").law(&setting).expect("a setting");
        let drawn = monte_carlo::run(scheme("ec:32,8"), &setting, 4_000, 3).expect("a setting");
        let failed = 1.0 - drawn.share(setting.lower_bound() * 1.1);
        println!("{burst}: {} {failed}", law.fallback());
        // A burst across two stripes counts twice in the formula, so it is on the safe side.
        assert!(failed < law.fallback() * 1.1);
        near("fallback", law.fallback(), failed, 0.35);
        near("mean", law.mean(), drawn.mean(), 0.05);
    }
}
