//! What is asked of the distribution of a completion time.

use super::random::Random;

/// A distribution of completion times, in ns.
pub trait Law: Send + Sync {
    /// `P(T <= t)`.
    fn cdf(&self, t: f64) -> f64;

    /// `E[T]`.
    fn mean(&self) -> f64;

    /// Least t with `P(T <= t) >= q`, up to a thousandth of a packet time; `q` in (0, 1).
    fn quantile(&self, q: f64) -> f64;

    /// Probability that redundancy does not suffice and a round trip more is needed. Zero for schemes without redundancy.
    fn fallback(&self) -> f64 {
        0.0
    }

    /// Bytes on the wire beyond the message: parity, whether it is needed or not, and the mean of what is sent again.
    fn extra_bytes(&self) -> f64;

    /// Terms that a draw adds up, roughly: what many draws cost.
    fn work(&self) -> f64 {
        1.0
    }

    /// A draw of the same distribution.
    fn draw(&self, random: &mut Random) -> f64 {
        self.quantile(random.unit())
    }
}

/// What a distribution comes to, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 0.99-quantile.
    pub p99: f64,
    /// 0.999-quantile.
    pub p999: f64,
}

impl Summary {
    /// Of a law.
    pub fn of(law: &dyn Law) -> Self {
        Self { mean: law.mean(), p50: law.quantile(0.5), p99: law.quantile(0.99), p999: law.quantile(0.999) }
    }

    /// As multiples of `unit`: the lossless bound makes it slowdowns.
    pub fn per(&self, unit: f64) -> Self {
        Self { mean: self.mean / unit, p50: self.p50 / unit, p99: self.p99 / unit, p999: self.p999 / unit }
    }
}

/// A step of a distribution falls on a time that was computed in another way; it counts as reached within this share of it.
pub(super) const ROUNDING: f64 = 1e-14;

/// Least t in `[low, high]`, up to `tolerance`, with `reached(t)`, which is monotone and holds at `high`.
pub(super) fn least(mut low: f64, mut high: f64, tolerance: f64, reached: impl Fn(f64) -> bool) -> f64 {
    if reached(low) {
        return low;
    }
    while high - low > tolerance {
        let middle = low + (high - low) / 2.0;
        // Neighbours among the floats have none between them.
        if middle <= low || middle >= high {
            break;
        }
        if reached(middle) { high = middle } else { low = middle }
    }
    high
}
