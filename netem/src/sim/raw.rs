//! All access to user memory. The rest of the fabric handles byte slices of its own.
//!
//! Invariant, from the contract of `Fabric`: memory given to `arm` stays valid and is nobody else's until the slot is
//! disarmed or its queues are closed, and memory given to `post` stays valid and unchanged until it is `Sent`. A
//! [`Destination`] lives in the key table only, so it exists exactly while its key is armed, and it is used only under the
//! lock of the net, by the poll of the NIC that owns the key.

use sdr_sdk::fabric::Landing;
use sdr_sdk::memory::{RawSlice, Region};

/// The memory of an armed slot.
pub(super) struct Destination(Landing);

impl Destination {
    /// For the key table, out of `arm`.
    pub(super) fn armed(to: &Landing) -> Self {
        Self(*to)
    }

    pub(super) fn landing(&self) -> &Landing {
        &self.0
    }

    /// Places the payload of packets from `first` on.
    ///
    /// # Panics
    /// When it does not fit the part that they are in.
    pub(super) fn write(&self, first: u32, bytes: &[u8]) {
        let to = self.0.room(first).0.slice(0, bytes.len());
        // SAFETY: `slice` checked the bounds; the key is armed, so the memory is valid and only this NIC writes it. `bytes`
        // belongs to the fabric's pool and cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }
}

/// Appends the bytes of posted memory to `to`.
pub(super) fn capture(src: RawSlice, to: &mut Vec<u8>) {
    // SAFETY: called from within `post`, during which the source is valid and unchanged.
    to.extend_from_slice(unsafe { std::slice::from_raw_parts(src.as_ptr(), src.len()) });
}

/// A region whose whole memory belongs to one test body, which calls these between, never during, calls of the fabrics.
pub(crate) struct TestMemory<'a>(pub(crate) &'a Region);

impl TestMemory<'_> {
    /// Overwrites the start of the region.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.0.len());
        // SAFETY: the bounds were checked; the region is mapped as long as it is borrowed, and its one user is here.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.base().as_ptr(), bytes.len()) };
    }

    /// A copy of the region.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: as in `fill`; a fresh mapping is zeroed, so every byte is initialised.
        unsafe { std::slice::from_raw_parts(self.0.base().as_ptr(), self.0.len()) }.to_vec()
    }
}
