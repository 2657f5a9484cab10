//! What every fabric and every engine must do, as one test body for each seam.
//!
//! An implementation calls the body from its own tests. The bodies assume nothing that the traits do not promise.

mod engine;
mod fabric;

pub use engine::engine_conformance;
pub use fabric::{Pair, fabric_conformance};
