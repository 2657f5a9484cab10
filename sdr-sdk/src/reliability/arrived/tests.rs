use super::{Arrived, PacketView};
use crate::bitmap::Shape;
use crate::types::ChunkIndex;
use proptest::prelude::*;
use std::cell::Cell;

/// A receive with one bool a packet, which counts the reads that would leave the host.
struct Naive {
    shape: Shape,
    here: Vec<bool>,
    reads: Cell<u32>,
}

impl Naive {
    fn new(packets: u32, per_chunk: u8) -> Self {
        Self {
            shape: Shape::new(packets, per_chunk),
            here: vec![false; packets as usize],
            reads: Cell::new(0),
        }
    }

    fn fill(&mut self, packets: impl IntoIterator<Item = u32>) {
        packets.into_iter().for_each(|p| self.here[p as usize] = true);
    }

    fn of(&self, c: ChunkIndex) -> &[bool] {
        let per_chunk = self.shape.per_chunk() as usize;
        self.here.chunks(per_chunk).nth(c.0 as usize).unwrap()
    }
}

impl PacketView for Naive {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn chunk(&self, c: ChunkIndex) -> bool {
        self.of(c).iter().all(|&p| p)
    }

    fn packets(&self, c: ChunkIndex) -> u64 {
        self.reads.set(self.reads.get() + 1);
        assert!(!self.chunk(c), "asked for the bits of a complete chunk");
        self.of(c).iter().enumerate().map(|(i, &p)| (p as u64) << i).sum()
    }
}

#[test]
fn an_empty_message_is_whole() {
    let mut a = Arrived::new(0);
    assert!(a.is_whole());
    a.update(&Naive::new(0, 16), 1);
    assert!(a.is_whole());
    assert_eq!(a.base(), 0);
}

#[test]
fn complete_chunks_cost_no_packet_reads() {
    let mut view = Naive::new(64 * 1000, 64);
    view.fill(0..64_000);
    let mut a = Arrived::new(64_000);
    a.update(&view, 70);
    assert_eq!(a.covered(), 128, "a complete chunk is covered to its end");
    a.update(&view, u32::MAX);
    assert!(a.is_whole());
    assert_eq!(view.reads.get(), 0);
}

#[test]
fn gaps_are_found_and_filled() {
    let mut view = Naive::new(40, 16);
    view.fill([0, 1, 3, 20, 21, 30]);
    let mut a = Arrived::new(40);
    a.update(&view, 22);
    assert_eq!(a.missing().iter().collect::<Vec<_>>(), [2..3, 4..20, 22..30]);
    assert_eq!((a.base(), a.covered(), a.count()), (2, 31, 6), "bits beyond `until` count as well");
    let s = a.status(21);
    assert_eq!((s.base, s.from, s.to), (2, 21, 31));
    assert!(s.missing.eq(std::iter::once(22..30)));

    view.fill(0..40);
    assert_eq!(a.recheck(&view, 1), 25, "what arrived costs no budget");
    assert_eq!(a.base(), 31);
    a.update(&view, 40);
    assert!(a.is_whole());
}

#[test]
fn one_missing_packet_a_chunk_is_rechecked_by_its_byte() {
    let mut view = Naive::new(160, 16);
    view.fill((0..160).filter(|p| p % 16 != 5));
    let mut a = Arrived::new(160);
    a.update(&view, 160);
    assert_eq!(view.reads.get(), 10, "once each, to see which");
    assert_eq!(a.recheck(&view, u32::MAX), 0);
    view.fill([5, 37]);
    assert_eq!(a.recheck(&view, u32::MAX), 2);
    assert_eq!(view.reads.get(), 10);
}

#[test]
fn a_chunk_that_fills_up_leaves_nothing_missing() {
    let mut view = Naive::new(64, 16);
    view.fill([0, 4]);
    let mut a = Arrived::new(64);
    a.update(&view, 5);
    assert_eq!(a.missing().count(), 3);
    view.fill([1, 2, 8]);
    a.update(&view, 9);
    assert_eq!(a.missing().iter().collect::<Vec<_>>(), [3..4, 5..8], "its bits were read anyway");
    view.fill(0..16);
    a.update(&view, 16);
    assert!(a.missing().is_empty());
}

#[test]
fn a_packet_missing_alone_in_a_chunk_not_yet_covered_is_found() {
    let mut view = Naive::new(64, 16);
    view.fill([0, 2]);
    let mut a = Arrived::new(64);
    a.update(&view, 3);
    view.fill([1]);
    assert_eq!(a.recheck(&view, 1), 1);
}

#[test]
fn a_budget_goes_around() {
    let mut view = Naive::new(64, 16);
    view.fill([63]);
    let mut a = Arrived::new(64);
    a.update(&view, 64);
    view.fill(20..30);
    let arrived: Vec<_> = (0..4).map(|_| a.recheck(&view, 1)).collect();
    assert_eq!(arrived, [0, 10, 0, 0], "one chunk in vain a call, each in its turn");
    view.fill(0..64);
    assert_eq!(a.recheck(&view, 1), 53, "all that arrived, whatever the budget");
    assert!(a.is_whole());
}

#[test]
fn repairs_in_order_are_found_where_the_last_were() {
    let mut view = Naive::new(16_000, 16);
    view.fill([15_999]);
    let mut a = Arrived::new(16_000);
    a.update(&view, 16_000);
    // Far from the turn of the others, which takes 125 calls.
    view.fill(8_000..8_016);
    while a.recheck(&view, 8) == 0 {}
    for c in 501..900 {
        view.fill(c * 16..c * 16 + 16);
        assert_eq!(a.recheck(&view, 8), 16, "chunk {c}");
    }
}

#[test]
fn a_message_shorter_than_its_receive_ends_inside_a_chunk() {
    let mut view = Naive::new(100, 16);
    let mut a = Arrived::new(20);
    view.fill(0..19);
    a.update(&view, 19);
    assert_eq!(a.recheck(&view, 9), 0);
    assert!(!a.is_whole());
    view.fill([19]);
    a.update(&view, 20);
    assert!(a.is_whole());

    let mut late = Arrived::new(20);
    let mut view = Naive::new(100, 16);
    view.fill((0..18).chain([19]));
    late.update(&view, 20);
    view.fill([18]);
    assert_eq!(late.recheck(&view, 9), 1, "the byte of the last chunk never comes, its bits are read");
    assert!(late.is_whole());
}

proptest! {
    #[test]
    fn agrees_with_a_list_of_packets(
        receive in 1..400u32, short in 0..80u32, per_chunk in 1..=64u8,
        arrivals in prop::collection::vec((0..400u32, 1..30u32, 0..4u32), 0..60),
    ) {
        let mut view = Naive::new(receive, per_chunk);
        let total = receive.saturating_sub(short);
        let mut a = Arrived::new(total);
        let mut high = 0;
        for (first, n, budget) in arrivals {
            let end = (first + n).min(total);
            if first < end {
                view.fill(first..end);
                high = high.max(end);
            }
            let (base, count) = (a.base(), a.count());
            a.update(&view, high);
            a.recheck(&view, budget);
            prop_assert!(a.covered() >= high && a.covered() <= total);
            prop_assert!(a.base() >= base && a.count() >= count, "nothing is taken back");
            for p in 0..a.covered() {
                prop_assert!(view.here[p as usize] || a.missing().contains(p));
            }
            prop_assert!(a.missing().end().unwrap_or(0) <= a.covered());
        }
        a.recheck(&view, u32::MAX);
        let missing: Vec<_> = (0..a.covered()).filter(|&p| !view.here[p as usize]).collect();
        prop_assert_eq!(a.missing().iter().flatten().collect::<Vec<_>>(), missing);
        prop_assert_eq!(a.is_whole(), view.here[..total as usize].iter().all(|&p| p));
        view.fill(0..total);
        a.update(&view, total);
        a.recheck(&view, u32::MAX);
        prop_assert!(a.is_whole());
    }
}

/// The packets that `ranges` hold, each of them once.
fn flat(ranges: &[std::ops::Range<u32>]) -> Vec<u32> {
    let mut all: Vec<u32> = ranges.iter().cloned().flatten().collect();
    all.sort_unstable();
    let n = all.len();
    all.dedup();
    assert_eq!(all.len(), n, "a packet was found twice");
    all
}

#[test]
fn looking_below_an_end_is_bounded_by_the_budget() {
    let mut view = Naive::new(64_000, 16);
    view.fill([63_999]);
    let mut a = Arrived::new(64_000);
    a.update(&view, 64_000);
    for budget in [1, 10, 100] {
        view.reads.set(0);
        a.recheck_below(&view, 63_000, budget);
        assert!(view.reads.get() <= budget, "{} reads, budget {budget}", view.reads.get());
    }
}

proptest! {
    /// The extra packets of a receive, seen as a message of their own; and each packet that was missing is found once.
    #[test]
    fn a_part_and_what_is_found_agree_with_a_list_of_packets(
        data in 1..100u32, extra in 1..200u32, per_chunk in 1..=64u8,
        steps in prop::collection::vec((0..200u32, 1..30u32, 0..4u32, 0..220u32), 1..50),
    ) {
        let first = data.next_multiple_of(per_chunk.into());
        let mut view = Naive::new(first + extra, per_chunk);
        let mut a = Arrived::part(first / u32::from(per_chunk), extra);
        let mut high = 0;
        for (at, n, budget, below) in steps {
            let run = at.min(extra)..(at + n).min(extra);
            view.fill(run.clone().map(|p| first + p));
            high = high.max(run.end);
            let (covered, missing): (u32, Vec<u32>) = (a.covered(), a.missing().iter().flatten().collect());
            a.forget_found();
            match budget {
                0 => a.update(&view, high),
                1 => a.recheck_below(&view, below, u32::MAX),
                _ => { a.recheck(&view, budget); }
            }
            // Found is exactly what was missing and is not.
            let gone: Vec<u32> = missing.iter().copied().filter(|&p| !a.missing().contains(p)).collect();
            prop_assert_eq!(flat(a.found()), gone.clone());
            prop_assert!(gone.iter().all(|&p| view.here[(first + p) as usize]));
            if budget == 1 {
                let still = missing.iter().filter(|&&p| p < below && view.here[(first + p) as usize]);
                prop_assert!(still.clone().all(|&p| !a.missing().contains(p)), "all below it was looked at");
            }
            for p in covered..a.covered() {
                prop_assert_eq!(a.missing().contains(p), !view.here[(first + p) as usize]);
            }
        }
    }
}
