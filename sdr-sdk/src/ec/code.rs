//! Which parity a stripe has: XOR, or an MDS code whose rows an additive FFT can compute.
//!
//! # The MDS code
//!
//! A generalised Cauchy code, that is, a Reed-Solomon code in systematic form. Every symbol of a stripe has a point of
//! GF(2^8), and all points differ. With B a power of two that depends on k ([`Code::block`]):
//!
//! ```text
//! data symbol j     y_j = B + j
//! parity row r < B  x_r = r
//! parity row r >= B x_r = 255 - (r - B)          downwards from the top, so that all k + rows <= 256 are in use
//! coefficient       a(r, j) = v_j / (x_r + y_j)      v_j = S(y_j) / S'
//! ```
//!
//! where S(x) = product of (x + w) over w in V = {0, .., B - 1}, and S' = product of w over w in V without 0. V is closed
//! under addition, so S is a linear map with kernel V, constant on each coset y + V, with the constant derivative S'.
//!
//! **Why it is MDS.** Deleting rows and columns leaves a matrix 1 / (x_r + y_j) with columns multiplied by v_j. The first is
//! a Cauchy matrix, invertible when all x and y differ; v_j is not zero, for y_j is outside V. So each square submatrix
//! is invertible, and any e lost data symbols follow from any e parity rows.
//!
//! **Why it is nested.** A coefficient depends on k (through B), its row and its column. Rows sent later are further rows
//! of the same matrix.
//!
//! **Why these points and scalings.** Take a block of B data symbols whose points are the coset a + V, and let P be the
//! polynomial of degree below B through them. By Lagrange, with S(x) + S(a) as the product over the coset and S' as its
//! derivative everywhere,
//!
//! ```text
//! P(x) = sum over y of d_y (S(x) + S(a)) / (S' (x + y))
//! ```
//!
//! At x in V, S(x) = 0 and S(a) = S(y): the weights are exactly a(r, j). So rows 0 to B - 1 are the sum over all blocks
//! of P at the points of V: an inverse additive FFT a block (Lin, Chung and Han, "Novel polynomial basis and its application
//! to Reed-Solomon erasure codes", FOCS 2014), a sum of coefficients, one FFT. Further rows are blocks too: rows i B to i B + B - 1
//! have the points of the coset c + V with c = 256 - i B, in descending order. There P weighs d_y with (S(c) + S(a)) / (S' (x + y)),
//! which is a(r, j) after the coefficients of the block were multiplied by S(a) / (S(a) + S(c)), one constant a block.
//! (A coset that holds data points as well has no such constant; k + rows comes close to 256 then.)
//!
//! Missing data symbols at the end of a stripe are zeros.

#![forbid(unsafe_code)]

use super::EcError;
use super::gf256::{div, mul};

/// Most data symbols a stripe: leaves 16 rows to send and 16 in reserve.
pub const MAX_DATA: usize = 224;

/// How parity follows from data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Any e lost symbols follow from any e parity rows, up to k + rows = 256.
    Mds,
    /// One parity row, the sum of the data.
    Xor,
}

impl Code {
    /// Parity rows that exist for `k` data symbols; none when `k` is not 1 to [`MAX_DATA`].
    pub const fn max_rows(self, k: usize) -> usize {
        match self {
            _ if k == 0 || k > MAX_DATA => 0,
            Self::Mds => 256 - k,
            Self::Xor => 1,
        }
    }

    /// What data symbol `j` is multiplied by in parity row `row`; `None` when the code has no such row or symbol.
    pub fn coefficient(self, k: usize, row: usize, j: usize) -> Option<u8> {
        if row >= self.max_rows(k) || j >= k {
            return None;
        }
        Some(match self {
            Self::Xor => 1,
            Self::Mds => {
                let block = Self::block(k);
                let y = data_point(block, j);
                div(column_scale(block, y), row_point(block, row) ^ y)
            }
        })
    }

    /// Rows of the MDS code that come out of one FFT: a quarter of `k` as a power of two, 2 to 16.
    ///
    /// The first block is the cheapest, and the schemes send about a quarter of a short stripe as parity, 16 rows of
    /// a long one.
    pub const fn block(k: usize) -> usize {
        let quarter = k.div_ceil(4).next_power_of_two();
        if quarter < 2 {
            2
        } else if quarter > 16 {
            16
        } else {
            quarter
        }
    }

    /// Refuses a `k` or a number of rows that the code does not have.
    pub(crate) fn check(self, k: usize, rows: usize) -> Result<(), EcError> {
        let limit = self.max_rows(k);
        match limit {
            0 => Err(EcError::DataSymbols { k }),
            _ if rows > limit => Err(EcError::Rows { code: self, k, rows, limit }),
            _ => Ok(()),
        }
    }
}

/// y of data symbol `j`.
pub(crate) const fn data_point(block: usize, j: usize) -> u8 {
    (block + j) as u8
}

/// x of parity row `row`.
pub(crate) const fn row_point(block: usize, row: usize) -> u8 {
    if row < block { row as u8 } else { (255 + block - row) as u8 }
}

/// v of the data symbol at `y`.
pub(crate) fn column_scale(block: usize, y: u8) -> u8 {
    SCALES[(block.trailing_zeros() as usize + 3) % 4][y as usize]
}

/// All v, for blocks of 2, 4, 8 and 16.
static SCALES: [[u8; 256]; 4] = {
    let mut t = [[0; 256]; 4];
    let mut size = 0;
    while size < 4 {
        let mut y = 0;
        while y < 256 {
            t[size][y] = div(subspace(2 << size, y as u8), subspace_slope(2 << size));
            y += 1;
        }
        size += 1;
    }
    t
};

/// S(x), the product of x + w over the first `block` elements.
pub(crate) const fn subspace(block: usize, x: u8) -> u8 {
    let (mut p, mut w) = (1, 0);
    while w < block {
        p = mul(p, x ^ w as u8);
        w += 1;
    }
    p
}

/// S', the product of the first `block` elements without zero.
const fn subspace_slope(block: usize) -> u8 {
    let (mut p, mut w) = (1, 1);
    while w < block {
        p = mul(p, w as u8);
        w += 1;
    }
    p
}
