//! Each kind of control content lost several times in a row, late, twice and corrupt, in both directions at once.

use super::{Bed, config, usual};
use netem::sim::Direction;
use sdr_sdk::connection::TransferError;
use sdr_sdk::control::CloseReason;
use sdr_sdk::qp::Closed;
use sdr_sdk::types::Nanos;
use sdr_tests::bed::{PACKET, RTT};
use sdr_tests::control::{Fault, Kind, afflict};
use std::sync::atomic::Ordering;

/// Three RTT late.
const LATE: Nanos = Nanos::from_millis(75);

const FAULTS: [Fault; 8] = [
    Fault::Lose(1),
    Fault::Lose(2),
    Fault::Lose(3),
    Fault::Lose(10),
    Fault::Corrupt(1),
    Fault::Corrupt(10),
    Fault::Delay(LATE),
    Fault::Duplicate(Nanos::from_millis(1)),
];

/// Four messages each way, a quiet second with receives posted, four more; returns the times of both.
fn two_phases(bed: &mut Bed, limit: Nanos) -> Nanos {
    bed.exchange(4, 100 * PACKET + 7);
    let first = bed.complete(limit);
    for end in [0, 1] {
        for _ in 0..4 {
            bed.recv(end, 100 * PACKET);
        }
    }
    bed.pass(Nanos::from_secs(1));
    for end in [0, 1] {
        for _ in 0..4 {
            bed.send(end, 100 * PACKET);
        }
    }
    first + bed.complete(limit)
}

fn hit(kind: Kind, fault: Fault, path: &str) -> Nanos {
    let mut bed = Bed::new(config(path));
    let hits = [Direction::A_TO_B, Direction::B_TO_A].map(|d| afflict(&bed.pair.qps.net, d, kind, fault));
    let took = two_phases(&mut bed, RTT.mul_div(60, 1));
    for h in hits {
        assert!(h.load(Ordering::Relaxed) > 0, "{kind:?} never occurred");
    }
    took
}

fn every_fault(kind: Kind) {
    for path in ["rtt=25ms,rate=100Mbit", "rtt=25ms,rate=100Mbit,loss=0.01,seed=5"] {
        let clean = two_phases(&mut Bed::new(config(path)), RTT.mul_div(60, 1));
        for fault in FAULTS {
            println!("{kind:?} {fault:?} on {path}");
            let took = hit(kind, fault, path);
            let extra = took.0 as f64 - clean.0 as f64;
            println!("  recovery {:.1} RTT", extra / RTT.0 as f64);
        }
    }
}

#[test]
fn cts_lost_late_twice_corrupt() {
    every_fault(Kind::Cts);
}

#[test]
fn announce_lost_late_twice_corrupt() {
    every_fault(Kind::Announce);
}

#[test]
fn report_lost_late_twice_corrupt() {
    every_fault(Kind::Report);
}

#[test]
fn done_lost_late_twice_corrupt() {
    every_fault(Kind::Done);
}

#[test]
fn bare_facts_lost_late_twice_corrupt() {
    every_fault(Kind::FactsOnly);
}

#[test]
fn grants_seen_lost_late_twice_corrupt() {
    every_fault(Kind::GrantsSeen);
}

#[test]
fn closed_lost_late_twice_corrupt() {
    every_fault(Kind::Closed);
}

#[test]
fn probe_lost_late_twice_corrupt() {
    every_fault(Kind::Probe);
}

#[test]
fn close_lost_late_twice_corrupt() {
    for fault in FAULTS {
        println!("{fault:?}");
        let mut bed = Bed::new(usual());
        let hits = afflict(&bed.pair.qps.net, Direction::A_TO_B, Kind::Close, fault);
        bed.exchange(2, 10 * PACKET);
        bed.complete(RTT.mul_div(20, 1));
        let (posted, waits) = (bed.recv(1, PACKET), bed.send(1, PACKET));
        bed.pass(RTT.mul_div(4, 1));
        bed.pair.connections[0].close();
        bed.pair.touch();
        let took = bed.finish(Nanos::from_secs(3));
        println!("  known after {:.1} RTT", took.0 as f64 / RTT.0 as f64);
        let by_peer = Closed::Peer(CloseReason::Normal);
        let lost = |e: &TransferError| matches!(e, TransferError::Lost { why, .. } if *why == by_peer);
        assert!(lost(&bed.recv_error(1, posted).why), "{:?}", bed.recv_error(1, posted));
        assert!(lost(bed.send_error(1, waits)), "{:?}", bed.send_error(1, waits));
        assert!(bed.recv_error(1, posted).buf.is_some());
        assert!(hits.load(Ordering::Relaxed) > 0);
    }
}
