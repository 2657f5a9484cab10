use super::*;
use proptest::prelude::*;
use std::sync::Arc;

/// What `PacketBits` must agree with: one flag an offset, none between data and extra, everything else recomputed.
struct Oracle {
    shape: Shape,
    arrived: Vec<Option<bool>>,
}

impl Oracle {
    fn new(shape: Shape) -> Self {
        let mut arrived = vec![Some(false); shape.packets() as usize];
        if shape.extra() > 0 {
            while !arrived.len().is_multiple_of(shape.per_chunk().into()) {
                arrived.push(None);
            }
            arrived.resize(arrived.len() + shape.extra() as usize, Some(false));
        }
        Self { shape, arrived }
    }

    fn chunk(&self, c: u32) -> &[Option<bool>] {
        let p = usize::from(self.shape.per_chunk());
        let from = c as usize * p;
        &self.arrived[from..(from + p).min(self.arrived.len())]
    }

    fn complete(&self) -> Vec<bool> {
        let chunks = self.arrived.len().div_ceil(self.shape.per_chunk().into()) as u32;
        (0..chunks).map(|c| self.chunk(c).iter().all(|b| *b != Some(false))).collect()
    }

    fn record(&mut self, first: u32, packets: u32) -> Recorded {
        let before = self.complete();
        let mut fresh = 0;
        for i in u64::from(first)..u64::from(first) + u64::from(packets) {
            if let Some(Some(flag)) = self.arrived.get_mut(i as usize) {
                fresh += u32::from(!std::mem::replace(flag, true));
            }
        }
        let chunks = self.complete().iter().zip(&before).filter(|(now, before)| now != before).count();
        Recorded { fresh, chunks: chunks as u32 }
    }

    fn bits(&self, c: u32) -> u64 {
        self.chunk(c).iter().enumerate().map(|(i, b)| u64::from(*b == Some(true)) << i).sum()
    }

    fn missing(&self) -> Vec<Range<u32>> {
        let mut out: Vec<Range<u32>> = Vec::new();
        for (i, _) in self.complete().iter().enumerate().filter(|(_, set)| !**set) {
            match out.last_mut() {
                Some(r) if r.end == i as u32 => r.end += 1,
                _ => out.push(i as u32..i as u32 + 1),
            }
        }
        out
    }
}

fn agree(bits: &PacketBits, oracle: &Oracle) -> Result<(), TestCaseError> {
    let complete = oracle.complete();
    let (view, data) = (Bitmap::with_extra(bits), Bitmap::new(bits));
    prop_assert_eq!(oracle.shape.all_chunks() as usize, complete.len());
    let chunks = oracle.shape.packets().div_ceil(oracle.shape.per_chunk().into());
    for c in 0..oracle.shape.all_chunks() {
        prop_assert_eq!(data.is_set(ChunkIndex(c)), c < chunks && complete[c as usize], "chunk {}", c);
        prop_assert_eq!(bits.packets(ChunkIndex(c)), oracle.bits(c), "chunk {}", c);
        prop_assert_eq!(view.is_set(ChunkIndex(c)), complete[c as usize], "chunk {}", c);
    }
    prop_assert_eq!(view.count() as usize, complete.iter().filter(|s| **s).count());
    prop_assert_eq!(view.is_full(), complete.iter().all(|s| *s));
    prop_assert_eq!(view.missing().collect::<Vec<_>>(), oracle.missing());
    let mut snapshot = BitVec::new();
    view.snapshot_into(&mut snapshot);
    prop_assert_eq!(snapshot.iter().map(|b| *b).collect::<Vec<_>>(), complete);
    Ok(())
}

proptest! {
    #[test]
    fn agrees_with_one_flag_a_packet(
        packets in 0u32..700,
        extra in prop_oneof![Just(0u32), 0u32..200],
        per_chunk in 1u8..=64,
        // Dense enough to fill most receives; starts and ends beyond the receive happen.
        runs in prop::collection::vec((0u32..960, prop_oneof![1u32..4, 1u32..200]), 0..80),
    ) {
        let shape = Shape::new(packets, per_chunk).with_extra(extra);
        let bits = PacketBits::new(shape);
        let mut oracle = Oracle::new(shape);
        for (first, n) in runs {
            prop_assert_eq!(bits.record(first, n), oracle.record(first, n));
            prop_assert_eq!(bits.record(first, n), Recorded::default(), "all of it is known now");
        }
        agree(&bits, &oracle)?;
    }

    #[test]
    fn one_at_a_time_in_any_order_publishes_each_chunk_once(
        per_chunk in 1u8..=64,
        order in (1usize..400).prop_flat_map(|n| Just((0..n as u32).collect::<Vec<_>>()).prop_shuffle()),
    ) {
        let shape = Shape::new(order.len() as u32, per_chunk);
        let bits = PacketBits::new(shape);
        let mut oracle = Oracle::new(shape);
        let mut published = 0;
        for p in order {
            let done = bits.record(p, 1);
            prop_assert_eq!(done, oracle.record(p, 1));
            published += done.chunks;
        }
        prop_assert_eq!(published, shape.chunks());
        prop_assert!(Bitmap::new(&bits).is_full());
        agree(&bits, &oracle)?;
    }
}

#[test]
fn runs_at_the_end_of_the_number_range_do_not_overflow() {
    let bits = PacketBits::new(Shape::new(70, 7));
    assert_eq!(bits.record(u32::MAX, u32::MAX), Recorded::default());
    assert_eq!(bits.record(0, 0), Recorded::default());
    assert_eq!(bits.record(69, u32::MAX), Recorded { fresh: 1, chunks: 0 });
    assert_eq!(bits.record(0, u32::MAX), Recorded { fresh: 69, chunks: 10 });
    assert_eq!(bits.packets(ChunkIndex(10)), 0);
    assert_eq!(bits.packets(ChunkIndex(u32::MAX)), 0);
}

#[test]
fn extra_packets_begin_with_a_chunk_and_the_offsets_before_them_are_nothing() {
    let shape = Shape::new(10, 4).with_extra(5);
    assert_eq!((shape.packets(), shape.chunks(), shape.first_extra()), (10, 3, 12));
    assert_eq!((shape.extra(), shape.all_chunks(), shape.end()), (5, 5, 17));
    assert_eq!(shape.inside(8, 6), [8..10, 12..14]);
    let bits = PacketBits::new(shape);
    assert_eq!(bits.record(10, 2), Recorded::default());
    assert_eq!(bits.record(17, u32::MAX), Recorded::default());
    assert_eq!(bits.record(8, 8), Recorded { fresh: 6, chunks: 2 }, "over the hole");
    assert_eq!((bits.packets(ChunkIndex(2)), bits.packets(ChunkIndex(3))), (0b11, 0b1111));
    assert_eq!(bits.record(16, 1), Recorded { fresh: 1, chunks: 1 });
    assert_eq!(bits.record(0, 8), Recorded { fresh: 8, chunks: 2 });
    assert!(Bitmap::new(&bits).is_full() && Bitmap::with_extra(&bits).is_full());
    assert_eq!((Bitmap::new(&bits).count(), Bitmap::with_extra(&bits).count()), (3, 5));
}

#[test]
fn extra_packets_alone_are_a_receive() {
    let bits = PacketBits::new(Shape::new(0, 16).with_extra(3));
    assert!(Bitmap::new(&bits).is_full() && !Bitmap::with_extra(&bits).is_full());
    assert_eq!(bits.record(0, 9), Recorded { fresh: 3, chunks: 1 });
    let near_the_end = Shape::new(u32::MAX, 64).with_extra(u32::MAX);
    assert_eq!(near_the_end.end(), u32::MAX);
    assert!(near_the_end.inside(u32::MAX, u32::MAX).iter().all(Range::is_empty));
}

#[test]
fn a_receive_of_no_packets_is_full() {
    let bits = PacketBits::new(Shape::new(0, 16));
    assert_eq!(bits.record(0, 1), Recorded::default());
    assert!(Bitmap::new(&bits).is_full());
    assert_eq!(Bitmap::new(&bits).missing().next(), None);
    assert!(!Bitmap::new(&bits).is_set(ChunkIndex(0)));
}

#[test]
fn clear_forgets_everything() {
    let mut bits = PacketBits::new(Shape::new(100, 8));
    bits.record(0, 100);
    bits.record_user(0xdead_beef, 0xff);
    bits.clear();
    assert_eq!(Bitmap::new(&bits).count(), 0);
    assert_eq!((0..13).map(|c| bits.packets(ChunkIndex(c))).sum::<u64>(), 0);
    assert_eq!(bits.user().load(Ordering::Relaxed), 0);
    assert_eq!(bits.record(0, 100), Recorded { fresh: 100, chunks: 13 });
}

#[test]
fn user_fragments_add_up() {
    let bits = PacketBits::new(Shape::new(8, 8));
    bits.record_user(0x0000_00ef, 0b11);
    bits.record_user(0x0000_00ef, 0b11);
    bits.record_user(0xdead_be00, 0b1111_1100);
    assert_eq!(bits.user().load(Ordering::Relaxed), 0xff << 32 | 0xdead_beef);
}

#[test]
fn snapshot_overwrites_a_longer_unaligned_vector() {
    let bits: Arc<dyn HostBitmap> = Arc::new(PacketBits::new(Shape::new(3, 1)));
    bits.chunks()[1].store(1, Ordering::Release);
    let source: BitVec = (0..200).map(|_| true).collect();
    let mut out = BitVec::from_bitslice(&source[5..180]);
    let before = out.capacity();
    Bitmap::from(&*bits).snapshot_into(&mut out);
    assert_eq!(out.iter().map(|b| *b).collect::<Vec<_>>(), [false, true, false]);
    assert!(out.capacity() <= before.next_multiple_of(64));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "real threads are what is tested")]
fn four_threads_publish_each_chunk_once() {
    let shape = Shape::new(10_000, 12);
    let bits = Arc::new(PacketBits::new(shape));
    let threads: Vec<_> = (0..4u32)
        .map(|t| {
            let bits = bits.clone();
            std::thread::spawn(move || {
                let mut sum = Recorded::default();
                // Each thread walks all packets from its own start: all are offered four times.
                for i in (0..10_000).step_by(5) {
                    let done = bits.record((i + t * 2_505) % 10_000, 5);
                    sum.fresh += done.fresh;
                    sum.chunks += done.chunks;
                }
                sum
            })
        })
        .collect();
    let sums: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert_eq!(sums.iter().map(|s| s.fresh).sum::<u32>(), 10_000);
    assert_eq!(sums.iter().map(|s| s.chunks).sum::<u32>(), shape.chunks());
    assert!(Bitmap::new(&*bits).is_full());
}
