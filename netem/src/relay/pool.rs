//! Byte buffers used again, in classes of size.

/// Capacity of the smallest class is `1 << SMALLEST`.
const SMALLEST: u32 = 8;
/// 256 B to 64 KiB; larger buffers are not kept.
const CLASSES: usize = 9;
/// Most bytes kept in free buffers.
const MOST_FREE: usize = 16 << 20;

/// Free buffers.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: [Vec<Vec<u8>>; CLASSES],
    bytes: usize,
}

impl Pool {
    /// A copy of `bytes`.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let size = bytes.len().next_power_of_two().max(1 << SMALLEST);
        let class = (size.ilog2() - SMALLEST) as usize;
        let mut buffer = match self.free.get_mut(class).and_then(Vec::pop) {
            Some(buffer) => {
                self.bytes -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(size),
        };
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        let size = buffer.capacity();
        // By the largest class that it can serve.
        let class = size.checked_ilog2().and_then(|log| log.checked_sub(SMALLEST));
        let Some(free) = class.and_then(|class| self.free.get_mut(class as usize)) else { return };
        if self.bytes + size <= MOST_FREE {
            buffer.clear();
            self.bytes += size;
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_to_whoever_fits() {
        let mut pool = Pool::default();
        let buffer = pool.copy(&[1; 1400]);
        assert!(buffer.capacity() >= 2048);
        let place = buffer.as_ptr();
        pool.give(buffer);
        let larger = pool.copy(&[2; 4000]);
        assert_ne!(larger.as_ptr(), place);
        let again = pool.copy(&[3; 2000]);
        assert_eq!((again.as_ptr(), again.len(), again[1999]), (place, 2000, 3));
        assert_eq!(pool.bytes, 0);
        pool.give(again);
        assert_eq!(pool.copy(&[]), []);
        pool.give(Vec::new());
    }

    #[test]
    fn free_memory_is_bounded() {
        let mut pool = Pool::default();
        let buffers: Vec<_> = (0..1000).map(|_| pool.copy(&[0; 1 << 16])).collect();
        buffers.into_iter().for_each(|b| pool.give(b));
        assert!(pool.bytes <= MOST_FREE);
        pool.give(vec![0; 1 << 20]);
        assert!(pool.bytes <= MOST_FREE);
    }
}
