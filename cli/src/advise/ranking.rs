//! Who comes first, and whether two orders are the same.

use super::predict::{Figures, Prediction};

/// Means closer than this are a tie.
pub const TIE: f64 = 0.02;

/// Rank of each prediction, best first: those within [`TIE`] of the best that has no rank yet share the next one. Among them the
/// shorter p99.9 comes first, and where that is a tie too the fewer bytes.
pub fn rank(predictions: &mut Vec<Prediction>) -> Vec<usize> {
    let mut ranks = Vec::new();
    let mut sorted = Vec::new();
    for (i, mut tied) in groups(std::mem::take(predictions), |f| f.mean).into_iter().enumerate() {
        for mut even in groups(std::mem::take(&mut tied), |f| f.p999) {
            even.sort_by(|a, b| a.figures.wire_extra.total_cmp(&b.figures.wire_extra));
            ranks.extend(even.iter().map(|_| i + 1));
            sorted.extend(even);
        }
    }
    *predictions = sorted;
    ranks
}

/// Ascending, those within a tie of the first of a group together.
fn groups(mut all: Vec<Prediction>, of: impl Fn(&Figures) -> f64) -> Vec<Vec<Prediction>> {
    all.sort_by(|a, b| of(&a.figures).total_cmp(&of(&b.figures)));
    let mut groups: Vec<Vec<Prediction>> = Vec::new();
    for prediction in all {
        match groups.last_mut() {
            Some(group) if of(&prediction.figures) <= of(&group[0].figures) * (1.0 + TIE) => {
                group.push(prediction);
            }
            _ => groups.push(vec![prediction]),
        }
    }
    groups
}

/// Two schemes whose order the prediction and the simulator see differently; indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Faster in the simulator.
    pub fast: usize,
    pub slow: usize,
}

/// Pairs in another order than `simulated` has them in.
///
/// What either side sees as a tie is no disagreement, unless the other sees it more than twice as far apart. A difference
/// counts as far as it is beyond two standard errors of both sides; `unseen` is what an event may cost the mean, ns, that no
/// sample happened to have.
pub fn disagreements(predicted: &[Prediction], simulated: &[Figures], unseen: f64) -> Vec<Disagreement> {
    let mut found = Vec::new();
    for slow in 0..simulated.len() {
        for fast in (0..simulated.len()).filter(|&fast| fast != slow) {
            let [ps, pf] = [slow, fast].map(|i| &predicted[i].figures);
            let [ss, sf] = [slow, fast].map(|i| &simulated[i]);
            let noise = 2.0 * [ps, pf, ss, sf].map(|f| f.error.powi(2)).iter().sum::<f64>().sqrt();
            // How much slower `slow` is at least: of the two, one is certain of it.
            let simulated = (ss.mean - sf.mean - noise) / sf.mean;
            let predicted = (ps.mean - pf.mean) / pf.mean;
            if simulated > TIE && (predicted <= 0.0 || predicted < TIE && simulated > 2.0 * TIE) {
                found.push(Disagreement { fast, slow });
            }
            // The other way about: the prediction sees `slow` behind, far beyond what the simulator can have missed.
            let certain = predicted - (noise + unseen) / pf.mean;
            if certain > 2.0 * TIE && ss.mean <= sf.mean * (1.0 + TIE) {
                found.push(Disagreement { fast: slow, slow: fast });
            }
        }
    }
    // Both sides may have found a pair.
    let mut once: Vec<Disagreement> = Vec::new();
    found.into_iter().for_each(|d| {
        if !once.contains(&d) {
            once.push(d)
        }
    });
    once
}

#[cfg(test)]
mod tests {
    use super::super::predict::Basis;
    use super::*;
    use sdr_sdk::model::SchemeModel;

    fn figures(mean: f64, error: f64) -> Figures {
        Figures { mean, error, p999: mean, wire_extra: 0.0, fallback: None }
    }

    fn all(means: &[f64]) -> Vec<Prediction> {
        let of = |&mean: &f64| Prediction {
            scheme: SchemeModel::Sr,
            figures: figures(mean, 0.0),
            basis: Basis::Model,
        };
        means.iter().map(of).collect()
    }

    #[test]
    fn ties_share_a_rank_and_the_tail_decides() {
        let mut given = all(&[1.03, 1.0, 1.015, 1.9]);
        given[1].figures.p999 = 3.0;
        assert_eq!(rank(&mut given), [1, 1, 2, 3]);
        assert_eq!(given.iter().map(|p| p.figures.mean).collect::<Vec<_>>(), [1.015, 1.0, 1.03, 1.9]);
    }

    #[test]
    fn orders_are_compared_beyond_ties_and_noise() {
        let found = |predicted: &[f64], simulated: &[f64], error: f64| {
            let simulated: Vec<_> = simulated.iter().map(|&mean| figures(mean, error)).collect();
            disagreements(&all(predicted), &simulated, 0.0).len()
        };
        assert_eq!(found(&[1.0, 1.5], &[1.0, 1.4], 0.0), 0);
        assert_eq!(found(&[1.0, 1.5], &[1.4, 1.0], 0.0), 1);
        assert_eq!(found(&[1.0, 1.5], &[1.4, 1.0], 0.2), 0, "too noisy to say");
        assert_eq!(found(&[1.01, 1.0], &[1.0, 1.015], 0.0), 0, "a tie in both");
        assert_eq!(found(&[1.0, 1.015], &[1.0, 1.03], 0.0), 0, "nearly a tie in both");
        assert_eq!(found(&[1.0, 1.015], &[1.0, 1.1], 0.0), 1, "a tie in one, far apart in the other");
        assert_eq!(found(&[1.0, 1.2], &[1.0, 1.0], 0.0), 1, "far apart in one, a tie in the other");
    }
}
