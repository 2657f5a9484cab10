//! Shared helpers of the cross-crate tests.
//!
//! | module | what it holds |
//! |---|---|
//! | [`bed`] | a pair of connections, the messages on them, and the check of every byte |
//! | [`control`] | faults by what a control datagram says |
//! | [`soft`] | the same over software NICs and a link in memory (Linux) |

pub mod bed;
pub mod control;
#[cfg(target_os = "linux")]
pub mod soft;
