//! The law alone, against a path of one number: a queue is what the window has beyond it.

use super::flight::Flight;
use super::*;

const PAYLOAD: u32 = 4_096;
const BASE: Nanos = Nanos::from_millis(10);

fn start() -> Start {
    Start { rate: None, payload: PAYLOAD, rtt: BASE }
}

/// A connection alone on a path that holds `packets` in `base`. Returns the windows after each round trip, in packets.
fn alone(c: &mut dyn Controller, now: &mut Nanos, rounds: u32, base: Nanos, packets: f64) -> Vec<f64> {
    let mut windows = Vec::new();
    let bytes = packets * f64::from(PAYLOAD);
    for _ in 0..rounds {
        for _ in 0..16 {
            let window = c.window().expect("a window") as f64;
            let rtt = Nanos((base.0 as f64 * (window / bytes).max(1.0)) as u64);
            *now += Nanos(rtt.0 / 16);
            let passed = (window / 16.0) as u64;
            c.echo(*now, &Echo { sent: Nanos(now.0 - rtt.0), rtt, passed, flight: window as u64 });
        }
        windows.push(c.window().expect("a window") as f64 / f64::from(PAYLOAD));
    }
    windows
}

#[test]
fn fixed_is_the_rate_and_delay_never_exceeds_it() {
    let rate = Start { rate: Some(400_000_000_000), ..start() };
    assert_eq!(Fixed.start(&rate).pace(), 81_920);
    assert_eq!((Fixed.start(&start()).pace(), Fixed.start(&start()).window()), (0, None));
    let slow = Start { rate: Some(1_000_000), ..start() };
    assert_eq!(Delay.start(&slow).pace(), 32_768_000_000);
}

#[test]
fn the_window_stays_about_what_the_path_holds() {
    for packets in [100.0, 3_000.0, 100_000.0] {
        let mut c = Delay.start(&start());
        let mut now = Nanos::from_secs(1);
        alone(&mut *c, &mut now, 100, BASE, packets);
        let windows = alone(&mut *c, &mut now, 200, BASE, packets);
        let mean = windows.iter().sum::<f64>() / windows.len() as f64 / packets;
        let most = windows.iter().copied().fold(0.0, f64::max) / packets;
        assert!(
            (0.9..1.1).contains(&mean) && most < 1.2,
            "{packets} packets: mean {mean:.3}, most {most:.3}"
        );
    }
}

#[test]
fn a_path_that_becomes_longer_is_believed() {
    let mut c = Delay.start(&start());
    let mut now = Nanos::from_secs(1);
    alone(&mut *c, &mut now, 100, BASE, 3_000.0);
    // Twice as long, so it holds twice as much; a window alone cannot tell that from a queue.
    let windows = alone(&mut *c, &mut now, 150, Nanos(BASE.0 * 2), 6_000.0);
    let last = windows.iter().rev().take(50).sum::<f64>() / 50.0;
    assert!((5_000.0..6_600.0).contains(&last), "window {last:.0} of 6,000 packets");
}

#[test]
fn chance_is_no_queue_and_a_flood_is_one() {
    let mut c = Delay.start(&start());
    let mut now = Nanos::from_secs(1);
    alone(&mut *c, &mut now, 100, BASE, 3_000.0);
    // One in a hundred, single or in bursts: the window goes on as without.
    for bursts in [30, 2] {
        let mut least = f64::MAX;
        for _ in 0..40 {
            c.losses(now, &Losses { packets: 3_000, missing: 30, bursts });
            least = alone(&mut *c, &mut now, 1, BASE, 3_000.0).into_iter().fold(least, f64::min);
        }
        assert!(least > 2_400.0, "{bursts} bursts: window {least:.0}");
    }
    // A third, and no queue in sight: it is too short to be seen.
    let mut last = 0.0;
    for _ in 0..60 {
        c.losses(now, &Losses { packets: 1_000, missing: 330, bursts: 20 });
        last = alone(&mut *c, &mut now, 1, BASE, 1e9)[0];
    }
    assert!(last < 3_000.0, "window {last:.0}");
}

#[test]
fn stamps_count_everything_before_them() {
    let mut f = Flight::default();
    assert_eq!(f.stamp_at(), None);
    f.sent(10_000);
    assert_eq!(f.stamp_at(), Some(Nanos::ZERO));
    f.stamp(Nanos(1_000), BASE);
    f.sent(5_000);
    f.stamp(Nanos(2_000), BASE);
    assert_eq!(f.bytes(), 15_000);
    // Of another datagram between the two: it speaks for the first.
    assert_eq!(f.came_back(Nanos(1_500)), (10_000, 10_000));
    assert_eq!(f.came_back(Nanos(1_600)), (0, 10_000));
    assert_eq!(f.came_back(Nanos(9_000)), (5_000, 15_000));
    assert_eq!((f.bytes(), f.stamp_at()), (0, None));
}

#[test]
fn stamps_are_rarer_than_packets_and_their_number_is_bounded() {
    let mut f = Flight::default();
    f.sent(4_096);
    f.stamp(Nanos::ZERO, BASE);
    let interval = Nanos(BASE.0 / 32);
    assert_eq!(f.stamp_at(), Some(interval.mul_div(8, 1)), "little was sent since");
    f.sent(16 << 10);
    assert_eq!(f.stamp_at(), Some(interval));
    for i in 1..10_000 {
        f.stamp(Nanos(i), BASE);
    }
    assert_eq!(f.came_back(Nanos(10_000)).0, 20_480);
}
