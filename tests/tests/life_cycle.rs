//! The life of a message's memory: no packet changes a byte of any buffer but that of its own message, and of that one
//! only until it is retired.
//!
//! | file | what it holds |
//! |---|---|
//! | `rig.rs` | two queue pairs in virtual time, guarded buffers, what must hold of every byte |
//! | `plan.rs` | what makes a schedule |
//! | `coverage.rs` | what happened in it |
//! | `schedule.rs` | one random schedule: users, network, forger, and the calm at the end |
//! | `random.rs` | the properties: many schedules, what they covered, how a failing one is told |
//! | `histories.rs` | hand-written histories, a packet at a time |

#[path = "life_cycle/coverage.rs"]
mod coverage;
#[path = "life_cycle/histories.rs"]
mod histories;
#[path = "life_cycle/plan.rs"]
mod plan;
#[path = "life_cycle/random.rs"]
mod random;
#[path = "life_cycle/rig.rs"]
mod rig;
#[path = "life_cycle/schedule.rs"]
mod schedule;
