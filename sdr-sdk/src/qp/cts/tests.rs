use super::*;
use proptest::prelude::*;

const RTT: Nanos = us(51_200);
const TINY: Nanos = us(10);
const HUGE: Nanos = Nanos::from_secs(60);

const fn us(n: u64) -> Nanos {
    Nanos::from_micros(n)
}

const fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

#[test]
fn cts_leaves_at_once_and_again_every_quarter_until_echoed() {
    let mut c = CtsRepeater::new(Seq(u64::MAX - 1));
    let at = |n: u64| Seq(u64::MAX - 1).plus(n);
    assert_eq!((c.wake_at(), c.first(ms(9))), (None, None));
    c.grant(at(4));
    assert_eq!(c.first(ms(1)), Some(at(0)));
    c.sent(ms(1), RTT, 4);
    assert_eq!((c.wake_at(), c.first(ms(2))), (Some(ms(1) + us(12_800)), None));
    // New grants leave at once, alone, and do not put the repetition off.
    c.grant(at(6));
    assert_eq!(c.first(ms(10)), Some(at(4)));
    c.sent(ms(10), RTT, 2);
    assert_eq!(c.wake_at(), Some(ms(1) + us(12_800)));
    // The repetition starts at the oldest that is not echoed.
    assert!(c.echo(at(1)));
    assert_eq!(c.first(us(13_800)), Some(at(1)));
    c.sent(ms(20), RTT, 5);
    assert_eq!((c.wake_at(), c.first(ms(21))), (Some(ms(20) + us(12_800)), None));
    assert!(c.echo(at(6)));
    assert_eq!(c.wake_at(), None);
    // Late, duplicated and impossible echoes.
    assert!(c.echo(at(2)) && c.echo(at(6)) && !c.echo(at(7)));
    assert_eq!(c.wake_at(), None);
    c.grant(at(3));
    assert_eq!((c.granted, c.wake_at()), (at(6), None));
}

#[test]
fn a_cts_round_takes_several_datagrams() {
    let mut c = CtsRepeater::new(Seq(0));
    c.grant(Seq(300));
    for (first, left) in [(0, 128), (128, 128), (256, 44)] {
        assert_eq!(c.first(ms(1)), Some(Seq(first)));
        c.sent(ms(1), RTT, left);
    }
    assert_eq!(c.first(ms(1)), None);
    // A datagram without room for entries changes nothing.
    c.sent(ms(50), RTT, 0);
    assert_eq!(c.first(ms(50)), Some(Seq(0)));
    c.sent(ms(50), RTT, 128);
    assert_eq!(c.first(ms(50)), Some(Seq(128)));
    // An echo in the middle of a round skips what it covers.
    assert!(c.echo(Seq(200)));
    assert_eq!(c.first(ms(50)), Some(Seq(200)));
    c.sent(ms(51), RTT, 128);
    assert_eq!(c.wake_at(), Some(ms(51) + us(12_800)));

    for (rtt, wait) in [(Nanos::ZERO, ms(1)), (TINY, ms(1)), (us(100), ms(1)), (HUGE, ms(1_000))] {
        let mut c = CtsRepeater::new(Seq(0));
        c.grant(Seq(1));
        c.sent(ms(1), rtt, 1);
        assert_eq!(c.wake_at(), Some(ms(1) + wait));
    }
}

proptest! {
    /// Whatever happens, the grants that an honest peer lacks are due sooner or later.
    #[test]
    fn cts_never_forgets(steps in proptest::collection::vec((0..4u8, 0..40u64, 0..30_000_000u64), 0..200), start: u64) {
        let mut c = CtsRepeater::new(Seq(start));
        let (mut now, mut granted, mut held) = (Nanos::ZERO, 0u64, 0u64);
        for (kind, n, dt) in steps {
            now += Nanos(dt);
            match kind {
                0 => {
                    granted += n;
                    c.grant(Seq(start).plus(granted));
                }
                1 => prop_assert!(c.echo(Seq(start).plus(held.saturating_sub(n)))),
                lost_or_not => {
                    if let Some(first) = c.first(now) {
                        let first = first.distance(Seq(start)) as u64;
                        let left = n.min(granted - first);
                        c.sent(now, RTT, left);
                        if lost_or_not == 2 && first <= held {
                            held = held.max(first + left);
                        }
                    }
                }
            }
            let echoed = c.echoed.distance(Seq(start)) as u64;
            prop_assert_eq!(c.wake_at().is_none(), echoed == granted);
            prop_assert!(c.wake_at().is_none_or(|t| t <= now + us(12_800)));
        }
    }
}
