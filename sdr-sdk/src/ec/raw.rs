//! Memory that is coded: address ranges that are read and written through raw pointers only.
//!
//! The network may write the same bytes into a symbol that is being read or rebuilt (a repair that crosses a decode), so no
//! reference to such memory is ever made. What makes access sound is promised once, where a range is made; its bounds are
//! checked at each access.

use super::EcError;
use crate::memory::RawSlice;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// Memory that may be read during `'m`.
#[derive(Clone, Copy, Debug)]
pub struct Readable<'m> {
    ptr: NonNull<u8>,
    len: usize,
    lives: PhantomData<&'m [u8]>,
}

/// Memory that may be read and written during `'m`.
#[derive(Debug)]
pub struct Writable<'m> {
    memory: Readable<'m>,
    lives: PhantomData<&'m mut [u8]>,
}

// SAFETY: an address range; whoever made it promised that access is sound during 'm, from whichever thread.
unsafe impl Send for Readable<'_> {}
// SAFETY: as above, and shared access only reads.
unsafe impl Sync for Readable<'_> {}
// SAFETY: as for `Readable`. Not Sync: writes go through a shared reference, and two threads must not do so at once.
unsafe impl Send for Writable<'_> {}
impl<'m> Readable<'m> {
    /// A registered range.
    ///
    /// # Safety
    /// During `'m` the range is mapped, initialised and readable. Others may write it meanwhile only where a write leaves what is read
    /// as it is, or where the result is thrown away.
    pub unsafe fn new(range: RawSlice) -> Self {
        // SAFETY: promised by the caller; a `RawSlice` is never null.
        unsafe { Self::from_raw(NonNull::new_unchecked(range.as_ptr()), range.len()) }
    }

    /// `len` bytes at `ptr`.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize) -> Self {
        Self { ptr, len, lives: PhantomData }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes `at..at + into.len()` out.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) -> Result<(), EcError> {
        let ptr = self.pointer(at..at.saturating_add(into.len()))?;
        // SAFETY: the range is inside this memory, checked by `pointer`, and readable as promised; `into` is a Rust
        // slice of our own, which such memory never overlaps.
        unsafe { std::ptr::copy_nonoverlapping(ptr, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Address of a range that is inside.
    pub(crate) fn pointer(&self, range: Range<usize>) -> Result<*const u8, EcError> {
        if range.start > range.end || range.end > self.len {
            return Err(EcError::Length { what: "memory", needed: range.end, got: self.len });
        }
        // SAFETY: inside the range that this memory stands for, checked above.
        Ok(unsafe { self.ptr.as_ptr().add(range.start) })
    }

    /// Whether the two share a byte.
    pub(crate) fn overlaps(&self, other: &Readable<'_>) -> bool {
        let (a, b) = (self.ptr.addr().get(), other.ptr.addr().get());
        if a <= b { b - a < self.len } else { a - b < other.len }
    }
}

impl<'m> From<&'m [u8]> for Readable<'m> {
    fn from(bytes: &'m [u8]) -> Self {
        Self { ptr: NonNull::from(bytes).cast(), len: bytes.len(), lives: PhantomData }
    }
}

impl<'m> Writable<'m> {
    /// A registered range.
    ///
    /// # Safety
    /// As for [`Readable::new`], and during `'m` the range is writable and nobody else uses the bytes that are written,
    /// except that others may write there what is written here.
    pub unsafe fn new(range: RawSlice) -> Self {
        // SAFETY: promised by the caller.
        Self { memory: unsafe { Readable::new(range) }, lives: PhantomData }
    }

    /// `len` bytes at `ptr`.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    pub unsafe fn from_raw(ptr: NonNull<u8>, len: usize) -> Self {
        // SAFETY: promised by the caller.
        Self { memory: unsafe { Readable::from_raw(ptr, len) }, lives: PhantomData }
    }

    /// The same memory, to read.
    pub fn readable(&self) -> &Readable<'m> {
        &self.memory
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// Copies `from` to bytes `at..at + from.len()`.
    pub(crate) fn write(&self, at: usize, from: &[u8]) -> Result<(), EcError> {
        let ptr = self.pointer(at..at.saturating_add(from.len()))?;
        // SAFETY: the range is inside this memory, checked by `pointer`, and writable as promised; `from` is a Rust
        // slice of our own, which such memory never overlaps.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), ptr, from.len()) };
        Ok(())
    }

    /// Address of a range that is inside.
    pub(crate) fn pointer(&self, range: Range<usize>) -> Result<*mut u8, EcError> {
        self.memory.pointer(range).map(<*const u8>::cast_mut)
    }
}

impl<'m> From<&'m mut [u8]> for Writable<'m> {
    fn from(bytes: &'m mut [u8]) -> Self {
        let len = bytes.len();
        Self {
            memory: Readable { ptr: NonNull::from(bytes).cast(), len, lives: PhantomData },
            lives: PhantomData,
        }
    }
}
