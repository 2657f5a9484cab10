//! How stripes lie in a message: depth D interleaved stripes of k symbols form a group, groups follow one another.
//!
//! Data symbol i, one packet, is in group i / (k D), row (i mod (k D)) / D, stripe i mod D. Neighbouring packets belong
//! to different stripes, so a burst of D losses costs each stripe one symbol; and stripes [a, b) of one row are contiguous
//! memory, so that they are coded together as if they were one stripe with longer symbols.
//!
//! The last symbol may be short and the last rows of the last group may have no symbols: the code takes zeros there.

#![forbid(unsafe_code)]

use super::{Code, EcError};
use std::ops::Range;

/// Where the symbols of protected data and of its parity lie. Lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    bytes: usize,
    payload: usize,
    k: usize,
    depth: usize,
}

/// Coordinates of a data symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Group of `depth` stripes.
    pub group: usize,
    /// Row within the stripe, 0 to k - 1.
    pub row: usize,
    /// Stripe within the group, 0 to depth - 1.
    pub stripe: usize,
}

/// Columns of a group in which the same rows have data: bytes `at` of each of the rows `0..rows`, nothing in later ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes from the start of the range of stripes.
    pub at: Range<usize>,
    /// Rows with data there.
    pub rows: usize,
}

impl Stripes {
    /// `bytes` of data in symbols of `payload` bytes, `k` symbols a stripe, `depth` stripes a group.
    pub fn new(bytes: usize, payload: usize, k: usize, depth: usize) -> Result<Self, EcError> {
        Code::Mds.check(k, 0)?;
        for (what, value) in [("data", bytes), ("the payload of a symbol", payload), ("the depth", depth)] {
            if value == 0 {
                return Err(EcError::Zero { what });
            }
        }
        Ok(Self { bytes, payload, k, depth })
    }

    /// Bytes of data.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of every symbol but the last.
    pub fn payload(&self) -> usize {
        self.payload
    }

    /// Data symbols a stripe.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Stripes a group.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Data symbols in total.
    pub fn packets(&self) -> usize {
        self.bytes.div_ceil(self.payload)
    }

    /// Groups, the last of which may lack symbols.
    pub fn groups(&self) -> usize {
        self.packets().div_ceil(self.k.saturating_mul(self.depth))
    }

    /// Where data symbol `packet` belongs.
    pub fn place(&self, packet: usize) -> Place {
        let group = self.k.saturating_mul(self.depth);
        Place { group: packet / group, row: packet % group / self.depth, stripe: packet % self.depth }
    }

    /// Number of a data symbol; `None` when the message has no such symbol.
    pub fn packet(&self, place: Place) -> Option<usize> {
        (place.row < self.k && place.stripe < self.depth)
            .then(|| self.index(self.k, place.group, place.row, place.stripe))
            .filter(|&packet| packet < self.packets())
    }

    /// Index of parity symbol (group, row, stripe) in a parity buffer with `allocated` rows a group.
    pub fn parity(&self, allocated: usize, place: Place) -> usize {
        self.index(allocated, place.group, place.row, place.stripe)
    }

    /// Bytes of a parity buffer for all groups, with `allocated` rows each; `None` beyond the address space.
    pub fn parity_bytes(&self, allocated: usize) -> Option<usize> {
        self.groups().checked_mul(allocated)?.checked_mul(self.depth)?.checked_mul(self.payload)
    }

    /// Bytes of data that stripes `stripes` have in `row`, cut off at the end of the data.
    pub(crate) fn data_span(&self, group: usize, row: usize, stripes: &Range<usize>) -> Range<usize> {
        let first = self.index(self.k, group, row, stripes.start).saturating_mul(self.payload);
        let end = first.saturating_add(stripes.len().saturating_mul(self.payload));
        first.min(self.bytes)..end.min(self.bytes)
    }

    /// Bytes of the parity buffer that stripes `stripes` have in parity row `row`, as if it had no end.
    pub(crate) fn parity_span(
        &self,
        allocated: usize,
        group: usize,
        row: usize,
        stripes: &Range<usize>,
    ) -> Range<usize> {
        let first = self.index(allocated, group, row, stripes.start).saturating_mul(self.payload);
        first..first.saturating_add(stripes.len().saturating_mul(self.payload))
    }

    /// `stripes` of `group`, cut where the number of rows with data changes: at most one row ends inside the range.
    pub(crate) fn pieces(&self, group: usize, stripes: &Range<usize>) -> impl Iterator<Item = Piece> {
        let width = stripes.len().saturating_mul(self.payload);
        let full = (0..self.k).take_while(|&row| self.data_span(group, row, stripes).len() == width).count();
        let cut = if full < self.k { self.data_span(group, full, stripes).len() } else { 0 };
        [Piece { at: 0..cut, rows: full + 1 }, Piece { at: cut..width, rows: full }]
            .into_iter()
            .filter(|piece| !piece.at.is_empty())
    }

    /// Refuses coordinates that the layout does not have.
    pub(crate) fn check(&self, group: usize, stripes: &Range<usize>) -> Result<(), EcError> {
        if group >= self.groups() {
            return Err(EcError::Outside { what: "group", got: group, limit: self.groups() });
        }
        if stripes.is_empty() {
            return Err(EcError::Zero { what: "the number of stripes" });
        }
        if stripes.end > self.depth {
            return Err(EcError::Outside { what: "stripe", got: stripes.end, limit: self.depth });
        }
        Ok(())
    }

    fn index(&self, rows: usize, group: usize, row: usize, stripe: usize) -> usize {
        group.saturating_mul(rows).saturating_add(row).saturating_mul(self.depth).saturating_add(stripe)
    }
}
