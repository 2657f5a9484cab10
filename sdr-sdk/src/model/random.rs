//! Random numbers of the Monte Carlo runs: one seeded stream, so that a run is repeated by its seed.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): 64 bits of state are plenty for the 10^9 draws of a run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1), with 53 bits.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// Packets that arrive before the next lost one; `u64::MAX` when none is lost. `loss`: of one packet, in [0, 1).
    pub fn arrivals(&mut self, loss: f64) -> u64 {
        if loss <= 0.0 {
            return u64::MAX;
        }
        // Inversion; the cast saturates.
        (self.unit().ln() / (-loss).ln_1p()) as u64
    }
}
