//! Sends on a queue pair: one-shot, or a stream of packets at any offset. A send tells when it was injected, never
//! whether it was delivered.

use crate::handle::{Out, free, get, lock};
use crate::memory::sdr_mr;
use crate::qp::{Inner, sdr_qp};
use crate::status::{Outcome, Stop, boundary, sdr_result};
use sdr_sdk::memory::SendBuf;
use sdr_sdk::qp::{PostError, SendHandle, SendState, Stream, StreamError};
use sdr_sdk::types::{Channel, PacketOffset};
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::{Arc, Mutex};

/// Operation: write the bytes.
pub const SDR_OP_WRITE: u32 = 0;
/// Operation: write the bytes and give the receiver a 32-bit immediate.
pub const SDR_OP_WRITE_WITH_IMM: u32 = 1;

/// Flag of `sdr_send_stream_continue`: these packets were posted before. They take other channels than the first time.
pub const SDR_SEND_REPAIR: u32 = 1;

/// A whole message.
#[repr(C)]
pub struct sdr_send_wr {
    /// Memory that `local_addr` lies in.
    pub mr: *const sdr_mr,
    /// First byte; anything when `length` is 0.
    pub local_addr: *const c_void,
    /// Bytes.
    pub length: usize,
    /// `SDR_OP_WRITE` or `SDR_OP_WRITE_WITH_IMM`.
    pub opcode: u32,
    /// The immediate, with `SDR_OP_WRITE_WITH_IMM`.
    pub imm_value: u32,
}

/// The start of a stream.
#[repr(C)]
pub struct sdr_stream_wr {
    /// Bytes of the whole message.
    pub length: u64,
    /// `SDR_OP_WRITE` or `SDR_OP_WRITE_WITH_IMM`.
    pub opcode: u32,
    /// The immediate, with `SDR_OP_WRITE_WITH_IMM`.
    pub imm_value: u32,
}

/// Packets of a stream.
#[repr(C)]
pub struct sdr_stream_part_wr {
    /// Memory that `local_addr` lies in.
    pub mr: *const sdr_mr,
    /// First byte.
    pub local_addr: *const c_void,
    /// Bytes: whole packets, unless the part reaches to the end of the message.
    pub length: usize,
    /// Where the bytes belong in the message, in bytes: a multiple of `sdr_qp_state.payload`.
    pub remote_offset: u64,
    /// 0 or `SDR_SEND_REPAIR`.
    pub flags: u32,
}

/// Where a send stands. None of these means delivered.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sdr_send_state {
    /// A stream that was not ended.
    SDR_SEND_OPEN = 0,
    /// Packets wait for the NIC, or it still needs the memory.
    SDR_SEND_INJECTING = 1,
    /// Everything was injected; the memory may be written again.
    SDR_SEND_INJECTED = 2,
    /// The receiver completed the receive, whole or not; nothing more is injected. The memory may be written again.
    SDR_SEND_COMPLETED = 3,
    /// The queue pair closed before everything was injected. The memory may be written once it is destroyed.
    SDR_SEND_CLOSED = 4,
}

/// A send.
pub struct sdr_send {
    // Before the queue pair it holds a count of.
    progress: Mutex<Progress>,
    qp: Arc<Inner>,
}

enum Progress {
    Open(Stream),
    Ended(SendHandle),
    /// Between the two.
    Ending,
}

/// The immediate that goes along, if any.
pub(crate) fn immediate(opcode: u32, value: u32) -> Result<Option<u32>, Stop> {
    match opcode {
        SDR_OP_WRITE => Ok(None),
        SDR_OP_WRITE_WITH_IMM => Ok(Some(value)),
        other => Err(Stop::error(format_args!("opcode is {other}; give one of SDR_OP_*"))),
    }
}

/// A refusal of the queue pair.
pub(crate) fn refused<B>(e: PostError<B>) -> Stop
where
    PostError<B>: Display,
{
    match e {
        PostError::Busy(_) => {
            Stop::Retry("no slot, no receive of the peer or no room in the queue right now")
        }
        e => Stop::error(e),
    }
}

fn carried(imm: Option<u32>, has: bool) -> Outcome {
    if imm.is_some() && !has {
        return Err(Stop::text("the queue pair has no user immediates; see sdr_qp_attr.user_immediate"));
    }
    Ok(())
}

/// Posts a whole message; it goes to the peer's next posted receive, at its beginning.
///
/// `SDR_RETRY` until the peer's receive is known here. With an immediate the message needs at least 8 packets, 16 with
/// `SDR_LAYOUT_8_22_2`. The handle is freed by `sdr_send_free`.
///
/// # Safety
/// `qp` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an error) or a
/// handle; the bytes are not written until `sdr_send_poll` answers `SDR_SUCCESS`, the queue pair was destroyed, or the
/// memory was given back. `send` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_post(
    qp: *mut sdr_qp,
    wr: *const sdr_send_wr,
    send: *mut *mut sdr_send,
) -> sdr_result {
    boundary("sdr_send_post", || {
        // SAFETY: the caller promises a handle, a request and a place; or NULL.
        let (qp, wr, out) = unsafe { (get(qp, "qp")?, get(wr, "wr")?, Out::new(send, "send")?) };
        // SAFETY: the caller promises a handle or NULL.
        let buf = unsafe { get(wr.mr, "wr->mr") }?.to_send(wr.local_addr, wr.length)?;
        let imm = immediate(wr.opcode, wr.imm_value)?;
        let handle = qp.inner.with(|send, _| {
            carried(imm, send.user_immediate())?;
            send.send(buf, imm).map_err(refused)
        })?;
        out.put_handle(sdr_send { progress: Progress::Ended(handle).into(), qp: qp.inner.clone() });
        Ok(())
    })
}

/// Opens a message whose packets are added by `sdr_send_stream_continue`, at any offset, any number of times.
///
/// `SDR_RETRY` until the peer's receive is known here. The handle is freed by `sdr_send_free`.
///
/// ```c
/// sdr_stream_wr start = {.length = 3 * payload};
/// while ((r = sdr_send_stream_start(qp, &start, &send)) == SDR_RETRY)
///     sdr_poll(context);
/// sdr_stream_part_wr part = {.mr = mr, .local_addr = bytes + payload, .length = payload, .remote_offset = payload};
/// r = sdr_send_stream_continue(send, &part);
/// r = sdr_send_stream_end(send);
/// ```
///
/// # Safety
/// `qp` is NULL (an error) or a handle, `wr` is NULL (an error) or points to a request, `send` is NULL (an error) or valid
/// for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_stream_start(
    qp: *mut sdr_qp,
    wr: *const sdr_stream_wr,
    send: *mut *mut sdr_send,
) -> sdr_result {
    boundary("sdr_send_stream_start", || {
        // SAFETY: the caller promises a handle, a request and a place; or NULL.
        let (qp, wr, out) = unsafe { (get(qp, "qp")?, get(wr, "wr")?, Out::new(send, "send")?) };
        let imm = immediate(wr.opcode, wr.imm_value)?;
        let stream = qp.inner.with(|send, _| {
            carried(imm, send.user_immediate())?;
            send.stream_start(wr.length, imm).map_err(refused)
        })?;
        out.put_handle(sdr_send { progress: Progress::Open(stream).into(), qp: qp.inner.clone() });
        Ok(())
    })
}

/// Adds packets to a stream. `SDR_RETRY` while too many wait for the NIC.
///
/// `SDR_ERROR` also when the receiver has completed the receive: end the stream then.
///
/// # Safety
/// `send` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request as `sdr_send_post` has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_stream_continue(
    send: *mut sdr_send,
    wr: *const sdr_stream_part_wr,
) -> sdr_result {
    boundary("sdr_send_stream_continue", || {
        // SAFETY: the caller promises a handle and a request; or NULL.
        let (send, wr) = unsafe { (get(send, "send")?, get(wr, "wr")?) };
        // SAFETY: the caller promises a handle or NULL.
        let buf = unsafe { get(wr.mr, "wr->mr") }?.to_send(wr.local_addr, wr.length)?;
        if wr.flags & !SDR_SEND_REPAIR != 0 {
            return Err(Stop::error(format_args!("flags is {:#x}; give 0 or SDR_SEND_REPAIR", wr.flags)));
        }
        let payload = u64::from(send.qp.with(|half, _| Ok(half.payload()))?);
        if !wr.remote_offset.is_multiple_of(payload) {
            let at = wr.remote_offset;
            return Err(Stop::error(format_args!("remote_offset is {at}, not a multiple of {payload}")));
        }
        let first = u32::try_from(wr.remote_offset / payload)
            .map_err(|_| Stop::text("remote_offset is beyond any message"))?;
        match &*lock(&send.progress) {
            Progress::Open(stream) => {
                let channels = send.qp.with(|half, _| Ok(half.channels()))?;
                // What went out before a RETRY may go out again: packets that arrive twice count once.
                extend(stream, first, &buf, payload, channels, wr.flags & SDR_SEND_REPAIR != 0).map_err(|e| {
                    match e {
                        StreamError::Busy => Stop::Retry("too many packets wait for the NIC"),
                        e => Stop::error(e),
                    }
                })
            }
            _ => Err(Stop::text("not an open stream")),
        }
    })
}

/// Ends a stream: no packets are added any more. It is an error, and the stream goes on, when it has an immediate and not
/// the packets to carry it.
///
/// # Safety
/// `send` is NULL (an error) or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_stream_end(send: *mut sdr_send) -> sdr_result {
    boundary("sdr_send_stream_end", || {
        // SAFETY: the caller promises a handle or NULL.
        let mut progress = lock(&unsafe { get(send, "send") }?.progress);
        match std::mem::replace(&mut *progress, Progress::Ending) {
            Progress::Open(stream) => match stream.end() {
                Ok(handle) => {
                    *progress = Progress::Ended(handle);
                    Ok(())
                }
                Err(e) => {
                    let text = Stop::error(&e);
                    *progress = Progress::Open(e.into_buf());
                    Err(text)
                }
            },
            other => {
                *progress = other;
                Err(Stop::text("not an open stream"))
            }
        }
    })
}

/// Where a send stands: `SDR_SUCCESS` once the memory is free again, `SDR_RETRY` before, `SDR_ERROR` when the queue pair
/// closed first. Nothing here means delivered. `state` may be NULL; it is written with every answer but for NULL handles.
///
/// # Safety
/// `send` is NULL (an error) or a handle, `state` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_poll(send: *const sdr_send, state: *mut sdr_send_state) -> sdr_result {
    boundary("sdr_send_poll", || {
        // SAFETY: the caller promises a handle or NULL.
        let send = unsafe { get(send, "send") }?;
        let (now, answer) = match &*lock(&send.progress) {
            Progress::Ended(handle) => match handle.poll() {
                SendState::Injecting { .. } => {
                    (sdr_send_state::SDR_SEND_INJECTING, Err(Stop::Retry("packets wait for the NIC")))
                }
                SendState::Injected => (sdr_send_state::SDR_SEND_INJECTED, Ok(())),
                SendState::Completed => (sdr_send_state::SDR_SEND_COMPLETED, Ok(())),
                SendState::Closed(why) => (sdr_send_state::SDR_SEND_CLOSED, Err(Stop::error(why))),
            },
            Progress::Open(_) | Progress::Ending => {
                (sdr_send_state::SDR_SEND_OPEN, Err(Stop::Retry("the stream was not ended")))
            }
        };
        if !state.is_null() {
            // SAFETY: the caller promises a place.
            unsafe { state.write(now) };
        }
        answer
    })
}

/// Frees the handle of a send. NULL is allowed.
///
/// A message that was posted or ended goes on without it. An open stream ends, and what still waits for the NIC is
/// dropped.
///
/// # Safety
/// `send` is NULL or a handle that nobody uses any more; afterwards it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_send_free(send: *mut sdr_send) -> sdr_result {
    boundary("sdr_send_free", || {
        if !send.is_null() {
            // SAFETY: the caller promises a handle that nobody uses any more.
            unsafe { free(send) };
        }
        Ok(())
    })
}

/// Adds packets chunk by chunk, each on its home channel, or on the next one as a repair.
fn extend(
    stream: &Stream,
    first: u32,
    buf: &SendBuf,
    payload: u64,
    channels: u8,
    repair: bool,
) -> Result<(), StreamError> {
    if channels == 1 {
        return stream.extend(PacketOffset(first), buf, Channel(0));
    }
    let per_chunk = u32::from(stream.grant().per_chunk.max(1));
    let (mut at, end) = (first, u64::from(first) + (buf.len() as u64).div_ceil(payload));
    loop {
        let stop = u64::from(at / per_chunk + 1).saturating_mul(per_chunk.into()).min(end) as u32;
        let start = u64::from(at - first) * payload;
        let len = (u64::from(stop - at) * payload).min(buf.len() as u64 - start);
        let channel = (at / per_chunk + u32::from(repair)) % u32::from(channels);
        stream.extend(PacketOffset(at), &buf.slice(start as usize, len as usize), Channel(channel as u8))?;
        if u64::from(stop) >= end {
            return Ok(());
        }
        at = stop;
    }
}
