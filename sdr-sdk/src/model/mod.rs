//! How long a message takes, from formulas: completion times of every scheme as functions of path, loss and length.
//!
//! Pure functions: no IO, no clock, no state. A [`Setting`] and a [`SchemeModel`] give a [`Law`], which is asked for its
//! mean, its quantiles and its distribution. Times are f64 nanoseconds, from the first packet until the sender knows that
//! all of it arrived. Only wire time and round trips count: coding, headers, queues and lost acknowledgements are left
//! out.
//!
//! | module | what it holds |
//! |---|---|
//! | [`setting`], [`scheme`] | message, path and loss; the schemes by name |
//! | [`law`] | what is asked of a distribution |
//! | [`repeat`] | `sr`, `sr-nack`: exact |
//! | [`erasure`] | `ec:K,M`, `xor:K,M` with fallback |
//! | [`hybrid`] | reports for the body, parity after the data for the tail |
//! | [`rows`] | how many parity rows are enough: also asked by the transport, for every message |
//! | [`ring`] | allreduce over a ring of sites |
//! | [`monte_carlo`], [`random`] | the same random variables drawn packet by packet |

#![forbid(unsafe_code)]

pub mod erasure;
pub mod hybrid;
pub mod law;
pub mod monte_carlo;
pub mod random;
pub mod repeat;
pub mod ring;
pub mod rows;
pub mod scheme;
pub mod setting;
#[cfg(test)]
mod tests;

pub use law::{Law, Summary};
pub use ring::Ring;
pub use scheme::SchemeModel;
pub use setting::Setting;
