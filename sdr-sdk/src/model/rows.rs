//! How many parity rows a set of interleaved stripes needs.
//!
//! A stripe has k data symbols and m parity symbols of one packet each; packet i of the data belongs to stripe i mod D,
//! and so do the packets of each parity row. A stripe thus looks at the path once every D slots, and with a Gilbert chain
//! on the slots it sees a Gilbert chain again, of the same loss and of correlation lambda^D. What is counted here is
//! exact for that chain; that stripes fail independently is not assumed either, for the bound on "any of D" is the sum of
//! D.
//!
//! Derived; the chain is that of `netem`: every packet of the bad state is lost, bursts have a mean of B packets, and
//! lambda = 1 - 1/B - p / ((1 - p) B) is what is left of the state one slot later.

/// Most columns (data and parity) of a code over GF(2^8) that may be planned for: 16 of the 256 stay in reserve, for rows
/// that a receiver asks for later.
pub const MAX_COLUMNS: u32 = 240;

/// Longest stripe that is counted: all columns of GF(2^8).
const MAX_SYMBOLS: usize = 256;

/// Mass above the largest count kept. Far below any bound that is asked for, and far above denormal numbers, which are slow.
const NEGLIGIBLE: f64 = 1e-30;

/// Least number m0 of parity rows with `stripes * P(more than m0 of k + m0 symbols are lost) <= eps`.
///
/// `k`: data symbols of a stripe. `stripes`: D, both how many there are and the distance, in slots, of a stripe's symbols.
/// `p`: average loss of packets, in [0, 1). `burst`: mean burst B in packets; 1 or less means independent losses. `gap`: idle
/// slots between the last data packet and the first parity packet. None when k + m0 would exceed [`MAX_COLUMNS`].
///
/// Cost: O((k + m) w) with w the number of losses that matter; 2 to 5 us for k = 224. Nothing is cached and nothing
/// allocated.
pub fn rows(k: u32, stripes: u32, p: f64, burst: f64, gap: u32, eps: f64) -> Option<u32> {
    let spare = MAX_COLUMNS.checked_sub(k)?;
    let tails = Shortfall::new(k, stripes, p, burst, gap)?;
    let bound = eps / f64::from(stripes.max(1));
    (0..=spare).zip(tails).find(|&(_, tail)| tail <= bound).map(|(m, _)| m)
}

/// `P(more than m of k + m symbols are lost)` for m = 0, 1, 2, ... of one stripe: the probability that m rows do not suffice.
///
/// As for [`rows`]; it ends when a stripe has 256 symbols.
#[derive(Clone)]
pub struct Shortfall {
    losses: LossCount,
    /// Correlation from the last data symbol to the first parity symbol.
    across_gap: f64,
    /// Correlation from a symbol to the next.
    apart: f64,
    /// Parity symbols counted so far.
    rows: u32,
}

impl Shortfall {
    /// None when k is above 256 or p outside [0, 1).
    pub fn new(k: u32, stripes: u32, p: f64, burst: f64, gap: u32) -> Option<Self> {
        if k as usize > MAX_SYMBOLS || !(0.0..1.0).contains(&p) {
            return None;
        }
        let lambda = correlation(p, burst);
        let apart = lambda.powf(f64::from(stripes.max(1)));
        let across_gap = apart * lambda.powf(f64::from(gap));
        let mut losses = LossCount::new(p);
        for _ in 0..k {
            losses.step(apart);
        }
        Some(Self { losses, across_gap, apart, rows: 0 })
    }
}

impl Iterator for Shortfall {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        if self.losses.symbols > MAX_SYMBOLS {
            return None;
        }
        let tail = self.losses.above(self.rows as usize);
        let correlation = if self.rows == 0 { self.across_gap } else { self.apart };
        if self.losses.symbols < MAX_SYMBOLS {
            self.losses.step(correlation);
        } else {
            self.losses.symbols += 1;
        }
        self.rows += 1;
        Some(tail)
    }
}

/// What is left of the path's state one slot later: lambda of the Gilbert chain; zero for independent losses.
///
/// Between independent losses (mean burst 1 / (1 - p)) and a burst of 1 the chain would be anticorrelated; that is taken
/// as independent.
pub fn correlation(p: f64, burst: f64) -> f64 {
    if burst <= 1.0 { 0.0 } else { (1.0 - 1.0 / burst - p / ((1.0 - p) * burst)).max(0.0) }
}

/// Distribution of the number of lost symbols of one stripe, by the state that its last symbol met.
#[derive(Clone)]
struct LossCount {
    p: f64,
    /// Symbols counted.
    symbols: usize,
    /// Counts below it have mass.
    width: usize,
    /// Index: losses. The last symbol arrived.
    good: [f64; MAX_SYMBOLS + 2],
    /// Index: losses. The last symbol was lost.
    bad: [f64; MAX_SYMBOLS + 2],
}

impl LossCount {
    /// No symbol yet.
    fn new(p: f64) -> Self {
        let mut good = [0.0; MAX_SYMBOLS + 2];
        // Before the first symbol the state is unknown: stationary.
        good[0] = 1.0 - p;
        let mut bad = [0.0; MAX_SYMBOLS + 2];
        bad[0] = p;
        Self { p, symbols: 0, width: 1, good, bad }
    }

    /// One symbol more, `correlation` away from the last.
    fn step(&mut self, correlation: f64) {
        let fresh = self.p * (1.0 - correlation);
        let (lost_after_good, lost_after_bad) = (fresh, correlation + fresh);
        let width = self.width;
        let mut carry = 0.0;
        // In place: what was lost moves up by one, so each count's lost mass waits for one turn.
        for (good, bad) in self.good[..=width].iter_mut().zip(&mut self.bad[..=width]) {
            let (g, b) = (*good, *bad);
            *good = (1.0 - lost_after_good) * g + (1.0 - lost_after_bad) * b;
            *bad = carry;
            carry = lost_after_good * g + lost_after_bad * b;
        }
        self.symbols += 1;
        self.width = width + 1;
        while self.width > 1 && self.good[self.width - 1] + self.bad[self.width - 1] < NEGLIGIBLE {
            self.width -= 1;
            (self.good[self.width], self.bad[self.width]) = (0.0, 0.0);
        }
    }

    /// P(more than `most` are lost).
    fn above(&self, most: usize) -> f64 {
        let from = (most + 1).min(self.width);
        // From the small terms to the large ones.
        let mass = self.good[from..self.width].iter().zip(&self.bad[from..self.width]);
        mass.rev().map(|(g, b)| g + b).sum::<f64>().min(1.0)
    }
}
