//! Which packet numbers came in: a control datagram counts once, whoever repeats it.
//!
//! A ring of bits behind the largest number (RFC 6479). Numbers that fell out of it count as seen, so what more than [`SPAN`]
//! others of its channel overtook is lost.

#![forbid(unsafe_code)]

const WORDS: usize = 256;

/// Numbers behind the largest that are still told apart, at least.
pub(super) const SPAN: u64 = (WORDS as u64 - 1) * 64;

/// The numbers seen.
pub(super) struct Seen {
    /// One more than the largest.
    next: u64,
    words: Box<[u64; WORDS]>,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self { next: 0, words: Box::new([0; WORDS]) }
    }

    /// True the first time that it is asked for `number`.
    pub(super) fn first(&mut self, number: u64) -> bool {
        let word = number / 64;
        if number >= self.next {
            // Words that the ring enters now hold bits of a round before.
            let entered = word - self.next.saturating_sub(1) / 64;
            for i in 0..entered.min(WORDS as u64) {
                self.words[((word - i) % WORDS as u64) as usize] = 0;
            }
            self.next = number.saturating_add(1);
        } else if self.next - number > SPAN {
            return false;
        }
        let (bits, bit) = (&mut self.words[(word % WORDS as u64) as usize], 1 << (number % 64));
        let first = *bits & bit == 0;
        *bits |= bit;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn as_a_set_would(
            start in prop_oneof![Just(0), Just(u64::MAX - 40_000), any::<u64>()],
            steps in proptest::collection::vec(prop_oneof![0i64..4, -70i64..70, -20_000i64..20_000], 1..300),
        ) {
            let (mut seen, mut set, mut largest) = (Seen::new(), HashSet::new(), None);
            let mut at = start;
            for step in steps {
                at = at.saturating_add_signed(step);
                let stale = largest.is_some_and(|l: u64| l.saturating_add(1).saturating_sub(at) > SPAN);
                let expected = !stale && set.insert(at);
                prop_assert_eq!(seen.first(at), expected, "{} after {:?}", at, largest);
                largest = largest.max(Some(at));
            }
        }
    }

    #[test]
    fn the_first_and_the_last_number() {
        let mut seen = Seen::new();
        assert!(seen.first(0) && !seen.first(0));
        assert!(seen.first(u64::MAX) && !seen.first(u64::MAX) && !seen.first(0));
        assert!(seen.first(u64::MAX - 1));
    }
}
