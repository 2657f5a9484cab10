//! Faults: whatever the path, the peer or foreign code does, every transfer ends in bounded virtual time, with the right
//! bytes or a typed error.
//!
//! | module | faults |
//! |---|---|
//! | `control` | each kind of control content lost, late, twice, corrupt |
//! | `path` | black holes, channels, steps, loss, order, copies |
//! | `slots` | counters that wrap, slot reuse, receives that are missing or too small |
//! | `ends` | stopped, dead and closed ends |
//! | `cancel` | transfers dropped in each state |
//! | `garbage` | forged control and data |
//! | `foreign` | panics in schemes and wakers |
//! | `traffic` | control datagrams counted |

#[path = "faults/cancel.rs"]
mod cancel;
#[path = "faults/control.rs"]
mod control;
#[path = "faults/ends.rs"]
mod ends;
#[path = "faults/foreign.rs"]
mod foreign;
#[path = "faults/garbage.rs"]
mod garbage;
#[path = "faults/path.rs"]
mod path;
#[path = "faults/slots.rs"]
mod slots;
#[path = "faults/traffic.rs"]
mod traffic;
