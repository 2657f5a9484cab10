#![expect(clippy::single_range_in_vec_init, reason = "a list of ranges is meant, not what they hold")]

use super::encode::{varint_len, write_varint};
use super::*;
use proptest::collection::{btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Payload room of a control datagram, about.
const ROOM: usize = 1_157;

const ANNOUNCED: Announce = Announce {
    seq: Seq(0x0102),
    bytes: 3,
    scheme: 4,
    k: 224,
    m: 16,
    interleave: 0x0506,
    symbol: 4_096,
    pace: 327_680,
    user: Some(0xdead_beef),
};

/// A frame that owns its lists.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Announce(Announce),
    Report(Span, Vec<Range<u32>>),
    Done(Vec<(Seq, Status)>),
    Want(Seq, Vec<Range<u32>>),
    Loss(LossCount),
}

fn own(f: Frame<'_>) -> Owned {
    match f {
        Frame::Announce(a) => Owned::Announce(a),
        Frame::Report(r) => {
            let ranges: Vec<_> = r.missing().collect();
            assert_eq!(ranges.len(), r.missing().len());
            Owned::Report(r.span, ranges)
        }
        Frame::Done(d) => {
            let list: Vec<_> = d.collect();
            assert_eq!(list.len(), d.len());
            Owned::Done(list)
        }
        Frame::Want(w) => {
            let ranges: Vec<_> = w.ranges().collect();
            assert_eq!(ranges.len(), w.ranges().len());
            Owned::Want(w.seq, ranges)
        }
        Frame::Loss(l) => Owned::Loss(l),
    }
}

fn decode(bytes: &[u8]) -> Result<Vec<Owned>, FrameError> {
    Frames::new(bytes).map(|f| f.map(own)).collect()
}

fn encode(f: &Owned, e: &mut Encoder<'_>) {
    match f {
        Owned::Announce(a) => assert!(e.announce(a)),
        Owned::Report(span, ranges) => {
            assert_eq!(e.report(*span, ranges.iter().cloned(), usize::MAX).unwrap().next, None);
        }
        Owned::Done(list) => assert_eq!(e.done(list.iter().copied()), list.len()),
        Owned::Want(seq, ranges) => assert_eq!(e.want(*seq, ranges, usize::MAX).0, ranges.len()),
        Owned::Loss(l) => assert!(e.loss(l)),
    }
}

fn ranges_of(packets: &BTreeSet<u32>) -> Vec<Range<u32>> {
    let mut out: Vec<Range<u32>> = Vec::new();
    for &p in packets {
        match out.last_mut() {
            Some(r) if r.end == p => r.end += 1,
            _ => out.push(p..p + 1),
        }
    }
    out
}

fn announce() -> impl Strategy<Value = Announce> {
    let a = (any::<u64>(), any::<u64>(), any::<u8>(), any::<u16>(), any::<u16>(), any::<u16>());
    let b = (any::<u32>(), any::<u64>(), of(any::<u32>()));
    (a, b).prop_map(|((seq, bytes, scheme, k, m, interleave), (symbol, pace, user))| Announce {
        seq: Seq(seq),
        bytes,
        scheme,
        k,
        m,
        interleave,
        symbol,
        pace,
        user,
    })
}

fn status() -> impl Strategy<Value = Status> {
    (0..4u8).prop_map(|c| Status::from_code(c).unwrap())
}

/// A start, and ascending ranges behind it that never touch.
fn ranges() -> impl Strategy<Value = (u32, Vec<Range<u32>>)> {
    // Offsets near both ends of 32 bits, gaps and lengths around the varint sizes.
    let step = prop_oneof![1..4u32, 100..200u32, 16_000..17_000u32, 0..2_100_000u32];
    (prop_oneof![0..1_000u32, any::<u32>()], vec((step.clone(), step), 0..40)).prop_map(|(from, steps)| {
        let mut at = from;
        let mut ranges = Vec::new();
        for (gap, len) in steps {
            let Some(start) = at.checked_add(gap.max(1)) else { break };
            let Some(end) = start.checked_add(len.max(1)) else { break };
            ranges.push(start..end);
            at = end;
        }
        (from, ranges)
    })
}

fn want() -> impl Strategy<Value = Owned> {
    let some = ranges().prop_filter_map("a WANT names something", |(_, r)| (!r.is_empty()).then_some(r));
    (any::<u64>(), some).prop_map(|(seq, ranges)| Owned::Want(Seq(seq), ranges))
}

fn loss() -> impl Strategy<Value = LossCount> {
    let any = (any::<u64>(), any::<u64>(), any::<u64>());
    any.prop_map(|(a, b, c)| {
        let mut n = [a, b, c];
        n.sort_unstable();
        LossCount { packets: n[2], missing: n[1], bursts: n[0] }
    })
}

fn report() -> impl Strategy<Value = Owned> {
    (any::<u64>(), ranges(), any::<u32>()).prop_map(|(seq, (from, ranges), slack)| {
        let at = ranges.last().map_or(from, |r| r.end);
        let to = at + slack % (u32::MAX - at).max(1);
        let base = ranges.first().map_or(to, |r| slack % (r.start + 1));
        Owned::Report(Span { seq: Seq(seq), base, from, to }, ranges)
    })
}

fn frame() -> impl Strategy<Value = Owned> {
    prop_oneof![
        announce().prop_map(Owned::Announce),
        report(),
        vec((any::<u64>().prop_map(Seq), status()), 1..30).prop_map(Owned::Done),
        want(),
        loss().prop_map(Owned::Loss),
    ]
}

/// What holds for every frame that is accepted, whatever its bytes.
fn check_accepted(bytes: &[u8]) {
    let mut frames = Frames::new(bytes);
    let mut seen = 0;
    while let Some(f) = frames.next() {
        seen += 1;
        assert!(seen <= bytes.len());
        let Ok(f) = f else {
            assert!(frames.next().is_none());
            return;
        };
        match own(f) {
            Owned::Report(span, ranges) => {
                assert!(span.from <= span.to && span.base <= span.to);
                assert!(ranges.iter().all(|r| r.start < r.end && r.end <= span.to));
                assert!(ranges.first().is_none_or(|r| r.start >= span.from.max(span.base)));
                assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
            }
            Owned::Want(_, ranges) => {
                assert!(ranges.iter().all(|r| r.start < r.end));
                assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
            }
            Owned::Loss(l) => assert!(l.bursts <= l.missing && l.missing <= l.packets),
            Owned::Announce(_) | Owned::Done(_) => {}
        }
    }
}

#[test]
fn bytes_stand_where_the_table_says() {
    let mut out = vec![0xaa];
    let mut e = Encoder::new(&mut out, ROOM);
    assert!(e.announce(&ANNOUNCED));
    let span = Span { seq: Seq(7), base: 10, from: 12, to: 1_000 };
    assert_eq!(e.report(span, [12..13, 313..314], ROOM), Ok(Reported { bytes: 28, to: 1_000, next: None }));
    assert_eq!(e.done([(Seq(8), Status::TooLong)]), 1);
    assert_eq!(e.room(), ROOM - 41 - 28 - 11);
    let mut want = vec![0xaa, 1, 1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 4];
    want.extend([0, 224, 0, 16, 5, 6, 0, 0, 16, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0xde, 0xad, 0xbe, 0xef]);
    want.extend([2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 10, 0, 0, 0, 12, 0, 0, 3, 0xe8, 0, 2]);
    want.extend([0, 1, 0xac, 2, 1]);
    want.extend([3, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2]);
    assert_eq!(out, want);
}

#[test]
fn want_and_loss_stand_where_the_table_says() {
    let mut out = Vec::new();
    let mut e = Encoder::new(&mut out, ROOM);
    assert_eq!(e.want(Seq(7), &[0..1, 301..302], ROOM), (2, 16));
    assert!(e.loss(&LossCount { packets: 0x0102, missing: 3, bursts: 2 }));
    let mut want = vec![4, 0, 0, 0, 0, 0, 0, 0, 7, 0, 2, 0, 1, 0xac, 2, 1];
    want.extend([5, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(out, want);
    // Every prefix is truncated, or one frame, or both.
    for n in 0..=out.len() {
        match n {
            0 | 16 | 41 => {
                assert_eq!(decode(&out[..n]).unwrap().len(), usize::from(n > 0) + usize::from(n > 16))
            }
            _ => assert_eq!(decode(&out[..n]), Err(FrameError::Truncated)),
        }
    }
}

#[test]
fn want_and_loss_size_limits_are_exact() {
    let write = |limit, budget| {
        let mut out = vec![9; 3];
        let (named, bytes) = Encoder::new(&mut out, limit).want(Seq(1), &[5..6, 8..9, 300..302], budget);
        assert_eq!(out.len(), 3 + bytes);
        (named, bytes)
    };
    assert_eq!([write(10, ROOM), write(ROOM, 10), write(12, ROOM)], [(0, 0); 3], "nothing without a range");
    assert_eq!([write(13, ROOM), write(ROOM, 14)], [(1, 13); 2]);
    assert_eq!([write(15, ROOM), write(ROOM, 17)], [(2, 15); 2]);
    assert_eq!(write(18, ROOM), (3, 18));
    let mut out = Vec::new();
    assert_eq!(Encoder::new(&mut out, MIN_REPORT).want(Seq(1), &[0x7fff_0000..u32::MAX], ROOM).0, 1);
    assert_eq!(Encoder::new(&mut out, ROOM).want(Seq(1), &[], ROOM), (0, 0));
    let loss = LossCount::default();
    let mut out = Vec::new();
    assert!(!Encoder::new(&mut out, LOSS_LEN - 1).loss(&loss) && out.is_empty());
    assert!(Encoder::new(&mut out, LOSS_LEN).loss(&loss) && out.len() == LOSS_LEN);
}

#[test]
fn wrong_requests_and_counts_have_their_own_errors() {
    let want = |ranges: u8, bytes: &[u8]| {
        let mut v = vec![4, 0, 0, 0, 0, 0, 0, 0, 1, 0, ranges];
        v.extend(bytes);
        decode(&v)
    };
    assert_eq!(want(0, &[]), Ok(vec![Owned::Want(Seq(1), vec![])]), "nothing is asked for");
    assert_eq!(want(1, &[0, 0]), Err(FrameError::EmptyRange));
    assert_eq!(want(2, &[0, 1, 0, 1]), Err(FrameError::EmptyRange));
    assert_eq!(want(2, &[0, 1]), Err(FrameError::Truncated));
    assert_eq!(want(1, &[0xff, 0xff, 0xff, 0xff, 0x0f, 1]), Err(FrameError::Overflow));
    assert_eq!(want(1, &[0x80, 0, 1]), Err(FrameError::Varint));
    let loss = |packets, missing, bursts| {
        let mut out = Vec::new();
        assert!(Encoder::new(&mut out, ROOM).loss(&LossCount { packets, missing, bursts }));
        decode(&out)
    };
    assert!(loss(5, 5, 5).is_ok() && loss(u64::MAX, u64::MAX, 0).is_ok());
    for (packets, missing, bursts) in [(5, 6, 0), (5, 3, 4), (0, u64::MAX, 0), (0, 0, 1)] {
        let count = LossCount { packets, missing, bursts };
        assert_eq!(loss(packets, missing, bursts), Err(FrameError::Loss(count)));
    }
}

#[test]
fn announce_size_limits_are_exact() {
    for (a, len) in [(ANNOUNCED, MAX_ANNOUNCE), (Announce { user: None, ..ANNOUNCED }, MAX_ANNOUNCE - 4)] {
        let mut out = Vec::new();
        assert!(!Encoder::new(&mut out, len - 1).announce(&a));
        assert!(out.is_empty());
        assert!(Encoder::new(&mut out, len).announce(&a));
        assert_eq!(out.len(), len);
    }
}

#[test]
fn done_size_limits_are_exact() {
    let all = || (0..).map(|n| (Seq(n), Status::Whole));
    for (limit, fit) in [(0, 0), (10, 0), (11, 1), (19, 1), (20, 2), (ROOM, 128), (10_000, 255)] {
        let mut out = Vec::new();
        assert_eq!(Encoder::new(&mut out, limit).done(all()), fit);
        assert_eq!(out.len(), if fit == 0 { 0 } else { 2 + 9 * fit });
    }
    let mut out = Vec::new();
    assert_eq!(Encoder::new(&mut out, ROOM).done([]), 0);
    assert!(out.is_empty());
}

#[test]
fn report_size_limits_are_exact() {
    let span = Span { seq: Seq(1), base: 0, from: 0, to: 1_000 };
    let missing = [5..6, 8..9, 300..302];
    let write = |limit, budget| {
        let mut out = vec![9; 3];
        let got = Encoder::new(&mut out, limit).report(span, missing.iter().cloned(), budget);
        assert_eq!(out.len(), 3 + got.as_ref().map_or(0, |r| r.bytes));
        got
    };
    assert_eq!(write(ROOM, 22), Err(ReportError::NoRoom { have: 22 }));
    assert_eq!(write(24, ROOM), Err(ReportError::NoRoom { have: 24 }));
    assert_eq!(write(25, ROOM), Ok(Reported { bytes: 25, to: 6, next: Some(6) }));
    assert_eq!(write(ROOM, 26), Ok(Reported { bytes: 25, to: 6, next: Some(6) }));
    assert_eq!(write(ROOM, 27), Ok(Reported { bytes: 27, to: 9, next: Some(9) }));
    assert_eq!(write(ROOM, 29), Ok(Reported { bytes: 27, to: 9, next: Some(9) }));
    assert_eq!(write(ROOM, 30), Ok(Reported { bytes: 30, to: 1_000, next: None }));

    // Nothing missing takes the head alone, and the largest range fits the smallest report.
    let mut out = Vec::new();
    let r = Encoder::new(&mut out, 23).report(span, [], ROOM);
    assert_eq!(r, Ok(Reported { bytes: 23, to: 1_000, next: None }));
    let far = Span { to: u32::MAX, ..span };
    let r = Encoder::new(&mut out, MIN_REPORT).report(far, [0x7fff_0000..u32::MAX], ROOM);
    assert_eq!(r, Ok(Reported { bytes: MIN_REPORT, to: u32::MAX, next: None }));

    // Every second packet of a long message: (1,157 - 23) / 2 ranges.
    let every_second = (0..).map(|n| 2 * n..2 * n + 1);
    let r = Encoder::new(&mut out, ROOM).report(far, every_second, ROOM);
    assert_eq!(r, Ok(Reported { bytes: ROOM, to: 1_133, next: Some(1_133) }));
}

#[test]
fn ranges_that_touch_are_one_and_only_the_span_is_described() {
    let span = Span { seq: Seq(1), base: 2, from: 10, to: 20 };
    let mut out = Vec::new();
    let missing = [2..3, 5..11, 11..12, 13..13, 14..15, 15..16, 19..40, 50..51];
    Encoder::new(&mut out, ROOM).report(span, missing, ROOM).unwrap();
    assert_eq!(decode(&out), Ok(vec![Owned::Report(span, vec![10..12, 14..16, 19..20])]));
}

#[test]
fn a_report_that_would_lie_is_not_written() {
    let span = Span { seq: Seq(1), base: 5, from: 10, to: 20 };
    for (bad, start, end) in
        [(vec![4..6], 4, 6), (vec![12..14, 13..15], 13, 15), (vec![12..14, 11..12], 11, 12)]
    {
        let mut out = vec![1];
        let got = Encoder::new(&mut out, ROOM).report(span, bad, ROOM);
        assert_eq!((got, out.len()), (Err(ReportError::Contradiction { start, end }), 1));
    }
    for bad in [Span { to: 9, ..span }, Span { base: 21, ..span }] {
        let mut out = Vec::new();
        assert_eq!(Encoder::new(&mut out, ROOM).report(bad, [], ROOM), Err(ReportError::Span(bad)));
        assert!(out.is_empty());
    }
}

#[test]
fn wrong_bytes_have_their_own_errors() {
    let report = |base: u8, from: u8, to: u8, ranges: u8, bytes: &[u8]| {
        let mut v = vec![2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, base, 0, 0, 0, from, 0, 0, 0, to, 0, ranges];
        v.extend(bytes);
        decode(&v)
    };
    let span = |base, from, to| Span { seq: Seq(1), base, from, to };
    assert_eq!(report(9, 3, 9, 0, &[]), Ok(vec![Owned::Report(span(9, 3, 9), vec![])]));
    assert_eq!(report(3, 3, 9, 1, &[0, 6]), Ok(vec![Owned::Report(span(3, 3, 9), vec![3..9])]));
    assert_eq!(report(0, 3, 2, 0, &[]), Err(FrameError::Span(span(0, 3, 2))));
    assert_eq!(report(3, 1, 2, 0, &[]), Err(FrameError::Span(span(3, 1, 2))));
    assert_eq!(report(0, 3, 9, 1, &[0, 7]), Err(FrameError::Outside { start: 3, end: 10 }));
    assert_eq!(report(4, 3, 9, 1, &[0, 2]), Err(FrameError::Outside { start: 3, end: 5 }));
    assert_eq!(report(0, 3, 9, 1, &[0, 0]), Err(FrameError::EmptyRange));
    assert_eq!(report(0, 3, 9, 2, &[0, 1, 0, 1]), Err(FrameError::EmptyRange));
    assert_eq!(report(0, 3, 9, 2, &[0, 1]), Err(FrameError::Truncated));
    assert_eq!(report(0, 3, 9, 1, &[0xff, 0xff, 0xff, 0xff, 0x0f, 1]), Err(FrameError::Overflow));
    assert_eq!(report(0, 3, 9, 1, &[0xff, 0xff, 0xff, 0xff, 0x1f, 1]), Err(FrameError::Varint));
    assert_eq!(report(0, 3, 9, 1, &[0xff, 0xff, 0xff, 0xff, 0x8f, 1]), Err(FrameError::Varint));
    assert_eq!(report(0, 3, 9, 1, &[0x80, 0, 1]), Err(FrameError::Varint));
    assert_eq!(decode(&[6]), Err(FrameError::Type(6)));
    assert_eq!(decode(&[1, 4]), Err(FrameError::Flags(4)));
    assert_eq!(decode(&[3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 4]), Err(FrameError::Status(4)));
    assert_eq!(decode(&[3, 0]), Ok(vec![Owned::Done(vec![])]));

    // After an error nothing more comes, though whole frames would follow.
    let mut frames = Frames::new(&[0, 3, 0, 3, 0]);
    assert!(matches!(frames.next(), Some(Err(FrameError::Type(0)))));
    assert!(frames.next().is_none());
}

#[test]
fn every_prefix_is_truncated_or_whole_frames() {
    let mut out = Vec::new();
    let mut e = Encoder::new(&mut out, ROOM);
    assert!(e.announce(&ANNOUNCED));
    e.report(Span { seq: Seq(7), base: 0, from: 0, to: 99 }, [3..5, 9..10], ROOM).unwrap();
    e.done([(Seq(8), Status::Whole)]);
    let ends = [0, 41, 41 + 27, 41 + 27 + 11];
    for n in 0..=out.len() {
        match ends.iter().position(|&e| e == n) {
            Some(frames) => assert_eq!(decode(&out[..n]).unwrap().len(), frames),
            None => assert_eq!(decode(&out[..n]), Err(FrameError::Truncated)),
        }
    }
}

#[test]
fn varints_have_the_lengths_they_should() {
    for bits in 0..32 {
        for v in [(1u32 << bits) - 1, 1 << bits, u32::MAX >> bits] {
            let mut out = Vec::new();
            write_varint(&mut out, v);
            assert_eq!(out.len(), varint_len(v));
            assert_eq!(read_varint(&mut Reader(&out)), Ok(v));
        }
    }
    assert_eq!([0, 127, 128, 16_383, 16_384, u32::MAX].map(varint_len), [1, 1, 2, 2, 3, 5]);
}

proptest! {
    #[test]
    fn round_trip(frames in vec(frame(), 0..8)) {
        let mut out = Vec::new();
        let mut e = Encoder::new(&mut out, usize::MAX);
        for f in &frames {
            encode(f, &mut e);
        }
        prop_assert_eq!(decode(&out), Ok(frames));
    }

    #[test]
    fn successive_reports_cover_exactly_what_is_missing(
        missing in prop_oneof![btree_set(0..400u32, 0..300), btree_set(0..3_000_000u32, 0..300)],
        beyond in 0..1_000u32,
        split in 1..9u32,
        budgets in vec(MIN_REPORT..120usize, 1..8),
    ) {
        let to = missing.last().map_or(0, |p| p + 1) + beyond;
        let base = missing.first().copied().unwrap_or(to);
        // As a bitmap gives them: cut where its words end.
        let pieces: Vec<_> = missing.iter().map(|&p| p..p + 1).collect();
        let whole = ranges_of(&missing);
        let (mut from, mut got, mut reports) = (base, BTreeSet::new(), 0);
        loop {
            let budget = budgets[reports % budgets.len()];
            let source = if (reports as u32).is_multiple_of(split) { &pieces } else { &whole };
            let mut out = Vec::new();
            let span = Span { seq: Seq(1), base, from, to };
            let wrote = Encoder::new(&mut out, ROOM).report(span, source.iter().cloned(), budget).unwrap();
            prop_assert!(out.len() <= budget && out.len() == wrote.bytes);
            let frames = decode(&out).unwrap();
            let [Owned::Report(read, ranges)] = &frames[..] else { panic!("not one report") };
            prop_assert_eq!(*read, Span { to: wrote.to, ..span });
            // Each is true alone, not only all together.
            let here: BTreeSet<u32> = ranges.iter().cloned().flatten().collect();
            prop_assert!(here.iter().eq(missing.range(from..wrote.to)));
            got.extend(here);
            reports += 1;
            match wrote.next {
                Some(next) => {
                    prop_assert!(next > from && next == wrote.to);
                    from = next;
                }
                None => {
                    prop_assert_eq!(wrote.to, to);
                    break;
                }
            }
        }
        prop_assert_eq!(got, missing);
    }

    #[test]
    fn successive_requests_name_everything(
        packets in btree_set(0..3_000_000u32, 1..400), budgets in vec(MIN_REPORT..120usize, 1..8),
    ) {
        let all = ranges_of(&packets);
        let (mut left, mut got, mut n) = (&all[..], Vec::new(), 0);
        while !left.is_empty() {
            let budget = budgets[n % budgets.len()];
            let mut out = Vec::new();
            let (named, bytes) = Encoder::new(&mut out, ROOM).want(Seq(1), left, budget);
            prop_assert!(named > 0 && bytes == out.len() && bytes <= budget);
            let frames = decode(&out).unwrap();
            let [Owned::Want(Seq(1), ranges)] = &frames[..] else { panic!("not one request") };
            prop_assert_eq!(&ranges[..], &left[..named]);
            got.extend(ranges.iter().cloned());
            left = &left[named..];
            n += 1;
        }
        prop_assert_eq!(got, all);
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in vec(any::<u8>(), 0..1_200), kind in 0..7u8) {
        if let Some(b) = bytes.first_mut() && kind < 6 {
            *b = kind;
        }
        check_accepted(&bytes);
    }

    #[test]
    fn mutated_frames_are_survived(
        frames in vec(frame(), 1..6),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        keep in of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = Vec::new();
        let mut e = Encoder::new(&mut bytes, usize::MAX);
        for f in &frames {
            encode(f, &mut e);
        }
        for (at, b) in hits {
            let at = at.index(bytes.len());
            bytes[at] = b;
        }
        if let Some(keep) = keep {
            bytes.truncate(keep.index(bytes.len()));
        }
        check_accepted(&bytes);
    }
}
