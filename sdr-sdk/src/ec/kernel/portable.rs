//! The back end without instructions of its own: a table look-up a byte.

use super::vector::{Vector, skew_tables};
use crate::ec::gf256::PRODUCTS;

/// The row of products of each constant.
static ROWS: [&[u8; 256]; 256] = {
    let mut t = [&PRODUCTS[0]; 256];
    let mut c = 0;
    while c < 256 {
        t[c] = &PRODUCTS[c];
        c += 1;
    }
    t
};

static ROW_SKEWS: [[&[u8; 256]; 256]; 4] = skew_tables(&ROWS);

/// 64 elements, which the compiler adds with whatever vectors the target has.
#[derive(Clone, Copy)]
pub(super) struct Bytes([u8; 64]);

impl Vector for Bytes {
    const BYTES: usize = 64;
    const REGISTERS: usize = 16;
    type Entry = &'static [u8; 256];
    type Factor = &'static [u8; 256];
    const ENTRIES: &'static [&'static [u8; 256]; 256] = &ROWS;
    const SKEWS: &'static [[&'static [u8; 256]; 256]; 4] = &ROW_SKEWS;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 64])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: 64 bytes are readable, promised by the caller; any bytes are elements.
        Self(unsafe { from.cast::<[u8; 64]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: 64 bytes are writable, promised by the caller.
        unsafe { to.cast::<[u8; 64]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }

    #[inline(always)]
    unsafe fn factor(entry: &Self::Entry) -> Self::Factor {
        entry
    }

    #[inline(always)]
    unsafe fn mul(self, factor: Self::Factor) -> Self {
        Self(self.0.map(|x| factor[usize::from(x)]))
    }
}

super::wrap::kernel!(
    /// Any machine.
    Portable, Bytes
);
