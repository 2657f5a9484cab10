//! How lost data follows from received parity, worked out once for a pattern of losses.
//!
//! Parity row r minus the data that arrived is a sum over the lost symbols alone, so e rows give e equations, whose matrix
//! is a square submatrix of the code's. A plan is its inverse: e^2 numbers at a cost that depends on e, not on the stripe.
//! It holds for every stripe with the same k and losses, and is worth keeping while a burst lasts.

#![forbid(unsafe_code)]

use super::code::{column_scale, data_point, row_point};
use super::gf256::{inv, mul};
use super::{Code, EcError};

/// The inverse for one pattern of losses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodePlan {
    code: Code,
    k: usize,
    missing: Box<[u8]>,
    rows: Box<[u8]>,
    /// Row by row: what each equation contributes to each missing symbol.
    inverse: Box<[u8]>,
}

impl DecodePlan {
    /// For stripes of `k` data symbols that lack the data rows `missing`, with parity rows `rows` at hand: as many, both
    /// ascending. Which rows are used when more arrived is the caller's choice.
    pub fn new(code: Code, k: usize, missing: &[u8], rows: &[u8]) -> Result<Self, EcError> {
        code.check(k, 0)?;
        if missing.is_empty() {
            return Err(EcError::Zero { what: "the number of missing symbols" });
        }
        if missing.len() != rows.len() {
            return Err(EcError::Losses { missing: missing.len(), rows: rows.len() });
        }
        for list in [missing, rows] {
            if let Some(pair) = list.windows(2).find(|pair| pair[0] >= pair[1]) {
                return Err(EcError::Order { row: pair[1].into() });
            }
        }
        if let Some(&row) = missing.last().filter(|&&row| usize::from(row) >= k) {
            return Err(EcError::Outside { what: "data row", got: row.into(), limit: k });
        }
        let highest = rows.last().map_or(0, |&row| usize::from(row) + 1);
        code.check(k, highest)?;
        let inverse = match code {
            Code::Xor => [1].into(),
            Code::Mds => cauchy_inverse(k, missing, rows),
        };
        Ok(Self { code, k, missing: missing.into(), rows: rows.into(), inverse })
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Data symbols a stripe.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Data rows that are rebuilt, ascending.
    pub fn missing(&self) -> &[u8] {
        &self.missing
    }

    /// Parity rows that are used, ascending.
    pub fn rows(&self) -> &[u8] {
        &self.rows
    }

    /// What equation `eq` (an index into [`rows`](Self::rows)) is multiplied by for missing symbol `lost` (an index into
    /// [`missing`](Self::missing)).
    pub(crate) fn weight(&self, lost: usize, eq: usize) -> u8 {
        self.inverse[lost * self.rows.len() + eq]
    }

    /// Data rows that are not missing, ascending.
    pub(crate) fn present(&self) -> impl Iterator<Item = usize> {
        let mut missing = self.missing.iter().map(|&row| usize::from(row)).peekable();
        (0..self.k).filter(move |row| missing.next_if_eq(row).is_none())
    }

    /// The inverse as factors of a product with the first `found` missing symbols as targets.
    pub(crate) fn weights(&self, found: usize) -> Vec<u8> {
        let of = move |eq| (0..found).map(move |lost| self.weight(lost, eq));
        (0..self.rows.len()).flat_map(of).collect()
    }

    /// For one missing symbol: what each of the first `present` data rows contributes, and at the end what the parity row
    /// does.
    pub(crate) fn single(&self, present: usize) -> Vec<u8> {
        let weight = self.inverse[0];
        let row = self.rows[0].into();
        let of = |j| mul(weight, self.code.coefficient(self.k, row, j).unwrap_or(0));
        self.present().take(present).map(of).chain([weight]).collect()
    }

    /// Refuses to be used for another code.
    pub(crate) fn check(&self, k: usize) -> Result<(), EcError> {
        if self.k == k { Ok(()) } else { Err(EcError::Plan { plan: self.k, job: k }) }
    }
}

/// Inverse of the submatrix v_j / (x_r + y_j), in closed form (Knuth, The Art of Computer Programming, volume 1,
/// section 1.2.3, exercise 41; signs do not matter in characteristic two):
///
/// ```text
/// b(j, r) = prod_s (x_r + y_s) prod_s (x_s + y_j)
///           / (v_j (x_r + y_j) prod_{s != r} (x_r + x_s) prod_{s != j} (y_j + y_s))
/// ```
fn cauchy_inverse(k: usize, missing: &[u8], rows: &[u8]) -> Box<[u8]> {
    let block = Code::block(k);
    let x: Vec<u8> = rows.iter().map(|&row| row_point(block, row.into())).collect();
    let y: Vec<u8> = missing.iter().map(|&j| data_point(block, j.into())).collect();
    // The product of distances from `from` to all of `to`, without the zero distance to itself.
    let distances = |from: u8, to: &[u8]| to.iter().filter(|&&p| p != from).fold(1, |f, &p| mul(f, from ^ p));
    let of_row: Vec<u8> = x.iter().map(|&r| mul(distances(r, &y), inv(distances(r, &x)))).collect();
    let of_symbol =
        y.iter().map(|&j| mul(distances(j, &x), inv(mul(column_scale(block, j), distances(j, &y)))));
    y.iter()
        .zip(of_symbol)
        .flat_map(|(&j, f)| x.iter().zip(&of_row).map(move |(&r, &g)| mul(mul(f, g), inv(r ^ j))))
        .collect()
}
