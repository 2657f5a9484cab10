//! Which packets of a message a parity packet protects.
//!
//! The protected part is the end of the message, or all of it. Its packets are dealt to `depth` stripes in turn, so that
//! a burst hits each stripe once; after `k` of them a stripe is full, and the next `depth` stripes, the next *group*,
//! begin. Parity packets are numbered by group, row, stripe: one row of all stripes of a group is one run of
//! packets, as is one row of data.
//!
//! ```text
//! data     0 1 2 3 | 4 5 6 7 | 8 9 10 11      k = 3 rows of depth 4: stripe 1 has packets 1, 5, 9
//! parity   0 1 2 3 | 4 5 6 7                  row 0 and row 1; stripe 1 has parity packets 1, 5
//! ```
//!
//! Both ends derive it from what ANNOUNCE says and from the extra packets of the grant.

use super::super::MessageSpec;
use std::ops::Range;

/// Data symbols of a stripe at most: the code has 256 columns, and 32 of them are parity.
pub const MAX_K: u32 = 224;

/// Data and first parity symbols of a stripe at most: 16 columns stay in reserve, for parity that is asked for.
pub const MAX_COLUMNS: u32 = 240;

/// Protected packets that are reported as those before are: more than a burst.
const OVERLAP: u32 = 256;

/// What a sender chose for a message, and announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Data symbols of a stripe; zero without stripes.
    pub k: u16,
    /// Parity symbols of a stripe that are sent unasked.
    pub m: u16,
    /// Stripes of a group.
    pub interleave: u16,
}

/// The stripes of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// First protected packet.
    pub start: u32,
    /// Packets of the message: the protected part ends there.
    pub end: u32,
    /// Data symbols of a stripe.
    pub k: u32,
    /// Stripes of a group.
    pub depth: u32,
    /// Parity rows that are sent unasked.
    pub sent: u32,
    /// Parity rows that the receiver has memory for.
    pub rows: u32,
}

/// A stripe: its group, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stripe {
    /// Group.
    pub group: u32,
    /// Place in the group.
    pub column: u32,
}

impl Stripes {
    /// The stripes that `plan` makes of a message: of its last `k` times `interleave` packets, or, when `whole`, of all.
    /// None when the plan is none.
    ///
    /// `rows` is how many rows the code has; the receiver's memory may hold fewer, and then fewer are sent.
    pub fn new(m: &MessageSpec, plan: &Plan, whole: bool, rows: u32) -> Option<Self> {
        let (k, depth) = (u32::from(plan.k), u32::from(plan.interleave));
        if k == 0 || depth == 0 || m.packets == 0 {
            return None;
        }
        let group = k.checked_mul(depth)?;
        let start = if whole { 0 } else { m.packets.saturating_sub(group) };
        let mut s = Self { start, end: m.packets, k, depth, sent: 0, rows: 0 };
        s.rows = (m.extra / s.groups().checked_mul(depth)?).min(rows);
        s.sent = u32::from(plan.m).min(s.rows);
        Some(s)
    }

    /// End of the packets that are reported one by one. Where there is a body, the first protected packets are among them: they
    /// show that its last ones are missing.
    pub fn body_end(&self) -> u32 {
        if self.start == 0 { 0 } else { self.end.min(self.start + OVERLAP) }
    }

    /// Data packets of a full group.
    pub fn group_packets(&self) -> u32 {
        self.k * self.depth
    }

    /// Groups.
    pub fn groups(&self) -> u32 {
        (self.end - self.start).div_ceil(self.group_packets())
    }

    /// All stripes.
    pub fn count(&self) -> u32 {
        self.groups() * self.depth
    }

    /// Number of a stripe among all.
    pub fn index(&self, s: Stripe) -> usize {
        (s.group * self.depth + s.column) as usize
    }

    /// The data packets of a group.
    pub fn data(&self, group: u32) -> Range<u32> {
        let first = self.start + group * self.group_packets();
        first..first.saturating_add(self.group_packets()).min(self.end)
    }

    /// Stripe and row of a protected data packet.
    pub fn of_data(&self, packet: u32) -> (Stripe, u32) {
        let i = packet - self.start;
        let (group, i) = (i / self.group_packets(), i % self.group_packets());
        (Stripe { group, column: i % self.depth }, i / self.depth)
    }

    /// Stripe and row of a parity packet.
    pub fn of_parity(&self, index: u32) -> (Stripe, u32) {
        let per_group = self.rows * self.depth;
        let (group, i) = (index / per_group, index % per_group);
        (Stripe { group, column: i % self.depth }, i / self.depth)
    }

    /// The parity packet of a stripe in a row.
    pub fn parity(&self, s: Stripe, row: u32) -> u32 {
        (s.group * self.rows + row) * self.depth + s.column
    }

    /// The data packet of a stripe in a row; the last rows of the last group may lack it.
    pub fn packet(&self, s: Stripe, row: u32) -> Option<u32> {
        let packet = self.start + s.group * self.group_packets() + row * self.depth + s.column;
        (packet < self.end).then_some(packet)
    }

    /// The parity packets of a group that are sent unasked.
    pub fn unasked(&self, group: u32) -> Range<u32> {
        let first = group * self.rows * self.depth;
        first..first + self.sent * self.depth
    }

    /// Data packets before it left before parity packet `index`.
    pub fn sent_before(&self, index: u32) -> u32 {
        let group = index.checked_div(self.rows * self.depth).unwrap_or(0);
        self.data(group.min(self.groups() - 1)).end
    }

    /// All parity packets that there may be.
    pub fn parity_packets(&self) -> u32 {
        self.count() * self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Seq;
    use proptest::prelude::*;

    fn message(packets: u32, extra: u32) -> MessageSpec {
        MessageSpec {
            seq: Seq(0),
            bytes: u64::from(packets) * 100,
            packets,
            payload: 100,
            channels: 1,
            per_chunk: 16,
            extra,
            first_extra: packets.next_multiple_of(16),
        }
    }

    proptest! {
        #[test]
        fn packets_and_stripes_are_two_names_of_the_same(
            packets in 1u32..3_000, k in 1u16..=224, depth in 1u16..40, m in 0u16..20, extra in 0u32..4_000,
            whole: bool,
        ) {
            let plan = Plan { k, m, interleave: depth };
            let s = Stripes::new(&message(packets, extra), &plan, whole, 32).unwrap();
            prop_assert!(s.parity_packets() <= extra && s.sent <= s.rows && s.sent <= u32::from(m));
            prop_assert!(whole || s.groups() == 1);
            let mut seen = vec![0; s.count() as usize];
            for p in s.start..s.end {
                let (stripe, row) = s.of_data(p);
                prop_assert!(row < s.k && stripe.column < s.depth);
                prop_assert_eq!(s.packet(stripe, row), Some(p));
                prop_assert!(s.data(stripe.group).contains(&p));
                seen[s.index(stripe)] += 1;
            }
            prop_assert!(seen.iter().all(|&n| n <= s.k));
            prop_assert_eq!(seen.iter().sum::<u32>(), s.end - s.start);
            for e in 0..s.parity_packets() {
                let (stripe, row) = s.of_parity(e);
                prop_assert!(row < s.rows && stripe.group < s.groups());
                prop_assert_eq!(s.parity(stripe, row), e);
                prop_assert_eq!(s.unasked(stripe.group).contains(&e), row < s.sent);
            }
        }
    }
}
