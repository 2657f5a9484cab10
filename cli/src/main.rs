//! `sdr`: simulate, and later measure, reliable RDMA messages over long and lossy links.
//!
//! | module | what it holds |
//! |---|---|
//! | [`args`] | the command line, and its errors as one line |
//! | [`sim`] | `sdr sim`: what is run, and what came out |
//! | [`stats`] | mean and quantiles of a set of times |
//! | [`output`] | the result as a table and as JSON |
//!
//! A command gives its result on stdout, and nothing else goes there. Exit codes: 0 good, 1 the work failed, 2 wrong usage (one
//! line on stderr says what to change), 130 ended by Ctrl-C with what was measured until then.

#![forbid(unsafe_code)]

mod args;
mod output;
mod sim;
mod stats;

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
}

/// What a command prints on stdout, and whether Ctrl-C ended it early.
struct Answer {
    text: String,
    interrupted: bool,
}

const FAILED: u8 = 1;
const USAGE: u8 = 2;
/// 128 + SIGINT, as a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    let (answer, help) = match args::parse(&given) {
        args::Parsed::Sim(sim) => (sim::run(&sim), "sdr sim --help"),
        args::Parsed::Text(text) => (Ok(Answer { text, interrupted: false }), ""),
        args::Parsed::Wrong { line, help } => (Err(CommandError::Usage(line)), help),
    };
    match answer {
        Ok(answer) => match std::io::stdout().write_all(answer.text.as_bytes()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                eprintln!("sdr: the result could not be written: {e}");
                FAILED.into()
            }
            _ if answer.interrupted => INTERRUPTED.into(),
            _ => ExitCode::SUCCESS,
        },
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
