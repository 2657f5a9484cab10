//! What holds of every distribution, and how schemes are named.

use super::*;
use crate::model::scheme::SchemeError;
use proptest::prelude::*;

const SCHEMES: [&str; 7] = ["sr", "sr-nack", "ec:32,8", "ec:5,1", "xor:32,8", "xor:7,3", "hybrid"];

fn any_setting() -> impl Strategy<Value = Setting> {
    let loss = prop_oneof![Just(0.0), (-7.0f64..-0.3).prop_map(|e| 10f64.powf(e))];
    (1..200_000_000u64, 1..100_000u64, 0..50_000u64, loss, prop_oneof![Just(1.0), 1.0f64..20.0]).prop_map(
        |(bytes, mbps, rtt_us, loss, burst)| Setting {
            bytes,
            packet_bytes: 4 * KIB,
            rate_bps: mbps * 1_000_000,
            rtt: Nanos::from_micros(rtt_us),
            loss,
            burst,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn quantiles_invert_a_monotone_distribution(
        setting in any_setting(), which in 0..SCHEMES.len(), mut qs in prop::collection::vec(1e-4..0.9999f64, 6),
    ) {
        let name = SCHEMES[which];
        let burst = if name.starts_with("xor") { 1.0 } else { setting.burst };
        let setting = Setting { burst, ..setting };
        let law = scheme(name).law(&setting).expect("a setting");
        qs.sort_by(f64::total_cmp);
        let bound = setting.lower_bound();
        prop_assert_eq!(law.cdf(bound * (1.0 - 1e-9)), 0.0);
        let mut last = (0.0, 0.0);
        for q in qs {
            let t = law.quantile(q);
            // Two quantiles on one step may be found a thousandth of a packet time apart.
            let near = 2e-3 * setting.packet_time();
            let (t, at) = if t < last.0 && t + near >= last.0 { last } else { (t, law.cdf(t)) };
            prop_assert!(t >= last.0 && at >= last.1 - 1e-12, "{} {}: {} after {:?}", name, q, t, last);
            prop_assert!(t >= bound * (1.0 - 1e-12), "{} {}: {}", name, q, t);
            prop_assert!(at >= q - 1e-12 && at <= 1.0, "{} {}: P(T <= {}) = {}", name, q, t, at);
            // Just before it the share is not reached, or there is nothing before it.
            let before = law.cdf(t - 0.01 * setting.packet_time() - 1e-9 * t);
            prop_assert!(before < q + 1e-12, "{} {}: P(T <= {} -) = {}", name, q, t, before);
            let middle = law.cdf((t + last.0) / 2.0);
            prop_assert!(last.1 <= middle + 1e-12 && middle <= at + 1e-12);
            last = (t, at);
        }
        let mean = law.mean();
        prop_assert!(mean.is_finite() && mean >= bound * (1.0 - 1e-12), "{} mean {}", name, mean);
        prop_assert!((0.0..=1.0).contains(&law.fallback()) && law.extra_bytes() >= 0.0);
        if setting.loss == 0.0 && !name.contains(':') {
            prop_assert!((mean / bound - 1.0).abs() < 1e-12);
        }
    }

    /// The mean is the integral of the quantiles: midpoints of 4000 shares leave out at most the last of them, and rare
    /// fallbacks.
    #[test]
    fn the_mean_is_that_of_the_distribution(setting in any_setting(), which in 0..SCHEMES.len()) {
        let name = SCHEMES[which];
        let setting = Setting { burst: 1.0, ..setting };
        let law = scheme(name).law(&setting).expect("a setting");
        let parts = 4_000;
        let sum: f64 = (0..parts).map(|i| law.quantile((f64::from(i) + 0.5) / f64::from(parts))).sum();
        let (mean, sum) = (law.mean(), sum / f64::from(parts));
        let step = law.quantile(1.0 - 1e-7) - law.quantile(1e-7);
        prop_assert!((mean - sum).abs() <= step * 4.0 / f64::from(parts) + 1e-6 * mean, "{} {} {}", name, mean, sum);
    }
}

#[test]
fn one_packet_has_a_known_mean() {
    let setting = long_haul(4_096, 0.25);
    let mean = scheme("sr").law(&setting).expect("a setting").mean();
    near("mean", mean, setting.lower_bound() + (75e6 + 81.92) / 3.0, 1e-12);
}

#[test]
fn two_million_packets_and_more_take_no_longer() {
    for name in SCHEMES {
        for loss in [1e-6, 1e-2, 0.5, 0.99] {
            let setting = long_haul(64 * GIB + 1, loss);
            let summary = slowdown(name, &setting);
            assert!(summary.mean >= 1.0 && summary.p999 >= summary.p50, "{name} {loss}: {summary:?}");
        }
    }
}

#[test]
fn names_are_read_back() {
    for name in SCHEMES {
        assert_eq!(scheme(name).to_string(), name);
    }
    assert_eq!(scheme("ec:224,16"), SchemeModel::Mds { k: 224, m: 16 });
    assert_eq!(scheme("ec:1,239"), SchemeModel::Mds { k: 1, m: 239 });
}

#[test]
fn what_is_no_scheme_is_named_with_what_would_be() {
    for (text, parts) in [
        ("magic", ["\"magic\"", "hybrid"]),
        ("ec", ["\"ec\"", "ec:K,M"]),
        ("ec:32", ["\"ec:32\"", "ec:32,8"]),
        ("xor:a,b", ["\"xor:a,b\"", "xor:32,8"]),
        ("ec:+3,2", ["\"ec:+3,2\"", "whole numbers"]),
        ("ec:0,8", ["k = 0", "1 to 224"]),
        ("ec:225,8", ["k = 225", "1 to 224"]),
        ("ec:32,0", ["m = 0", "1 to 208"]),
        ("ec:224,17", ["m = 17", "1 to 16"]),
        ("xor:8,9", ["m = 9", "1 to 8"]),
        ("xor:224,17", ["m = 17", "1 to 16"]),
        ("ec:32,4294967296", ["\"ec:32,4294967296\"", "whole numbers"]),
    ] {
        let error: SchemeError = text.parse::<SchemeModel>().expect_err("no scheme");
        let line = error.to_string();
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
}

#[test]
fn impossible_settings_are_refused() {
    let good = long_haul(MIB, 1e-3);
    for bad in [
        Setting { bytes: 0, ..good },
        Setting { packet_bytes: 0, ..good },
        Setting { packet_bytes: 1, bytes: 1 << 33, ..good },
        Setting { rate_bps: 0, ..good },
        Setting { rate_bps: 1, ..good },
        Setting { loss: 1.0, ..good },
        Setting { loss: -0.1, ..good },
        Setting { loss: f64::NAN, ..good },
        Setting { loss: 0.995, ..good },
        Setting { burst: 0.5, ..good },
        Setting { burst: f64::INFINITY, ..good },
        Setting { burst: 2.0, loss: 0.9, ..good },
    ] {
        assert!(scheme("sr").law(&bad).is_err(), "{bad:?}");
    }
    let bursts = Setting { burst: 4.0, ..good };
    assert!(scheme("xor:32,8").law(&bursts).is_err() && scheme("ec:32,8").law(&bursts).is_ok());
}
