//! Erasure codes on one core: gigabytes of data a second, beside a copy of the same data.
//!
//! * `encode`: all parity rows, by each back end of this CPU;
//! * `decode`: the given number of losses, spread over the stripe, plan at hand;
//! * `xor`: one parity row;
//! * `memcpy`: what moving the data costs.
//!
//! Shapes are k + m, with symbols of 4 KiB: 16 stripes at once are contiguous shards of 64 KiB, one stripe is what a receiver
//! rebuilds while packets come in.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sdr_sdk::ec::{Backend, Code, Coder, DecodeJob, DecodePlan, EncodeJob, Fast, Naive, Stripes};
use std::time::Duration;

const PAYLOAD: usize = 4096;

/// Symbols one after another: a power of two apart, they share sets of the caches.
struct Pages(Vec<[u8; PAYLOAD]>);

fn coders() -> Vec<(&'static str, Box<dyn Coder>)> {
    let mut all: Vec<(_, Box<dyn Coder>)> = vec![("naive", Box::new(Naive))];
    for backend in Backend::available() {
        all.push((backend.name(), Box::new(Fast::with(backend).unwrap())));
    }
    all
}

impl Pages {
    fn new(symbols: usize) -> Self {
        Self((0..symbols).map(|i| std::array::from_fn(|at| (i * 31 + at * 7) as u8)).collect())
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.0.as_flattened_mut()
    }
}

fn shapes(c: &mut Criterion) {
    for (k, m, depth, losses) in [
        (8, 2, 16, &[2][..]),
        (16, 4, 16, &[4]),
        (32, 8, 16, &[1, 8]),
        (224, 16, 1, &[1, 4, 16]),
        (224, 16, 16, &[16]),
    ] {
        let layout = Stripes::new(k * depth * PAYLOAD, PAYLOAD, k, depth).unwrap();
        let (mut data, mut parity, mut copy) =
            (Pages::new(k * depth), Pages::new(m * depth), Pages::new(k * depth));
        let mut group = c.benchmark_group(format!("ec/{k}+{m}/{} KiB", depth * PAYLOAD / 1024));
        group.throughput(Throughput::Bytes(layout.bytes() as u64));
        group.bench_function("memcpy", |b| b.iter(|| copy.bytes().copy_from_slice(data.bytes())));
        for (name, coder) in coders() {
            for (what, code, rows) in [("encode", Code::Mds, m), ("xor", Code::Xor, 1)] {
                group.bench_function(format!("{what}/{name}"), |b| {
                    b.iter(|| {
                        let (data, parity) = ((&*data.bytes()).into(), parity.bytes().into());
                        let (stripes, rows) = (0..depth, 0..rows);
                        let job =
                            EncodeJob { code, layout, group: 0, stripes, rows, allocated: m, data, parity };
                        coder.encode(&job).unwrap();
                    })
                });
            }
            for &e in losses {
                let missing: Vec<u8> = (0..e).map(|i| (i * k / e) as u8).collect();
                let rows: Vec<u8> = (0..e as u8).collect();
                let plan = &DecodePlan::new(Code::Mds, k, &missing, &rows).unwrap();
                group.bench_function(format!("decode {e}/{name}"), |b| {
                    b.iter(|| {
                        let (data, parity) = (data.bytes().into(), (&*parity.bytes()).into());
                        let stripes = 0..depth;
                        let job = DecodeJob { plan, layout, group: 0, stripes, allocated: m, parity, data };
                        coder.decode(&job).unwrap();
                    })
                });
            }
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(300));
    targets = shapes
}
criterion_main!(benches);
