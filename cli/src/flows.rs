//! `sdr sim flows`: connections that share a bottleneck, with and without congestion control.

use crate::args::flag;
use crate::args::flows::{Congestion, FlowsArgs, QueueSize};
use crate::table::{Table, number, rows};
use crate::{Answer, CommandError, schemes, stop};
use netem::flows::{Flows, FlowsError, Outcome};
use netem::spec::{PathLength, PathSpec};
use netem::units::ByteSize;
use sdr_sdk::imm::ImmLayout;
use serde::Serialize;
use std::sync::atomic::Ordering;

/// Messages under way hold so many times what the path holds: a delivered one is known of a round trip later.
const INFLIGHT_BDPS: u64 = 3;

/// Field names are an interface: scripts read them.
#[derive(Serialize)]
struct Document {
    scheme: String,
    link: String,
    bdp_bytes: u64,
    queue_bytes: u64,
    flows: u64,
    message_bytes: u64,
    packet_bytes: u64,
    inflight: u64,
    duration_s: f64,
    seed: u64,
    runs: Vec<Run>,
    interrupted: bool,
}

#[derive(Serialize)]
struct Run {
    congestion: &'static str,
    utilisation: f64,
    goodput_gbps: f64,
    jain: f64,
    queue_loss: f64,
    queue_loss_with_start: f64,
    queue_mean_ms: f64,
    queue_p99_ms: f64,
    goodputs_gbps: Vec<f64>,
    packets: Packets,
    delivered: u64,
    failed: u64,
    series: Vec<Point>,
}

#[derive(Serialize)]
struct Packets {
    sent: u64,
    retransmitted: u64,
    parity: u64,
}

#[derive(Serialize)]
struct Point {
    at_ms: f64,
    utilisation: f64,
    queue_ms: f64,
    queue_loss: f64,
    goodputs_gbps: Vec<f64>,
}

fn gbps(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| x / 1e9).collect()
}

impl Run {
    fn new(congestion: Congestion, o: &Outcome) -> Self {
        let point = |p: &netem::flows::Point| Point {
            at_ms: p.at.as_millis_f64(),
            utilisation: p.utilisation,
            queue_ms: p.queue.as_millis_f64(),
            queue_loss: p.queue_loss,
            goodputs_gbps: gbps(&p.goodput),
        };
        let (sent, retransmitted, parity) = o.packets;
        Self {
            congestion: congestion.name(),
            utilisation: o.utilisation,
            goodput_gbps: o.goodput.iter().sum::<f64>() / 1e9,
            jain: o.jain,
            queue_loss: o.queue_loss,
            queue_loss_with_start: o.queue_loss_all,
            queue_mean_ms: o.queue_mean.as_millis_f64(),
            queue_p99_ms: o.queue_p99.as_millis_f64(),
            goodputs_gbps: gbps(&o.goodput),
            packets: Packets { sent, retransmitted, parity },
            delivered: o.messages.0,
            failed: o.messages.1,
            series: o.series.iter().map(point).collect(),
        }
    }
}

/// Runs it.
pub fn run(args: &FlowsArgs) -> Result<Answer, CommandError> {
    let stop = stop::on_ctrl_c()?;
    let go_on = || !stop.load(Ordering::Relaxed);
    let flows = flows(args)?;
    let other = if args.congestion == Congestion::Fixed { Congestion::Delay } else { Congestion::Fixed };
    let mut runs = Vec::new();
    for congestion in [args.congestion].into_iter().chain(args.compare.then_some(other)) {
        let flows = Flows {
            congestion: congestion.control(),
            rate: (congestion == Congestion::Fixed).then(|| args.rate.bits_per_second()),
            ..flows.clone()
        };
        match flows.run(&go_on) {
            Ok(Some(outcome)) => runs.push(Run::new(congestion, &outcome)),
            Ok(None) if runs.is_empty() => return Err(CommandError::Interrupted),
            Ok(None) => break,
            Err(e @ FlowsError::Setting { .. }) => return Err(CommandError::Usage(e.to_string())),
            Err(e) => return Err(CommandError::Failed(e.to_string())),
        }
    }
    let document = Document {
        scheme: flows.scheme.name().into_owned(),
        link: PathSpec { seed: 0, ..flows.path.clone() }.to_string(),
        bdp_bytes: flows.bdp(),
        queue_bytes: flows.path.queue.map_or(0, |q| q.0),
        flows: args.flows,
        message_bytes: args.size.0,
        packet_bytes: args.mtu.0,
        inflight: flows.inflight.into(),
        duration_s: args.duration.0.as_secs_f64(),
        seed: args.seed,
        runs,
        interrupted: !go_on(),
    };
    let text = if args.json {
        let text =
            serde_json::to_string_pretty(&document).map_err(|e| CommandError::Failed(e.to_string()))?;
        text + "\n"
    } else {
        table(&document)
    };
    Ok(Answer { text, interrupted: document.interrupted, failure: None })
}

fn flows(args: &FlowsArgs) -> Result<Flows, CommandError> {
    let usage = CommandError::Usage;
    let scheme = schemes::find(&args.scheme)?;
    let lossy = args.loss.get() > 0.0;
    let mut path = PathSpec {
        length: PathLength::Rtt(args.rtt.0),
        rate: Some(args.rate),
        loss: args.loss,
        burst: if lossy { args.burst } else { 1.0 },
        seed: args.seed,
        ..PathSpec::default()
    };
    path.forward().map_err(|e| usage(format!("--loss and --burst do not fit together: {e}")))?;
    let max = u64::from(ImmLayout::L8_22_2.max_packets()) * args.mtu.0;
    if args.size.0 == 0 || args.size.0 > max {
        return Err(usage(format!("{}: choose 1B to {}", flag("size", args.size), ByteSize(max))));
    }
    let bdp = (u128::from(args.rate.bits_per_second()) * u128::from(args.rtt.0.0) / 8_000_000_000) as u64;
    path.queue = Some(match args.queue {
        QueueSize::Bytes(bytes) => bytes,
        QueueSize::Bdp(share) => ByteSize(((bdp as f64 * share) as u64).max(1)),
    });
    let fills = (INFLIGHT_BDPS * bdp / args.size.0 / args.flows + 2).min(512);
    Ok(Flows {
        path,
        flows: args.flows as u32,
        scheme,
        congestion: args.congestion.control(),
        rate: None,
        bytes: args.size.0,
        payload: args.mtu.0 as u32,
        inflight: args.inflight.unwrap_or(fills) as u32,
        duration: args.duration.0,
        stagger: args.stagger.0,
        farther: args.farther.0,
        changes: Vec::new(),
    })
}

fn table(d: &Document) -> String {
    let mut t = Table::default();
    t.fact("Scheme", &d.scheme);
    t.fact("Link", &d.link);
    let share = d.queue_bytes as f64 / d.bdp_bytes.max(1) as f64;
    t.fact("Queue", format!("{}, {share:.3} of rate x RTT", ByteSize(d.queue_bytes)));
    let message = ByteSize(d.message_bytes);
    t.fact(
        "Connections",
        format!("{}, with {} messages of {message} under way on each", d.flows, d.inflight),
    );
    t.fact("Time", format!("{} s, measured in the second half", d.duration_s));
    if d.interrupted {
        t.fact("Interrupted", "not all was run");
    }
    let column =
        |name: &str, cell: &dyn Fn(&Run) -> String| (name.to_owned(), d.runs.iter().map(cell).collect());
    let least = |r: &Run| r.goodputs_gbps.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |r: &Run| r.goodputs_gbps.iter().copied().fold(0.0, f64::max);
    t.block(rows(&[
        column("congestion", &|r| r.congestion.to_owned()),
        column("utilisation", &|r| number(r.utilisation, "")),
        column("goodput[Gb/s]", &|r| number(r.goodput_gbps, "")),
        column("least", &|r| number(least(r), "")),
        column("most", &|r| number(most(r), "")),
        column("Jain", &|r| number(r.jain, "")),
        column("queue_loss[%]", &|r| number(r.queue_loss * 100.0, "")),
        column("with_start[%]", &|r| number(r.queue_loss_with_start * 100.0, "")),
        column("queue_mean[ms]", &|r| number(r.queue_mean_ms, "")),
        column("queue_p99[ms]", &|r| number(r.queue_p99_ms, "")),
        column("#failed", &|r| r.failed.to_string()),
    ]));
    t.render()
}
