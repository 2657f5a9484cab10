//! Encode, lose, decode: small shapes exhaustively, large ones at random.

use super::{Message, UNTOUCHED, coders};
use crate::ec::{Code, Coder, DecodePlan, EncodeJob, MAX_DATA, Place, Stripes};
use proptest::prelude::*;
use std::ops::Range;

/// Overwrites data rows `missing` of a stripe, decodes, and expects everything as it was.
fn lose_and_decode(
    whole: &Message,
    coder: &dyn Coder,
    group: usize,
    stripes: Range<usize>,
    missing: &[u8],
    rows: &[u8],
) {
    let plan = DecodePlan::new(whole.code, whole.layout.k(), missing, rows).unwrap();
    let mut damaged = whole.clone();
    for stripe in stripes.clone() {
        for &row in missing {
            let symbol = whole.symbol(Place { group, row: row.into(), stripe });
            damaged.data[symbol].fill(!UNTOUCHED);
        }
        for row in (0..whole.allocated).filter(|&row| !rows.contains(&(row as u8))) {
            damaged.parity[whole.parity_symbol(Place { group, row, stripe })].fill(!UNTOUCHED);
        }
    }
    damaged.decode(coder, &plan, group, stripes).unwrap();
    assert!(damaged.data == whole.data, "missing {missing:?} by rows {rows:?} of {:?}", whole.layout);
}

#[test]
fn every_loss_pattern_up_to_twelve_symbols() {
    for (name, coder) in coders() {
        for (k, m) in (1..12).flat_map(|k| (1..=12 - k).map(move |m| (k, m))) {
            // The last symbol is short.
            let mut message = Message::new(Code::Mds, Stripes::new(3 * k - 1, 3, k, 1).unwrap(), m);
            message.encode_all(&*coder);
            for row in 0..m {
                let place = Place { group: 0, row, stripe: 0 };
                let parity = &message.parity[message.parity_symbol(place)];
                assert_eq!(parity, message.expected(place), "{name}: ({k}, {m}) row {row}");
            }
            for lost in 1..1_u32 << (k + m) {
                let bits = |from: usize, to: usize, want: u32| -> Vec<u8> {
                    (from..to).filter(|i| lost >> i & 1 == want).map(|i| (i - from) as u8).collect()
                };
                let (missing, rows) = (bits(0, k, 1), bits(k, k + m, 0));
                if !missing.is_empty() && missing.len() <= rows.len() {
                    lose_and_decode(&message, &*coder, 0, 0..1, &missing, &rows[..missing.len()]);
                }
            }
        }
    }
}

#[test]
fn xor_rebuilds_any_one_symbol() {
    for (_, coder) in coders() {
        for k in [1, 2, 7, 16, 32, 224] {
            let mut message = Message::new(Code::Xor, Stripes::new(3 * 40 * k - 50, 40, k, 3).unwrap(), 1);
            message.encode_all(&*coder);
            for stripe in 0..3 {
                let place = Place { group: 0, row: 0, stripe };
                assert_eq!(message.parity[message.parity_symbol(place)], message.expected(place));
            }
            for lost in (0..k as u8).filter(|&row| k == 1 || usize::from(row) < k - 1) {
                let stripes = if k == 1 { 0..1 } else { 0..3 };
                lose_and_decode(&message, &*coder, 0, stripes, &[lost], &[0]);
            }
        }
    }
}

#[test]
fn later_rows_belong_to_the_same_code() {
    for (_, coder) in coders() {
        for k in [8, 20, 100, 224] {
            let layout = Stripes::new(k * 2 * 24, 24, k, 2).unwrap();
            let mut at_once = Message::new(Code::Mds, layout, 32);
            at_once.encode_all(&*coder);
            let mut by_and_by = Message::new(Code::Mds, layout, 32);
            for rows in [0..1, 1..7, 7..16, 16..17, 17..32] {
                by_and_by.encode(&*coder, 0, rows.clone(), 0..2).unwrap();
                let done = rows.end * 2 * 24;
                assert_eq!(by_and_by.parity[..done], at_once.parity[..done]);
                assert!(by_and_by.parity[done..].iter().all(|&b| b == UNTOUCHED));
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Shape {
    layout: Stripes,
    rows: usize,
    seed: u64,
}

fn shape() -> impl Strategy<Value = Shape> {
    let k = prop_oneof![1..=MAX_DATA, Just(8_usize), Just(16), Just(32), Just(224)];
    let payload = prop_oneof![1..=80_usize, Just(256), 1000..=1100_usize];
    (k, payload, 1..=5_usize, 1..=32_usize, 1..=2500_usize, any::<u64>()).prop_flat_map(
        |(k, payload, depth, rows, permille, seed)| {
            let most = (k * depth * payload * permille).div_ceil(1000).max(2);
            (most / 2..=most).prop_map(move |bytes| {
                let layout = Stripes::new(bytes, payload, k, depth).unwrap();
                Shape { layout, rows: rows.min(256 - k), seed }
            })
        },
    )
}

/// Pseudo-random numbers below a bound.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// `count` numbers below `n`, ascending.
    fn pick(&mut self, n: usize, count: usize) -> Vec<u8> {
        let mut all: Vec<u8> = (0..n as u8).collect();
        while all.len() > count {
            let at = self.below(all.len());
            all.remove(at);
        }
        all
    }
}

fn round_trip(shape: &Shape, coder: &dyn Coder) {
    let Shape { layout, rows, seed } = *shape;
    let mut dice = Dice(seed);
    let mut message = Message::new(Code::Mds, layout, rows);
    let data = message.data.clone();
    // Some rows and stripes are done apart from the others.
    let (row, stripe) = (dice.below(rows), dice.below(layout.depth()));
    for group in 0..layout.groups() {
        for rows in [0..row, row..rows] {
            for stripes in [0..stripe, stripe..layout.depth()] {
                if !rows.is_empty() && !stripes.is_empty() {
                    message.encode(coder, group, rows.clone(), stripes).unwrap();
                }
            }
        }
    }
    assert!(message.data == data);
    for group in 0..layout.groups() {
        for stripe in 0..layout.depth() {
            for row in 0..rows {
                let place = Place { group, row, stripe };
                assert_eq!(
                    message.parity[message.parity_symbol(place)],
                    message.expected(place),
                    "{place:?}"
                );
            }
            let there = (0..layout.k()).filter(|&row| layout.packet(Place { group, row, stripe }).is_some());
            let there = there.count();
            if there > 0 {
                let lost = 1 + dice.below(there.min(rows));
                let (missing, rows) = (dice.pick(there, lost), dice.pick(rows, lost));
                // Neighbours that have as many symbols can lose the same ones.
                let last = Place { group, row: there - 1, stripe: layout.depth() - 1 };
                let end = if layout.packet(last).is_some() { layout.depth() } else { stripe + 1 };
                lose_and_decode(&message, coder, group, stripe..end, &missing, &rows);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn interleaved_messages_of_any_length(shape in shape()) {
        for (_, coder) in coders() {
            round_trip(&shape, &*coder);
        }
    }
}

#[test]
fn the_widest_stripe_with_all_its_rows() {
    for (_, coder) in coders() {
        let layout = Stripes::new(224 * 70 - 33, 70, 224, 1).unwrap();
        round_trip(&Shape { layout, rows: 32, seed: 7 }, &*coder);
    }
}

#[test]
fn all_256_symbols_in_use() {
    // The last block of rows shares its coset with data.
    for (_, coder) in coders() {
        for k in [10, 50, 200, 221] {
            let layout = Stripes::new(k * 130 - 33, 130, k, 1).unwrap();
            round_trip(&Shape { layout, rows: 256 - k, seed: k as u64 }, &*coder);
        }
    }
}

#[test]
fn another_implementation_gives_the_same_data_back() {
    use reed_solomon_erasure::galois_8::ReedSolomon;
    for (k, m) in [(1, 1), (4, 2), (8, 2), (16, 4), (32, 8), (100, 30), (224, 32)] {
        let mut message = Message::new(Code::Mds, Stripes::new(k * 64, 64, k, 1).unwrap(), m);
        let theirs = ReedSolomon::new(k, m).unwrap();
        let mut shards: Vec<Vec<u8>> = message.data.chunks(64).map(<[u8]>::to_vec).collect();
        shards.resize(k + m, vec![0; 64]);
        theirs.encode(&mut shards).unwrap();
        let mut dice = Dice(k as u64);
        let e = k.min(m);
        let missing = dice.pick(k, e);
        let mut shards: Vec<Option<Vec<u8>>> = shards.into_iter().map(Some).collect();
        for &row in &missing {
            shards[usize::from(row)] = None;
        }
        theirs.reconstruct_data(&mut shards).unwrap();
        for (_, coder) in coders() {
            message.encode_all(&*coder);
            let mut damaged = message.clone();
            for &row in &missing {
                damaged.data[usize::from(row) * 64..][..64].fill(0);
            }
            let plan = DecodePlan::new(Code::Mds, k, &missing, &dice.pick(m, e)).unwrap();
            damaged.decode(&*coder, &plan, 0, 0..1).unwrap();
            for (ours, theirs) in damaged.data.chunks(64).zip(&shards) {
                assert_eq!(Some(ours), theirs.as_deref());
            }
        }
    }
}

#[test]
fn workers_share_a_message_by_stripes() {
    use crate::ec::{Readable, Writable};
    use std::ptr::NonNull;
    let layout = Stripes::new(16 * 4 * 100, 100, 16, 4).unwrap();
    for (_, coder) in coders() {
        let mut at_once = Message::new(Code::Mds, layout, 4);
        at_once.encode_all(&*coder);
        let mut shared = Message::new(Code::Mds, layout, 4);
        let len = shared.parity.len();
        // An address is shared; each worker makes its own view of it.
        let base = NonNull::new(shared.parity.as_mut_ptr()).unwrap().expose_provenance();
        let (data, coder) = (&shared.data, &*coder);
        std::thread::scope(|scope| {
            for stripe in 0..4 {
                scope.spawn(move || {
                    let base = NonNull::<u8>::with_exposed_provenance(base);
                    // SAFETY: the buffer outlives the scope, and each worker writes the symbols of its own stripe only.
                    let parity = unsafe { Writable::from_raw(base, len) };
                    let data = Readable::from(data.as_slice());
                    let stripes = stripe..stripe + 1;
                    let job = EncodeJob {
                        code: Code::Mds,
                        layout,
                        group: 0,
                        stripes,
                        rows: 0..4,
                        allocated: 4,
                        data,
                        parity,
                    };
                    coder.encode(&job).unwrap();
                });
            }
        });
        assert_eq!(shared.parity, at_once.parity);
    }
}
