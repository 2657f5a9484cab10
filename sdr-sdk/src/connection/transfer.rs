//! A transfer in progress: the future that a user holds, and the cell through which the driver ends it.

use crate::connection::Shared;
use crate::memory::RecvBuf;
use crate::qp::Closed;
use crate::slots::RetireError;
use crate::types::{Nanos, Seq};
use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

/// A message that the peer has, every byte of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its number.
    pub seq: Seq,
    /// Its length in bytes.
    pub bytes: u64,
    /// Packets injected, repairs included.
    pub packets: u64,
    /// Packets injected again.
    pub repairs: u64,
    /// Packets of parity injected.
    pub parity: u64,
    /// When the peer's DONE came in.
    pub at: Nanos,
}

/// A message that arrived whole.
#[derive(Debug)]
pub struct Received {
    /// Its number.
    pub seq: Seq,
    /// The receive's buffer; the message is its first `len` bytes.
    pub buf: RecvBuf,
    /// Length of the message in bytes.
    pub len: usize,
    /// The user immediate, if the sender gave one.
    pub user: Option<u32>,
}

/// Why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The peer posted no receive for it in time.
    #[error(
        "send: the peer posted no receive within {waited} (next message {seq}); post one, or raise grant_deadline"
    )]
    NoReceive {
        /// The message that waits.
        seq: Seq,
        /// How long it waited.
        waited: Nanos,
    },
    /// The message is longer than the receive it goes to; the connection lives.
    #[error("message {seq} has {len} bytes, the receive {posted}; post a larger receive")]
    TooLong {
        /// The message.
        seq: Seq,
        /// Its length in bytes.
        len: u64,
        /// Length of the receive in bytes.
        posted: u64,
    },
    /// The receiver gave the receive up.
    #[error("message {seq}: cancelled by the receiver")]
    CancelledByReceiver {
        /// The message.
        seq: Seq,
    },
    /// The sender gave the message up.
    #[error("message {seq}: cancelled by the sender")]
    CancelledBySender {
        /// The message.
        seq: Seq,
    },
    /// The receiver cannot take what was announced.
    #[error("message {seq}: refused by the receiver (scheme {scheme})")]
    Refused {
        /// The message.
        seq: Seq,
        /// The scheme it was announced with.
        scheme: Cow<'static, str>,
    },
    /// The path carries no packets of the size any more that the receive was granted with; the connection lives, and receives
    /// posted from now on have the new size.
    #[error("message {seq}: packets of {was} bytes no longer pass, the path carries {now}; send it again")]
    PathMtu {
        /// The message.
        seq: Seq,
        /// Payload bytes of its packets.
        was: u32,
        /// Payload bytes that pass.
        now: u32,
    },
    /// The peer lives, but the message makes no progress.
    #[error(
        "{operation} of message {seq}: no progress for {idle}: {arrived} of {packets} packets arrived, \
             {repairs} sent again, RTT {rtt}"
    )]
    Stalled {
        /// `send` or `recv`.
        operation: &'static str,
        /// The message.
        seq: Seq,
        /// Time without progress.
        idle: Nanos,
        /// Packets of the message.
        packets: u32,
        /// Packets known to have arrived.
        arrived: u32,
        /// Packets sent again.
        repairs: u64,
        /// Smoothed round-trip time.
        rtt: Nanos,
    },
    /// The connection ended first. The peer may or may not have what was not confirmed.
    #[error("{operation}: connection lost, outcome unknown from message {from} on: {why}")]
    Lost {
        /// `send` or `recv`.
        operation: &'static str,
        /// The first message without a known outcome in this direction.
        from: Seq,
        /// Why the queue pair ended.
        why: Closed,
    },
    /// The connection was closed here, or its driver is gone.
    #[error("the connection is closed")]
    Closed,
    /// Too many transfers wait already.
    #[error("{waiting} transfers wait already; raise max_waiting or wait for one")]
    Full {
        /// How many.
        waiting: usize,
    },
    /// The buffer cannot be posted at all.
    #[error("not postable: {0}")]
    NotPostable(String),
    /// The memory did not come back.
    #[error(transparent)]
    Retire(#[from] RetireError),
    /// The scheme or the driver panicked; the connection is closed.
    #[error("the connection's driver panicked: {0}")]
    Panicked(String),
}

impl TransferError {
    /// The same with messages counted from `first`: for people, where a connection's numbers do not begin at zero.
    #[must_use]
    pub fn counted_from(mut self, first: Seq) -> Self {
        match &mut self {
            Self::NoReceive { seq, .. }
            | Self::TooLong { seq, .. }
            | Self::CancelledByReceiver { seq }
            | Self::CancelledBySender { seq }
            | Self::Refused { seq, .. }
            | Self::PathMtu { seq, .. }
            | Self::Stalled { seq, .. }
            | Self::Lost { from: seq, .. }
            | Self::Retire(RetireError::EngineStalled { seq, .. }) => *seq = Seq(seq.0.wrapping_sub(first.0)),
            Self::Closed | Self::Full { .. } | Self::NotPostable(_) | Self::Panicked(_) => {}
        }
        self
    }
}

/// Why a receive failed, with its buffer where that is free again.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct RecvError {
    /// The reason.
    pub why: TransferError,
    /// The buffer; absent when the memory is still in use.
    pub buf: Option<RecvBuf>,
}

/// How a send ends.
pub type SendResult = Result<Delivered, TransferError>;
/// How a receive ends.
pub type RecvResult = Result<Received, RecvError>;

pub(crate) struct Cell<T> {
    state: Mutex<CellState<T>>,
    cancelled: AtomicBool,
}

struct CellState<T> {
    result: Option<T>,
    finished: bool,
    waker: Option<Waker>,
}

impl<T> Cell<T> {
    pub(crate) fn new() -> Arc<Self> {
        let state = Mutex::new(CellState { result: None, finished: false, waker: None });
        Arc::new(Self { state, cancelled: AtomicBool::new(false) })
    }

    fn lock(&self) -> MutexGuard<'_, CellState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user dropped the transfer.
    pub(crate) fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Nobody waits any more. Whether there was a result, and who waited; the lock is released.
    fn retract(&self) -> (bool, Option<Waker>) {
        let mut s = self.lock();
        (s.finished, s.waker.take())
    }

    /// Ends the transfer; only the first result counts.
    pub(crate) fn finish(&self, result: T, wakers: &mut Vec<Waker>) {
        let mut s = self.lock();
        if !s.finished {
            s.finished = true;
            s.result = Some(result);
            wakers.extend(s.waker.take());
        }
    }
}

/// A send or receive in progress. Dropping it cancels it: the message's number is used up, the connection goes on.
///
/// So the n-th send goes to the n-th receive whatever is dropped, and whenever. Only a send that waited longer than
/// [`grant_deadline`](crate::ConnectionConfig::grant_deadline) for its receive takes no number.
#[must_use = "dropping a transfer cancels it"]
pub struct Transfer<T> {
    pub(super) cell: Arc<Cell<T>>,
    pub(super) shared: Arc<Shared>,
}

impl<T> Transfer<T> {
    /// The result, once there is one; it is given once.
    pub fn try_take(&mut self) -> Option<T> {
        self.cell.lock().result.take()
    }
}

impl<T> Future for Transfer<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        // A waker is foreign code: it is cloned before the lock is taken, and the old one dropped after it.
        let mut waker = Some(cx.waker().clone());
        let mut s = self.cell.lock();
        match s.result.take() {
            Some(r) => Poll::Ready(r),
            None => {
                std::mem::swap(&mut s.waker, &mut waker);
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Transfer<T> {
    fn drop(&mut self) {
        let (finished, _waker) = self.cell.retract();
        if !finished {
            self.cell.cancelled.store(true, Ordering::Release);
            self.shared.cancel_wanted.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_from_the_first() {
        let first = Seq(u64::MAX - 4);
        let e = TransferError::CancelledBySender { seq: first.plus(17) }.counted_from(first);
        assert_eq!(e.to_string(), "message 17: cancelled by the sender");
        let why = Closed::Here;
        let e = TransferError::Lost { operation: "send", from: first, why }.counted_from(first);
        assert_eq!(e, TransferError::Lost { operation: "send", from: Seq(0), why });
        assert_eq!(TransferError::Closed.counted_from(first), TransferError::Closed);
    }
}
