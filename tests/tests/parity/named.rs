//! Losses that parity has to make up for, and memory for it that is not there.

use super::{SimBed, hybrid, lose, schemes, usual};
use netem::pair::PairConfig;
use netem::sim::{Direction, FrameKind, Verdict};
use netem::{Pair, QpPair};
use sdr_sdk::reliability::{Loss, Scheme, Striped};
use sdr_sdk::types::Nanos;
use sdr_tests::bed::{Bed, PACKET, RTT, config_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One message alone, on a connection that has measured its path; returns how long it took in RTT.
fn one(bed: &mut SimBed, len: usize) -> f64 {
    bed.recv(1, len);
    bed.pass(RTT.mul_div(4, 1));
    bed.send(0, len);
    let took = bed.complete(RTT.mul_div(80, 1));
    took.0 as f64 / RTT.0 as f64
}

/// The same, and no data packet passes for so long after the first transmission of packet `from`.
fn after_dark(bed: &mut SimBed, len: usize, from: u32, dark: Nanos) -> f64 {
    let mut end = None;
    bed.tap(Direction::A_TO_B, move |f| {
        let FrameKind::Data { first, .. } = f.kind else { return Verdict::Pass };
        if first == from && end.is_none() {
            end = Some(f.now + dark);
        }
        if end.is_some_and(|end| f.now < end) { Verdict::Drop } else { Verdict::Pass }
    });
    one(bed, len)
}

#[test]
fn a_one_packet_message_lost() {
    for scheme in schemes() {
        for times in [1, 2, 3, 10] {
            let mut bed = SimBed::new(usual(&scheme));
            let dropped = lose(&bed, times, |first| first == 0);
            let took = one(&mut bed, 100);
            println!("{} lost {times} times: {took:.2} RTT", scheme.name());
            assert!(dropped.load(Ordering::Relaxed) > 0);
            // Its parity is not lost.
            assert!(took < 1.3, "{} {times}: {took}", scheme.name());
        }
        for half_trips in [1, 3, 5] {
            let mut bed = SimBed::new(usual(&scheme));
            let dark = RTT.mul_div(half_trips, 2);
            let took = after_dark(&mut bed, 100, 0, dark);
            println!("{} dark for {half_trips}/2 RTT: {took:.2} RTT", scheme.name());
            assert!(took < 2.2 + 0.5 * half_trips as f64, "{} {half_trips}: {took}", scheme.name());
        }
    }
}

#[test]
fn only_parity_arrives() {
    // Data never comes; short enough that there is as much parity.
    for scheme in [hybrid(), schemes()[1].clone()] {
        for packets in 1..=3 {
            let mut bed = SimBed::new(usual(&scheme));
            lose(&bed, u32::MAX, move |first| first < packets as u32);
            let took = one(&mut bed, packets * PACKET - 5);
            println!("{} {packets} packets, only parity: {took:.2} RTT", scheme.name());
            assert!(took < 1.5, "{took}");
        }
    }
    // All first transmissions of data are lost.
    for scheme in schemes() {
        for packets in [5, 40, 300] {
            let mut bed = SimBed::new(usual(&scheme));
            lose(&bed, 1, move |first| first < packets as u32);
            let took = one(&mut bed, packets * PACKET - 5);
            println!("{} {packets} packets of data lost once: {took:.2} RTT", scheme.name());
            assert!(took < 12.0, "{took}");
        }
    }
}

#[test]
fn all_last_packets_lost() {
    for scheme in schemes() {
        for (packets, last) in [(10, 1), (100, 20), (900, 100), (900, 600)] {
            for half_trips in [1, 4] {
                let mut bed = SimBed::new(usual(&scheme));
                // From the first of the last packets on, with all parity.
                let dark = RTT.mul_div(half_trips, 2);
                let took = after_dark(&mut bed, packets as usize * PACKET - 5, packets - last, dark);
                println!("{} last {last} of {packets}, {half_trips}/2 RTT: {took:.2} RTT", scheme.name());
                let clean = 1.0 + f64::from(packets) / 488.0;
                assert!(
                    took < clean + 4.5 + half_trips as f64,
                    "{} {last} of {packets}: {took}",
                    scheme.name()
                );
            }
        }
    }
}

#[test]
fn little_or_no_memory_for_parity() {
    for scheme in schemes() {
        for pool in [0, 1, PACKET, 1 << 16, 3 << 16] {
            for channels in [1, 4] {
                let mut c = config_of("rtt=25ms,rate=100Mbit,loss=0.05,seed=3", scheme.clone());
                c.connection.parity_pool = Some(pool);
                c.sim.channels = channels;
                let mut bed = SimBed::new(c);
                bed.one_way(0, 8, 150 * PACKET + 3);
                let took = bed.complete(RTT.mul_div(80, 1));
                println!("{} pool {pool}: {:.1} RTT", scheme.name(), took.0 as f64 / RTT.0 as f64);
            }
        }
    }
}

/// Two ends with parity pools of their own.
fn with_pools(c: &PairConfig, pools: [usize; 2]) -> SimBed {
    let [a, b] = pools.map(|pool| c.connection.clone().parity_pool(pool));
    let (qps, halves) = QpPair::new(c.sim.clone(), c.context, &c.qp).expect("settings");
    Bed::over(Pair::over_each(qps, halves, [&a, &b]))
}

/// The receiver has memory for parity that the sender can not make: what is lacking is asked for as data.
#[test]
fn memory_at_one_end_only() {
    for scheme in schemes() {
        let few = |scheme: &Arc<dyn Scheme>, pools| {
            let mut bed = with_pools(&usual(scheme), pools);
            lose(&bed, 1, |first| first == 60);
            one(&mut bed, 100 * PACKET)
        };
        for pools in [[0, 64 << 20], [64 << 20, 0], [0, 0]] {
            let took = few(&scheme, pools);
            println!("{} pools {pools:?}: {took:.2} RTT", scheme.name());
            assert!(took < 4.0, "{} pools {pools:?}: {took}", scheme.name());
        }
    }
}

/// Where no loss is expected `auto` sends no parity; those that come are repaired all the same, the last packets included.
#[test]
fn auto_on_a_path_that_is_worse_than_it_seemed() {
    for burst in [1.0, 16.0] {
        let auto = Arc::new(Striped::auto());
        let mut c = config_of(&format!("rtt=25ms,rate=100Mbit,loss=0.1,burst={burst},seed=3"), auto);
        c.connection.loss = Some(Loss { probability: 1e-9, burst });
        let mut bed = SimBed::new(c);
        bed.one_way(0, 8, 150 * PACKET + 3);
        let took = bed.complete(RTT.mul_div(80, 1));
        let stats = bed.pair.connections[0].stats();
        println!("burst {burst}: {:.1} RTT, {stats:?}", took.0 as f64 / RTT.0 as f64);
        assert!(stats.parity == 0 && stats.sent < 4 * 8 * 151, "{stats:?}");
    }
}

/// A message that needs every packet number of the immediate has none left for parity.
#[test]
fn no_packet_numbers_left_for_parity() {
    for scheme in schemes() {
        let mut c = config_of("rtt=1ms,rate=10Gbit,seed=1", scheme.clone());
        c.sim.max_payload = 4;
        c.connection.rate = Some(2_000_000_000);
        c.connection.per_chunk = 64;
        let mut bed = SimBed::new(c);
        bed.one_way(0, 1, 4 << 18);
        bed.complete(Nanos::from_secs(60));
    }
}
