//! The matrix path: several targets in one pass over the sources.
//!
//! Sums stay in registers while sources pass by, so sources are read once a group of targets, from the first cache after the
//! first group.

#![expect(
    clippy::needless_range_loop,
    reason = "indices of arrays of registers: unrolled, and one for several arrays"
)]

use super::Product;
use super::vector::Vector;

/// Most targets a pass.
const WIDE: usize = 8;

/// Sources that are read side by side: more would thrash the sets of the first cache and the address translation when
/// symbols are a power of two apart. Sums wait in the scratch between passes.
const PASS: usize = 16;

/// # Safety
/// As for [`Kernel::product`](super::Kernel::product).
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(p: &Product<'_>) {
    let Some(factors) = p.factors else {
        // SAFETY: passed on.
        unsafe { sum::<V>(p) };
        return;
    };
    let mut row = 0;
    while row < p.targets.len() {
        // SAFETY: passed on; `row` and the rows after it that each call takes are targets.
        unsafe {
            // As many sums as registers hold beside operands and a factor.
            row += match (p.targets.len() - row, V::REGISTERS >= 32) {
                (1, _) => rows::<V, 1, 8>(p, factors, row),
                (2, true) => rows::<V, 2, 8>(p, factors, row),
                (2, false) => rows::<V, 2, 4>(p, factors, row),
                (3, true) => rows::<V, 3, 4>(p, factors, row),
                (3, false) => rows::<V, 3, 2>(p, factors, row),
                (WIDE.., true) => rows::<V, WIDE, 2>(p, factors, row),
                (_, true) => rows::<V, 4, 4>(p, factors, row),
                (_, false) => rows::<V, 4, 2>(p, factors, row),
            };
        }
    }
}

/// Targets `row..row + R`, `U` vectors at a time and the rest one by one. Gives `R`.
///
/// # Safety
/// As for [`run`]; those targets exist, and R is at most [`WIDE`].
#[inline(always)]
unsafe fn rows<V: Vector, const R: usize, const U: usize>(
    p: &Product<'_>,
    factors: &[u8],
    row: usize,
) -> usize {
    let many = p.len - p.len % (U * V::BYTES);
    let mut first = 0;
    loop {
        let end = (first + PASS).min(p.sources.len());
        let pass = Pass { factors, row, first, end };
        for at in (0..many).step_by(U * V::BYTES) {
            // SAFETY: passed on; `at` leaves room for U vectors.
            unsafe { columns::<V, R, U>(p, &pass, at) };
        }
        for at in (many..p.len).step_by(V::BYTES) {
            // SAFETY: passed on; `len` is a multiple of the vector's length.
            unsafe { columns::<V, R, 1>(p, &pass, at) };
        }
        if end == p.sources.len() {
            return R;
        }
        first = end;
    }
}

/// Sources `first..end` for the targets from `row` on.
struct Pass<'a> {
    factors: &'a [u8],
    row: usize,
    first: usize,
    end: usize,
}

/// # Safety
/// As for [`rows`]; `at` leaves room for U vectors.
#[inline(always)]
unsafe fn columns<V: Vector, const R: usize, const U: usize>(p: &Product<'_>, pass: &Pass<'_>, at: usize) {
    // SAFETY: all addresses are below `len` of symbols good for `len` bytes, or of the scratch, which holds WIDE such lines.
    // There is a factor for each source and target, and a start for each target unless there is none at all: promised
    // by who built `p`.
    unsafe {
        let mut sum = [[V::zero(); U]; R];
        for r in 0..R {
            let from = match pass.first {
                0 if p.start.is_empty() => break,
                0 => *p.start.get_unchecked(pass.row + r),
                _ => p.scratch.add(r * p.len).cast_const(),
            };
            for u in 0..U {
                sum[r][u] = V::load(from.add(at + u * V::BYTES));
            }
        }
        let stride = p.targets.len();
        let mut factors = pass.factors.as_ptr().wrapping_add(pass.first * stride + pass.row);
        for &source in p.sources.get_unchecked(pass.first..pass.end) {
            let mut x = [V::zero(); U];
            for u in 0..U {
                x[u] = V::load(source.add(at + u * V::BYTES));
            }
            for r in 0..R {
                let factor = V::factor(&V::ENTRIES[usize::from(*factors.add(r))]);
                for u in 0..U {
                    sum[r][u] = sum[r][u].add(x[u].mul(factor));
                }
            }
            factors = factors.wrapping_add(stride);
        }
        let last = pass.end == p.sources.len();
        for r in 0..R {
            let to = if last { *p.targets.get_unchecked(pass.row + r) } else { p.scratch.add(r * p.len) };
            for u in 0..U {
                sum[r][u].store(to.add(at + u * V::BYTES));
            }
        }
    }
}

/// All factors one, one target.
///
/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn sum<V: Vector>(p: &Product<'_>) {
    const U: usize = 8;
    let many = p.len - p.len % (U * V::BYTES);
    for at in (0..many).step_by(U * V::BYTES) {
        // SAFETY: passed on; `at` leaves room for U vectors.
        unsafe { sum_columns::<V, U>(p, at) };
    }
    for at in (many..p.len).step_by(V::BYTES) {
        // SAFETY: passed on; `len` is a multiple of the vector's length.
        unsafe { sum_columns::<V, 1>(p, at) };
    }
}

/// # Safety
/// As for [`columns`].
#[inline(always)]
unsafe fn sum_columns<V: Vector, const U: usize>(p: &Product<'_>, at: usize) {
    // SAFETY: as in `columns`.
    unsafe {
        let mut sum = [V::zero(); U];
        if let Some(&start) = p.start.first() {
            for u in 0..U {
                sum[u] = V::load(start.add(at + u * V::BYTES));
            }
        }
        // Eight streams, half a kibibyte of each in turn: that is what the prefetcher follows best.
        let (eights, rest) = p.sources.as_chunks::<8>();
        for eight in eights {
            for u in 0..U {
                // In pairs: eight loads after one another would wait for one sum.
                for q in [0, 2, 4, 6] {
                    let first = V::load(eight[q].add(at + u * V::BYTES));
                    let second = V::load(eight[q + 1].add(at + u * V::BYTES));
                    sum[u] = sum[u].add(first.add(second));
                }
            }
        }
        for &source in rest {
            for u in 0..U {
                sum[u] = sum[u].add(V::load(source.add(at + u * V::BYTES)));
            }
        }
        for &target in p.targets {
            for u in 0..U {
                sum[u].store(target.add(at + u * V::BYTES));
            }
        }
    }
}
