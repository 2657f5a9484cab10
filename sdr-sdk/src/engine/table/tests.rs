use super::*;
use crate::bitmap::{Bitmap, Shape};
use crate::types::{MessageId, QueueSet};
use proptest::prelude::*;

const LAYOUT: ImmLayout = ImmLayout::L10_18_4;
const Q: QueueSet = QueueSet(7);

fn spec(slots: u32, generations: u32) -> QueueSpec {
    QueueSpec { layout: LAYOUT, channels: 2, slots, generations, payload: 4096, user_immediate: true }
}

fn at(slots: u32, generations: u32, seq: u64) -> SlotGen {
    SlotGen {
        slot: MessageId((seq % u64::from(slots)) as u16),
        generation: Generation((seq / u64::from(slots) % u64::from(generations)) as u16),
        seq: Seq(seq),
    }
}

fn run(at: SlotGen, first: u32, packets: u32) -> CompletionRun {
    let imm = LAYOUT.encode(at.slot, PacketOffset(first), 0);
    CompletionRun { q: Q, generation: at.generation, imm, packets, user: 0 }
}

/// A table with two workers, each on its own channel.
struct Rig {
    control: SlotControl,
    workers: Vec<WorkerEpoch>,
}

impl Rig {
    fn new(slots: u32, generations: u32, first: u64) -> Self {
        let (epochs, workers) = WorkerEpochs::new(2);
        Self { control: SlotControl::new(&spec(slots, generations), Seq(first), &epochs), workers }
    }

    fn arm(&mut self, at: SlotGen, packets: u32, per_chunk: u8) -> Arc<PacketBits> {
        let bits = Arc::new(PacketBits::new(Shape::new(packets, per_chunk)));
        self.control.arm(at, bits.clone()).unwrap();
        bits
    }

    fn record(&mut self, worker: usize, runs: &[CompletionRun]) {
        let section = self.workers[worker].enter();
        let mut batch = section.batch(self.control.table(), Channel(worker as u8)).unwrap();
        runs.iter().for_each(|r| batch.record(r));
    }

    fn reclaim(&mut self) -> Vec<SlotGen> {
        let mut out = Vec::new();
        self.control.reclaim(|at, _| out.push(at));
        out
    }
}

#[test]
fn a_slot_takes_only_packets_of_its_generation() {
    let mut rig = Rig::new(4, 4, 0);
    let (old, new) = (at(4, 4, 1), at(4, 4, 5));
    let bits = rig.arm(new, 8, 4);
    rig.record(0, &[run(old, 0, 8), run(at(4, 4, 9), 0, 8), run(at(4, 4, 2), 0, 8)]);
    assert_eq!(Bitmap::new(&*bits).count(), 0);
    assert_eq!(rig.control.packets(new, ChunkIndex(0)), 0);
    assert_eq!(rig.control.counters(), EngineCounters { seen: 24, late: 24, ..Default::default() });
    assert_eq!(rig.control.progress(Channel(0)), None, "late packets are no progress");
    rig.record(0, &[run(new, 0, 8)]);
    assert!(Bitmap::new(&*bits).is_full());
}

#[test]
fn the_generation_wraps_and_still_matches() {
    let mut rig = Rig::new(2, 2, u64::MAX - 2);
    for i in 0..12 {
        let now = at(2, 2, (u64::MAX - 1).wrapping_add(i));
        let bits = rig.arm(now, 3, 2);
        let other = SlotGen { generation: Generation(now.generation.0 ^ 1), ..now };
        rig.record(1, &[run(other, 0, 3)]);
        assert_eq!(bits.packets(ChunkIndex(0)), 0);
        rig.record(0, &[run(now, 0, 3)]);
        assert!(Bitmap::new(&*bits).is_full());
        assert_eq!(
            rig.control.progress(Channel(0)).map(|p| p.any),
            Some(Mark { seq: now.seq, offset: PacketOffset(2) })
        );
        assert!(rig.control.close(now));
        assert_eq!(rig.reclaim(), [now]);
    }
    assert_eq!(rig.control.counted(Generation(0)) + rig.control.counted(Generation(1)), 12 * 6);
}

#[test]
fn stamps_hold_the_largest_generation() {
    let mut rig = Rig::new(1, 1 << 16, 0);
    let last = at(1, 1 << 16, 0xffff);
    let bits = rig.arm(last, 1, 1);
    rig.record(0, &[run(at(1, 1 << 16, 0), 0, 1), run(at(1, 1 << 16, 0x7fff), 0, 1)]);
    assert_eq!(bits.packets(ChunkIndex(0)), 0);
    rig.record(0, &[run(last, 0, 1)]);
    assert_eq!(bits.packets(ChunkIndex(0)), 1);
    assert_eq!(rig.control.counted(Generation(0xffff)), 0, "too many generations to count");
}

#[test]
fn a_run_beyond_the_end_sets_nothing_there() {
    let mut rig = Rig::new(4, 1, 0);
    let m = at(4, 1, 2);
    let bits = rig.arm(m, 10, 4);
    rig.record(0, &[run(m, 10, 1), run(m, LAYOUT.max_packets() - 1, u32::MAX), run(m, 8, 5)]);
    assert_eq!(bits.packets(ChunkIndex(2)), 0b11);
    assert_eq!(bits.packets(ChunkIndex(0)) | bits.packets(ChunkIndex(1)), 0);
    assert!(Bitmap::new(&*bits).is_set(ChunkIndex(2)), "the short last chunk is complete");
    let c = rig.control.counters();
    assert_eq!((c.fresh, c.duplicate, c.late), (2, 0, 0));
    assert_eq!(c.out_of_range, 1 + u64::from(u32::MAX) + 3);
    assert_eq!(
        rig.control.progress(Channel(0)).map(|p| p.any),
        Some(Mark { seq: m.seq, offset: PacketOffset(9) })
    );
}

#[test]
fn slots_that_do_not_exist_are_refused_and_ignored() {
    let mut rig = Rig::new(4, 2, 0);
    let nowhere = SlotGen { slot: MessageId(4), generation: Generation(0), seq: Seq(4) };
    let never = SlotGen { slot: MessageId(0), generation: Generation(2), seq: Seq(8) };
    for bad in [nowhere, never] {
        let bits = Arc::new(PacketBits::new(Shape::new(1, 1)));
        assert_eq!(rig.control.arm(bad, bits), Err(SlotError::NoSuchSlot(bad)));
        assert!(!rig.control.close(bad));
        assert_eq!(rig.control.packets(bad, ChunkIndex(0)), 0);
        rig.record(0, &[run(bad, 0, 1)]);
    }
    assert_eq!(rig.control.counters().late, 2);
}

#[test]
fn a_slot_is_armed_once_and_closed_once() {
    let mut rig = Rig::new(1, 2, 0);
    let (a, b) = (at(1, 2, 0), at(1, 2, 1));
    rig.arm(a, 1, 1);
    let spare = || Arc::new(PacketBits::new(Shape::new(1, 1)));
    assert_eq!(rig.control.arm(b, spare()), Err(SlotError::InUse(b)));
    assert!(!rig.control.close(b), "another message");
    assert!(!rig.control.close(SlotGen { seq: Seq(2), ..a }), "same generation, later message");
    assert!(rig.control.close(a));
    assert!(!rig.control.close(a));
    assert_eq!(rig.control.arm(b, spare()), Err(SlotError::InUse(b)), "closed, not yet taken back");
    assert_eq!(rig.reclaim(), [a]);
    assert!(rig.control.arm(b, spare()).is_ok());
}

#[test]
fn bits_come_back_after_the_sections_that_saw_the_slot() {
    let mut rig = Rig::new(2, 1, 0);
    let (a, b) = (at(2, 1, 0), at(2, 1, 1));
    let weak = Arc::downgrade(&rig.arm(a, 64, 64));
    rig.arm(b, 1, 1);
    let table = rig.control.table().clone();
    let [w0, w1] = &mut rig.workers[..] else { unreachable!() };

    let first = w0.enter();
    assert!(rig.control.close(a));
    assert!(rig.control.reclaim(|_, _| panic!("the first worker is inside")));
    let second = w1.enter();
    assert!(rig.control.close(b));
    first.batch(&table, Channel(0)).unwrap().record(&run(a, 0, 1));
    assert!(weak.upgrade().is_some(), "kept for the worker");
    drop(first);
    // The second worker came later than the closing of `a`, but was inside when `b` was closed.
    let mut back = Vec::new();
    assert!(rig.control.reclaim(|at, _| back.push(at)));
    assert_eq!(back, [a]);
    assert!(weak.upgrade().is_none());
    drop(second);
    // In another section by now: what counts is that it left the one it was in.
    let _third = w1.enter();
    assert!(!rig.control.reclaim(|at, _| back.push(at)));
    assert_eq!(back, [a, b]);
}

#[test]
fn a_forgotten_section_delays_and_does_not_break() {
    let mut rig = Rig::new(1, 1, 0);
    rig.arm(at(1, 1, 0), 1, 1);
    std::mem::forget(rig.workers[0].enter());
    assert!(rig.control.close(at(1, 1, 0)));
    assert!(rig.control.reclaim(|_, _| panic!("never left")));
    drop(rig.workers[0].enter());
    assert_eq!(rig.reclaim(), [at(1, 1, 0)]);
}

#[test]
fn tables_of_other_workers_are_refused() {
    let mut rig = Rig::new(1, 1, 0);
    let (_, mut strangers) = WorkerEpochs::new(1);
    assert!(strangers[0].enter().batch(rig.control.table(), Channel(0)).is_none());
    assert!(rig.workers[0].enter().batch(rig.control.table(), Channel(2)).is_none());
}

#[test]
fn dropping_the_table_drops_the_bits_it_holds() {
    let mut rig = Rig::new(2, 1, 0);
    let armed = Arc::downgrade(&rig.arm(at(2, 1, 0), 1, 1));
    let closed = Arc::downgrade(&rig.arm(at(2, 1, 1), 1, 1));
    rig.control.close(at(2, 1, 1));
    let table = rig.control.table().clone();
    drop(rig);
    assert!(armed.upgrade().is_some() && closed.upgrade().is_some());
    drop(table);
    assert!(armed.upgrade().is_none() && closed.upgrade().is_none());
}

#[test]
fn progress_is_in_serial_order_across_the_wraps() {
    for base in [1u64 << 10, 1 << 18, 1 << 31, 1 << 32, 1 << 63, 0] {
        let base = base.wrapping_sub(2);
        let mut rig = Rig::new(8, 1 << 16, base);
        let m = |i: u64| at(8, 1 << 16, base.wrapping_add(i));
        (0..8).for_each(|i| drop(rig.arm(m(i), 10, 4)));
        let mut check = |worker, runs: &[CompletionRun], seq: SlotGen, offset| {
            rig.record(worker, runs);
            let want = Some(Mark { seq: seq.seq, offset: PacketOffset(offset) });
            assert_eq!(rig.control.progress(Channel(worker as u8)).map(|p| p.any), want, "from {base}");
        };
        check(0, &[run(m(1), 3, 2)], m(1), 4);
        check(0, &[run(m(1), 0, 2), run(m(0), 9, 1)], m(1), 4);
        check(0, &[run(m(5), 0, 1), run(m(3), 0, 9)], m(5), 0);
        check(1, &[run(m(0), 0, 1)], m(0), 0);
        check(0, &[run(m(7), 9, 1)], m(7), 9);
    }
}

#[test]
fn user_fragments_of_runs_rotate() {
    for layout in [ImmLayout::L10_18_4, ImmLayout::L8_22_2] {
        for first in 0..40 {
            for packets in 1..40 {
                let all = |f: &dyn Fn(u32) -> u32| (first..first + packets).map(f).fold(0, |a, b| a | b);
                let value =
                    all(&|o| layout.user_fragment(layout.encode(MessageId(0), PacketOffset(o), u32::MAX)));
                let fragments = all(&|o| 1 << (o % layout.fragments()));
                assert_eq!(user_fragments(layout, first, packets), (fragments, value));
            }
        }
    }
}

#[test]
fn fragments_of_packets_beyond_the_end_are_left_out() {
    let mut rig = Rig::new(1, 1, 0);
    let m = at(1, 1, 0);
    let bits = rig.arm(m, 10, 4);
    rig.record(0, &[CompletionRun { user: 0xffff_ffff, ..run(m, 9, 8) }]);
    assert_eq!(bits.user().load(Ordering::Relaxed), 0b10 << 32 | 0xf0);
    rig.record(1, &[CompletionRun { user: 0x1234_56f8, ..run(m, 0, 8) }]);
    assert_eq!(bits.user().load(Ordering::Relaxed), 0xff << 32 | 0x1234_56f8);
}

proptest! {
    /// Every completion is counted once, in one class, on its generation, whatever the immediate says.
    #[test]
    fn counters_add_up(
        batches in prop::collection::vec(
            (0usize..2, prop::collection::vec((any::<u32>(), 0u32..3, 0u32..5, 0u32..30, 0u32..40, 0u8..5), 0..20)),
            0..10,
        ),
    ) {
        let mut rig = Rig::new(4, 4, 0);
        let bits: Vec<_> = (0..3).map(|i| rig.arm(at(4, 4, i), 25, 3)).collect();
        let (mut seen, mut generations) = (0, [0; 4]);
        for (worker, runs) in batches {
            let runs: Vec<_> = runs
                .into_iter()
                .map(|(wild, slot, generation, first, packets, kind)| {
                    let imm = LAYOUT.encode(MessageId(slot as u16), PacketOffset(first), 0);
                    let imm = if kind == 0 { wild } else { imm };
                    // Mostly generation 0, for which the slots are armed; 4 does not exist.
                    let generation = Generation(if kind < 2 { generation as u16 } else { 0 });
                    CompletionRun { q: Q, generation, imm, packets, user: wild }
                })
                .collect();
            for r in &runs {
                seen += u64::from(r.packets);
                if let Some(n) = generations.get_mut(usize::from(r.generation.0)) {
                    *n += u64::from(r.packets);
                }
            }
            rig.record(worker, &runs);
        }
        let c = rig.control.counters();
        prop_assert_eq!(c.seen, seen);
        prop_assert_eq!(c.fresh + c.duplicate + c.late + c.out_of_range, seen);
        let set = |b: &Arc<PacketBits>| (0..9).map(|c| b.packets(ChunkIndex(c)).count_ones()).sum::<u32>();
        prop_assert_eq!(c.fresh, bits.iter().map(set).map(u64::from).sum::<u64>());
        for (g, n) in generations.into_iter().enumerate() {
            prop_assert_eq!(rig.control.counted(Generation(g as u16)), n);
        }
    }
}
