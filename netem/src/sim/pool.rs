//! Bytes in flight: counted buffers that are used again.

/// Names a buffer of the pool; as many copies exist as it was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferId(u32);

struct Buffer {
    bytes: Vec<u8>,
    uses: u32,
}

/// The buffers of one net.
#[derive(Default)]
pub(super) struct Pool {
    buffers: Vec<Buffer>,
    free: Vec<u32>,
}

impl Pool {
    /// A buffer that `fill` appends to, to be released `uses` times; at least once.
    pub(super) fn take(&mut self, uses: u32, fill: impl FnOnce(&mut Vec<u8>)) -> BufferId {
        debug_assert!(uses > 0);
        let id = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Buffer { bytes: Vec::new(), uses: 0 });
            (self.buffers.len() - 1) as u32
        });
        let buffer = &mut self.buffers[id as usize];
        buffer.uses = uses;
        buffer.bytes.clear();
        fill(&mut buffer.bytes);
        BufferId(id)
    }

    pub(super) fn bytes(&self, id: BufferId) -> &[u8] {
        &self.buffers[id.0 as usize].bytes
    }

    pub(super) fn release(&mut self, id: BufferId) {
        let buffer = &mut self.buffers[id.0 as usize];
        buffer.uses -= 1;
        if buffer.uses == 0 {
            self.free.push(id.0);
        }
    }

    /// Buffers that something in flight refers to.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.buffers.len() - self.free.len()
    }
}
