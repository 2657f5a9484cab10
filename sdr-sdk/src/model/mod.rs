//! Models.
#![forbid(unsafe_code)]
pub mod rows;
