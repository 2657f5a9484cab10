//! Seed derivation and the draws of the link models.
//!
//! The distributions are written out here instead of taken from `rand`, whose sampling may change between releases:
//! a seed printed today must mean the same schedule next year. Between platforms whose logarithms differ in the last bit,
//! a geometric draw may differ once in about 2^50.

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// An independent seed for sub-stream `stream` of `seed` (the output function of SplitMix64, applied twice).
pub const fn derive_seed(seed: u64, stream: u64) -> u64 {
    splitmix64(splitmix64(seed).wrapping_add(stream.wrapping_mul(GOLDEN_GAMMA)))
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

const fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(GOLDEN_GAMMA);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seeded xoshiro256++ stream.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform in [0, 1) with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with probability `p`; draws nothing when `p` is zero.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }

    /// Uniform in `0..n`, and 0 for `n = 0` (multiply-shift; its bias is below `n / 2^64`).
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(n)) >> 64) as u64
    }
}

/// The geometric law: how many failures come before the first success.
#[derive(Clone, Copy, Debug)]
pub struct Geometric {
    /// `ln(1 - p)`: negative infinity for certain success, zero for none.
    ln_failure: f64,
}

impl Geometric {
    /// Success probability `p` in [0, 1].
    pub fn new(p: f64) -> Self {
        Self { ln_failure: (-p).ln_1p() }
    }

    /// Failures before the first success, mean `(1 - p) / p`; `u64::MAX` when there is never one.
    pub fn draw(&self, rng: &mut Random) -> u64 {
        if self.ln_failure == 0.0 {
            return u64::MAX;
        }
        // Inversion; `1 - unit` lies in (0, 1], so the logarithm is finite, and the cast saturates.
        ((1.0 - rng.unit()).ln() / self.ln_failure) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_pinned() {
        // First output of the SplitMix64 reference code for state 0.
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
        let mut rng = Random::new(7);
        let law = Geometric::new(1e-3);
        let drawn: Vec<u64> = (0..4).map(|_| law.draw(&mut rng)).collect();
        // From an independent xoshiro256++ and inversion in Python.
        assert_eq!(drawn, [56, 188, 1263, 556], "seed 7");
        assert_ne!(derive_seed(7, 0), derive_seed(7, 1));
        assert_ne!(derive_seed(7, 0), derive_seed(8, 0));
    }

    #[test]
    fn geometric_edges() {
        let mut rng = Random::new(1);
        assert_eq!(Geometric::new(1.0).draw(&mut rng), 0);
        assert_eq!(Geometric::new(0.0).draw(&mut rng), u64::MAX);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
