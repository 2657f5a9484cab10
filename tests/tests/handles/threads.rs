//! Futures awaited on another thread than the one that moves time.

use crate::world::{BYTES, Setup, World, pattern};
use sdr_sdk::connection::ConnectionConfig;
use sdr_sdk::types::Nanos;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context as TaskContext, Poll, Wake};
use std::time::Duration;

/// Longer than any machine takes; only a deadlock waits for it.
const BOUND: Duration = Duration::from_secs(20);

/// Runs `f` on a thread of its own; fails instead of hanging when it does not return.
#[expect(clippy::disallowed_methods, reason = "a deadlock shows on a thread that is given up")]
pub fn bounded(f: impl FnOnce() + Send + 'static) {
    let (done, wait) = channel();
    let thread = std::thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    if wait.recv_timeout(BOUND) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("deadlock");
    }
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    wait: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.wait.notify_one();
    }
}

/// Waits for a future by its waker alone: a wake that is lost is a failure.
fn block_on<F: Future>(f: F) -> F::Output {
    let bell = Arc::new(Bell::default());
    let waker = bell.clone().into();
    let mut f = pin!(f);
    loop {
        if let Poll::Ready(r) = f.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return r;
        }
        let rung = bell.rung.lock().unwrap();
        let (mut rung, late) = bell.wait.wait_timeout_while(rung, BOUND, |r| !*r).unwrap();
        assert!(!late.timed_out(), "nobody woke the future");
        *rung = false;
    }
}

#[test]
fn a_retire_is_awaited_while_another_thread_moves_time() {
    let mut setup = Setup::default();
    setup.sim.disarm_delay = Nanos::from_micros(50);
    for _ in 0..50 {
        let mut w = World::new(setup.clone());
        let ends = w.connect();
        let handle = w.post_recv(&ends.recv[1]).unwrap();
        let _sent = w.post_send(&ends.send[0], 0).unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| handle.bitmap().is_full()));
        let done = AtomicBool::new(false);
        let mut buf = None;
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                let r = block_on(handle.complete());
                done.store(true, Ordering::Release);
                r.unwrap()
            });
            while !done.load(Ordering::Acquire) && !waiter.is_finished() {
                w.touch();
                w.run(Nanos::from_micros(10));
            }
            buf = Some(waiter.join().unwrap());
        });
        assert_eq!(&buf.unwrap()[..], &pattern(0, BYTES)[..]);
    }
}

#[test]
fn transfers_are_posted_and_awaited_on_other_threads() {
    const N: u64 = 60;
    let mut w = World::new(Setup::default());
    let c = w.connection(ConnectionConfig::default());
    let bufs: Vec<_> = (0..N).map(|n| w.filled(0, n, BYTES)).collect();
    let dsts: Vec<_> = (0..N).map(|_| w.empty(1, BYTES)).collect();
    let [a, b] = c;
    std::thread::scope(|s| {
        let sender = s.spawn(move || {
            for buf in bufs {
                block_on(a.send(buf, None)).unwrap();
            }
        });
        let receiver = s.spawn(move || {
            for (n, dst) in dsts.into_iter().enumerate() {
                let r = block_on(b.recv(dst)).unwrap();
                assert_eq!(&r.buf[..r.len], &pattern(n as u64, BYTES)[..], "message {n}");
            }
        });
        while !(sender.is_finished() && receiver.is_finished()) {
            w.touch();
            w.run(Nanos::from_micros(10));
        }
        sender.join().unwrap();
        receiver.join().unwrap();
    });
    assert_eq!((w.live_regions(0), w.live_regions(1)), (0, 0));
}
