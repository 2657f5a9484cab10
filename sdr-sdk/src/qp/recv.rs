//! The receiving half: posted receives, their bitmaps, completion and the way back of the buffer.

use crate::bitmap::{Bitmap, HostBitmap, Shape};
use crate::engine::Progress;
use crate::memory::{RawSlice, RecvBuf};
use crate::qp::{Closed, PostError, Shared};
use crate::slots::{Posting, RetireCell, RetireError};
use crate::types::{Channel, ChunkIndex, Seq, SlotGen};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};

/// Receiving half of a connected queue pair.
pub struct RecvQp {
    pub(super) shared: Shared,
}

/// How a receive is cut into packets and chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvOptions {
    /// Packets a chunk, 1 to 64.
    pub per_chunk: u32,
    /// Payload bytes a packet, at most the queue pair's; None: [`RecvQp::path_payload`].
    pub payload: Option<u32>,
}

impl RecvQp {
    /// Closes the queue pair: the peer sent something that the protocol does not allow.
    pub(crate) fn violated(&self, what: &'static str) {
        self.shared.with(|qp| qp.link.close(Closed::Protocol(what)));
    }

    /// Posts a receive of `buf`, divided into chunks of `per_chunk` packets (1 to 64).
    ///
    /// The n-th accepted receive takes the n-th accepted send. `Busy` while the slot it needs may still be written by
    /// an older message.
    pub fn recv(&self, buf: RecvBuf, per_chunk: u32) -> Result<RecvHandle, PostError<RecvBuf>> {
        let options = RecvOptions { per_chunk, payload: None };
        self.recv_with(buf, None, options).map_err(|e| e.map(|(buf, _)| buf))
    }

    /// As [`recv`](Self::recv), cut as `options` say, and with memory for packets behind the data.
    ///
    /// `extra` is whole packets. They are numbered from [`RecvHandle::first_extra`] on, mean nothing here, and come back
    /// through [`Retire::take_extra`]. `TooLarge` when the packet numbers of both do not fit the immediate.
    pub fn recv_with(
        &self,
        buf: RecvBuf,
        extra: Option<RecvBuf>,
        options: RecvOptions,
    ) -> Result<RecvHandle, PostError<(RecvBuf, Option<RecvBuf>)>> {
        let RecvOptions { per_chunk, payload } = options;
        let (most, path, max_packets) =
            self.shared.with(|qp| (qp.spec.payload, qp.path_in, qp.spec.layout.max_packets()));
        let payload = payload.unwrap_or(path);
        let (len, extra_len) = (buf.len() as u64, extra.as_ref().map_or(0, |e| e.len() as u64));
        let buf = (buf, extra);
        if !(1..=64).contains(&per_chunk) {
            return Err(PostError::Chunk { buf, asked: per_chunk });
        }
        if !(1..=most).contains(&payload) {
            return Err(PostError::Payload { buf, asked: payload, max: most });
        }
        if !extra_len.is_multiple_of(payload.into()) {
            return Err(PostError::Extra { buf, len: extra_len, payload });
        }
        let max = most_data(max_packets.into(), extra_len / u64::from(payload), per_chunk.into());
        let max = max.map(|packets| packets * u64::from(payload));
        if max.is_none_or(|max| len > max) {
            return Err(PostError::TooLarge { buf, len, max: max.unwrap_or(0) });
        }
        let mut core = self.shared.context().lock();
        if buf.0.owner() != core.number() || buf.1.as_ref().is_some_and(|e| e.owner() != core.number()) {
            return Err(PostError::Foreign(buf));
        }
        let Some((qp, fabric, engine)) = core.parts(self.shared.id()) else {
            unreachable!("the guard keeps the queue pair")
        };
        if let Some(why) = qp.link.closed() {
            return Err(PostError::Closed(buf, why));
        }
        if !qp.recv.ready() {
            return Err(PostError::Busy(buf));
        }
        let (buf, extra) = buf;
        match qp.recv.arm(fabric, engine, Posting { buf, extra, payload, per_chunk: per_chunk as u8 }) {
            Ok((at, bitmap)) => {
                Ok(RecvHandle { shared: self.shared.clone(), at, bitmap, len, payload, completed: false })
            }
            Err((buf, e)) => Err(PostError::Arm(buf, e)),
        }
    }

    /// Packet numbers of a receive, of data and of extra packets together.
    pub(crate) fn max_packets(&self) -> u32 {
        self.shared.with(|qp| qp.spec.layout.max_packets())
    }

    /// Whether a receive can be posted now.
    pub fn ready(&self) -> bool {
        self.shared.with(|qp| qp.recv.ready())
    }

    /// Payload bytes of a packet that the path from the peer carries: those of the queue pair, until the peer found that it is
    /// less. It never becomes more again.
    pub fn path_payload(&self) -> u32 {
        self.shared.with(|qp| qp.path_in)
    }

    /// Number of the next receive to be posted.
    pub fn next_seq(&self) -> Seq {
        self.shared.with(|qp| qp.recv.next())
    }

    /// The peer's cumulative `closed`: it will post nothing more on anything before it.
    pub fn peer_closed(&self) -> Seq {
        self.shared.with(|qp| qp.recv.closed())
    }

    /// How far a channel has come, once anything arrived on it.
    pub fn progress(&self, ch: Channel) -> Option<Progress> {
        let mut core = self.shared.context().lock();
        let q = core.qp(self.shared.id())?.q;
        core.engine.progress(q, ch)
    }

    /// Sends a datagram of the layer above to the peer's sending half, unreliably; false when too many wait.
    pub fn post_datagram(&self, bytes: &[u8]) -> bool {
        self.shared.with(|qp| qp.post_datagram(false, bytes))
    }

    /// A datagram from the peer's sending half.
    pub fn take_datagram(&self) -> Option<Box<[u8]>> {
        self.shared.with(|qp| qp.to_recv_half.pop_front())
    }
}

/// Most data packets beside `extra` ones that begin with a chunk, of `max` packet numbers; None: there are too many extra
/// ones.
fn most_data(max: u64, extra: u64, per_chunk: u64) -> Option<u64> {
    let left = max.checked_sub(extra)?;
    Some(if extra == 0 { left } else { left - left % per_chunk })
}

/// A posted receive. Dropping it completes it and gives its buffers up.
pub struct RecvHandle {
    shared: Shared,
    at: SlotGen,
    bitmap: Arc<dyn HostBitmap>,
    len: u64,
    payload: u32,
    completed: bool,
}

impl RecvHandle {
    /// Number of the message that lands here.
    pub fn seq(&self) -> Seq {
        self.at.seq
    }

    /// Length of the receive in bytes.
    #[expect(clippy::len_without_is_empty, reason = "is_full is the question people have")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Payload bytes of a full packet of the message.
    pub fn payload(&self) -> u32 {
        self.payload
    }

    /// How the receive is divided; its packets and chunks are those of the data.
    pub fn shape(&self) -> Shape {
        self.bitmap.shape()
    }

    /// Offset of the first extra packet, a chunk's first: the data packets rounded up to whole chunks.
    pub fn first_extra(&self) -> u32 {
        self.shape().first_extra()
    }

    /// Packets that fit behind the data.
    pub fn extra_packets(&self) -> u32 {
        self.shape().extra()
    }

    /// Memory of the data as an address range without a claim: packets write it until the receive is retired. None once
    /// the receive has ended.
    pub fn data_slice(&self) -> Option<RawSlice> {
        self.shared.with(|qp| qp.recv.armed_posting(self.at.seq).map(|p| p.buf.raw()))
    }

    /// As [`data_slice`](Self::data_slice), of the extra packets; None as well where there is no such memory.
    pub fn extra_slice(&self) -> Option<RawSlice> {
        self.shared.with(|qp| qp.recv.armed_posting(self.at.seq)?.extra.as_ref().map(RecvBuf::raw))
    }

    /// The chunk bitmap of the data, in host memory; polling it takes no lock.
    pub fn bitmap(&self) -> Bitmap<'_> {
        Bitmap::new(&*self.bitmap)
    }

    /// The chunk bitmap of the data, and from chunk [`first_extra`](Self::first_extra) / packets a chunk on that of the
    /// extra packets.
    pub fn bitmap_with_extra(&self) -> Bitmap<'_> {
        Bitmap::with_extra(&*self.bitmap)
    }

    /// The chunk bitmap as its bytes, for who polls them by address: they stay where they are, and readable, as long as
    /// the result is held, also after the receive has ended; then they say nothing about later receives.
    pub fn host_bitmap(&self) -> Arc<dyn HostBitmap> {
        self.bitmap.clone()
    }

    /// Per-packet state of one chunk, bit i = packet i of the chunk. May cost a round trip to a device.
    pub fn packets(&self, c: ChunkIndex) -> u64 {
        let mut core = self.shared.context().lock();
        let Some(q) = core.qp(self.shared.id()).map(|qp| qp.q) else { return 0 };
        core.engine.packets(q, self.at, c)
    }

    /// The user immediate, once all of its fragments arrived.
    pub fn immediate(&self) -> Option<u32> {
        let fragments = self.shared.with(|qp| qp.spec.user_immediate.then(|| qp.spec.layout.fragments()))?;
        let word = self.bitmap.user().load(Ordering::Acquire);
        let whole = (word >> 32).count_ones() >= fragments;
        whole.then_some(word as u32)
    }

    /// Copies a chunk of the data that is set into `out`; returns its length in bytes, or None while it is not set.
    ///
    /// # Panics
    /// When `out` is shorter than the chunk.
    pub fn copy_chunk(&self, c: ChunkIndex, out: &mut [u8]) -> Option<usize> {
        if !self.bitmap().is_set(c) {
            return None;
        }
        // The lock keeps a fabric that places payload in `poll` from writing a duplicate of the same bytes meanwhile.
        let mut core = self.shared.context().lock();
        let qp = core.qp(self.shared.id())?;
        let chunk = self.shape().per_chunk() as u64 * self.payload as u64;
        let start = c.0 as u64 * chunk;
        let len = chunk.min(self.len - start) as usize;
        assert!(out.len() >= len, "the chunk has {len} bytes, `out` {}", out.len());
        let src = qp.recv.armed_posting(self.at.seq)?.buf.raw().slice(start as usize, len);
        // SAFETY: the slot is armed and holds the buffer, so the range is mapped; its packets all arrived, and whoever
        // could write them again does so under the lock that is held here.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), out.as_mut_ptr(), len) };
        Some(len)
    }

    /// Ends the receive, at any time, also early. The buffer comes back when no packet can touch it any more.
    pub fn complete(mut self) -> Retire {
        self.completed = true;
        Retire { cell: retire(&self.shared, self.at.seq), _shared: self.shared.clone() }
    }
}

fn retire(shared: &Shared, seq: Seq) -> Option<Arc<RetireCell>> {
    let mut core = shared.context().lock();
    let (qp, fabric, engine) = core.parts(shared.id())?;
    qp.recv.complete(fabric, engine, seq)
}

impl Drop for RecvHandle {
    fn drop(&mut self) {
        if !self.completed {
            retire(&self.shared, self.at.seq);
        }
    }
}

/// The buffers of a receive on their way back. Dropping it gives them up.
#[must_use = "the buffer comes back through this"]
pub struct Retire {
    cell: Option<Arc<RetireCell>>,
    _shared: Shared,
}

impl Retire {
    /// The buffer, once it is back; each result is given once.
    pub fn try_take(&mut self) -> Option<Result<RecvBuf, RetireError>> {
        self.cell.as_ref().and_then(|c| c.take())
    }

    /// The buffer of the extra packets, if there is one, once the other buffer is back; it is given once.
    pub fn take_extra(&mut self) -> Option<RecvBuf> {
        self.cell.as_ref().and_then(|c| c.take_extra())
    }
}

impl Drop for Retire {
    fn drop(&mut self) {
        drop(self.cell.as_ref().and_then(|c| c.retract()));
    }
}

impl Future for Retire {
    type Output = Result<RecvBuf, RetireError>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match self.cell.as_ref().and_then(|c| c.take_or_register(cx.waker())) {
            Some(r) => Poll::Ready(r),
            None => Poll::Pending,
        }
    }
}
