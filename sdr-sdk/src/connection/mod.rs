//! A connection: reliable messages over a queue pair.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | `Connection` for users, `ConnectionDriver` for whoever has the clock |
//! | `transfer.rs` | the future of one message, its errors |
//! | `sending.rs`, `receiving.rs` | the two directions; they use the queue pair's public calls and a scheme |
//! | `pacing.rs` | when the next packets may leave |
//! | `congestion.rs` | how many: a fixed rate, or what the path's delay says |
//! | `coding.rs`, `scratch.rs` | parity of a message, and memory for it |
//! | `loss_meter.rs` | what the path loses |
//! | `frames.rs` | ANNOUNCE, REPORT, WANT, DONE, LOSS |
//!
//! The handle queues work, the driver does it in [`ConnectionDriver::poll`]: no clock, no thread, no IO here. Invariant:
//! every transfer ends, with a result or a typed error, as long as the driver is polled or dropped.

mod coding;
pub mod congestion;
pub mod frames;
mod loss_meter;
mod pacing;
mod receiving;
mod scratch;
mod sending;
mod transfer;

pub use transfer::{Delivered, Received, RecvError, RecvResult, SendResult, Transfer, TransferError};

use crate::ec::{Coder, Fast, Naive};
use crate::engine::EngineCounters;
use crate::memory::{RecvBuf, SendBuf};
use crate::qp::{Closed, RecvQp, SendQp};
use crate::reliability::{Conditions, Loss, MessageSpec, Scheme, SelectiveRepeat};
use crate::types::{Nanos, Seq};
use crate::wake::wake_all;
use congestion::CongestionControl;
use receiving::Receiving;
use sending::Sending;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use transfer::Cell;

/// Settings of a connection; scheme families have to agree on both sides.
#[derive(Clone)]
#[non_exhaustive]
pub struct ConnectionConfig {
    /// How messages become whole. Default: Selective Repeat.
    pub scheme: Arc<dyn Scheme>,
    /// Injection rate in bits of payload a second; None: as fast as the fabric takes packets. Default: None.
    pub rate: Option<u64>,
    /// How fast to send. Default: [`Fixed`](congestion::Fixed), at `rate`; with [`Delay`](congestion::Delay) `rate` is the
    /// most.
    pub congestion: Arc<dyn CongestionControl>,
    /// Packets a chunk of posted receives, 1 to 64. Default: 16.
    pub per_chunk: u32,
    /// A message without progress for this long fails. Default: 10 s.
    pub progress_deadline: Nanos,
    /// A send for which the peer posts no receive for this long fails. Default: 30 s.
    pub grant_deadline: Nanos,
    /// Transfers of each direction that may wait for a number. Default: 65,536.
    pub max_waiting: usize,
    /// What the path loses, where that is known beforehand. Default: it is measured.
    pub loss: Option<Loss>,
    /// Memory for parity, in bytes, for each direction; less means less parity. Default: a quarter of what a round trip holds at
    /// `rate`, at least 64 MiB.
    pub parity_pool: Option<usize>,
    /// What computes parity. Default: [`Fast`], or [`Naive`] where a back end was asked for that the CPU lacks.
    pub coder: Arc<dyn Coder>,
    /// After `close` or the last handle's drop, outstanding work may take this long. Default: 3 s.
    pub linger: Nanos,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            scheme: Arc::new(SelectiveRepeat::default()),
            rate: None,
            congestion: Arc::new(congestion::Fixed),
            per_chunk: 16,
            progress_deadline: Nanos::from_secs(10),
            grant_deadline: Nanos::from_secs(30),
            max_waiting: 1 << 16,
            loss: None,
            parity_pool: None,
            coder: Fast::new().map_or_else(|_| Arc::new(Naive) as Arc<dyn Coder>, |fast| Arc::new(fast)),
            linger: Nanos::from_secs(3),
        }
    }
}

impl ConnectionConfig {
    /// Sets [`scheme`](Self::scheme).
    pub fn scheme(self, scheme: Arc<dyn Scheme>) -> Self {
        Self { scheme, ..self }
    }

    /// Sets [`rate`](Self::rate), bits of payload a second.
    pub fn rate(self, rate: u64) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Sets [`congestion`](Self::congestion).
    pub fn congestion(self, congestion: Arc<dyn CongestionControl>) -> Self {
        Self { congestion, ..self }
    }

    /// Sets [`per_chunk`](Self::per_chunk).
    pub fn per_chunk(self, per_chunk: u32) -> Self {
        Self { per_chunk, ..self }
    }

    /// Sets [`progress_deadline`](Self::progress_deadline).
    pub fn progress_deadline(self, progress_deadline: Nanos) -> Self {
        Self { progress_deadline, ..self }
    }

    /// Sets [`grant_deadline`](Self::grant_deadline).
    pub fn grant_deadline(self, grant_deadline: Nanos) -> Self {
        Self { grant_deadline, ..self }
    }

    /// Sets [`max_waiting`](Self::max_waiting).
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    /// Sets [`loss`](Self::loss).
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss: Some(loss), ..self }
    }

    /// What [`parity_pool`](Self::parity_pool) is on a path with this round trip.
    fn parity_memory(&self, rtt: Nanos) -> usize {
        let bits = u128::from(self.rate.unwrap_or(0)) * u128::from(rtt.0) / 1_000_000_000;
        self.parity_pool.unwrap_or(((bits / 8 / 4) as usize).max(64 << 20))
    }

    /// Sets [`parity_pool`](Self::parity_pool).
    pub fn parity_pool(self, parity_pool: usize) -> Self {
        Self { parity_pool: Some(parity_pool), ..self }
    }

    /// Sets [`coder`](Self::coder).
    pub fn coder(self, coder: Arc<dyn Coder>) -> Self {
        Self { coder, ..self }
    }

    /// Sets [`linger`](Self::linger).
    pub fn linger(self, linger: Nanos) -> Self {
        Self { linger, ..self }
    }
}

/// What a connection counted; packets unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Messages delivered to the peer.
    pub delivered: u64,
    /// Messages received whole.
    pub received: u64,
    /// Packets injected, repairs included.
    pub sent: u64,
    /// Packets injected again.
    pub repairs: u64,
    /// Packets of parity injected.
    pub parity: u64,
    /// REPORT frames sent.
    pub reports: u64,
    /// DONE entries sent.
    pub dones: u64,
    /// ANNOUNCE frames sent.
    pub announces: u64,
    /// Frames that made no sense, received.
    pub malformed: u64,
    /// Time that receives waited for a reusable slot.
    pub slot_wait: Nanos,
    /// Smallest recent round-trip time.
    pub min_rtt: Nanos,
    /// What became of the packets that came in.
    pub arrivals: EngineCounters,
}

pub(crate) struct SendRequest {
    buf: SendBuf,
    user: Option<u32>,
    cell: Arc<Cell<SendResult>>,
}

pub(crate) struct RecvRequest {
    buf: RecvBuf,
    cell: Arc<Cell<RecvResult>>,
}

#[derive(Default)]
struct Mailbox {
    sends: VecDeque<SendRequest>,
    recvs: VecDeque<RecvRequest>,
    closing: bool,
    ended: bool,
    stats: ConnectionStats,
    /// Sends and receives that the driver took and that still wait.
    waiting: (usize, usize),
    /// The path as the sending direction last saw it.
    path: Option<Conditions>,
}

/// What handle, transfers and driver share.
pub(crate) struct Shared {
    mailbox: Mutex<Mailbox>,
    /// A transfer was dropped: the driver looks for it.
    cancel_wanted: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks the connection as closing when the last handle is gone.
struct Handle {
    shared: Arc<Shared>,
    max_waiting: usize,
    scheme: Arc<dyn Scheme>,
    payload: u32,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
    }
}

/// Reliable messages to and from one peer. Cheap to clone; dropping the last one closes it.
#[derive(Clone)]
pub struct Connection(Arc<Handle>);

impl Connection {
    /// A connection over a connected queue pair. The driver has to be polled.
    pub fn new(send: SendQp, recv: RecvQp, config: ConnectionConfig) -> (Self, ConnectionDriver) {
        let shared = Arc::new(Shared {
            mailbox: Mutex::new(Mailbox::default()),
            cancel_wanted: AtomicBool::new(false),
        });
        let payload = send.payload();
        let driver = ConnectionDriver {
            shared: shared.clone(),
            inner: Inner {
                sending: Sending::new(send, &config),
                receiving: Receiving::new(recv, &config),
                stats: ConnectionStats::default(),
                closing: None,
                linger: config.linger,
            },
            finished: false,
        };
        let ConnectionConfig { max_waiting, scheme, .. } = config;
        (Self(Arc::new(Handle { shared, max_waiting, scheme, payload })), driver)
    }

    /// Sends a message into the peer's next receive; ends when the peer has every byte. `user` goes along with it.
    pub fn send(&self, buf: SendBuf, user: Option<u32>) -> Transfer<SendResult> {
        let cell = Cell::new();
        let mut m = self.0.shared.lock();
        let refused = self.refused(&m, m.sends.len() + m.waiting.0);
        match refused {
            Some(e) => cell.finish(Err(e), &mut Vec::new()),
            None => m.sends.push_back(SendRequest { buf, user, cell: cell.clone() }),
        }
        drop(m);
        Transfer { cell, shared: self.0.shared.clone() }
    }

    /// Receives the peer's next message into `buf`.
    pub fn recv(&self, buf: RecvBuf) -> Transfer<RecvResult> {
        let cell = Cell::new();
        let mut m = self.0.shared.lock();
        match self.refused(&m, m.recvs.len() + m.waiting.1) {
            Some(why) => cell.finish(Err(RecvError { why, buf: Some(buf) }), &mut Vec::new()),
            None => m.recvs.push_back(RecvRequest { buf, cell: cell.clone() }),
        }
        drop(m);
        Transfer { cell, shared: self.0.shared.clone() }
    }

    fn refused(&self, m: &Mailbox, waiting: usize) -> Option<TransferError> {
        if m.closing || m.ended {
            return Some(TransferError::Closed);
        }
        (waiting >= self.0.max_waiting).then_some(TransferError::Full { waiting })
    }

    /// Stops taking work. What was accepted goes on for [`ConnectionConfig::linger`], then the peer is told.
    pub fn close(&self) {
        self.0.shared.lock().closing = true;
    }

    /// Whether the connection ended, for whatever reason.
    pub fn ended(&self) -> bool {
        self.0.shared.lock().ended
    }

    /// What the scheme would do with a message of `bytes` bytes sent alone now, and why; None where it has no choice, and before
    /// the driver was polled.
    pub fn explain(&self, bytes: u64) -> Option<String> {
        let c = self.0.shared.lock().path?;
        let payload = self.0.payload;
        let packets = u32::try_from(bytes.div_ceil(payload.into())).ok()?;
        let m = MessageSpec {
            seq: Seq(0),
            bytes,
            packets,
            payload,
            channels: 1,
            per_chunk: 1,
            extra: u32::MAX,
            first_extra: packets,
        };
        self.0.scheme.explain(&m, &c)
    }

    /// What it counted, as of the driver's last poll.
    pub fn stats(&self) -> ConnectionStats {
        self.0.shared.lock().stats
    }
}

/// Does a connection's work. Dropping it ends every transfer with an error.
#[must_use = "a connection does nothing unless its driver is polled"]
pub struct ConnectionDriver {
    shared: Arc<Shared>,
    inner: Inner,
    finished: bool,
}

/// Bytes of the longest packet of a message's data: what the path has to carry.
fn largest_packet(m: &MessageSpec) -> u32 {
    m.bytes.min(m.payload.into()) as u32
}

struct Inner {
    sending: Sending,
    receiving: Receiving,
    stats: ConnectionStats,
    /// When lingering ends.
    closing: Option<Nanos>,
    linger: Nanos,
}

impl ConnectionDriver {
    /// Acts on what came in and what was asked for, after the context was polled at the same `now`. Returns when to
    /// come again; None only when the connection has ended.
    pub fn poll(&mut self, now: Nanos) -> Option<Nanos> {
        if self.finished {
            return None;
        }
        let mut wakers = Vec::new();
        // A scheme is foreign code: its panic ends this connection and nothing else.
        let wake_at = match catch_unwind(AssertUnwindSafe(|| self.inner.poll(now, &self.shared, &mut wakers)))
        {
            Ok(wake_at) => wake_at,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                self.end(now, &TransferError::Panicked(text), &mut wakers);
                None
            }
        };
        self.finished |= wake_at.is_none();
        {
            let mut m = self.shared.lock();
            m.stats = self.inner.stats;
            m.path = self.inner.sending.conditions();
            m.waiting = (self.inner.sending.waiting(), self.inner.receiving.waiting());
            m.ended |= self.finished;
        }
        if self.finished {
            // What was asked for between the start of this poll and `ended`.
            self.inner.take_requests(now, &self.shared);
            self.inner.sending.fail(&TransferError::Closed, &mut wakers);
            self.inner.receiving.fail_now(&TransferError::Closed, &mut wakers);
        }
        wake_all(wakers);
        wake_at
    }

    /// A number that changes when something came in or went out.
    pub fn activity(&self) -> u64 {
        let s = &self.inner.stats;
        s.arrivals.seen.wrapping_add(s.sent).wrapping_add(s.delivered).wrapping_add(s.received)
    }

    fn end(&mut self, now: Nanos, why: &TransferError, wakers: &mut Vec<Waker>) {
        self.inner.take_requests(now, &self.shared);
        self.inner.sending.fail(why, wakers);
        self.inner.receiving.fail_now(why, wakers);
        self.inner.sending.qp().close();
        self.inner.sending.qp().flush(now);
    }
}

impl Drop for ConnectionDriver {
    fn drop(&mut self) {
        if !self.finished {
            let mut wakers = Vec::new();
            self.shared.lock().ended = true;
            self.end(self.inner.sending.last_poll(), &TransferError::Closed, &mut wakers);
            wake_all(wakers);
        }
    }
}

impl Inner {
    fn take_requests(&mut self, now: Nanos, shared: &Shared) {
        let mut m = shared.lock();
        self.sending.enqueue(now, &mut m.sends);
        self.receiving.enqueue(now, &mut m.recvs);
        m.waiting = (self.sending.waiting(), self.receiving.waiting());
        if m.closing && self.closing.is_none() {
            self.closing = Some(now + self.linger);
        }
    }

    fn poll(&mut self, now: Nanos, shared: &Shared, wakers: &mut Vec<Waker>) -> Option<Nanos> {
        self.take_requests(now, shared);
        if shared.cancel_wanted.swap(false, Ordering::AcqRel) {
            self.sending.cancel_dropped();
            self.receiving.cancel_dropped(now);
        }
        if let Some(deadline) = self.closing
            && self.sending.qp().closed().is_none()
        {
            self.receiving.stop(now, wakers);
            if (self.sending.idle() && self.receiving.idle()) || now >= deadline {
                self.sending.qp().close();
            }
        }
        if let Some(why) = self.sending.qp().closed() {
            return self.wind_up(now, why, wakers);
        }
        let a = self.sending.poll(now, &mut self.stats, wakers);
        let b = self.receiving.poll(now, &mut self.stats, wakers);
        (self.stats.min_rtt, self.stats.arrivals) =
            (self.sending.qp().min_rtt(), self.sending.qp().engine_counters());
        self.sending.qp().expect_peer(!self.sending.idle());
        let c = self.sending.qp().flush(now);
        let linger = self.closing.map(|t| t.max(now));
        [a, b, c, linger].into_iter().flatten().min().or(Some(Nanos::MAX))
    }

    /// The queue pair ended: so do all transfers, the receives once their memory is back.
    fn wind_up(&mut self, now: Nanos, why: Closed, wakers: &mut Vec<Waker>) -> Option<Nanos> {
        let lost = |operation, from| match (why, self.closing) {
            (Closed::Here, Some(_)) => TransferError::Closed,
            _ => TransferError::Lost { operation, from, why },
        };
        let (send_error, recv_error) =
            (lost("send", self.sending.first_open()), lost("recv", self.receiving.first_open()));
        self.sending.fail(&send_error, wakers);
        let waiting = self.receiving.fail(now, &recv_error, wakers);
        let flush = self.sending.qp().flush(now);
        waiting.then(|| flush.unwrap_or(Nanos::MAX))
    }
}
