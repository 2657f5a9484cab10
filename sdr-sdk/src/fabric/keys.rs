//! The key table of a software NIC: which bytes of memory a packet may reach, and no others.
//!
//! A slot answers under the generation that it is armed for; under any other it is NULL. Invariant, on which the unsafe
//! write here rests: *a key is in the table only between `arm` and `take`, during which the contract of
//! [`Fabric::arm`](super::Fabric::arm) keeps its memory valid and ours alone.*

use crate::memory::RawSlice;
use crate::types::{Generation, MessageId, SlotGen};

struct Key {
    at: SlotGen,
    dst: RawSlice,
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It is in the buffer.
    Placed,
    /// No key: discarded. The completion is still reported.
    Null,
    /// It does not fit the buffer: discarded without a completion.
    OutOfRange,
}

/// The keys of one queue pair, by slot.
pub struct KeyTable(Box<[Option<Key>]>);

impl KeyTable {
    /// No keys for `slots` slots.
    pub fn new(slots: u32) -> Self {
        Self((0..slots).map(|_| None).collect())
    }

    /// Puts a key in; false when the slot has one or does not exist.
    ///
    /// # Safety
    /// `dst` is valid for writes and nobody else accesses it until the key is taken or the table is dropped.
    pub unsafe fn arm(&mut self, at: SlotGen, dst: RawSlice) -> bool {
        match self.0.get_mut(usize::from(at.slot.0)) {
            Some(slot @ None) => {
                *slot = Some(Key { at, dst });
                true
            }
            _ => false,
        }
    }

    /// Takes a key away; false when it is not there.
    pub fn take(&mut self, at: SlotGen) -> bool {
        self.0.get_mut(usize::from(at.slot.0)).is_some_and(|k| k.take_if(|k| k.at == at).is_some())
    }

    /// Places `bytes` at `offset` of the buffer that the slot has under `generation`.
    pub fn place(&self, slot: MessageId, generation: Generation, offset: u64, bytes: &[u8]) -> Placement {
        let Some(Some(key)) = self.0.get(usize::from(slot.0)) else { return Placement::Null };
        if key.at.generation != generation {
            return Placement::Null;
        }
        let room = (key.dst.len() as u64).saturating_sub(offset);
        if bytes.len() as u64 > room {
            return Placement::OutOfRange;
        }
        let to = key.dst.slice(offset as usize, bytes.len());
        // SAFETY: the bounds were checked; the key is in the table, so its memory is valid and nobody else's. `bytes` is a
        // borrow of other memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        Placement::Placed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Region, RegionId};
    use crate::types::Seq;

    fn at(slot: u16, generation: u16) -> SlotGen {
        SlotGen { slot: MessageId(slot), generation: Generation(generation), seq: Seq(u64::from(generation)) }
    }

    #[test]
    fn only_the_armed_generation_reaches_memory_and_only_inside() {
        let region = Region::map(100).unwrap();
        let mut keys = KeyTable::new(2);
        let all = region.slice(RegionId(0));
        // SAFETY: the region is ours until the end of the test.
        let arm = |keys: &mut KeyTable, at| unsafe { keys.arm(at, all) };
        assert!(arm(&mut keys, at(1, 7)));
        assert!(!arm(&mut keys, at(1, 8)) && !arm(&mut keys, at(2, 0)), "armed twice, or beyond the table");
        let place = |keys: &KeyTable, s, g, o, n| keys.place(MessageId(s), Generation(g), o, &[9; 64][..n]);
        assert_eq!(place(&keys, 1, 6, 0, 4), Placement::Null);
        assert_eq!(place(&keys, 0, 7, 0, 4), Placement::Null);
        assert_eq!(place(&keys, 900, 7, 0, 4), Placement::Null);
        assert_eq!(place(&keys, 1, 7, 97, 4), Placement::OutOfRange);
        assert_eq!(place(&keys, 1, 7, u64::MAX, 4), Placement::OutOfRange);
        assert_eq!(place(&keys, 1, 7, 96, 4), Placement::Placed);
        assert!(!keys.take(at(1, 8)) && keys.take(at(1, 7)) && !keys.take(at(1, 7)));
        assert_eq!(place(&keys, 1, 7, 0, 4), Placement::Null);
        // SAFETY: as above, and no key is left.
        let bytes = unsafe { std::slice::from_raw_parts(all.as_ptr(), all.len()) };
        assert_eq!(bytes.iter().filter(|&&b| b == 9).count(), 4);
        assert_eq!(&bytes[96..], [9; 4]);
    }
}
