//! Selective repeat in virtual time against its closed form.
//!
//! The oracle is the model of "SDR-RDMA" (arXiv 2505.05366, section 4.2 and appendix A): packet i leaves at t_i = i T, and again
//! every O = RTO + T until it is not lost, so that X_i = t_i + O (Y_i - 1) with Y_i geometric, and the message takes
//! RTT + max X_i. The printed tail of appendix A lost the ceiling of its exponent; with it the distribution function is
//!
//! ```text
//! P(time <= RTT + q) = prod over i with t_i <= q of (1 - p^(floor((q - t_i) / O) + 1)), for q >= t_M, else 0
//! ```
//!
//! The model takes repairs to need no wire time and reports never to be lost; at these loss rates neither is visible.

use netem::Trial;
use sdr_sdk::reliability::SelectiveRepeat;
use std::sync::Arc;

const SAMPLES: u64 = 1_000;
const PACKET: u64 = 4096;
const RATE_GBIT: f64 = 400.0;
const RTT: f64 = 25e6;
const LOSS: f64 = 1e-5;

/// The closed form for one message size; times in nanoseconds.
struct ClosedForm {
    packets: f64,
    packet_time: f64,
    timeout: f64,
}

impl ClosedForm {
    fn new(bytes: u64) -> Self {
        let packet_time = PACKET as f64 * 8.0 / RATE_GBIT;
        Self { packets: (bytes / PACKET) as f64, packet_time, timeout: 3.0 * RTT + packet_time }
    }

    fn lossless(&self) -> f64 {
        RTT + self.packets * self.packet_time
    }

    /// P(time <= `time`). Packets are grouped by how often each had a chance to be sent.
    fn cdf(&self, time: f64) -> f64 {
        let q = time - RTT;
        if q < self.packets * self.packet_time {
            return 0.0;
        }
        // Packets that left by `q` at least n + 1 times.
        let left = |n: f64| ((q - n * self.timeout) / self.packet_time).floor().clamp(0.0, self.packets);
        let (mut n, mut log) = (0.0, 0.0);
        while left(n) > 0.0 {
            log += (left(n) - left(n + 1.0)) * (-LOSS.powf(n + 1.0)).ln_1p();
            n += 1.0;
        }
        log.exp()
    }

    /// The least time whose probability is at least `probability`, to the nanosecond.
    fn quantile(&self, probability: f64) -> f64 {
        let (mut below, mut at) = (0.0, self.lossless() + 40.0 * self.timeout);
        // The edge at the lossless time is exact; bisection would end beside it.
        if self.cdf(self.lossless()) >= probability {
            return self.lossless();
        }
        while at - below > 0.5 {
            let middle = f64::midpoint(below, at);
            if self.cdf(middle) >= probability { at = middle } else { below = middle }
        }
        at
    }

    /// RTT + the integral of 1 - P, by the trapezoid rule over steps much shorter than the wire time.
    fn mean(&self) -> f64 {
        let end = self.lossless() + 4.0 * self.timeout;
        let steps = 400_000;
        let width = (end - self.lossless()) / f64::from(steps);
        let tail = |k: u32| 1.0 - self.cdf(self.lossless() + f64::from(k) * width);
        let inner: f64 = (1..steps).map(tail).sum();
        self.lossless() + width * (inner + f64::midpoint(tail(0), tail(steps)))
    }
}

/// Where the true quantile's probability may lie, seen from sample number `rank` of n, to 3 sigma on each side: the exact form of
/// q -/+ 3 sqrt(q (1 - q) / n), which would pass 1 in the tail.
///
/// Sample number `rank` is above the u-quantile when fewer than `rank` of n samples are at or below it.
fn three_sigma(rank: u64) -> (f64, f64) {
    const ONE_SIDE: f64 = 0.001_35;
    let solve = |target: f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let u = f64::midpoint(low, high);
            if binomial_below(rank, u) > target { low = u } else { high = u }
        }
        f64::midpoint(low, high)
    };
    (solve(1.0 - ONE_SIDE), solve(ONE_SIDE))
}

/// P(fewer than `rank` of [`SAMPLES`] successes of probability `u`).
fn binomial_below(rank: u64, u: f64) -> f64 {
    let mut log_choose = 0.0;
    let mut sum = 0.0;
    for k in 0..rank {
        sum += (log_choose + k as f64 * u.ln() + (SAMPLES - k) as f64 * (-u).ln_1p()).exp();
        log_choose += ((SAMPLES - k) as f64 / (k + 1) as f64).ln();
    }
    sum
}

fn agrees(bytes: u64, published: f64) {
    let trial = Trial {
        path: "rtt=25ms,rate=400Gbit,loss=1e-5,seed=1".parse().expect("a path"),
        scheme: Arc::new(SelectiveRepeat::default()),
        bytes,
        payload: PACKET as u32,
        per_chunk: 16,
        known_loss: None,
    };
    let samples = trial.run(SAMPLES, 2, &|_| true).expect("every sample ends");
    let mut times: Vec<f64> = samples.iter().map(|s| s.completion.0 as f64).collect();
    times.sort_by(f64::total_cmp);

    let model = ClosedForm::new(bytes);
    let lossless = model.lossless();
    assert!((lossless - trial.lower_bound().expect("a rate").0 as f64).abs() <= 1.0);
    let expected = model.mean() / lossless;
    assert!(
        (expected / published - 1.0).abs() < 0.01,
        "the closed form has {expected}, published is {published}"
    );
    let mean = times.iter().sum::<f64>() / SAMPLES as f64 / lossless;
    println!("{bytes} bytes: mean slowdown {mean:.4}, closed form {expected:.4}");
    assert!((mean / published - 1.0).abs() < 0.05, "mean slowdown {mean}, published {published}");

    for per_mille in [500, 990, 999] {
        let rank = (SAMPLES * per_mille).div_ceil(1_000);
        let simulated = times[rank as usize - 1];
        let (from, to) = three_sigma(rank);
        let (low, high) = (model.quantile(from), model.quantile(to));
        println!(
            "  quantile {per_mille}/1000: {:.4}, closed form {:.4} ({:.4} to {:.4})",
            simulated / lossless,
            model.quantile(per_mille as f64 / 1_000.0) / lossless,
            low / lossless,
            high / lossless
        );
        let allowed = 0.92 * low..=1.08 * high;
        assert!(
            allowed.contains(&simulated),
            "quantile {per_mille}/1000: {simulated} ns, allowed {allowed:?}"
        );
    }
}

#[test]
fn selective_repeat_of_128_mib() {
    agrees(128 << 20, 1.74);
}

#[test]
fn selective_repeat_of_512_mib() {
    agrees(512 << 20, 2.45);
}

/// The grouped product is the product packet by packet, and the mean is the sum that the reference reports for this setting.
#[test]
fn the_oracle_is_the_product_over_packets() {
    let model = ClosedForm { packets: 300.0, packet_time: 1e6, timeout: 76e6 };
    for k in 0..500 {
        let q = 300e6 + f64::from(k) * 1.7e6;
        let factor = |i: u32| {
            let t = f64::from(i) * 1e6;
            1.0 - if t <= q { LOSS.powf(((q - t) / 76e6).floor() + 1.0) } else { 0.0 }
        };
        let product: f64 = (1..=300).map(factor).product();
        assert!((model.cdf(RTT + q) - product).abs() < 1e-12, "q = {q}");
    }
    assert_eq!(model.cdf(RTT + 299e6), 0.0);
}

/// Near the middle the interval is that of the normal approximation; in the tail it stays below 1.
#[test]
fn the_interval_of_a_quantile_is_exact() {
    let (from, to) = three_sigma(500);
    assert!((from - (0.5 - 3.0 * 0.015_811)).abs() < 2e-3 && (to - (0.5 + 3.0 * 0.015_811)).abs() < 2e-3);
    let (from, to) = three_sigma(999);
    assert!((0.990..0.999).contains(&from) && (0.9999..1.0).contains(&to), "{from} {to}");
}
