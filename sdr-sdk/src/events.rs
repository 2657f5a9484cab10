//! One queue of things that have happened, for programs with a loop of their own: tokens in, a descriptor to wait on.
//!
//! A [`Transfer`](crate::connection::Transfer) or [`Retire`](crate::qp::Retire) is told to notify a queue with a token that
//! the user chose; the token comes out once when the result is there. Invariant: the descriptor is readable exactly
//! while tokens wait.

use crate::types::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

struct Queue {
    tokens: Mutex<VecDeque<u64>>,
    /// A byte is in it while tokens wait.
    signal: UnixStream,
    waiting: UnixStream,
}

impl Queue {
    fn push(&self, token: u64) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push_back(token);
        if tokens.len() == 1 {
            // There is room: one byte each time the queue stops being empty.
            let _ = (&self.signal).write(&[1]);
        }
    }

    fn pop(&self) -> Option<u64> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let token = tokens.pop_front()?;
        if tokens.is_empty() {
            let _ = (&self.waiting).read(&mut [0]);
        }
        Some(token)
    }
}

/// A queue of tokens. Cheap to clone.
#[derive(Clone)]
pub struct Events(Arc<Queue>);

struct Notify {
    queue: Arc<Queue>,
    token: u64,
}

impl Wake for Notify {
    fn wake(self: Arc<Self>) {
        self.queue.push(self.token);
    }
}

impl Events {
    /// An empty queue.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let (signal, waiting) = UnixStream::pair()?;
        signal.set_nonblocking(true)?;
        waiting.set_nonblocking(true)?;
        Ok(Self(Arc::new(Queue { tokens: Mutex::new(VecDeque::new()), signal, waiting })))
    }

    /// Puts `token` into the queue when `future` has its result; at once if it has it already, and then returns it.
    ///
    /// The last call for a future counts.
    pub fn watch<F: Future + Unpin>(&self, future: &mut F, token: u64) -> Option<F::Output> {
        let waker = Waker::from(Arc::new(Notify { queue: self.0.clone(), token }));
        match Pin::new(future).poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(result) => {
                self.0.push(token);
                Some(result)
            }
            Poll::Pending => None,
        }
    }

    /// The next token, if one waits.
    pub fn next(&self) -> Option<u64> {
        self.0.pop()
    }

    /// The next token, waiting for at most `timeout`. Somebody else has to drive the connections meanwhile.
    pub fn wait(&self, timeout: Nanos) -> Option<u64> {
        if let Some(token) = self.next() {
            return Some(token);
        }
        let limit = Timespec {
            tv_sec: (timeout.0 / 1_000_000_000) as i64,
            tv_nsec: (timeout.0 % 1_000_000_000) as i64,
        };
        // Interrupted or not: whether there is a token is what counts.
        let _ = poll(&mut [PollFd::new(&self.0.waiting, PollFlags::IN)], Some(&limit));
        self.next()
    }
}

impl AsFd for Events {
    /// Readable while tokens wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.waiting.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    fn readable(e: &Events) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&e.0.waiting, PollFlags::IN)], Some(&zero)) == Ok(1)
    }

    #[test]
    fn tokens_come_out_in_order_and_the_descriptor_follows() {
        let e = Events::new().unwrap();
        assert!(!readable(&e) && e.next().is_none() && e.wait(Nanos(1)).is_none());
        assert_eq!(e.watch(&mut ready(5), 1), Some(5));
        assert_eq!(e.watch(&mut ready(6), 2), Some(6));
        assert_eq!(e.watch(&mut pending::<()>(), 3), None);
        assert!(readable(&e));
        assert_eq!(e.next(), Some(1));
        assert!(readable(&e));
        assert_eq!(e.wait(Nanos::MAX), Some(2));
        assert!(!readable(&e) && e.next().is_none());
    }

    #[test]
    fn a_waker_from_another_thread_ends_the_wait() {
        let e = Events::new().unwrap();
        let mut cell = None;
        let mut future = std::future::poll_fn(|cx: &mut TaskContext<'_>| {
            cell = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        assert_eq!(e.watch(&mut future, 9), None);
        let waker = cell.unwrap();
        std::thread::scope(|s| {
            s.spawn(|| waker.wake_by_ref());
            assert_eq!(e.wait(Nanos::from_secs(10)), Some(9));
        });
    }
}
