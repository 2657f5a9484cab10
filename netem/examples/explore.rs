use netem::flows::*;
use netem::spec::PathSpec;
use sdr_sdk::types::Nanos;
use std::sync::Arc;
use sdr_sdk::connection::congestion::{Delay, Fixed};
use sdr_sdk::reliability::Striped;

fn flows(link: &str, n: u32, bdp_share: f64, duration: u64) -> Flows {
    let path: PathSpec = link.parse().expect("a path");
    let mut flows = Flows {
        path,
        flows: n,
        scheme: Arc::new(Striped::hybrid()),
        congestion: Arc::new(Delay),
        rate: None,
        bytes: 1 << 20,
        payload: 4_096,
        inflight: 32,
        duration: Nanos::from_millis(duration),
        stagger: Nanos::ZERO,
        farther: Nanos::ZERO,
        changes: Vec::new(),
    };
    flows.path.queue = Some(netem::units::ByteSize((flows.bdp() as f64 * bdp_share) as u64));
    flows
}

fn show(name: &str, f: &Flows, full: bool) -> Outcome {
    let start = std::time::Instant::now();
    let o = f.run(&|| true).expect("a run").expect("an end");
    println!(
        "{name}: util {:.3} jain {:.3} loss {:.4} (all {:.4}) queue {} p99 {} goodput {:.2}G packets {:?} messages {:?} {:.1}s",
        o.utilisation, o.jain, o.queue_loss, o.queue_loss_all, o.queue_mean, o.queue_p99,
        o.goodput.iter().sum::<f64>() / 1e9, o.packets, o.messages, start.elapsed().as_secs_f64()
    );
    if full {
        for p in &o.series {
            let g: Vec<String> = p.goodput.iter().map(|g| format!("{:.2}", g / 1e9)).collect();
            println!("  {} util {:.3} queue {} loss {:.4} {}", p.at, p.utilisation, p.queue, p.queue_loss, g.join(" "));
        }
    }
    o
}

fn main() {
    let var = |n: &str, d: &str| std::env::var(n).unwrap_or(d.to_owned());
    let link = var("LINK", "rtt=10ms,rate=10Gbit");
    let mut f = flows(&link, var("N", "2").parse().unwrap(), var("Q", "1").parse().unwrap(), var("MS", "2000").parse().unwrap());
    f.stagger = Nanos::from_millis(var("STAGGER", "0").parse().unwrap());
    f.farther = Nanos::from_millis(var("FARTHER", "0").parse().unwrap());
    f.bytes = var("BYTES", "1048576").parse().unwrap();
    f.inflight = var("INFLIGHT", "32").parse().unwrap();
    if var("CC", "delay") == "fixed" {
        f.congestion = Arc::new(Fixed);
        f.rate = f.path.rate.map(|r| r.bits_per_second());
    }
    for c in var("CHANGES", "").split(',').filter(|c| !c.is_empty()) {
        let (t, r) = c.split_once(':').unwrap();
        f.changes.push((Nanos::from_millis(t.parse().unwrap()), r.parse().unwrap()));
    }
    show("run", &f, var("FULL", "") != "");
}
