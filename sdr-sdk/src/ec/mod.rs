//! Erasure codes over GF(2^8): parity symbols from data symbols, and missing data symbols from parity.
//!
//! A symbol is one packet. This module knows where symbols lie in memory and what parity is; it does not know which
//! packets arrived, nor when parity is sent. Invariant: a job writes the bytes it was asked for, or it is an error and
//! writes nothing.
//!
//! | module | what it holds |
//! |---|---|
//! | [`code`] | XOR and the MDS code: coefficients, and why they are what they are |
//! | [`layout`] | stripes, groups and rows in contiguous memory |
//! | [`plan`] | the inverse for a pattern of losses |
//! | [`job`] | what a coder is asked to do, and the checks before it |
//! | [`raw`] | memory that others may write: raw pointers, bounds checked |
//! | [`gf256`], [`naive`] | the oracle: field tables, and a coder made of nothing else |
//! | [`fast`] | the coder of the data path, on the kernels of a back end |
//! | [`backend`] | which instructions this CPU has |
//! | [`error`] | why coding was refused |

pub mod backend;
pub mod code;
mod columns;
pub mod error;
pub mod fast;
pub mod gf256;
pub mod job;
mod kernel;
pub mod layout;
pub mod naive;
pub mod plan;
pub mod raw;
mod steps;
#[cfg(test)]
mod tests;

pub use backend::{BACKEND_VARIABLE, Backend};
pub use code::{Code, MAX_DATA};
pub use error::EcError;
pub use fast::Fast;
pub use job::{DecodeJob, EncodeJob};
pub use layout::{Place, Stripes};
pub use naive::Naive;
pub use plan::DecodePlan;
pub use raw::{Readable, Writable};

/// What computes parity and rebuilds data. All coders give the same bytes; one for packets without payload may do nothing.
pub trait Coder: Send + Sync {
    /// Computes the job's parity rows.
    fn encode(&self, job: &EncodeJob<'_>) -> Result<(), EcError>;

    /// Rebuilds the job's missing data.
    fn decode(&self, job: &DecodeJob<'_>) -> Result<(), EcError>;
}
