//! What a measured message contains: a function of seed, stream, message number and offset, cheap to make and to check.
//!
//! A table of random words, drawn from the seed, is repeated without end; message n of a stream begins at a word of its
//! own. The table's length is a prime number of words, so bytes that were moved by any whole number of packets, or that
//! belong to another message, differ. Sending needs no filling, because a message is a window into memory that is filled
//! once; checking is comparing with a table that stays in the cache.

use std::ops::Range;

/// Length of the table in words of 8 bytes: 2^17 - 1, a prime, 1 MiB.
const WORDS: usize = (1 << 17) - 1;
const BYTES: usize = WORDS * 8;

/// Words from the start of one message to that of the next.
const STEP: u64 = 40_503;

/// The contents of all messages of a seed.
pub struct Pattern {
    table: Vec<u8>,
    seed: u64,
}

impl Pattern {
    /// Draws the table.
    pub fn new(seed: u64) -> Self {
        let mut x = mix(seed) | 1;
        let word = std::iter::repeat_with(move || {
            // xorshift64*.
            x ^= x >> 12;
            x ^= x << 25;
            x ^= x >> 27;
            x.wrapping_mul(0x2545_f491_4f6c_dd1d)
        });
        let table = word.take(WORDS).flat_map(u64::to_le_bytes).collect();
        Self { table, seed }
    }

    /// Length of memory that holds every message of `size` bytes as a window.
    pub fn source_len(size: u64) -> u64 {
        size + BYTES as u64
    }

    /// Fills such memory.
    pub fn fill(&self, source: &mut [u8]) {
        for part in source.chunks_mut(BYTES) {
            part.copy_from_slice(&self.table[..part.len()]);
        }
    }

    /// Where in that memory message `number` of `stream` begins.
    pub fn start(&self, stream: u64, number: u64) -> usize {
        let base = mix(self.seed ^ mix(stream.wrapping_add(1))) % WORDS as u64;
        let steps = number % WORDS as u64 * STEP;
        ((base + steps) % WORDS as u64) as usize * 8
    }

    /// Whether `part`, the bytes of a message that begins at `start` from `offset` on, is what it must be.
    pub fn check(&self, start: usize, offset: usize, part: &[u8]) -> bool {
        let (mut at, mut rest) = ((start + offset) % BYTES, part);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BYTES - at));
            if now != &self.table[at..at + now.len()] {
                return false;
            }
            (at, rest) = (0, later);
        }
        true
    }
}

/// A message that is being checked, a bounded part at a time so that the transport does not have to wait.
pub struct Check {
    start: usize,
    len: usize,
    done: usize,
    wrong: bool,
}

/// Bytes checked at a time: about 20 us.
const PART: usize = 128 << 10;

impl Check {
    /// Of a message of `len` bytes that begins at `start`; `wrong` when it is known to be already.
    pub fn new(start: usize, len: usize, wrong: bool) -> Self {
        Self { start, len, done: 0, wrong }
    }

    /// The next part; whether all is checked.
    pub fn go_on(&mut self, pattern: &Pattern, bytes: &[u8]) -> bool {
        let part: Range<usize> = self.done..self.len.min(self.done + PART);
        self.wrong |= !pattern.check(self.start, self.done, &bytes[part.clone()]);
        self.done = part.end;
        self.wrong || self.done == self.len
    }

    /// Whether wrong bytes were found.
    pub fn wrong(&self) -> bool {
        self.wrong
    }
}

/// SplitMix64's finalizer.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_own_and_nobody_elses() {
        let p = Pattern::new(7);
        let size = 3 << 20;
        let mut source = vec![0; Pattern::source_len(size) as usize];
        p.fill(&mut source);
        let at = |number| p.start(3, number);
        let message = |number| &source[at(number)..at(number) + size as usize];
        for number in [0, 1, 2, 131_070, u64::MAX] {
            assert!(p.check(at(number), 0, message(number)), "{number}");
            assert!(!p.check(
                at(number + u64::from(number == 0)),
                0,
                message(number.wrapping_add(1 + u64::from(number == 0)))
            ));
        }
        assert_ne!(Pattern::new(8).table, p.table);
        assert_ne!(p.start(0, 0), p.start(1, 0));
    }

    #[test]
    fn any_wrong_or_moved_byte_is_found() {
        let p = Pattern::new(1);
        let mut source = vec![0; Pattern::source_len(1 << 20) as usize];
        p.fill(&mut source);
        let start = p.start(0, 5);
        let mut message = source[start..start + (1 << 20)].to_vec();
        let checked = |message: &[u8]| {
            let mut check = Check::new(start, message.len(), false);
            while !check.go_on(&p, message) {}
            !check.wrong()
        };
        assert!(checked(&message));
        assert!(checked(&message[..1_001]));
        for i in [0, 4_095, 131_072, (1 << 20) - 1] {
            message[i] ^= 1;
            assert!(!checked(&message), "byte {i}");
            message[i] ^= 1;
        }
        message.copy_within(8_192..16_384, 0);
        assert!(!checked(&message));
    }
}
