//! Memory for parity, at both ends: blocks that are lent to messages and come back by themselves.

use crate::memory::SendBuf;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Least bytes of a block, so that messages of different lengths can share them.
const LEAST: usize = 1 << 16;

/// Blocks of registered memory, together at most so many bytes.
///
/// A block is lent as a clone, and free when the pool has the only one again: posts and receives hold clones for as long
/// as a packet can touch the memory.
#[derive(Debug)]
pub(super) struct Scratch {
    blocks: Vec<SendBuf>,
    bytes: usize,
    most: usize,
}

impl Scratch {
    pub(super) fn new(most: usize) -> Self {
        Self { blocks: Vec::new(), bytes: 0, most: most.next_multiple_of(LEAST) }
    }

    /// Most bytes of all blocks.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// A block of `bytes` or a little more; none when there is no memory for it.
    pub(super) fn take(
        &mut self,
        bytes: usize,
        register: impl FnOnce(usize) -> Option<SendBuf>,
    ) -> Option<SendBuf> {
        let size = bytes.max(1).checked_next_multiple_of(LEAST)?;
        let fits = size..=size + size / 4;
        if let Some(block) = self.blocks.iter().find(|b| fits.contains(&b.len_bytes()) && is_free(b)) {
            // Whoever let go of it did so with Release: his accesses are over.
            fence(Ordering::Acquire);
            return Some(block.clone());
        }
        if self.bytes + size > self.most {
            // Of other sizes, what is free makes room.
            self.blocks.retain(|b| {
                let keep = !is_free(b);
                self.bytes -= if keep { 0 } else { b.len_bytes() };
                keep
            });
        }
        if self.bytes + size > self.most {
            return None;
        }
        let block = register(size)?;
        self.bytes += size;
        self.blocks.push(block.clone());
        Some(block)
    }
}

/// The context has an entry of every region, and the pool has the other.
fn is_free(block: &SendBuf) -> bool {
    Arc::strong_count(block.region()) == 2
}

#[cfg(test)]
mod tests;
