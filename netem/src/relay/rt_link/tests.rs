use proptest::prelude::*;

use super::*;
use crate::loss::LossSpec;
use crate::units::{BitRate, ByteSize, Probability};

fn p(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

fn rate(text: &str) -> Option<BitRate> {
    Some(text.parse().unwrap())
}

fn rt(spec: LinkSpec) -> RtLink<u64> {
    RtLink::new(spec, Limits::default()).unwrap()
}

/// Pushes `count` frames of `size` bytes, one every `gap`, takes each at the instant it is due, and gives them with it.
fn through(link: &mut RtLink<u64>, count: u64, size: usize, gap: Nanos) -> Vec<(Nanos, Frame<u64>)> {
    let mut out = Vec::new();
    let mut now = Nanos::ZERO;
    for n in 0..count {
        drain(link, now, &mut out);
        link.push(now, n, &pattern(n, size));
        now += gap;
    }
    drain(link, Nanos::MAX, &mut out);
    out
}

fn drain(link: &mut RtLink<u64>, until: Nanos, out: &mut Vec<(Nanos, Frame<u64>)>) {
    while let Some(due) = link.next_due().filter(|due| *due <= until) {
        assert!(due == Nanos::ZERO || link.pop_due(Nanos(due.0 - 1)).is_none(), "early");
        out.push((due, link.pop_due(due).unwrap()));
    }
}

fn pattern(n: u64, size: usize) -> Vec<u8> {
    n.to_le_bytes().into_iter().cycle().take(size).collect()
}

fn flipped_bits(frame: &Frame<u64>) -> u32 {
    let sent = pattern(frame.tag, frame.bytes.len());
    sent.iter().zip(&frame.bytes).map(|(a, b)| (a ^ b).count_ones()).sum()
}

/// Fails unless `count` of `trials` is within four standard deviations of probability `p`.
fn binomial(what: &str, count: u64, trials: u64, p: f64) {
    let (mean, sigma) = (trials as f64 * p, (trials as f64 * p * (1.0 - p)).sqrt());
    assert!(
        (count as f64 - mean).abs() < 4.0 * sigma,
        "{what}: {count} of {trials}, expected {mean} +- {sigma}"
    );
}

proptest! {
    #[test]
    fn the_bytes_follow_the_link(
        seed in 0u64..1000,
        sizes in prop::collection::vec((0usize..3000, 0u64..30_000), 1..200),
        queue in prop::option::of(0u64..20_000),
        odds in prop::array::uniform4(prop::sample::select(vec![0.0, 0.1, 0.5])),
        jitter in prop::sample::select(vec![0, 50_000]),
    ) {
        let [loss, reorder, duplicate, corrupt] = odds;
        let spec = LinkSpec {
            rate: rate("1Gbit"),
            delay: Nanos::from_micros(100),
            jitter: Nanos(jitter),
            loss: LossSpec::bursty(p(loss), 1.0).unwrap(),
            reorder: p(reorder),
            duplicate: p(duplicate),
            corrupt: p(corrupt),
            queue: queue.map(ByteSize),
            seed,
            ..LinkSpec::default()
        };
        // The naive twin: the link's own deliveries, sorted.
        let mut model = Link::new(spec.clone()).unwrap();
        let (mut link, mut expected, mut got) = (rt(spec), Vec::new(), Vec::new());
        let mut now = Nanos::ZERO;
        for (n, (size, gap)) in (0u64..).zip(sizes) {
            now += Nanos(gap);
            drain(&mut link, now, &mut got);
            link.push(now, n, &pattern(n, size));
            let mut deliveries = Vec::new();
            model.send_run(now, 1, size as u32, size as u32, &mut deliveries);
            expected.extend(deliveries.iter().map(|d| (d.arrival, n, size, u32::from(d.corrupt && size > 0))));
        }
        drain(&mut link, Nanos::MAX, &mut got);
        expected.sort_by_key(|e| e.0);
        let got: Vec<_> = got.iter().map(|(at, f)| (*at, f.tag, f.bytes.len(), flipped_bits(f))).collect();
        prop_assert_eq!(got, expected);
        let stats = link.stats();
        prop_assert_eq!((stats.link, stats.overflows), (model.counters(), 0));
        prop_assert_eq!((stats.held_frames, stats.held_bytes), (0, 0));
    }
}

#[test]
fn rate_and_delay_are_exact() {
    let delay = Nanos::from_millis(5);
    let mut link = rt(LinkSpec { rate: rate("200Mbit"), delay, ..LinkSpec::default() });
    // 1400 B take 56 us; one every 40 us is more than fits.
    let out = through(&mut link, 20_000, 1400, Nanos::from_micros(40));
    assert_eq!(out.len(), 20_000);
    for (n, (at, frame)) in (0u64..).zip(&out) {
        assert_eq!((frame.tag, *at), (n, Nanos((n + 1) * 56_000) + delay));
    }
}

#[test]
fn the_queue_holds_what_was_asked_for() {
    let queue = Some(ByteSize(14_000));
    let mut link = rt(LinkSpec { rate: rate("200Mbit"), queue, ..LinkSpec::default() });
    for n in 0..30 {
        link.push(Nanos::ZERO, n, &pattern(n, 1400));
    }
    let stats = link.stats();
    assert_eq!((stats.link.queue_drops, stats.held_frames, stats.held_bytes), (20, 10, 14_000));
    // One has left the wire, so one more fits.
    assert!(link.pop_due(Nanos::from_micros(56)).is_some());
    for n in 30..33 {
        link.push(Nanos::from_micros(56), n, &pattern(n, 1400));
    }
    assert_eq!(link.stats().link.queue_drops, 22);
}

#[test]
fn jitter_is_uniform_around_the_delay() {
    let (delay, jitter) = (Nanos::from_millis(5), Nanos::from_millis(1));
    let mut link = rt(LinkSpec { delay, jitter, seed: 3, ..LinkSpec::default() });
    let gap = Nanos::from_micros(10);
    let out = through(&mut link, 50_000, 100, gap);
    let mut delays: Vec<_> = out.iter().map(|(at, f)| at.since(Nanos(f.tag * gap.0))).collect();
    delays.sort_unstable();
    assert_eq!(delays.len(), 50_000);
    for (tenth, expected) in [(0, 4.0), (1, 4.2), (5, 5.0), (9, 5.8), (10, 6.0)] {
        let delay = delays[(tenth * 5_000).min(49_999)].as_millis_f64();
        assert!((delay - expected).abs() < 0.03, "quantile {tenth}/10 is {delay} ms, expected {expected}");
    }
    assert!(delays[0] >= delay - jitter && delays[49_999] <= delay + jitter);
}

#[test]
fn losses_are_as_many_and_as_long_as_asked_for() {
    for (seed, loss, burst) in [(1, 0.01, 1.0), (2, 0.1, 1.0), (3, 0.02, 8.0), (4, 0.1, 16.0)] {
        let mut link = rt(LinkSpec {
            rate: rate("1Gbit"),
            loss: LossSpec::bursty(p(loss), burst).unwrap(),
            reference_bytes: 100,
            seed,
            ..LinkSpec::default()
        });
        let count = 400_000;
        // Back to back at link rate, where a burst is counted in packets.
        let out = through(&mut link, count, 100, Nanos(800));
        let lost = count - out.len() as u64;
        assert_eq!(link.stats().link.lost, lost);
        let bursts = out.windows(2).filter(|w| w[1].1.tag > w[0].1.tag + 1).count() as u64;
        let (average, mean) = (lost as f64 / count as f64, lost as f64 / bursts as f64);
        // Independent losses run into each other once in 1 / loss.
        let expected = if burst > 1.0 { burst } else { 1.0 / (1.0 - loss) };
        // The mean of `bursts` geometric lengths, and a share of losses that varies with their number and lengths.
        let sigma = expected / (bursts as f64).sqrt();
        let spread = loss * (2.0 / bursts as f64).sqrt();
        assert!((mean - expected).abs() < 4.0 * sigma, "seed {seed}: mean burst {mean}, expected {expected}");
        assert!((average - loss).abs() < 4.0 * spread, "seed {seed}: loss {average}, expected {loss}");
    }
}

#[test]
fn impairments_are_counted_exactly() {
    let mut link = rt(LinkSpec {
        rate: rate("1Gbit"),
        delay: Nanos::from_millis(1),
        loss: LossSpec::Iid { p: p(0.05) },
        reorder: p(0.02),
        duplicate: p(0.03),
        corrupt: p(0.01),
        reference_bytes: 1400,
        seed: 7,
        ..LinkSpec::default()
    });
    let count = 100_000;
    let out = through(&mut link, count, 1400, Nanos::from_micros(20));
    let seen = link.stats().link;

    let mut copies = vec![0u8; count as usize];
    out.iter().for_each(|(_, f)| copies[f.tag as usize] += 1);
    let of = |n| copies.iter().filter(|c| **c == n).count() as u64;
    let corrupted = out.iter().map(|(_, f)| flipped_bits(f)).inspect(|bits| assert!(*bits <= 1)).sum::<u32>();
    let undisturbed = |tag: u64| Nanos(tag * 20_000 + 11_200) + Nanos::from_millis(1);
    let held = out.iter().filter(|(at, f)| *at > undisturbed(f.tag)).count() as u64;
    assert!(out.iter().all(|(at, f)| *at >= undisturbed(f.tag)), "early");
    assert_eq!(
        (of(0), of(2), u64::from(corrupted), held),
        (seen.lost, seen.duplicated, seen.corrupted, seen.reordered)
    );
    // Seed 7 means the same schedule in every release.
    assert_eq!((seen.lost, seen.duplicated, seen.corrupted, seen.reordered), (5070, 2920, 943, 1914));

    let (whole, arrivals) = (count - seen.lost, out.len() as u64);
    binomial("lost", seen.lost, count, 0.05);
    binomial("duplicated", seen.duplicated, whole, 0.03);
    binomial("corrupted", seen.corrupted, arrivals, 0.01);
    binomial("reordered", seen.reordered, arrivals, 0.02);
}

#[test]
fn corruption_reaches_every_bit_and_spares_the_sender() {
    let mut link = rt(LinkSpec { corrupt: p(0.99), duplicate: p(0.5), seed: 1, ..LinkSpec::default() });
    let mut hits = [0; 16];
    for n in 0..2_000 {
        let sent = [0; 2];
        link.push(Nanos(n), n, &sent);
        while let Some(frame) = link.pop_due(Nanos(n)) {
            let bits = u16::from_le_bytes([frame.bytes[0], frame.bytes[1]]);
            (0..16).for_each(|bit| hits[bit] += bits >> bit & 1);
            link.recycle(frame.bytes);
        }
    }
    assert!(hits.iter().all(|h| (100..300).contains(h)), "{hits:?}");
    // An empty frame has nothing to flip.
    link.push(Nanos(2_000), 0, &[]);
    assert_eq!(link.pop_due(Nanos(2_000)).unwrap().bytes, []);
}

#[test]
fn a_full_link_drops_and_recovers() {
    let limits = Limits { bytes: 10_000, frames: 5 };
    let delay = Nanos::from_millis(1);
    let mut link = RtLink::new(LinkSpec { delay, ..LinkSpec::default() }, limits).unwrap();
    for n in 0..8u64 {
        link.push(Nanos::ZERO, n, &[0; 100]);
    }
    let stats = link.stats();
    assert_eq!((stats.held_frames, stats.held_bytes, stats.overflows, stats.link.offered), (5, 500, 3, 5));
    while link.pop_due(delay).is_some() {}
    link.push(delay, 8, &[0; 9_000]);
    link.push(delay, 9, &[0; 1_001]);
    link.push(delay, 10, &[0; 1_000]);
    let stats = link.stats();
    assert_eq!((stats.held_frames, stats.held_bytes, stats.overflows), (2, 10_000, 4));
}

#[test]
fn time_never_goes_back() {
    let mut link = rt(LinkSpec { rate: rate("8Gbit"), delay: Nanos(100), ..LinkSpec::default() });
    link.push(Nanos(5_000), 0, &[0; 1000]);
    link.push(Nanos(4_000), 1, &[0; 1000]);
    assert_eq!(link.next_due(), Some(Nanos(6_100)));
    assert_eq!(link.pop_due(Nanos(6_099)), None);
    assert_eq!(link.pop_due(Nanos(7_000)).map(|f| f.tag), Some(0));
    assert_eq!(link.next_due(), Some(Nanos(7_100)));
}

#[test]
fn what_happens_to_a_frame_does_not_hang_on_when_others_are_taken() {
    let spec = LinkSpec {
        jitter: Nanos(500),
        loss: LossSpec::Iid { p: p(0.1) },
        duplicate: p(0.1),
        corrupt: p(0.1),
        seed: 5,
        ..LinkSpec::default()
    };
    let (mut eager, mut lazy) = (rt(spec.clone()), rt(spec));
    let taken_at_once = through(&mut eager, 1_000, 64, Nanos(300));
    (0..1_000).for_each(|n| lazy.push(Nanos(n * 300), n, &pattern(n, 64)));
    let mut taken_late = Vec::new();
    drain(&mut lazy, Nanos::MAX, &mut taken_late);
    assert_eq!(taken_at_once, taken_late);
    assert!(eager.stats().link.duplicated > 0);
}
