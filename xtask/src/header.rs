//! The C header, written from the source of `capi/`. It is committed, so that C programs need no Rust tool to be built.

use crate::command::root;
use std::fs;
use std::path::PathBuf;

const HEADER: &str = "capi/include/sdr.h";

fn path() -> PathBuf {
    root().join(HEADER)
}

fn made() -> Result<String, String> {
    let capi = root().join("capi");
    let config =
        cbindgen::Config::from_file(capi.join("cbindgen.toml")).map_err(|e| format!("cbindgen.toml: {e}"))?;
    let bindings = cbindgen::Builder::new()
        .with_crate(&capi)
        .with_config(config)
        .generate()
        .map_err(|e| format!("cbindgen: {e}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).map_err(|e| format!("cbindgen: {e}"))
}

/// Writes the header.
pub(crate) fn generate() -> Result<(), String> {
    fs::write(path(), made()?).map_err(|e| format!("{HEADER}: {e}"))
}

/// Whether the committed header is the one that the source makes.
pub(crate) fn check() -> Result<(), String> {
    let there = fs::read_to_string(path()).map_err(|e| format!("{HEADER}: {e}"))?;
    if there == made()? {
        return Ok(());
    }
    Err(format!("{HEADER} is not what the source makes; run: cargo xtask gen-header"))
}
