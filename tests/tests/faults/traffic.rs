//! Control datagrams counted: what is quiet stays quiet, and nothing is amplified.

use super::{Bed, usual};
use netem::sim::{Direction, Forged, FrameKind, Verdict};
use sdr_sdk::types::{Nanos, QueueSet};
use sdr_tests::bed::{PACKET, RTT};
use sdr_tests::control::datagrams;
use std::sync::{Arc, Mutex};

#[test]
fn a_quiet_connection_with_receives_posted_keeps_alive_and_no_more() {
    for receiving in [vec![0], vec![0, 1]] {
        let mut bed = Bed::new(usual());
        for &end in &receiving {
            for _ in 0..10 {
                bed.recv(end, PACKET);
            }
        }
        bed.pass(Nanos::from_secs(2));
        let before = datagrams(&bed.pair);
        bed.pass(Nanos::from_secs(15));
        let sent = datagrams(&bed.pair) - before;
        println!("{} ends wait: {sent} datagrams in 15 s", receiving.len());
        // A probe each 150 ms and its answer.
        assert!(sent <= 2 * receiving.len() as u64 * 101, "{sent}");
        assert!(sent >= 100, "{sent}");
    }
}

#[test]
fn a_connection_without_work_falls_silent() {
    let mut bed = Bed::new(usual());
    bed.exchange(20, 50 * PACKET);
    bed.complete(RTT.mul_div(20, 1));
    bed.pass(RTT.mul_div(4, 1));
    let before = datagrams(&bed.pair);
    bed.pass(Nanos::from_secs(100));
    assert_eq!(datagrams(&bed.pair), before);
}

/// What a message costs in control datagrams, one after the other and many at once.
#[test]
fn control_of_a_message_is_bounded() {
    for (n, len, limit) in [(1, PACKET, 300), (1, 1000 * PACKET, 500), (100, PACKET, 30_000)] {
        let mut bed = Bed::new(usual());
        bed.exchange(1, PACKET);
        bed.complete(RTT.mul_div(20, 1));
        bed.pass(Nanos::from_secs(1));
        let before = datagrams(&bed.pair);
        bed.one_way(0, n, len);
        bed.complete(RTT.mul_div(40, 1));
        bed.pass(Nanos::from_secs(1));
        let sent = datagrams(&bed.pair) - before;
        println!("{n} messages of {len} bytes: {sent} control datagrams");
        assert!(sent <= limit, "{sent}");
    }
}

/// Each datagram that came by earlier, played again to an end that has nothing to say, is answered by at most one.
#[test]
fn a_datagram_is_answered_by_at_most_one() {
    let mut bed = Bed::new(usual());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    bed.pair.qps.net.tap(Direction::A_TO_B, Default::default(), move |f| {
        if let FrameKind::Control(bytes) = f.kind {
            log.lock().unwrap().push(bytes.to_vec());
        }
        Verdict::Pass
    });
    bed.exchange(6, 100 * PACKET);
    bed.complete(RTT.mul_div(20, 1));
    bed.pass(Nanos::from_secs(2));
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let mut answers = 0;
    for (i, bytes) in heard.into_iter().enumerate() {
        let before = bed.pair.qps.net.counters(1).control_sent;
        let total = datagrams(&bed.pair);
        let at = bed.now();
        bed.pair.qps.net.inject(
            Direction::A_TO_B,
            at,
            Forged::Control { q: QueueSet(0), bytes, valid: true },
        );
        bed.pass(Nanos::from_secs(1));
        let sent = bed.pair.qps.net.counters(1).control_sent - before;
        assert!(sent <= 1, "datagram {i} had {sent} answers");
        assert!(datagrams(&bed.pair) - total <= 2, "datagram {i} began a conversation");
        answers += sent;
    }
    println!("{answers} answers");
    assert!(!bed.pair.connections[1].ended());
}
