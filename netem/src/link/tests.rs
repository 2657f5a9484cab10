use proptest::prelude::*;

use super::*;

fn p(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

fn rate(text: &str) -> Option<BitRate> {
    Some(text.parse().unwrap())
}

fn link(spec: LinkSpec) -> Link {
    Link::new(spec).unwrap()
}

/// Everything at once.
fn rough(seed: u64) -> LinkSpec {
    LinkSpec {
        rate: rate("400Gbit"),
        delay: Nanos::from_micros(100),
        jitter: Nanos::from_micros(1),
        loss: LossSpec::bursty(p(0.05), 4.0).unwrap(),
        reorder: p(0.1),
        duplicate: p(0.1),
        corrupt: p(0.1),
        seed,
        ..LinkSpec::default()
    }
}

#[test]
fn packets_take_their_time_on_the_wire() {
    for (text, bits_per_second) in [
        ("400Gbit", 400_000_000_000u128),
        ("3.2Tbit", 3_200_000_000_000),
        ("3Gbit", 3_000_000_000),
        ("7kbit", 7_000),
    ] {
        let mut link =
            link(LinkSpec { rate: rate(text), delay: Nanos(500), overhead: 78, ..LinkSpec::default() });
        let mut out = Vec::new();
        let now = Nanos::from_secs(1_700_000_000);
        for run in 1..=20_000u128 {
            out.clear();
            link.send_run(now, 64, 4096, 4096, &mut out);
            let exact = run * 64 * (4096 + 78) * 8 * 1_000_000_000 / bits_per_second;
            let arrival = u128::from(out[0].arrival.since(now).0) - 500;
            assert!(arrival.abs_diff(exact) <= 1, "{text} after {run} runs: {arrival} ns, exact {exact} ns");
        }
        assert_eq!((out[0].first, out[0].packets), (0, 64));
        // The end of the wire time is rounded up, the arrival down.
        let beyond = (link.busy_until() + Nanos(500)).since(out[0].arrival);
        assert!(beyond <= Nanos(1), "{text}: busy {beyond} beyond the last arrival");
    }
}

#[test]
fn a_clean_run_is_one_delivery_and_a_loss_cuts_it() {
    let loss = LossSpec::Periodic { every: 10, offset: 3 };
    let mut link = link(LinkSpec { rate: rate("8Gbit"), delay: Nanos(100), loss, ..LinkSpec::default() });
    let mut out = Vec::new();
    // 1000 B take 1000 ns, the last of 500 B takes 500 ns.
    link.send_run(Nanos(0), 10, 1000, 500, &mut out);
    let delivery = |first, packets, first_arrival, arrival| Delivery {
        first,
        packets,
        first_arrival: Nanos(first_arrival),
        arrival: Nanos(arrival),
        kind: DeliveryKind::Original,
        corrupt: false,
    };
    assert_eq!(out, [delivery(0, 3, 1_100, 3_100), delivery(4, 6, 5_100, 9_600)]);
    let expected = Counters { offered: 10, delivered: 9, lost: 1, ..Counters::default() };
    assert_eq!(link.counters(), expected);
    assert_eq!(link.busy_until(), Nanos(9_500));
    link.send_run(Nanos(0), 0, 1000, 1000, &mut out);
    assert_eq!(link.counters(), expected);
}

#[test]
fn an_idle_line_starts_at_once_and_a_busy_one_queues() {
    let mut link = link(LinkSpec { rate: rate("8Gbit"), ..LinkSpec::default() });
    let mut out = Vec::new();
    for now in [0, 500, 10_000] {
        link.send_run(Nanos(now), 1, 1000, 1000, &mut out);
    }
    assert_eq!(out.iter().map(|d| d.arrival.0).collect::<Vec<_>>(), [1_000, 2_000, 11_000]);
    assert_eq!(link.backlog(Nanos(10_400)), ByteSize(600));
    assert_eq!(link.backlog(Nanos(11_000)), ByteSize(0));
}

#[test]
fn a_full_queue_drops_its_tail() {
    let queue = Some(ByteSize(10_000));
    let mut link = link(LinkSpec { rate: rate("8Gbit"), queue, ..LinkSpec::default() });
    let mut out = Vec::new();
    link.send_run(Nanos(0), 64, 1000, 1000, &mut out);
    assert_eq!((out.len(), out[0].packets, link.backlog(Nanos(0)).0), (1, 10, 10_000));
    out.clear();
    // 2.5 packets have left: two more fit, and then a small last one.
    link.send_run(Nanos(2_500), 5, 1000, 500, &mut out);
    assert_eq!(out.iter().map(|d| (d.first, d.packets)).collect::<Vec<_>>(), [(0, 2), (4, 1)]);
    assert_eq!(link.backlog(Nanos(2_500)), ByteSize(10_000));
    let expected = Counters { offered: 69, delivered: 13, queue_drops: 56, ..Counters::default() };
    assert_eq!(link.counters(), expected);
}

#[test]
fn an_idle_line_takes_one_packet_larger_than_the_queue() {
    let mut link = link(LinkSpec { rate: rate("8Gbit"), queue: Some(ByteSize(0)), ..LinkSpec::default() });
    let mut out = Vec::new();
    link.send_run(Nanos(0), 3, 1000, 1000, &mut out);
    link.send_run(Nanos(999), 1, 1000, 1000, &mut out);
    link.send_run(Nanos(1_000), 1, 1000, 1000, &mut out);
    assert_eq!(out.iter().map(|d| d.arrival.0).collect::<Vec<_>>(), [1_000, 2_000]);
}

#[test]
fn jitter_stays_in_its_bounds_fills_them_and_reorders() {
    let seed = 7;
    let (delay, jitter) = (Nanos::from_millis(5), Nanos::from_millis(1));
    let mut link = link(LinkSpec { delay, jitter, seed, ..LinkSpec::default() });
    let mut out = Vec::new();
    link.send_run(Nanos(0), 100_000, 1000, 1000, &mut out);
    let arrivals: Vec<u64> = out.iter().map(|d| d.arrival.0).collect();
    assert!(arrivals.iter().all(|a| (4_000_000..=6_000_000).contains(a)), "seed {seed}");
    // A uniform law: mean 5 ms with sigma 1.8 us of the mean, and each tenth of the width holds a tenth (sigma 95).
    let mean = arrivals.iter().sum::<u64>() as f64 / 1e5;
    assert!((mean - 5e6).abs() < 8e3, "seed {seed}: mean {mean}");
    for tenth in 0..10u64 {
        let held = arrivals.iter().filter(|a| (*a - 4_000_000) / 200_000 == tenth).count();
        assert!((9_600..10_400).contains(&held), "seed {seed} tenth {tenth}: {held}");
    }
    assert!(arrivals.windows(2).any(|w| w[0] > w[1]), "seed {seed}: nothing overtook");
}

#[test]
fn jitter_beyond_the_delay_never_arrives_before_it_was_sent() {
    let mut link = link(LinkSpec { delay: Nanos(10), jitter: Nanos(1_000), seed: 1, ..LinkSpec::default() });
    let mut out = Vec::new();
    link.send_run(Nanos(5_000), 1_000, 1000, 1000, &mut out);
    assert!(out.iter().all(|d| (5_000..=6_010).contains(&d.arrival.0)), "seed 1");
}

#[test]
fn held_packets_wait_whole_packet_times_within_the_span() {
    let (seed, span) = (3, 4);
    let spec = LinkSpec { reorder: p(0.25), reorder_span: span, seed, ..LinkSpec::default() };
    let mut link = link(spec);
    let mut out = Vec::new();
    link.send_run(Nanos(0), 40_000, 1000, 1000, &mut out);
    let mut held = [0u32; 5];
    for delivery in &out {
        assert_eq!(delivery.arrival.0 % 10_000, 0, "seed {seed}");
        held[(delivery.arrival.0 / 10_000) as usize] += 1;
    }
    // 30000 at once and 2500 at each of 1 to 4 packet times; sigma 48.
    assert!((29_600..30_400).contains(&held[0]), "seed {seed}: {held:?}");
    assert!(held[1..].iter().all(|n| (2_300..2_700).contains(n)), "seed {seed}: {held:?}");
    assert_eq!(link.counters().reordered, u64::from(held[1..].iter().sum::<u32>()));
}

#[test]
fn duplicates_and_corruption_are_flagged_and_counted() {
    let seed = 21;
    let spec = LinkSpec {
        jitter: Nanos(50),
        delay: Nanos(100),
        duplicate: p(0.1),
        corrupt: p(0.2),
        seed,
        ..LinkSpec::default()
    };
    let mut link = link(spec);
    let mut out = Vec::new();
    link.send_run(Nanos(0), 10_000, 1000, 1000, &mut out);
    let copies: Vec<_> = out.windows(2).filter(|w| w[1].kind == DeliveryKind::Duplicate).collect();
    // Sigma 30 and 47.
    assert!((880..1_120).contains(&copies.len()), "seed {seed}: {} copies", copies.len());
    assert!(copies.iter().all(|w| w[0].first == w[1].first && w[0].kind == DeliveryKind::Original));
    assert!(copies.iter().any(|w| w[0].arrival != w[1].arrival), "seed {seed}: copies share their delay");
    let corrupt = out.iter().filter(|d| d.corrupt).count();
    assert!((2_010..2_390).contains(&corrupt), "seed {seed}: {corrupt} corrupt");
    let expected = Counters {
        offered: 10_000,
        delivered: 10_000,
        duplicated: copies.len() as u64,
        corrupted: corrupt as u64,
        ..Counters::default()
    };
    assert_eq!(link.counters(), expected);
}

#[test]
fn parameters_change_in_mid_stream() {
    let mut link = link(LinkSpec { rate: rate("8Gbit"), delay: Nanos(1_000), ..LinkSpec::default() });
    let mut out = Vec::new();
    let mut send = |link: &mut Link, now| {
        out.clear();
        link.send_run(Nanos(now), 1, 1000, 1000, &mut out);
        out.first().map(|d| d.arrival.0)
    };
    assert_eq!(send(&mut link, 0), Some(2_000));
    link.set_delay(Nanos(10));
    assert_eq!(send(&mut link, 0), Some(2_010));
    link.set_rate(rate("80Gbit"));
    // Behind the 2000 ns already queued, then ten times as fast.
    assert_eq!(send(&mut link, 0), Some(2_110));
    link.set_loss(LossSpec::Periodic { every: 1, offset: 0 }).unwrap();
    assert_eq!(send(&mut link, 0), None);
    assert!(link.set_loss(LossSpec::Periodic { every: 0, offset: 0 }).is_err());
    assert_eq!(send(&mut link, 0), None, "a refused change leaves the model");
    link.set_loss(LossSpec::None).unwrap();
    link.set_rate(None);
    assert_eq!(send(&mut link, 5_000), Some(5_010));
}

#[test]
fn bursts_without_a_rate_count_packets() {
    let seed = 13;
    let mut link =
        link(LinkSpec { loss: LossSpec::bursty(p(0.01), 8.0).unwrap(), seed, ..LinkSpec::default() });
    let mut out = Vec::new();
    for _ in 0..1_000 {
        link.send_run(Nanos(0), 10_000, 1000, 1000, &mut out);
    }
    let lost = link.counters().lost as f64;
    // 12500 bursts: sigma is 1.3 percent of the sum and 0.9 percent of the mean.
    assert!((lost / 1e5 - 1.0).abs() < 0.06, "seed {seed}: {lost} lost");
    let bursts = (out.len() - 1_000) as f64;
    assert!((lost / bursts / 8.0 - 1.0).abs() < 0.05, "seed {seed}: {bursts} bursts");
}

#[test]
fn jitter_does_not_change_which_packets_are_lost() {
    let lost = |spec: LinkSpec| {
        let (mut link, mut out) = (link(spec), Vec::new());
        link.send_run(Nanos(0), 10_000, 4096, 4096, &mut out);
        let originals = out.iter().filter(|d| d.kind == DeliveryKind::Original);
        originals.flat_map(|d| d.first..d.first + d.packets).collect::<Vec<_>>()
    };
    let clean = LinkSpec { loss: rough(4).loss, rate: rough(4).rate, seed: 4, ..LinkSpec::default() };
    assert_eq!(lost(clean), lost(rough(4)), "seed 4");
}

/// Single packets of `cuts` runs sent at the same instants; `first` counted over all.
fn singles(spec: &LinkSpec, cuts: &[u32]) -> (Vec<Delivery>, Counters) {
    let mut link = link(spec.clone());
    let mut all = Vec::new();
    for round in 0..20u32 {
        let now = Nanos(u64::from(round) * 6_007);
        let mut base = round * 64;
        for &packets in cuts {
            let from = all.len();
            link.send_run(now, packets, 4096, 4096, &mut all);
            for delivery in &mut all[from..] {
                delivery.first += base;
            }
            base += packets;
        }
    }
    (all, link.counters())
}

proptest! {
    #[test]
    fn cutting_a_run_changes_nothing(seed: u64, cut in 1u32..63, queue in prop::option::of(0u64..600_000), bits in 1_000_000_000u64..1_000_000_000_000) {
        let rate = Some(BitRate::new(bits).unwrap());
        let spec = LinkSpec { rate, queue: queue.map(ByteSize), ..rough(seed) };
        let whole = singles(&spec, &[64]);
        prop_assert_eq!(&singles(&spec, &[cut, 64 - cut]), &whole);
        prop_assert_eq!(&singles(&spec, &[1; 64]), &whole);
        prop_assert_eq!(whole.1.offered, whole.1.queue_drops + whole.1.lost + whole.1.delivered);
    }

    #[test]
    fn stretches_cover_the_packets_sent_one_by_one(seed: u64, bits in 1_000_000_000u64..1_000_000_000_000) {
        let rate = Some(BitRate::new(bits).unwrap());
        let spec = LinkSpec { rate, loss: rough(0).loss, delay: Nanos(77), seed, ..LinkSpec::default() };
        let (stretches, counters) = singles(&spec, &[64]);
        let (packets, one_by_one) = singles(&spec, &[1; 64]);
        prop_assert_eq!(counters, one_by_one);
        let mut packets = packets.iter();
        for stretch in stretches {
            let covered: Vec<_> = packets.by_ref().take(stretch.packets as usize).collect();
            prop_assert_eq!(covered[0].first, stretch.first);
            prop_assert_eq!(covered[0].arrival, stretch.first_arrival);
            let last = covered[covered.len() - 1];
            prop_assert_eq!(last.first, stretch.first + stretch.packets - 1);
            prop_assert_eq!(last.arrival, stretch.arrival);
        }
        prop_assert!(packets.next().is_none());
    }

    #[test]
    fn extreme_parameters_do_not_panic(now: u64, packets: u32, bytes: u32, bits in 1u64.., overhead: u32, queue: u64, delay: u64) {
        let rate = Some(BitRate::new(bits).unwrap());
        let (queue, delay) = (Some(ByteSize(queue)), Nanos(delay));
        let loss = LossSpec::bursty(p(1e-6), 1e6).unwrap();
        let mut link = link(LinkSpec { rate, delay, loss, overhead, queue, ..LinkSpec::default() });
        let mut out = Vec::new();
        for _ in 0..3 {
            link.send_run(Nanos(now), packets, bytes, 1, &mut out);
        }
        let _ = (link.busy_until(), link.backlog(Nanos(now)));
    }
}

/// Packets per second of the model itself; run by hand, in release.
#[test]
#[ignore = "a timing, not a test"]
#[expect(clippy::disallowed_methods, reason = "measures the model from outside")]
fn throughput() {
    let loss = |burst| LossSpec::bursty(p(1e-5), burst).unwrap();
    let plain = LinkSpec { rate: rate("400Gbit"), delay: Nanos::from_millis(12), ..LinkSpec::default() };
    for (name, spec) in [
        ("iid 1e-5", LinkSpec { loss: loss(1.0), ..plain.clone() }),
        ("bursts of 4, 1e-5", LinkSpec { loss: loss(4.0), ..plain.clone() }),
        ("iid 1e-5, queue", LinkSpec { loss: loss(1.0), queue: Some(ByteSize(1 << 30)), ..plain.clone() }),
        ("iid 1e-5, jitter", LinkSpec { loss: loss(1.0), jitter: Nanos(1_000), ..plain }),
    ] {
        let (mut link, mut out) = (link(spec), Vec::new());
        let runs = 1_000_000u64;
        let began = std::time::Instant::now();
        for run in 0..runs {
            out.clear();
            link.send_run(Nanos(run * 5_243), 64, 4096, 4096, &mut out);
        }
        let per_second = (runs * 64) as f64 / began.elapsed().as_secs_f64();
        println!("{name}: {:.0} million packets/s", per_second / 1e6);
    }
}
