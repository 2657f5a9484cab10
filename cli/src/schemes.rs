//! The reliability schemes that a command line can name, in one place.

use crate::CommandError;
use sdr_sdk::reliability::{Scheme, SelectiveRepeat, SrNack, Striped};
use std::sync::Arc;

/// One of each kind, as it is written on the command line.
pub const ALL: &[&str] = &["auto", "sr", "sr-nack", "hybrid", "ec:32,8", "xor:32,8"];

/// The scheme called `name`.
pub fn find(name: &str) -> Result<Arc<dyn Scheme>, CommandError> {
    let (family, code) = match name.split_once(':') {
        Some((family, code)) => (family, Some(code)),
        None => (name, None),
    };
    Ok(match (family, code) {
        ("auto", None) => Arc::new(Striped::auto()),
        ("sr", None) => Arc::new(SelectiveRepeat::default()),
        ("sr-nack", None) => Arc::new(SrNack),
        ("hybrid", None) => Arc::new(Striped::hybrid()),
        ("ec", Some(code)) => Arc::new(of_code(name, code, Striped::ec)?),
        ("xor", Some(code)) => Arc::new(of_code(name, code, Striped::xor)?),
        ("ec" | "xor", None) => return Err(unknown(name, "its code is missing")),
        _ => return Err(unknown(name, "there is no such scheme")),
    })
}

fn of_code<E: std::fmt::Display>(
    name: &str,
    code: &str,
    make: impl FnOnce(u32, u32) -> Result<Striped, E>,
) -> Result<Striped, CommandError> {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    match code.split_once(',').map(|(k, m)| (number(k), number(m))) {
        Some((Some(k), Some(m))) => {
            make(k, m).map_err(|e| CommandError::Usage(format!("scheme {name:?}: {e}")))
        }
        _ => Err(unknown(name, "a code is two whole numbers")),
    }
}

fn unknown(name: &str, why: &str) -> CommandError {
    CommandError::Usage(format!("scheme {name:?}: {why}: choose {}", names()))
}

/// Their names, for messages.
pub fn names() -> String {
    "auto, sr, sr-nack, hybrid, ec:K,M or xor:K,M, such as ec:32,8".to_owned()
}
