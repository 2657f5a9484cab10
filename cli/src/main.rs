//! `sdr`: measure and simulate reliable RDMA messages over long and lossy links.
//!
//! | module | what it holds |
//! |---|---|
//! | [`advise`] | `sdr advise`: the schemes ranked for one message on one path |
//! | [`args`] | the command line, and its errors as one line |
//! | [`bench`] | `sdr bench`: messages in real time, both ends here or one of them |
//! | [`demo`] | `sdr demo`: a few of those, over emulated links |
//! | [`emulate`], [`link`] | `sdr emulate`, and the same relay on a thread |
//! | [`info`] | `sdr info`: what this host has |
//! | [`model`] | `sdr model`: the same from formulas |
//! | [`sim`], [`output`] | `sdr sim`: what is run and what came out; its table and JSON |
//! | [`flows`] | `sdr sim flows`: connections that share a bottleneck |
//! | [`sweep`] | `sdr sim run`: every cell of a plan, into a file that an interrupted run goes on with |
//! | [`ends`], [`schemes`] | sockets, context and driver of an end; the schemes by name |
//! | [`stats`], [`interval`] | quantiles; how far they can be trusted |
//! | [`table`], [`usage`], [`stop`] | columns, processor time and memory, Ctrl-C |
//!
//! A command gives its result on stdout, and nothing else goes there. Exit codes: 0 good, 1 the work failed, 2 wrong usage (one
//! line on stderr says what to change), 130 ended by Ctrl-C with what was measured until then.

#![forbid(unsafe_code)]

mod advise;
mod args;
mod bench;
mod demo;
mod emulate;
mod ends;
mod flows;
mod info;
mod interval;
mod link;
mod model;
mod output;
mod schemes;
mod sim;
mod stats;
mod stop;
mod sweep;
mod table;
mod usage;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Why a command gave no result; one line.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The work failed.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C came before anything was measured.
    #[error("ended before anything was measured")]
    Interrupted,
}

/// What a command prints on stdout, and how it ended.
#[derive(Default)]
struct Answer {
    text: String,
    /// Ctrl-C ended it early.
    interrupted: bool,
    /// There is a result, and it is not good: why, in a line.
    failure: Option<String>,
}

const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// 128 + SIGINT, as a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    let (answer, help) = match args::parse(&given) {
        args::Parsed::Run(job, help) => (run(&job), help),
        args::Parsed::Text(text) => (Ok(Answer { text, ..Answer::default() }), ""),
        args::Parsed::Missing(text) => {
            eprint!("{text}");
            return USAGE.into();
        }
        args::Parsed::Wrong { line, help } => (Err(CommandError::Usage(line)), help),
    };
    match answer {
        Ok(answer) => match std::io::stdout().write_all(answer.text.as_bytes()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                eprintln!("sdr: the result could not be written: {e}");
                FAILED.into()
            }
            _ => {
                if let Some(line) = &answer.failure {
                    eprintln!("sdr: {line}");
                }
                match (answer.interrupted, answer.failure) {
                    (true, _) => INTERRUPTED.into(),
                    (false, Some(_)) => FAILED.into(),
                    (false, None) => ExitCode::SUCCESS,
                }
            }
        },
        Err(CommandError::Interrupted) => {
            eprintln!("sdr: {}", CommandError::Interrupted);
            INTERRUPTED.into()
        }
        Err(CommandError::Usage(line)) => {
            eprintln!("sdr: {line}; see '{help}'");
            USAGE.into()
        }
        Err(CommandError::Failed(line)) => {
            eprintln!("sdr: {line}");
            FAILED.into()
        }
    }
}

fn run(job: &args::Job) -> Result<Answer, CommandError> {
    use args::bench::BenchCommand;
    match job {
        args::Job::Sim(args) => sim::run(args),
        args::Job::Flows(args) => flows::run(args),
        args::Job::Sweep(args) => sweep::run(args),
        args::Job::Model(args) => model::run(args),
        args::Job::Advise(args) => advise::run(args),
        args::Job::Demo => demo::run(),
        args::Job::Bench(BenchCommand::Loopback(args)) => bench::loopback(args),
        args::Job::Bench(BenchCommand::Server(args)) => bench::server(args),
        args::Job::Bench(BenchCommand::Client(args)) => bench::client(args),
        args::Job::Emulate(args) => emulate::run(args),
        args::Job::Info(args) => info::run(args),
    }
}
