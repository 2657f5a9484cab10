//! The copy of the workspace that mutants are made in, so that nobody's working tree is ever wrong.
//!
//! It stays between runs, and only files that differ are written: cargo goes by path and time of change, so that a run
//! compiles what changed, and a fault that an interrupted run left behind is taken out again.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where it is, in the workspace.
pub(super) const PLACE: &str = "target/mutants/src";

pub(super) struct Copy {
    path: PathBuf,
    target: PathBuf,
}

impl Copy {
    /// Brings the copy of `root` up to date: what git tracks, and what it would track, as it is in the working tree.
    pub(super) fn of(root: &Path) -> Result<Self, String> {
        let copy = Self { path: root.join(PLACE), target: root.join("target/mutants/target") };
        let files = files(root)?;
        for file in &files {
            let bytes = fs::read(root.join(file)).map_err(|e| format!("{}: {e}", file.display()))?;
            let to = copy.path.join(file);
            if fs::read(&to).ok().as_ref() != Some(&bytes) {
                let folder = to.parent().unwrap_or(&copy.path);
                fs::create_dir_all(folder)
                    .and_then(|()| fs::write(&to, bytes))
                    .map_err(|e| format!("{}: {e}", to.display()))?;
            }
        }
        let files = files.into_iter().map(|f| copy.path.join(f)).collect();
        remove_others(&copy.path, &files).map_err(|e| format!("{PLACE}: {e}"))?;
        Ok(copy)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Cargo's target directory for it; kept apart, so that dependencies are compiled once.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    pub(super) fn read(&self, file: &str) -> Result<String, String> {
        fs::read_to_string(self.path.join(file)).map_err(|e| format!("{file}: {e}"))
    }

    /// The time of change that this sets is what makes cargo compile it again.
    pub(super) fn write(&self, file: &str, text: &str) -> Result<(), String> {
        fs::write(self.path.join(file), text).map_err(|e| format!("{file}: {e}"))
    }
}

fn files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let out = Command::new("git")
        .args(args)
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot start: {e}: git {}", args.join(" ")))?;
    if !out.status.success() {
        return Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr)));
    }
    let names = String::from_utf8(out.stdout).map_err(|e| format!("a file name is not UTF-8: {e}"))?;
    // A tracked file may be deleted in the working tree, and a submodule is a folder.
    Ok(names.split_terminator('\0').map(PathBuf::from).filter(|f| root.join(f).is_file()).collect())
}

/// Files that an older state had would still be compiled, as tests for example.
fn remove_others(folder: &Path, keep: &HashSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(&path, keep)?;
        } else if !keep.contains(&path) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
