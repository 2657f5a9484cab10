//! The key table of a software NIC: which bytes of memory a packet may reach, and no others.
//!
//! A slot answers under the generation that it is armed for; under any other it is NULL. Invariant, on which the unsafe
//! write here rests: *a key is in the table only between `arm` and `take`, during which the contract of
//! [`Fabric::arm`](super::Fabric::arm) keeps its memory valid and ours alone.*

use crate::fabric::Landing;
use crate::types::{Generation, MessageId, PacketOffset, SlotGen};

struct Key {
    at: SlotGen,
    to: Landing,
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It is in memory.
    Placed,
    /// No key: discarded. The completion is still reported.
    Null,
    /// No packet that the receive has: discarded without a completion.
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
    /// The memory of `to` is valid for writes and nobody else accesses it until the key is taken or the table is dropped.
    pub unsafe fn arm(&mut self, at: SlotGen, to: Landing) -> bool {
        match self.0.get_mut(usize::from(at.slot.0)) {
            Some(slot @ None) => {
                *slot = Some(Key { at, to });
                true
            }
            _ => false,
        }
    }

    /// Takes a key away; false when it is not there.
    pub fn take(&mut self, at: SlotGen) -> bool {
        self.0.get_mut(usize::from(at.slot.0)).is_some_and(|k| k.take_if(|k| k.at == at).is_some())
    }

    /// Places the payload of packet `offset` of the receive that the slot has under `generation`. A data packet may be
    /// short, an extra one is full, none is empty.
    pub fn place(
        &self,
        slot: MessageId,
        generation: Generation,
        offset: PacketOffset,
        bytes: &[u8],
    ) -> Placement {
        let Some(Some(key)) = self.0.get(usize::from(slot.0)) else { return Placement::Null };
        if key.at.generation != generation {
            return Placement::Null;
        }
        let (room, short) = key.to.room(offset.0);
        let full = key.to.payload as usize;
        let fits = bytes.len() <= full.min(room.len()) && (short || bytes.len() == full);
        if bytes.is_empty() || !fits {
            return Placement::OutOfRange;
        }
        let to = room.slice(0, bytes.len());
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
        let arm = |keys: &mut KeyTable, at| unsafe { keys.arm(at, Landing::data(all, 4)) };
        assert!(arm(&mut keys, at(1, 7)));
        assert!(!arm(&mut keys, at(1, 8)) && !arm(&mut keys, at(2, 0)), "armed twice, or beyond the table");
        let place = |keys: &KeyTable, s, g, o, n| {
            keys.place(MessageId(s), Generation(g), PacketOffset(o), &[9; 64][..n])
        };
        assert_eq!(place(&keys, 1, 6, 0, 4), Placement::Null);
        assert_eq!(place(&keys, 0, 7, 0, 4), Placement::Null);
        assert_eq!(place(&keys, 900, 7, 0, 4), Placement::Null);
        assert_eq!(place(&keys, 1, 7, 25, 1), Placement::OutOfRange);
        assert_eq!(place(&keys, 1, 7, u32::MAX, 4), Placement::OutOfRange);
        assert_eq!(place(&keys, 1, 7, 23, 5), Placement::OutOfRange, "longer than a packet");
        assert_eq!(place(&keys, 1, 7, 24, 0), Placement::OutOfRange, "empty");
        assert_eq!(place(&keys, 1, 7, 24, 4), Placement::Placed);
        assert!(!keys.take(at(1, 8)) && keys.take(at(1, 7)) && !keys.take(at(1, 7)));
        assert_eq!(place(&keys, 1, 7, 0, 4), Placement::Null);
        // SAFETY: as above, and no key is left.
        let bytes = unsafe { std::slice::from_raw_parts(all.as_ptr(), all.len()) };
        assert_eq!(bytes.iter().filter(|&&b| b == 9).count(), 4);
        assert_eq!(&bytes[96..], [9; 4]);
    }

    #[test]
    fn data_and_extra_packets_land_in_their_own_memory() {
        let region = Region::map(64).unwrap();
        let all = region.slice(RegionId(0));
        // Three data packets, the last of two bytes, chunks of two, two extra packets: offsets 3 and 6 are nothing.
        let (dst, extra) = (all.slice(8, 10), all.slice(40, 8));
        let mut keys = KeyTable::new(1);
        let to = Landing { dst, extra: Some(extra), payload: 4, first_extra: 4 };
        // SAFETY: the region is ours until the end of the test.
        assert!(unsafe { keys.arm(at(0, 0), to) });
        let place = |offset, n: usize| {
            let bytes = [(offset as u8).wrapping_add(1); 8];
            keys.place(MessageId(0), Generation(0), PacketOffset(offset), &bytes[..n])
        };
        for (offset, n) in [(2, 3), (3, 1), (3, 4), (4, 3), (4, 5), (5, 3), (6, 1), (6, 4), (u32::MAX, 4)] {
            assert_eq!(place(offset, n), Placement::OutOfRange, "{n} bytes of packet {offset}");
        }
        for (offset, n) in [(0, 4), (1, 1), (2, 2), (4, 4), (5, 4)] {
            assert_eq!(place(offset, n), Placement::Placed, "{n} bytes of packet {offset}");
        }
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(all.as_ptr(), all.len()) };
        assert_eq!(bytes[8..18], [1, 1, 1, 1, 2, 0, 0, 0, 3, 3]);
        assert_eq!(bytes[40..48], [5, 5, 5, 5, 6, 6, 6, 6]);
        assert_eq!(bytes.iter().filter(|&&b| b != 0).count(), 7 + 8, "and nothing elsewhere");
    }
}
