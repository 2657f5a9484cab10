//! Receives on a queue pair: posted, watched through their bitmap, completed at any time, and the way back of the memory.

use crate::handle::{Out, free, get, lock};
use crate::memory::sdr_mr;
use crate::qp::{Inner, sdr_qp};
use crate::send::refused;
use crate::status::{Stop, boundary, sdr_result};
use sdr_sdk::bitmap::HostBitmap;
use sdr_sdk::qp::{RecvHandle, Retire};
use sdr_sdk::types::ChunkIndex;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// Packets a chunk where a request asks for none.
const PER_CHUNK: u32 = 16;

/// A receive of one message.
#[repr(C)]
pub struct sdr_recv_wr {
    /// Memory that `address` lies in.
    pub mr: *const sdr_mr,
    /// First byte; anything when `max_length` is 0.
    pub address: *mut c_void,
    /// Bytes: the longest message that fits.
    pub max_length: usize,
    /// Packets a chunk, 1 to 64: what one byte of the bitmap stands for. 0 means 16. A connection has its own.
    pub packets_per_chunk: u32,
}

/// A posted receive.
pub struct sdr_recv {
    // Before the queue pair it holds a count of.
    progress: Mutex<Progress>,
    /// Keeps the chunk bytes where C polls them.
    bitmap: Arc<dyn HostBitmap>,
    qp: Arc<Inner>,
}

enum Progress {
    Posted(RecvHandle),
    Retiring(Retire),
    Back,
    /// The engine or the NIC did not let go of it in time: why.
    Kept(String),
}

impl sdr_recv {
    /// Runs `f` on a receive that was not completed.
    fn posted<R>(&self, f: impl FnOnce(&RecvHandle) -> Result<R, Stop>) -> Result<R, Stop> {
        match &*lock(&self.progress) {
            Progress::Posted(handle) => f(handle),
            _ => Err(Stop::text("the receive was completed")),
        }
    }
}

/// Posts a receive: the n-th one takes the peer's n-th send.
///
/// `SDR_RETRY` while the slot that it needs may still be written by an older message. The handle is freed by
/// `sdr_recv_free`.
///
/// # Safety
/// `qp` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an error) or a
/// handle. Until `sdr_recv_poll` says that the memory is back, or the memory was given back, the bytes are not written nor
/// posted again, and only chunks that the bitmap shows as arrived are read. `recv` is NULL (an error) or valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_post(
    qp: *mut sdr_qp,
    wr: *const sdr_recv_wr,
    recv: *mut *mut sdr_recv,
) -> sdr_result {
    boundary("sdr_recv_post", || {
        // SAFETY: the caller promises a handle, a request and a place; or NULL.
        let (qp, wr, out) = unsafe { (get(qp, "qp")?, get(wr, "wr")?, Out::new(recv, "recv")?) };
        // SAFETY: the caller promises a handle or NULL, and to leave the bytes alone.
        let buf = unsafe { get(wr.mr, "wr->mr")?.to_recv(wr.address, wr.max_length) }?;
        let per_chunk = if wr.packets_per_chunk == 0 { PER_CHUNK } else { wr.packets_per_chunk };
        let handle = qp.inner.with(|_, recv| recv.recv(buf, per_chunk).map_err(refused))?;
        let bitmap = handle.host_bitmap();
        out.put_handle(sdr_recv { progress: Progress::Posted(handle).into(), bitmap, qp: qp.inner.clone() });
        Ok(())
    })
}

/// The chunk bitmap: `length` bytes in host memory, one for each chunk, 0 until all packets of the chunk have arrived and
/// then 1. A chunk is `packets_per_chunk` times `sdr_qp_state.payload` bytes of the buffer; the last may be shorter.
///
/// Poll the bytes directly. They are written inside `sdr_poll` and the waiting calls; a thread that makes no such call
/// reads them with acquire order (`atomic_load_explicit`, `__atomic_load_n`) before it reads the chunk. They stay where
/// they are until `sdr_recv_free`, and mean nothing after `sdr_recv_complete`. A message shorter than the receive fills
/// only the chunks that it covers in full.
///
/// ```c
/// const uint8_t *chunks;
/// size_t length, i;
/// sdr_recv_bitmap_get(recv, &chunks, &length);
/// for (i = 0; i < length; i++)
///     while (!chunks[i])
///         sdr_poll(context);
/// ```
///
/// # Safety
/// `recv` is NULL (an error) or a handle; `bitmap` and `length` are NULL (an error) or valid for a write. The bytes are
/// only read, and not after `sdr_recv_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_bitmap_get(
    recv: *const sdr_recv,
    bitmap: *mut *const u8,
    length: *mut usize,
) -> sdr_result {
    boundary("sdr_recv_bitmap_get", || {
        // SAFETY: the caller promises a handle or NULL, and two places.
        let (recv, bytes, len) =
            unsafe { (get(recv, "recv")?, Out::new(bitmap, "bitmap")?, Out::new(length, "length")?) };
        let chunks = recv.bitmap.chunks();
        bytes.put(chunks.as_ptr().cast());
        len.put(chunks.len().min(recv.bitmap.shape().chunks() as usize));
        Ok(())
    })
}

/// Which packets of one chunk have arrived: bit i of `packets` is packet i of chunk number `chunk`. May cost a round trip to
/// a device.
///
/// # Safety
/// `recv` is NULL (an error) or a handle, `packets` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_bitmap_chunk_expand(
    recv: *const sdr_recv,
    chunk: usize,
    packets: *mut u64,
) -> sdr_result {
    boundary("sdr_recv_bitmap_chunk_expand", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (recv, out) = unsafe { (get(recv, "recv")?, Out::new(packets, "packets")?) };
        let chunks = recv.bitmap.shape().chunks();
        let index = match u32::try_from(chunk) {
            Ok(index) if index < chunks => index,
            _ => return Err(Stop::error(format_args!("chunk is {chunk}, the receive has {chunks}"))),
        };
        out.put(recv.posted(|handle| Ok(handle.packets(ChunkIndex(index))))?);
        Ok(())
    })
}

/// The sender's immediate, once the packets that carry it have arrived; `SDR_RETRY` before. It is 0 when the sender gave
/// none.
///
/// # Safety
/// `recv` is NULL (an error) or a handle, `imm` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_imm_get(recv: *const sdr_recv, imm: *mut u32) -> sdr_result {
    boundary("sdr_recv_imm_get", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (recv, out) = unsafe { (get(recv, "recv")?, Out::new(imm, "imm")?) };
        if !recv.qp.with(|_, half| Ok(half.user_immediate()))? {
            return Err(Stop::text("the queue pair has no user immediates; see sdr_qp_attr.user_immediate"));
        }
        let value = recv.posted(|handle| Ok(handle.immediate()))?;
        out.put(value.ok_or(Stop::Retry("not all of the immediate has arrived"))?);
        Ok(())
    })
}

/// Ends a receive, at any time, also before everything has arrived. Call `sdr_recv_poll` to learn when its memory is back.
///
/// # Safety
/// `recv` is NULL (an error) or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_complete(recv: *mut sdr_recv) -> sdr_result {
    boundary("sdr_recv_complete", || {
        // SAFETY: the caller promises a handle or NULL.
        let mut progress = lock(&unsafe { get(recv, "recv") }?.progress);
        match std::mem::replace(&mut *progress, Progress::Back) {
            Progress::Posted(handle) => {
                *progress = Progress::Retiring(handle.complete());
                Ok(())
            }
            other => {
                *progress = other;
                Err(Stop::text("the receive was completed"))
            }
        }
    })
}

/// Whether a completed receive has its memory back: no packet, however late, changes it from then on. `SDR_RETRY` before.
///
/// `SDR_ERROR` when that could not be confirmed in time: the memory is in use until the queue pair is destroyed.
///
/// # Safety
/// `recv` is NULL (an error) or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_poll(recv: *mut sdr_recv) -> sdr_result {
    boundary("sdr_recv_poll", || {
        // SAFETY: the caller promises a handle or NULL.
        let mut progress = lock(&unsafe { get(recv, "recv") }?.progress);
        if let Progress::Retiring(retire) = &mut *progress
            && let Some(result) = retire.try_take()
        {
            *progress = match result {
                Ok(_range) => Progress::Back,
                Err(e) => Progress::Kept(e.to_string()),
            };
        }
        match &*progress {
            Progress::Back => Ok(()),
            Progress::Kept(why) => Err(Stop::error(why)),
            Progress::Retiring(_) => Err(Stop::Retry("packets may still write the memory")),
            Progress::Posted(_) => Err(Stop::Retry("the receive was not completed")),
        }
    })
}

/// Frees the handle of a receive; one that was not completed is completed by that. NULL is allowed.
///
/// Without `sdr_recv_poll` before, the memory may be in use for a while longer; `sdr_mr_dereg` knows.
///
/// # Safety
/// `recv` is NULL or a handle that nobody uses any more; afterwards it is gone, and its bitmap with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_recv_free(recv: *mut sdr_recv) -> sdr_result {
    boundary("sdr_recv_free", || {
        if !recv.is_null() {
            // SAFETY: the caller promises a handle that nobody uses any more.
            unsafe { free(recv) };
        }
        Ok(())
    })
}
