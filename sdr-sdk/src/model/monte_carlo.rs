//! The same random variables as those of the closed forms, drawn packet by packet: an independent way to the same numbers.
//!
//! Nothing here uses a distribution of [`super::law`]. Cost is per lost packet for selective repeat and the codes, and
//! per parity packet for the hybrid scheme.

use super::erasure::{BETA, Code, Stripes};
use super::hybrid::Tail;
use super::random::Random;
use super::rows::correlation;
use super::scheme::{ALPHA, ModelError, SchemeModel};
use super::setting::Setting;

/// Completion times that were drawn, ascending, in ns.
#[derive(Clone, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// In any order; at least one.
    pub fn new(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// Their arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Standard error of the mean.
    pub fn error(&self) -> f64 {
        let (mean, n) = (self.mean(), self.0.len() as f64);
        (self.0.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / n / n).sqrt()
    }

    /// By nearest rank: the smallest sample that a share of at least `q` does not exceed.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = (self.0.len() as f64 * q).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
    }

    /// Share of the samples up to `t`.
    pub fn share(&self, t: f64) -> f64 {
        self.0.partition_point(|&x| x <= t) as f64 / self.0.len() as f64
    }
}

/// `samples` completion times of one message each; the same for the same seed.
pub fn run(scheme: SchemeModel, setting: &Setting, samples: u32, seed: u64) -> Result<Samples, ModelError> {
    setting.check()?;
    let mut random = Random::new(seed);
    let times = (0..samples).map(|_| {
        let random = &mut random;
        match scheme {
            SchemeModel::Sr => message(setting, ALPHA, random),
            SchemeModel::SrNack => message(setting, 0.0, random),
            SchemeModel::Mds { k, m } => erasure(setting, Code::Mds { k, m }, random),
            SchemeModel::Xor { k, m } => erasure(setting, Code::Xor { k, m }, random),
            SchemeModel::Hybrid => hybrid(setting, random),
        }
    });
    Ok(Samples::new(times.collect()))
}

/// What the packets of a path meet.
struct Path<'a> {
    loss: f64,
    burst: f64,
    lambda: f64,
    /// The last slot was lost.
    bad: bool,
    random: &'a mut Random,
}

impl<'a> Path<'a> {
    fn new(setting: &Setting, random: &'a mut Random) -> Self {
        let Setting { loss, burst, .. } = *setting;
        let bad = random.unit() < loss;
        Self { loss, burst, lambda: correlation(loss, burst), bad, random }
    }

    /// Packets in consecutive slots that arrive before the next lost one.
    fn arrivals(&mut self) -> u64 {
        let stays = self.lambda + (1.0 - self.lambda) * self.loss;
        let begins = (1.0 - self.lambda) * self.loss;
        if self.burst <= 1.0 {
            return self.random.arrivals(self.loss);
        }
        if self.bad && self.random.unit() < stays {
            return 0;
        }
        let first = u64::from(self.bad);
        self.bad = true;
        first.saturating_add(self.random.arrivals(begins))
    }

    /// Whether a packet `slots` after the last one is lost.
    fn lost(&mut self, slots: f64) -> bool {
        let kept = if self.lambda > 0.0 { self.lambda.powf(slots) } else { 0.0 };
        let lost = (1.0 - kept) * self.loss + if self.bad { kept } else { 0.0 };
        self.bad = self.random.unit() < lost;
        self.bad
    }

    /// Numbers of the lost packets of `0..end`.
    fn losses(&mut self, end: u64) -> Vec<u64> {
        let mut lost = Vec::new();
        let mut next = self.arrivals();
        while next < end {
            lost.push(next);
            next = next.saturating_add(1).saturating_add(self.arrivals());
        }
        lost
    }
}

fn message(setting: &Setting, alpha: f64, random: &mut Random) -> f64 {
    repeat(setting, alpha, setting.packets(), setting.injection(), random)
}

/// Selective repeat of `packets`, the last of which is on the wire at `last`.
fn repeat(setting: &Setting, alpha: f64, packets: u64, last: f64, random: &mut Random) -> f64 {
    let (rtt, packet_time) = (setting.rtt_ns(), setting.packet_time());
    let again = rtt * (1.0 + alpha) + packet_time;
    let mut path = Path::new(setting, random);
    let mut missing = path.losses(packets);
    let (mut done, mut shift) = (last, 0.0);
    while !missing.is_empty() {
        shift += again;
        let mut before = None;
        path.bad = path.random.unit() < path.loss;
        missing.retain(|&i| {
            let lost = path.lost(before.map_or(0.0, |before| (i - before) as f64));
            before = Some(i);
            let left = if i + 1 == packets { last } else { (i + 1) as f64 * packet_time };
            if !lost {
                done = f64::max(done, left + shift);
            }
            lost
        });
    }
    rtt + done
}

fn erasure(setting: &Setting, code: Code, random: &mut Random) -> f64 {
    let stripes = Stripes::new(setting.packets(), code);
    let mut path = Path::new(setting, random);
    let (k, m) = code.size();
    let size = u64::from(k + m);
    let end = setting.packets() + stripes.parity();
    let lost = path.losses(end);
    let failed: u64 = lost
        .chunk_by(|a, b| a / size == b / size)
        .map(|lost| {
            let stripe = lost[0] / size;
            let code = if stripe < stripes.whole { code } else { stripes.short.unwrap_or(code) };
            let positions: Vec<u32> = lost.iter().map(|i| (i % size) as u32).collect();
            if fails(code, &positions) { u64::from(code.size().0) } else { 0 }
        })
        .sum();
    let intact = setting.lower_bound() + stripes.parity() as f64 * setting.packet_time();
    if failed == 0 {
        return intact;
    }
    let last = failed as f64 * setting.packet_time();
    intact + BETA * setting.rtt_ns() + repeat(setting, ALPHA, failed, last, path.random)
}

/// Whether a stripe that lost these symbols, parity numbered after data, cannot be repaired.
fn fails(code: Code, lost: &[u32]) -> bool {
    match code {
        Code::Mds { m, .. } => lost.len() > m as usize,
        Code::Xor { k, m } => {
            let mut groups: Vec<u32> = lost.iter().map(|&i| if i < k { i % m } else { i - k }).collect();
            groups.sort_unstable();
            groups.windows(2).any(|pair| pair[0] == pair[1])
        }
    }
}

fn hybrid(setting: &Setting, random: &mut Random) -> f64 {
    let tail = Tail::new(setting);
    let body = (setting.packets() - tail.packets) as f64;
    let repaired = setting.lower_bound() + body * setting.loss / (1.0 - setting.loss) * setting.packet_time();
    let stripes = u64::from(tail.stripes);
    let (data, planned) = (stripes * u64::from(tail.k), stripes * u64::from(tail.rows));
    let mut path = Path::new(setting, random);
    let mut lacks = vec![0u32; tail.stripes as usize];
    let (mut open, mut seen) = (0, 0);
    for i in path.losses(data) {
        let lack = &mut lacks[(i % stripes) as usize];
        open += u64::from(*lack == 0);
        *lack += 1;
        seen = i + 1;
    }
    if open == 0 {
        return repaired;
    }
    // The chain was drawn up to its first loss beyond the data: from the last loss within it begins anew what follows.
    path.bad = seen > 0 && path.burst > 1.0;
    let mut slots = (data - seen) as f64 + 1.0 + f64::from(tail.gap);
    for slot in 0..planned {
        let lack = &mut lacks[(slot % stripes) as usize];
        if !path.lost(slots) && *lack > 0 {
            *lack -= 1;
            open -= u64::from(*lack == 0);
            if open == 0 {
                return repaired + (f64::from(tail.gap) + (slot + 1) as f64) * setting.packet_time();
            }
        }
        slots = 1.0;
    }
    let fresh = f64::from(tail.gap) + planned as f64 + 3.0;
    repaired + fresh * setting.packet_time() + setting.rtt_ns()
}
