//! Why coding was refused. Nothing was written when one of these comes back.

#![forbid(unsafe_code)]

use super::Code;

/// Why an erasure code could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EcError {
    /// A stripe has 1 to [`MAX_DATA`](super::MAX_DATA) data symbols.
    #[error("{k} data symbols a stripe; a code has 1 to 224")]
    DataSymbols {
        /// Data symbols asked for.
        k: usize,
    },
    /// Symbols, or what they protect, have no bytes; or a group has no stripes.
    #[error("{what} is zero")]
    Zero {
        /// What is zero.
        what: &'static str,
    },
    /// The code has no such parity row; an MDS code has data and parity symbols up to 256 in total.
    #[error("{rows} parity rows for k = {k}; {code:?} has {limit}")]
    Rows {
        /// The code.
        code: Code,
        /// Data symbols a stripe.
        k: usize,
        /// Rows asked for, or the number after the highest row named.
        rows: usize,
        /// Rows the code has.
        limit: usize,
    },
    /// Memory of another length than the layout says.
    #[error("{what} has {got} bytes, the layout needs {needed}")]
    Length {
        /// Which memory.
        what: &'static str,
        /// Bytes the layout needs.
        needed: usize,
        /// Bytes there are.
        got: usize,
    },
    /// A group, row or range of stripes that the layout does not have.
    #[error("{what} {got} is outside the layout, which has {limit}")]
    Outside {
        /// Which coordinate.
        what: &'static str,
        /// The value, or the exclusive end of a range.
        got: usize,
        /// How many the layout has.
        limit: usize,
    },
    /// As many parity rows are needed as data symbols are missing.
    #[error(
        "{missing} data symbols are missing and {rows} parity rows are named; the numbers have to be equal"
    )]
    Losses {
        /// Data symbols missing.
        missing: usize,
        /// Parity rows named.
        rows: usize,
    },
    /// Rows are listed once each, in ascending order.
    #[error("row {row} is listed after one that is not lower")]
    Order {
        /// The row out of order.
        row: usize,
    },
    /// A symbol listed as missing lies after the end of the message: it is known to be zero, and has no memory.
    #[error("row {row} of stripe {stripe} is not part of the message")]
    NotInMessage {
        /// Data row.
        row: usize,
        /// Stripe within its group.
        stripe: usize,
    },
    /// The plan is for another code than the job.
    #[error("a plan for k = {plan}, a job with k = {job}")]
    Plan {
        /// Data symbols of the plan.
        plan: usize,
        /// Data symbols of the job.
        job: usize,
    },
    /// A back end was asked for that is unknown, or that this CPU lacks.
    #[error("no back end {asked:?} on this CPU; it has {found}")]
    Backend {
        /// What was asked for.
        asked: String,
        /// Names of those that would do.
        found: String,
    },
    /// Data and parity share bytes.
    #[error("the memory of data and parity overlaps")]
    Overlap,
}
