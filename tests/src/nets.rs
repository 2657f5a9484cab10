//! The nets that one body of a fault runs on.
//!
//! What a fault hits is told by what a frame says, not by how a net carries it.

use netem::link::Link;
use netem::pair::{Halves, Net, PairError};
use netem::sim::{Direction, Frame, Granularity, NicCounters, Verdict};
use netem::{Pair, PairConfig, QpPair, SimNet};

/// A net with hooks for faults.
pub trait FaultNet: Net + Sized {
    /// Two ends on it. What the net does not have is left out of `config`.
    ///
    /// # Errors
    /// When settings are refused.
    fn ends(config: &PairConfig) -> Result<(QpPair<Self>, [Halves; 2]), PairError>;

    /// Lets `decide` judge what a direction carries, in place of an earlier tap.
    fn fault(
        &self,
        direction: Direction,
        granularity: Granularity,
        decide: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static,
    );

    /// Reads or changes the link of a direction.
    fn path<R>(&self, direction: Direction, f: impl FnOnce(&mut Link) -> R) -> R;

    /// What an end counted, as far as it counts that.
    fn counted(&self, end: u16) -> NicCounters;

    /// Two connected ends.
    ///
    /// # Errors
    /// When settings are refused.
    fn pair(config: PairConfig) -> Result<Pair<Self>, PairError> {
        let (qps, halves) = Self::ends(&config)?;
        Ok(Pair::over(qps, halves, &config.connection))
    }
}

impl FaultNet for SimNet {
    fn ends(config: &PairConfig) -> Result<(QpPair<Self>, [Halves; 2]), PairError> {
        QpPair::new(config.sim.clone(), config.context, &config.qp)
    }

    fn fault(
        &self,
        direction: Direction,
        granularity: Granularity,
        decide: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static,
    ) {
        self.tap(direction, granularity, decide);
    }

    fn path<R>(&self, direction: Direction, f: impl FnOnce(&mut Link) -> R) -> R {
        self.link(direction, f)
    }

    fn counted(&self, end: u16) -> NicCounters {
        self.counters(end)
    }
}
