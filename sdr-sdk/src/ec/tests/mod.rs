//! Every coder against the definition of the codes.

mod errors;
mod losses;
mod matrix;

use super::gf256::mul;
use super::{Backend, Code, Coder, DecodeJob, DecodePlan, EcError, EncodeJob, Fast, Naive, Place, Stripes};
use std::ops::Range;

/// What a byte has that nobody should have written.
const UNTOUCHED: u8 = 0xa5;

/// Every coder that this machine can run.
fn coders() -> Vec<(&'static str, Box<dyn Coder>)> {
    let mut all: Vec<(_, Box<dyn Coder>)> = vec![("naive", Box::new(Naive))];
    for backend in Backend::available() {
        all.push((backend.name(), Box::new(Fast::with(backend).unwrap())));
    }
    all
}

/// A message with its parity buffer.
#[derive(Clone)]
struct Message {
    code: Code,
    layout: Stripes,
    allocated: usize,
    data: Vec<u8>,
    parity: Vec<u8>,
}

impl Message {
    fn new(code: Code, layout: Stripes, allocated: usize) -> Self {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64 ^ layout.bytes() as u64;
        let data = (0..layout.bytes()).map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        });
        let parity = vec![UNTOUCHED; layout.parity_bytes(allocated).unwrap()];
        Self { code, layout, allocated, data: data.collect(), parity }
    }

    fn encode(
        &mut self,
        coder: &dyn Coder,
        group: usize,
        rows: Range<usize>,
        stripes: Range<usize>,
    ) -> Result<(), EcError> {
        coder.encode(&EncodeJob {
            code: self.code,
            layout: self.layout,
            group,
            stripes,
            rows,
            allocated: self.allocated,
            data: self.data.as_slice().into(),
            parity: self.parity.as_mut_slice().into(),
        })
    }

    fn encode_all(&mut self, coder: &dyn Coder) {
        for group in 0..self.layout.groups() {
            self.encode(coder, group, 0..self.allocated, 0..self.layout.depth()).unwrap();
        }
    }

    fn decode(
        &mut self,
        coder: &dyn Coder,
        plan: &DecodePlan,
        group: usize,
        stripes: Range<usize>,
    ) -> Result<(), EcError> {
        coder.decode(&DecodeJob {
            plan,
            layout: self.layout,
            group,
            stripes,
            allocated: self.allocated,
            parity: self.parity.as_slice().into(),
            data: self.data.as_mut_slice().into(),
        })
    }

    /// Byte `at` of a data symbol; zero where the message has none.
    fn byte(&self, place: Place, at: usize) -> u8 {
        let symbol = (place.group * self.layout.k() + place.row) * self.layout.depth() + place.stripe;
        self.data.get(symbol * self.layout.payload() + at).copied().unwrap_or(0)
    }

    /// A parity symbol by its definition.
    fn expected(&self, place: Place) -> Vec<u8> {
        let coefficient = |row| self.code.coefficient(self.layout.k(), place.row, row).unwrap();
        let coefficients: Vec<u8> = (0..self.layout.k()).map(coefficient).collect();
        let terms = |at| {
            let terms = coefficients.iter().enumerate();
            terms.fold(0, |sum, (row, &c)| sum ^ mul(c, self.byte(Place { row, ..place }, at)))
        };
        (0..self.layout.payload()).map(terms).collect()
    }

    fn symbol(&self, place: Place) -> Range<usize> {
        let start = self.layout.packet(place).unwrap() * self.layout.payload();
        start..(start + self.layout.payload()).min(self.data.len())
    }

    fn parity_symbol(&self, place: Place) -> Range<usize> {
        let start = self.layout.parity(self.allocated, place) * self.layout.payload();
        start..start + self.layout.payload()
    }
}
