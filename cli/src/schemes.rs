//! The reliability schemes that a command line can name, in one list.

use crate::CommandError;
use sdr_sdk::reliability::{Scheme, SelectiveRepeat, SrNack};
use std::sync::Arc;

/// A scheme under its name.
pub struct Named {
    /// As it is written on the command line.
    pub name: &'static str,
    /// With its usual settings.
    pub make: fn() -> Arc<dyn Scheme>,
}

/// All there are; a new scheme is one more line.
pub const ALL: &[Named] = &[
    Named { name: "sr", make: || Arc::new(SelectiveRepeat::default()) },
    Named { name: "sr-nack", make: || Arc::new(SrNack) },
];

/// The scheme called `name`.
pub fn find(name: &str) -> Result<Arc<dyn Scheme>, CommandError> {
    let found = ALL.iter().find(|s| s.name == name).map(|s| (s.make)());
    found.ok_or_else(|| CommandError::Usage(format!("scheme {name:?} is unknown: choose {}", names())))
}

/// Their names, for messages.
pub fn names() -> String {
    ALL.iter().map(|s| s.name).collect::<Vec<_>>().join(", ")
}
