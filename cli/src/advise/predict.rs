//! What a scheme is expected to do in a setting: from its formula, or from a short simulation where that does not hold.
//!
//! The formulas leave out what does not matter to the mean within half of a tie, with exceptions, each found by comparison with
//! the simulator:
//!
//! * The transport spreads the stripes of a code over bursts, the formula takes consecutive packets: at a loss of 1e-3 in
//!   bursts of 16, ec:32,8 and 128 MiB the formula has a slowdown of 2.17, and the transport 1.02.
//! * After a fallback the transport asks for the packets that are missing and for no others, and asks again a round trip later;
//!   the formula sends whole stripes again, by timeouts: at 1e-2 in xor:32,8 and 128 MiB 4.86 against 2.56.
//! * A receiver looks at a bounded number of incomplete chunks at a time, and what it misses last it sees half a round trip
//!   later: at 1e-2 in ec:200,14 and 1 GiB 1.03 against 1.23.
//! * Parity has a bounded memory at both ends: at 1e-2 in ec:32,8 and 8 GiB 1.22 against 1.73.
//! * Lost acknowledgements and reports, and repairs that outlive their burst: sr and sr-nack are up to 10 % slower.

use crate::args::SimArgs;
use crate::args::advise::AdviseArgs;
use crate::interval::Mean;
use crate::stats::Summary;
use crate::{CommandError, sim};
use netem::trial::{PacketCounts, Trial};
use sdr_sdk::model::{Law, SchemeModel, Setting};

/// Above it a fallback moves the p99.9, and may move the mean by a quarter of a tie.
const RARE_FALLBACK: f64 = 1e-3;

/// Up to it lost reports do not matter to sr and sr-nack.
const FEW_REPORTS_LOST: f64 = 1e-3;

/// Up to it the formula of hybrid was compared.
const HYBRID_KNOWN: f64 = 1e-2;

/// Up to so many losses of a message a receiver sees all of them in time.
const FEW_LOSSES: f64 = 400.0;

/// What the formula leaves out of a code whose parity would do.
pub const SEEN_LATE: &str = "the formula leaves out how late many losses are seen";

/// The same of a code whose parity does not fit.
pub const NO_ROOM: &str = "the parity is more than there is memory for";

/// Packets of a short simulation: a second or two a scheme.
const PACKETS: u64 = 2_000_000;

/// Samples of it, and what makes them few: long messages have many losses each, and few of them are enough for a mean.
const SAMPLES: std::ops::RangeInclusive<u64> = 4..=1_000;

/// Where numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The formula.
    Model,
    /// So many messages, and what the formula leaves out.
    Simulation(u64, &'static str),
}

/// Completion times and costs of a scheme; ns.
#[derive(Clone, Debug)]
pub struct Figures {
    pub mean: f64,
    /// Standard error of the mean; zero from a formula.
    pub error: f64,
    pub p999: f64,
    /// Packets or bytes sent beyond the message, as a share of it.
    pub wire_extra: f64,
    /// Share of messages for which redundancy does not suffice; none where there is none.
    pub fallback: Option<f64>,
}

/// A scheme and what is expected of it.
#[derive(Clone, Debug)]
pub struct Prediction {
    pub scheme: SchemeModel,
    pub figures: Figures,
    pub basis: Basis,
}

/// Why the formula does not hold to a tie, if so. `pool`: bytes of parity that an end has memory for.
fn unfit(scheme: SchemeModel, setting: &Setting, fallback: Option<f64>, pool: usize) -> Option<&'static str> {
    let bursts = setting.burst > 1.0 && setting.loss > 0.0;
    match scheme {
        SchemeModel::Hybrid => {
            (setting.loss > HYBRID_KNOWN).then_some("the formula was not compared at such a loss")
        }
        SchemeModel::Sr | SchemeModel::SrNack if bursts => {
            Some("bursts reach further than the formula has them")
        }
        SchemeModel::Sr | SchemeModel::SrNack => {
            (setting.loss > FEW_REPORTS_LOST).then_some("the formula leaves lost reports out")
        }
        SchemeModel::Mds { .. } | SchemeModel::Xor { .. } if bursts => {
            Some("the formula does not spread stripes over bursts")
        }
        SchemeModel::Mds { k, m } | SchemeModel::Xor { k, m } => {
            let parity = setting.bytes as f64 * f64::from(m) / f64::from(k);
            if fallback.is_none_or(|f| f > RARE_FALLBACK) {
                Some("the code falls back often, which the formula takes as slower than it is")
            } else if parity > pool as f64 {
                Some(NO_ROOM)
            } else {
                let many = setting.packets() as f64 * setting.loss > FEW_LOSSES;
                many.then_some(SEEN_LATE)
            }
        }
    }
}

/// Whether the scheme has redundancy to fall short of.
fn is_code(scheme: SchemeModel) -> bool {
    matches!(scheme, SchemeModel::Mds { .. } | SchemeModel::Xor { .. })
}

/// What a scheme is expected to do. `seed`: of a simulation. None when it was told to stop.
pub fn predict(
    args: &AdviseArgs,
    setting: &Setting,
    scheme: SchemeModel,
    seed: u64,
    go_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Option<Prediction>, CommandError> {
    let law = scheme.law(setting).ok();
    let redundant = scheme == SchemeModel::Hybrid || is_code(scheme);
    let fallback = law.as_ref().filter(|_| redundant).map(|law| law.fallback().abs());
    let trial = trial(args, scheme, seed)?;
    let pool = trial.parity_pool().map_err(|e| CommandError::Failed(e.to_string()))?;
    let why = unfit(scheme, setting, fallback, pool);
    if let (Some(law), None) = (&law, why) {
        let figures = Figures {
            mean: law.mean(),
            error: 0.0,
            p999: law.quantile(0.999),
            wire_extra: wire_extra(scheme, setting, law.as_ref()),
            fallback,
        };
        return Ok(Some(Prediction { scheme, figures, basis: Basis::Model }));
    }
    let samples = (PACKETS / setting.packets()).clamp(*SAMPLES.start(), *SAMPLES.end());
    let measured = measure(args, scheme, samples, seed, go_on)?;
    let basis = Basis::Simulation(samples, why.unwrap_or("there is no formula"));
    Ok(measured.map(|figures| Prediction { scheme, figures, basis }))
}

/// Sent beyond the message, as a share of it.
///
/// The transport gives the last, short stripe all of its parity, where the formula has it in proportion.
fn wire_extra(scheme: SchemeModel, setting: &Setting, law: &dyn Law) -> f64 {
    let packets = setting.packets();
    match scheme {
        SchemeModel::Mds { k, m } | SchemeModel::Xor { k, m } => {
            let stripes = packets.div_ceil(u64::from(k));
            (stripes * u64::from(m)) as f64 / packets as f64
        }
        _ => law.extra_bytes() / setting.bytes as f64,
    }
}

/// What a scheme did in `samples` messages; none when it was told to stop.
pub fn measure(
    args: &AdviseArgs,
    scheme: SchemeModel,
    samples: u64,
    seed: u64,
    go_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Option<Figures>, CommandError> {
    let trial = trial(args, scheme, seed)?;
    let threads = args.threads.unwrap_or_else(sim::cores).min(samples) as usize;
    let done =
        trial.run(samples, threads, go_on).map_err(|e| CommandError::Failed(format!("{scheme}: {e}")))?;
    if (done.len() as u64) < samples {
        return Ok(None);
    }
    let mean = Mean::of(&done.iter().map(|s| s.completion.0 as f64).collect::<Vec<_>>());
    let mut packets = PacketCounts::default();
    done.iter().for_each(|s| packets.add(&s.packets));
    let message = trial.bytes.div_ceil(trial.payload.into()) * samples;
    // A code sends data again only when it falls back.
    let again = done.iter().filter(|s| s.packets.retransmitted > 0).count();
    Ok(Some(Figures {
        mean: mean.mean,
        error: mean.error,
        p999: Summary::of(done.iter().map(|s| s.completion).collect()).p999,
        wire_extra: packets.sent as f64 / message as f64 - 1.0,
        fallback: is_code(scheme).then(|| again as f64 / samples as f64),
    }))
}

/// The setting, as `sdr sim` would be given it.
pub fn trial(args: &AdviseArgs, scheme: SchemeModel, seed: u64) -> Result<Trial, CommandError> {
    let given = &args.setting;
    let mut sim = SimArgs::defaults()?;
    sim.scheme = scheme.to_string();
    sim.seed = Some(seed);
    (sim.size, sim.mtu) = (given.size, given.mtu);
    let path = &mut sim.path;
    (path.rate, path.loss, path.burst) = (Some(given.rate), Some(given.loss), Some(given.burst));
    (path.rtt, path.distance, path.medium) = (given.rtt, given.distance, given.medium);
    sim::trial(&sim)
}
