//! x86-64: nibble look-ups with AVX2, bit matrices with GFNI in 256 and 512 bits.

use super::vector::{MATRICES, NIBBLES, Vector, skew_tables};
use std::arch::x86_64::*;

static NIBBLES_SKEWS: [[[u8; 32]; 256]; 4] = skew_tables(&NIBBLES);

static MATRICES_SKEWS: [[u64; 256]; 4] = skew_tables(&MATRICES);

/// 32 elements, multiplied by two look-ups of 16.
#[derive(Clone, Copy)]
pub(super) struct Nibbles(__m256i);

impl Vector for Nibbles {
    const BYTES: usize = 32;
    const REGISTERS: usize = 16;
    type Entry = [u8; 32];
    type Factor = (__m256i, __m256i);
    const ENTRIES: &'static [[u8; 32]; 256] = &NIBBLES;
    const SKEWS: &'static [[[u8; 32]; 256]; 4] = &NIBBLES_SKEWS;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller; no memory is touched.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the CPU has AVX2 and 32 bytes are readable, promised by the caller.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the CPU has AVX2 and 32 bytes are writable, promised by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(entry: &[u8; 32]) -> Self::Factor {
        let half: *const __m128i = entry.as_ptr().cast();
        // SAFETY: the CPU has AVX2, promised by the caller; an entry has 32 bytes.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(half)),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(half.add(1))),
            )
        }
    }

    #[inline(always)]
    unsafe fn mul(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let l = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, mask));
            let h = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), mask));
            Self(_mm256_xor_si256(l, h))
        }
    }
}

/// 32 elements, multiplied by a bit matrix.
#[derive(Clone, Copy)]
pub(super) struct Affine256(__m256i);

impl Vector for Affine256 {
    const BYTES: usize = 32;
    const REGISTERS: usize = 16;
    type Entry = u64;
    type Factor = __m256i;
    const ENTRIES: &'static [u64; 256] = &MATRICES;
    const SKEWS: &'static [[u64; 256]; 4] = &MATRICES_SKEWS;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller; no memory is touched.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the CPU has AVX2 and 32 bytes are readable, promised by the caller.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the CPU has AVX2 and 32 bytes are writable, promised by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2, promised by the caller.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(entry: &u64) -> __m256i {
        // SAFETY: the CPU has AVX2, promised by the caller.
        unsafe { _mm256_set1_epi64x(entry.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: __m256i) -> Self {
        // SAFETY: the CPU has AVX2 and GFNI, promised by the caller.
        Self(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}

/// 64 elements, multiplied by a bit matrix.
#[derive(Clone, Copy)]
pub(super) struct Affine512(__m512i);

impl Vector for Affine512 {
    const BYTES: usize = 64;
    const REGISTERS: usize = 32;
    type Entry = u64;
    type Factor = __m512i;
    const ENTRIES: &'static [u64; 256] = &MATRICES;
    const SKEWS: &'static [[u64; 256]; 4] = &MATRICES_SKEWS;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has AVX-512F, promised by the caller; no memory is touched.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the CPU has AVX-512F and 64 bytes are readable, promised by the caller.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the CPU has AVX-512F and 64 bytes are writable, promised by the caller.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512F, promised by the caller.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn factor(entry: &u64) -> __m512i {
        // SAFETY: the CPU has AVX-512F, promised by the caller.
        unsafe { _mm512_set1_epi64(entry.cast_signed()) }
    }

    #[inline(always)]
    unsafe fn mul(self, factor: __m512i) -> Self {
        // SAFETY: the CPU has AVX-512F and GFNI, promised by the caller.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}

super::wrap::kernel!(
    /// AVX2.
    Avx2, Nibbles, "avx2"
);
super::wrap::kernel!(
    /// AVX2 and GFNI.
    Gfni, Affine256, "avx2,gfni"
);
super::wrap::kernel!(
    /// AVX-512 (F, BW, VL) and GFNI.
    Avx512, Affine512, "avx512f,avx512bw,avx512vl,gfni"
);
