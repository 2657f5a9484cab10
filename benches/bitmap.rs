//! From completions to chunk bytes: packets a second on one core.
//!
//! A message of 4,096 packets is recorded in runs of 1, 16 or 64 packets (completions of single packets up to whole
//! batches), with 1, 16 or 64 packets a chunk. Each iteration clears and then records the message, for everybody:
//!
//! * `engine`: what `HostEngine` does for each run (immediate, slot, generation, counters), then as `packet_bits`;
//! * `packet_bits`: the atomic bitmap alone;
//! * `bitvec`: what one would write instead, for a single thread only;
//! * `limit`: plain stores of the same bytes without any question asked.

use bitvec::vec::BitVec;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sdr_sdk::bitmap::{Bitmap, HostBitmap, PacketBits, Shape};
use sdr_sdk::engine::host::Worker;
use sdr_sdk::engine::table::{SlotControl, WorkerEpochs};
use sdr_sdk::fabric::{CompletionRun, QueueSpec};
use sdr_sdk::{Channel, Generation, ImmLayout, MessageId, PacketOffset, QueueSet, Seq, SlotGen};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const PACKETS: u32 = 4096;

struct BitVecs {
    packets: BitVec,
    chunks: BitVec,
    per_chunk: usize,
}

impl BitVecs {
    fn new(per_chunk: u32) -> Self {
        let n = PACKETS as usize;
        let per_chunk = per_chunk as usize;
        Self { packets: BitVec::repeat(false, n), chunks: BitVec::repeat(false, n / per_chunk), per_chunk }
    }

    fn record(&mut self, first: usize, n: usize) {
        self.packets[first..first + n].fill(true);
        for c in first / self.per_chunk..=(first + n - 1) / self.per_chunk {
            if self.packets[c * self.per_chunk..(c + 1) * self.per_chunk].all() {
                self.chunks.set(c, true);
            }
        }
    }
}

/// One worker and one slot; the same use of it is armed and retired over and over.
struct Engine {
    control: SlotControl,
    worker: Worker,
    runs: Vec<CompletionRun>,
    bits: Option<Arc<PacketBits>>,
}

impl Engine {
    const AT: SlotGen = SlotGen { slot: MessageId(0), generation: Generation(0), seq: Seq(0) };

    fn new(shape: Shape, run: u32) -> Self {
        let layout = ImmLayout::default();
        let spec = QueueSpec {
            layout,
            channels: 1,
            slots: 1024,
            generations: 4,
            payload: 4096,
            user_immediate: true,
        };
        let (epochs, mut handles) = WorkerEpochs::new(1);
        let control = SlotControl::new(&spec, Seq(0), &epochs);
        let mut worker = Worker::new(Channel(0), handles.remove(0));
        worker.add(QueueSet(0), control.table().clone());
        let one = |first| CompletionRun {
            q: QueueSet(0),
            generation: Generation(0),
            imm: layout.encode(MessageId(0), PacketOffset(first), 0),
            packets: run,
            user: 0,
        };
        let runs = (0..PACKETS).step_by(run as usize).map(one).collect();
        Self { control, worker, runs, bits: Some(Arc::new(PacketBits::new(shape))) }
    }

    fn message(&mut self) -> u64 {
        let mut bits = self.bits.take().unwrap();
        Arc::get_mut(&mut bits).unwrap().clear();
        self.control.arm(Self::AT, bits).unwrap();
        // At most 64 runs a batch, as a poll of a completion queue would find them.
        self.runs.chunks(64).for_each(|batch| self.worker.record(batch));
        self.control.close(Self::AT);
        self.control.reclaim(|_, b| self.bits = Some(b));
        self.control.counters().fresh
    }
}

fn record(c: &mut Criterion) {
    for per_chunk in [1u32, 16, 64] {
        for run in [1u32, 16, 64] {
            let shape = Shape::new(PACKETS, per_chunk as u8);
            let mut g = c.benchmark_group(format!("record/{per_chunk} a chunk/runs of {run}"));
            g.throughput(Throughput::Elements(u64::from(PACKETS)));
            let mut engine = Engine::new(shape, run);
            g.bench_function("engine", |b| b.iter(|| engine.message()));
            let mut bits = PacketBits::new(shape);
            g.bench_function("packet_bits", |b| {
                b.iter(|| {
                    bits.clear();
                    for first in (0..PACKETS).step_by(run as usize) {
                        black_box(bits.record(black_box(first), run));
                    }
                })
            });
            let mut vecs = BitVecs::new(per_chunk);
            g.bench_function("bitvec", |b| {
                b.iter(|| {
                    vecs.packets.fill(false);
                    vecs.chunks.fill(false);
                    for first in (0..PACKETS as usize).step_by(run as usize) {
                        vecs.record(black_box(first), run as usize);
                    }
                    black_box(&vecs.chunks);
                })
            });
            let (mut words, mut bytes) = ([0u64; PACKETS as usize / 64], vec![0u8; shape.chunks() as usize]);
            g.bench_function("limit", |b| {
                b.iter(|| {
                    words.fill(0);
                    bytes.fill(0);
                    for first in (0..PACKETS).step_by(run as usize) {
                        let first = black_box(first);
                        words[first as usize / 64] = u64::MAX;
                        let (from, to) = (first / per_chunk, (first + run).div_ceil(per_chunk));
                        bytes[from as usize..to as usize].fill(1);
                    }
                    black_box((&words, &bytes));
                })
            });
            g.finish();
        }
    }
}

/// What a scheme does on each step: 256 MiB in 64 KiB chunks, one in a hundred missing.
fn read(c: &mut Criterion) {
    let shape = Shape::new(1 << 16, 16);
    let bits = PacketBits::new(shape);
    for c in (0..shape.chunks()).filter(|c| c % 100 != 7) {
        bits.record(c * 16, 16);
    }
    let view: Arc<dyn HostBitmap> = Arc::new(bits);
    let mut g = c.benchmark_group("read/4096 chunks");
    g.throughput(Throughput::Elements(u64::from(shape.chunks())));
    g.bench_function("count", |b| b.iter(|| Bitmap::new(black_box(&*view)).count()));
    g.bench_function("missing", |b| b.iter(|| Bitmap::new(black_box(&*view)).missing().count()));
    let mut out = BitVec::with_capacity(shape.chunks() as usize);
    g.bench_function("snapshot_into", |b| b.iter(|| Bitmap::new(black_box(&*view)).snapshot_into(&mut out)));
    g.finish();

    let mut g = c.benchmark_group("one 64-packet receive");
    let small = Shape::new(64, 16);
    g.bench_function("allocate", |b| b.iter(|| PacketBits::new(black_box(small))));
    let clear = |bits: &mut PacketBits| bits.clear();
    g.bench_function("clear", |b| {
        b.iter_batched_ref(|| PacketBits::new(small), clear, BatchSize::NumIterations(1000))
    });
    g.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = record, read
}
criterion_main!(benches);
