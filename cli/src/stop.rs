//! Ctrl-C, and the other ways a running command is told to end.

use crate::CommandError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that the first Ctrl-C sets; the second ends the program.
pub fn on_ctrl_c() -> Result<Arc<AtomicBool>, CommandError> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    ctrlc::set_handler(move || {
        if set.swap(true, Ordering::Relaxed) {
            std::process::exit(crate::INTERRUPTED.into());
        }
    })
    .map_err(|e| CommandError::Failed(format!("Ctrl-C could not be caught: {e}")))?;
    Ok(stop)
}
