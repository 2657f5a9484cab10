//! Erasure codes over the whole message, with selective repeat for what they cannot repair.
//!
//! arXiv 2505.05366, sections 4.1.2, 4.2 and appendices B and C: the message is cut into L stripes of k packets, each
//! with m parity packets; F of them fail, F ~ Bin(L, 1 - p_EC). All is on the wire after (M + ceil(M m / k)) T. With F =
//! 0 the message is complete an RTT later; else after the fallback timeout's slack beta RTT the failed stripes are named,
//! an RTT for that, and their F k packets are sent by selective repeat (RTO = 3 RTT). The printed mean takes the mean of
//! F; here its distribution is used.
//!
//! A last stripe of k' < k packets has ceil(k' m / k) parity packets, which makes the count above exact, and fails on its
//! own. With bursts an MDS stripe is a run of k + m consecutive slots of the Gilbert chain, and stripes are taken as
//! independent (derived): a burst across two of them counts twice, and the fallback probability is up to a third too high.

use super::law::{Law, ROUNDING, least};
use super::random::Random;
use super::repeat::Repeat;
use super::rows::Shortfall;
use super::scheme::ALPHA;
use super::setting::Setting;

/// Slack of the fallback timeout in RTT: half of the slack of the retransmission timeout would be 1; the paper does not
/// state the value of its figures, and 0.5 fits them.
pub const BETA: f64 = 0.5;

/// Numbers of failed stripes less likely than this change no quantile that is asked for.
const NEGLIGIBLE: f64 = 1e-15;

/// Most numbers of failed stripes that are kept apart: neighbours share their mean. The binomial is then hundreds wide, and so
/// the sharing shifts no time by more than a thousandth.
const MAX_CASES: usize = 128;

/// What a stripe is protected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Any m losses of k + m are repaired.
    Mds {
        /// Data packets.
        k: u32,
        /// Parity packets.
        m: u32,
    },
    /// One loss in each of m groups is repaired.
    Xor {
        /// Data packets.
        k: u32,
        /// Parity packets, and groups.
        m: u32,
    },
}

impl Code {
    /// k and m.
    pub fn size(self) -> (u32, u32) {
        match self {
            Self::Mds { k, m } | Self::Xor { k, m } => (k, m),
        }
    }

    /// The same code for a stripe of only `data` packets.
    pub fn shortened(self, data: u32) -> Self {
        let (k, m) = self.size();
        let (k, m) = (data, (data * m).div_ceil(k));
        match self {
            Self::Mds { .. } => Self::Mds { k, m },
            Self::Xor { .. } => Self::Xor { k, m },
        }
    }

    /// 1 - p_EC: probability that a stripe cannot be repaired.
    ///
    /// MDS: more than m of k + m lost. XOR: (1-p)^n + n p (1-p)^(n-1) for each group of n packets, parity included.
    pub fn failure(self, loss: f64, burst: f64) -> f64 {
        match self {
            Self::Mds { k, m } => Shortfall::new(k, 1, loss, burst, 0)
                .and_then(|mut tails| tails.nth(m as usize))
                .unwrap_or(1.0),
            Self::Xor { k, m } => {
                // k mod m groups are longer by one.
                let group = |n: f64| {
                    // Two or more of n lost, in a form that keeps its digits when p is small.
                    let two_or_more = -(n * (-loss).ln_1p()).exp_m1() - n * loss * (1.0 - loss).powf(n - 1.0);
                    // Below 1e-5 the difference has none left; the leading term does.
                    let leading = n * (n - 1.0) / 2.0 * loss * loss;
                    if n * loss < 1e-5 { leading } else { two_or_more }
                };
                let (size, longer) = (f64::from(k / m), f64::from(k % m));
                let ln_repaired = longer * (-group(size + 2.0)).ln_1p()
                    + (f64::from(m) - longer) * (-group(size + 1.0)).ln_1p();
                -ln_repaired.exp_m1()
            }
        }
    }
}

/// How a message is cut into stripes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripes {
    pub whole: u64,
    pub code: Code,
    /// Of the last, short stripe.
    pub short: Option<Code>,
}

impl Stripes {
    pub fn new(packets: u64, code: Code) -> Self {
        let k = u64::from(code.size().0);
        let rest = (packets % k) as u32;
        Self { whole: packets / k, code, short: (rest > 0).then(|| code.shortened(rest)) }
    }

    pub fn parity(&self) -> u64 {
        self.whole * u64::from(self.code.size().1) + self.short.map_or(0, |code| u64::from(code.size().1))
    }
}

/// Completion time with an erasure code.
pub struct Erasure {
    /// Everything is on the wire, and the acknowledgement is back.
    intact: f64,
    /// From there to the begin of selective repeat.
    fallback_delay: f64,
    fallback: f64,
    packet_time: f64,
    parity_bytes: f64,
    /// Probability and selective repeat of what failed, for each number of failed stripes above zero; ascending.
    cases: Vec<(f64, Repeat)>,
}

impl Erasure {
    /// A message in stripes of `code`, whose k and m are above zero.
    pub fn new(setting: &Setting, code: Code) -> Self {
        let stripes = Stripes::new(setting.packets(), code);
        let fails = |code: Code| code.failure(setting.loss, setting.burst).clamp(0.0, 1.0);
        let (fail, fail_short) = (fails(code), stripes.short.map_or(0.0, fails));
        let ln_intact = stripes.whole as f64 * (-fail).ln_1p() + (-fail_short).ln_1p();

        let k = u64::from(code.size().0);
        let short = stripes.short.map_or(0, |code| u64::from(code.size().0));
        let mut failed: Vec<(u64, f64)> = Vec::new();
        for (number, probability) in binomial(stripes.whole, fail) {
            failed.push((number * k, probability * (1.0 - fail_short)));
            if fail_short > 0.0 {
                failed.push((number * k + short, probability * fail_short));
            }
        }
        failed.retain(|&(packets, probability)| packets > 0 && probability > NEGLIGIBLE);
        failed.sort_by_key(|&(packets, _)| packets);
        let together = failed.len().div_ceil(MAX_CASES).max(1);
        let cases = failed.chunks(together).map(|part| {
            let probability: f64 = part.iter().map(|c| c.1).sum();
            let packets = part.iter().map(|c| c.0 as f64 * c.1).sum::<f64>() / probability;
            (probability, Repeat::of_packets(setting, ALPHA, packets.round() as u64))
        });

        let parity = stripes.parity() as f64;
        Self {
            intact: setting.lower_bound() + parity * setting.packet_time(),
            fallback_delay: BETA * setting.rtt_ns(),
            fallback: -ln_intact.exp_m1(),
            packet_time: setting.packet_time(),
            parity_bytes: parity * setting.packet_bytes.min(setting.bytes) as f64,
            cases: cases.collect(),
        }
    }

    /// From the begin until selective repeat starts, an RTT for the report included.
    fn repeat_from(&self) -> f64 {
        self.intact + self.fallback_delay
    }
}

impl Law for Erasure {
    fn cdf(&self, t: f64) -> f64 {
        if t * (1.0 + ROUNDING) < self.intact {
            return 0.0;
        }
        let left = t - self.repeat_from();
        let later: f64 = self.cases.iter().map(|(probability, repeat)| probability * repeat.cdf(left)).sum();
        (1.0 - self.fallback + later).min(1.0)
    }

    fn mean(&self) -> f64 {
        let later =
            |(probability, repeat): &(f64, Repeat)| probability * (self.fallback_delay + repeat.mean());
        self.intact + self.cases.iter().map(later).sum::<f64>()
    }

    fn quantile(&self, q: f64) -> f64 {
        if q <= 1.0 - self.fallback {
            return self.intact;
        }
        // At a time by which every case is done with more than q, so is the mixture.
        let beyond = 1.0 - (1.0 - q) / 2.0;
        let latest = self.cases.iter().map(|(_, repeat)| repeat.quantile(beyond)).fold(0.0, f64::max);
        least(self.intact, self.repeat_from() + latest, self.packet_time * 1e-3, |t| self.cdf(t) >= q)
    }

    fn fallback(&self) -> f64 {
        self.fallback
    }

    fn extra_bytes(&self) -> f64 {
        let again = |(probability, repeat): &(f64, Repeat)| probability * repeat.bytes_sent();
        self.parity_bytes + self.cases.iter().map(again).sum::<f64>()
    }

    fn work(&self) -> f64 {
        self.cases.iter().map(|(probability, repeat)| 1.0 + probability * repeat.work()).sum()
    }

    fn draw(&self, random: &mut Random) -> f64 {
        // First the number of failures, then their repair: the inverse of the mixture would search all cases at each step.
        let mut left = random.unit() - (1.0 - self.fallback);
        if left < 0.0 {
            return self.intact;
        }
        for (probability, repeat) in &self.cases {
            left -= probability;
            if left < 0.0 {
                return self.repeat_from() + repeat.draw(random);
            }
        }
        self.intact
    }
}

/// Numbers with their probabilities under Bin(n, p), around the mode and as far as they matter.
fn binomial(n: u64, p: f64) -> Vec<(u64, f64)> {
    if p <= 0.0 || n == 0 {
        return vec![(0, 1.0)];
    }
    if p >= 1.0 {
        return vec![(n, 1.0)];
    }
    let odds = p / (1.0 - p);
    let mode = (((n + 1) as f64 * p) as u64).min(n);
    let mut found = vec![(mode, 1.0)];
    let mut weight = 1.0;
    for x in (0..mode).rev() {
        weight *= (x + 1) as f64 / ((n - x) as f64 * odds);
        if weight < NEGLIGIBLE {
            break;
        }
        found.push((x, weight));
    }
    weight = 1.0;
    for x in mode + 1..=n {
        weight *= (n - x + 1) as f64 * odds / x as f64;
        if weight < NEGLIGIBLE {
            break;
        }
        found.push((x, weight));
    }
    let total: f64 = found.iter().map(|f| f.1).sum();
    found.iter_mut().for_each(|f| f.1 /= total);
    found
}
