//! Completion times of many messages in little memory: quantiles to three digits, the mean exact.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A day: no message takes longer, because every wait has a deadline.
const MOST_NS: u64 = 86_400_000_000_000;

/// Times in nanoseconds.
pub struct Times {
    histogram: Histogram<u64>,
    sum: u128,
    squares: f64,
    max: u64,
    min: u64,
}

/// The same in a form that travels.
#[derive(Default, Serialize, Deserialize)]
pub struct Sent {
    /// Value and how often, ascending.
    counts: Vec<(u64, u64)>,
    sum: u64,
    squares: f64,
    max: u64,
    min: u64,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MOST_NS, 3).expect("valid bounds");
        Self { histogram, sum: 0, squares: 0.0, max: 0, min: u64::MAX }
    }
}

impl Times {
    /// One more.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
        self.sum += u128::from(ns);
        self.squares += ns as f64 * ns as f64;
        self.max = self.max.max(ns);
        self.min = self.min.min(ns);
    }

    /// Takes over all of another.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        self.sum += other.sum;
        self.squares += other.squares;
        self.max = self.max.max(other.max);
        self.min = self.min.min(other.min);
    }

    /// For the way to the other side.
    pub fn to_sent(&self) -> Sent {
        let counts = self.histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value()));
        let sum = u64::try_from(self.sum).unwrap_or(u64::MAX);
        Sent { counts: counts.collect(), sum, squares: self.squares, max: self.max, min: self.min }
    }

    /// Takes over what came from the other side.
    pub fn add_sent(&mut self, other: &Sent) {
        for (value, count) in &other.counts {
            self.histogram.saturating_record_n(*value, *count);
        }
        self.sum += u128::from(other.sum);
        self.squares += other.squares;
        if !other.counts.is_empty() {
            self.max = self.max.max(other.max);
            self.min = self.min.min(other.min);
        }
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Arithmetic mean; NaN of none.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.len() as f64
    }

    /// Standard deviation; NaN of none.
    pub fn deviation(&self) -> f64 {
        let n = self.len() as f64;
        (self.squares / n - self.mean() * self.mean()).max(0.0).sqrt()
    }

    /// Smallest that at least that share of the times does not exceed; NaN of none.
    pub fn quantile(&self, q: f64) -> f64 {
        match self.len() {
            0 => f64::NAN,
            _ => (self.histogram.value_at_quantile(q).min(self.max)) as f64,
        }
    }

    /// Smallest; NaN of none.
    pub fn min(&self) -> f64 {
        if self.len() == 0 { f64::NAN } else { self.min as f64 }
    }

    /// Largest; NaN of none.
    pub fn max(&self) -> f64 {
        if self.len() == 0 { f64::NAN } else { self.max as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_is_what_was_recorded() {
        let mut a = Times::default();
        (1..=1_000).for_each(|n| a.record(n * 1_000_000));
        let text = serde_json::to_string(&a.to_sent()).expect("numbers");
        let mut b = Times::default();
        b.add_sent(&serde_json::from_str(&text).expect("the same numbers"));
        assert_eq!((a.len(), a.mean(), a.max(), a.min()), (b.len(), b.mean(), b.max(), b.min()));
        assert_eq!(a.mean(), 500_500_000.0);
        for q in [0.5, 0.9, 0.99, 0.999] {
            let exact = q * 1e9;
            assert!((a.quantile(q) / exact - 1.0).abs() < 1e-3, "{q}: {}", a.quantile(q));
            assert_eq!(a.quantile(q), b.quantile(q));
        }
        assert!(Times::default().mean().is_nan() && Times::default().quantile(0.5).is_nan());
    }
}
