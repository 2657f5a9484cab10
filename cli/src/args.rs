//! The command line. Numbers are parsed by the types of [`netem::units`], so their errors name the value and what is allowed.

pub mod advise;
pub mod bench;
pub mod flows;
pub mod model;
pub mod sweep;

use crate::CommandError;
use advise::AdviseArgs;
use bench::{BenchCommand, EmulateArgs, InfoArgs};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use flows::FlowsArgs;
use model::ModelArgs;
use netem::PathSpec;
use netem::units::{BitRate, ByteSize, Distance, Duration, Medium, Probability};
use sdr_sdk::reliability::Loss;
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;
use sweep::RunArgs;

/// Reliable RDMA messages over long and lossy links.
#[derive(Parser)]
#[command(name = "sdr", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One line a command.
const EXAMPLES: &str = "\
Examples:
  sdr demo                                  messages over an emulated, lossy 25 ms link, in under a minute
  sdr bench loopback --count 100            messages between two ends on this host
  sdr emulate --listen 127.0.0.1:7000 --forward 127.0.0.1:18515 --link rtt=25ms,rate=1Gbit,loss=1e-3
  sdr sim --loss 1e-4 --size 64MiB          200 messages over a simulated 400 Gbit/s and 25 ms, against the ideal
  sdr sim run benches/plans/smoke.toml      the same for every cell of a plan, judged by its limits
  sdr model --scheme hybrid --loss 1e-2     the same times from formulas, at once
  sdr advise --loss 1e-2 --size 8MiB        which scheme is best there, and why
  sdr info                                  what this host has to offer

Exit codes: 0 good, 1 the work failed, 2 wrong usage, 130 ended by Ctrl-C with what was measured.
'sdr COMMAND --help' says more about a command.";

#[derive(Subcommand)]
enum Command {
    /// Completion times of messages over a simulated link
    ///
    /// Each sample is one message, sent by the protocol itself in virtual time over a path that is already in use, and
    /// timed from the call until the sender knows that all of it arrived. No payload is stored: memory stays small
    /// whatever the size. A sample depends on the seed and its number alone, so the number of threads changes no result.
    ///
    /// slowdown = time / (RTT + bytes / rate), the lossless bound. Quantiles are by nearest rank: the smallest sample that
    /// at least that share of the samples does not exceed; p99.9 of fewer than 1000 samples is their maximum.
    #[command(allow_negative_numbers = true, after_help = SIM_EXAMPLES, args_conflicts_with_subcommands = true)]
    Sim(SimCommand),
    /// Completion times of a message from formulas, at once
    ///
    /// One message alone on a path, or a ring allreduce. Only wire time, round trips and losses of packets count: coding,
    /// headers, queues and lost acknowledgements are left out. sr and sr-nack are exact but for the wire time of
    /// retransmissions; bursts and hybrid are approximate, within about 0.005 of the slowdown for hybrid up to a loss of
    /// 1e-2.
    ///
    /// slowdown = time / (RTT + bytes / rate), the lossless bound. fallback: redundancy did not suffice, and a round trip
    /// more was needed.
    #[command(allow_negative_numbers = true, after_help = model::EXAMPLES)]
    Model(ModelArgs),
    /// Which scheme is best for a message on a path, and why
    ///
    /// Schemes are ranked by their mean completion time; those within 2 % of the best of them share a rank, where the shorter
    /// p99.9 and then fewer bytes come first. Times are from the formulas of `sdr model`. Where those do not hold to 2 % (bursts,
    /// codes that often fall back, codes of messages with hundreds of losses) a short simulation takes their place, and the
    /// table says so; of messages of gigabytes it takes a minute.
    #[command(allow_negative_numbers = true, after_help = advise::EXAMPLES)]
    Advise(AdviseArgs),
    /// Messages over emulated, lossy links against the ideal, in under a minute
    ///
    /// Both ends run here, over UDP through an emulated link of 25 ms; every byte is checked.
    Demo,
    /// Measure completion times and throughput of messages in real time
    #[command(subcommand)]
    Bench(BenchCommand),
    /// A relay between UDP programs that delays, limits, loses, reorders, duplicates and corrupts as a link does
    ///
    /// Point a client at --listen instead of its server, and give the server's address as --forward. Rate and queue count
    /// UDP payload. Ctrl-C ends with the counters.
    #[command(after_help = EMULATE_EXAMPLES)]
    Emulate(EmulateArgs),
    /// What this host has to offer, and why something is missing
    Info(InfoArgs),
}

/// `sdr sim`, of one cell or of more.
#[derive(Args)]
struct SimCommand {
    #[command(subcommand)]
    other: Option<SimSubcommand>,
    #[command(flatten)]
    cell: SimArgs,
}

#[derive(Subcommand)]
enum SimSubcommand {
    /// Every cell of a plan: grids over anything that 'sdr sim' takes
    #[command(after_help = sweep::EXAMPLES, long_about = sweep::ABOUT)]
    Run(RunArgs),
    /// Connections that share one link with a bounded queue
    ///
    /// Each connection has so many messages under way, always. Figures are those of the second half of the time; its first
    /// half belongs to the starts. Everything counts as utilisation that takes time on the wire, parity, repairs and control
    /// datagrams included; goodput is what was delivered.
    #[command(allow_negative_numbers = true, after_help = flows::EXAMPLES)]
    Flows(Box<FlowsArgs>),
}

/// What a simulated connection knows of its path's losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// What they are.
    Exact,
    /// Nothing.
    None,
    /// This, right or wrong.
    Given(Loss),
}

impl FromStr for Estimate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write exact, none, or a loss such as 1e-3 or, with a mean burst, 1e-3,16".to_owned();
        match text {
            "exact" => return Ok(Self::Exact),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let (loss, burst) = text.split_once(',').unwrap_or((text, "1"));
        let probability = loss.parse().ok().filter(|p| (0.0..1.0).contains(p)).ok_or_else(wrong)?;
        let burst = burst.parse().ok().filter(|b| (1.0..=MAX_BURST).contains(b)).ok_or_else(wrong)?;
        Ok(Self::Given(Loss { probability, burst }))
    }
}

/// As it is written on the command line.
impl Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::None => f.write_str("none"),
            Self::Given(loss) => write!(f, "{:e},{}", loss.probability, loss.burst),
        }
    }
}

impl Estimate {
    /// What is known on `path`.
    pub fn known(self, path: &PathSpec) -> Option<Loss> {
        match self {
            Self::None => None,
            Self::Exact => Some(Loss { probability: path.loss.get(), burst: path.burst.max(1.0) }),
            Self::Given(loss) => Some(loss),
        }
    }
}

/// What `sdr sim` was given.
#[derive(Args, Clone)]
pub struct SimArgs {
    /// Reliability scheme: sr (selective repeat by timeouts), sr-nack (losses are found by what arrived since), hybrid
    /// (sr-nack, with parity for the end), ec:K,M or xor:K,M (M parity packets for each K of data)
    #[arg(long, value_name = "NAME", default_value = "sr")]
    pub scheme: String,
    /// What both ends know of the losses: exact; none, as on the first message of a connection; or P or P,BURST
    #[arg(long, value_name = "WHAT", default_value = "exact")]
    pub estimate: Estimate,
    /// Retransmission timeout of sr is RTT + ALPHA x RTT; 0 to 1000, in steps of 0.001
    #[arg(long, value_name = "ALPHA", default_value = "2", value_parser = alpha)]
    pub alpha: f64,
    /// Message length
    #[arg(long, value_name = "BYTES", default_value = "128MiB")]
    pub size: ByteSize,
    /// Payload bytes of a packet; a message has at most 4194304 packets
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = mtu)]
    pub mtu: ByteSize,
    /// Messages to simulate
    #[arg(long, value_name = "N", default_value = "200", value_parser = |s: &str| whole(s, 1..=MAX_SAMPLES))]
    pub samples: u64,
    /// Everything random follows from it [default: that of --link, else 1]
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 0..=u64::MAX))]
    pub seed: Option<u64>,
    /// Threads; at most one a sample is used [default: all cores]
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 1..=MAX_THREADS))]
    pub threads: Option<u64>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub path: PathArgs,
}

impl SimArgs {
    /// Those of `sdr sim` without a flag.
    pub fn defaults() -> Result<Self, CommandError> {
        Self::augment_args(clap::Command::new("sim"))
            .try_get_matches_from(["sim"])
            .and_then(|matches| Self::from_arg_matches(&matches))
            .map_err(|e| CommandError::Failed(e.to_string()))
    }
}

/// The path, flag by flag or as one text.
#[derive(Args, Clone)]
#[command(next_help_heading = "Link, both directions alike")]
pub struct PathArgs {
    /// Rate [default: 400Gbit]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,
    /// Round-trip time [default: 25ms]
    #[arg(long, value_name = "TIME")]
    pub rtt: Option<Duration>,
    /// One-way length, instead of --rtt
    #[arg(long, value_name = "KM")]
    pub distance: Option<Distance>,
    /// What carries the light over --distance: vacuum or fibre [default: vacuum]
    #[arg(long, value_name = "NAME")]
    pub medium: Option<Medium>,
    /// Average loss in packets [default: 1e-5]
    #[arg(long, value_name = "P")]
    pub loss: Option<Probability>,
    /// Mean burst of losses in 4 KiB packets at link rate; 1 means independent losses [default: 1]
    #[arg(long, value_name = "PACKETS", value_parser = burst)]
    pub burst: Option<f64>,
    /// Deviation from the one-way delay, uniform, a packet [default: 0]
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<Duration>,
    /// Probability that a packet is held back for 1 to 16 packet times [default: 0]
    #[arg(long, value_name = "P")]
    pub reorder: Option<Probability>,
    /// Probability that a packet arrives twice [default: 0]
    #[arg(long, value_name = "P")]
    pub dup: Option<Probability>,
    /// Probability that a packet arrives with wrong bytes, and is dropped [default: 0]
    #[arg(long, value_name = "P")]
    pub corrupt: Option<Probability>,
    /// Most bytes that wait before the wire [default: no limit]
    #[arg(long, value_name = "BYTES")]
    pub queue: Option<ByteSize>,
    /// All of the above in one, such as rtt=25ms,rate=2Gbit,loss=1e-3,burst=4; or a TOML file with the same keys; what is left out is perfect, rate must be given
    #[arg(long, value_name = "SPEC", value_parser = crate::link::parse)]
    pub link: Option<PathSpec>,
}

const EMULATE_EXAMPLES: &str = "\
Examples:
  sdr emulate --listen 127.0.0.1:7000 --forward 127.0.0.1:18515 --link rtt=25ms,rate=1Gbit,loss=1e-3,burst=4
  sdr emulate --listen 0.0.0.0:7000 --forward 192.0.2.7:18515 --link distance=3750km,rate=1Gbit --duration 60s --json";

const SIM_EXAMPLES: &str = "\
Examples:
  sdr sim
  sdr sim --scheme sr --rate 400Gbit --rtt 25ms --loss 1e-5 --size 512MiB --samples 1000 --json
  sdr sim --scheme sr-nack --loss 1e-3 --size 8MiB
  sdr sim --rate 100Gbit --distance 3750km --medium fibre --loss 1e-4 --burst 8 --size 8GiB
  sdr sim --link rtt=10ms,rate=10Gbit,loss=1e-3,jitter=100us --size 1MiB
  sdr sim flows --flows 4 --compare
  sdr sim run benches/plans/smoke.toml --out smoke.csv

Ctrl-C ends with the samples that are done, says so (in JSON: \"interrupted\": true), and gives
exit code 130. A second Ctrl-C ends at once.";

/// What is kept of a sample takes about 100 bytes.
pub const MAX_SAMPLES: u64 = 1_000_000;
pub const MAX_THREADS: u64 = 1_024;
const MAX_MTU: u64 = 1 << 20;
const MAX_BURST: f64 = 1e9;

pub fn whole(text: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    match text.parse() {
        Ok(n) if allowed.contains(&n) => Ok(n),
        _ => Err(format!("write a whole number from {} to {}", allowed.start(), allowed.end())),
    }
}

pub fn alpha(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(alpha) if (0.0..=1e3).contains(&alpha) => Ok(alpha),
        _ => Err("write a number from 0 to 1000, such as 2".to_owned()),
    }
}

pub fn burst(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(burst) if (1.0..=MAX_BURST).contains(&burst) => Ok(burst),
        _ => Err(format!("write a number of packets from 1 to {MAX_BURST:e}, such as 4")),
    }
}

pub fn mtu(text: &str) -> Result<ByteSize, String> {
    mtu_up_to(text, MAX_MTU)
}

fn mtu_up_to(text: &str, most: u64) -> Result<ByteSize, String> {
    match ByteSize::from_str(text) {
        Ok(mtu) if (1..=most).contains(&mtu.0) => Ok(mtu),
        Ok(_) => Err(format!("write a size from 1B to {}, such as 4KiB", ByteSize(most))),
        Err(e) => Err(e.to_string()),
    }
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match Duration::from_str(text) {
        Ok(d) if d.0.0 > 0 => Ok(d),
        Ok(_) => Err("write a time above 0, such as 10s".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// A command to run.
pub enum Job {
    Sim(SimArgs),
    Flows(Box<FlowsArgs>),
    Sweep(RunArgs),
    Model(ModelArgs),
    Advise(AdviseArgs),
    Demo,
    Bench(BenchCommand),
    Emulate(EmulateArgs),
    Info(InfoArgs),
}

/// What the command line says.
pub enum Parsed {
    /// Run a command; its help is there.
    Run(Box<Job>, &'static str),
    /// Print this: help or version.
    Text(String),
    /// No command was given: this is what there is.
    Missing(String),
    /// It cannot be understood.
    Wrong {
        /// What to change.
        line: String,
        /// Where to read more.
        help: &'static str,
    },
}

/// Reads the command line, the program's name included.
pub fn parse(given: &[OsString]) -> Parsed {
    let cli = Cli::command().try_get_matches_from(given).and_then(|m| Cli::from_arg_matches(&m));
    match cli {
        Ok(Cli { command }) => Parsed::Run(
            Box::new(match command {
                Command::Sim(SimCommand { other: Some(SimSubcommand::Run(args)), .. }) => Job::Sweep(args),
                Command::Sim(SimCommand { other: Some(SimSubcommand::Flows(args)), .. }) => Job::Flows(args),
                Command::Sim(SimCommand { other: None, cell }) => Job::Sim(cell),
                Command::Model(args) => Job::Model(args),
                Command::Advise(args) => Job::Advise(args),
                Command::Demo => Job::Demo,
                Command::Bench(bench) => Job::Bench(bench),
                Command::Emulate(args) => Job::Emulate(args),
                Command::Info(args) => Job::Info(args),
            }),
            help_of(given),
        ),
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Parsed::Missing(e.render().to_string())
        }
        Err(e) if !e.use_stderr() => Parsed::Text(e.render().to_string()),
        Err(e) => Parsed::Wrong { line: one_line(&e), help: help_of(given) },
    }
}

/// Where more is said about the command that was given.
fn help_of(given: &[OsString]) -> &'static str {
    let word = |i: usize| given.get(i).and_then(|w| w.to_str()).unwrap_or_default();
    match (word(1), word(2)) {
        ("sim", "flows") => "sdr sim flows --help",
        ("sim", "run") => "sdr sim run --help",
        ("sim", _) => "sdr sim --help",
        ("advise", _) => "sdr advise --help",
        ("model", _) => "sdr model --help",
        ("demo", _) => "sdr demo --help",
        ("bench", "loopback") => "sdr bench loopback --help",
        ("bench", "server") => "sdr bench server --help",
        ("bench", "client") => "sdr bench client --help",
        ("bench", _) => "sdr bench --help",
        ("emulate", _) => "sdr emulate --help",
        ("info", _) => "sdr info --help",
        _ => "sdr --help",
    }
}

/// A clap error without its usage block: the first paragraph, and the tips.
fn one_line(e: &clap::Error) -> String {
    let text = e.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraph: Vec<_> = text.lines().take_while(|line| !line.trim().is_empty()).map(words).collect();
    let tips: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with("tip:")).map(words).collect();
    [paragraph.join(" "), tips.join(", ")]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// A flag as it was given, for messages.
pub fn flag(name: &str, value: impl Display) -> String {
    format!("--{name} {value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let example = format!("\n  sdr {} ", command.get_name());
            assert!(EXAMPLES.contains(&example), "an example of{example}");
        }
    }
}
