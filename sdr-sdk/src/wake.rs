//! Waking tasks, whose wakers are foreign code.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakes all of them, also when one panics; its panic goes on afterwards. Call it without a lock.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    let mut panic = None;
    for w in wakers {
        if let Err(p) = catch_unwind(AssertUnwindSafe(|| w.wake())) {
            panic.get_or_insert(p);
        }
    }
    if let Some(p) = panic {
        resume_unwind(p);
    }
}
