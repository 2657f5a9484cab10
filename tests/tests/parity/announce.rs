//! Forged announcements of codes: what no sender makes ends the connection, typed at both ends.

use super::{SimBed, hybrid, schemes, usual};
use netem::sim::{Direction, Frame, FrameKind, Verdict};
use sdr_sdk::connection::TransferError;
use sdr_sdk::connection::frames::{Announce, Encoder};
use sdr_sdk::control::CloseReason;
use sdr_sdk::qp::Closed;
use sdr_sdk::reliability::{Scheme, Striped};
use sdr_sdk::types::{Nanos, Seq};
use sdr_tests::bed::{PACKET, RTT};
use sdr_tests::control::forge;
use std::sync::{Arc, Mutex};

/// Bytes of the receive that the forged announcement meets.
const LEN: usize = 300 * PACKET;

/// A receive waits at end 1, a message for end 0 has begun on the way back, and end 1 is told `a` of its first message.
fn told(scheme: &Arc<dyn Scheme>, a: Announce) -> SimBed {
    let mut bed = SimBed::new(usual(scheme));
    let header = Arc::new(Mutex::new(Vec::new()));
    let h = header.clone();
    bed.tap(Direction::A_TO_B, move |f: &Frame<'_>| {
        if let FrameKind::Control(bytes) = f.kind {
            *h.lock().expect("a header") = bytes.to_vec();
        }
        Verdict::Pass
    });
    bed.recv(1, LEN);
    bed.recv(0, 40_000 * PACKET);
    bed.send(1, 40_000 * PACKET);
    bed.pass(RTT.mul_div(4, 1));
    let known = header.lock().expect("a header").clone();
    let mut upper = Vec::new();
    assert!(Encoder::new(&mut upper, 1_100).announce(&a));
    let at = bed.now() + Nanos(1);
    bed.pair.qps.net.inject(Direction::A_TO_B, at, forge(&known, true, &upper));
    bed
}

fn announce(scheme: &dyn Scheme, k: u16, m: u16, interleave: u16, pace: u64) -> Announce {
    Announce {
        seq: Seq(0),
        bytes: LEN as u64,
        scheme: scheme.wire_id(),
        k,
        m,
        interleave,
        symbol: PACKET as u32,
        pace,
        user: None,
    }
}

#[test]
fn codes_beyond_the_limits_close_the_connection_at_both_ends() {
    for scheme in schemes() {
        for (k, m, interleave) in [
            (225, 1, 1),
            (u16::MAX, 1, 1),
            (224, 17, 1),
            (1, 240, 1),
            (1, u16::MAX, 1),
            (u16::MAX, u16::MAX, u16::MAX),
        ] {
            let mut bed = told(&scheme, announce(&*scheme, k, m, interleave, 51_200_000));
            bed.finish(RTT.mul_div(4, 1));
            let here = &bed.recv_error(1, 0).why;
            assert!(
                matches!(here, TransferError::Lost { why: Closed::Protocol(_), .. }),
                "{} {k} {m} {interleave}: {here:?}",
                scheme.name()
            );
            let there = &bed.recv_error(0, 0).why;
            assert!(
                matches!(
                    there,
                    TransferError::Lost { why: Closed::Peer(CloseReason::ProtocolViolation), .. }
                ),
                "{} {k} {m} {interleave}: {there:?}",
                scheme.name()
            );
        }
    }
}

/// Within the limits, but not what the scheme chooses, or with an absurd pace: the receive waits, is given up by its deadline,
/// and what really comes is not disturbed on the other direction.
#[test]
fn strange_codes_within_the_limits_are_survived() {
    for scheme in schemes() {
        for (k, m, interleave, pace) in [
            (0, 0, 0, 1),
            (0, 16, 5, 1),
            (8, 4, 0, 1),
            (1, 239, 1, 1),
            (1, 2, u16::MAX, 1),
            (224, 16, u16::MAX, 1),
            (8, 0, 3, 0),
            (8, 4, 1, u64::MAX),
            (8, 4, 1, 0),
        ] {
            let mut bed = told(&scheme, announce(&*scheme, k, m, interleave, pace));
            // The real message comes later; what it is was said already.
            bed.pass(RTT);
            bed.send(0, LEN);
            let done = bed.until(Nanos::from_secs(60), |b| {
                b.collect();
                b.recvs[1][0].result.is_some() && b.sends[0][0].result.is_some()
            });
            assert!(done, "{} {k} {m} {interleave} {pace}: {}", scheme.name(), bed.open());
            println!(
                "{} {k} {m} {interleave} {pace}: {:?}",
                scheme.name(),
                bed.recvs[1][0].result.as_ref().map(|r| r.is_ok())
            );
        }
    }
}

/// A scheme that the receiver does not have is refused, and the connection lives.
#[test]
fn another_family_is_refused() {
    let other = Striped::ec(8, 4).expect("a code");
    let mut bed = told(&hybrid(), announce(&other, 8, 4, 1, 1));
    bed.pass(RTT);
    bed.collect();
    let e = &bed.recv_error(1, 0).why;
    assert!(matches!(e, TransferError::Refused { .. }), "{e:?}");
    bed.recv(1, 100);
    bed.send(0, 100);
    bed.send(0, 100);
    assert!(bed.until(RTT.mul_div(20, 1), |b| {
        b.collect();
        matches!(b.sends[0][1].result, Some(Ok(_)))
    }));
}
