//! Mean and quantiles of a set of times.
//!
//! Quantiles are by nearest rank: of n samples in ascending order, the q-quantile is number ceil(q n), counted from 1. It is always a
//! value that was measured, and the maximum when n < 1 / (1 - q).

use sdr_sdk::types::Nanos;
use serde::Serialize;

/// Of one set of times, each as a multiple of some unit. NaN, which is null in JSON, when the set is empty.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 0.99-quantile.
    pub p99: f64,
    /// 0.999-quantile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// Of times in nanoseconds, in any order.
    pub fn of(mut times: Vec<Nanos>) -> Self {
        times.sort_unstable();
        let sum: u128 = times.iter().map(|t| u128::from(t.0)).sum();
        let rank = |per_mille| nearest_rank(&times, per_mille).map_or(f64::NAN, |t| t.0 as f64);
        Self {
            mean: sum as f64 / times.len() as f64,
            p50: rank(500),
            p99: rank(990),
            p999: rank(999),
            max: rank(1_000),
        }
    }

    /// The same in multiples of `unit` of what it is in now.
    pub fn per(&self, unit: f64) -> Self {
        let Self { mean, p50, p99, p999, max } = *self;
        Self { mean: mean / unit, p50: p50 / unit, p99: p99 / unit, p999: p999 / unit, max: max / unit }
    }

    /// In the order of the fields.
    pub fn values(&self) -> [f64; 5] {
        [self.mean, self.p50, self.p99, self.p999, self.max]
    }
}

/// The quantile `per_mille / 1000` of sorted times; none when there are none.
fn nearest_rank(sorted: &[Nanos], per_mille: u64) -> Option<Nanos> {
    let rank = (sorted.len() as u64 * per_mille).div_ceil(1_000);
    sorted.get((rank as usize).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(n: u64) -> Vec<Nanos> {
        (1..=n).rev().map(Nanos).collect()
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        assert_eq!(Summary::of(first(1_000)).values(), [500.5, 500.0, 990.0, 999.0, 1_000.0]);
        assert_eq!(Summary::of(first(4)).values(), [2.5, 2.0, 4.0, 4.0, 4.0]);
        assert_eq!(Summary::of(first(1)).values(), [1.0; 5]);
    }

    #[test]
    fn the_tail_of_few_samples_is_their_maximum() {
        assert_eq!((Summary::of(first(999)).p999, Summary::of(first(1_000)).p999), (999.0, 999.0));
        assert_eq!((Summary::of(first(99)).p99, Summary::of(first(100)).p99), (99.0, 99.0));
    }

    #[test]
    fn nothing_has_no_quantiles() {
        assert!(Summary::of(Vec::new()).values().iter().all(|v| v.is_nan()));
    }
}
