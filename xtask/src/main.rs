//! The one entry for developers. `cargo xtask --help` lists what it does.
//!
//! | file | what it holds |
//! |---|---|
//! | `command.rs` | cargo's command lines: made, shown, run |
//! | `steps.rs` | the steps of `cargo xtask ci` |
//! | `header.rs` | the C header |
//! | `mutants.rs` | runs the named mutants |
//! | `mutants/table.rs` | the mutants and the tests that must fail on them |
//! | `mutants/copy.rs` | the copy of the workspace that mutants are made in |
//! | `mutants/verdict.rs` | what a test run says about a mutant |

mod command;
mod header;
mod mutants;
mod steps;

use std::env;
use std::process::ExitCode;

fn help() -> String {
    let mut text = String::from("cargo xtask COMMAND\n\n  ci              everything below, in this order\n");
    for (command, what) in steps::commands() {
        text += &format!("  {command:<16}{what}\n");
    }
    text += "\ncargo xtask gen-header writes capi/include/sdr.h anew\n";
    text += "\ncargo xtask mutants [NAME]... runs some of:\n";
    for m in mutants::MUTANTS {
        text += &format!("  {}\n      {}\n", m.name, m.why);
    }
    text
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let passed = match args.as_slice() {
        [] | ["help"] | [.., "--help" | "-h"] => {
            print!("{}", help());
            true
        }
        ["ci"] => steps::run_all(),
        ["gen-header"] => match header::generate() {
            Ok(()) => true,
            Err(why) => {
                eprintln!("{why}");
                false
            }
        },
        ["mutants", names @ ..] if !names.is_empty() => steps::run_mutants(names),
        [command] if steps::commands().any(|(name, _)| name == *command) => steps::run(command),
        _ => {
            eprint!("cargo xtask {}: no such command\n\n{}", args.join(" "), help());
            false
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
