//! `sr-nack` over paths that lose, reorder and copy, and over channels that die, heal and lag.

use netem::sim::{Direction, FrameKind, Granularity, Verdict};
use netem::{PairConfig, Trial};
use sdr_sdk::reliability::{Scheme, SelectiveRepeat, SrNack};
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::bed::{PACKET, RTT, SimBed as Bed, USUAL, config_of};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

fn config(path: &str) -> PairConfig {
    let mut c = config_of(path, Arc::new(SrNack));
    c.sim.exact_counts = false;
    c
}

/// Packets that take one round trip at the pace.
const BDP: usize = 488;

/// Mean slowdown of messages over a path like that of the published figures.
fn slowdown(scheme: Arc<dyn Scheme>, bytes: u64, loss: &str, samples: u64) -> f64 {
    let path = format!("rtt=25ms,rate=400Gbit,seed=5,{loss}").parse().expect("a path");
    let trial = Trial { path, scheme, bytes, payload: 4096, per_chunk: 16, known_loss: None };
    let bound = trial.lower_bound().expect("a rate").0 as f64;
    let samples = trial.run(samples, 2, &|_| true).expect("every sample ends");
    samples.iter().map(|s| s.completion.0 as f64 / bound).sum::<f64>() / samples.len() as f64
}

/// The model of "SDR-RDMA" with a timeout of one round trip ("SR NACK"), and what it has for these settings.
#[test]
fn completion_is_that_of_repairs_after_one_round_trip() {
    for (mib, loss, samples, published) in [
        (128, "loss=1e-5", 300, 1.24),
        (128, "loss=1e-4", 200, 1.85),
        (128, "loss=1e-3", 200, 1.93),
        (128, "loss=1e-2", 60, 2.80),
        (8, "loss=1e-3", 300, 1.87),
        (1024, "loss=1e-3", 10, 1.61),
        (128, "loss=1e-3,burst=16", 200, 1.77),
    ] {
        let mean = slowdown(Arc::new(SrNack), mib << 20, loss, samples);
        println!("{mib} MiB {loss}: {mean:.3}, published {published}");
        assert!((mean / published - 1.0).abs() < 0.06, "{mib} MiB {loss}: {mean}, published {published}");
    }
}

#[test]
fn never_slower_than_timeouts_alone() {
    for (bytes, loss) in [
        (4 << 10, "loss=0.3"),
        (4 << 10, "loss=0.5"),
        (1 << 20, "loss=0.5"),
        (8 << 20, "loss=0.1"),
        (8 << 20, "loss=0.01,burst=300"),
        (8 << 20, "loss=1e-3,jitter=2ms"),
        (8 << 20, "loss=0.05,jitter=5ms,reorder=0.3,dup=0.1"),
    ] {
        let nack = slowdown(Arc::new(SrNack), bytes, loss, 40);
        let sr = slowdown(Arc::new(SelectiveRepeat::default()), bytes, loss, 40);
        println!("{bytes} bytes, {loss}: {nack:.3}, by timeouts {sr:.3}");
        assert!(nack <= sr, "{bytes} bytes, {loss}: {nack}, by timeouts {sr}");
    }
}

#[test]
fn every_byte_whatever_is_lost() {
    for (loss, limit) in [
        ("loss=1e-3", 12),
        ("loss=0.01", 20),
        ("loss=0.1", 30),
        ("loss=0.5", 100),
        ("loss=0.02,burst=30", 30),
        ("loss=0.3,burst=200", 100),
    ] {
        for seed in 0..4 {
            let mut bed = Bed::new(config(&format!("rtt=25ms,rate=100Mbit,{loss},seed={seed}")));
            bed.exchange(6, 300 * PACKET + 7);
            let took = bed.complete(RTT.mul_div(limit, 1));
            println!("{loss} seed {seed}: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
        }
    }
}

/// Of packets that overtake each other by more than the window, many are sent twice at first, and few once it is known.
#[test]
fn spurious_repairs_end_when_the_reordering_is_known() {
    for path in ["jitter=1ms", "jitter=6ms", "jitter=3ms,reorder=0.3,dup=0.2"] {
        let mut bed = Bed::new(config(&format!("rtt=25ms,rate=100Mbit,seed=3,{path}")));
        let stats = |bed: &Bed| bed.pair.connections[0].stats();
        bed.one_way(0, 4, BDP * PACKET);
        bed.complete(RTT.mul_div(20, 1));
        let first = stats(&bed);
        bed.one_way(0, 12, BDP * PACKET);
        bed.complete(RTT.mul_div(40, 1));
        let all = stats(&bed);
        let (repairs, sent) = (all.repairs - first.repairs, all.sent - first.sent);
        println!("{path}: {} of {} at first, then {repairs} of {sent}", first.repairs, first.sent);
        assert!(first.repairs * 4 <= first.sent, "{} of {} at first", first.repairs, first.sent);
        assert!(repairs * 50 <= sent, "{repairs} of {sent} in the end");
    }
}

/// Packets on each channel of A, those that a dead one swallowed included.
struct Watch(Arc<Mutex<[u64; 4]>>);

impl Watch {
    /// Channel 1 is dark from `from` until `until`.
    fn new(bed: &Bed, from: Nanos, until: Nanos) -> Self {
        let counts = Arc::new(Mutex::new([0; 4]));
        let tapped = counts.clone();
        bed.pair.qps.net.tap(Direction::A_TO_B, Granularity::Packet, move |f| {
            let FrameKind::Data { channel, .. } = f.kind else { return Verdict::Pass };
            tapped.lock().unwrap()[usize::from(channel.0)] += 1;
            let dark = channel == Channel(1) && (from..until).contains(&f.now);
            if dark { Verdict::Drop } else { Verdict::Pass }
        });
        Self(counts)
    }

    fn take(&self) -> [u64; 4] {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A channel that goes dark a round trip into a message costs at most half as much again as never having had it.
#[test]
fn a_dead_channel_is_left_and_used_again_when_it_heals() {
    for bdps in [2, 4, 8] {
        let len = bdps * BDP * PACKET;
        let mut three = config(USUAL);
        three.sim.channels = 3;
        let mut bed = Bed::new(three);
        bed.one_way(0, 1, len);
        let usual = bed.complete(RTT.mul_div(40, 1));

        let mut bed = Bed::new(config(USUAL));
        let healed = Nanos::from_secs(2);
        // The grant takes half a round trip: the message begins then.
        let watch = Watch::new(&bed, RTT.mul_div(3, 2), healed);
        bed.one_way(0, 1, len);
        let took = bed.complete(RTT.mul_div(40, 1));
        println!("{bdps} BDP: {took}, with three channels {usual}; sent {:?}", watch.take());
        assert!(took.0 * 2 <= usual.0 * 3, "{took}, with three channels {usual}");

        // Once dead it carries a packet now and then, and costs next to nothing.
        bed.one_way(0, 1, 8 * BDP * PACKET);
        bed.complete(RTT.mul_div(40, 1));
        watch.take();
        let start = bed.now();
        while bed.now() < Nanos::from_millis(1_400) {
            bed.one_way(0, 1, len);
            bed.complete(RTT.mul_div(40, 1));
        }
        let (sent, while_dead) = (watch.take(), bed.now().since(start));
        println!("  in {while_dead} while it is dead {sent:?}");
        assert!(sent[1] >= 1 && sent[1] <= while_dead.0 / 100_000_000 + 1, "{sent:?}");

        bed.until(healed, |_| false);
        bed.one_way(0, 2, 16 * BDP * PACKET);
        bed.complete(RTT.mul_div(60, 1));
        watch.take();
        bed.one_way(0, 1, 4 * BDP * PACKET);
        let took = bed.complete(RTT.mul_div(20, 1));
        let sent = watch.take();
        println!("  healed: {took}, {sent:?}");
        assert!(sent.iter().all(|n| *n >= BDP as u64 * 9 / 10), "its quarter flows again: {sent:?}");
    }
}

/// A channel 10 ms slower than the others is no reason for repairs: at most one packet in 50 on the whole, and 1 % of them
/// once the delay is known.
#[test]
fn a_slow_channel_causes_few_repairs() {
    let mut bed = Bed::new(config(USUAL));
    bed.pair.qps.net.tap(Direction::A_TO_B, Granularity::Packet, |f| match f.kind {
        FrameKind::Data { channel: Channel(2), .. } => Verdict::Delay(Nanos::from_millis(10)),
        _ => Verdict::Pass,
    });
    let stats = |bed: &Bed| bed.pair.connections[0].stats();
    bed.one_way(0, 4, 2 * BDP * PACKET);
    bed.complete(RTT.mul_div(20, 1));
    let first = stats(&bed);
    assert!(first.repairs * 50 <= first.sent, "{} of {}", first.repairs, first.sent);
    bed.one_way(0, 8, 2 * BDP * PACKET);
    bed.complete(RTT.mul_div(30, 1));
    let (repairs, sent) = (stats(&bed).repairs - first.repairs, stats(&bed).sent - first.sent);
    assert!(repairs * 100 <= sent, "{repairs} of {sent}");
}

/// A packet of the middle that is lost again and again costs a round trip each time while others follow.
#[test]
fn a_repair_that_is_lost_is_repaired_after_a_round_trip() {
    let mut bed = Bed::new(config(USUAL));
    let lost = AtomicU64::new(0);
    bed.pair.qps.net.tap(Direction::A_TO_B, Granularity::Packet, move |f| match f.kind {
        FrameKind::Data { first: 50, .. } if lost.fetch_add(1, Ordering::Relaxed) < 4 => Verdict::Drop,
        _ => Verdict::Pass,
    });
    bed.one_way(0, 1, 6 * BDP * PACKET);
    let took = bed.complete(RTT.mul_div(9, 1));
    let repairs = bed.pair.connections[0].stats().repairs;
    println!("{:.2} RTT, {repairs} repairs", took.0 as f64 / RTT.0 as f64);
    assert!(took <= RTT.mul_div(31, 4), "found by what follows, before the message ends");
    assert_eq!(repairs, 4, "the packet and nothing else");
}
