//! Every handle, dropped and forgotten, in every state: what is left works, and nothing is kept but what was forgotten.

use crate::world::{BYTES, Ends, PAYLOAD, SLOTS, Setup, World, pattern};
use sdr_sdk::connection::{
    Connection, ConnectionConfig, ConnectionDriver, RecvResult, SendResult, Transfer, TransferError,
};
use sdr_sdk::qp::{RecvHandle, Retire, SendHandle, Stream, UnconnectedQp};
use sdr_sdk::types::{Channel, ChunkIndex, Nanos, PacketOffset};
use sdr_sdk::{Context, RecvBuf, SendBuf};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    SendQp,
    RecvQp,
    Stream,
    SendHandle,
    RecvHandle,
    Retire,
    Connection,
    DriverOfSender,
    DriverOfReceiver,
    SendTransfer,
    RecvTransfer,
    Context,
    RecvBuf,
    SendBuf,
    Unconnected,
}

const KINDS: [Kind; 15] = [
    Kind::SendQp,
    Kind::RecvQp,
    Kind::Stream,
    Kind::SendHandle,
    Kind::RecvHandle,
    Kind::Retire,
    Kind::Connection,
    Kind::DriverOfSender,
    Kind::DriverOfReceiver,
    Kind::SendTransfer,
    Kind::RecvTransfer,
    Kind::Context,
    Kind::RecvBuf,
    Kind::SendBuf,
    Kind::Unconnected,
];

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum State {
    Fresh,
    /// Receives are posted, sends too where they wait; the peer knows nothing of it.
    Posted,
    Granted,
    /// Begun, no packet left.
    Announced,
    InFlight,
    Whole,
    Retiring,
    Retired,
    PeerClosed,
    Closed,
    /// Nobody can poll the contexts any more.
    ContextsGone,
}

const STATES: [State; 11] = [
    State::Fresh,
    State::Posted,
    State::Granted,
    State::Announced,
    State::InFlight,
    State::Whole,
    State::Retiring,
    State::Retired,
    State::PeerClosed,
    State::Closed,
    State::ContextsGone,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Drop,
    Forget,
}

/// Everything that a program can hold. On the queue pair: message 0 is a stream into `handle`, message 1 a one-shot send
/// into a receive that becomes `retire`. On the connection: one message.
struct Rig {
    ends: Option<Ends>,
    stream: Option<Stream>,
    sent: Option<SendHandle>,
    handle: Option<RecvHandle>,
    second: Option<RecvHandle>,
    retire: Option<Retire>,
    connections: [Option<Connection>; 2],
    send: Option<Transfer<SendResult>>,
    recv: Option<Transfer<RecvResult>>,
    context: Option<Context>,
    recv_buf: Option<RecvBuf>,
    send_buf: Option<SendBuf>,
    unconnected: Option<UnconnectedQp>,
    bystander: Option<Ends>,
}

fn rig(w: &mut World, state: State) -> Rig {
    let ends = w.connect();
    let bystander = w.connect();
    let [a, b] = w.connection(ConnectionConfig::default());
    let qp = w.setup.qp;
    let mut rig = Rig {
        stream: None,
        sent: None,
        handle: None,
        second: None,
        retire: None,
        send: None,
        recv: None,
        context: Some(w.context(1).clone()),
        recv_buf: Some(w.empty(1, BYTES)),
        send_buf: Some(w.filled(0, 99, BYTES)),
        unconnected: Some(w.context(0).create_qp(&qp).unwrap()),
        bystander: Some(bystander),
        connections: [Some(a.clone()), Some(b.clone())],
        ends: None,
    };
    let reach = |rig: &mut Rig, w: &mut World| {
        if state == State::Fresh {
            return;
        }
        let (send, recv) = (&ends.send[0], &ends.recv[1]);
        rig.handle = Some(recv.recv(w.empty(1, BYTES), 4).ok().unwrap());
        rig.second = Some(recv.recv(w.empty(1, BYTES), 4).ok().unwrap());
        rig.recv = Some(b.recv(w.empty(1, BYTES)));
        rig.send = Some(a.send(w.filled(0, 0, BYTES), None));
        if state == State::Posted {
            return;
        }
        let granted = w.until(Nanos::from_secs(1), |_| send.next_grant().is_some());
        assert!(granted);
        if state == State::Granted {
            return;
        }
        assert!(w.until(Nanos::from_secs(1), |_| a.stats().announces > 0));
        rig.stream = Some(send.stream_start(BYTES as u64, None).ok().unwrap());
        rig.sent = Some(send.send(w.filled(0, 1, BYTES), None).ok().unwrap());
        if state == State::Announced {
            return;
        }
        let buf = w.filled(0, 0, BYTES);
        let stream = rig.stream.as_ref().unwrap();
        stream.extend(PacketOffset(0), &buf.slice(0, 16 * PAYLOAD), Channel(0)).unwrap();
        let handle = rig.handle.as_ref().unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| handle.packets(ChunkIndex(0)) != 0));
        if state == State::InFlight || state == State::ContextsGone {
            return;
        }
        match state {
            State::PeerClosed => ends.recv[1].close(),
            State::Closed => ends.recv.iter().for_each(|r| r.close()),
            _ => {}
        }
        if matches!(state, State::PeerClosed | State::Closed) {
            if state == State::PeerClosed {
                b.close();
            } else {
                a.close();
                b.close();
            }
            assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].closed().is_some()));
            return;
        }
        stream.extend(PacketOffset(16), &buf.slice(16 * PAYLOAD, BYTES - 16 * PAYLOAD), Channel(0)).unwrap();
        let second = rig.second.as_ref().unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| handle.bitmap().is_full() && second.bitmap().is_full()));
        assert!(w.until(Nanos::from_secs(1), |_| b.stats().received > 0 && a.stats().delivered > 0));
        if state == State::Whole {
            return;
        }
        rig.retire = rig.second.take().map(RecvHandle::complete);
        w.until(Nanos::from_micros(if state == State::Retired { 20_000 } else { 50 }), |_| false);
    };
    reach(&mut rig, w);
    rig.ends = Some(ends);
    if state == State::ContextsGone {
        w.contexts = [None, None];
        rig.context = None;
    }
    rig
}

/// What the rig still holds after the cell's handle was ended; None when there is no such handle in that state.
fn end(w: &mut World, rig: &mut Rig, kind: Kind, how: How) -> Option<()> {
    fn of<T>(how: How, t: Option<T>) -> Option<()> {
        match how {
            How::Drop => drop(t?),
            How::Forget => std::mem::forget(t?),
        }
        Some(())
    }
    match kind {
        // The halves of end 0, the halves of end 1: the others stay.
        Kind::SendQp => {
            let Ends { send: [a, b], recv } = rig.ends.take()?;
            drop((b, recv));
            of(how, Some(a))
        }
        Kind::RecvQp => {
            let Ends { send, recv: [a, b] } = rig.ends.take()?;
            drop((a, send));
            of(how, Some(b))
        }
        Kind::Stream => of(how, rig.stream.take()),
        Kind::SendHandle => of(how, rig.sent.take()),
        Kind::RecvHandle => of(how, rig.handle.take()),
        Kind::Retire => of(how, rig.retire.take()),
        Kind::Connection => of(how, rig.connections[0].take()),
        Kind::DriverOfSender => of::<ConnectionDriver>(how, w.drivers[0].take()),
        Kind::DriverOfReceiver => of::<ConnectionDriver>(how, w.drivers[1].take()),
        Kind::SendTransfer => of(how, rig.send.take()),
        Kind::RecvTransfer => of(how, rig.recv.take()),
        Kind::Context => of(how, rig.context.take()),
        Kind::RecvBuf => of(how, rig.recv_buf.take()),
        Kind::SendBuf => of(how, rig.send_buf.take()),
        Kind::Unconnected => of(how, rig.unconnected.take()),
    }
}

/// Regions and queue sets of each end that a forgotten handle may keep.
fn kept(kind: Kind) -> ([i64; 2], [i64; 2]) {
    match kind {
        Kind::SendQp => ([1, 0], [1, 0]),
        Kind::RecvQp => ([0, 0], [0, 1]),
        Kind::Stream | Kind::SendHandle => ([2, 0], [1, 0]),
        Kind::RecvHandle | Kind::Retire => ([0, 1], [0, 1]),
        Kind::DriverOfSender => ([1, 0], [1, 0]),
        Kind::DriverOfReceiver => ([0, 1], [0, 1]),
        Kind::RecvTransfer | Kind::RecvBuf => ([0, 1], [0, 0]),
        Kind::SendBuf => ([1, 0], [0, 0]),
        Kind::Unconnected => ([0, 0], [1, 0]),
        Kind::Connection | Kind::SendTransfer | Kind::Context => ([0, 0], [0, 0]),
    }
}

/// The queue pair goes on: what was not sent yet of messages 0 and 1 is, then two more pass; once the receives are given
/// up as well, each slot is used again.
fn queue_pair_goes_on(w: &mut World, rig: &mut Rig, kind: Kind, how: How) {
    let ends = rig.ends.take().unwrap();
    let n = ends.recv[1].next_seq().0;
    for seq in ends.send[0].next_seq().0..n {
        w.post_send(&ends.send[0], seq).unwrap();
    }
    for n in n..n + 2 {
        w.pass(&ends, n).unwrap();
    }
    if let Some(h) = rig.handle.as_ref().filter(|_| rig.stream.is_none() && rig.sent.is_some()) {
        // Its stream was dropped or forgotten: what arrived is right.
        let mut out = [0; 4 * PAYLOAD];
        for c in 0..h.shape().chunks() {
            if let Some(len) = h.copy_chunk(ChunkIndex(c), &mut out) {
                let at = c as usize * 4 * PAYLOAD;
                assert_eq!(&out[..len], &pattern(0, BYTES)[at..at + len]);
            }
        }
    }
    drop((rig.handle.take(), rig.second.take(), rig.retire.take()));
    w.until(Nanos::from_millis(20), |_| false);
    if n > 0 && (kind, how) == (Kind::RecvHandle, How::Forget) {
        assert!(!ends.recv[1].ready(), "the slot of a forgotten receive is given again");
    } else {
        for n in n + 2..n + 3 + SLOTS as u64 {
            w.pass(&ends, n).unwrap();
        }
    }
    if (kind, how) == (Kind::Stream, How::Drop) {
        assert_eq!(ends.send[0].closed_seq(), ends.send[0].next_seq(), "a dropped stream is not closed");
    }
    rig.ends = Some(ends);
}

/// The connection goes on: its first message ended in some allowed way, the next two pass in order.
fn connection_goes_on(w: &mut World, rig: &mut Rig, kind: Kind, how: How) {
    let (a, b) = (rig.connections[0].clone().unwrap(), rig.connections[1].clone().unwrap());
    let mut next: Vec<_> =
        (1..3).map(|n| (b.recv(w.empty(1, BYTES)), a.send(w.filled(0, n, BYTES), None))).collect();
    w.until(Nanos::from_millis(100), |_| false);
    let cancelled = |kind_of_peer| kind == kind_of_peer && how == How::Drop;
    if let Some(mut t) = rig.send.take() {
        match t.try_take().expect("the first send has no result") {
            Ok(d) => assert_eq!(d.bytes, BYTES as u64),
            Err(e) => {
                assert!(matches!(e, TransferError::CancelledByReceiver { .. }), "{e}");
                assert!(cancelled(Kind::RecvTransfer), "{e}");
            }
        }
    }
    if let Some(mut t) = rig.recv.take() {
        match t.try_take().expect("the first receive has no result") {
            Ok(r) => assert_eq!(&r.buf[..], &pattern(0, BYTES)[..]),
            Err(e) => {
                assert!(matches!(e.why, TransferError::CancelledBySender { .. }), "{e}");
                assert!(cancelled(Kind::SendTransfer), "{e}");
            }
        }
    }
    for (n, (recv, send)) in next.iter_mut().enumerate() {
        send.try_take().expect("a later send has no result").expect("a later send fails");
        let r = recv.try_take().expect("a later receive has no result").expect("a later receive fails");
        assert_eq!(&r.buf[..], &pattern(n as u64 + 1, BYTES)[..]);
    }
}

/// The connection ended here or there: every transfer that is left has a result, and new work is refused.
fn connection_has_ended(w: &mut World, rig: &mut Rig, dead: Option<usize>) {
    let forgotten = dead.is_some_and(|end| !rig.connections[end].as_ref().is_none_or(Connection::ended));
    w.until(Nanos::from_secs(40), |_| false);
    for (end, left) in [rig.send.is_some(), rig.recv.is_some()].into_iter().enumerate() {
        // A driver that is never polled again ends nothing.
        if !left || (forgotten && dead == Some(end)) {
            continue;
        }
        let done = if end == 0 {
            rig.send.as_mut().unwrap().try_take().is_some()
        } else {
            rig.recv.as_mut().unwrap().try_take().is_some()
        };
        // Without news a posted receive waits as long as its peer is there.
        assert!(done || (forgotten && end == 1), "the transfer of end {end} has no result");
    }
}

fn cell(kind: Kind, how: How, state: State) -> bool {
    let mut setup = Setup::default();
    setup.sim.disarm_delay = Nanos::from_millis(2);
    let mut w = World::new(setup);
    let mut rig = rig(&mut w, state);
    if end(&mut w, &mut rig, kind, how).is_none() {
        return false;
    }
    let closed = matches!(state, State::PeerClosed | State::Closed);
    if state != State::ContextsGone {
        w.until(Nanos::from_millis(1), |_| false);
        let bystander = rig.bystander.take().unwrap();
        w.pass(&bystander, 1000).unwrap();
        rig.bystander = Some(bystander);
        if !closed && !matches!(kind, Kind::SendQp | Kind::RecvQp) {
            queue_pair_goes_on(&mut w, &mut rig, kind, how);
        }
        match kind {
            Kind::DriverOfSender => connection_has_ended(&mut w, &mut rig, Some(0)),
            Kind::DriverOfReceiver => connection_has_ended(&mut w, &mut rig, Some(1)),
            // The last handle of end 0 is gone, dropped or forgotten as one may.
            Kind::Connection if how == How::Drop => connection_has_ended(&mut w, &mut rig, None),
            Kind::Connection => {}
            _ if closed => connection_has_ended(&mut w, &mut rig, None),
            _ => connection_goes_on(&mut w, &mut rig, kind, how),
        }
        let bystander = rig.bystander.take().unwrap();
        w.pass(&bystander, 1001).unwrap();
    } else {
        for d in w.drivers.iter_mut().flatten() {
            d.poll(Nanos::from_millis(100));
        }
        if let Some(h) = &rig.handle {
            assert!(h.packets(ChunkIndex(0)) != 0);
        }
    }
    // Everything else goes; what comes back, comes back now.
    drop(rig);
    w.drivers = [None, None];
    let (regions, queues) = if how == How::Forget { kept(kind) } else { ([0; 2], [0; 2]) };
    if state == State::ContextsGone {
        for (end, queues) in queues.into_iter().enumerate() {
            let dropped = w.ledger[end].dropped.load(std::sync::atomic::Ordering::Relaxed);
            assert!(dropped || queues > 0, "the fabric of end {end} is kept");
        }
    } else {
        w.until(Nanos::from_millis(20), |_| false);
        for end in 0..2 {
            let (r, q) = (w.live_regions(end), w.ledger[end].queues());
            assert!(r <= regions[end], "end {end} holds {r} regions, at most {} allowed", regions[end]);
            assert!(q <= queues[end], "end {end} holds {q} queue sets, at most {} allowed", queues[end]);
        }
        // Both contexts work as before.
        let again = w.connect();
        w.pass(&again, 2000).unwrap();
    }
    true
}

#[test]
fn every_handle_dropped_and_forgotten_in_every_state() {
    let (mut cells, mut failed) = (0, Vec::<String>::new());
    let mut note = |name: &dyn Debug, r: std::thread::Result<bool>| match r {
        Ok(ran) => cells += u32::from(ran),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            failed.push(format!("{name:?}: {}", text.unwrap_or_default()));
        }
    };
    for kind in KINDS {
        for how in [How::Drop, How::Forget] {
            for state in STATES {
                note(&(kind, how, state), catch_unwind(AssertUnwindSafe(|| cell(kind, how, state))));
            }
        }
    }
    assert!(failed.is_empty(), "{} cells failed:\n{}", failed.len(), failed.join("\n"));
    assert!(cells > 240, "only {cells} cells exist");
}
