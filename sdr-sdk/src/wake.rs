//! Waking: foreign code that may panic, and then keeps nobody else asleep.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakes all. The first panic goes on to the caller when everyone was woken, unless the thread is unwinding already.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    let mut first = None;
    for waker in wakers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            first.get_or_insert(panic);
        }
    }
    if let Some(panic) = first
        && !std::thread::panicking()
    {
        resume_unwind(panic);
    }
}
