//! Ring allreduce over lossy paths.
//!
//! arXiv 2505.05366, section 5.3: N sites pass segments of 1/N of the buffer around in R = 2N - 2 rounds. Site i can
//! begin round r when it has finished its own round r - 1 and its neighbour's segment of that round is here: T(i, r) =
//! max(T(i - 1, r - 1), T(i, r - 1)) + t(i, r - 1), with t the completion time of a segment on any scheme. Reductions
//! take no time. The maximum makes a mean of at least R times that of one segment, and no simple form of the
//! distribution.

use super::law::Law;
use super::monte_carlo::Samples;
use super::random::Random;
use super::scheme::{ModelError, SchemeModel};
use super::setting::Setting;

/// An allreduce: everything but the buffer's path is alike at all sites.
pub struct Ring {
    sites: u32,
    segment: Setting,
    law: Box<dyn Law>,
    /// For a law whose draws cost much.
    inverse: Option<Inverse>,
}

/// Most work of a law that is drawn from directly. Above it a segment is far longer than a timeout or fails in many ways,
/// and its distribution has no large steps that a table would blur.
const MAX_WORK: f64 = 200.0;

/// Quantiles of a law in equal shares: of all of it, and finer of its last share.
struct Inverse {
    body: Vec<f64>,
    tail: Vec<f64>,
}

impl Inverse {
    const SHARES: usize = 2_048;

    fn of(law: &dyn Law) -> Self {
        let share = 1.0 / Self::SHARES as f64;
        let middles = || (0..Self::SHARES).map(|i| (i as f64 + 0.5) * share);
        Self {
            body: middles().map(|q| law.quantile(q)).collect(),
            tail: middles().map(|q| law.quantile(1.0 - share * (1.0 - q))).collect(),
        }
    }

    fn draw(&self, random: &mut Random) -> f64 {
        let at = |random: &mut Random| (random.unit() * Self::SHARES as f64) as usize % Self::SHARES;
        let i = at(random);
        if i + 1 < Self::SHARES { self.body[i] } else { self.tail[at(random)] }
    }
}

impl Ring {
    /// `setting.bytes` is the buffer that each of `sites` sites (at least two; one is taken as two) holds.
    pub fn new(scheme: SchemeModel, setting: &Setting, sites: u32) -> Result<Self, ModelError> {
        let sites = sites.max(2);
        let segment = Setting { bytes: setting.bytes.div_ceil(u64::from(sites)), ..*setting };
        let law = scheme.law(&segment)?;
        let inverse = (law.work() > MAX_WORK).then(|| Inverse::of(&*law));
        Ok(Self { sites, segment, law, inverse })
    }

    /// R: rounds.
    pub fn rounds(&self) -> u32 {
        2 * self.sites - 2
    }

    /// Distribution of the completion time of one segment.
    pub fn law(&self) -> &dyn Law {
        &*self.law
    }

    /// Without losses, ns.
    pub fn lower_bound(&self) -> f64 {
        f64::from(self.rounds()) * self.segment.lower_bound()
    }

    /// The mean is at least this, ns: R times the mean of a segment.
    pub fn mean_bound(&self) -> f64 {
        f64::from(self.rounds()) * self.law.mean()
    }

    /// P(at least one segment of all needs a fallback).
    pub fn fallback(&self) -> f64 {
        let segments = f64::from(self.rounds()) * f64::from(self.sites);
        -(segments * (-self.law.fallback()).ln_1p()).exp_m1()
    }

    /// `samples` times until the last site is done; the same for the same seed. Cost: N (2N - 2) draws a sample.
    pub fn run(&self, samples: u32, seed: u64) -> Samples {
        let mut random = Random::new(seed);
        let draw = |random: &mut Random| match &self.inverse {
            Some(inverse) => inverse.draw(random),
            None => self.law.draw(random),
        };
        let sites = self.sites as usize;
        let (mut now, mut before) = (vec![0.0; sites], vec![0.0; sites]);
        let mut sample = || {
            now.fill(0.0);
            for _ in 0..self.rounds() {
                std::mem::swap(&mut now, &mut before);
                for (i, done) in now.iter_mut().enumerate() {
                    let neighbour = before[(i + sites - 1) % sites];
                    *done = f64::max(before[i], neighbour) + draw(&mut random);
                }
            }
            now.iter().copied().fold(0.0, f64::max)
        };
        Samples::new((0..samples).map(|_| sample()).collect())
    }
}
