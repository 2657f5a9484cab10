use super::RangeSet;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

const UNIVERSE: u32 = 300;

#[derive(Clone, Debug)]
enum Op {
    Insert(Range<u32>),
    Remove(Range<u32>),
    Retain(Range<u32>, Vec<Range<u32>>),
}

/// Mostly ranges; now and then empty or inverted ones.
fn range() -> impl Strategy<Value = Range<u32>> {
    prop_oneof![
        8 => (0..UNIVERSE, 0..20u32).prop_map(|(a, n)| a..(a + n).min(UNIVERSE)),
        1 => (0..UNIVERSE, 0..UNIVERSE).prop_map(|(a, b)| a..b),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => range().prop_map(Op::Insert),
        2 => range().prop_map(Op::Remove),
        1 => ((0..UNIVERSE, 0..UNIVERSE), prop::collection::vec(range(), 0..20), 0..4u8).prop_map(|((a, b), mut keep, order)| {
            if order > 0 {
                keep.sort_by_key(|r| r.start);
            }
            Op::Retain(a..b, keep)
        }),
    ]
}

fn numbers(ranges: impl Iterator<Item = Range<u32>>) -> Vec<u32> {
    ranges.flatten().collect()
}

proptest! {
    #[test]
    fn behaves_as_a_set_of_numbers(ops in prop::collection::vec(op(), 1..120), window in range(), p in 0..UNIVERSE) {
        let mut set = RangeSet::new();
        let mut model = BTreeSet::new();
        for op in ops {
            let before = model.len() as u32;
            match op {
                Op::Insert(r) => {
                    set.insert(r.clone());
                    model.extend(r);
                }
                Op::Remove(r) => {
                    model.retain(|p| !r.contains(p));
                    prop_assert_eq!(set.remove(r), before - model.len() as u32);
                }
                Op::Retain(w, keep) => {
                    let mut at = 0;
                    let counts = |k: &Range<u32>| {
                        let start = k.start.max(at);
                        at = at.max(if k.is_empty() { 0 } else { k.end });
                        start..k.end
                    };
                    let keep_in_order: Vec<_> = keep.iter().map(counts).collect();
                    model.retain(|p| !w.contains(p) || keep_in_order.iter().any(|k| k.contains(p)));
                    prop_assert_eq!(set.retain_within(w, keep), before - model.len() as u32);
                }
            }
            prop_assert_eq!(numbers(set.iter()), model.iter().copied().collect::<Vec<_>>());
            let ranges: Vec<_> = set.iter().collect();
            prop_assert!(ranges.iter().all(|r| !r.is_empty()));
            prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "{:?}", set);
            prop_assert_eq!(ranges.len(), set.ranges());
            prop_assert_eq!(set.count() as usize, model.len());
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert_eq!(set.first(), model.first().copied());
            prop_assert_eq!(set.end(), model.last().map(|p| p + 1));
        }
        let inside: Vec<_> = model.iter().copied().filter(|p| window.contains(p)).collect();
        prop_assert_eq!(numbers(set.within(window)), inside);
        prop_assert_eq!(set.contains(p), model.contains(&p));
        let next = set.next_from(p);
        prop_assert_eq!(next.clone().map(|r| r.start), model.range(p..).next().copied());
        prop_assert!(next.is_none_or(|r| r.clone().all(|p| model.contains(&p)) && !model.contains(&r.end)));
    }
}

#[test]
fn long_sets_are_searched_not_walked() {
    let mut set = RangeSet::new();
    (0..30_000).for_each(|i| set.insert(4 * i..4 * i + 2));
    assert_eq!(
        set.retain_within(0..120_000, [0..60_001, 60_002..60_003, 60_006..100_000]),
        1 + 2 + 2 * 5_000
    );
    assert_eq!(set.next_from(60_001), Some(60_008..60_010));
    assert_eq!(set.ranges(), 25_000 - 1);
    assert_eq!(set.remove(0..u32::MAX), 50_000 - 3);
}
