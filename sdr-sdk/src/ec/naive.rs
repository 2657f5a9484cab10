//! The oracle as a coder: copies a tile of each symbol, multiplies by table, copies the result out. No unsafe code.

#![forbid(unsafe_code)]

use super::gf256::mul_add;
use super::{Code, Coder, DecodeJob, EcError, EncodeJob};

/// Bytes of each symbol that are worked on at a time.
const TILE: usize = 1024;

/// Codes with the tables of [`gf256`](super::gf256): a row and a symbol at a time, on any machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naive;

impl Coder for Naive {
    fn encode(&self, job: &EncodeJob<'_>) -> Result<(), EcError> {
        job.check()?;
        let matrix = matrix(job.code, job.layout.k(), job.rows.clone());
        let mut sums = vec![[0; TILE]; job.rows.len()];
        let mut tile = [0; TILE];
        for piece in job.layout.pieces(job.group, &job.stripes) {
            for at in piece.at.clone().step_by(TILE) {
                let len = TILE.min(piece.at.end - at);
                let tile = &mut tile[..len];
                sums.fill([0; TILE]);
                for j in 0..piece.rows {
                    job.data.read(job.layout.data_span(job.group, j, &job.stripes).start + at, tile)?;
                    for (sum, row) in sums.iter_mut().zip(&matrix) {
                        mul_add(sum, tile, row[j]);
                    }
                }
                for (sum, row) in sums.iter().zip(job.rows.clone()) {
                    let span = job.layout.parity_span(job.allocated, job.group, row, &job.stripes);
                    job.parity.write(span.start + at, &sum[..len])?;
                }
            }
        }
        Ok(())
    }

    fn decode(&self, job: &DecodeJob<'_>) -> Result<(), EcError> {
        job.check()?;
        let plan = job.plan;
        let matrix = matrix(plan.code(), job.layout.k(), plan.rows().iter().map(|&row| row.into()));
        let mut equations = vec![[0; TILE]; plan.rows().len()];
        let mut tile = [0; TILE];
        for piece in job.layout.pieces(job.group, &job.stripes) {
            for at in piece.at.clone().step_by(TILE) {
                let len = TILE.min(piece.at.end - at);
                let tile = &mut tile[..len];
                for (equation, &row) in equations.iter_mut().zip(plan.rows()) {
                    let span = job.layout.parity_span(job.allocated, job.group, row.into(), &job.stripes);
                    job.parity.read(span.start + at, &mut equation[..len])?;
                }
                for j in (0..piece.rows).filter(|&j| !plan.missing().contains(&(j as u8))) {
                    job.data
                        .readable()
                        .read(job.layout.data_span(job.group, j, &job.stripes).start + at, tile)?;
                    for (equation, row) in equations.iter_mut().zip(&matrix) {
                        mul_add(equation, tile, row[j]);
                    }
                }
                for (lost, &row) in plan.missing().iter().enumerate() {
                    // A row that has ended is known to be zero, and has no memory.
                    if usize::from(row) >= piece.rows {
                        break;
                    }
                    tile.fill(0);
                    for (eq, equation) in equations.iter().enumerate() {
                        mul_add(tile, equation, plan.weight(lost, eq));
                    }
                    job.data
                        .write(job.layout.data_span(job.group, row.into(), &job.stripes).start + at, tile)?;
                }
            }
        }
        Ok(())
    }
}

/// Rows of the code's matrix; rows that it does not have were refused before.
fn matrix(code: Code, k: usize, rows: impl Iterator<Item = usize>) -> Vec<Vec<u8>> {
    rows.map(|row| (0..k).map(|j| code.coefficient(k, row, j).unwrap_or(0)).collect()).collect()
}
