//! What a coder is asked to do: parity rows of some stripes, or the missing data of some stripes.
//!
//! A job is plain data. Every coder has it checked before it touches memory, so a job that does not fit is an error that
//! leaves all bytes as they were.

#![forbid(unsafe_code)]

use super::{Code, DecodePlan, EcError, Readable, Stripes, Writable};
use std::ops::Range;

/// Compute parity rows of neighbouring stripes.
///
/// Data and parity have different lengths: data is exactly [`Stripes::bytes`] long, parity symbols are always whole.
#[derive(Debug)]
pub struct EncodeJob<'m> {
    /// The code.
    pub code: Code,
    /// The layout.
    pub layout: Stripes,
    /// Group to code.
    pub group: usize,
    /// Stripes of the group to code; contiguous in each row, so many at once are cheaper than one by one.
    pub stripes: Range<usize>,
    /// Parity rows to compute. Others may be computed earlier, later or never.
    pub rows: Range<usize>,
    /// Parity rows a group has room for in `parity`.
    pub allocated: usize,
    /// The protected data.
    pub data: Readable<'m>,
    /// The parity buffer; see [`Stripes::parity`] for its order.
    pub parity: Writable<'m>,
}

/// Rebuild what a plan says is missing, in neighbouring stripes that have the same losses.
#[derive(Debug)]
pub struct DecodeJob<'m> {
    /// What is missing and which parity is used.
    pub plan: &'m DecodePlan,
    /// The layout.
    pub layout: Stripes,
    /// Group to code.
    pub group: usize,
    /// Stripes of the group, all with the plan's losses.
    pub stripes: Range<usize>,
    /// Parity rows a group has room for in `parity`.
    pub allocated: usize,
    /// The parity buffer; only the plan's rows of these stripes are read.
    pub parity: Readable<'m>,
    /// The protected data: rows that are not missing are read, missing ones are written, and nothing else.
    pub data: Writable<'m>,
}

impl EncodeJob<'_> {
    /// Whether layout, rows and memory fit together.
    pub fn check(&self) -> Result<(), EcError> {
        let last = self.rows.end;
        if self.rows.is_empty() {
            return Err(EcError::Zero { what: "the number of parity rows" });
        }
        self.code.check(self.layout.k(), last)?;
        if last > self.allocated {
            return Err(EcError::Outside { what: "parity row", got: last, limit: self.allocated });
        }
        check_memory(&self.layout, self.group, &self.stripes, &self.data, self.parity.readable(), |layout| {
            layout.parity_span(self.allocated, self.group, last - 1, &self.stripes).end
        })
    }
}

impl DecodeJob<'_> {
    /// Whether plan, layout and memory fit together, and every missing symbol is part of the message.
    pub fn check(&self) -> Result<(), EcError> {
        let last = self.plan.rows().last().map_or(0, |&row| usize::from(row) + 1);
        self.plan.check(self.layout.k())?;
        if last > self.allocated {
            return Err(EcError::Outside { what: "parity row", got: last, limit: self.allocated });
        }
        check_memory(
            &self.layout,
            self.group,
            &self.stripes,
            self.data.readable(),
            &self.parity,
            |layout| layout.parity_span(self.allocated, self.group, last - 1, &self.stripes).end,
        )?;
        let stripe = self.stripes.end - 1;
        let absent = |row: usize| self.layout.data_span(self.group, row, &(stripe..stripe + 1)).is_empty();
        match self.plan.missing().iter().map(|&row| row.into()).find(|&row| absent(row)) {
            Some(row) => Err(EcError::NotInMessage { row, stripe }),
            None => Ok(()),
        }
    }
}

fn check_memory(
    layout: &Stripes,
    group: usize,
    stripes: &Range<usize>,
    data: &Readable<'_>,
    parity: &Readable<'_>,
    parity_end: impl Fn(&Stripes) -> usize,
) -> Result<(), EcError> {
    layout.check(group, stripes)?;
    if data.len() != layout.bytes() {
        return Err(EcError::Length { what: "the data", needed: layout.bytes(), got: data.len() });
    }
    let needed = parity_end(layout);
    if parity.len() < needed {
        return Err(EcError::Length { what: "the parity buffer", needed, got: parity.len() });
    }
    if data.overlaps(parity) { Err(EcError::Overlap) } else { Ok(()) }
}
