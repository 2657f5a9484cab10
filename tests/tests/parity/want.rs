//! Requests for packets: lost, late, twice, forged.

#![expect(clippy::single_range_in_vec_init, reason = "a list of ranges is meant, not what they hold")]

use super::{SimBed, hybrid, lose, schemes, usual};
use netem::sim::{Direction, Frame, FrameKind, Verdict};
use sdr_sdk::connection::frames::Encoder;
use sdr_sdk::types::{Nanos, Seq};
use sdr_tests::bed::{PACKET, RTT};
use sdr_tests::control::{Fault, Kind, afflict, forge};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Messages whose last packets, with all parity, are lost once, so that the receiver has to ask.
#[test]
fn lost_late_or_twice() {
    for scheme in schemes() {
        let time = |fault: Option<Fault>| {
            let mut bed = SimBed::new(usual(&scheme));
            lose(&bed, 1, |first| first >= 80);
            let hits = fault.map(|f| afflict(&bed.pair.qps.net, Direction::B_TO_A, Kind::Want, f));
            bed.one_way(0, 6, 100 * PACKET + 9);
            let took = bed.complete(RTT.mul_div(60, 1));
            assert!(hits.is_none_or(|h| h.load(Ordering::Relaxed) > 0), "nothing was asked for");
            took.0 as f64 / RTT.0 as f64
        };
        let clean = time(None);
        for fault in [
            Fault::Lose(1),
            Fault::Lose(2),
            Fault::Lose(3),
            Fault::Lose(10),
            Fault::Corrupt(3),
            Fault::Delay(RTT),
            Fault::Delay(RTT.mul_div(3, 1)),
            Fault::Duplicate(Nanos::from_millis(1)),
            Fault::Duplicate(RTT),
        ] {
            let took = time(Some(fault));
            println!("{} {fault:?}: {took:.2} RTT, without {clean:.2}", scheme.name());
            assert!(took < clean + 8.0, "{} {fault:?}: {took} RTT, without {clean}", scheme.name());
        }
    }
}

fn want(seq: u64, ranges: &[Range<u32>]) -> Vec<u8> {
    let mut out = Vec::new();
    Encoder::new(&mut out, 1_100).want(Seq(seq), ranges, usize::MAX);
    out
}

/// Transmissions of each packet: when.
type Log = Arc<Mutex<HashMap<(Seq, u32), Vec<Nanos>>>>;

/// Asks for `ranges` of every message each tenth of a millisecond, while 4 messages pass and nothing is lost.
fn greedy(ranges: &[Range<u32>]) -> (SimBed, Log) {
    let mut bed = SimBed::new(usual(&hybrid()));
    let log: Log = Arc::default();
    let (l, header) = (log.clone(), Arc::new(Mutex::new(Vec::new())));
    bed.tap(Direction::A_TO_B, move |f: &Frame<'_>| {
        if let FrameKind::Data { at, first, packets, .. } = f.kind {
            for p in first..first + packets {
                l.lock().expect("a log").entry((at.seq, p)).or_default().push(f.now);
            }
        }
        Verdict::Pass
    });
    let h = header.clone();
    bed.tap(Direction::B_TO_A, move |f: &Frame<'_>| {
        if let FrameKind::Control(bytes) = f.kind {
            *h.lock().expect("a header") = bytes.to_vec();
        }
        Verdict::Pass
    });
    bed.one_way(0, 4, 400 * PACKET);
    let limit = bed.now() + RTT.mul_div(40, 1);
    while !bed.all_ended() {
        let stats = bed.pair.connections[0].stats();
        assert!(bed.now() < limit, "{} {stats:?}", bed.open());
        let known = header.lock().expect("a header").clone();
        if !known.is_empty() {
            for seq in 0..4 {
                // As long on its way as others, or the round trip would seem to shrink.
                let at = bed.now() + RTT.mul_div(1, 2);
                bed.pair.qps.net.inject(Direction::B_TO_A, at, forge(&known, false, &want(seq, ranges)));
            }
        }
        bed.pass(Nanos::from_micros(100));
    }
    bed.verify_all();
    (bed, log)
}

#[test]
fn a_greedy_peer_gets_each_packet_once_a_round_trip() {
    let every_second: Vec<_> = (0..500).map(|i| 2 * i..2 * i + 1).collect();
    for ranges in [vec![0..u32::MAX], vec![0..1], vec![u32::MAX - 1..u32::MAX], every_second] {
        let (bed, log) = greedy(&ranges);
        let log = log.lock().expect("a log");
        for ((seq, p), times) in log.iter() {
            // Once unasked, and one answer in each round trip.
            for t in times.windows(3) {
                assert!(t[2].since(t[0]) >= RTT, "packet {p} of {seq}: {times:?}");
            }
        }
        let sent: usize = log.values().map(Vec::len).sum();
        let trips = bed.now().0 / RTT.0 + 2;
        println!("{sent} transmissions of {} packets in {trips} RTT", log.len());
        assert!(sent as u64 <= log.len() as u64 * trips);
    }
}

/// Ranges outside the message, of messages that are not there, empty of meaning: survived, and nothing is sent for them.
#[test]
fn requests_for_nothing() {
    let mut bed = SimBed::new(usual(&hybrid()));
    bed.one_way(0, 2, 60 * PACKET);
    bed.complete(RTT.mul_div(20, 1));
    let before = bed.counters(0).sent;
    let header = Arc::new(Mutex::new(Vec::new()));
    let h = header.clone();
    bed.tap(Direction::B_TO_A, move |f: &Frame<'_>| {
        if let FrameKind::Control(bytes) = f.kind {
            *h.lock().expect("a header") = bytes.to_vec();
        }
        Verdict::Pass
    });
    bed.recv(1, 10);
    bed.pass(RTT);
    let known = header.lock().expect("a header").clone();
    for seq in [0, 1, 2, 3, u64::MAX] {
        for r in [0..1, 0..u32::MAX, 59..61, 1 << 31..u32::MAX] {
            let at = bed.now() + Nanos(1);
            bed.pair.qps.net.inject(Direction::B_TO_A, at, forge(&known, false, &want(seq, &[r])));
        }
    }
    bed.pass(RTT);
    assert_eq!(bed.counters(0).sent, before);
    bed.send(0, 10);
    bed.complete(RTT.mul_div(20, 1));
}
