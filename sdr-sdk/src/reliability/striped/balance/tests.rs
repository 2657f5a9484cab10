use super::*;
use crate::bitmap::Shape;
use crate::reliability::striped::Plan;
use crate::reliability::{MessageSpec, PacketView};
use crate::types::{ChunkIndex, Seq};
use proptest::prelude::*;

/// A receive with extra packets, one bool a packet.
struct Receive {
    shape: Shape,
    here: Vec<bool>,
}

impl PacketView for Receive {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn chunk(&self, c: ChunkIndex) -> bool {
        self.of(c).iter().all(|&p| p)
    }

    fn packets(&self, c: ChunkIndex) -> u64 {
        self.of(c).iter().enumerate().map(|(i, &p)| u64::from(p) << i).sum()
    }
}

impl Receive {
    fn of(&self, c: ChunkIndex) -> &[bool] {
        self.here.chunks(self.shape.per_chunk() as usize).nth(c.0 as usize).unwrap_or(&[])
    }
}

/// What each stripe lacks, counted anew from what the two views say.
fn recount(s: &Stripes, data: &Arrived, parity: &Arrived) -> Vec<i32> {
    let mut need = vec![0; s.count() as usize];
    for p in s.start..data.covered().max(s.start) {
        need[s.index(s.of_data(p).0)] += i32::from(data.missing().contains(p));
    }
    for e in 0..parity.covered().min(s.parity_packets()) {
        need[s.index(s.of_parity(e).0)] -= i32::from(!parity.missing().contains(e));
    }
    need
}

fn same(b: &Balance, s: &Stripes, data: &Arrived, parity: &Arrived) -> Result<(), TestCaseError> {
    let need = recount(s, data, parity);
    for group in 0..s.groups() {
        for column in 0..s.depth {
            let stripe = Stripe { group, column };
            prop_assert_eq!(b.need(stripe), need[s.index(stripe)], "{:?}", stripe);
        }
    }
    prop_assert_eq!(b.short() as usize, need.iter().filter(|n| **n > 0).count());
    prop_assert_eq!(b.missing(), data.missing().within(s.start..s.end).map(|r| r.end - r.start).sum::<u32>());
    prop_assert_eq!(b.parity_covered(), parity.covered().min(s.parity_packets()));
    Ok(())
}

proptest! {
    /// Data and parity in any order, late, and looked at through marks that jump and rechecks that find only some.
    #[test]
    fn agrees_with_a_recount(
        packets in 1u32..300, k in 1u16..40, depth in 1u16..12, m in 0u16..6, extra in 0u32..200, whole: bool,
        per_chunk in 1u8..=64,
        steps in prop::collection::vec((any::<bool>(), 0u32..300, 1u32..20, 0u32..5, any::<bool>()), 1..60),
    ) {
        let first_extra = packets.next_multiple_of(per_chunk.into());
        let message = MessageSpec {
            seq: Seq(0), bytes: packets.into(), packets, payload: 1, channels: 1, per_chunk, extra, first_extra,
        };
        let s = Stripes::new(&message, &Plan { k, m, interleave: depth }, whole, 8).unwrap();
        let parities = s.parity_packets();
        let total = first_extra + extra;
        let mut view = Receive { shape: Shape::new(total, per_chunk), here: vec![false; total as usize] };
        view.here[packets as usize..first_extra as usize].fill(true);
        let mut data = Arrived::new(packets);
        let mut parity = Arrived::part(first_extra / u32::from(per_chunk), parities);
        let mut b = Balance::new(s);
        let (mut high, mut extra_high) = (0, 0);
        for (of_data, first, n, budget, jump) in steps {
            let (offset, end) = if of_data { (0, packets) } else { (first_extra, parities) };
            let run = first.min(end)..(first + n).min(end);
            for p in run.clone() {
                view.here[(offset + p) as usize] = true;
            }
            let high = if of_data { &mut high } else { &mut extra_high };
            *high = if jump { end } else { (*high).max(run.end) };
            data.update(&view, if of_data { *high } else { data.covered() });
            parity.update(&view, if of_data { parity.covered() } else { *high });
            data.recheck(&view, budget);
            parity.recheck(&view, budget);
            if jump {
                data.recheck_below(&view, first, budget);
            }
            b.update(&data, &parity);
            data.forget_found();
            parity.forget_found();
            same(&b, &s, &data, &parity)?;
        }
        // In the end all data is there, and nothing is lacking.
        view.here.fill(true);
        data.update(&view, packets);
        data.recheck(&view, u32::MAX);
        b.update(&data, &parity);
        prop_assert_eq!((b.short(), b.missing()), (0, 0));
    }
}
