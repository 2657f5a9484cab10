//! The coefficients: MDS, nested, and what the additive FFT computes.

use crate::ec::code::{data_point, row_point, subspace};
use crate::ec::gf256::{div, inv, mul};
use crate::ec::{Code, DecodePlan, MAX_DATA};
use proptest::prelude::*;
use proptest::sample::subsequence;

/// Gauss-Jordan; `None` when singular.
fn inverse(mut a: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let n = a.len();
    let mut b: Vec<Vec<u8>> = (0..n).map(|i| (0..n).map(|j| u8::from(i == j)).collect()).collect();
    for col in 0..n {
        let pivot = (col..n).find(|&r| a[r][col] != 0)?;
        a.swap(col, pivot);
        b.swap(col, pivot);
        let f = inv(a[col][col]);
        for m in [&mut a, &mut b] {
            m[col].iter_mut().for_each(|v| *v = mul(*v, f));
        }
        for r in (0..n).filter(|&r| r != col) {
            let f = a[r][col];
            for m in [&mut a, &mut b] {
                let pivot = m[col].clone();
                m[r].iter_mut().zip(pivot).for_each(|(v, p)| *v ^= mul(f, p));
            }
        }
    }
    Some(b)
}

fn submatrix(k: usize, rows: &[u8], columns: &[u8]) -> Vec<Vec<u8>> {
    let entry = |r: &u8, j: &u8| Code::Mds.coefficient(k, usize::from(*r), usize::from(*j)).unwrap();
    rows.iter().map(|r| columns.iter().map(|j| entry(r, j)).collect()).collect()
}

#[test]
fn points_of_a_stripe_all_differ() {
    for k in 1..=MAX_DATA {
        let block = Code::block(k);
        let data = (0..k).map(|j| data_point(block, j));
        let mut points: Vec<u8> = data.chain((0..256 - k).map(|r| row_point(block, r))).collect();
        points.sort_unstable();
        points.dedup();
        assert_eq!(points.len(), 256, "k = {k}");
        assert!((0..k).all(|j| subspace(block, data_point(block, j)) != 0), "k = {k}");
    }
}

#[test]
fn blocks_of_the_shapes_in_use() {
    assert_eq!([8, 16, 32, 224].map(Code::block), [2, 4, 8, 16]);
    assert_eq!([1, 9, 33, 64].map(Code::block), [2, 4, 16, 16]);
}

#[test]
fn rows_are_values_of_the_polynomial_through_a_block() {
    for k in [1, 5, 8, 13, 16, 31, 32, 64, 200, 224] {
        let block = Code::block(k);
        for j in 0..k {
            let y = data_point(block, j);
            let coset: Vec<u8> = (0..block).map(|w| (usize::from(y) & !(block - 1) | w) as u8).collect();
            for row in 0..32 {
                let x = row_point(block, row);
                // Weight of y in the value at x of the polynomial through the coset's points.
                let others = coset.iter().filter(|&&p| p != y);
                let lagrange = others.fold(1, |w, &p| mul(w, div(x ^ p, y ^ p)));
                let scale = match subspace(block, x) {
                    0 => 1,
                    at_x => div(subspace(block, y), subspace(block, y) ^ at_x),
                };
                assert_eq!(
                    Code::Mds.coefficient(k, row, j),
                    Some(mul(scale, lagrange)),
                    "k = {k}, row {row}, symbol {j}"
                );
            }
        }
    }
}

fn pattern() -> impl Strategy<Value = (usize, Vec<u8>, Vec<u8>)> {
    (1..=MAX_DATA).prop_flat_map(|k| {
        let limit = k.min(256 - k).min(40);
        (1..=limit).prop_flat_map(move |e| {
            let columns = subsequence((0..k as u8).collect::<Vec<_>>(), e);
            let rows = subsequence((0..(256 - k) as u8).collect::<Vec<_>>(), e);
            (Just(k), columns, rows)
        })
    })
}

proptest! {
    #[test]
    fn square_submatrices_are_invertible_and_a_plan_is_their_inverse((k, columns, rows) in pattern()) {
        let plan = DecodePlan::new(Code::Mds, k, &columns, &rows).unwrap();
        let oracle = inverse(submatrix(k, &rows, &columns)).expect("singular");
        for (lost, line) in oracle.iter().enumerate() {
            for (eq, value) in line.iter().enumerate() {
                prop_assert_eq!(plan.weight(lost, eq), *value);
            }
        }
    }
}
