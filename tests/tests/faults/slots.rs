//! Counters that wrap, slots in short supply, receives that are missing or too small.

use super::{Bed, FEWER, config, usual};
use netem::PairConfig;
use netem::sim::Direction;
use sdr_sdk::connection::TransferError;
use sdr_sdk::types::{Nanos, Seq};
use sdr_tests::bed::{PACKET, RTT};
use sdr_tests::control::{Fault, Kind, afflict};

fn slots(mut c: PairConfig, slots: u32, generations: u32) -> PairConfig {
    (c.qp.slots, c.qp.generations) = (slots, generations);
    c
}

#[test]
fn done_lost_with_two_slots_and_two_generations() {
    for path in ["rtt=25ms,rate=100Mbit", "rtt=25ms,rate=100Mbit,loss=0.02,seed=9"] {
        for lost in [1, 2, 3, 10, 50] {
            println!("{lost} lost on {path}");
            let mut bed = Bed::new(slots(config(path), 2, 2));
            for d in [Direction::A_TO_B, Direction::B_TO_A] {
                afflict(&bed.pair.qps.net, d, Kind::Done, Fault::Lose(lost));
            }
            bed.exchange(24, 20 * PACKET);
            // A round of two that lost a packet waits for L.
            let took = bed.complete(Nanos::from_secs(20));
            println!("  {:.1} RTT", took.0 as f64 / RTT.0 as f64);
        }
    }
}

#[test]
fn counters_wrap() {
    let starts = [1 << 10, 1 << 18, 1 << 32, 0u64].map(|end| end.wrapping_sub(2));
    for (s, g) in [(0, 0), (4, 2), (2, 2)] {
        for send_first in starts {
            for recv_first in [send_first, 7, u64::MAX - 30].into_iter().take(if FEWER { 1 } else { 3 }) {
                for path in ["rtt=5ms,rate=100Mbit", "rtt=5ms,rate=100Mbit,loss=0.01,seed=2"] {
                    println!("S={s} G={g}, from {send_first} and {recv_first}, {path}");
                    let mut c = slots(config(path), s, g);
                    c.context.packet_lifetime = Nanos::from_millis(50);
                    (c.qp.send_first, c.qp.recv_first) = (Seq(send_first), Seq(recv_first));
                    let mut bed = Bed::new(c);
                    bed.exchange(40, 3 * PACKET);
                    bed.complete(Nanos::from_secs(10));
                    assert_eq!(bed.received_seq(1, 39), Seq(send_first).plus(39));
                    assert_eq!(bed.received_seq(0, 39), Seq(recv_first).plus(39));
                }
            }
        }
    }
}

#[test]
fn four_slots_saturated_both_ways() {
    for (g, path) in [
        (0, "rtt=25ms,rate=100Mbit"),
        (2, "rtt=25ms,rate=100Mbit"),
        (0, "rtt=25ms,rate=100Mbit,loss=0.02,seed=1"),
    ] {
        let mut bed = Bed::new(slots(config(path), 4, g));
        bed.exchange(80, 200 * PACKET);
        // Without exact counts every eight messages wait for L when there are two generations.
        let took = bed.complete(Nanos::from_secs(15));
        println!("S=4 G={g} {path}: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    }
}

#[test]
fn a_receiver_pauses_for_10_s() {
    for s in [4, 0] {
        let mut bed = Bed::new(slots(usual(), s, 0));
        for _ in 0..8 {
            bed.send(0, 50 * PACKET);
        }
        for _ in 0..2 {
            bed.recv(1, 50 * PACKET);
        }
        bed.pass(Nanos::from_secs(10));
        for _ in 0..6 {
            bed.recv(1, 50 * PACKET);
        }
        let took = bed.complete(RTT.mul_div(8, 1));
        println!("after the pause: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    }
}

#[test]
fn both_ends_post_only_sends() {
    let mut bed = Bed::new(usual());
    for end in [0, 1] {
        for _ in 0..3 {
            bed.send(end, PACKET);
        }
    }
    bed.finish(Nanos::from_millis(30_500));
    for end in [0, 1] {
        for i in 0..3 {
            let e = bed.send_error(end, i);
            assert!(
                matches!(e, TransferError::NoReceive { waited, .. } if *waited >= Nanos::from_secs(30)),
                "{e:?}"
            );
        }
    }
    bed.exchange(3, PACKET);
    bed.finish(RTT.mul_div(8, 1));
    bed.verify();
    assert_eq!(bed.received_seq(0, 2), Seq(2), "nothing was used up");
}

/// A send that waits behind others is not given up while receives keep coming.
#[test]
fn a_queue_of_sends_outlives_the_grant_deadline() {
    let mut c = usual();
    c.connection.grant_deadline = Nanos::from_secs(1);
    let mut bed = Bed::new(c);
    for _ in 0..10 {
        bed.send(0, PACKET);
    }
    for _ in 0..10 {
        bed.pass(Nanos::from_millis(900));
        bed.recv(1, PACKET);
    }
    bed.complete(Nanos::from_secs(1));
}

#[test]
fn a_receive_smaller_than_the_message() {
    for small in [0, 1, PACKET, 19 * PACKET] {
        let mut bed = Bed::new(usual());
        bed.exchange(1, 20 * PACKET);
        for end in [0, 1] {
            bed.send(end, 20 * PACKET);
            bed.recv(end, small);
        }
        bed.exchange(2, 20 * PACKET);
        bed.finish(RTT.mul_div(12, 1));
        bed.verify();
        for end in [0, 1] {
            let (len, posted) = (20 * PACKET as u64, small as u64);
            let e = TransferError::TooLong { seq: Seq(1), len, posted };
            assert_eq!(bed.send_error(end, 1), &e);
            assert_eq!(bed.recv_error(end, 1).why, e);
            assert!(bed.recv_error(end, 1).buf.as_ref().is_some_and(|b| b.iter().all(|b| *b == 0)));
            assert_eq!(bed.received_seq(end, 3), Seq(3));
        }
    }
}

#[test]
fn messages_of_zero_bytes() {
    for path in ["rtt=25ms,rate=100Mbit", "rtt=25ms,rate=100Mbit,loss=0.3,seed=1"] {
        let mut bed = Bed::new(config(path));
        for posted in [0, 1, 10 * PACKET] {
            for end in [0, 1] {
                bed.send(end, 0);
                bed.recv(end, posted);
                bed.send(end, 3 * PACKET);
                bed.recv(end, 3 * PACKET);
            }
        }
        let took = bed.complete(RTT.mul_div(40, 1));
        println!("{path}: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    }
}

#[test]
fn a_receive_larger_than_the_message() {
    let mut bed = Bed::new(usual());
    for len in [1, PACKET - 1, PACKET, PACKET + 1, 9 * PACKET] {
        bed.send(0, len);
        bed.recv(1, 100 * PACKET);
    }
    bed.complete(RTT.mul_div(8, 1));
}
