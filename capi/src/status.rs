//! What a call answers, the text that goes with it, and the boundary: whatever happens inside, C gets a result.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::c_char;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What every call answers. `sdr_last_error` has the reason when it is not `SDR_SUCCESS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum sdr_result {
    /// Done.
    SDR_SUCCESS = 0,
    /// Refused or failed. The call changed nothing unless it says so.
    SDR_ERROR = 1,
    /// Not now. Nothing changed unless the call says so; make progress with `sdr_poll`, then call again.
    SDR_RETRY = 2,
}

/// Why a call does not succeed.
#[derive(Debug)]
pub(crate) enum Stop {
    Error(Cow<'static, str>),
    /// Polling gets this often: no allocation.
    Retry(&'static str),
}

impl Stop {
    /// From an error of the SDK.
    pub(crate) fn error(e: impl Display) -> Self {
        Self::Error(e.to_string().into())
    }

    pub(crate) fn text(text: &'static str) -> Self {
        Self::Error(text.into())
    }
}

/// The inside of a call.
pub(crate) type Outcome = Result<(), Stop>;

thread_local! {
    /// NUL-terminated.
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn remember(call: &str, text: &str) {
    // A thread that is ending has no text any more; the result stands without it.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.clear();
            let bytes = call.bytes().chain(": ".bytes()).chain(text.bytes());
            last.extend(bytes.map(|b| if b == 0 { b'?' } else { b }));
            last.push(0);
        }
    });
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Runs the inside of the call named `call`. A panic becomes `SDR_ERROR`.
pub(crate) fn boundary(call: &'static str, inside: impl FnOnce() -> Outcome) -> sdr_result {
    // Unwind safe: state is behind locks whose poisoning is looked through, as in the SDK, and stays valid there.
    match catch_unwind(AssertUnwindSafe(inside)) {
        Ok(Ok(())) => sdr_result::SDR_SUCCESS,
        Ok(Err(Stop::Retry(text))) => {
            remember(call, text);
            sdr_result::SDR_RETRY
        }
        Ok(Err(Stop::Error(text))) => {
            remember(call, &text);
            sdr_result::SDR_ERROR
        }
        Err(panic) => {
            remember(call, &format!("a fault inside the library: {}", panic_text(&*panic)));
            // A payload whose destructor panics too.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(second);
            }
            sdr_result::SDR_ERROR
        }
    }
}

/// Why the last call of this thread that did not succeed did not: the call's name and one line for a person.
///
/// Never null; empty when every call succeeded. The text is the library's, and stays until the next call of this thread
/// that does not succeed.
#[unsafe(no_mangle)]
pub extern "C" fn sdr_last_error() -> *const c_char {
    let last = LAST.try_with(|last| match last.try_borrow() {
        Ok(text) if !text.is_empty() => text.as_ptr().cast(),
        _ => c"".as_ptr(),
    });
    last.unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the text is NUL-terminated and stays until the next call of this thread.
        unsafe { CStr::from_ptr(sdr_last_error()) }.to_str().unwrap().to_owned()
    }

    struct Vicious;
    impl Drop for Vicious {
        fn drop(&mut self) {
            panic!("again");
        }
    }

    #[test]
    fn whatever_happens_inside_is_a_result() {
        assert_eq!(last(), "");
        assert_eq!(boundary("a", || Ok(())), sdr_result::SDR_SUCCESS);
        assert_eq!(last(), "");
        assert_eq!(boundary("b", || Err(Stop::Retry("later"))), sdr_result::SDR_RETRY);
        assert_eq!(last(), "b: later");
        assert_eq!(boundary("c", || Err(Stop::error("a\0b"))), sdr_result::SDR_ERROR);
        assert_eq!(last(), "c: a?b");
        assert_eq!(boundary("d", || panic!("at {}", 7)), sdr_result::SDR_ERROR);
        assert_eq!(last(), "d: a fault inside the library: at 7");
        assert_eq!(boundary("e", || std::panic::panic_any(Vicious)), sdr_result::SDR_ERROR);
        assert_eq!(last(), "e: a fault inside the library: no message");
        assert_eq!(boundary("f", || Ok(())), sdr_result::SDR_SUCCESS);
        assert!(last().starts_with("e:"), "success leaves the text alone");
    }
}
