//! 95 % intervals: of a mean by Student's t, of p99.9 by order statistics.
//!
//! Both ends are exceeded with a probability of 2.5 %. A cell is judged by the lower end: what is above a limit there is
//! above it not by chance.

/// Of either side.
const OUTSIDE: f64 = 0.025;

/// 0.975-quantile of the normal distribution.
const Z: f64 = 1.959_963_985;

/// A mean with its standard error and the ends of its interval; NaN where there are too few values.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    pub mean: f64,
    pub error: f64,
    pub low: f64,
    pub high: f64,
}

impl Mean {
    /// Of values in an order that does not change: the last bits of the sums depend on it.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        // From the differences: a variance from the sum of squares loses its digits where all values are nearly equal.
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        let reach = student(n - 1.0) * error;
        Self { mean, error, low: mean - reach, high: mean + reach }
    }
}

/// 0.975-quantile of Student's t with `degrees` of freedom.
fn student(degrees: f64) -> f64 {
    const FEW: [f64; 5] = [12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582];
    match FEW.get((degrees - 1.0).max(0.0) as usize) {
        Some(_) if degrees < 1.0 => f64::NAN,
        Some(&t) => t,
        // Cornish-Fisher: to a thousandth from six degrees on.
        None => {
            let z3 = (Z.powi(3) + Z) / 4.0;
            let z5 = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
            let z7 = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0;
            Z + z3 / degrees + z5 / degrees.powi(2) + z7 / degrees.powi(3)
        }
    }
}

/// Ranks, counted from 1, of the order statistics of `n` values between which the quantile `1 - above` lies.
///
/// None where even the smallest or the largest value does not do: below 3,688 values nothing is above p99.9 for certain enough.
pub fn ranks(n: u64, above: f64) -> (Option<u64>, Option<u64>) {
    // How many values exceed the quantile is Bin(n, above). X_(l) is above it when n - l + 1 or more do, and X_(u) is below it
    // when at most n - u do.
    let (mut low, mut high) = (None, None);
    let step = above.ln() - (-above).ln_1p();
    let mut ln_exactly = n as f64 * (-above).ln_1p();
    let mut at_most = 0.0;
    for exceed in 0..=n {
        // P(as many or more) = 1 - P(fewer).
        if exceed > 0 && 1.0 - at_most <= OUTSIDE {
            low = Some(n - exceed + 1);
            break;
        }
        at_most += ln_exactly.exp();
        if at_most <= OUTSIDE {
            high = Some(n - exceed);
        }
        ln_exactly += ((n - exceed) as f64 / (exceed + 1) as f64).ln() + step;
    }
    // Every value above the quantile is rarer than 2.5 % as soon as there is one.
    (low.or(Some(1)).filter(|_| n > 0), high.filter(|&rank| rank > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_and_its_interval() {
        let m = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((m.mean, m.error) == (3.0, 0.5_f64.sqrt()));
        assert!((m.high - 3.0 - 2.776_445 * 0.5_f64.sqrt()).abs() < 1e-12, "{m:?}");
        let one = Mean::of(&[1.0]);
        assert!(one.mean == 1.0 && one.error.is_nan() && one.low.is_nan());
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (degrees, t) in
            [(1.0, 12.7062), (5.0, 2.5706), (6.0, 2.4469), (9.0, 2.2622), (30.0, 2.0423), (999.0, 1.9623)]
        {
            assert!((student(degrees) - t).abs() < 2e-3, "{degrees}: {}", student(degrees));
        }
    }

    #[test]
    fn ranks_around_p999() {
        // Exceedances of 10,000 values are Poisson(10): at most 3 with 0.0103 and 4 with 0.0293; 17 or more with 0.027, 18 with 0.0143.
        assert_eq!(ranks(10_000, 1e-3), (Some(9_983), Some(9_997)));
        // Of 100 values two or more exceed with 0.0046, and none does with 0.905.
        assert_eq!(ranks(100, 1e-3), (Some(99), None));
        assert_eq!((ranks(1, 1e-3), ranks(0, 1e-3)), ((Some(1), None), (None, None)));
        assert_eq!((ranks(3_687, 1e-3).1, ranks(3_688, 1e-3).1), (None, Some(3_688)));
        let (low, high) = ranks(1_000_000, 1e-3);
        assert!(
            low.is_some_and(|l| l.abs_diff(998_938) < 3) && high.is_some_and(|h| h.abs_diff(999_062) < 3)
        );
    }
}
