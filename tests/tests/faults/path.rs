//! Paths that go dark, change, lose, reorder and copy.

use super::{Bed, config, usual};
use netem::PairConfig;
use netem::loss::LossSpec;
use netem::sim::{Direction, Frame, FrameKind, Verdict};
use netem::units::{BitRate, Probability};
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::bed::{PACKET, RTO, RTT};

const BOTH: [Direction; 2] = [Direction::A_TO_B, Direction::B_TO_A];

/// 200 packets: 10 ms at the pace.
const LEN: usize = 200 * PACKET + 100;

fn counted_loosely(mut c: PairConfig) -> PairConfig {
    c.sim.exact_counts = false;
    c
}

fn tap(bed: &Bed, d: Direction, decide: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static) {
    bed.tap(d, decide);
}

fn is_data(f: &Frame<'_>) -> bool {
    matches!(f.kind, FrameKind::Data { .. })
}

/// How long six messages each way take, in RTT.
fn six(case: &str, bed: &mut Bed, limit: Nanos) {
    println!("{case}");
    bed.exchange(6, LEN);
    let took = bed.complete(limit);
    println!("  {case}: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
}

#[test]
fn nothing_wrong() {
    six("clean", &mut Bed::new(usual()), RTT.mul_div(12, 1));
}

#[test]
fn directions_dark_for_3_rto_then_healed() {
    type Dark = fn(&Frame<'_>) -> bool;
    let cases: [(&str, &[Direction], Dark); 7] = [
        ("data from A", &[Direction::A_TO_B], is_data),
        ("control from A", &[Direction::A_TO_B], |f| !is_data(f)),
        ("all from A", &[Direction::A_TO_B], |_| true),
        ("data of both", &BOTH, is_data),
        ("control of both", &BOTH, |f| !is_data(f)),
        ("all from B", &[Direction::B_TO_A], |_| true),
        ("all of both", &BOTH, |_| true),
    ];
    for (case, directions, dark) in cases {
        // From before the first grant, amid the data, and around the last packets.
        for from in [0, 30, 55, 85].map(Nanos::from_millis) {
            let mut bed = Bed::new(usual());
            for d in directions {
                tap(&bed, *d, move |f| {
                    let hit = f.now >= from && f.now < from + RTO.mul_div(3, 1) && dark(f);
                    if hit { Verdict::Drop } else { Verdict::Pass }
                });
            }
            six(&format!("{case} dark from {from}"), &mut bed, RTT.mul_div(60, 1));
        }
    }
}

#[test]
fn a_dead_channel_heals() {
    for channel in 0..4 {
        let mut bed = Bed::new(usual());
        tap(&bed, Direction::A_TO_B, move |f| {
            let dead = f.now < Nanos::from_secs(1)
                && matches!(f.kind, FrameKind::Data { channel: ch, .. } if ch == Channel(channel));
            if dead { Verdict::Drop } else { Verdict::Pass }
        });
        six(&format!("channel {channel} dead"), &mut bed, RTT.mul_div(40, 1));
        bed.until(Nanos::from_secs(1), |_| false);
        six(&format!("channel {channel} healed"), &mut bed, RTT.mul_div(12, 1));
    }
}

#[test]
fn a_channel_10_ms_behind() {
    for channel in 0..4 {
        let mut bed = Bed::new(usual());
        tap(&bed, Direction::A_TO_B, move |f| match f.kind {
            FrameKind::Data { channel: ch, .. } if ch == Channel(channel) => {
                Verdict::Delay(Nanos::from_millis(10))
            }
            _ => Verdict::Pass,
        });
        six(&format!("channel {channel} 10 ms slower"), &mut bed, RTT.mul_div(14, 1));
        // Nothing was lost. What is found by news of other channels may be wrong until it was learned how far they are apart.
        let stats = bed.pair.connections[0].stats();
        let allowed = if usual().connection.scheme.name() == "sr" { 0 } else { stats.sent / 50 };
        assert!(stats.repairs <= allowed, "{} repairs of {}", stats.repairs, stats.sent);
    }
}

#[test]
fn round_trip_steps_up_and_down() {
    for (before, after) in [(25, 60), (60, 25), (5, 250), (250, 5)] {
        let mut bed = Bed::new(config(&format!("rtt={before}ms,rate=100Mbit")));
        bed.exchange(20, LEN);
        bed.pass(Nanos::from_millis(100));
        for d in BOTH {
            bed.link(d, |link| link.set_delay(Nanos::from_micros(after * 500)));
        }
        let took =
            bed.complete(Nanos::from_millis(after.max(before)).mul_div(20, 1) + Nanos::from_millis(300));
        println!("RTT {before} to {after} ms: {took} after the step");
        for _ in 0..30 {
            bed.exchange(1, PACKET);
            bed.complete(Nanos::from_secs(2));
        }
        let before = bed.pair.connections[0].stats().repairs;
        bed.exchange(6, LEN);
        bed.complete(Nanos::from_secs(2));
        assert_eq!(bed.pair.connections[0].stats().repairs, before, "the timeout follows the new round trip");
    }
}

#[test]
fn rate_steps_down_and_up() {
    for (before, after) in [("100Mbit", "20Mbit"), ("20Mbit", "1Gbit")] {
        let mut bed = Bed::new(config(&format!("rtt=25ms,rate={before},queue=64KiB")));
        bed.exchange(6, LEN);
        bed.pass(Nanos::from_millis(60));
        let rate: BitRate = after.parse().unwrap();
        for d in BOTH {
            bed.link(d, |link| link.set_rate(Some(rate)));
        }
        let took = bed.complete(Nanos::from_secs(10));
        println!("rate {before} to {after}: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    }
}

#[test]
fn everything_twice() {
    for later in [0, 1, 30, 300].map(Nanos::from_millis) {
        let mut bed = Bed::new(counted_loosely(usual()));
        for d in BOTH {
            tap(&bed, d, move |_| Verdict::Duplicate(later));
        }
        six(&format!("copies {later} later"), &mut bed, RTT.mul_div(14, 1));
    }
}

#[test]
fn order_beyond_any_window() {
    for (path, limit) in [
        ("rtt=25ms,rate=100Mbit,jitter=12ms,reorder=0.5,seed=3", 40),
        ("rtt=50ms,rate=100Mbit,jitter=25ms,seed=4", 60),
        ("rtt=25ms,rate=100Mbit,jitter=12ms,dup=0.3,loss=0.02,seed=5", 80),
    ] {
        let mut bed = Bed::new(counted_loosely(config(path)));
        six(path, &mut bed, RTT.mul_div(limit, 1));
    }
}

#[test]
fn a_twentieth_of_control_corrupt() {
    let mut bed = Bed::new(usual());
    for d in BOTH {
        let mut rng = netem::rng::Random::new(d.to.into());
        tap(&bed, d, move |f| if !is_data(f) && rng.chance(0.05) { Verdict::Corrupt } else { Verdict::Pass });
    }
    for _ in 0..20 {
        six("5 % of control corrupt", &mut bed, RTT.mul_div(20, 1));
    }
    assert!(bed.counters(0).corrupt > 10);
}

#[test]
fn half_of_everything_lost() {
    for seed in 0..5 {
        let mut bed = Bed::new(config(&format!("rtt=25ms,rate=100Mbit,loss=0.5,seed={seed}")));
        six("half lost", &mut bed, RTT.mul_div(200, 1));
    }
}

#[test]
fn bursts_of_50() {
    for (loss, seed) in [(0.01, 1), (0.05, 2), (0.2, 3), (0.2, 4)] {
        let path = format!("rtt=25ms,rate=100Mbit,loss={loss},burst=50,seed={seed}");
        six(&path, &mut Bed::new(config(&path)), RTT.mul_div(100, 1));
    }
}

#[test]
fn loss_starts_and_ends_amid_messages() {
    let mut bed = Bed::new(usual());
    let set = |bed: &Bed, p: f64| {
        let loss = LossSpec::bursty(Probability::new(p).unwrap(), 1.0).unwrap();
        for d in BOTH {
            bed.link(d, |link| link.set_loss(loss.clone())).unwrap();
        }
    };
    bed.exchange(12, LEN);
    for p in [0.9, 0.0, 0.3, 0.0] {
        bed.pass(Nanos::from_millis(40));
        set(&bed, p);
    }
    bed.complete(RTT.mul_div(60, 1));
}

/// Drops each packet for which `lost` says so, `times` times.
fn lose(bed: &Bed, d: Direction, times: u32, lost: impl Fn(u32) -> bool + Send + 'static) {
    let mut seen = std::collections::HashMap::new();
    tap(bed, d, move |f| {
        let FrameKind::Data { at, first, .. } = f.kind else { return Verdict::Pass };
        if !lost(first) {
            return Verdict::Pass;
        }
        let n = seen.entry((at.slot, at.generation, first)).or_insert(0);
        *n += 1;
        if *n <= times { Verdict::Drop } else { Verdict::Pass }
    });
}

#[test]
fn a_message_of_one_packet_lost() {
    for times in [1, 2, 3, 10] {
        let mut bed = Bed::new(usual());
        for d in BOTH {
            lose(&bed, d, times, |first| first == 0);
        }
        bed.exchange(4, 77);
        let took = bed.complete(RTO.mul_div(u64::from(times), 1) + RTT.mul_div(16, 1));
        println!("one packet lost {times} times: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    }
}

#[test]
fn all_last_packets_lost() {
    for (times, last) in [(1, 1), (3, 1), (1, 100), (3, 200)] {
        let mut bed = Bed::new(usual());
        for d in BOTH {
            lose(&bed, d, times, move |first| first > 200 - last);
        }
        println!("last {last} lost {times} times");
        bed.exchange(4, LEN);
        let took = bed.complete(RTO.mul_div(u64::from(times), 1) + RTT.mul_div(20, 1));
        println!("  {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    }
}

#[test]
fn one_packet_of_the_middle_lost_ten_times() {
    let mut bed = Bed::new(usual());
    for d in BOTH {
        lose(&bed, d, 10, |first| first == 77);
    }
    bed.exchange(3, LEN);
    let took = bed.complete(RTO.mul_div(10, 1) + RTT.mul_div(20, 1));
    println!("one packet lost 10 times: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
}

/// Messages that wait behind others make no progress of their own, and yet nothing is stalled.
#[test]
fn messages_queued_for_longer_than_the_progress_deadline() {
    let mut c = config("rtt=25ms,rate=10Mbit");
    c.connection.rate = Some(8_000_000);
    c.connection.progress_deadline = Nanos::from_secs(1);
    let mut bed = Bed::new(c);
    // 0.5 s each.
    bed.exchange(8, 1000 * PACKET);
    bed.complete(Nanos::from_secs(6));
}

/// A fabric with little queue space makes nobody poll for nothing.
#[test]
fn full_send_queues() {
    for (posts, controls) in [(Some(8), None), (None, Some(1)), (Some(1), Some(1))] {
        println!("{posts:?} {controls:?}");
        let mut c = config("rtt=25ms,rate=10Mbit");
        c.connection.rate = None;
        c.connection.scheme = std::sync::Arc::new(sdr_sdk::reliability::SelectiveRepeat::new(20_000));
        (c.sim.post_limit, c.sim.control_limit) = (posts, controls);
        let mut bed = Bed::new(c);
        bed.exchange(3, LEN);
        bed.complete(Nanos::from_secs(10));
    }
}
