//! The additive FFT: a block of parity rows at 2 to 3 multiplications a symbol, whatever the number of rows.
//!
//! Each block of data is taken to coefficients of the polynomial through it, coefficients are summed over the blocks, and the
//! sum is evaluated at the points of the rows. A pass takes 8 or 16 sources, more would thrash the sets of the first cache when
//! symbols are a power of two apart; sums wait in the scratch between passes.

#![expect(
    clippy::needless_range_loop,
    reason = "indices of arrays of registers: unrolled, and one for several arrays"
)]

use super::Transform;
use super::vector::Vector;

/// # Safety
/// As for [`Kernel::transform`](super::Kernel::transform).
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(t: &Transform<'_>) {
    // SAFETY: passed on.
    unsafe {
        match t.block {
            2 => block::<V, 2, 2, 4>(t),
            4 => block::<V, 4, 2, 2>(t),
            8 => block::<V, 8, 1, 1>(t),
            16 => block::<V, 16, 1, 1>(t),
            _ => {}
        }
    }
}

/// # Safety
/// As for [`run`]; `M` is the block, `U` vectors and `N` blocks are worked on at once.
#[inline(always)]
unsafe fn block<V: Vector, const M: usize, const U: usize, const N: usize>(t: &Transform<'_>) {
    // SAFETY: passed on.
    unsafe {
        if t.scales.is_empty() { passes::<V, M, U, N, false>(t) } else { passes::<V, M, U, N, true>(t) }
    }
}

/// # Safety
/// As for [`block`]; `SCALED` when there are scales.
#[inline(always)]
unsafe fn passes<V: Vector, const M: usize, const U: usize, const N: usize, const SCALED: bool>(
    t: &Transform<'_>,
) {
    let blocks = t.sources.len() / M;
    let mut first = 0;
    while first < blocks {
        // SAFETY: passed on; as many blocks are left.
        first += unsafe {
            if blocks - first >= N {
                pass::<V, M, U, N, SCALED>(t, first, first + N == blocks)
            } else {
                pass::<V, M, U, 1, SCALED>(t, first, first + 1 == blocks)
            }
        };
    }
}

/// Adds blocks `first..first + N` to the sums, all of them when it is the `last` pass. Gives `N`.
///
/// # Safety
/// As for [`passes`]; there are such blocks.
#[inline(always)]
unsafe fn pass<V: Vector, const M: usize, const U: usize, const N: usize, const SCALED: bool>(
    t: &Transform<'_>,
    first: usize,
    last: bool,
) -> usize {
    let many = t.len - t.len % (U * V::BYTES);
    for at in (0..many).step_by(U * V::BYTES) {
        // SAFETY: passed on; `at` leaves room for U vectors.
        unsafe { columns::<V, M, U, N, SCALED>(t, first, last, at) };
    }
    for at in (many..t.len).step_by(V::BYTES) {
        // SAFETY: passed on; `len` is a multiple of the vector's length.
        unsafe { columns::<V, M, 1, N, SCALED>(t, first, last, at) };
    }
    N
}

/// # Safety
/// As for [`pass`]; `at` leaves room for U vectors.
#[inline(always)]
unsafe fn columns<V: Vector, const M: usize, const U: usize, const N: usize, const SCALED: bool>(
    t: &Transform<'_>,
    first: usize,
    last: bool,
    at: usize,
) {
    // SAFETY: all addresses are below `len` of symbols good for `len` bytes, or of the scratch, which holds M such lines.
    // Blocks of the pass have M sources each and, if scaled, a scale each.
    unsafe {
        let skews = V::SKEWS.get_unchecked(M.trailing_zeros() as usize - 1).as_ptr();
        // The first block is the sum, rather than added to zeros: 16 sums beside 16 values would not fit the registers.
        let mut sum = coefficients::<V, M, U, SCALED>(t, first, at);
        for b in first + 1..first + N {
            let v = coefficients::<V, M, U, SCALED>(t, b, at);
            for q in 0..M {
                for u in 0..U {
                    sum[q][u] = sum[q][u].add(v[q][u]);
                }
            }
        }
        if first > 0 {
            for q in 0..M {
                for u in 0..U {
                    sum[q][u] = sum[q][u].add(V::load(t.scratch.add(q * t.len + at + u * V::BYTES)));
                }
            }
        }
        if !last {
            for q in 0..M {
                for u in 0..U {
                    sum[q][u].store(t.scratch.add(q * t.len + at + u * V::BYTES));
                }
            }
            return;
        }
        forward::<V, M, U, SCALED>(&mut sum, skews.add(t.coset * M));
        for q in 0..M {
            let (target, plus) = (*t.targets.get_unchecked(q), *t.plus.get_unchecked(q));
            if target.is_null() {
                continue;
            }
            for u in 0..U {
                if !plus.is_null() {
                    sum[q][u] = sum[q][u].add(V::load(plus.add(at + u * V::BYTES)));
                }
                sum[q][u].store(target.add(at + u * V::BYTES));
            }
        }
    }
}

/// Block `b` as coefficients.
///
/// # Safety
/// As for [`columns`]; there is such a block.
#[inline(always)]
unsafe fn coefficients<V: Vector, const M: usize, const U: usize, const SCALED: bool>(
    t: &Transform<'_>,
    b: usize,
    at: usize,
) -> [[V; U]; M] {
    // SAFETY: as in `columns`. Skews of coset b + 1 start at index (b + 1) M, below 256 for every block of a stripe.
    unsafe {
        let skews = V::SKEWS.get_unchecked(M.trailing_zeros() as usize - 1).as_ptr();
        let mut v = [[V::zero(); U]; M];
        for q in 0..M {
            let source = t.sources.get_unchecked(b * M + q).add(at);
            for u in 0..U {
                v[q][u] = V::load(source.add(u * V::BYTES));
            }
        }
        inverse::<V, M, U>(&mut v, skews.add((b + 1) * M));
        if SCALED {
            let scale = V::factor(&V::ENTRIES[usize::from(*t.scales.get_unchecked(b))]);
            for q in 0..M {
                for u in 0..U {
                    v[q][u] = v[q][u].mul(scale);
                }
            }
        }
        v
    }
}

/// Values at the points of a coset to coefficients.
///
/// # Safety
/// The CPU has the instruction set; M - 1 skews are readable.
#[inline(always)]
unsafe fn inverse<V: Vector, const M: usize, const U: usize>(v: &mut [[V; U]; M], mut skew: *const V::Entry) {
    let mut half = 1;
    while half < M {
        let mut q = 0;
        while q < M {
            // SAFETY: M - 1 skews are read in total; the instruction set is promised by the caller.
            unsafe {
                let factor = V::factor(&*skew);
                skew = skew.add(1);
                for e in q..q + half {
                    for u in 0..U {
                        v[e + half][u] = v[e + half][u].add(v[e][u]);
                        v[e][u] = v[e][u].add(v[e + half][u].mul(factor));
                    }
                }
            }
            q += 2 * half;
        }
        half *= 2;
    }
}

/// Coefficients to values at the points of a coset; the first skew of each level is zero at coset 0, where `AWAY` is false.
///
/// # Safety
/// As for [`inverse`].
#[inline(always)]
unsafe fn forward<V: Vector, const M: usize, const U: usize, const AWAY: bool>(
    v: &mut [[V; U]; M],
    skew: *const V::Entry,
) {
    let mut half = M / 2;
    while half > 0 {
        let mut q = 0;
        while q < M {
            // SAFETY: the level has M / (2 half) skews from M - M / half, below M - 1 in all; the instruction set is promised
            // by the caller.
            unsafe {
                let factor = V::factor(&*skew.add(M - M / half + q / (2 * half)));
                for e in q..q + half {
                    for u in 0..U {
                        if AWAY || q > 0 {
                            v[e][u] = v[e][u].add(v[e + half][u].mul(factor));
                        }
                        v[e + half][u] = v[e + half][u].add(v[e][u]);
                    }
                }
            }
            q += 2 * half;
        }
        half /= 2;
    }
}
