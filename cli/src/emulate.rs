//! `sdr emulate`: the relay between UDP programs, with its counters.

use crate::args::bench::EmulateArgs;
use crate::ends::resolve;
use crate::link::LinkThread;
use crate::table::{Table, rows};
use crate::{Answer, CommandError, stop};
use netem::relay::{DirectionStats, RelayStats};
use sdr_sdk::driver::Clock;
use sdr_sdk::types::Nanos;
use serde::Serialize;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often Ctrl-C and the end are looked for.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two lines of counters.
const LINE: Nanos = Nanos::from_secs(1);

/// Field names are an interface: scripts read them.
#[derive(Serialize)]
struct Document {
    listen: String,
    forward: String,
    link: String,
    elapsed_s: f64,
    to_server: Way,
    to_clients: Way,
    clients: u64,
    refused: u64,
    interrupted: bool,
}

/// One direction; datagrams unless said otherwise.
#[derive(Serialize)]
struct Way {
    r#in: u64,
    bytes_in: u64,
    out: u64,
    bytes_out: u64,
    lost: u64,
    queue_drops: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    backlog: u64,
    unsent: u64,
    local_drops: u64,
}

impl From<&DirectionStats> for Way {
    fn from(d: &DirectionStats) -> Self {
        Self {
            r#in: d.datagrams_in,
            bytes_in: d.bytes_in,
            out: d.datagrams_out,
            bytes_out: d.bytes_out,
            lost: d.lost,
            queue_drops: d.queue_drops,
            duplicated: d.duplicated,
            reordered: d.reordered,
            corrupted: d.corrupted,
            backlog: d.backlog_datagrams,
            unsent: d.unsent,
            local_drops: d.receive_drops,
        }
    }
}

/// Runs it.
pub fn run(args: &EmulateArgs) -> Result<Answer, CommandError> {
    let (listen, forward) = (resolve(&args.listen)?, resolve(&args.forward)?);
    let stop = stop::on_ctrl_c()?;
    let link = LinkThread::start(listen, forward, &args.link)?;
    eprintln!("{} to {forward} through {}", link.local_addr(), args.link);
    let clock = Clock::start();
    let live = std::io::stderr().is_terminal();
    let (mut line_at, mut before) = (LINE, link.stats());
    let over = |now: Nanos| args.duration.is_some_and(|d| now >= d.0);
    while !stop.load(Ordering::Relaxed) && link.running() && !over(clock.now()) {
        #[expect(clippy::disallowed_methods, reason = "a program waits for its end")]
        std::thread::sleep(LOOK);
        let now = clock.now();
        if live && now >= line_at {
            let stats = link.stats();
            eprintln!("{}", line(now, &before, &stats));
            (line_at, before) = (now + LINE, stats);
        }
    }
    let failure = (!link.running()).then(|| "the relay stopped".to_owned());
    let interrupted = stop.load(Ordering::Relaxed);
    let stats = link.stats();
    let document = Document {
        listen: link.local_addr().to_string(),
        forward: forward.to_string(),
        link: args.link.to_string(),
        elapsed_s: clock.now().as_secs_f64(),
        to_server: (&stats.forward).into(),
        to_clients: (&stats.reverse).into(),
        clients: stats.flows_opened,
        refused: stats.refused,
        interrupted,
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&document).expect("numbers and texts") + "\n",
        false => table(&document),
    };
    Ok(Answer { text, interrupted, failure })
}

/// What passed since the last line.
fn line(now: Nanos, before: &RelayStats, after: &RelayStats) -> String {
    let way = |name: &str, b: &DirectionStats, a: &DirectionStats| {
        let mbits = (a.bytes_out - b.bytes_out) as f64 * 8.0 / LINE.as_secs_f64() / 1e6;
        let lost = a.lost + a.queue_drops - b.lost - b.queue_drops;
        format!("{name} {mbits:.1} Mb/s, {} lost, {} held", lost, a.backlog_datagrams)
    };
    let there = way("to server", &before.forward, &after.forward);
    let back = way("to clients", &before.reverse, &after.reverse);
    let refused = if after.refused > 0 {
        format!(", {} datagrams of others refused", after.refused)
    } else {
        String::new()
    };
    format!("{:.0} s: {there}; {back}; {} clients{refused}", now.as_secs_f64(), after.flows)
}

type Count = fn(&Way) -> u64;

fn table(d: &Document) -> String {
    let mut table = Table::default();
    table.fact("Listen", &d.listen);
    table.fact("Forward", &d.forward);
    table.fact("Link", &d.link);
    table.fact("Time", format!("{:.2} s", d.elapsed_s));
    table.fact("Clients", d.clients);
    if d.refused > 0 {
        table.fact("Refused", format!("{} datagrams of more clients than the relay has room for", d.refused));
    }
    let column =
        |name: &str, f: &dyn Fn(&Way) -> String| (name.to_owned(), vec![f(&d.to_server), f(&d.to_clients)]);
    let mbits = |w: &Way| format!("{:.3}", w.bytes_out as f64 * 8.0 / d.elapsed_s / 1e6);
    let counts: [(&str, Count); 9] = [
        ("#in", |w| w.r#in),
        ("#out", |w| w.out),
        ("#lost", |w| w.lost),
        ("#queue_drops", |w| w.queue_drops),
        ("#duplicated", |w| w.duplicated),
        ("#reordered", |w| w.reordered),
        ("#corrupted", |w| w.corrupted),
        ("#backlog", |w| w.backlog),
        ("#local_drops", |w| w.local_drops),
    ];
    let mut columns = vec![("datagrams".to_owned(), vec!["to server".to_owned(), "to clients".to_owned()])];
    columns.extend(counts.iter().map(|(name, f)| column(name, &|w| f(w).to_string())));
    columns.push(column("BW average[Mb/s]", &mbits));
    table.block(rows(&columns));
    table.render()
}
