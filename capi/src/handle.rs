//! Pointers from C. Every pointer that a call is given passes here once; null is an answer, not a crash.
//!
//! Invariant: a handle is a box that C holds the address of, from the call that made it to the call that frees it. In
//! between, the library only ever has shared references to it: what changes is behind locks.

use crate::status::Stop;
use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn null(what: &str) -> Stop {
    Stop::error(format_args!("{what} is NULL"))
}

/// What a pointer points to.
///
/// # Safety
/// `p` is null or points to a valid `T` that is not written while the result lives.
pub(crate) unsafe fn get<'a, T>(p: *const T, what: &str) -> Result<&'a T, Stop> {
    // SAFETY: as the caller promises.
    unsafe { p.as_ref() }.ok_or_else(|| null(what))
}

/// Settings that may be absent.
///
/// # Safety
/// As [`get`].
pub(crate) unsafe fn get_or_default<T: Copy + Default>(p: *const T) -> T {
    // SAFETY: as the caller promises.
    unsafe { p.as_ref() }.copied().unwrap_or_default()
}

/// A place for a result.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `p` is null or valid for a write of a `T` until `put`.
    pub(crate) unsafe fn new(p: *mut T, what: &str) -> Result<Self, Stop> {
        if p.is_null() { Err(null(what)) } else { Ok(Self(p)) }
    }

    pub(crate) fn put(self, value: T) {
        // SAFETY: `new` was promised a place that is valid for a write; there may be nothing there yet to drop.
        unsafe { self.0.write(value) };
    }
}

impl<T: Send + Sync> Out<*mut T> {
    /// A new handle; any thread may use it.
    pub(crate) fn put_handle(self, value: T) {
        self.put(Box::into_raw(Box::new(value)));
    }
}

/// Frees a handle.
///
/// # Safety
/// `p` came from [`Out::put_handle`], is freed here for the first time, and nobody uses it any more.
pub(crate) unsafe fn free<T>(p: *mut T) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(p) });
}

/// Text from C.
///
/// # Safety
/// `p` is null or points to a NUL-terminated string that is not written while the result lives.
pub(crate) unsafe fn text<'a>(p: *const c_char, what: &str) -> Result<&'a str, Stop> {
    if p.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(p) };
    text.to_str().map_err(|_| Stop::error(format_args!("{what} is not UTF-8")))
}

/// The lock of a handle's state. A panic under it was answered with `SDR_ERROR`; the state was whole at each step.
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
