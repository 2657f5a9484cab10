//! Receives with extra memory: refused with both buffers back, given up with both, granted what cannot be.

use crate::world::{PAYLOAD, Setup, World};
use netem::sim::{Direction, Forged};
use sdr_sdk::RecvBuf;
use sdr_sdk::control::{self, CtsEntry, Header};
use sdr_sdk::fabric::Grant;
use sdr_sdk::qp::{Closed, PostError, RecvOptions};
use sdr_sdk::types::{Nanos, Seq};
use std::sync::atomic::Ordering;

const OPTIONS: RecvOptions = RecvOptions { per_chunk: 4, payload: None };
const MOST: u64 = 1 << 18;

type Refused = PostError<(RecvBuf, Option<RecvBuf>)>;

#[test]
fn both_buffers_come_back_from_a_refusal() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    // Post 30 bytes of data with `extra` bytes behind it, each registered with that end.
    let refused = |w: &World, (end, len): (usize, usize), (extra_end, extra): (usize, usize), o| -> Refused {
        let (buf, extra) = (w.empty(end, len), w.empty(extra_end, extra));
        ends.recv[1].recv_with(buf, Some(extra), o).err().unwrap()
    };
    let whole = |e: Refused, len: usize, extra: usize| {
        let (buf, back) = e.into_buf();
        assert_eq!((buf.len(), back.map(|b| b.len())), (len, Some(extra)));
    };
    let e = refused(&w, (1, 30), (1, PAYLOAD), RecvOptions { per_chunk: 65, ..OPTIONS });
    assert!(matches!(e, PostError::Chunk { asked: 65, .. }));
    whole(e, 30, PAYLOAD);
    for asked in [0, PAYLOAD as u32 + 1, u32::MAX] {
        let e = refused(&w, (1, 30), (1, PAYLOAD), RecvOptions { payload: Some(asked), ..OPTIONS });
        assert!(matches!(e, PostError::Payload { asked: a, max, .. } if (a, max) == (asked, PAYLOAD as u32)));
        whole(e, 30, PAYLOAD);
    }
    let e = refused(&w, (1, 30), (1, PAYLOAD), RecvOptions { payload: Some(60), ..OPTIONS });
    assert!(matches!(e, PostError::Extra { len: 64, payload: 60, .. }), "{e}");
    whole(e, 30, PAYLOAD);
    // Six extra packets begin with a chunk of four: two offsets before them are of no use.
    let one = RecvOptions { payload: Some(1), ..OPTIONS };
    let (most, extra) = (MOST as usize - 8, 6);
    let e = refused(&w, (1, most + 1), (1, extra), one);
    assert!(matches!(e, PostError::TooLarge { len, max, .. } if (len, max) == (MOST - 7, MOST - 8)), "{e}");
    whole(e, most + 1, extra);
    let e = refused(&w, (1, 30), (1, MOST as usize + 1), one);
    assert!(matches!(e, PostError::TooLarge { len: 30, max: 0, .. }), "{e}");
    whole(e, 30, MOST as usize + 1);
    for ends in [(0, 1), (1, 0)] {
        let e = refused(&w, (ends.0, 30), (ends.1, PAYLOAD), OPTIONS);
        assert!(matches!(e, PostError::Foreign(_)));
        whole(e, 30, PAYLOAD);
    }
    w.ledger[1].refuse_arm.store(true, Ordering::Relaxed);
    let e = refused(&w, (1, 30), (1, PAYLOAD), OPTIONS);
    assert!(matches!(e, PostError::Arm(..)), "{e}");
    whole(e, 30, PAYLOAD);
    assert_eq!(ends.recv[1].next_seq(), Seq(0));
    w.until(Nanos::from_millis(20), |_| false);
    let handle = ends.recv[1].recv_with(w.empty(1, most), Some(w.empty(1, extra)), one).ok().unwrap();
    assert_eq!((handle.first_extra() as usize, handle.extra_packets()), (most, extra as u32));
    // An empty buffer takes no packet numbers, also where chunks do not divide them evenly.
    let (none, _) = w.empty(1, 1).split_at(0);
    let odd = RecvOptions { per_chunk: 5, ..one };
    let handle = ends.recv[1].recv_with(w.empty(1, MOST as usize), Some(none), odd).unwrap();
    assert_eq!((handle.shape().packets(), handle.extra_packets()), (MOST as u32, 0));
    let mut retire = handle.complete();
    w.until(Nanos::from_millis(20), |_| false);
    assert_eq!(retire.try_take().unwrap().unwrap().len() as u64, MOST);
    assert_eq!(retire.take_extra().unwrap().len(), 0);
}

#[test]
fn memory_for_extra_packets_is_given_up_with_the_receive() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    let post = |w: &World| {
        let (buf, extra) = (w.empty(1, 100), w.empty(1, 2 * PAYLOAD));
        ends.recv[1].recv_with(buf, Some(extra), OPTIONS).ok().unwrap()
    };
    // Dropped while it is posted, while it retires, after it retired, and after one of both was taken.
    drop(post(&w));
    let retired = post(&w).complete();
    let mut taken = post(&w).complete();
    drop(post(&w).complete());
    assert_eq!(w.live_regions(1), 8, "the slots hold them until fabric and engine confirmed");
    w.until(Nanos::from_millis(20), |_| false);
    assert_eq!(w.live_regions(1), 4);
    drop(retired);
    assert_eq!(w.live_regions(1), 2);
    assert_eq!(taken.try_take().unwrap().unwrap().len(), 100);
    assert_eq!(w.live_regions(1), 1);
    drop(taken);
    assert_eq!(w.live_regions(1), 0);
}

#[test]
fn a_grant_that_no_message_can_have_closes_the_queue_pair() {
    let grant = Grant::default();
    let good = CtsEntry { bytes: 100, per_chunk: 4, payload: PAYLOAD as u32, extra: 1, grant };
    for bad in [
        CtsEntry { payload: 0, ..good },
        CtsEntry { payload: PAYLOAD as u32 + 1, ..good },
        CtsEntry { per_chunk: 0, ..good },
        CtsEntry { extra: MOST as u32 - 3, ..good },
        CtsEntry { bytes: u64::MAX, ..good },
    ] {
        let mut w = World::new(Setup::default());
        let ends = w.connect();
        w.until(Nanos::from_millis(5), |_| false);
        let q = w.ledger[0].last_queue.lock().unwrap().unwrap();
        let mut inject = |entry| {
            let mut bytes = Vec::new();
            let header = Header { granted: Seq(1), sent_at: w.now(), ..Header::default() };
            control::encode(&header, Seq(0), [entry], &[], &mut bytes).unwrap();
            w.net.inject(Direction::B_TO_A, w.now(), Forged::Control { q, bytes, valid: true });
            w.until(Nanos::from_micros(10), |_| false);
        };
        inject(bad);
        let closed = ends.send[0].closed();
        assert!(matches!(closed, Some(Closed::Protocol(_))), "{bad:?}: {closed:?}");
        assert_eq!(ends.send[0].next_grant(), None);
    }
}
