//! Transfers cancelled and dropped while parity is under way: the memory for parity comes back.

use super::{SimBed, lose, schemes, usual};
use netem::PairConfig;
use sdr_sdk::reliability::Scheme;
use sdr_sdk::types::Nanos;
use sdr_tests::bed::{PACKET, RTT};
use std::sync::Arc;

const LEN: usize = 200 * PACKET;

/// Memory for the parity of three messages or so.
fn tight(scheme: &Arc<dyn Scheme>) -> PairConfig {
    let mut c = usual(scheme);
    c.connection.parity_pool = Some(20 << 16);
    c
}

/// A message that loses packets comes whole, by parity.
fn parity_works(bed: &mut SimBed, case: &str) {
    let before = bed.pair.connections[0].stats().parity;
    let (r, s) = (bed.recv(1, LEN), bed.send(0, LEN));
    let done = bed.until(RTT.mul_div(60, 1), |b| {
        b.collect();
        b.recvs[1][r].result.is_some() && b.sends[0][s].result.is_some()
    });
    assert!(done, "{case}: {}", bed.open());
    assert!(matches!(bed.sends[0][s].result, Some(Ok(_))), "{case}: {:?}", bed.sends[0][s].result);
    let after = bed.pair.connections[0].stats().parity;
    assert!(after > before, "{case}: no parity was sent");
}

#[test]
fn drops_in_every_state_give_the_memory_back() {
    for scheme in schemes() {
        for end in ["send", "recv", "both"] {
            let mut bed = SimBed::new(tight(&scheme));
            lose(&bed, 1, |first| first % 10 == 3);
            parity_works(&mut bed, "before");
            // From before the grant to after the end: 10 ms of data, parity, requests.
            for after in 0..40 {
                let (r, s) = (bed.recv(1, LEN), bed.send(0, LEN));
                bed.pass(Nanos::from_micros(2_100).mul_div(after, 1));
                if end != "recv" {
                    bed.drop_send(0, s);
                }
                if end != "send" {
                    bed.drop_recv(1, r);
                }
                assert!(bed.until(RTT.mul_div(60, 1), SimBed::all_ended), "{}", bed.open());
            }
            bed.pass(Nanos::from_secs(3));
            parity_works(&mut bed, &format!("{} after dropping {end}", scheme.name()));
            bed.verify();
        }
    }
}

/// Receives that wait, with memory for parity, and are dropped before anything came.
#[test]
fn receives_dropped_before_anything_came() {
    for scheme in schemes() {
        let mut bed = SimBed::new(tight(&scheme));
        for _ in 0..30 {
            let r: Vec<_> = (0..5).map(|_| bed.recv(1, LEN)).collect();
            bed.pass(RTT);
            r.into_iter().for_each(|r| bed.drop_recv(1, r));
            bed.pass(RTT);
        }
        // Each send is told that its receive was given up.
        for _ in 0..150 {
            bed.send(0, 1);
        }
        bed.finish(RTT.mul_div(100, 1));
        bed.pass(Nanos::from_secs(3));
        parity_works(&mut bed, &scheme.name());
    }
}

/// A hundred messages, one after the other and eight at a time, need no more memory than the pool has.
#[test]
fn memory_is_used_again() {
    for scheme in schemes() {
        let mut bed = SimBed::new(tight(&scheme));
        lose(&bed, 1, |first| first % 10 == 3);
        for _ in 0..10 {
            bed.one_way(0, 8, LEN);
            bed.complete(RTT.mul_div(60, 1));
            parity_works(&mut bed, &scheme.name());
        }
    }
}
