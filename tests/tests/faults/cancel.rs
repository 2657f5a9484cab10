//! Transfers dropped in each state; the connection goes on, and the n-th send that used a number meets the n-th receive.

use super::{Bed, config, usual};
use sdr_sdk::connection::TransferError;
use sdr_sdk::types::{Nanos, Seq};
use sdr_tests::bed::{PACKET, RTT};

const LEN: usize = 200 * PACKET;
const PATHS: [&str; 2] = ["rtt=25ms,rate=100Mbit", "rtt=25ms,rate=100Mbit,loss=0.02,seed=3"];

/// Three more messages each way pass in the time that they take.
fn goes_on(bed: &mut Bed) -> Nanos {
    let before = [bed.sends[0].len(), bed.sends[1].len()];
    bed.exchange(3, LEN);
    let took = bed.finish(RTT.mul_div(40, 1));
    println!("  {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    bed.verify();
    for end in [0, 1] {
        for i in before[end]..before[end] + 3 {
            assert!(matches!(bed.sends[end][i].result, Some(Ok(_))), "{:?}", bed.sends[end][i].result);
        }
    }
    took
}

fn sent(bed: &Bed, end: u16) -> u64 {
    bed.counters(end).sent
}

fn until(bed: &mut Bed, done: impl FnMut(&mut Bed) -> bool) {
    assert!(bed.until(Nanos::from_secs(2), done), "the state to cancel in never came");
}

#[test]
fn send_dropped_before_its_grant() {
    for path in PATHS {
        let mut bed = Bed::new(config(path));
        let first = bed.send(0, LEN);
        bed.pass(RTT.mul_div(4, 1));
        bed.drop_send(0, first);
        bed.pass(RTT.mul_div(4, 1));
        bed.recv(1, LEN);
        goes_on(&mut bed);
        assert_eq!(bed.recv_error(1, 0).why, TransferError::CancelledBySender { seq: Seq(0) });
        assert_eq!(bed.received_seq(1, 1), Seq(1), "its number is used up");
    }
}

#[test]
fn send_dropped_before_its_first_packet() {
    for path in PATHS {
        let mut bed = Bed::new(config(path));
        bed.one_way(0, 3, LEN);
        // The second has its number, and waits for the first one's packets.
        until(&mut bed, |b| sent(b, 0) >= 50);
        bed.drop_send(0, 1);
        goes_on(&mut bed);
        let e = &bed.recv_error(1, 1).why;
        assert_eq!(e, &TransferError::CancelledBySender { seq: Seq(1) });
        assert_eq!(bed.received_seq(1, 2), Seq(2));
    }
}

#[test]
fn send_dropped_midway() {
    for path in PATHS {
        for packets in [1, 40, 100, 190] {
            println!("after {packets} packets on {path}");
            let mut bed = Bed::new(config(path));
            bed.one_way(0, 2, LEN);
            until(&mut bed, |b| sent(b, 0) >= packets);
            bed.drop_send(0, 0);
            goes_on(&mut bed);
            assert_eq!(bed.recv_error(1, 0).why, TransferError::CancelledBySender { seq: Seq(0) });
            assert_eq!(bed.received_seq(1, 1), Seq(1));
        }
    }
}

#[test]
fn send_dropped_before_done() {
    let mut bed = Bed::new(usual());
    bed.one_way(0, 2, LEN);
    until(&mut bed, |b| sent(b, 0) >= 400);
    bed.drop_send(0, 0);
    bed.drop_send(0, 1);
    goes_on(&mut bed);
    // All was on its way: whole or cancelled, and the numbers were used.
    assert_eq!(bed.received_seq(1, 2), Seq(2));
}

#[test]
fn receive_dropped_before_it_is_posted() {
    for path in PATHS {
        let mut c = config(path);
        c.qp.slots = 2;
        let mut bed = Bed::new(c);
        for _ in 0..5 {
            bed.recv(1, LEN);
        }
        bed.pass(RTT.mul_div(2, 1));
        // Two slots: the third has none yet.
        bed.drop_recv(1, 2);
        for _ in 0..5 {
            bed.send(0, LEN);
        }
        goes_on(&mut bed);
        assert_eq!(bed.send_error(0, 2), &TransferError::CancelledByReceiver { seq: Seq(2) });
        assert_eq!(bed.received_seq(1, 3), Seq(3), "its number is used up");
    }
}

#[test]
fn receive_dropped_before_it_was_announced() {
    for path in PATHS {
        for wait in [0, 4].map(|n| RTT.mul_div(n, 1)) {
            for dropped in 0..3 {
                println!("receive {dropped} dropped after {wait} on {path}");
                let mut bed = Bed::new(config(path));
                for _ in 0..3 {
                    bed.recv(1, LEN);
                }
                bed.pass(wait);
                bed.pair.step();
                bed.drop_recv(1, dropped);
                bed.pass(RTT.mul_div(80, 1));
                for _ in 0..3 {
                    bed.send(0, LEN);
                }
                let took = goes_on(&mut bed);
                let gone = Seq(dropped as u64);
                assert_eq!(bed.send_error(0, dropped), &TransferError::CancelledByReceiver { seq: gone });
                assert!(took <= RTT.mul_div(12, 1), "{took}");
            }
        }
    }
}

#[test]
fn receive_dropped_midway() {
    for path in PATHS {
        for packets in [1, 40, 100, 199] {
            println!("after {packets} packets on {path}");
            let mut bed = Bed::new(config(path));
            bed.one_way(0, 2, LEN);
            until(&mut bed, |b| b.counters(1).delivered >= packets);
            bed.drop_recv(1, 0);
            goes_on(&mut bed);
            if packets < 150 {
                assert_eq!(bed.send_error(0, 0), &TransferError::CancelledByReceiver { seq: Seq(0) });
            }
            assert_eq!(bed.received_seq(1, 1), Seq(1));
        }
    }
}

#[test]
fn both_dropped_at_once() {
    for path in PATHS {
        for packets in [0, 1, 40, 199, 400] {
            println!("after {packets} packets on {path}");
            let mut bed = Bed::new(config(path));
            bed.exchange(3, LEN);
            until(&mut bed, |b| sent(b, 0) >= packets);
            for end in [0, 1] {
                bed.drop_send(end, 0);
                bed.drop_recv(end, 0);
            }
            bed.drop_send(0, 2);
            bed.drop_recv(1, 2);
            let took = goes_on(&mut bed);
            assert!(took <= RTT.mul_div(40, 1), "{took}");
        }
    }
}

#[test]
fn transfers_dropped_at_random() {
    let mut rng = netem::rng::Random::new(11);
    for round in 0..24 {
        let mut c = config(&format!("rtt=5ms,rate=100Mbit,loss=0.02,seed={round}"));
        (c.qp.slots, c.qp.generations) = ([2, 4, 0][round % 3], [2, 0][round % 2]);
        c.context.packet_lifetime = Nanos::from_millis(20);
        let mut bed = Bed::new(c);
        bed.exchange(12, 30 * PACKET);
        for _ in 0..10 {
            bed.pass(Nanos::from_micros(rng.below(6_000)));
            let (end, i) = (rng.below(2) as usize, rng.below(12) as usize);
            if rng.chance(0.5) { bed.drop_send(end, i) } else { bed.drop_recv(end, i) }
        }
        // Dropped before they had a number: what is left over on the other side finds a partner.
        for end in [0, 1] {
            for _ in 0..12 {
                bed.send(end, 30 * PACKET);
                bed.recv(end, 30 * PACKET);
            }
        }
        bed.until(Nanos::from_secs(5), Bed::all_ended);
        for end in [0, 1] {
            bed.pair.connections[end].close();
        }
        bed.pair.touch();
        bed.finish(Nanos::from_secs(4));
        bed.verify();
    }
}
