use super::*;
use crate::bitmap::Shape;
use crate::reliability::PacketView;
use crate::types::ChunkIndex;
use proptest::prelude::*;

#[test]
fn nothing_seen_is_the_prior_and_much_seen_is_the_truth() {
    let mut m = LossMeter::default();
    assert_eq!(m.loss(), Loss::default());
    m.told(&LossCount { packets: 1_000_000, missing: 1_600, bursts: 100 });
    let loss = m.loss();
    assert!((1.6e-3..2.2e-3).contains(&loss.probability), "{loss:?}");
    assert_eq!(loss.burst, 16.0);
    // Repeated and older counts change nothing.
    let before = m.loss();
    m.told(&LossCount { packets: 1_000_000, missing: 1_600, bursts: 100 });
    m.told(&LossCount { packets: 1_000, missing: 16, bursts: 1 });
    assert_eq!(m.loss(), before);
}

#[test]
fn a_clean_path_is_trusted_slowly() {
    let mut m = LossMeter::default();
    m.told(&LossCount { packets: 100, missing: 0, bursts: 0 });
    assert_eq!(m.loss().probability, 1e-2);
    m.told(&LossCount { packets: 1_000_000, missing: 0, bursts: 0 });
    assert_eq!(m.loss().probability, FLOOR);
}

/// A message with one bool a packet, in chunks of eight.
struct Here(Vec<bool>);

impl PacketView for Here {
    fn shape(&self) -> Shape {
        Shape::new(self.0.len() as u32, 8)
    }

    fn chunk(&self, c: ChunkIndex) -> bool {
        self.0.chunks(8).nth(c.0 as usize).is_some_and(|c| c.iter().all(|&p| p))
    }

    fn packets(&self, c: ChunkIndex) -> u64 {
        let chunk = self.0.chunks(8).nth(c.0 as usize).unwrap_or(&[]);
        chunk.iter().enumerate().map(|(i, &p)| u64::from(p) << i).sum()
    }
}

proptest! {
    /// Looked at in steps of any length: the same count as of all at once.
    #[test]
    fn steps_count_as_one_look(here in prop::collection::vec(any::<bool>(), 1..300), steps in prop::collection::vec(1u32..60, 1..20)) {
        let view = Here(here.clone());
        let mut arrived = Arrived::new(here.len() as u32);
        let (mut seen, mut sum, mut high) = (Seen::default(), LossCount::default(), 0);
        for step in steps {
            high += step;
            arrived.update(&view, high);
            seen.count(&arrived, &mut sum);
        }
        let looked = &here[..arrived.covered() as usize];
        let missing = looked.iter().filter(|p| !**p).count() as u64;
        let starts = looked.iter().enumerate().filter(|&(i, &p)| !p && (i == 0 || looked[i - 1])).count() as u64;
        prop_assert_eq!(sum, LossCount { packets: looked.len() as u64, missing, bursts: starts });
    }

    /// Whatever a peer claims, in whatever order: a loss that can be calculated with.
    #[test]
    fn any_counts_are_survived(counts in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0u32..64), 1..20)) {
        let mut m = LossMeter::default();
        for (a, b, c, shift) in counts {
            let mut n = [a >> shift, b >> shift, c >> shift];
            n.sort_unstable();
            m.told(&LossCount { packets: n[2], missing: n[1], bursts: n[0] });
            let loss = m.loss();
            prop_assert!((FLOOR..=0.5).contains(&loss.probability), "{:?}", loss);
            prop_assert!(loss.burst >= 1.0 && loss.burst.is_finite(), "{:?}", loss);
        }
    }
}
