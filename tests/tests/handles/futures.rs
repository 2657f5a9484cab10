//! Each future is polled n times, once a step, then dropped or forgotten, for every n until it completes; the traffic
//! after it does not notice.

use crate::world::{BYTES, PAYLOAD, SLOTS, Setup, World, pattern};
use sdr_sdk::connection::{Connection, ConnectionConfig, RecvResult, SendResult, Transfer, TransferError};
use sdr_sdk::types::Nanos;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Drop,
    Forget,
}

impl End {
    fn of<T>(self, t: T) {
        match self {
            Self::Drop => drop(t),
            Self::Forget => std::mem::forget(t),
        }
    }
}

fn poll<F: Future + Unpin>(f: &mut F) -> Poll<F::Output> {
    Pin::new(f).poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// Polls `f` once before each of `n` steps; the output if it completed.
fn poll_n<F: Future + Unpin>(w: &mut World, f: &mut F, n: u32) -> Option<F::Output> {
    for _ in 0..n {
        if let Poll::Ready(r) = poll(f) {
            return Some(r);
        }
        assert!(w.step_to(w.now() + Nanos::from_secs(60)), "nothing happens any more, and no result");
    }
    None
}

/// Ends of a transfer pair, whatever is left of it.
#[derive(Default)]
struct Outcomes {
    send: Option<SendResult>,
    recv: Option<RecvResult>,
}

/// Posts `count` messages from end 0 to end 1 and checks that the n-th takes the n-th receive; `first` is an older pair.
fn go_on(
    w: &mut World,
    c: &[Connection; 2],
    count: u64,
    mut first: (Option<Transfer<SendResult>>, Option<Transfer<RecvResult>>),
) -> Outcomes {
    let mut sends: Vec<_> = (1..=count).map(|n| Some(c[0].send(w.filled(0, n, BYTES), None))).collect();
    let mut recvs: Vec<_> = (1..=count).map(|_| Some(c[1].recv(w.empty(1, BYTES)))).collect();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let mut out = Outcomes::default();
    let done = w.until(Nanos::from_secs(20), |_| {
        for s in &mut sends {
            if let Some(r) = s.as_mut().and_then(Transfer::try_take) {
                sent.push(r);
                *s = None;
            }
        }
        for (i, s) in recvs.iter_mut().enumerate() {
            if let Some(r) = s.as_mut().and_then(Transfer::try_take) {
                received.push((i as u64 + 1, r));
                *s = None;
            }
        }
        out.send = out.send.take().or_else(|| first.0.as_mut().and_then(Transfer::try_take));
        out.recv = out.recv.take().or_else(|| first.1.as_mut().and_then(Transfer::try_take));
        sent.len() + received.len() == 2 * count as usize
            && (first.0.is_none() || out.send.is_some())
            && (first.1.is_none() || out.recv.is_some())
    });
    assert!(
        done,
        "stuck: {} sent, {} received, first {:?} {:?}",
        sent.len(),
        received.len(),
        out.send,
        out.recv
    );
    for r in sent {
        r.expect("a later send fails");
    }
    for (n, r) in received {
        let r = r.expect("a later receive fails");
        assert_eq!(&r.buf[..r.len], &pattern(n, BYTES)[..], "message {n} has the bytes of another");
    }
    out
}

/// Nothing is held beside `kept` regions on each end.
fn settled(w: &mut World, kept: [i64; 2]) {
    w.run(Nanos::from_millis(50));
    for (end, kept) in kept.into_iter().enumerate() {
        let live = w.live_regions(end);
        assert!(live <= kept, "end {end} holds {live} regions, {kept} expected");
    }
}

fn sweep(name: &str, mut one: impl FnMut(u32) -> bool) {
    let mut n = 0;
    while !one(n) {
        n += 1;
        assert!(n < 2_000, "{name} never completes");
    }
    assert!(n > 10, "{name} completes after {n} polls: the sweep tests nothing");
}

const GO_ON: u64 = 2 * SLOTS as u64 + 1;

/// A path on which a tenth of everything is lost, control datagrams too; it differs with `seed`.
fn lossy(seed: u32) -> Setup {
    let mut setup = Setup::default();
    let netem::sim::SimPath::Path(path) = &mut setup.sim.path else { unreachable!("a path by default") };
    path.loss = netem::units::Probability::new(0.1).unwrap();
    path.seed = seed.into();
    setup
}

fn send_transfer(end: End, recv_first: bool, setup: impl Fn(u32) -> Setup) {
    sweep("send", |n| {
        let mut w = World::new(setup(n));
        let c = w.connection(ConnectionConfig::default());
        let mut recv = recv_first.then(|| c[1].recv(w.empty(1, BYTES)));
        let mut send = c[0].send(w.filled(0, 0, BYTES), None);
        w.touch();
        let done = poll_n(&mut w, &mut send, n);
        let complete = done.is_some();
        if let Some(r) = done {
            r.unwrap();
        }
        end.of(send);
        let recv = recv.take().unwrap_or_else(|| c[1].recv(w.empty(1, BYTES)));
        let out = go_on(&mut w, &c, GO_ON, (None, Some(recv)));
        match out.recv.unwrap() {
            Ok(r) => assert_eq!(&r.buf[..r.len], &pattern(0, BYTES)[..], "n = {n}"),
            Err(e) => {
                assert_eq!(end, End::Drop, "n = {n}: {e}");
                assert!(matches!(e.why, TransferError::CancelledBySender { .. }), "n = {n}: {e}");
                assert!(e.buf.is_some(), "n = {n}");
            }
        }
        settled(&mut w, [0, 0]);
        // Without a receive there is nothing to wait for: stop after the grant repetitions of a while.
        complete || (!recv_first && n == 40)
    });
}

fn recv_transfer(end: End, setup: impl Fn(u32) -> Setup) {
    sweep("recv", |n| {
        let mut w = World::new(setup(n));
        let c = w.connection(ConnectionConfig::default());
        let mut recv = c[1].recv(w.empty(1, BYTES));
        let send = c[0].send(w.filled(0, 0, BYTES), None);
        w.touch();
        let done = poll_n(&mut w, &mut recv, n);
        let complete = done.is_some();
        if let Some(r) = done {
            assert_eq!(&r.unwrap().buf[..], &pattern(0, BYTES)[..]);
        }
        end.of(recv);
        let out = go_on(&mut w, &c, GO_ON, (Some(send), None));
        match out.send.unwrap() {
            Ok(d) => assert_eq!(d.bytes, BYTES as u64),
            Err(e) => {
                assert_eq!(end, End::Drop, "n = {n}: {e}");
                assert!(matches!(e, TransferError::CancelledByReceiver { .. }), "n = {n}: {e}");
            }
        }
        settled(&mut w, [0, (end == End::Forget) as i64]);
        complete
    });
}

#[test]
fn a_send_dropped_after_n_polls_uses_up_its_number_and_nothing_else() {
    send_transfer(End::Drop, true, |_| Setup::default());
    send_transfer(End::Drop, true, lossy);
}

#[test]
fn a_send_dropped_before_its_receive_is_posted_uses_up_its_number() {
    send_transfer(End::Drop, false, |_| Setup::default());
}

#[test]
fn a_send_forgotten_after_n_polls_is_delivered() {
    send_transfer(End::Forget, true, |_| Setup::default());
    send_transfer(End::Forget, true, lossy);
}

#[test]
fn a_receive_dropped_after_n_polls_uses_up_its_number_and_nothing_else() {
    recv_transfer(End::Drop, |_| Setup::default());
    recv_transfer(End::Drop, lossy);
}

#[test]
fn a_receive_forgotten_after_n_polls_keeps_its_memory_alone() {
    recv_transfer(End::Forget, |_| Setup::default());
    recv_transfer(End::Forget, lossy);
}

/// Receives beyond the slots wait in the connection; there, too, a dropped one keeps its place.
#[test]
fn a_receive_dropped_while_it_waits_for_a_slot_uses_up_its_number() {
    let mut w = World::new(Setup::default());
    let c = w.connection(ConnectionConfig::default());
    let n = 3 * SLOTS as u64;
    let mut recvs: Vec<_> = (0..n).map(|_| Some(c[1].recv(w.empty(1, BYTES)))).collect();
    w.until(Nanos::from_millis(20), |_| false);
    let dropped = SLOTS as usize + 1;
    recvs[dropped] = None;
    let mut sends: Vec<_> = (0..n).map(|i| c[0].send(w.filled(0, i, BYTES), None)).collect();
    let mut results: Vec<Option<SendResult>> = (0..n).map(|_| None).collect();
    let done = w.until(Nanos::from_secs(5), |_| {
        for (s, r) in sends.iter_mut().zip(&mut results) {
            *r = r.take().or_else(|| s.try_take());
        }
        results.iter().all(Option::is_some)
    });
    assert!(done, "{results:?}");
    for (i, r) in results.into_iter().enumerate() {
        let r = r.unwrap();
        if i == dropped {
            assert!(matches!(r, Err(TransferError::CancelledByReceiver { .. })), "{i}: {r:?}");
        } else {
            r.unwrap();
            let got = recvs[i].as_mut().unwrap().try_take().unwrap().unwrap();
            assert_eq!(&got.buf[..], &pattern(i as u64, BYTES)[..], "{i}");
        }
    }
}

/// A dropped transfer lets go of its buffer although its number cannot be used up yet.
#[test]
fn a_dropped_send_without_a_receive_holds_no_memory() {
    let mut w = World::new(Setup::default());
    let c = w.connection(ConnectionConfig::default());
    let send = c[0].send(w.filled(0, 0, BYTES), None);
    w.until(Nanos::from_millis(20), |_| false);
    assert_eq!(w.live_regions(0), 1);
    drop(send);
    w.until(Nanos::from_millis(20), |_| false);
    assert_eq!(w.live_regions(0), 0);
}

#[derive(Clone, Copy, Debug)]
enum When {
    BeforeTheSend,
    InFlight,
    Whole,
}

const WHENS: [When; 3] = [When::BeforeTheSend, When::InFlight, When::Whole];

fn retire(end: End, when: When) {
    let mut setup = Setup::default();
    setup.sim.disarm_delay = Nanos::from_micros(700);
    let mut n = 0;
    loop {
        let mut w = World::new(setup.clone());
        let ends = w.connect();
        let handle = w.post_recv(&ends.recv[1]).unwrap();
        let mut sent = None;
        if !matches!(when, When::BeforeTheSend) {
            sent = Some(w.post_send(&ends.send[0], 0).unwrap());
            let few = w.until(Nanos::from_secs(1), |_| match when {
                When::InFlight => handle.packets(sdr_sdk::ChunkIndex(0)).count_ones() > 1,
                _ => handle.bitmap().is_full(),
            });
            assert!(few && (matches!(when, When::Whole) || !handle.bitmap().is_full()));
        }
        let mut retire = handle.complete();
        w.touch();
        let done = poll_n(&mut w, &mut retire, n);
        let complete = done.is_some();
        if let Some(r) = done {
            let bytes = pattern(0, BYTES);
            let right = r.unwrap().iter().enumerate().all(|(i, b)| *b == 0 || *b == bytes[i]);
            assert!(right, "{when:?}, n = {n}");
            assert!(poll(&mut retire).is_pending(), "each result is given once");
            assert!(retire.try_take().is_none());
        }
        end.of(retire);
        if sent.is_none() {
            sent = Some(w.post_send(&ends.send[0], 0).unwrap());
        }
        for m in 1..GO_ON {
            w.pass(&ends, m).unwrap_or_else(|e| panic!("{when:?}, n = {n}, {end:?}: {e}"));
        }
        drop(sent);
        // A forgotten one keeps what it was given.
        settled(&mut w, [0, (end == End::Forget) as i64]);
        drop(ends);
        let queues = w.ledger[1].queues();
        assert!(queues <= (end == End::Forget) as i64, "{queues} queue sets are left");
        if complete {
            assert!(n > 2, "the sweep tests nothing");
            return;
        }
        n += 1;
        assert!(n < 1_000);
    }
}

#[test]
fn a_retire_dropped_after_n_polls_frees_slot_and_memory() {
    WHENS.into_iter().for_each(|w| retire(End::Drop, w));
}

#[test]
fn a_retire_forgotten_after_n_polls_frees_its_slot() {
    WHENS.into_iter().for_each(|w| retire(End::Forget, w));
}

/// What a forgotten receive keeps: its slot, so that the receive S later is `Busy` for good, its memory, and the queue
/// pair that both are part of, closed or not.
#[test]
fn a_forgotten_receive_holds_its_slot() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    let handle = w.post_recv(&ends.recv[1]).unwrap();
    assert_eq!(handle.seq().0, 0);
    std::mem::forget(handle);
    let sent = w.post_send(&ends.send[0], 0).unwrap();
    for m in 1..SLOTS as u64 {
        w.pass(&ends, m).unwrap();
    }
    assert!(!ends.recv[1].ready());
    w.run(Nanos::from_secs(10));
    let refused = ends.recv[1].recv(w.empty(1, BYTES), 4);
    assert!(matches!(refused, Err(sdr_sdk::qp::PostError::Busy(_))));
    assert_eq!(ends.recv[1].next_seq().0, SLOTS as u64);
    drop(refused);
    assert_eq!(ends.send[0].closed(), None, "the connection lives");
    drop(sent);
    // Closing frees neither: nobody else can say that the receive is over.
    ends.recv[1].close();
    w.until(Nanos::from_secs(1), |_| false);
    assert_eq!((w.live_regions(0), w.live_regions(1)), (0, 1));
    drop(ends);
    assert_eq!((w.ledger[0].queues(), w.ledger[1].queues()), (0, 1));
    // The rest of the context works on.
    let other = w.connect();
    w.pass(&other, 9).unwrap();
}

/// A forgotten stream is never closed: the messages of S * G later numbers are all there is until `Busy`.
#[test]
fn a_forgotten_stream_holds_its_generation() {
    let mut setup = Setup::default();
    setup.qp.generations = 2;
    let mut w = World::new(setup);
    let ends = w.connect();
    let handle = w.post_recv(&ends.recv[1]).unwrap();
    w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some());
    let stream = ends.send[0].stream_start(BYTES as u64, None).unwrap();
    stream.extend(sdr_sdk::PacketOffset(0), &w.filled(0, 0, PAYLOAD), sdr_sdk::Channel(0)).unwrap();
    std::mem::forget(stream);
    w.until(Nanos::from_millis(20), |_| false);
    assert_eq!(handle.packets(sdr_sdk::ChunkIndex(0)), 1);
    drop(handle);
    for m in 1..2 * SLOTS as u64 {
        w.pass(&ends, m).unwrap();
    }
    w.until(Nanos::from_secs(10), |_| false);
    assert!(!ends.recv[1].ready());
    assert_eq!(ends.send[0].closed_seq().0, 0);
    settled(&mut w, [0, 0]);
}
