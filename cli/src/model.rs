//! `sdr model`: completion times from formulas, as a table or as one JSON document.

use crate::args::flag;
use crate::args::model::{ModelArgs, SettingArgs};
use crate::table::{Table, number, rows};
use crate::{Answer, CommandError};
use netem::spec::PathLength;
use netem::units::{BitRate, ByteSize};
use sdr_sdk::model::scheme::ModelError;
use sdr_sdk::model::setting::SettingError;
use sdr_sdk::model::{Law, Ring, Setting, Summary};
use sdr_sdk::types::Nanos;
use serde::Serialize;

/// Draws of an allreduce, all sites and rounds together: a second or two at most.
const MAX_DRAWS: u64 = 20_000_000;

/// Allreduces that are drawn when they are small; p99.9 is then the 20th largest.
const MAX_SAMPLES: u64 = 20_000;

/// The same command gives the same numbers.
const SEED: u64 = 1;

/// Field names are an interface: scripts read them.
#[derive(Serialize)]
struct Document {
    scheme: String,
    message_bytes: u64,
    packet_bytes: u64,
    rate_bps: u64,
    rtt_ms: f64,
    loss: f64,
    burst: f64,
    #[serde(flatten)]
    result: Outcome,
}

/// What came out.
#[derive(Serialize)]
struct Outcome {
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    lower_bound_ms: f64,
    slowdown: Slowdown,
    /// That redundancy does not suffice; of an allreduce, anywhere in it.
    fallback_probability: f64,
    /// Of all that is sent for the message, or for the allreduce by one site.
    extra_bytes: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allreduce: Option<Allreduce>,
}

#[derive(Serialize)]
struct Slowdown {
    mean: f64,
    p50: f64,
    p99: f64,
    p999: f64,
}

/// How the quantiles of an allreduce were found.
#[derive(Serialize)]
struct Allreduce {
    sites: u32,
    rounds: u32,
    /// Rounds times the mean of a segment: the mean is not below it.
    mean_bound_ms: f64,
    samples: u64,
}

/// Runs it.
pub fn run(args: &ModelArgs) -> Result<Answer, CommandError> {
    let setting = setting(&args.setting)?;
    let wrong = |e| CommandError::Usage(explain(args, &e));
    let result = match args.allreduce {
        None => message(&*args.scheme.law(&setting).map_err(wrong)?, &setting),
        Some(sites) => allreduce(&Ring::new(args.scheme, &setting, sites as u32).map_err(wrong)?, sites),
    };
    let document = Document {
        scheme: args.scheme.to_string(),
        message_bytes: setting.bytes,
        packet_bytes: setting.packet_bytes,
        rate_bps: setting.rate_bps,
        rtt_ms: setting.rtt.as_millis_f64(),
        loss: setting.loss,
        burst: setting.burst,
        result,
    };
    let text = if args.json {
        serde_json::to_string_pretty(&document).expect("numbers and texts") + "\n"
    } else {
        table(&document)
    };
    Ok(Answer { text, ..Answer::default() })
}

/// What the arguments ask for.
pub fn setting(args: &SettingArgs) -> Result<Setting, CommandError> {
    let usage = |text: String| Err(CommandError::Usage(text));
    let rtt = match (args.rtt, args.distance, args.medium) {
        (Some(rtt), Some(distance), _) => {
            return usage(format!(
                "{} and {}: give one of them",
                flag("rtt", rtt),
                flag("distance", distance)
            ));
        }
        (_, None, Some(medium)) => {
            return usage(format!("{} has no --distance: add one, or leave it out", flag("medium", medium)));
        }
        (_, Some(distance), medium) => PathLength::Distance(distance, medium.unwrap_or_default()).rtt(),
        (rtt, None, None) => rtt.map_or(Nanos::from_millis(25), |rtt| rtt.0),
    };
    let setting = Setting {
        bytes: args.size.0,
        packet_bytes: args.mtu.0,
        rate_bps: args.rate.bits_per_second(),
        rtt,
        loss: args.loss.get(),
        burst: if args.loss.get() > 0.0 { args.burst } else { 1.0 },
    };
    // Of an allreduce the segments would be checked, and sizes named that nobody gave.
    setting.check().map_err(|e| CommandError::Usage(explain_setting(args, &e)))?;
    Ok(setting)
}

/// What to change, in terms of the command line.
fn explain(args: &ModelArgs, error: &ModelError) -> String {
    match error {
        ModelError::Setting(error) => explain_setting(&args.setting, error),
        ModelError::XorBurst(_) => {
            format!("{} with {}: {error}", flag("scheme", args.scheme), flag("burst", args.setting.burst))
        }
        _ => error.to_string(),
    }
}

fn explain_setting(args: &SettingArgs, error: &SettingError) -> String {
    match error {
        SettingError::Size { .. } => {
            format!("{} with {}: {error}", flag("size", args.size), flag("mtu", args.mtu))
        }
        SettingError::LossTooHigh(_) => format!("{}: {error}", flag("loss", args.loss)),
        SettingError::Long { .. } => {
            format!("{} at {}: {error}", flag("size", args.size), flag("rate", args.rate))
        }
        _ => error.to_string(),
    }
}

fn message(law: &dyn Law, setting: &Setting) -> Outcome {
    outcome(Summary::of(law), setting.lower_bound(), law.fallback(), law.extra_bytes())
}

fn allreduce(ring: &Ring, sites: u64) -> Outcome {
    let rounds = ring.rounds();
    let samples = (MAX_DRAWS / (sites * u64::from(rounds))).min(MAX_SAMPLES);
    let drawn = ring.run(samples as u32, SEED);
    let summary = Summary {
        mean: drawn.mean(),
        p50: drawn.quantile(0.5),
        p99: drawn.quantile(0.99),
        p999: drawn.quantile(0.999),
    };
    let extra_bytes = ring.law().extra_bytes() * f64::from(rounds);
    Outcome {
        allreduce: Some(Allreduce {
            sites: sites as u32,
            rounds,
            mean_bound_ms: ring.mean_bound() / 1e6,
            samples,
        }),
        ..outcome(summary, ring.lower_bound(), ring.fallback(), extra_bytes)
    }
}

/// Of times in ns.
fn outcome(times: Summary, lower_bound: f64, fallback_probability: f64, extra_bytes: f64) -> Outcome {
    let ms = times.per(1e6);
    let Summary { mean, p50, p99, p999 } = times.per(lower_bound);
    Outcome {
        mean_ms: ms.mean,
        p50_ms: ms.p50,
        p99_ms: ms.p99,
        p999_ms: ms.p999,
        lower_bound_ms: lower_bound / 1e6,
        slowdown: Slowdown { mean, p50, p99, p999 },
        fallback_probability,
        extra_bytes,
        allreduce: None,
    }
}

fn table(d: &Document) -> String {
    let r = &d.result;
    let mut table = Table::default();
    table.fact("Scheme", &d.scheme);
    let rate = BitRate::new(d.rate_bps).map_or_else(|e| e.to_string(), |rate| rate.to_string());
    let burst = if d.burst > 1.0 { format!(" in bursts of {}", d.burst) } else { String::new() };
    table.fact("Link", format!("rate={rate}, RTT {} ms, loss {:e}{burst}", d.rtt_ms, d.loss));
    let (bytes, packet) = (ByteSize(d.message_bytes), ByteSize(d.packet_bytes));
    match &r.allreduce {
        None => {
            let packets = d.message_bytes.div_ceil(d.packet_bytes);
            table.fact("Message", format!("{bytes} in {packets} packets of {packet} payload"));
            table.fact("Lossless bound", format!("{:.6} ms = RTT + bytes / rate", r.lower_bound_ms));
        }
        Some(ring) => {
            let Allreduce { sites, rounds, samples, mean_bound_ms } = ring;
            table.fact(
                "Allreduce",
                format!("{bytes} over a ring of {sites} sites, packets of {packet} payload"),
            );
            table
                .fact("Lossless bound", format!("{:.6} ms = {rounds} rounds of a segment", r.lower_bound_ms));
            table.fact("Mean at least", format!("{mean_bound_ms:.6} ms = {rounds} means of a segment"));
            table.fact("Drawn", format!("{samples} samples"));
        }
    }
    if r.fallback_probability > 0.0 {
        table.fact("Fallback", format!("{:.3e} of {}", r.fallback_probability, what(r)));
    }
    table.fact("Extra bytes", format!("{:.0} beyond the data", r.extra_bytes));
    let s = &r.slowdown;
    let columns = [
        ("t_mean[ms]", r.mean_ms, s.mean),
        ("t_p50[ms]", r.p50_ms, s.p50),
        ("t_p99[ms]", r.p99_ms, s.p99),
        ("t_p99.9[ms]", r.p999_ms, s.p999),
    ];
    let mut cells = vec![("#bytes".to_owned(), vec![d.message_bytes.to_string(), "slowdown".to_owned()])];
    for (name, time, slowdown) in columns {
        cells.push((name.to_owned(), vec![number(time, ""), number(slowdown, "x")]));
    }
    table.block(rows(&cells));
    table.render()
}

fn what(r: &Outcome) -> &'static str {
    if r.allreduce.is_some() { "allreduces" } else { "messages" }
}
