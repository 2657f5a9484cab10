//! Registered memory: regions owned by the context, buffers that safe code holds, raw slices that the data path uses.
//!
//! A region is never freed while a buffer, a posted receive or a posted send refers to it: each holds a count. Safe code
//! never has a reference to memory that a packet can still write: [`RecvBuf`] moves into a receive and comes back when
//! the slot is retired.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Where a fabric keeps what it knows of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u32);

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system refused; lower the length or raise the limit.
    #[error("mapping {len} bytes failed: {source}")]
    Map {
        /// Bytes asked for.
        len: usize,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A region has at least one byte, and at most `isize::MAX`.
    #[error("a region has 1 to isize::MAX bytes")]
    Empty,
}

enum Backing {
    Mapped,
    Foreign,
}

/// Contiguous memory: page-aligned and zeroed, pages are committed when first touched.
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
}

// SAFETY: a region is an address range; all access goes through RawSlice, whose users uphold exclusivity.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out addresses only.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `len` bytes.
    pub fn map(len: usize) -> Result<Arc<Self>, MemoryError> {
        if len == 0 || len > isize::MAX as usize {
            return Err(MemoryError::Empty);
        }
        // SAFETY: a fresh private anonymous mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| MemoryError::Map { len, source: e.into() })?;
        let base = NonNull::new(base.cast()).ok_or(MemoryError::Empty)?;
        Ok(Arc::new(Self { base, len, backing: Backing::Mapped }))
    }

    /// Memory that somebody else owns: a GPU's, or a caller's across FFI.
    ///
    /// # Safety
    /// As [`Context::register_foreign`](crate::Context::register_foreign).
    pub(crate) unsafe fn foreign(base: NonNull<u8>, len: usize) -> Result<Arc<Self>, MemoryError> {
        if len == 0 || len > isize::MAX as usize {
            return Err(MemoryError::Empty);
        }
        Ok(Arc::new(Self { base, len, backing: Backing::Foreign }))
    }

    /// Address of the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The whole region, as the fabric knows it; the address alone, without a claim.
    pub fn slice(&self, id: RegionId) -> RawSlice {
        RawSlice { ptr: self.base, len: self.len, region: id }
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Backing::Mapped = self.backing {
            // SAFETY: this mapping was made by `map`, and no buffer refers to it any more: each holds an Arc.
            // A failing munmap leaks address space; there is nobody to tell in a destructor.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len)
    }
}

/// An address range inside a registered region, without a claim on it. Whoever makes one keeps the region alive.
#[derive(Clone, Copy, Debug)]
pub struct RawSlice {
    ptr: NonNull<u8>,
    len: usize,
    region: RegionId,
}

// SAFETY: an address range; dereferencing it is unsafe and left to code that upholds exclusivity.
unsafe impl Send for RawSlice {}
// SAFETY: as above.
unsafe impl Sync for RawSlice {}

impl RawSlice {
    /// Address of the first byte.
    pub fn as_ptr(self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The region's name at the fabric.
    pub fn region(self) -> RegionId {
        self.region
    }

    /// `len` bytes from `offset`.
    ///
    /// # Panics
    /// When that is not inside the slice.
    pub fn slice(self, offset: usize, len: usize) -> Self {
        assert!(offset <= self.len && len <= self.len - offset, "slice out of bounds");
        // SAFETY: offset is within the range this slice stands for, checked above.
        let ptr = unsafe { self.ptr.add(offset) };
        Self { ptr, len, ..self }
    }
}

#[derive(Clone)]
struct Part {
    /// Number of the context that registered the region: `id` means nothing to another.
    owner: u64,
    region: Arc<Region>,
    id: RegionId,
    offset: usize,
    len: usize,
}

impl Part {
    fn raw(&self) -> RawSlice {
        // SAFETY: offset + len is within the region: parts are only made by `whole` and by splitting.
        let ptr = unsafe { self.region.base.add(self.offset) };
        RawSlice { ptr, len: self.len, region: self.id }
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: the part is within the mapping, which is initialised (zero pages) and outlives `self`. Nobody writes
        // it: a RecvBuf is unique and not posted while it is held, a SendBuf is never written.
        unsafe { std::slice::from_raw_parts(self.raw().as_ptr(), self.len) }
    }
}

/// Memory to receive into, or to fill and send: unique, readable and writable while it is held.
pub struct RecvBuf(Part);

impl RecvBuf {
    /// The whole of a region that `register` has just named; crate-private so that it happens once.
    pub(crate) fn whole(owner: u64, region: Arc<Region>, id: RegionId) -> Self {
        let len = region.len();
        Self(Part { owner, region, id, offset: 0, len })
    }

    /// Two buffers, the first with `mid` bytes.
    ///
    /// # Panics
    /// When `mid` is beyond the end.
    pub fn split_at(self, mid: usize) -> (Self, Self) {
        assert!(mid <= self.0.len, "split at {mid} of {} bytes", self.0.len);
        let tail = Part { offset: self.0.offset + mid, len: self.0.len - mid, ..self.0.clone() };
        (Self(Part { len: mid, ..self.0 }), Self(tail))
    }

    /// Number of the context it belongs to.
    pub(crate) fn owner(&self) -> u64 {
        self.0.owner
    }

    /// Ends writing: the buffer can be sent, any number of times, by any number of clones.
    pub fn freeze(self) -> SendBuf {
        SendBuf(self.0)
    }

    /// The address range.
    pub(crate) fn raw(&self) -> RawSlice {
        self.0.raw()
    }
}

impl Deref for RecvBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl DerefMut for RecvBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; a RecvBuf is the only holder of its range, and `&mut self` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.0.raw().as_ptr(), self.0.len) }
    }
}

impl fmt::Debug for RecvBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecvBuf({} bytes)", self.0.len)
    }
}

/// Memory to send from: frozen, cheap to clone.
#[derive(Clone)]
pub struct SendBuf(Part);

impl SendBuf {
    /// `len` bytes from `offset`, sharing the memory.
    ///
    /// # Panics
    /// When that is not inside the buffer.
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset <= self.0.len && len <= self.0.len - offset, "slice out of bounds");
        Self(Part { offset: self.0.offset + offset, len, ..self.0.clone() })
    }

    /// Undoes [`RecvBuf::freeze`], for a layer that lends out ranges of a registration itself and gives no buffer of it
    /// to others, as behind a C interface.
    ///
    /// # Safety
    /// Until the result is gone, nobody reads or writes its range through another buffer, posts included. A receive
    /// holds it until no packet can touch the memory, also when its handle was dropped.
    pub unsafe fn thaw(self) -> RecvBuf {
        RecvBuf(self.0)
    }

    /// Address of the first byte, without a claim on the memory.
    pub fn base(&self) -> NonNull<u8> {
        self.0.raw().ptr
    }

    /// The address range.
    pub(crate) fn raw(&self) -> RawSlice {
        self.0.raw()
    }

    /// Number of the context it belongs to.
    pub(crate) fn owner(&self) -> u64 {
        self.0.owner
    }

    /// The same memory to receive into, for a pool that lends its blocks to one receive at a time and looks into none.
    pub(crate) fn lend(self) -> RecvBuf {
        RecvBuf(self.0)
    }

    /// Its length, without a reference to the memory.
    pub(crate) fn len_bytes(&self) -> usize {
        self.0.len
    }

    /// What keeps the memory mapped.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.0.region
    }
}

impl Deref for SendBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for SendBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBuf({} bytes)", self.0.len)
    }
}
