//! Ends that stop, die, close or lose their driver.

use super::{Bed, Net, usual};
use sdr_sdk::connection::TransferError;
use sdr_sdk::control::CloseReason;
use sdr_sdk::qp::Closed;
use sdr_sdk::types::Nanos;
use sdr_tests::bed::{PACKET, RTT};
use sdr_tests::control::{Fault, Kind, afflict};
use sdr_tests::nets::FaultNet;

const LEN: usize = 100 * PACKET;
const DEATH: Nanos = Nanos::from_secs(3);
const KEEP_ALIVE: Nanos = Nanos::from_millis(150);

#[test]
fn ends_stop_for_2_s() {
    for (ends, from) in
        [(vec![0], 0), (vec![0], 40), (vec![1], 0), (vec![1], 40), (vec![0, 1], 40), (vec![0, 1], 55)]
    {
        println!("{ends:?} stop after {from} ms");
        let mut bed = Bed::new(usual());
        bed.exchange(6, LEN);
        bed.pass(Nanos::from_millis(from));
        ends.iter().for_each(|&end| bed.pair.qps.stop(end, true));
        bed.pass(Nanos::from_secs(2));
        ends.iter().for_each(|&end| bed.pair.qps.stop(end, false));
        let took = bed.complete(RTT.mul_div(20, 1));
        println!("  {:.1} RTT after it goes on", took.0 as f64 / RTT.0 as f64);
        bed.exchange(3, LEN);
        bed.complete(RTT.mul_div(12, 1));
    }
}

/// Its own standstill is not the peer's silence: an end that slept goes on when the peer is there.
#[test]
fn an_end_that_slept_for_long_does_not_declare_its_peer_dead() {
    for slept in [4, 60].map(Nanos::from_secs) {
        let mut bed = Bed::new(usual());
        bed.exchange(2, LEN);
        bed.complete(RTT.mul_div(12, 1));
        // Only the end that sleeps has something posted, so the peer sees no reason to end it.
        bed.recv(0, LEN);
        bed.pass(Nanos::from_secs(1));
        bed.pair.qps.stop(0, true);
        bed.pass(slept);
        bed.pair.qps.stop(0, false);
        bed.pass(RTT.mul_div(8, 1));
        bed.send(1, LEN);
        bed.complete(RTT.mul_div(8, 1));
    }
}

/// A queue pair with nothing posted may be idle for any time; what is posted then starts the clock.
#[test]
fn idle_time_is_no_silence() {
    let c = usual();
    let (mut pair, [(_, receive), (_send, _receive)]) = Net::ends(&c).unwrap();
    pair.run_until(Nanos::from_secs(60));
    let buf = pair.contexts[0].register(LEN).unwrap();
    let _posted = receive.recv(buf, 8).unwrap();
    pair.touch(0);
    pair.run_until(Nanos::from_secs(70));
    assert_eq!(receive.closed(), None);
}

#[test]
fn a_peer_that_stops_for_ever_is_known_to_be_dead() {
    for from in [0, 40, 60, 500].map(Nanos::from_millis) {
        println!("stopped after {from}");
        let mut bed = Bed::new(usual());
        bed.exchange(1, LEN);
        bed.complete(RTT.mul_div(12, 1));
        let until_now = bed.sends[0].len() as u64;
        bed.exchange(3, LEN);
        bed.recv(0, LEN);
        bed.pass(from);
        bed.pair.qps.stop(1, true);
        let limit = DEATH + KEEP_ALIVE + RTT;
        let done = bed.until(limit, |b| {
            b.collect();
            let open = |end: usize| b.sends[end].iter().any(|s| s.result.is_none());
            !open(0) && b.recvs[0].iter().all(|r| r.result.is_some())
        });
        assert!(done, "{}", bed.open());
        let first_lost = (until_now..4).find(|&i| bed.sends[0][i as usize].result.as_ref().unwrap().is_err());
        for i in first_lost.unwrap_or(4)..4 {
            let e = bed.send_error(0, i as usize);
            let silent = |e: &TransferError| {
                matches!(e, TransferError::Lost { why: Closed::PeerSilent { limit: DEATH, .. }, .. })
            };
            assert!(silent(e), "{e:?}");
            let text = format!("outcome unknown from message {}", first_lost.unwrap());
            assert!(e.to_string().contains(&text), "{e} should say {text}");
            assert!(silent(&bed.recv_error(0, 4).why));
        }
        assert!(bed.recv_error(0, 4).buf.is_some(), "the memory is back");
        bed.verify();
        // It wakes up and learns it.
        bed.pair.qps.stop(1, false);
        bed.finish(RTT.mul_div(8, 1));
    }
}

#[test]
fn a_dropped_driver_ends_both_sides() {
    for lost in [0, 1] {
        for from in [0, 40, 60].map(Nanos::from_millis) {
            println!("dropped after {from}, {lost} CLOSE lost");
            let mut bed = Bed::new(usual());
            afflict(&bed.pair.qps.net, netem::sim::Direction::B_TO_A, Kind::Close, Fault::Lose(lost));
            bed.exchange(3, LEN);
            bed.recv(0, LEN);
            bed.pass(from);
            bed.pair.drop_driver(1);
            // Its own transfers end at once.
            bed.collect();
            for i in 0..3 {
                let own = [&bed.sends[1][i].result.as_ref().map(|r| r.as_ref().err().cloned())];
                assert!(own.iter().all(|r| r.is_some()), "send {i}");
                assert!(bed.recvs[1][i].result.is_some(), "recv {i}");
            }
            bed.finish(if lost == 0 { RTT } else { DEATH + KEEP_ALIVE });
            let why = &bed.recv_error(0, 3).why;
            let TransferError::Lost { why, .. } = why else { panic!("{why:?}") };
            match why {
                Closed::Peer(CloseReason::Normal) => assert_eq!(lost, 0),
                Closed::PeerSilent { .. } => assert_eq!(lost, 1),
                other => panic!("{other:?}"),
            }
            bed.verify();
            assert!(bed.pair.connections[1].ended());
            let late = bed.send(1, LEN);
            bed.finish(Nanos::ZERO);
            assert_eq!(bed.send_error(1, late), &TransferError::Closed);
        }
    }
}

#[test]
fn close_lets_accepted_work_finish() {
    for from in [0, 40, 60].map(Nanos::from_millis) {
        let mut bed = Bed::new(usual());
        bed.one_way(0, 5, LEN);
        bed.pass(from);
        bed.pair.connections[0].close();
        bed.pair.touch();
        let refused = bed.send(0, LEN);
        let took = bed.finish(RTT.mul_div(12, 1));
        println!("closed after {from}: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
        bed.verify();
        assert_eq!(bed.send_error(0, refused), &TransferError::Closed);
        for i in 0..5 {
            assert!(matches!(bed.sends[0][i].result, Some(Ok(_))), "{:?}", bed.sends[0][i].result);
        }
        bed.pass(RTT.mul_div(2, 1));
        assert!(bed.pair.connections[0].ended());
    }
}

#[test]
fn close_of_the_receiver_finishes_what_began_to_arrive() {
    let mut bed = Bed::new(usual());
    bed.one_way(0, 2, 1000 * PACKET);
    bed.until(RTT.mul_div(12, 1), |b| b.counters(1).delivered > 100);
    bed.pair.connections[1].close();
    bed.pair.touch();
    bed.finish(Nanos::from_secs(3));
    bed.verify();
    assert!(matches!(bed.sends[0][0].result, Some(Ok(_))), "{:?}", bed.sends[0][0].result);
}

#[test]
fn a_dropped_connection_ends_the_peers_transfers() {
    let mut bed = Bed::new(usual());
    bed.exchange(2, LEN);
    bed.complete(RTT.mul_div(12, 1));
    let (recv, send) = (bed.recv(1, LEN), bed.send(1, LEN));
    bed.pass(RTT.mul_div(4, 1));
    // The last handle of end 0 is gone.
    bed.pair.connections[0] = bed.pair.connections[1].clone();
    bed.pair.touch();
    bed.finish(RTT.mul_div(2, 1));
    for e in [&bed.recv_error(1, recv).why, bed.send_error(1, send)] {
        assert!(matches!(e, TransferError::Lost { why: Closed::Peer(CloseReason::Normal), .. }), "{e:?}");
    }
}

/// Work that the peer never lets finish does not keep a closing connection for longer than `linger`.
#[test]
fn lingering_is_bounded() {
    let mut bed = Bed::new(usual());
    bed.send(0, LEN);
    bed.pass(RTT.mul_div(4, 1));
    bed.pair.connections[0].close();
    bed.pair.touch();
    bed.finish(Nanos::from_secs(3) + RTT);
    assert_eq!(bed.send_error(0, 0), &TransferError::Closed);
    assert!(bed.pair.connections[0].ended());
}
