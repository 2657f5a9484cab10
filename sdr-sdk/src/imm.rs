//! The 32-bit immediate: message id in the top bits, then the packet offset, then a fragment of the user immediate.
//!
//! On the wire it is big-endian, as verbs has it. Two layouts, fixed for a queue pair and compared at connect
//! (SDR-RDMA section 3.2.4): 10 | 18 | 4, and 8 | 22 | 2 for longer messages.

use crate::types::{MessageId, PacketOffset};

/// How the 32 bits are divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ImmLayout {
    /// 1,024 slots, 2^18 packets a message, 4 user bits.
    #[default]
    L10_18_4,
    /// 256 slots, 2^22 packets a message, 2 user bits.
    L8_22_2,
}

impl ImmLayout {
    /// Bits of the packet offset.
    pub const fn offset_bits(self) -> u32 {
        match self {
            Self::L10_18_4 => 18,
            Self::L8_22_2 => 22,
        }
    }

    /// Bits of the user fragment.
    pub const fn user_bits(self) -> u32 {
        match self {
            Self::L10_18_4 => 4,
            Self::L8_22_2 => 2,
        }
    }

    /// Slots that the message id can name.
    pub const fn max_slots(self) -> u32 {
        1 << (32 - self.offset_bits() - self.user_bits())
    }

    /// Packets that a message can have.
    pub const fn max_packets(self) -> u32 {
        1 << self.offset_bits()
    }

    /// Fragments that make up a 32-bit user immediate: 8, or 16.
    pub const fn fragments(self) -> u32 {
        32 / self.user_bits()
    }

    /// The immediate of one packet. `user` is the whole user immediate; the fragment that belongs to `offset` is taken.
    pub const fn encode(self, id: MessageId, offset: PacketOffset, user: u32) -> u32 {
        let u = self.user_bits();
        let shift = (offset.0 % self.fragments()) * u;
        let fragment = (user >> shift) & ((1 << u) - 1);
        ((id.0 as u32) << (self.offset_bits() + u)) | (offset.0 << u) | fragment
    }

    /// Slot and offset of a packet.
    pub const fn decode(self, imm: u32) -> (MessageId, PacketOffset) {
        let u = self.user_bits();
        let offset = (imm >> u) & (self.max_packets() - 1);
        (MessageId((imm >> (self.offset_bits() + u)) as u16), PacketOffset(offset))
    }

    /// The fragment in `imm`, moved to where it belongs in the 32-bit user immediate.
    pub const fn user_fragment(self, imm: u32) -> u32 {
        let u = self.user_bits();
        let (_, offset) = self.decode(imm);
        (imm & ((1 << u) - 1)) << ((offset.0 % self.fragments()) * u)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_are_the_published_ones() {
        assert_eq!((ImmLayout::L10_18_4.max_slots(), ImmLayout::L10_18_4.max_packets()), (1024, 1 << 18));
        assert_eq!((ImmLayout::L8_22_2.max_slots(), ImmLayout::L8_22_2.max_packets()), (256, 1 << 22));
        assert_eq!((ImmLayout::L10_18_4.fragments(), ImmLayout::L8_22_2.fragments()), (8, 16));
    }

    #[test]
    fn fields_stand_where_the_layout_says() {
        let imm = ImmLayout::L10_18_4.encode(MessageId(0x3ff), PacketOffset(0), 0);
        assert_eq!(imm, 0xffc0_0000);
        let imm = ImmLayout::L8_22_2.encode(MessageId(1), PacketOffset(3), 0b11 << 6);
        assert_eq!(imm, (1 << 24) | (3 << 2) | 0b11);
    }

    proptest! {
        #[test]
        fn round_trip(wide: bool, id: u16, offset: u32, user: u32) {
            let l = if wide { ImmLayout::L8_22_2 } else { ImmLayout::L10_18_4 };
            let id = MessageId((id as u32 % l.max_slots()) as u16);
            let offset = PacketOffset(offset % l.max_packets());
            prop_assert_eq!(l.decode(l.encode(id, offset, user)), (id, offset));
        }

        #[test]
        fn consecutive_packets_carry_the_whole_user_immediate(wide: bool, start in 0u32..1000, user: u32) {
            let l = if wide { ImmLayout::L8_22_2 } else { ImmLayout::L10_18_4 };
            let got = (start..start + l.fragments())
                .map(|o| l.user_fragment(l.encode(MessageId(5), PacketOffset(o), user)))
                .fold(0, |a, b| a | b);
            prop_assert_eq!(got, user);
        }
    }
}
