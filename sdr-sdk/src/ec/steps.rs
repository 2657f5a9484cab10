//! How some parity rows are best computed: block by block, each by additive FFT or by matrix.

#![forbid(unsafe_code)]

use super::Code;
use super::code::{row_point, subspace};
use super::gf256::div;

/// One call of a kernel. Outputs are indices into the list of rows that was asked for.
#[derive(Debug)]
pub(super) enum Step {
    /// All rows are sums with factors one.
    Sum,
    /// A product with some rows of the matrix.
    Matrix { outputs: Vec<usize>, factors: Vec<u8> },
    /// A block of rows; see [`Transform`](super::kernel::Transform).
    Fft { block: usize, coset: usize, scales: Vec<u8>, outputs: Vec<Option<usize>> },
}

/// What to do for `rows` (ascending, of the code) from the data rows `present` (ascending).
pub(super) fn steps(code: Code, k: usize, rows: impl Iterator<Item = usize>, present: &[usize]) -> Vec<Step> {
    if code == Code::Xor {
        return vec![Step::Sum];
    }
    let block = Code::block(k);
    let mut steps = Vec::new();
    let mut by_matrix = Vec::new();
    let mut rows = rows.enumerate().peekable();
    while let Some((output, row)) = rows.next() {
        let mut group = vec![(output, row)];
        while let Some(next) = rows.next_if(|(_, next)| next / block == row / block) {
            group.push(next);
        }
        // Data has the cosets from the first on.
        let free = usize::from(row_point(block, row)) / block > k.div_ceil(block) || row < block;
        if free && group.len() >= worth_a_transform(block) {
            steps.push(transform(block, k, &group));
        } else {
            by_matrix.extend(group);
        }
    }
    if !by_matrix.is_empty() {
        let factor = |j: usize, row: usize| code.coefficient(k, row, j).unwrap_or(0);
        let factors = present.iter().flat_map(|&j| by_matrix.iter().map(move |&(_, row)| factor(j, row)));
        let factors = factors.collect();
        steps.push(Step::Matrix {
            outputs: by_matrix.into_iter().map(|(output, _)| output).collect(),
            factors,
        });
    }
    steps
}

/// Rows from which on a transform, which always computes the whole block, is cheaper than the matrix.
fn worth_a_transform(block: usize) -> usize {
    match block {
        2 => 2,
        4 => 3,
        8 => 4,
        _ => 6,
    }
}

fn transform(block: usize, k: usize, rows: &[(usize, usize)]) -> Step {
    let mut outputs = vec![None; block];
    let mut coset = 0;
    for &(output, row) in rows {
        let point = usize::from(row_point(block, row));
        coset = point / block;
        outputs[point % block] = Some(output);
    }
    let at_rows = subspace(block, (coset * block) as u8);
    let scale = |b: usize| {
        let at_data = subspace(block, (b * block) as u8);
        div(at_data, at_data ^ at_rows)
    };
    let scales = if coset == 0 { Vec::new() } else { (1..=k.div_ceil(block)).map(scale).collect() };
    Step::Fft { block, coset, scales, outputs }
}
