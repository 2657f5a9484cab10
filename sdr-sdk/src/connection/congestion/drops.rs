//! Whether losses are those of a full queue: not when chance explains them.
//!
//! Paths lose packets that no queue dropped, up to one in a hundred and in bursts; who slows down for those gives the rate
//! away. So losses count only where they are more than such a path has in a round trip; where round trips show that a
//! queue stands, a smaller excess is enough.

use super::Losses;

/// Loss that a path has without congestion.
const CHANCE: f64 = 0.01;

/// The bursts of such a path, at most.
const BURST: f64 = 16.0;

/// Fewer packets say nothing.
const ENOUGH: u64 = 64;

/// What was told since the last judgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drops {
    sum: Losses,
    /// Mean burst, of long.
    burst: f64,
}

impl Drops {
    /// Takes news.
    pub(super) fn told(&mut self, l: &Losses) {
        self.sum.packets += l.packets;
        self.sum.missing += l.missing;
        self.sum.bursts += l.bursts;
    }

    /// What was told is of another time.
    pub(super) fn forget(&mut self) {
        self.sum = Losses::default();
    }

    /// The share of packets that a queue dropped; zero when it may be chance. `queue`: round trips show one.
    pub(super) fn judge(&mut self, queue: bool) -> f64 {
        let Losses { packets, missing, bursts } = self.sum;
        if packets < ENOUGH {
            return 0.0;
        }
        self.forget();
        let n = packets as f64;
        let seen = missing as f64 / n;
        if !queue && bursts > 0 {
            let burst = missing as f64 / bursts as f64;
            self.burst = if self.burst == 0.0 { burst } else { (7.0 * self.burst + burst) / 8.0 };
        }
        // Losses in bursts of mean B vary as 2B - 1 times as many single ones.
        let spread = 2.0 * self.burst.clamp(1.0, BURST) - 1.0;
        let deviation = (CHANCE * spread / n).sqrt();
        let most = 2.0 * CHANCE + if queue { 1.0 } else { 4.0 } * deviation;
        if seen > most { seen } else { 0.0 }
    }
}
