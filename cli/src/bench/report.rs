//! The result of `sdr bench`, as a table for people and as one JSON document.

use super::client::{Measured, Plan};
use super::times::Times;
use super::watch::Interval;
use super::wire::{Incoming, Outgoing};
use crate::table::{Table, number, rows};
use crate::{link, usage};
use netem::spec::PathSpec;
use netem::units::{BitRate, ByteSize};
use sdr_sdk::types::Nanos;
use serde::Serialize;

/// Field names are an interface: scripts read them.
#[derive(Serialize)]
pub struct Document {
    pub scheme: String,
    pub fabric: &'static str,
    pub link: Option<String>,
    pub direction: &'static str,
    pub message_bytes: u64,
    pub packet_bytes: u32,
    pub chunk_bytes: u64,
    pub channels: u8,
    pub connections: u32,
    pub inflight: u64,
    pub rate_gbps: Option<f64>,
    pub seed: u64,
    pub verified: bool,
    pub messages: u64,
    pub corrupt_messages: u64,
    pub failed_messages: u64,
    pub elapsed_s: f64,
    pub goodput_gbps: f64,
    pub msg_rate: f64,
    /// RTT + bytes / rate; null without a rate.
    pub lower_bound_ms: Option<f64>,
    pub completion_ms: Completion,
    pub slowdown: Slowdown,
    pub packets: Packets,
    pub slot_wait_s: f64,
    pub cpu_s: f64,
    pub peak_rss_bytes: u64,
    pub intervals: Vec<Interval>,
    pub interrupted: bool,
    /// Why messages failed or the run ended early.
    pub error: Option<String>,
}

/// NaN, which is null in JSON, when no message was delivered.
#[derive(Serialize)]
pub struct Completion {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// Of the completion times over the lower bound.
#[derive(Serialize)]
pub struct Slowdown {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

/// None, which is null in JSON, where a side that counted it could not tell any more.
#[derive(Default, Serialize)]
pub struct Packets {
    pub sent: Option<u64>,
    pub received: Option<u64>,
    pub lost: Option<u64>,
    pub retransmitted: Option<u64>,
    pub parity: Option<u64>,
    pub duplicate: Option<u64>,
    pub late: Option<u64>,
    pub corrupt: Option<u64>,
    pub local_drops: Option<u64>,
}

/// A number of packets, for people.
pub fn packets(n: Option<u64>) -> String {
    n.map_or("unknown".to_owned(), |n| n.to_string())
}

/// A result in the forms it is shown in.
pub struct Report {
    pub document: Document,
    times: Times,
    chunk_note: Option<String>,
    gso: bool,
    latency: bool,
}

/// What was asked for, beside the plan, as far as it is shown.
pub struct Setting<'a> {
    pub fabric: &'static str,
    pub link: Option<&'a PathSpec>,
    /// Pace of all connections together, in datagram bits.
    pub rate: Option<BitRate>,
    pub latency: bool,
}

impl Report {
    /// Brings both sides' figures together.
    pub fn new(plan: &Plan, setting: &Setting<'_>, m: Measured, intervals: Vec<Interval>) -> Self {
        let run = &plan.run;
        let (senders_told, receivers_told) =
            (!run.reverse || m.server_sent.is_some(), !run.forward || m.server_received.is_some());
        let (server_sent, server_received) =
            (m.server_sent.unwrap_or_default(), m.server_received.unwrap_or_default());
        let outgoing: [&Outgoing; 2] = [&m.sent, &server_sent];
        let incoming: [&Incoming; 2] = [&m.received, &server_received];
        let mut times = Times::default();
        outgoing.iter().for_each(|o| times.add_sent(&o.times));
        let out = |f: fn(&Outgoing) -> u64| outgoing.iter().map(|o| f(o)).sum::<u64>();
        let in_ = |f: fn(&Incoming) -> u64| incoming.iter().map(|i| f(i)).sum::<u64>();
        let messages = out(|o| o.messages);
        let elapsed = outgoing.iter().map(|o| o.elapsed).max().unwrap_or(0) as f64 / 1e9;
        let bytes = messages * run.size;
        let per_second = |x: f64| if elapsed > 0.0 { x / elapsed } else { 0.0 };
        let bound = bound(setting, run.size, m.min_rtt);
        let bound_ns = bound.map_or(f64::NAN, |b| b.0 as f64);
        let sent = |f| senders_told.then(|| out(f));
        let received = |f| receivers_told.then(|| in_(f));
        let mut packets = Packets {
            sent: sent(|o| o.packets),
            received: received(|i| i.packets),
            retransmitted: sent(|o| o.repairs),
            parity: sent(|o| o.parity),
            duplicate: received(|i| i.duplicate),
            late: received(|i| i.late),
            corrupt: received(|i| i.corrupt_packets),
            local_drops: received(|i| i.local_drops),
            ..Packets::default()
        };
        packets.lost =
            packets.sent.zip(packets.received).map(|(sent, received)| sent.saturating_sub(received));
        if let Some((before, after)) = &m.link {
            let ways = [
                (run.forward, &before.forward, &after.forward),
                (run.reverse, &before.reverse, &after.reverse),
            ];
            packets.lost =
                Some(ways.iter().filter(|w| w.0).map(|(_, b, a)| link::lost(a) - link::lost(b)).sum());
            let dropped = |s: &netem::relay::RelayStats| s.forward.receive_drops + s.reverse.receive_drops;
            packets.local_drops = packets.local_drops.map(|n| n + dropped(after) - dropped(before));
        }
        let reasons = [&m.lost, &m.sent.why, &server_sent.why, &m.received.why, &server_received.why];
        let error = reasons.into_iter().find_map(Clone::clone);
        let per_chunk = run.per_chunk(m.payload);
        let chunk_bytes = u64::from(per_chunk) * u64::from(m.payload);
        let chunk_note = (chunk_bytes != run.chunk).then(|| {
            format!(
                "--chunk {} is {per_chunk} whole packet{}",
                ByteSize(run.chunk),
                if per_chunk == 1 { "" } else { "s" }
            )
        });
        let ms = |ns: f64| ns / 1e6;
        let document = Document {
            scheme: run.scheme.clone(),
            fabric: setting.fabric,
            link: setting.link.map(ToString::to_string),
            direction: match (run.forward, run.reverse) {
                (true, true) => "both",
                (false, _) => "from the server",
                _ => "to the server",
            },
            message_bytes: run.size,
            packet_bytes: m.payload,
            chunk_bytes,
            channels: m.channels,
            connections: run.connections,
            inflight: run.inflight,
            rate_gbps: setting.rate.map(|r| r.bits_per_second() as f64 / 1e9),
            seed: run.seed,
            verified: run.verify,
            messages,
            corrupt_messages: in_(|i| i.corrupt),
            failed_messages: out(|o| o.failed),
            elapsed_s: elapsed,
            goodput_gbps: per_second(bytes as f64 * 8.0 / 1e9),
            msg_rate: per_second(messages as f64),
            lower_bound_ms: bound.map(Nanos::as_millis_f64),
            completion_ms: Completion {
                mean: ms(times.mean()),
                p50: ms(times.quantile(0.5)),
                p90: ms(times.quantile(0.9)),
                p99: ms(times.quantile(0.99)),
                p999: ms(times.quantile(0.999)),
                max: ms(times.max()),
            },
            slowdown: Slowdown {
                mean: times.mean() / bound_ns,
                p50: times.quantile(0.5) / bound_ns,
                p99: times.quantile(0.99) / bound_ns,
                p999: times.quantile(0.999) / bound_ns,
            },
            packets,
            slot_wait_s: in_(|i| i.slot_wait) as f64 / 1e9,
            cpu_s: m.cpu_s,
            peak_rss_bytes: usage::peak_rss_bytes(),
            intervals,
            interrupted: m.interrupted,
            error,
        };
        Self { document, times, chunk_note, gso: m.gso, latency: setting.latency }
    }

    /// Why the work failed, if it did.
    pub fn failure(&self) -> Option<String> {
        let d = &self.document;
        let error = d.error.as_deref().unwrap_or("no reason is known");
        if d.corrupt_messages > 0 {
            return Some(format!(
                "{} of {} messages arrived with wrong bytes",
                d.corrupt_messages, d.messages
            ));
        }
        match d.failed_messages {
            0 if d.interrupted => None,
            0 => d.error.clone(),
            n => Some(format!("{n} of {} messages failed: {error}", n + d.messages)),
        }
    }

    /// Facts about the run, above the columns.
    pub fn facts(&self, table: &mut Table) {
        let d = &self.document;
        let gso = if self.gso { "GSO" } else { "no GSO" };
        table.fact(
            "Fabric",
            format!("{}, {} channel{}, {gso}", d.fabric, d.channels, if d.channels == 1 { "" } else { "s" }),
        );
        table.fact("Link", d.link.as_deref().unwrap_or("as it is"));
        table.fact("Scheme", &d.scheme);
        let packets = d.packet_bytes;
        let chunk = ByteSize(d.chunk_bytes);
        let note = self.chunk_note.as_ref().map(|n| format!(" ({n})")).unwrap_or_default();
        table.fact("Packets, chunks", format!("{packets} B of payload, {chunk}{note}"));
        table.fact(
            "In flight",
            format!(
                "{} on {} connection{}, {}",
                d.inflight,
                d.connections,
                if d.connections == 1 { "" } else { "s" },
                d.direction
            ),
        );
        table.fact("Pace", d.rate_gbps.map_or("none".to_owned(), |r| format!("{r} Gb/s with headers")));
        table.fact(
            "Contents",
            if d.verified {
                format!("every byte checked, seed {}", d.seed)
            } else {
                "not checked".to_owned()
            },
        );
    }

    /// The columns of one line.
    pub fn columns(&self) -> Vec<(String, String)> {
        if self.latency { self.latency_columns() } else { self.bandwidth_columns() }
    }

    fn bandwidth_columns(&self) -> Vec<(String, String)> {
        let d = &self.document;
        let c = &d.completion_ms;
        let mut columns = vec![
            ("#bytes", d.message_bytes.to_string()),
            ("#iterations", d.messages.to_string()),
            ("BW average[Gb/s]", number(d.goodput_gbps, "")),
            ("MsgRate[/s]", number(d.msg_rate, "")),
            ("t_mean[ms]", number(c.mean, "")),
            ("t_p50[ms]", number(c.p50, "")),
            ("t_p99[ms]", number(c.p99, "")),
            ("t_max[ms]", number(c.max, "")),
        ];
        if let Some(bound) = d.lower_bound_ms {
            columns.push(("bound[ms]", number(bound, "")));
            columns.push(("slowdown", number(d.slowdown.mean, "x")));
        }
        columns.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn latency_columns(&self) -> Vec<(String, String)> {
        let (d, t) = (&self.document, &self.times);
        let us = |ns: f64| number(ns / 1e3, "");
        [
            ("#bytes", d.message_bytes.to_string()),
            ("#iterations", d.messages.to_string()),
            ("t_min[usec]", us(t.min())),
            ("t_max[usec]", us(t.max())),
            ("t_typical[usec]", us(t.quantile(0.5))),
            ("t_avg[usec]", us(t.mean())),
            ("t_stdev[usec]", us(t.deviation())),
            ("99% percentile[usec]", us(t.quantile(0.99))),
            ("99.9% percentile[usec]", us(t.quantile(0.999))),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// RTT + bytes / rate, of the link, or of the pace over the path that was found.
fn bound(setting: &Setting<'_>, bytes: u64, min_rtt: Option<Nanos>) -> Option<Nanos> {
    let link = setting.link;
    let rates = [link.and_then(|l| l.rate), setting.rate];
    let rate = rates.into_iter().flatten().map(BitRate::bits_per_second).min()?;
    let rtt = match link {
        Some(link) => link.rtt(),
        None => min_rtt?,
    };
    Some(Nanos(rtt.0 + (u128::from(bytes) * 8_000_000_000 / u128::from(rate)) as u64))
}

/// One document, or several sizes' in a list.
pub fn json(reports: &[Report], list: bool) -> String {
    let text = match reports {
        [one] if !list => serde_json::to_string_pretty(&one.document),
        all => serde_json::to_string_pretty(&all.iter().map(|r| &r.document).collect::<Vec<_>>()),
    };
    text.expect("numbers and texts") + "\n"
}

/// One table; a line a size.
pub fn table(reports: &[Report]) -> String {
    let mut table = Table::default();
    let Some(last) = reports.last() else { return String::new() };
    last.facts(&mut table);
    if last.document.interrupted {
        table.fact("Interrupted", "this is what was measured until then");
    }
    table.block(rows(&merge(reports.iter().map(Report::columns))));
    table.block(rows(&merge(reports.iter().map(|r| packet_columns(&r.document)))));
    let intervals = reports.iter().flat_map(|r| &r.document.intervals).map(|i| {
        [
            ("interval[s]", format!("{:.1}-{:.1}", i.start_s, i.end_s)),
            ("#messages", i.messages.to_string()),
            ("BW[Gb/s]", number(i.goodput_gbps, "")),
            ("#retransmitted", i.retransmitted.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    });
    let intervals = merge(intervals);
    if !intervals.is_empty() {
        table.block(rows(&intervals));
    }
    let sum = |f: fn(&Document) -> f64| reports.iter().map(|r| f(&r.document)).sum::<f64>();
    table.block(format!(
        " {} failed, {} corrupt; {:.2} s of processor time in {:.2} s; {:.2} s of waiting for slots; {} MiB at most\n",
        sum(|d| d.failed_messages as f64),
        sum(|d| d.corrupt_messages as f64),
        sum(|d| d.cpu_s),
        sum(|d| d.elapsed_s),
        sum(|d| d.slot_wait_s),
        last.document.peak_rss_bytes >> 20,
    ));
    table.render()
}

fn packet_columns(d: &Document) -> Vec<(String, String)> {
    let p = &d.packets;
    [
        ("#sent", p.sent),
        ("#received", p.received),
        ("#lost", p.lost),
        ("#retransmitted", p.retransmitted),
        ("#parity", p.parity),
        ("#duplicate", p.duplicate),
        ("#late", p.late),
        ("#corrupt", p.corrupt),
        ("#local_drops", p.local_drops),
    ]
    .map(|(name, n)| (name.to_owned(), packets(n)))
    .into()
}

/// Lines of named cells as columns.
pub fn merge(lines: impl Iterator<Item = Vec<(String, String)>>) -> Vec<(String, Vec<String>)> {
    let mut columns: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines {
        for (i, (name, cell)) in line.into_iter().enumerate() {
            if i == columns.len() {
                columns.push((name, Vec::new()));
            }
            columns[i].1.push(cell);
        }
    }
    columns
}
