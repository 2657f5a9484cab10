//! What a run of `cargo test`, already compiled, says about a mutant.

use std::process::Output;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// By the test with this name, the first that failed.
    Killed(String),
    /// Every test passed.
    Survived,
    /// It failed, but no test did: a signal, the time limit, or no tests at all.
    Unclear(String),
}

pub(super) fn verdict(run: &Output) -> Verdict {
    let out = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    judge(run.status.success(), &out, &errors)
}

fn judge(success: bool, out: &str, errors: &str) -> Verdict {
    if success {
        // A filter that matches nothing passes as well.
        let some = out.lines().any(|l| l.starts_with("test ") && l.ends_with("... ok"));
        return if some { Verdict::Survived } else { Verdict::Unclear("no test was run".to_owned()) };
    }
    match out.lines().find_map(failed) {
        Some(test) => Verdict::Killed(test.to_owned()),
        None => {
            let last = errors.lines().rev().find(|l| !l.trim().is_empty());
            Verdict::Unclear(last.unwrap_or("no output").trim().to_owned())
        }
    }
}

/// The test that a line of libtest reports as failed.
fn failed(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failing_test_kills() {
        let ok = "running 1 test\ntest a::b ... ok\n\ntest result: ok. 1 passed; 0 failed\n";
        assert_eq!(judge(true, ok, ""), Verdict::Survived);
        let failing = "test a::b ... ok\ntest c - should panic ... FAILED\ntest d ... FAILED\n";
        assert_eq!(judge(false, failing, ""), Verdict::Killed("c".to_owned()));
        let crash = "  process didn't exit successfully: `x` (signal: 11, SIGSEGV)\n\n";
        let says = crash.trim().to_owned();
        assert_eq!(judge(false, "running 1 test\n", crash), Verdict::Unclear(says));
    }

    #[test]
    fn a_run_of_no_tests_says_nothing() {
        let none = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed\n";
        assert_eq!(judge(true, none, ""), Verdict::Unclear("no test was run".to_owned()));
    }
}
