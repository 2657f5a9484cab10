//! Faults: whatever the path, the peer or foreign code does, every transfer ends in bounded virtual time, with the right
//! bytes or a typed error.
//!
//! All but `foreign` run with each scheme: `sr`, `nack`, `hybrid`; what needs only a tap runs over software NICs too:
//! `memory`, `udp`.
//!
//! | module | faults |
//! |---|---|
//! | `control` | each kind of control content lost, late, twice, corrupt |
//! | `path` | black holes, channels, steps, loss, order, copies |
//! | `slots` | counters that wrap, slot reuse, receives that are missing or too small |
//! | `ends` | stopped, dead and closed ends |
//! | `cancel` | transfers dropped in each state |
//! | `garbage` | forged control and data |
//! | `traffic` | control datagrams counted |
//! | `foreign` | panics in schemes and wakers |

#[path = "faults/foreign.rs"]
mod foreign;
#[path = "faults/hybrid.rs"]
mod hybrid;
#[cfg(target_os = "linux")]
#[path = "faults/memory.rs"]
mod memory;
#[path = "faults/nack.rs"]
mod nack;
#[path = "faults/sr.rs"]
mod sr;
#[cfg(target_os = "linux")]
#[path = "faults/udp.rs"]
mod udp;
