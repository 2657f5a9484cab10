//! Command lines of cargo: how they are made, shown and run. All run in the workspace root unless they say otherwise.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace root.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// `cargo` with `args`: the cargo that runs this program.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Compiles with loom's atomics, into a target directory of its own: other flags rebuild every dependency.
///
/// What bounds the search (`LOOM_MAX_PREEMPTIONS`) is left to the tests and to who calls.
pub(crate) fn under_loom(command: &mut Command, target: &Path) {
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
}

/// The command line for a shell in the directory that it runs in.
pub(crate) fn shown(command: &Command) -> String {
    let dir = command.get_current_dir().map(Path::to_path_buf).unwrap_or_default();
    let short = |s: &OsStr| {
        let path = Path::new(s);
        match path.strip_prefix(&dir) {
            Ok(inside) => quoted(&inside.to_string_lossy()),
            Err(_) => quoted(&s.to_string_lossy()),
        }
    };
    let mut words: Vec<String> = Vec::new();
    for (key, value) in command.get_envs() {
        let key = key.to_string_lossy();
        words.push(match value {
            Some(value) => format!("{key}={}", short(value)),
            None => format!("{key}="),
        });
    }
    let program = Path::new(command.get_program());
    words.push(program.file_stem().unwrap_or(program.as_os_str()).to_string_lossy().into_owned());
    words.extend(command.get_args().map(short));
    words.join(" ")
}

fn quoted(s: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    if !s.is_empty() && s.chars().all(plain) {
        s.to_owned()
    } else {
        format!("'{}'", s.replace('\'', r"'\''"))
    }
}

/// Runs it with its output on ours.
///
/// # Errors
/// The exact command line, when it fails or cannot be started.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{status}: {}", shown(&command))),
        Err(e) => Err(format!("cannot start: {e}: {}", shown(&command))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_pasted() {
        let mut command = cargo(&["test", "-p", "sdr-sdk", "--", "it's"]);
        under_loom(&mut command, &root().join("target/loom"));
        assert_eq!(
            shown(&command),
            r"CARGO_TARGET_DIR=target/loom RUSTFLAGS='--cfg loom' cargo test -p sdr-sdk -- 'it'\''s'"
        );
    }
}
