//! `sdr sim`: what is run, and what came out.

use crate::args::{PathArgs, SimArgs, flag};
use crate::stats::Summary;
use crate::{Answer, CommandError, output, schemes, stop};
use indicatif::{ProgressBar, ProgressStyle};
use netem::spec::{PathLength, PathSpec};
use netem::trial::{PacketCounts, Sample, Trial, TrialError};
use netem::units::{self, BitRate, ByteSize, Probability};
use sdr_sdk::imm::ImmLayout;
use sdr_sdk::reliability::{Scheme, SelectiveRepeat};
use sdr_sdk::types::Nanos;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Of the lossless bound: a transfer may take a thousand times as long, and times are kept in picoseconds.
const MAX_BOUND: Nanos = Nanos::from_secs(1_000);

/// Packets a chunk of the receive: 64 KiB of 4 KiB packets. Selective repeat repairs single packets whatever it is.
const PACKETS_A_CHUNK: u32 = 16;

/// What came out.
pub struct Report {
    /// Scheme's name.
    pub scheme: Cow<'static, str>,
    pub alpha: f64,
    /// The path, without its seed.
    pub link: PathSpec,
    pub message: ByteSize,
    /// Payload bytes of a packet.
    pub packet: ByteSize,
    /// Samples that were asked for.
    pub asked: u64,
    /// Samples that are done.
    pub samples: u64,
    pub seed: u64,
    /// Threads used.
    pub threads: u64,
    /// RTT + bytes / rate.
    pub lower_bound: Nanos,
    /// Completion times, ns.
    pub completion: Summary,
    /// Of all samples together.
    pub packets: PacketCounts,
    /// Instants at which an end acted, in all samples together.
    pub events: u64,
    pub elapsed: Duration,
    /// Ctrl-C came.
    pub interrupted: bool,
}

/// Runs it.
pub fn run(args: &SimArgs) -> Result<Answer, CommandError> {
    let trial = trial(args)?;
    let asked = args.samples;
    let threads = args.threads.unwrap_or_else(cores).min(asked);
    let stop = stop::on_ctrl_c()?;
    let bar = ProgressBar::new(asked).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} samples, {eta} left").expect("a valid template"),
    );
    let go_on = |done| {
        bar.set_position(done);
        !stop.load(Ordering::Relaxed)
    };
    #[expect(clippy::disallowed_methods, reason = "a program says how long it took")]
    let begin = Instant::now();
    let done = trial.run(asked, threads as usize, &go_on);
    let elapsed = begin.elapsed();
    bar.finish_and_clear();
    let done = done.map_err(|e| CommandError::Failed(e.to_string()))?;
    let report = report(args, &trial, &done, threads, elapsed);
    let text = if args.json { output::json(&report) } else { output::table(&report) };
    Ok(Answer { text, interrupted: report.interrupted, failure: None })
}

/// Threads that run at once here.
pub fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn report(args: &SimArgs, trial: &Trial, done: &[Sample], threads: u64, elapsed: Duration) -> Report {
    let mut packets = PacketCounts::default();
    done.iter().for_each(|s| packets.add(&s.packets));
    Report {
        scheme: trial.scheme.name(),
        alpha: args.alpha,
        link: PathSpec { seed: 0, ..trial.path.clone() },
        message: ByteSize(trial.bytes),
        packet: ByteSize(trial.payload.into()),
        asked: args.samples,
        samples: done.len() as u64,
        seed: trial.path.seed,
        threads,
        lower_bound: trial.lower_bound().expect("checked before it ran"),
        completion: Summary::of(done.iter().map(|s| s.completion).collect()),
        packets,
        events: done.iter().map(|s| s.events).sum(),
        elapsed,
        interrupted: (done.len() as u64) < args.samples,
    }
}

/// What the arguments ask for.
pub fn trial(args: &SimArgs) -> Result<Trial, CommandError> {
    let usage = CommandError::Usage;
    let scheme = scheme(args)?;
    let mut path = path(&args.path)?;
    path.seed = match (args.seed, &args.path.link) {
        (Some(seed), Some(link)) if link.seed != 0 && link.seed != seed => {
            return Err(usage(format!(
                "{} and seed={} in --link: give one of them",
                flag("seed", seed),
                link.seed
            )));
        }
        (Some(seed), _) => seed,
        (None, Some(link)) if link.seed != 0 => link.seed,
        (None, _) => 1,
    };
    let half = Nanos(path.rtt().0 / 2);
    if path.jitter > half {
        let (jitter, most) = (flag("jitter", units::Duration(path.jitter)), units::Duration(half));
        return Err(usage(format!("{jitter}: choose at most half the round trip, {most}")));
    }
    let (bytes, payload) = (args.size, args.mtu);
    let known_loss = args.estimate.known(&path);
    let trial = Trial {
        path,
        scheme,
        bytes: bytes.0,
        payload: payload.0 as u32,
        per_chunk: PACKETS_A_CHUNK,
        known_loss,
    };
    let bound = trial.check().and_then(|()| trial.lower_bound());
    let bound = bound.map_err(|e| match e {
        TrialError::NoRate => usage("--link has no rate: add one, such as rate=400Gbit".to_owned()),
        TrialError::Size { max, .. } => {
            let (size, max, packets) = (flag("size", bytes), ByteSize(max), ImmLayout::L8_22_2.max_packets());
            let more = if bytes.0 > max.0 { ", or packets larger than" } else { ", in packets of" };
            usage(format!("{size}: choose 1B to {max} ({packets} packets){more} {}", flag("mtu", payload)))
        }
        other => CommandError::Failed(other.to_string()),
    })?;
    if bound == Nanos::ZERO {
        return Err(usage(
            "RTT + bytes / rate is below 1 ns: choose a longer path or a lower rate".to_owned(),
        ));
    }
    if bound > MAX_BOUND {
        let path = &trial.path;
        let rate = path.rate.map(|r| r.to_string()).unwrap_or_default();
        return Err(usage(format!(
            "RTT ({}) + {bytes} / {rate} is {bound}, above {MAX_BOUND}: choose a shorter path, a higher rate or a smaller size",
            path.rtt()
        )));
    }
    Ok(trial)
}

fn scheme(args: &SimArgs) -> Result<Arc<dyn Scheme>, CommandError> {
    match args.scheme.as_str() {
        "sr" => Ok(Arc::new(SelectiveRepeat::new((args.alpha * 1e3).round() as u32))),
        other => schemes::find(other),
    }
}

fn path(args: &PathArgs) -> Result<PathSpec, CommandError> {
    let usage = CommandError::Usage;
    let one_of = |a, b| Err(usage(format!("{a} and {b}: give one of them")));
    let flags = [
        args.rate.map(|v| flag("rate", v)),
        args.rtt.map(|v| flag("rtt", v)),
        args.distance.map(|v| flag("distance", v)),
        args.medium.map(|v| flag("medium", v)),
        args.loss.map(|v| flag("loss", v)),
        args.burst.map(|v| flag("burst", v)),
        args.jitter.map(|v| flag("jitter", v)),
        args.reorder.map(|v| flag("reorder", v)),
        args.dup.map(|v| flag("dup", v)),
        args.corrupt.map(|v| flag("corrupt", v)),
        args.queue.map(|v| flag("queue", v)),
    ];
    if let Some(link) = &args.link {
        return match flags.into_iter().flatten().next() {
            Some(also) => one_of(flag("link", link), also),
            None => Ok(link.clone()),
        };
    }
    let length = match (args.rtt, args.distance, args.medium) {
        (Some(rtt), Some(distance), _) => return one_of(flag("rtt", rtt), flag("distance", distance)),
        (_, Some(distance), medium) => PathLength::Distance(distance, medium.unwrap_or_default()),
        (_, None, Some(medium)) => {
            return Err(usage(format!(
                "{} has no --distance: add one, or leave it out",
                flag("medium", medium)
            )));
        }
        (rtt, None, None) => PathLength::Rtt(rtt.map_or(Nanos::from_millis(25), |rtt| rtt.0)),
    };
    let rate = args.rate.or(BitRate::new(400_000_000_000).ok());
    let loss = args.loss.or(Probability::new(1e-5).ok()).unwrap_or_default();
    let lossy = loss > Probability::ZERO;
    let path = PathSpec {
        length,
        rate,
        loss,
        burst: args.burst.filter(|_| lossy).unwrap_or(1.0),
        jitter: args.jitter.unwrap_or_default().0,
        reorder: args.reorder.unwrap_or_default(),
        duplicate: args.dup.unwrap_or_default(),
        corrupt: args.corrupt.unwrap_or_default(),
        queue: args.queue,
        seed: 0,
    };
    path.forward().map_err(|e| usage(format!("--loss and --burst do not fit together: {e}")))?;
    Ok(path)
}
