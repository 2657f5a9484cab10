//! AArch64: nibble look-ups with NEON, which every such CPU has.

use super::vector::{NIBBLES, Vector, skew_tables};
use std::arch::aarch64::*;

static NIBBLES_SKEWS: [[[u8; 32]; 256]; 4] = skew_tables(&NIBBLES);

/// 16 elements, multiplied by two look-ups of 16.
#[derive(Clone, Copy)]
pub(super) struct Look(uint8x16_t);

impl Vector for Look {
    const BYTES: usize = 16;
    const REGISTERS: usize = 32;
    type Entry = [u8; 32];
    type Factor = (uint8x16_t, uint8x16_t);
    const ENTRIES: &'static [[u8; 32]; 256] = &NIBBLES;
    const SKEWS: &'static [[[u8; 32]; 256]; 4] = &NIBBLES_SKEWS;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: every AArch64 CPU of this target has NEON; no memory is touched.
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: 16 bytes are readable, promised by the caller.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: 16 bytes are writable, promised by the caller.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as in `zero`.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(entry: &[u8; 32]) -> Self::Factor {
        // SAFETY: an entry has 32 bytes.
        unsafe { (vld1q_u8(entry.as_ptr()), vld1q_u8(entry.as_ptr().add(16))) }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: as in `zero`.
        unsafe {
            let l = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(0x0f)));
            Self(veorq_u8(l, vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0))))
        }
    }
}

super::wrap::kernel!(
    /// NEON.
    Neon, Look
);
