//! The back end without instructions of its own: words of eight elements, a bit of the operand at a time.

use super::vector::{SHIFTS, Vector, skew_tables};

const ONES: u64 = 0x0101_0101_0101_0101;

static SHIFTS_SKEWS: [[[u8; 8]; 256]; 4] = skew_tables(&SHIFTS);

/// Eight words, which the compiler turns into whatever vectors the target has.
#[derive(Clone, Copy)]
pub(super) struct Words([u64; 8]);

impl Vector for Words {
    const BYTES: usize = 64;
    const REGISTERS: usize = 16;
    type Entry = [u8; 8];
    type Factor = [u64; 8];
    const ENTRIES: &'static [[u8; 8]; 256] = &SHIFTS;
    const SKEWS: &'static [[[u8; 8]; 256]; 4] = &SHIFTS_SKEWS;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; 8])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: 64 bytes are readable, promised by the caller; any bytes are words.
        Self(unsafe { from.cast::<[u64; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: 64 bytes are writable, promised by the caller.
        unsafe { to.cast::<[u64; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] ^ other.0[i]))
    }

    #[inline(always)]
    unsafe fn factor(entry: &[u8; 8]) -> [u64; 8] {
        entry.map(|c| u64::from(c) * ONES)
    }

    #[inline(always)]
    unsafe fn mul(self, factor: [u64; 8]) -> Self {
        let mut sum = [0; 8];
        for (bit, c) in factor.into_iter().enumerate() {
            for (s, x) in sum.iter_mut().zip(self.0) {
                let set = (x >> bit) & ONES;
                // 0xff in each byte whose operand has the bit.
                *s ^= (set << 8).wrapping_sub(set) & c;
            }
        }
        Self(sum)
    }
}

super::wrap::kernel!(
    /// Any machine.
    Portable, Words
);
