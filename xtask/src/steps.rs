//! The steps of `cargo xtask ci`. Each can be run alone; each prints its name, its time and, when it fails, the exact
//! command. A failing step does not hide the later ones.

use crate::command::{cargo, root, run as run_command, under_loom};
use crate::{header, mutants};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Targets that must compile beside the host's.
const CROSS_TARGETS: &[&str] = &["aarch64-unknown-linux-gnu"];

enum Done {
    Passed,
    /// Why.
    Skipped(String),
}

type Outcome = Result<Done, String>;

struct Step {
    name: &'static str,
    /// `cargo xtask` with this word runs it; steps that share one follow each other.
    command: &'static str,
    what: &'static str,
    run: fn() -> Outcome,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", command: "lint", what: "rustfmt and clippy, warnings are errors", run: fmt },
    Step { name: "clippy", command: "lint", what: "", run: clippy },
    Step { name: "docs", command: "docs", what: "rustdoc, warnings are errors", run: docs },
    Step {
        name: "header",
        command: "header",
        what: "the C header is the one that its source makes",
        run: || header::check().map(|()| Done::Passed),
    },
    Step { name: "loom", command: "loom", what: "all interleavings of the lock-free part", run: loom },
    Step {
        name: "compile-fail",
        command: "compile-fail",
        what: "wrong uses of the SDK that must not compile",
        run: compile_fail,
    },
    Step {
        name: "mutants",
        command: "mutants",
        what: "faults put into the code on purpose, which tests must find",
        run: || mutants::run(mutants::MUTANTS.iter().collect()).map(|()| Done::Passed),
    },
    Step {
        name: "cross",
        command: "cross",
        what: "compiles for other targets, where they are installed",
        run: cross,
    },
];

fn fmt() -> Outcome {
    passes(cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Outcome {
    passes(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn docs() -> Outcome {
    let mut command = cargo(&["doc", "--no-deps", "--workspace"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    passes(command)
}

fn loom() -> Outcome {
    let mut command = cargo(&["test", "-p", "sdr-sdk", "--lib", "--release", "--", "loom"]);
    under_loom(&mut command, &root().join("target/loom"));
    passes(command)
}

fn compile_fail() -> Outcome {
    passes(cargo(&["test", "-p", "sdr-tests", "--test", "compile_fail", "--", "--ignored"]))
}

fn cross() -> Outcome {
    let mut missing = Vec::new();
    for &target in CROSS_TARGETS {
        if is_installed(target)? {
            run_command(cargo(&["check", "--workspace", "--target", target]))?;
        } else {
            missing.push(format!("target {target} is not installed (rustup target add {target})"));
        }
    }
    Ok(if missing.is_empty() { Done::Passed } else { Done::Skipped(missing.join(", ")) })
}

fn passes(command: Command) -> Outcome {
    run_command(command).map(|()| Done::Passed)
}

/// Whether the target's standard library is there. rustc names the folder of any target that it knows.
fn is_installed(target: &str) -> Result<bool, String> {
    let out = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .map_err(|e| format!("cannot start: {e}: rustc --print target-libdir --target {target}"))?;
    let dir = String::from_utf8_lossy(&out.stdout);
    Ok(out.status.success() && Path::new(dir.trim()).is_dir())
}

/// Each command once, with what it does.
pub(crate) fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
    STEPS.iter().filter(|s| !s.what.is_empty()).map(|s| (s.command, s.what))
}

/// Every step; whether none failed.
pub(crate) fn run_all() -> bool {
    report(STEPS.iter().map(|s| (s.name, s.run)))
}

/// The steps of one command.
pub(crate) fn run(command: &str) -> bool {
    report(STEPS.iter().filter(|s| s.command == command).map(|s| (s.name, s.run)))
}

/// The mutants with these names.
pub(crate) fn run_mutants(names: &[&str]) -> bool {
    let run = || mutants::named(names).and_then(mutants::run).map(|()| Done::Passed);
    report([("mutants", run)].into_iter())
}

#[expect(clippy::disallowed_methods, reason = "a program that tells how long its steps took")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn report<F: FnOnce() -> Outcome>(steps: impl Iterator<Item = (&'static str, F)>) -> bool {
    let mut lines = Vec::new();
    let mut passed = true;
    for (name, run) in steps {
        println!("==> {name}");
        let started = now();
        let outcome = run();
        let seconds = started.elapsed().as_secs_f64();
        let says = match outcome {
            Ok(Done::Passed) => "passed".to_owned(),
            Ok(Done::Skipped(why)) => format!("skipped: {why}"),
            Err(why) => {
                passed = false;
                format!("FAILED: {why}")
            }
        };
        let line = format!("{name:<14}{seconds:>7.1} s  {says}");
        println!("==> {line}");
        lines.push(line);
    }
    if lines.len() > 1 {
        println!("\n{}", lines.join("\n"));
    }
    passed
}
