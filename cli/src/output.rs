//! The result of `sdr sim`, as a table for people and as one JSON document.

use crate::sim::Report;
use crate::stats::Summary;
use crate::table::{number, rows};
use netem::trial::PacketCounts;
use serde::Serialize;
use std::fmt::Write;

/// Field names are an interface: scripts read them.
#[derive(Serialize)]
struct Document {
    scheme: std::borrow::Cow<'static, str>,
    link: String,
    message_bytes: u64,
    packet_bytes: u64,
    samples: u64,
    seed: u64,
    threads: u64,
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
    lower_bound_ms: f64,
    slowdown: Summary,
    packets: Packets,
    elapsed_s: f64,
    packets_per_second: f64,
    packets_per_second_per_thread: f64,
    events_per_second: f64,
    interrupted: bool,
}

#[derive(Serialize)]
struct Packets {
    sent: u64,
    received: u64,
    lost: u64,
    retransmitted: u64,
    parity: u64,
    duplicate: u64,
    late: u64,
    corrupt: u64,
    local_drops: u64,
    control: u64,
}

impl From<PacketCounts> for Packets {
    fn from(p: PacketCounts) -> Self {
        Self {
            sent: p.sent,
            received: p.received,
            lost: p.lost,
            retransmitted: p.retransmitted,
            parity: p.parity,
            duplicate: p.duplicate,
            late: p.late,
            corrupt: p.corrupt,
            local_drops: p.local_drops,
            control: p.control,
        }
    }
}

impl Packets {
    fn columns(&self) -> [(&'static str, String); 10] {
        [
            ("#sent", self.sent),
            ("#received", self.received),
            ("#lost", self.lost),
            ("#retransmitted", self.retransmitted),
            ("#parity", self.parity),
            ("#duplicate", self.duplicate),
            ("#late", self.late),
            ("#corrupt", self.corrupt),
            ("#local_drops", self.local_drops),
            ("#control", self.control),
        ]
        .map(|(name, n)| (name, n.to_string()))
    }
}

fn packets_per_second(r: &Report) -> f64 {
    r.packets.sent as f64 / r.elapsed.as_secs_f64()
}

/// One document, with the line's end.
pub fn json(r: &Report) -> String {
    let [mean_ms, p50_ms, p99_ms, p999_ms, max_ms] = r.completion.per(1e6).values();
    let rate = packets_per_second(r);
    let document = Document {
        scheme: r.scheme.clone(),
        link: r.link.to_string(),
        message_bytes: r.message.0,
        packet_bytes: r.packet.0,
        samples: r.samples,
        seed: r.seed,
        threads: r.threads,
        mean_ms,
        p50_ms,
        p99_ms,
        p999_ms,
        max_ms,
        lower_bound_ms: r.lower_bound.as_millis_f64(),
        slowdown: r.completion.per(r.lower_bound.0 as f64),
        packets: r.packets.into(),
        elapsed_s: r.elapsed.as_secs_f64(),
        packets_per_second: rate,
        packets_per_second_per_thread: rate / r.threads as f64,
        events_per_second: r.events as f64 / r.elapsed.as_secs_f64(),
        interrupted: r.interrupted,
    };
    let mut text = serde_json::to_string_pretty(&document).expect("numbers and texts");
    text.push('\n');
    text
}

/// perftest's shape: what was run between rules, then columns.
pub fn table(r: &Report) -> String {
    let (unit, ns) = if r.lower_bound.0 < 1_000_000 { ("usec", 1e3) } else { ("ms", 1e6) };
    let times = r.completion.per(ns).values();
    let slowdowns = r.completion.per(r.lower_bound.0 as f64).values();
    let names = ["mean", "p50", "p99", "p99.9", "max"].map(|name| format!("t_{name}[{unit}]"));
    let mut columns = vec![
        ("#bytes".to_owned(), vec![r.message.0.to_string(), "slowdown".to_owned()]),
        ("#samples".to_owned(), vec![r.samples.to_string(), String::new()]),
    ];
    for ((name, time), slowdown) in names.into_iter().zip(times).zip(slowdowns) {
        columns.push((name, vec![number(time, ""), number(slowdown, "x")]));
    }
    let results = rows(&columns);
    let packets = rows(&Packets::from(r.packets).columns().map(|(name, n)| (name.to_owned(), vec![n])));
    let width = results.lines().chain(packets.lines()).map(str::len).max().unwrap_or(0);
    let rule = "-".repeat(width + 1);

    let mut text = format!("{rule}\n");
    let mut line = |name: &str, value: String| _ = writeln!(text, " {name:<15}: {value}");
    let timeout = if r.scheme == "sr" { format!(", timeout RTT + {} RTT", r.alpha) } else { String::new() };
    line("Scheme", format!("{}{timeout}", r.scheme));
    line("Link", r.link.to_string());
    let count = r.message.0.div_ceil(r.packet.0);
    line("Message", format!("{} in {count} packets of {} payload", r.message, r.packet));
    line("Lossless bound", format!("{} = RTT + bytes / rate", r.lower_bound));
    line("Seed", r.seed.to_string());
    if r.interrupted {
        line("Interrupted", format!("{} of {} samples are done", r.samples, r.asked));
    }
    _ = write!(text, "{rule}\n{results}{rule}\n{packets}{rule}\n");
    if (1..1_000).contains(&r.samples) {
        let which = if r.samples < 100 { "p99 and p99.9 are" } else { "p99.9 is" };
        _ = writeln!(text, " With {} samples {which} the maximum.", r.samples);
    }
    let rate = packets_per_second(r) / 1e6;
    _ = writeln!(
        text,
        " {} packets in {:.2} s: {rate:.2} Mpacket/s on {} thread{}, {:.2} Mpacket/s a thread, {:.2} Mevent/s.",
        r.packets.sent,
        r.elapsed.as_secs_f64(),
        r.threads,
        if r.threads == 1 { "" } else { "s" },
        rate / r.threads as f64,
        r.events as f64 / r.elapsed.as_secs_f64() / 1e6
    );
    text
}
