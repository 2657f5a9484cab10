//! Values of the paper's figures (arXiv 2505.05366), recomputed from its formulas with packets of 4 KiB.

use super::*;
use crate::model::Ring;
use crate::model::erasure::Code;

#[test]
fn selective_repeat_by_size() {
    for (size, wanted) in
        [(128 * MIB, 1.74), (512 * MIB, 2.45), (2 * GIB, 1.98), (8 * GIB, 1.34), (32 * GIB, 1.09)]
    {
        near("sr", slowdown("sr", &long_haul(size, 1e-5)).mean, wanted, 0.01);
    }
}

#[test]
fn selective_repeat_by_loss() {
    for (loss, wanted) in [(1e-6, 1.08), (1e-5, 1.74), (1e-4, 3.58), (1e-3, 3.79), (1e-2, 6.36), (1e-1, 12.6)]
    {
        near("sr", slowdown("sr", &long_haul(128 * MIB, loss)).mean, wanted, 0.01);
    }
}

#[test]
fn selective_repeat_by_distance() {
    for (km, wanted) in [(75, 1.00), (1_500, 1.12), (3_000, 1.27), (3_750, 1.34), (6_000, 1.53)] {
        let setting = Setting { rtt: Nanos(km * 20_000 / 3), ..long_haul(8 * GIB, 1e-5) };
        near("sr", slowdown("sr", &setting).mean, wanted, 0.01);
    }
}

#[test]
fn codes_overtake_selective_repeat_near_2700_km() {
    let faster = |km: u64| {
        let setting = Setting { rtt: Nanos(km * 20_000 / 3), ..long_haul(8 * GIB, 1e-5) };
        slowdown("ec:32,8", &setting).mean < slowdown("sr", &setting).mean
    };
    let crossing = (2_000..3_500).step_by(10).find(|&km| faster(km)).expect("a crossing");
    // "Near 2,700 km" in the text; where the values of both curves at 1,500 and 3,000 km put it.
    assert!((2_500..=2_750).contains(&crossing), "{crossing} km");
}

#[test]
fn codes_by_size() {
    for (size, wanted) in
        [(128 * MIB, 1.02), (512 * MIB, 1.08), (2 * GIB, 1.16), (8 * GIB, 1.22), (32 * GIB, 1.24)]
    {
        near("ec", slowdown("ec:32,8", &long_haul(size, 1e-5)).mean, wanted, 0.01);
    }
}

#[test]
fn codes_at_high_loss() {
    near("ec", slowdown("ec:32,8", &long_haul(128 * MIB, 5e-2)).mean, 1.46, 0.03);
    near("ec", slowdown("ec:32,8", &long_haul(128 * MIB, 1e-1)).mean, 9.0, 0.03);
}

#[test]
fn fallback_of_a_message_of_128_mib() {
    let fallback =
        |name: &str, loss: f64| scheme(name).law(&long_haul(128 * MIB, loss)).expect("a setting").fallback();
    for (name, loss, wanted, digits) in [
        ("ec:32,8", 1e-2, 2e-7, 0.25),
        ("ec:32,8", 3e-2, 2e-3, 0.25),
        ("ec:32,8", 5e-2, 0.12, 0.05),
        ("ec:32,4", 1e-2, 0.03, 0.2),
        ("ec:32,2", 1e-3, 0.006, 0.1),
        ("xor:32,8", 1e-3, 0.079, 0.01),
        ("xor:32,8", 2e-3, 0.28, 0.02),
        ("xor:32,8", 5e-3, 0.87, 0.01),
    ] {
        println!("{name} {loss} {} ({wanted})", fallback(name, loss));
        near(name, fallback(name, loss), wanted, digits);
    }
}

#[test]
fn a_code_shortens_with_its_stripe() {
    assert_eq!(Code::Mds { k: 32, m: 8 }.shortened(1), Code::Mds { k: 1, m: 1 });
    assert_eq!(Code::Xor { k: 32, m: 8 }.shortened(9), Code::Xor { k: 9, m: 3 });
}

/// Figure 13: p99.9 of an allreduce with selective repeat as a multiple of that with (32, 8).
///
/// The quantile moves in steps of a timeout, and in some cells 0.999 lies next to a step: the figure's 1000 samples and
/// an exact quantile may then be a step apart, so the quantiles on both sides bound what is compared.
#[test]
fn allreduce_speedup() {
    for (size, sites, samples, row) in [
        (128 * MIB, 4, 40_000, [2.0, 2.9, 3.9, 4.9, 7.5]),
        (128 * MIB, 8, 40_000, [1.6, 2.5, 3.9, 4.5, 6.9]),
        (GIB, 4, 20_000, [2.5, 3.3, 3.7, 4.8, 6.8]),
    ] {
        for (loss, wanted) in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2].into_iter().zip(row) {
            let run = |name: &str, seed: u64| {
                let ring = Ring::new(scheme(name), &long_haul(size, loss), sites).expect("a setting");
                let run = ring.run(samples, seed);
                assert!(run.mean() > ring.mean_bound() * 0.999 && ring.mean_bound() >= ring.lower_bound());
                run
            };
            let (repeat, code) = (run("sr", 1), run("ec:32,8", 2).quantile(0.999));
            let (low, high) = (repeat.quantile(0.998) / code, repeat.quantile(0.9995) / code);
            println!("{size} {sites} {loss}: {} in {low}..{high} ({wanted})", repeat.quantile(0.999) / code);
            assert!((low * 0.9..=high * 1.1).contains(&wanted), "{size} {sites} {loss}: {low} to {high}");
        }
    }
}

/// Segments of a thousand timeouts, whose draws come from a table: their mean is that of the law.
#[test]
fn allreduce_of_long_segments() {
    let rtt = Nanos::from_micros(1);
    for (name, loss) in [("sr", 0.5), ("ec:32,8", 0.3)] {
        let setting = Setting { rtt, ..long_haul(64 * MIB, loss) };
        let ring = Ring::new(scheme(name), &setting, 2).expect("a setting");
        assert!(ring.law().work() > 200.0, "{}", ring.law().work());
        let mean = ring.run(5_000, 1).mean();
        assert!(mean >= ring.mean_bound() * 0.999 && mean <= ring.mean_bound() * 1.05, "{name}: {mean}");
    }
}
