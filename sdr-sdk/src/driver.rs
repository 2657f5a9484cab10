//! Real time: the only place of the library that has a clock and threads.
//!
//! A [`Driver`] polls one context and its connections. It runs inline, inside [`Driver::block_on`], or on a thread of its own
//! ([`Driver::spawn`]). With nothing to do it spins for a moment, then sleeps, so that two ends can share two
//! cores and an idle end costs little.

use crate::connection::ConnectionDriver;
use crate::context::Context;
use crate::types::Nanos;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it spins after the last work. It never yields: to a busy host a yield is leave to run somebody else for
/// milliseconds, while who comes back from a short sleep runs at once.
const SPIN: Nanos = Nanos::from_micros(30);

/// Sleep after that, at first: about what waking up costs.
const SHORT_NAP: Duration = Duration::from_micros(20);

/// Longest sleep: work handed over by another thread waits at most this long.
const NAP: Duration = Duration::from_micros(100);

/// Longest sleep of an end that has had nothing to do for long.
const LONG_NAP: Duration = Duration::from_millis(1);

/// Without work for this long, naps are no longer short; and for this long, they are long.
const SHORT: Nanos = Nanos::from_micros(500);
const LONG: Nanos = Nanos::from_millis(150);

/// Monotonic time since the clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn now(&self) -> Nanos {
        Nanos(Instant::now().duration_since(self.0).as_nanos() as u64)
    }
}

/// Polls a context and its connections in real time.
pub struct Driver {
    context: Context,
    connections: Vec<ConnectionDriver>,
    clock: Clock,
    /// When something was last done or due.
    active_at: Nanos,
    /// Of the connections, when last looked at.
    activity: u64,
}

impl Driver {
    /// A driver without connections.
    pub fn new(context: Context, clock: Clock) -> Self {
        Self { context, connections: Vec::new(), clock, active_at: clock.now(), activity: 0 }
    }

    /// Its clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Polls this connection too, until it has ended.
    pub fn add(&mut self, connection: ConnectionDriver) {
        self.connections.push(connection);
    }

    /// Connections that have not ended.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// One pass over everything; returns when the next is due, if anything is.
    pub fn turn(&mut self) -> Option<Nanos> {
        let now = self.clock.now();
        let mut wake_at = self.context.poll(now);
        self.connections.retain_mut(|c| match c.poll(now) {
            Some(t) => {
                wake_at = Some(wake_at.map_or(t, |w| w.min(t)));
                true
            }
            None => false,
        });
        let activity = self.connections.iter().fold(0, |sum: u64, c| sum.wrapping_add(c.activity()));
        if activity != self.activity {
            (self.activity, self.active_at) = (activity, now);
        }
        wake_at
    }

    /// Passes time until `wake_at`, but not for long: input and other threads may have work before.
    #[expect(clippy::disallowed_methods, reason = "real time: nothing is due")]
    fn rest(&mut self, wake_at: Option<Nanos>) {
        let now = self.clock.now();
        let due = wake_at.map(|t| Duration::from_nanos(t.since(now).0));
        if due.is_some_and(|d| d.is_zero()) {
            self.active_at = now;
            return;
        }
        let nap = match now.since(self.active_at) {
            idle if idle < SPIN => return std::hint::spin_loop(),
            idle if idle < SHORT => SHORT_NAP,
            idle if idle < LONG => NAP,
            _ => LONG_NAP,
        };
        std::thread::sleep(due.map_or(nap, |d| d.min(nap)));
    }

    /// Inline mode: turns until the future is done, or until `deadline` has passed; then None, and the future is dropped.
    pub fn block_on<F: Future>(&mut self, future: F, deadline: Nanos) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut task = TaskContext::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(r) = future.as_mut().poll(&mut task) {
                return Some(r);
            }
            if self.clock.now() >= deadline {
                return None;
            }
            let wake_at = self.turn();
            self.rest(wake_at);
        }
    }

    /// Turns until `done` gives something, or until `deadline` has passed.
    pub fn run<R>(&mut self, deadline: Nanos, mut done: impl FnMut(&mut Self) -> Option<R>) -> Option<R> {
        loop {
            if let Some(r) = done(self) {
                return Some(r);
            }
            if self.clock.now() >= deadline {
                return None;
            }
            let wake_at = self.turn();
            self.rest(wake_at);
        }
    }

    /// Moves to a thread of its own.
    #[expect(clippy::disallowed_methods, reason = "a driver's thread")]
    pub fn spawn(mut self) -> DriverThread {
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), incoming: Mutex::new(Vec::new()) });
        let seen = shared.clone();
        let clock = self.clock;
        let thread = std::thread::spawn(move || {
            while !seen.stop.load(Ordering::Acquire) {
                self.connections.append(&mut seen.incoming.lock().unwrap_or_else(PoisonError::into_inner));
                let wake_at = self.turn();
                self.rest(wake_at);
            }
        });
        DriverThread { shared, thread: Some(thread), clock }
    }
}

struct Shared {
    stop: AtomicBool,
    incoming: Mutex<Vec<ConnectionDriver>>,
}

/// A driver on its own thread. Dropping it stops the thread; connections that have not ended fail.
pub struct DriverThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    clock: Clock,
}

impl DriverThread {
    /// Polls this connection too, until it has ended.
    pub fn add(&self, connection: ConnectionDriver) {
        self.shared.incoming.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// The driver's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(t) = self.thread.take() {
            // A panic there has been reported by the panic hook; the connections are gone with it.
            let _ = t.join();
        }
    }
}
