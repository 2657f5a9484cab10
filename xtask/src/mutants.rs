//! Runs named mutants: faults that the design says must be found, put into a copy of the workspace one at a time.
//!
//! A mutant counts as killed only when a test says FAILED: one that does not compile, or whose test program ends in any
//! other way, is an error of the table. At the end each command runs once without a mutant and must pass, which also
//! shows that every fault was taken out again.

mod copy;
mod table;
mod verdict;

pub(crate) use table::MUTANTS;

use crate::command::{cargo, root, shown, under_loom};
use crate::steps::now;
use copy::Copy;
use std::process::{Command, Output};
use table::{Mutant, Tests};
use verdict::{Verdict, verdict};

/// Seconds after which a test program is stopped: a mutant may hang instead of failing.
const LIMIT: &str = "300";

/// The mutants with these names.
///
/// # Errors
/// When a name is not in the table.
pub(crate) fn named(names: &[&str]) -> Result<Vec<&'static Mutant>, String> {
    let find = |name: &&str| {
        MUTANTS.iter().find(|m| m.name == *name).ok_or_else(|| {
            let all: Vec<_> = MUTANTS.iter().map(|m| m.name).collect();
            format!("no mutant {name}; there are {}", all.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// Runs them and prints a table. All are run, also after one that survived.
///
/// # Errors
/// What went wrong, a line for each.
pub(crate) fn run(mutants: Vec<&Mutant>) -> Result<(), String> {
    let copy = Copy::of(&root())?;
    let mut errors = Vec::new();
    println!("{:<32}{:<64}{:>8}", "mutant", "killed by", "seconds");
    for m in &mutants {
        if let Err(e) = try_mutant(&copy, m) {
            errors.push(format!("{}: {e}", m.name));
        }
    }
    let mut seen: Vec<Tests> = Vec::new();
    for &tests in mutants.iter().flat_map(|m| m.tests) {
        if !seen.contains(&tests) {
            seen.push(tests);
            if let Err(e) = baseline(&copy, tests) {
                errors.push(format!("without a mutant: {e}"));
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n    ")) }
}

fn try_mutant(copy: &Copy, m: &Mutant) -> Result<(), String> {
    let original = copy.read(m.file)?;
    let mutated = mutate(&original, m.find, m.replace).map_err(|e| format!("{}: {e}", m.file))?;
    copy.write(m.file, &mutated)?;
    let result = m.tests.iter().try_for_each(|&tests| {
        row(copy, m.name, tests, |v, command| match v {
            Verdict::Killed(test) => Ok(test.clone()),
            Verdict::Survived => Err(format!("survived: {command}")),
            Verdict::Unclear(says) => Err(format!("no test failed by name ({says}): {command}")),
        })
    });
    copy.write(m.file, &original)?;
    result
}

fn baseline(copy: &Copy, tests: Tests) -> Result<(), String> {
    row(copy, "(none)", tests, |v, command| match v {
        Verdict::Survived => Ok(format!("passes: {}", tests.name())),
        Verdict::Killed(test) => Err(format!("{test} fails: {command}")),
        Verdict::Unclear(says) => Err(format!("{says}: {command}")),
    })
}

/// One line of the table.
fn row(
    copy: &Copy,
    name: &str,
    tests: Tests,
    judge: impl Fn(&Verdict, &str) -> Result<String, String>,
) -> Result<(), String> {
    let started = now();
    let result = run_tests(copy, tests).and_then(|(v, command)| judge(&v, &command));
    let says = result.as_deref().unwrap_or("ERROR");
    println!("{name:<32}{says:<64}{:>8.1}", started.elapsed().as_secs_f64());
    result.map(drop)
}

/// Builds first, so that a compile error is not taken for a failing test.
fn run_tests(copy: &Copy, tests: Tests) -> Result<(Verdict, String), String> {
    let (build, build_line) = output(command(copy, tests, &["--no-run"]))?;
    if !build.status.success() {
        return Err(format!("does not compile: {build_line}\n{}", String::from_utf8_lossy(&build.stderr)));
    }
    let (ran, line) = output(command(copy, tests, &[]))?;
    Ok((verdict(&ran), line))
}

fn command(copy: &Copy, tests: Tests, more: &[&str]) -> Command {
    let mut command = cargo(&["test"]);
    command.current_dir(copy.path());
    // Stops the test program alone; whoever interrupts cargo interrupts both.
    let runner =
        format!(r#"target.'cfg(target_os = "linux")'.runner = ["timeout", "--foreground", "{LIMIT}"]"#);
    command.args(["--config", &runner]);
    let target = copy.target();
    let filter = match tests {
        Tests::Host { package, test, filter } => {
            command.env("CARGO_TARGET_DIR", target).args(["-p", package]);
            match test {
                Some(test) => command.args(["--test", test]),
                None => command.arg("--lib"),
            };
            filter
        }
        Tests::Loom { filter } => {
            under_loom(&mut command, &target.join("loom"));
            command.args(["-p", "sdr-sdk", "--lib", "--release"]);
            filter
        }
    };
    command.args(more);
    if !filter.is_empty() {
        command.args(["--", filter]);
    }
    command
}

fn output(mut command: Command) -> Result<(Output, String), String> {
    let line = format!("cd {} && {}", copy::PLACE, shown(&command));
    let out = command.output().map_err(|e| format!("cannot start: {e}: {line}"))?;
    Ok((out, line))
}

/// `text` with its only `find` replaced.
fn mutate(text: &str, find: &str, replace: &str) -> Result<String, String> {
    match text.matches(find).count() {
        1 => Ok(text.replacen(find, replace, 1)),
        n => Err(format!("the text to replace is there {n} times, not once: {find:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_to_replace_is_there_once() {
        assert_eq!(mutate("a b c", "b", "x").as_deref(), Ok("a x c"));
        assert!(mutate("a b b", "b", "x").is_err_and(|e| e.contains("2 times")));
        assert!(mutate("a", "b", "x").is_err_and(|e| e.contains("0 times")));
    }

    #[test]
    fn unknown_names_are_refused() {
        assert_eq!(named(&["reuse_without_drain"]).map(|m| m.len()), Ok(1));
        assert!(named(&["nobody"]).is_err_and(|e| e.contains("nobody") && e.contains("reuse_without_drain")));
    }
}
