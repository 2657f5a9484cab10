//! Rows of parity, against enumeration and against what packet-level simulation chose; the hybrid scheme against its
//! simulation.

use super::*;
use crate::model::hybrid::{Hybrid, Tail};
use crate::model::rows::{Shortfall, correlation, rows};

/// P(more than m lost of k + m), by adding up all 2^(k + m) fates of a stripe.
fn enumerated(k: u32, m: u32, stripes: u32, p: f64, burst: f64, gap: u32) -> f64 {
    let lambda = correlation(p, burst);
    let fates = 0u32..1 << (k + m);
    let probability = |fate: u32| {
        let lost = |i: u32| fate >> i & 1 == 1;
        let first = if lost(0) { p } else { 1.0 - p };
        (1..k + m).fold(first, |product, i| {
            let slots = stripes + if i == k { gap } else { 0 };
            let kept = lambda.powi(slots as i32);
            let p_lost = (1.0 - kept) * p + if lost(i - 1) { kept } else { 0.0 };
            product * if lost(i) { p_lost } else { 1.0 - p_lost }
        })
    };
    fates.filter(|fate| fate.count_ones() > m).map(probability).sum()
}

#[test]
fn shortfalls_are_exact() {
    for (k, stripes, p, burst, gap) in [
        (1, 1, 1e-2, 1.0, 0),
        (8, 1, 1e-2, 1.0, 0),
        (8, 3, 1e-3, 4.0, 0),
        (10, 2, 0.2, 16.0, 7),
        (5, 1, 0.5, 1.5, 0),
        (9, 1, 1e-4, 8.0, 64),
    ] {
        let tails = Shortfall::new(k, stripes, p, burst, gap).expect("in range");
        for (m, tail) in (0..7).zip(tails) {
            let exact = enumerated(k, m, stripes, p, burst, gap);
            near("tail", tail, exact, 1e-9);
        }
    }
}

#[test]
fn a_long_stripe_is_binomial() {
    let (k, m, p) = (224u32, 16u32, 1e-2f64);
    let n = k + m;
    // From C(n, m + 1) p^(m + 1) (1 - p)^(n - m - 1) on.
    let mut term = (0..=m)
        .fold((1.0 - p).powi((n - m - 1) as i32), |term, i| term * p * f64::from(n - i) / f64::from(i + 1));
    let mut tail = 0.0;
    for lost in m + 1..=n {
        tail += term;
        term *= p / (1.0 - p) * f64::from(n - lost) / f64::from(lost + 1);
    }
    let mut tails = Shortfall::new(k, 1, p, 1.0, 0).expect("in range");
    near("tail", tails.nth(m as usize).expect("240 symbols"), tail, 1e-9);
}

/// What the simulation put on the wire beyond the message, percent, where the tail is the whole message.
#[test]
fn as_many_rows_as_the_simulation_chose() {
    for (bytes, loss, burst, percent) in [
        (8 * MIB, 1e-3, 1.0, 1.9),
        (8 * MIB, 1e-2, 1.0, 5.4),
        (8 * MIB, 5e-2, 1.0, 13.7),
        (128 * MIB, 1e-3, 1.0, 2.2),
        (128 * MIB, 1e-2, 1.0, 5.8),
        (128 * MIB, 5e-2, 1.0, 14.8),
        (GIB, 1e-3, 1.0, 2.7),
        (GIB, 1e-2, 1.0, 6.2),
        (GIB, 1e-1, 1.0, 27.0),
        (8 * MIB, 1e-3, 4.0, 2.4),
        (8 * MIB, 1e-3, 16.0, 7.3),
        (8 * MIB, 1e-2, 16.0, 12.7),
        (128 * KIB, 1e-2, 4.0, 68.8),
        (128 * KIB, 1e-3, 16.0, 100.0),
        (128 * KIB, 1e-2, 16.0, 131.2),
    ] {
        let packets = (bytes / (4 * KIB)) as u32;
        let mut most = 224;
        let (k, found) = loop {
            let stripes = packets.div_ceil(most);
            let k = packets.div_ceil(stripes);
            let gap = if burst > 1.0 && f64::from(stripes) < 4.0 * burst { (8.0 * burst) as u32 } else { 0 };
            match rows(k, stripes, loss, burst, gap, 1e-4) {
                Some(m) => break (f64::from(k), f64::from(m)),
                None => most -= 8,
            }
        };
        println!("{bytes} {loss} {burst}: {k} {found} {} ({percent})", 100.0 * found / k);
        let difference = found - percent / 100.0 * k;
        assert!(difference.abs() <= 1.5, "{bytes} {loss} {burst}: {found} rows for {k}, not {percent} %");
    }
}

#[test]
fn rows_at_their_limits() {
    assert_eq!(rows(224, 1, 0.0, 1.0, 0, 1e-4), Some(0));
    assert_eq!(rows(0, 1, 0.5, 1.0, 0, 1e-4), Some(0));
    assert_eq!(rows(241, 1, 0.0, 1.0, 0, 1e-4), None);
    assert_eq!(rows(224, 1_000, 0.2, 1.0, 0, 1e-4), None);
    assert_eq!(rows(10, 1, 1.0, 1.0, 0, 1e-4), None);
    assert_eq!(rows(10, 1, f64::NAN, 1.0, 0, 1e-4), None);
    assert_eq!(Shortfall::new(256, 1, 0.1, 1.0, 0).map(Iterator::count), Some(1));
    assert_eq!(Shortfall::new(0, 1, 0.1, 1.0, 0).map(Iterator::count), Some(257));
}

#[test]
fn more_of_anything_bad_takes_more_rows() {
    let with = |p: f64, burst: f64, stripes: u32| rows(200, stripes, p, burst, 0, 1e-4).unwrap_or(u32::MAX);
    assert!(with(1e-3, 1.0, 10) <= with(1e-2, 1.0, 10));
    assert!(with(1e-3, 1.0, 10) <= with(1e-3, 16.0, 10));
    assert!(with(1e-3, 1.0, 10) <= with(1e-3, 1.0, 1_000));
    // Far apart, bursts are single losses.
    assert_eq!(with(1e-3, 16.0, 1_000), with(1e-3, 1.0, 1_000));
}

/// Mean slowdown of packet-level simulation, 400 Gbit/s and 25 ms.
#[test]
fn hybrid_against_its_simulation() {
    let mut worst = (0.0f64, 0.0f64);
    for (bytes, means, tails) in [
        (4 * KIB, [1.0000, 1.0000, 1.0000, 1.0000, 1.0000], [1.0000, 1.0000, 1.0000, 1.0020, 1.0020]),
        (64 * KIB, [1.0000, 1.0000, 1.0000, 1.0000, 1.0002], [1.0000, 1.0000, 1.0000, 1.0020, 1.0020]),
        (128 * KIB, [1.0000, 1.0000, 1.0000, 1.0000, 1.0000], [1.0000, 1.0000, 1.0000, 1.0020, 1.0020]),
        (8 * MIB, [1.0000, 1.0000, 1.0000, 1.0000, 1.0002], [1.0000, 1.0000, 1.0001, 1.0020, 1.0021]),
        (128 * MIB, [1.0000, 1.0001, 1.0003, 1.0008, 1.0030], [1.0004, 1.0004, 1.0009, 1.0024, 1.0054]),
        (GIB, [1.0002, 1.0013, 1.0023, 1.0054, 1.0171], [1.0021, 1.0036, 1.0047, 1.0099, 1.0245]),
        (8 * GIB, [1.0001, 1.0004, 1.0007, 1.0024, 1.0150], [1.0006, 1.0011, 1.0016, 1.0038, 1.0184]),
    ] {
        for ((loss, mean), p999) in [1e-6, 1e-5, 1e-4, 1e-3, 1e-2].into_iter().zip(means).zip(tails) {
            let model = slowdown("hybrid", &long_haul(bytes, loss));
            println!("{bytes} {loss}: {:.4} ({mean}), {:.4} ({p999})", model.mean, model.p999);
            worst = (worst.0.max((model.mean - mean).abs()), worst.1.max((model.p999 - p999).abs()));
        }
    }
    println!("worst {worst:?}");
    assert!(worst.0 <= 0.004 && worst.1 <= 0.005, "{worst:?}");
}

#[test]
fn the_tail_of_a_long_message_is_its_last_round_trip() {
    let tail = Tail::new(&long_haul(8 * GIB, 1e-2));
    assert_eq!((tail.packets, tail.stripes, tail.k, tail.rows, tail.gap), (309_945, 1_384, 224, 16, 0));
    let small = Hybrid::new(&long_haul(4 * KIB, 1e-2)).tail();
    assert_eq!((small.packets, small.stripes, small.k, small.rows), (1, 1, 1, 2));
    assert_eq!(Tail::new(&long_haul(64 * KIB, 1e-4)).rows, 3);
    // Where 16 rows are too few, stripes get shorter.
    let lossy = Tail::new(&long_haul(GIB, 5e-2));
    assert!(lossy.k < 224 && lossy.rows > 16 && lossy.k + lossy.rows <= 240, "{lossy:?}");
}

/// Not a test of speed, which depends on the machine: `cargo test --release -- --ignored --nocapture how_long`.
#[test]
#[ignore = "a measurement"]
fn how_long_a_choice_takes() {
    for (k, stripes, p, burst) in
        [(224, 1_171, 1e-4, 1.0), (224, 1_171, 1e-3, 16.0), (224, 64, 1e-2, 16.0), (128, 1_171, 5e-2, 16.0)]
    {
        #[expect(clippy::disallowed_methods, reason = "a measurement")]
        let begin = std::time::Instant::now();
        for _ in 0..1_000 {
            std::hint::black_box(rows(std::hint::black_box(k), stripes, p, burst, 0, 1e-4));
        }
        println!("k={k} D={stripes} p={p} B={burst}: {:?}", begin.elapsed() / 1_000);
    }
}
