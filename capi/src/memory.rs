//! Registered memory: the caller's, or the context's. Posts take ranges of it.

use crate::context::{Shared, sdr_context};
use crate::handle::{Out, free, get, lock};
use crate::status::{Stop, boundary, sdr_result};
use sdr_sdk::memory::{RecvBuf, SendBuf};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

/// Flag of `sdr_mr_reg`: peers may write here, where a receive is posted.
pub const SDR_ACCESS_REMOTE_WRITE: u32 = 0;

/// Registered memory.
pub struct sdr_mr {
    shared: Arc<Shared>,
    /// The whole; never read or written through. None while it is being given back.
    root: Mutex<Option<SendBuf>>,
}

impl sdr_mr {
    fn new(shared: Arc<Shared>, all: RecvBuf) -> Self {
        Self { shared, root: Mutex::new(Some(all.freeze())) }
    }

    /// `len` bytes at `addr`, to be sent from.
    pub(crate) fn to_send(&self, addr: *const c_void, len: usize) -> Result<SendBuf, Stop> {
        let root = lock(&self.root);
        let root = root.as_ref().ok_or(Stop::text("the memory was given back"))?;
        let (base, all) = (root.base().as_ptr() as usize, root.len());
        if len == 0 {
            return Ok(root.slice(0, 0));
        }
        match (addr as usize).checked_sub(base) {
            Some(offset) if offset <= all && len <= all - offset => Ok(root.slice(offset, len)),
            _ => Err(Stop::error(format_args!(
                "{len} bytes at {addr:p} are not inside the {all} registered at {:p}",
                root.base()
            ))),
        }
    }

    /// `len` bytes at `addr`, to receive into.
    ///
    /// # Safety
    /// Until the receive is over nothing else uses the range, as the contracts of `sdr_recv_post` and
    /// `sdr_message_recv` have it.
    pub(crate) unsafe fn to_recv(&self, addr: *mut c_void, len: usize) -> Result<RecvBuf, Stop> {
        let range = self.to_send(addr, len)?;
        // SAFETY: the caller promises that no other post uses the range, and this crate never looks inside a buffer.
        Ok(unsafe { range.thaw() })
    }
}

/// Registers `length` bytes at `addr` that stay the caller's.
///
/// From here until `sdr_mr_dereg` has succeeded, the memory must stay allocated and initialised, be registered only once
/// and not be moved or protected. The program may read and write it all that time, except: bytes that are posted to be
/// sent are not written until the send no longer needs them (`sdr_send_poll`, or the end of the transfer); bytes that
/// are posted to be received into are neither read nor written, nor posted a second time, until the receive is over
/// (`sdr_recv_poll`, or the end of the transfer), but chunks that the bitmap shows as arrived may be read.
///
/// `flags` is `SDR_ACCESS_REMOTE_WRITE`.
///
/// # Safety
/// `context` is NULL (an error) or a handle, `mr` is NULL (an error) or valid for a write. `addr` is NULL (an error) or
/// the memory is as described above, for as long as described above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_reg(
    context: *mut sdr_context,
    addr: *mut c_void,
    length: usize,
    flags: u32,
    mr: *mut *mut sdr_mr,
) -> sdr_result {
    boundary("sdr_mr_reg", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (context, out) = unsafe { (get(context, "context")?, Out::new(mr, "mr")?) };
        let addr = NonNull::new(addr.cast::<u8>()).ok_or(Stop::text("addr is NULL"))?;
        if flags != SDR_ACCESS_REMOTE_WRITE {
            return Err(Stop::error(format_args!("flags is {flags}; give SDR_ACCESS_REMOTE_WRITE")));
        }
        // SAFETY: the caller keeps the memory until `sdr_mr_dereg` succeeded, which is when `deregister` did, and keeps
        // away from what is posted; no buffer of it leaves this crate.
        let all = unsafe { context.shared.context.register_foreign(addr, length) }.map_err(Stop::error)?;
        out.put_handle(sdr_mr::new(context.shared.clone(), all));
        Ok(())
    })
}

/// Allocates and registers `length` zeroed bytes, which belong to the context; `sdr_mr_addr` says where they are.
///
/// They are used as described at `sdr_mr_reg`; `sdr_mr_dereg` frees them.
///
/// # Safety
/// `context` is NULL (an error) or a handle, `mr` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_alloc(
    context: *mut sdr_context,
    length: usize,
    mr: *mut *mut sdr_mr,
) -> sdr_result {
    boundary("sdr_mr_alloc", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (context, out) = unsafe { (get(context, "context")?, Out::new(mr, "mr")?) };
        let all = context.shared.context.register(length).map_err(Stop::error)?;
        out.put_handle(sdr_mr::new(context.shared.clone(), all));
        Ok(())
    })
}

/// First byte of registered memory; NULL for NULL.
///
/// # Safety
/// `mr` is NULL or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_addr(mr: *const sdr_mr) -> *mut c_void {
    let mut addr = ptr::null_mut();
    let _ = boundary("sdr_mr_addr", || {
        // SAFETY: the caller promises a handle or NULL.
        let root = lock(&unsafe { get(mr, "mr") }?.root);
        addr = root.as_ref().map_or(ptr::null_mut(), |r| r.base().as_ptr().cast());
        Ok(())
    });
    addr
}

/// Ends a registration. NULL is allowed.
///
/// Answers `SDR_RETRY` while anything is posted in the memory: then it is still in use and must stay. A completed receive
/// counts until `sdr_recv_poll` said that its memory is back or it was freed; a transfer until its result was asked for or
/// it was freed. After success the library knows nothing of the memory any more; what `sdr_mr_alloc` gave is gone.
///
/// # Safety
/// `mr` is NULL or a handle that nobody uses any more; after success it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_dereg(mr: *mut sdr_mr) -> sdr_result {
    boundary("sdr_mr_dereg", || {
        // SAFETY: the caller promises a handle or NULL.
        let Some(handle) = (unsafe { mr.as_ref() }) else { return Ok(()) };
        {
            let mut root = lock(&handle.root);
            if let Some(buf) = root.take()
                && let Err(buf) = handle.shared.context.deregister(buf)
            {
                *root = Some(buf);
                return Err(Stop::Retry("something is posted in this memory"));
            }
        }
        // SAFETY: a handle that nobody uses any more.
        unsafe { free(mr) };
        Ok(())
    })
}
