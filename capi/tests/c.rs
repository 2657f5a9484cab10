//! `loopback.c` as a user builds it: with the system's C compiler, against the shared and the static library.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// What the static library needs from the system.
#[cfg(target_os = "linux")]
const SYSTEM: &[&str] = &["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lutil", "-lrt"];
#[cfg(not(target_os = "linux"))]
const SYSTEM: &[&str] = &["-lpthread"];

#[cfg(target_os = "macos")]
const SHARED: &str = "libsdr.dylib";
#[cfg(not(target_os = "macos"))]
const SHARED: &str = "libsdr.so";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put the libraries that belong to this test: beside it.
fn libraries() -> PathBuf {
    let test = env::current_exe().unwrap();
    let dir = test.parent().unwrap().to_path_buf();
    assert!(dir.join(SHARED).exists(), "no {SHARED} in {}", dir.display());
    dir
}

fn compiler() -> Command {
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(STRICT).args(["-std=c11", "-O1", "-g"]).arg("-I").arg(here().join("include"));
    cc
}

fn succeeds(mut command: Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{e}: {command:?}"));
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}: {command:?}\n{text}", out.status);
    assert_eq!(text, "", "{command:?}");
}

fn builds_and_runs(name: &str, libraries: &[&OsStr]) {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = compiler();
    cc.arg(here().join("tests/loopback.c")).arg("-o").arg(&program).args(libraries).arg("-lpthread");
    succeeds(cc);
    succeeds(Command::new(program));
}

#[test]
fn the_shared_library_works_from_c() {
    let dir = libraries();
    let shared = dir.join(SHARED);
    let rpath = format!("-Wl,-rpath,{}", dir.display());
    builds_and_runs("loopback-shared", &[shared.as_ref(), rpath.as_ref()]);
}

#[test]
fn the_static_library_works_from_c() {
    let library = libraries().join("libsdr.a");
    let mut all: Vec<&OsStr> = vec![library.as_ref()];
    all.extend(SYSTEM.iter().map(OsStr::new));
    builds_and_runs("loopback-static", &all);
}

#[test]
fn the_header_is_good_c_and_cpp() {
    let mut cc = compiler();
    cc.args(["-fsyntax-only", "-x", "c"]).arg(here().join("include/sdr.h"));
    // A header as the main file: the only thing to say about it is nothing.
    succeeds(cc);

    let cxx = env::var_os("CXX").unwrap_or_else(|| "g++".into());
    if Command::new(&cxx).arg("--version").output().is_err() {
        println!("skipped for C++: no {cxx:?}");
        return;
    }
    let mut cxx = Command::new(cxx);
    cxx.args(STRICT).args(["-std=c++17", "-fsyntax-only", "-x", "c++"]);
    cxx.arg("-I").arg(here().join("include")).arg(here().join("tests/loopback.c"));
    succeeds(cxx);
}
