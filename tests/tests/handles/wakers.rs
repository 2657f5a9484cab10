//! Who is woken, how often, and what a waker may do while it is cloned, called or dropped.

use crate::threads::bounded;
use crate::world::{BYTES, Ends, Setup, World, pattern};
use sdr_sdk::connection::{Connection, ConnectionConfig, ConnectionDriver, Transfer, TransferError};
use sdr_sdk::context::Context;
use sdr_sdk::qp::{PostError, RecvHandle, RecvQp, Retire, SendHandle, SendQp, Stream, UnconnectedQp};
use sdr_sdk::reliability::{
    Conditions, MessageSpec, Plan, PlanError, Scheme, SchemeReceiver, SchemeSender, SelectiveRepeat,
};
use sdr_sdk::types::Nanos;
use sdr_sdk::{RecvBuf, SendBuf};
use std::borrow::Cow;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

const _: () = {
    const fn send<T: Send>() {}
    const fn sync<T: Sync>() {}
    const fn clone<T: Clone>() {}
    clone::<Context>();
    send::<Context>();
    sync::<Context>();
    clone::<Connection>();
    send::<Connection>();
    sync::<Connection>();
    send::<ConnectionDriver>();
    send::<Transfer<sdr_sdk::connection::SendResult>>();
    send::<Transfer<sdr_sdk::connection::RecvResult>>();
    send::<Retire>();
    send::<RecvBuf>();
    send::<SendBuf>();
    sync::<RecvBuf>();
    sync::<SendBuf>();
    send::<SendQp>();
    send::<RecvQp>();
    send::<UnconnectedQp>();
    send::<RecvHandle>();
    send::<SendHandle>();
    send::<Stream>();
    send::<PostError<RecvBuf>>();
    send::<TransferError>();
    sync::<TransferError>();
};

#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Once = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// Does something once, when woken or when dropped.
#[derive(Default)]
struct Act {
    on_wake: Once,
    on_drop: Once,
}

impl Act {
    fn on_wake(f: impl FnOnce() + Send + 'static) -> Waker {
        Arc::new(Self { on_wake: Mutex::new(Some(Box::new(f))), on_drop: Once::default() }).into()
    }

    fn on_drop(f: impl FnOnce() + Send + 'static) -> Waker {
        Arc::new(Self { on_drop: Mutex::new(Some(Box::new(f))), on_wake: Once::default() }).into()
    }
}

impl Wake for Act {
    fn wake(self: Arc<Self>) {
        if let Some(f) = self.on_wake.lock().unwrap().take() {
            f();
        }
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        if let Some(f) = self.on_drop.get_mut().unwrap().take() {
            f();
        }
    }
}

fn poll<F: Future + Unpin>(f: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(f).poll(&mut TaskContext::from_waker(waker))
}

fn connected() -> (World, [Connection; 2]) {
    let mut w = World::new(Setup::default());
    let c = w.connection(ConnectionConfig::default());
    (w, c)
}

/// A queue pair whose end 1 has one receive on its way back.
fn retiring(w: &mut World) -> (Ends, Retire) {
    let ends = w.connect();
    let handle = w.post_recv(&ends.recv[1]).unwrap();
    w.until(Nanos::from_millis(5), |_| false);
    (ends, handle.complete())
}

fn slow_disarm() -> World {
    let mut setup = Setup::default();
    setup.sim.disarm_delay = Nanos::from_micros(300);
    World::new(setup)
}

#[test]
fn only_the_last_waker_is_woken_and_once() {
    let (mut w, c) = connected();
    let mut recv = c[1].recv(w.empty(1, BYTES));
    let mut send = c[0].send(w.filled(0, 0, BYTES), None);
    let old: [Arc<Count>; 2] = Default::default();
    let new: [Arc<Count>; 2] = Default::default();
    for wakers in [&old, &new, &new] {
        assert!(poll(&mut send, &wakers[0].clone().into()).is_pending());
        assert!(poll(&mut recv, &wakers[1].clone().into()).is_pending());
    }
    // A waker that was replaced is let go of.
    assert_eq!((Arc::strong_count(&old[0]), Arc::strong_count(&old[1])), (1, 1));
    w.until(Nanos::from_secs(1), |_| false);
    assert_eq!([old[0].get(), old[1].get(), new[0].get(), new[1].get()], [0, 0, 1, 1]);
    assert!(poll(&mut send, Waker::noop()).is_ready());
    assert!(poll(&mut recv, Waker::noop()).is_ready());
    assert_eq!((Arc::strong_count(&new[0]), Arc::strong_count(&new[1])), (1, 1));
    // The result is given once; what is polled later waits for good, and wakes nobody.
    assert!(poll(&mut send, &new[0].clone().into()).is_pending());
    assert!(send.try_take().is_none() && recv.try_take().is_none());
    w.until(Nanos::from_secs(1), |_| false);
    drop((send, recv));
    assert_eq!((new[0].get(), Arc::strong_count(&new[0])), (1, 1));
}

#[test]
fn a_retire_wakes_its_last_waker_once() {
    let mut w = slow_disarm();
    let (_ends, mut retire) = retiring(&mut w);
    let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
    assert!(poll(&mut retire, &old.clone().into()).is_pending());
    assert!(poll(&mut retire, &new.clone().into()).is_pending());
    assert_eq!(Arc::strong_count(&old), 1);
    w.until(Nanos::from_secs(1), |_| false);
    assert_eq!((old.get(), new.get(), Arc::strong_count(&new)), (0, 1, 1));
    assert!(matches!(poll(&mut retire, Waker::noop()), Poll::Ready(Ok(_))));
    assert!(retire.try_take().is_none());
}

#[test]
fn whoever_dropped_the_future_is_not_woken_and_not_kept() {
    let mut w = slow_disarm();
    let (_ends, mut retire) = retiring(&mut w);
    let c = w.connection(ConnectionConfig::default());
    let mut recv = c[1].recv(w.empty(1, BYTES));
    let mut send = c[0].send(w.filled(0, 0, BYTES), None);
    let counts: [Arc<Count>; 3] = Default::default();
    assert!(poll(&mut retire, &counts[0].clone().into()).is_pending());
    assert!(poll(&mut recv, &counts[1].clone().into()).is_pending());
    assert!(poll(&mut send, &counts[2].clone().into()).is_pending());
    drop((retire, recv, send));
    for (i, c) in counts.iter().enumerate() {
        assert_eq!(Arc::strong_count(c), 1, "{i}: a dropped future keeps its waker");
    }
    w.until(Nanos::from_secs(1), |_| false);
    assert!(counts.iter().all(|c| c.get() == 0));
}

#[test]
fn a_waker_may_use_the_connection() {
    bounded(|| {
        let (mut w, c) = connected();
        let mut recv = c[1].recv(w.empty(1, BYTES));
        let mut send = c[0].send(w.filled(0, 0, BYTES), None);
        let taken = Arc::new(Mutex::new(None));
        // The waker of the send posts the next message, drops a waiting one, and asks for statistics.
        let (to, next, victim) =
            (taken.clone(), w.filled(0, 1, BYTES), c[0].send(w.filled(0, 2, BYTES), None));
        let (conn, ctx) = (c[0].clone(), w.context(0).clone());
        let waker = Act::on_wake(move || {
            drop(victim);
            let _ = (conn.stats(), conn.ended(), ctx.register(1).unwrap());
            *to.lock().unwrap() = Some(conn.send(next, None));
        });
        assert!(poll(&mut send, &waker).is_pending());
        assert!(w.until(Nanos::from_secs(1), |_| taken.lock().unwrap().is_some()));
        assert!(matches!(send.try_take(), Some(Ok(_))));
        assert!(recv.try_take().unwrap().is_ok());
        // The victim has the second number, the message of the waker the third.
        let (mut second, mut third) = (c[1].recv(w.empty(1, BYTES)), c[1].recv(w.empty(1, BYTES)));
        w.until(Nanos::from_secs(1), |_| false);
        let e = second.try_take().unwrap().unwrap_err();
        assert!(matches!(e.why, TransferError::CancelledBySender { .. }), "{e}");
        assert_eq!(&third.try_take().unwrap().unwrap().buf[..], &pattern(1, BYTES)[..]);
        let mut sent = taken.lock().unwrap().take().unwrap();
        assert!(matches!(sent.try_take(), Some(Ok(_))));
    });
}

#[test]
fn a_waker_may_take_and_drop_its_own_future() {
    bounded(|| {
        let mut w = slow_disarm();
        let (_ends, retire) = retiring(&mut w);
        let c = w.connection(ConnectionConfig::default());
        let recv = c[1].recv(w.empty(1, BYTES));
        let send = c[0].send(w.filled(0, 0, BYTES), None);
        let took = Arc::new(AtomicUsize::new(0));
        let (retire, recv, send) = (
            Arc::new(Mutex::new(Some(retire))),
            Arc::new(Mutex::new(Some(recv))),
            Arc::new(Mutex::new(Some(send))),
        );
        macro_rules! take_itself {
            ($f:ident) => {{
                let (own, took) = ($f.clone(), took.clone());
                let waker = Act::on_wake(move || {
                    let mut f = own.lock().unwrap().take().unwrap();
                    took.fetch_add(f.try_take().is_some() as usize, Ordering::Relaxed);
                });
                assert!(poll($f.lock().unwrap().as_mut().unwrap(), &waker).is_pending());
            }};
        }
        take_itself!(retire);
        take_itself!(recv);
        take_itself!(send);
        w.until(Nanos::from_secs(1), |_| false);
        assert_eq!(took.load(Ordering::Relaxed), 3);
        assert_eq!((w.live_regions(0), w.live_regions(1)), (0, 0));
    });
}

/// The waker of a task often owns the task, so that dropping it drops handles.
#[test]
fn a_replaced_waker_may_use_the_context_when_dropped() {
    bounded(|| {
        let mut w = slow_disarm();
        let (ends, mut retire) = retiring(&mut w);
        let other = w.post_recv(&ends.recv[1]).unwrap();
        let (ctx, later) = (w.context(1).clone(), w.now() + Nanos::from_secs(1));
        let first = Act::on_drop(move || {
            drop(other);
            // The result of the very future that is being polled comes in here.
            ctx.poll(later);
        });
        assert!(poll(&mut retire, &first).is_pending());
        drop(first);
        let last = Arc::new(Count::default());
        let _ = poll(&mut retire, &last.clone().into());
        w.until(Nanos::from_secs(1), |_| false);
        assert!(matches!(poll(&mut retire, Waker::noop()), Poll::Ready(Ok(_))));
        assert_eq!(last.get(), 1);
    });
}

#[test]
fn a_replaced_waker_may_poll_the_driver_when_dropped() {
    bounded(|| {
        let (mut w, c) = connected();
        let mut send = c[0].send(w.filled(0, 0, BYTES), None);
        let driver = Arc::new(Mutex::new(w.drivers[0].take()));
        let ended = driver.clone();
        let first = Act::on_drop(move || drop(ended.lock().unwrap().take()));
        assert!(poll(&mut send, &first).is_pending());
        drop(first);
        let last = Arc::new(Count::default());
        let second = poll(&mut send, &last.clone().into());
        let r = match second {
            Poll::Ready(r) => r,
            Poll::Pending => send.try_take().unwrap(),
        };
        assert_eq!(r, Err(TransferError::Closed));
    });
}

/// The last handle of a queue pair goes while a dropped future's waker owns handles of another.
#[test]
fn closing_a_queue_pair_may_drop_wakers_that_own_handles() {
    bounded(|| {
        let mut w = slow_disarm();
        let other = w.connect();
        let (ends, mut retire) = retiring(&mut w);
        let waker = Act::on_drop(move || drop(other));
        assert!(poll(&mut retire, &waker).is_pending());
        drop(waker);
        drop(retire);
        drop(ends);
        assert_eq!(w.ledger[1].queues(), 0);
    });
}

#[test]
fn a_panicking_waker_costs_nobody_else_the_wake() {
    bounded(|| {
        let mut setup = Setup::default();
        setup.sim.disarm_delay = Nanos::from_micros(300);
        let mut w = World::new(setup);
        let ends = w.connect();
        let handles = [w.post_recv(&ends.recv[1]).unwrap(), w.post_recv(&ends.recv[1]).unwrap()];
        w.until(Nanos::from_millis(5), |_| false);
        let mut retires = handles.map(RecvHandle::complete);
        let count = Arc::new(Count::default());
        assert!(poll(&mut retires[0], &Act::on_wake(|| panic!("a waker of the test"))).is_pending());
        assert!(poll(&mut retires[1], &count.clone().into()).is_pending());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            w.until(Nanos::from_secs(1), |_| false);
        }));
        assert!(panicked.is_err(), "the panic is not swallowed");
        assert_eq!(count.get(), 1);
        w.until(Nanos::from_secs(1), |_| false);
        assert!(retires.iter_mut().all(|r| matches!(r.try_take(), Some(Ok(_)))));
        let _early = [0, 1].map(|n| w.post_send(&ends.send[0], n).unwrap());
        w.pass(&ends, 2).unwrap();
    });
}

#[test]
fn a_panicking_waker_does_not_end_the_connection() {
    let (mut w, c) = connected();
    // These have the slots, so that the next waits in the connection and ends in the driver's poll.
    let _posted: Vec<_> = (0..crate::world::SLOTS).map(|_| c[1].recv(w.empty(1, BYTES))).collect();
    let mut waits = c[1].recv(w.empty(1, BYTES));
    let mut posted = c[1].send(w.filled(1, 0, BYTES), None);
    w.until(Nanos::from_millis(5), |_| false);
    let count = Arc::new(Count::default());
    assert!(poll(&mut waits, &Act::on_wake(|| panic!("a waker of the test"))).is_pending());
    assert!(poll(&mut posted, &count.clone().into()).is_pending());
    c[1].close();
    for _ in 0..3 {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            w.until(Nanos::from_secs(5), |_| false)
        }));
    }
    assert_eq!(count.get(), 1);
    assert_eq!(posted.try_take(), Some(Err(TransferError::Closed)));
    assert!(matches!(waits.try_take(), Some(Err(e)) if e.why == TransferError::Closed && e.buf.is_some()));
}

/// Selective Repeat whose senders do something when they end.
struct Hooked {
    inner: SelectiveRepeat,
    at_end: Arc<Once>,
}

struct HookedSender(Box<dyn SchemeSender>, Arc<Once>);

impl Drop for HookedSender {
    fn drop(&mut self) {
        if let Some(f) = self.1.lock().unwrap().take() {
            f();
        }
    }
}

impl SchemeSender for HookedSender {
    fn on_status(&mut self, now: Nanos, status: &sdr_sdk::reliability::Status<'_>, c: &Conditions) {
        self.0.on_status(now, status, c);
    }
    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<sdr_sdk::reliability::SendRun> {
        self.0.next(now, budget, c)
    }
    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        self.0.wake_at(c)
    }
}

impl Scheme for Hooked {
    fn name(&self) -> Cow<'static, str> {
        self.inner.name()
    }
    fn wire_id(&self) -> u8 {
        self.inner.wire_id()
    }
    fn sender(&self, m: &MessageSpec, c: &Conditions) -> Box<dyn SchemeSender> {
        Box::new(HookedSender(self.inner.sender(m, c), self.at_end.clone()))
    }
    fn receiver(
        &self,
        m: &MessageSpec,
        plan: &Plan,
        c: &Conditions,
    ) -> Result<Box<dyn SchemeReceiver>, PlanError> {
        self.inner.receiver(m, plan, c)
    }
}

/// Work that is accepted in the very poll in which the connection ends, here by the scheme, elsewhere by any thread.
#[test]
fn a_send_accepted_while_the_connection_ends_still_gets_a_result() {
    let at_end = Arc::new(Once::default());
    let mut config = ConnectionConfig::default();
    config.scheme = Arc::new(Hooked { inner: SelectiveRepeat::default(), at_end: at_end.clone() });
    let mut w = World::new(Setup::default());
    let c = w.connection(config);
    let _recv = c[1].recv(w.empty(1, BYTES));
    let mut send = c[0].send(w.filled(0, 0, BYTES), None);
    assert!(w.until(Nanos::from_secs(1), |_| c[0].stats().sent > 0));
    let late = Arc::new(Mutex::new(None));
    let (to, conn, buf, dst) = (late.clone(), c[0].clone(), w.filled(0, 1, BYTES), w.empty(0, BYTES));
    *at_end.lock().unwrap() =
        Some(Box::new(move || *to.lock().unwrap() = Some((conn.send(buf, None), conn.recv(dst)))));
    w.drivers[1] = None;
    w.until(Nanos::from_secs(10), |_| false);
    assert!(c[0].ended());
    assert!(matches!(send.try_take(), Some(Err(TransferError::Lost { .. }))));
    let (mut send, mut recv) = late.lock().unwrap().take().expect("the hook ran");
    assert_eq!(send.try_take(), Some(Err(TransferError::Closed)));
    let e = recv.try_take().expect("a result").unwrap_err();
    assert_eq!(e.why, TransferError::Closed);
    assert!(e.buf.is_some());
}

#[test]
fn max_waiting_bounds_what_waits_also_once_the_driver_has_seen_it() {
    let mut config = ConnectionConfig::default();
    config.max_waiting = 3;
    let mut w = World::new(Setup::default());
    let c = w.connection(config);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(c[0].send(w.filled(0, 0, 8), None));
        w.until(Nanos::from_millis(5), |_| false);
    }
    let mut refused = c[0].send(w.filled(0, 0, 8), None);
    assert_eq!(refused.try_take(), Some(Err(TransferError::Full { waiting: 3 })));
    let mut recvs: Vec<_> = (0..SLOTS_AND_WAITING)
        .map(|_| {
            let r = c[1].recv(w.empty(1, 8));
            w.until(Nanos::from_millis(5), |_| false);
            r
        })
        .collect();
    let accepted = recvs.iter_mut().filter_map(|r| r.try_take()).filter(|r| r.is_ok()).count();
    assert_eq!(accepted, 3);
    let mut recvs: Vec<_> = (0..SLOTS_AND_WAITING + 2)
        .map(|_| {
            let r = c[0].recv(w.empty(0, 8));
            w.until(Nanos::from_millis(5), |_| false);
            r
        })
        .collect();
    let full = recvs.iter_mut().filter_map(|r| r.try_take());
    let full: Vec<_> = full.map(|r| r.unwrap_err()).collect();
    assert_eq!(full.len(), 2);
    for e in full {
        assert!(matches!(e.why, TransferError::Full { waiting: 3 }) && e.buf.is_some());
    }
}

const SLOTS_AND_WAITING: u32 = crate::world::SLOTS + 3;

/// A future in a pinned block, as most people write it.
#[test]
fn transfers_can_be_awaited() {
    let (mut w, c) = connected();
    let (buf, dst) = (w.filled(0, 0, BYTES), w.empty(1, BYTES));
    let mut task = pin!(async {
        let recv = c[1].recv(dst);
        let sent = c[0].send(buf, Some(7)).await.unwrap();
        let got = recv.await.unwrap();
        (sent.seq, got.seq, got.user, got.buf)
    });
    let count = Arc::new(Count::default());
    let waker: Waker = count.clone().into();
    let mut result = None;
    w.until(Nanos::from_secs(1), |_| {
        if let Poll::Ready(r) = task.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            result = Some(r);
        }
        result.is_some()
    });
    let (sent, got, user, buf) = result.unwrap();
    assert_eq!((sent, user), (got, Some(7)));
    assert_eq!(&buf[..], &pattern(0, BYTES)[..]);
}
