//! What an instruction set has to offer: some bytes at once, XOR, multiplication by a constant.

use crate::ec::code::subspace;
use crate::ec::gf256::{div, mul};

/// A register of field elements.
///
/// Methods are inlined into functions compiled for the instruction set; called elsewhere they would need the CPU's
/// support, hence unsafe.
pub(super) trait Vector: Copy {
    /// Elements; divides [`QUANTUM`](super::QUANTUM).
    const BYTES: usize;
    /// Registers of this kind.
    const REGISTERS: usize;
    /// A constant factor as it lies in memory.
    type Entry: Copy + 'static;
    /// A constant factor in registers.
    type Factor: Copy;
    /// All factors.
    const ENTRIES: &'static [Self::Entry; 256];
    /// The factors of [`skews`], for blocks of 2, 4, 8 and 16.
    const SKEWS: &'static [[Self::Entry; 256]; 4];

    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn zero() -> Self;
    /// # Safety
    /// The CPU has the instruction set; `BYTES` at `from` are readable.
    unsafe fn load(from: *const u8) -> Self;
    /// # Safety
    /// The CPU has the instruction set; `BYTES` at `to` are writable.
    unsafe fn store(self, to: *mut u8);
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn add(self, other: Self) -> Self;
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn factor(entry: &Self::Entry) -> Self::Factor;
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// Products of each constant with all low nibbles, then with all high nibbles: what a 16-byte table look-up takes.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) static NIBBLES: [[u8; 32]; 256] = {
    let mut t = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            t[c][n] = mul(c as u8, n as u8);
            t[c][16 + n] = mul(c as u8, (n as u8) << 4);
            n += 1;
        }
        c += 1;
    }
    t
};

/// Multiplication by each constant as an 8 x 8 matrix over GF(2): byte 7 - i says which bits of the operand bit i of the
/// product is the sum of.
#[cfg(target_arch = "x86_64")]
pub(super) static MATRICES: [u64; 256] = {
    let mut t = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut bit = 0;
        while bit < 8 {
            let product = mul(c as u8, 1 << bit) as u64;
            let mut i = 0;
            while i < 8 {
                t[c] |= (product >> i & 1) << (8 * (7 - i) + bit);
                i += 1;
            }
            bit += 1;
        }
        c += 1;
    }
    t
};

/// The factors of the butterflies, for transforms of `block` points: those of coset c start at index `c * block`, level after
/// level from single points upwards.
///
/// Butterfly q of level j, over pairs 2^j apart, has the factor s_j(x) / s_j(2^j) at its first point x; s_j is the product
/// over the first 2^j elements (Lin, Chung and Han 2014, section III).
const fn skews(block: usize) -> [u8; 256] {
    let mut t = [0; 256];
    let mut coset = 0;
    while coset < 256 {
        let (mut half, mut i) = (1, coset);
        while half < block {
            let mut x = coset;
            while x < coset + block {
                t[i] = div(subspace(half, x as u8), subspace(half, half as u8));
                x += 2 * half;
                i += 1;
            }
            half *= 2;
        }
        coset += block;
    }
    t
}

/// [`skews`] in the form that a back end multiplies by.
pub(super) const fn skew_tables<E: Copy>(entries: &[E; 256]) -> [[E; 256]; 4] {
    let mut t = [[entries[0]; 256]; 4];
    let mut size = 0;
    while size < 4 {
        let bytes = skews(2 << size);
        let mut i = 0;
        while i < 256 {
            t[size][i] = entries[bytes[i] as usize];
            i += 1;
        }
        size += 1;
    }
    t
}
