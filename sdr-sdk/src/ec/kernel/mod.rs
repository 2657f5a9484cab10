//! Arithmetic on columns of symbols: two algorithms, written once over [`vector::Vector`], compiled once a back end.
//!
//! A kernel knows addresses and constants; which symbols they are, and that they are inside their memory, is the business of
//! [`fast`](super::fast). Invariant: what is read and written goes through raw pointers, and each target byte is written
//! once, with its final value.

#[cfg(target_arch = "aarch64")]
pub(super) mod neon;
mod portable;
mod product;
mod transform;
mod vector;
mod wrap;
#[cfg(target_arch = "x86_64")]
pub(super) mod x86;

pub(super) use portable::Portable;

/// Lengths of columns that kernels take are multiples of this; every vector divides it.
pub(super) const QUANTUM: usize = 64;

/// `target r = start r + sum over j of factor(j, r) * source j`.
pub(super) struct Product<'a> {
    /// Sources.
    pub sources: &'a [*const u8],
    /// `factors[j * targets.len() + r]`, more than needed is fine; or none: one target, all factors one.
    pub factors: Option<&'a [u8]>,
    /// One a target, or none at all: zero.
    pub start: &'a [*const u8],
    /// Targets.
    pub targets: &'a [*mut u8],
    /// `8 * len` bytes to work in.
    pub scratch: *mut u8,
    /// Bytes; a multiple of [`QUANTUM`].
    pub len: usize,
}

/// A block of parity rows by additive FFT; see [`code`](super::code) for what it computes.
pub(super) struct Transform<'a> {
    /// Symbols a block: 2, 4, 8 or 16.
    pub block: usize,
    /// Data symbols in order, whole blocks of them.
    pub sources: &'a [*const u8],
    /// What each block of data is multiplied by; empty for the block of rows at coset 0, where nothing is.
    pub scales: &'a [u8],
    /// Coset of the rows, in blocks from point 0.
    pub coset: usize,
    /// What is added to a row; null for nothing. `block` of them, as the targets, in the order of points.
    pub plus: &'a [*const u8],
    /// Where rows go; null for a row that nobody wants.
    pub targets: &'a [*mut u8],
    /// `block * len` bytes to work in.
    pub scratch: *mut u8,
    /// Bytes; a multiple of [`QUANTUM`].
    pub len: usize,
}

/// The arithmetic of one back end.
pub(super) trait Kernel: Send + Sync {
    /// # Safety
    /// The CPU has what the back end needs. Sources, starts, targets are good for `len` bytes; targets and
    /// the scratch overlap nothing.
    unsafe fn product(&self, p: &Product<'_>);

    /// # Safety
    /// As for [`product`](Self::product); the scratch is disjoint from everything else.
    unsafe fn transform(&self, t: &Transform<'_>);
}
