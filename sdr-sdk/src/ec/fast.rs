//! The coder of the data path: a tile of columns at a time, so that what is worked on stays in the cache.
//!
//! Parity is a list of steps, by FFT or by matrix, over a tile. Rebuilding is the same list, over the data that is there, added
//! to the parity that arrived, and then the plan's inverse over these few sums: the cost of a loss, not of the stripe.

use super::backend::Backend;
use super::columns::{Columns, Scratch, tile};
use super::kernel::{Kernel, Product, Transform};
use super::steps::{Step, steps};
use super::{Code, Coder, DecodeJob, EcError, EncodeJob};

/// Codes with the instructions that the CPU has.
#[derive(Clone, Copy)]
pub struct Fast {
    backend: Backend,
    kernel: &'static dyn Kernel,
}

impl Fast {
    /// With the fastest back end, unless [`BACKEND_VARIABLE`](super::BACKEND_VARIABLE) names another.
    pub fn new() -> Result<Self, EcError> {
        Self::with(Backend::chosen()?)
    }

    /// With a given back end.
    pub fn with(backend: Backend) -> Result<Self, EcError> {
        let kernel = backend.kernel().ok_or_else(|| Backend::lacking(backend.name()))?;
        Ok(Self { backend, kernel })
    }

    /// The back end in use.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Runs `steps` on columns whose addresses are given; sums go to `targets`.
    ///
    /// # Safety
    /// All addresses are good for `len` bytes, at most a tile and a multiple of the quantum; targets overlap nothing else.
    unsafe fn sums(
        &self,
        steps: &[Step],
        columns: &Columns,
        targets: &[*mut u8],
        scratch: &mut Scratch,
        len: usize,
    ) {
        for step in steps {
            match step {
                Step::Sum => {
                    let p = Product {
                        sources: &columns.sources,
                        factors: None,
                        start: &columns.start,
                        targets,
                        scratch: scratch.line(0),
                        len,
                    };
                    // SAFETY: promised by the caller.
                    unsafe { self.kernel.product(&p) };
                }
                Step::Matrix { outputs, factors } => {
                    let start: Vec<_> =
                        outputs.iter().filter_map(|&i| columns.start.get(i).copied()).collect();
                    let targets: Vec<_> = outputs.iter().map(|&i| targets[i]).collect();
                    let p = Product {
                        sources: &columns.sources,
                        factors: Some(factors),
                        start: &start,
                        targets: &targets,
                        scratch: scratch.line(0),
                        len,
                    };
                    // SAFETY: promised by the caller. `factors` was made for these rows and all data rows that can be
                    // present; sources are the first of those.
                    unsafe { self.kernel.product(&p) };
                }
                Step::Fft { block, coset, scales, outputs } => {
                    let mut plus = [std::ptr::null(); 16];
                    let mut wanted = [std::ptr::null_mut(); 16];
                    for (q, output) in outputs.iter().enumerate() {
                        if let Some(i) = *output {
                            plus[q] = columns.start.get(i).copied().unwrap_or(std::ptr::null());
                            wanted[q] = targets[i];
                        }
                    }
                    let t = Transform {
                        block: *block,
                        sources: &columns.padded,
                        scales,
                        coset: *coset,
                        plus: &plus,
                        targets: &wanted,
                        scratch: scratch.line(0),
                        len,
                    };
                    // SAFETY: promised by the caller. Padded sources are whole blocks, of symbols or of zeros of a tile's
                    // length; there is a scale for each block; the scratch has 16 lines of a tile.
                    unsafe { self.kernel.transform(&t) };
                }
            }
        }
    }
}

impl std::fmt::Debug for Fast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fast({})", self.backend)
    }
}

impl Coder for Fast {
    fn encode(&self, job: &EncodeJob<'_>) -> Result<(), EcError> {
        job.check()?;
        let (layout, k) = (&job.layout, job.layout.k());
        let all: Vec<usize> = (0..k).collect();
        let steps = steps(job.code, k, job.rows.clone(), &all);
        let (tile, mut scratch) = tile(job.code, k);
        for piece in layout.pieces(job.group, &job.stripes) {
            let part = |start: usize| start + piece.at.start..start + piece.at.end;
            let mut columns = Columns::new(Code::block(k));
            for row in 0..piece.rows {
                let span = layout.data_span(job.group, row, &job.stripes);
                columns.source(row, job.data.pointer(part(span.start))?);
            }
            for row in job.rows.clone() {
                let span = layout.parity_span(job.allocated, job.group, row, &job.stripes);
                columns.targets.push(job.parity.pointer(part(span.start))?);
            }
            let work = |columns: &Columns, len| {
                // SAFETY: sources and targets are inside their memory for the whole piece, checked by `pointer`, and
                // data and parity are disjoint, checked by the job; or they are the tile's own staging.
                unsafe { self.sums(&steps, columns, &columns.targets, &mut scratch, len) }
            };
            // SAFETY: as above.
            unsafe { columns.tiles(piece.at.len(), tile, work) };
        }
        Ok(())
    }

    fn decode(&self, job: &DecodeJob<'_>) -> Result<(), EcError> {
        job.check()?;
        let (plan, layout, k) = (job.plan, &job.layout, job.layout.k());
        let present: Vec<usize> = plan.present().collect();
        let e = plan.rows().len();
        // One loss needs no sums to work on: the row is the missing symbol but for a factor.
        let direct = e == 1;
        let rows = plan.rows().iter().map(|&row| row.into());
        let steps = if direct { Vec::new() } else { steps(plan.code(), k, rows, &present) };
        let (tile, mut scratch) = tile(plan.code(), k);
        let sums = if direct { 0 } else { e };
        let mut equations = Scratch::new(sums, tile);
        let sums: Vec<*mut u8> = (0..sums).map(|eq| equations.line(eq)).collect();
        let terms: Vec<*const u8> = sums.iter().map(|sum| sum.cast_const()).collect();
        for piece in layout.pieces(job.group, &job.stripes) {
            let part = |start: usize| start + piece.at.start..start + piece.at.end;
            let mut columns = Columns::new(Code::block(k));
            for &row in present.iter().take_while(|&&row| row < piece.rows) {
                let span = layout.data_span(job.group, row, &job.stripes);
                columns.source(row, job.data.readable().pointer(part(span.start))?);
            }
            for &row in plan.rows() {
                let span = layout.parity_span(job.allocated, job.group, row.into(), &job.stripes);
                columns.start.push(job.parity.pointer(part(span.start))?);
            }
            // A row that has ended is known to be zero, and has no memory.
            for &row in plan.missing().iter().take_while(|&&row| usize::from(row) < piece.rows) {
                let span = layout.data_span(job.group, row.into(), &job.stripes);
                columns.targets.push(job.data.pointer(part(span.start))?);
            }
            let found = columns.targets.len();
            let factors: Option<Vec<u8>> = match plan.code() {
                _ if found == 0 => continue,
                Code::Xor => None,
                Code::Mds if direct => {
                    // Parity is one more source.
                    columns.sources.append(&mut columns.start);
                    Some(plan.single(columns.sources.len() - 1))
                }
                Code::Mds => Some(plan.weights(found)),
            };
            let work = |columns: &Columns, len| {
                let (sources, start, targets) = (&columns.sources, &columns.start, &columns.targets);
                // SAFETY: sources, parity and targets are inside their memory for the whole piece, checked by `pointer`;
                // targets are other symbols than the sources, and parity is disjoint from data, checked by the job; or they
                // are the tile's own staging. The lines of the equations are our own.
                unsafe {
                    if direct {
                        self.kernel.product(&Product {
                            sources,
                            factors: factors.as_deref(),
                            start,
                            targets,
                            scratch: scratch.line(0),
                            len,
                        });
                    } else {
                        self.sums(&steps, columns, &sums, &mut scratch, len);
                        self.kernel.product(&Product {
                            sources: &terms,
                            factors: factors.as_deref(),
                            start: &[],
                            targets,
                            scratch: scratch.line(0),
                            len,
                        });
                    }
                }
            };
            // SAFETY: as above.
            unsafe { columns.tiles(piece.at.len(), tile, work) };
        }
        Ok(())
    }
}
