//! Link models and virtual time.
//!
//! A link is a pure, seeded function: `now` and the seed come in, arrivals come out. Nothing but [`relay`] reads a clock,
//! so the same model runs between UDP programs and in virtual time at 3.2 Tbit/s.
//!
//! | module | what it holds |
//! |---|---|
//! | [`units`] | sizes, rates, times, probabilities and distances as people write them |
//! | [`rng`] | seed derivation and the few draws the models need |
//! | [`wire`] | exact serialisation: picoseconds and fractions of them |
//! | [`loss`] | which packets of a back-to-back run are lost |
//! | [`link`] | one direction of a link: queue, wire, loss, delay, impairments |
//! | [`spec`] | the command-line form of a path, `rtt=25ms,rate=2Gbit,loss=1e-3` |
//! | [`sim`] | the simulated fabric: NICs joined by links, in virtual time |
//! | [`pair`] | two ends in virtual time: contexts, queue pairs, connections |
//! | [`memory_link`] | a link in memory between software NICs, in real or virtual time (Linux) |
//! | [`trial`] | completion times by simulation |
//! | [`flows`] | connections that share a bottleneck |
//! | [`relay`] | a path between UDP programs in real time (Linux) |
//! | [`conformance`] | what every fabric and every engine must do, as test bodies |

// One file of the simulated fabric writes into user memory.
#![deny(unsafe_code)]

pub mod conformance;
pub mod flows;
pub mod link;
pub mod loss;
#[cfg(target_os = "linux")]
pub mod memory_link;
pub mod pair;
#[cfg(target_os = "linux")]
pub mod relay;
pub mod rng;
pub mod sim;
pub mod spec;
pub mod trial;
pub mod units;
pub mod wire;

pub use flows::Flows;
pub use link::{Counters, Delivery, DeliveryKind, Link, LinkSpec};
pub use loss::{LossError, LossModel, LossSpec};
#[cfg(target_os = "linux")]
pub use memory_link::{MemoryConfig, MemoryLink, MemoryNet};
pub use pair::{Net, Pair, PairConfig, QpPair};
pub use sim::{SimConfig, SimFabric, SimNet};
pub use spec::{PathSpec, SpecError};
pub use trial::Trial;
