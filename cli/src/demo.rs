//! `sdr demo`: a newcomer's first look. Messages of a few sizes, with every scheme, over emulated links of 25 ms that lose
//! packets; every byte is checked, and the times stand beside the best that the link allows.

use crate::bench::report::{Report, merge, packets};
use crate::bench::{self, Demonstration};
use crate::schemes;
use crate::table::{Table, number, rows};
use crate::{Answer, CommandError, stop};
use indicatif::{ProgressBar, ProgressStyle};
use netem::spec::PathSpec;
use netem::units::ByteSize;
use sdr_sdk::types::Nanos;
use std::str::FromStr;
use std::sync::atomic::Ordering;

/// 25 ms is 3,750 km there and back through vacuum.
const LINKS: [&str; 2] =
    ["rtt=25ms,rate=1Gbit,loss=1e-3,seed=1", "rtt=25ms,rate=1Gbit,loss=1e-3,burst=16,seed=1"];
const SIZES: [u64; 3] = [64 << 10, 1 << 20, 8 << 20];

/// Messages of each size, one at a time, and the time that all of the demo may send.
const MESSAGES: u64 = 60;
const BUDGET: Nanos = Nanos::from_secs(40);

/// Runs it.
pub fn run() -> Result<Answer, CommandError> {
    let stop = stop::on_ctrl_c()?;
    let links = LINKS.map(|text| PathSpec::from_str(text).expect("a valid link"));
    let cells = links.len() * schemes::ALL.len() * SIZES.len();
    let bar = ProgressBar::new(cells as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}").expect("a valid template"));
    let mut shown: Vec<(usize, Report)> = Vec::new();
    'all: for (l, link) in links.iter().enumerate() {
        for size in SIZES {
            for scheme in schemes::ALL {
                bar.set_message(format!("{} with {} over {link}", ByteSize(size), scheme));
                let of_each = Nanos(BUDGET.0 / cells as u64);
                let what = Demonstration { scheme, size, link, most: MESSAGES, time: of_each };
                match bench::demonstrate(&what, &stop) {
                    Ok(report) => shown.push((l, report)),
                    Err(CommandError::Interrupted) => break 'all,
                    Err(e) => {
                        bar.finish_and_clear();
                        return Err(e);
                    }
                }
                bar.inc(1);
                if stop.load(Ordering::Relaxed) {
                    break 'all;
                }
            }
        }
    }
    bar.finish_and_clear();
    let failure = shown.iter().find_map(|(_, r)| r.failure());
    let interrupted = stop.load(Ordering::Relaxed);
    Ok(Answer { text: table(&links, &shown), interrupted, failure })
}

fn table(links: &[PathSpec], shown: &[(usize, Report)]) -> String {
    let mut table = Table::default();
    table.fact("What", "messages between two ends on this host, over UDP, one at a time");
    for (l, link) in links.iter().enumerate() {
        table.fact(&format!("Link {}", l + 1), format!("emulated, {link}"));
    }
    table.fact("Times", "from the call until the sender knows that every byte arrived");
    table.fact("Bound", "RTT + bytes / rate: what no scheme can beat; slowdown = mean / bound");
    for l in 0..links.len() {
        let lines = shown.iter().filter(|(of, _)| *of == l).map(|(l, r)| line(l + 1, r));
        table.block(rows(&merge(lines)));
    }
    table.render() + &sentence(shown)
}

fn line(link: usize, report: &Report) -> Vec<(String, String)> {
    let d = &report.document;
    [
        ("link", link.to_string()),
        ("size", ByteSize(d.message_bytes).to_string()),
        ("scheme", d.scheme.clone()),
        ("#messages", d.messages.to_string()),
        ("t_mean[ms]", number(d.completion_ms.mean, "")),
        ("t_max[ms]", number(d.completion_ms.max, "")),
        ("bound[ms]", number(d.lower_bound_ms.unwrap_or(f64::NAN), "")),
        ("slowdown", number(d.slowdown.mean, "x")),
        ("#lost", packets(d.packets.lost)),
        ("#retransmitted", packets(d.packets.retransmitted)),
        ("#corrupt", d.corrupt_messages.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// What was seen.
fn sentence(shown: &[(usize, Report)]) -> String {
    let all = || shown.iter().map(|(_, r)| &r.document);
    let (messages, bytes) =
        all().fold((0, 0), |(n, b), d| (n + d.messages, b + d.messages * d.message_bytes));
    if messages == 0 {
        return "It ended before a message was measured.".to_owned();
    }
    let lost: u64 = all().filter_map(|d| d.packets.lost).sum();
    let wrong: u64 = all().map(|d| d.corrupt_messages + d.failed_messages).sum();
    let slowest = all()
        .filter(|d| d.slowdown.mean.is_finite())
        .max_by(|a, b| a.slowdown.mean.total_cmp(&b.slowdown.mean));
    let intact = match wrong {
        0 => "every one arrived whole and with the right bytes".to_owned(),
        n => format!("{n} of them did NOT arrive as they should"),
    };
    let cost = slowest.map(|d| {
        let size = ByteSize(d.message_bytes);
        format!(
            "; losses made {size} messages with {} take up to {:.2} times the bound on average",
            d.scheme, d.slowdown.mean
        )
    });
    let mib = bytes >> 20;
    format!(
        "{messages} messages ({mib} MiB) crossed 25 ms links that lost {lost} packets: {intact}{}.\n",
        cost.unwrap_or_default()
    )
}
