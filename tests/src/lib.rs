//! Shared helpers of the cross-crate tests.
//!
//! | module | what it holds |
//! |---|---|
//! | [`bed`] | a pair of connections, the messages on them, and the check of every byte |
//! | [`control`] | faults by what a control datagram says |
//! | [`nets`] | nets with the same hooks for faults; the simulated one |
//! | [`soft_net`] | software NICs over a link in memory as another (Linux) |
//! | [`udp_net`] | and over sockets (Linux) |
//! | [`soft`] | the same over software NICs and a link in memory (Linux) |

pub mod bed;
pub mod control;
pub mod nets;
#[cfg(target_os = "linux")]
pub mod soft;
#[cfg(target_os = "linux")]
pub mod soft_net;
#[cfg(target_os = "linux")]
pub mod udp_net;
