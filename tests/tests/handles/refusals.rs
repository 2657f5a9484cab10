//! Each error of posting and streaming once: typed, with the buffer back, and nothing consumed.

use crate::world::{BYTES, Ends, PAYLOAD, Setup, World, pattern};
use sdr_sdk::connection::{ConnectionConfig, TransferError};
use sdr_sdk::qp::{Closed, PostError, SendState, StreamError};
use sdr_sdk::slots::RetireError;
use sdr_sdk::types::{Channel, Nanos, PacketOffset, Seq};

fn granted(w: &mut World, ends: &Ends) {
    assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some()));
}

#[test]
fn receives_that_are_refused_come_back() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    let recv = &ends.recv[1];
    for asked in [0, 65, u32::MAX] {
        let e = recv.recv(w.empty(1, 10), asked).err().unwrap();
        assert!(matches!(e, PostError::Chunk { asked: a, .. } if a == asked));
        assert_eq!(e.into_buf().len(), 10);
    }
    let max = recv.max_message();
    assert_eq!(max, (1 << 18) * PAYLOAD as u64);
    let e = recv.recv(w.empty(1, max as usize + 1), 64).err().unwrap();
    assert!(matches!(e, PostError::TooLarge { len, max: m, .. } if (len, m) == (max + 1, max)));
    assert_eq!(e.into_buf().len() as u64, max + 1);
    let e = recv.recv(w.empty(0, 11), 4).err().unwrap();
    assert!(matches!(e, PostError::Foreign(_)));
    assert_eq!(e.into_buf().len(), 11);
    w.ledger[1].refuse_arm.store(true, std::sync::atomic::Ordering::Relaxed);
    let e = recv.recv(w.empty(1, 12), 4).err().unwrap();
    assert!(matches!(e, PostError::Arm(..)), "{e}");
    assert_eq!(e.into_buf().len(), 12);
    assert_eq!(recv.next_seq(), Seq(0));
    // The slot that was armed half way is free again after a poll.
    let handles: Vec<_> = (0..4).map(|_| w.post_recv(recv).unwrap()).collect();
    assert_eq!(handles[0].seq(), Seq(0));
    let e = recv.recv(w.empty(1, 13), 4).err().unwrap();
    assert!(matches!(e, PostError::Busy(_)));
    assert_eq!(e.into_buf().len(), 13);
    recv.close();
    let e = recv.recv(w.empty(1, 14), 4).err().unwrap();
    assert!(matches!(e, PostError::Closed(_, Closed::Here)));
    assert_eq!(e.into_buf().len(), 14);
    drop(handles);
    w.until(Nanos::from_secs(1), |_| false);
    assert_eq!(w.live_regions(1), 0);
}

#[test]
fn sends_that_are_refused_come_back() {
    let mut setup = Setup::default();
    setup.qp.user_immediate = true;
    let mut w = World::new(setup);
    let ends = w.connect();
    let send = &ends.send[0];
    let e = send.send(w.filled(0, 0, 10), None).err().unwrap();
    assert!(matches!(e, PostError::Busy(_)));
    assert_eq!(&e.into_buf()[..], &pattern(0, 10)[..]);
    assert!(matches!(send.stream_start(10, None), Err(PostError::Busy(()))));
    let _recv = w.post_recv(&ends.recv[1]).unwrap();
    granted(&mut w, &ends);
    let e = send.send(w.filled(0, 1, BYTES + 1), None).err().unwrap();
    let (long, have) = (BYTES as u64 + 1, BYTES as u64);
    assert!(matches!(e, PostError::TooLong { len, posted, .. } if (len, posted) == (long, have)));
    assert_eq!(&e.into_buf()[..], &pattern(1, BYTES + 1)[..]);
    let max = send.max_message();
    let e = send.send(w.empty(0, max as usize + 1).freeze(), None).err().unwrap();
    assert!(matches!(e, PostError::TooLarge { len, max: m, .. } if (len, m) == (max + 1, max)));
    assert_eq!(e.into_buf().len() as u64, max + 1);
    let e = send.send(w.filled(0, 2, 7 * PAYLOAD), Some(1)).err().unwrap();
    assert!(matches!(e, PostError::ImmediateNeedsPackets { have: 7, need: 8, .. }));
    assert_eq!(&e.into_buf()[..], &pattern(2, 7 * PAYLOAD)[..]);
    let e = send.send(w.filled(1, 3, 9), None).err().unwrap();
    assert!(matches!(e, PostError::Foreign(_)));
    assert_eq!(&e.into_buf()[..], &pattern(3, 9)[..]);
    assert_eq!((send.next_seq(), w.live_regions(0)), (Seq(0), 0));
    send.close();
    let e = send.send(w.filled(0, 4, 9), None).err().unwrap();
    assert!(matches!(e, PostError::Closed(_, Closed::Here)));
    assert_eq!(&e.into_buf()[..], &pattern(4, 9)[..]);
    assert!(matches!(send.stream_start(10, None), Err(PostError::Closed((), Closed::Here))));
}

#[test]
fn streams_refuse_what_is_not_whole_packets() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    let handle = w.post_recv(&ends.recv[1]).unwrap();
    granted(&mut w, &ends);
    let stream = ends.send[0].stream_start(BYTES as u64, None).unwrap();
    let buf = w.filled(0, 0, BYTES + PAYLOAD);
    for (first, bytes) in [
        (0, 0),
        (0, 1),
        (0, PAYLOAD + 1),
        (0, BYTES - 1),
        (0, BYTES + 1),
        (1, BYTES),
        (23, PAYLOAD),
        (24, 1),
        (u32::MAX, PAYLOAD),
    ] {
        let e = stream.extend(PacketOffset(first), &buf.slice(0, bytes), Channel(0)).unwrap_err();
        let left = (BYTES as u64).saturating_sub(first as u64 * PAYLOAD as u64);
        assert_eq!(e, StreamError::Range { first, got: bytes as u64, left });
    }
    assert_eq!(
        stream.extend(PacketOffset(0), &w.filled(1, 0, BYTES), Channel(0)).unwrap_err(),
        StreamError::Foreign
    );
    assert_eq!(
        stream.extend(PacketOffset(0), &buf.slice(0, PAYLOAD), Channel(2)).unwrap_err(),
        StreamError::Channel { asked: Channel(2), channels: 2 }
    );
    // Nothing was queued by any of them.
    w.until(Nanos::from_millis(20), |_| false);
    assert_eq!((handle.bitmap().count(), w.net.counters(0).sent), (0, 0));
    let mut taken = 0;
    let busy = loop {
        match stream.extend(PacketOffset(0), &buf.slice(0, PAYLOAD), Channel(0)) {
            Ok(()) => taken += 1,
            Err(e) => break e,
        }
        assert!(taken < 1_000_000);
    };
    assert_eq!(busy, StreamError::Busy);
    w.until(Nanos::from_secs(1), |_| false);
    stream.extend(PacketOffset(0), &buf.slice(0, BYTES), Channel(1)).unwrap();
    assert!(w.until(Nanos::from_secs(1), |_| handle.bitmap().is_full()));
    drop(handle);
    // The peer hears of it with the answer to the next keep-alive.
    w.until(Nanos::from_millis(400), |_| false);
    let gone = stream.extend(PacketOffset(0), &buf.slice(0, PAYLOAD), Channel(1));
    assert_eq!(gone, Err(StreamError::Completed));
    let sent = stream.end().ok().unwrap();
    assert_eq!(sent.poll(), SendState::Completed);
    w.pass(&ends, 1).unwrap();
}

#[test]
fn a_stream_on_a_closed_queue_pair_says_why() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    let _handle = w.post_recv(&ends.recv[1]).unwrap();
    granted(&mut w, &ends);
    let stream = ends.send[0].stream_start(BYTES as u64, None).unwrap();
    let q = w.ledger[0].last_queue.lock().unwrap().unwrap();
    *w.ledger[0].break_queue.lock().unwrap() = Some(q);
    w.until(Nanos::from_millis(5), |_| false);
    let buf = w.filled(0, 0, BYTES);
    let e = stream.extend(PacketOffset(0), &buf, Channel(0)).unwrap_err();
    assert_eq!(e, StreamError::Closed(Closed::Queue(77)));
    assert!(matches!(ends.recv[1].closed(), Some(Closed::Peer(_))));
    drop((buf, stream));
    assert_eq!(w.live_regions(0), 0);
}

#[test]
fn a_message_on_a_withdrawn_receive_is_thrown_away_and_keeps_the_order() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    drop(w.post_recv(&ends.recv[1]).unwrap());
    let kept = w.post_recv(&ends.recv[1]).unwrap();
    assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some_and(|g| g.withdrawn)));
    let first = w.post_send(&ends.send[0], 0).unwrap();
    assert_eq!((first.seq(), first.poll()), (Seq(0), SendState::Completed));
    let second = w.post_send(&ends.send[0], 1).unwrap();
    assert!(w.until(Nanos::from_secs(1), |_| kept.bitmap().is_full()));
    assert_eq!((second.seq(), kept.seq()), (Seq(1), Seq(1)));
    assert_eq!(w.live_regions(0), 0);
}

#[test]
fn buffers_of_another_context_are_refused_by_a_connection_too() {
    let mut w = World::new(Setup::default());
    let c = w.connection(ConnectionConfig::default());
    let mut recv = c[1].recv(w.empty(0, BYTES));
    w.until(Nanos::from_millis(5), |_| false);
    let e = recv.try_take().unwrap().unwrap_err();
    assert!(matches!(e.why, TransferError::NotPostable(_)));
    assert_eq!(e.buf.unwrap().len(), BYTES);
    let mut recv = c[1].recv(w.empty(1, BYTES));
    let mut send = c[0].send(w.filled(1, 0, BYTES), None);
    w.until(Nanos::from_secs(1), |_| false);
    let e = send.try_take().expect("refused at once, not after a deadline");
    assert!(matches!(e, Err(TransferError::NotPostable(_))), "{e:?}");
    let mut next = c[0].send(w.filled(0, 1, BYTES), None);
    w.until(Nanos::from_secs(1), |_| false);
    assert!(matches!(next.try_take(), Some(Ok(_))));
    assert_eq!(&recv.try_take().unwrap().unwrap().buf[..], &pattern(1, BYTES)[..]);
}

#[test]
fn a_buffer_too_large_for_any_message_is_refused_by_a_connection() {
    let mut w = World::new(Setup::default());
    let c = w.connection(ConnectionConfig::default());
    let len = (1usize << 18) * PAYLOAD + 1;
    let mut recv = c[1].recv(w.empty(1, len));
    w.until(Nanos::from_millis(5), |_| false);
    let e = recv.try_take().unwrap().unwrap_err();
    assert!(matches!(e.why, TransferError::NotPostable(_)));
    assert_eq!(e.buf.unwrap().len(), len);
    let mut recv = c[1].recv(w.empty(1, BYTES));
    let mut send = c[0].send(w.empty(0, len).freeze(), None);
    w.until(Nanos::from_secs(1), |_| false);
    let long = TransferError::TooLong { seq: Seq(0), len: len as u64, posted: BYTES as u64 };
    assert_eq!(send.try_take(), Some(Err(long.clone())));
    let e = recv.try_take().unwrap().unwrap_err();
    assert_eq!((e.why, e.buf.map(|b| b.len())), (long, Some(BYTES)));
}

#[test]
fn a_stalled_retirement_is_reported_and_the_memory_comes_back_to_the_context() {
    let mut setup = Setup::default();
    setup.sim.disarm_delay = Nanos::from_secs(3);
    setup.context.retire_deadline = Nanos::from_millis(200);
    let mut w = World::new(setup);
    let ends = w.connect();
    let mut retire = w.post_recv(&ends.recv[1]).unwrap().complete();
    let mut result = None;
    w.until(Nanos::from_secs(1), |_| {
        result = result.take().or_else(|| retire.try_take());
        result.is_some()
    });
    let Some(Err(RetireError::EngineStalled { seq, waited, disarmed, quiescent })) = result else {
        panic!("{result:?}")
    };
    assert_eq!((seq, disarmed, quiescent), (Seq(0), false, true));
    assert!(waited >= Nanos::from_millis(200) && waited < Nanos::from_millis(210), "{waited}");
    assert_eq!(w.live_regions(1), 1);
    w.until(Nanos::from_secs(4), |_| false);
    assert_eq!(w.live_regions(1), 0);
    assert!(retire.try_take().is_none());
}

/// The context was not polled for long because nothing was due: that time is not the engine's.
#[test]
fn a_retirement_after_a_long_pause_is_not_stalled() {
    let mut setup = Setup::default();
    setup.sim.disarm_delay = Nanos::from_millis(1);
    let mut w = World::new(setup);
    let ends = w.connect();
    let handle = w.post_recv(&ends.recv[1]).unwrap();
    ends.recv[1].close();
    w.until(Nanos::from_secs(5), |_| false);
    // Only the other end is alive meanwhile.
    w.context(0).poll(w.now());
    let mut retire = handle.complete();
    let mut result = None;
    w.until(Nanos::from_secs(1), |_| {
        result = result.take().or_else(|| retire.try_take());
        result.is_some()
    });
    assert!(matches!(result, Some(Ok(_))), "{result:?}");
}

/// Nothing is posted and nobody polls for a minute; that is not silence of the peer.
#[test]
fn a_queue_pair_goes_on_after_a_long_pause() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    for n in 0..3 {
        w.pass(&ends, n).unwrap();
        w.run(Nanos::from_secs(60));
    }
    let c = w.connection(ConnectionConfig::default());
    for n in 0..3 {
        let mut recv = c[1].recv(w.empty(1, BYTES));
        let mut send = c[0].send(w.filled(0, n, BYTES), None);
        w.until(Nanos::from_millis(100), |_| false);
        send.try_take().unwrap().unwrap();
        recv.try_take().unwrap().unwrap();
        w.run(Nanos::from_secs(60));
    }
}

#[test]
fn a_queue_pair_whose_connect_fails_is_gone() {
    let mut w = World::new(Setup::default());
    let qp = w.setup.qp;
    let mut other = qp;
    other.slots = 8;
    let (a, b) = (w.context(0).create_qp(&qp).unwrap(), w.context(1).create_qp(&other).unwrap());
    let info = b.info().clone();
    assert!(a.connect(&info).is_err());
    drop(b);
    assert_eq!((w.ledger[0].queues(), w.ledger[1].queues()), (0, 0));
    let ends = w.connect();
    w.pass(&ends, 0).unwrap();
}
