//! Packet bitmap to chunk bitmap.

use crate::sync::{AtomicU8, AtomicU64};

/// How a receive is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    packets: u32,
    per_chunk: u8,
}

impl Shape {
    /// `packets` packets in chunks of `per_chunk` (1 to 64); the last chunk may be shorter.
    ///
    /// # Panics
    /// When `per_chunk` is not in 1..=64.
    pub fn new(packets: u32, per_chunk: u8) -> Self {
        assert!((1..=64).contains(&per_chunk), "a chunk has 1 to 64 packets, not {per_chunk}");
        Self { packets, per_chunk }
    }

    /// Packets in the receive.
    pub fn packets(self) -> u32 {
        self.packets
    }

    /// Packets a chunk.
    pub fn per_chunk(self) -> u8 {
        self.per_chunk
    }

    /// Chunks in the receive.
    pub fn chunks(self) -> u32 {
        self.packets.div_ceil(self.per_chunk as u32)
    }
}

/// What an engine shows in host memory for one armed slot.
pub trait HostBitmap: Send + Sync {
    /// Division of the receive.
    fn shape(&self) -> Shape;
    /// One byte a chunk: 1 once all its packets arrived, stored with Release after the payload.
    fn chunks(&self) -> &[AtomicU8];
    /// User immediate: the value in the low half, a mask of the fragments received in the high half.
    fn user(&self) -> &AtomicU64;
}
