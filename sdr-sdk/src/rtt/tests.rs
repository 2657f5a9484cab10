use super::*;
use proptest::prelude::*;

const fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// A fresh echo that gives `sample` at `now`.
fn feed(e: &mut RttEstimator, now: Nanos, sample: Nanos) {
    assert_eq!(e.on_echo(now, now - sample, Nanos::ZERO), Some(sample));
}

#[test]
fn says_the_initial_value_until_the_first_sample() {
    let mut e = RttEstimator::new(ms(100));
    assert_eq!((e.srtt(), e.rttvar(), e.min_rtt(), e.peak_rtt()), (ms(100), ms(50), ms(100), ms(100)));
    assert_eq!(e.samples(), 0);
    feed(&mut e, ms(500), ms(20));
    assert_eq!((e.srtt(), e.rttvar(), e.min_rtt(), e.peak_rtt()), (ms(20), ms(10), ms(20), ms(20)));
    assert_eq!(e.samples(), 1);
}

#[test]
fn smooths_as_rfc_6298_says() {
    let mut e = RttEstimator::new(ms(1));
    feed(&mut e, ms(1_000), ms(80));
    feed(&mut e, ms(1_001), ms(40));
    // rttvar = 3/4 * 40 + 1/4 * |80 - 40|, srtt = 7/8 * 80 + 1/8 * 40.
    assert_eq!((e.srtt(), e.rttvar()), (ms(75), ms(40)));
    assert_eq!((e.min_rtt(), e.peak_rtt()), (ms(40), ms(80)));
}

#[test]
fn the_hold_is_left_out() {
    let mut e = RttEstimator::new(ms(1));
    assert_eq!(e.on_echo(ms(1_000), ms(700), ms(200)), Some(ms(100)));
}

#[test]
fn impossible_and_stale_echoes_are_ignored() {
    let mut e = RttEstimator::new(ms(100));
    let now = Nanos::from_secs(100);
    assert_eq!(e.on_echo(now, now + Nanos(1), Nanos::ZERO), None);
    assert_eq!(e.on_echo(now, Nanos::MAX, Nanos::MAX), None);
    assert_eq!(e.on_echo(now, now - ms(5), ms(5) + Nanos(1)), None);
    assert_eq!(e.on_echo(now, Nanos::ZERO, Nanos::MAX), None);
    assert_eq!(e.on_echo(now, now - MAX_SAMPLE - Nanos(1), Nanos::ZERO), None);
    // 10 us of round trip cannot be told after 20 ms of hold.
    assert_eq!(e.on_echo(now, now - ms(20) - Nanos::from_micros(10), ms(20)), None);
    assert_eq!((e.samples(), e.srtt()), (0, ms(100)));

    assert_eq!(e.on_echo(now, now - MAX_SAMPLE, Nanos::ZERO), Some(MAX_SAMPLE));
    // The same again, an older one, and the same held longer: only the last is news.
    assert_eq!(e.on_echo(now + ms(9), now - MAX_SAMPLE, Nanos::ZERO), None);
    assert_eq!(e.on_echo(now, now - MAX_SAMPLE - Nanos(1), ms(9)), None);
    assert_eq!(e.on_echo(now + ms(9), now - MAX_SAMPLE, ms(9)), Some(MAX_SAMPLE));
    assert_eq!(e.samples(), 2);
}

#[test]
fn a_step_up_is_followed_and_the_old_minimum_ages_out() {
    let mut e = RttEstimator::new(ms(1));
    let mut now = Nanos::from_secs(20);
    feed(&mut e, now, ms(10));
    for n in 1..=18 {
        now += ms(200);
        feed(&mut e, now, ms(110));
        assert_eq!((e.min_rtt(), e.peak_rtt()), (ms(10), ms(110)));
        assert_eq!(n == 18, e.srtt() >= ms(100));
    }
    feed(&mut e, Nanos::from_millis(29_999), ms(110));
    assert_eq!(e.min_rtt(), ms(10));
    feed(&mut e, Nanos::from_secs(30), ms(110));
    assert_eq!(e.min_rtt(), ms(110));
}

#[test]
fn a_step_down_lowers_the_minimum_at_once_and_keeps_the_peak() {
    let mut e = RttEstimator::new(ms(1));
    feed(&mut e, Nanos::from_secs(20), ms(110));
    feed(&mut e, Nanos::from_secs(21), ms(10));
    assert_eq!((e.min_rtt(), e.peak_rtt()), (ms(10), ms(110)));
    for n in 1..=17 {
        feed(&mut e, Nanos::from_millis(21_000 + n), ms(10));
    }
    assert!(e.srtt() <= ms(20));
    feed(&mut e, Nanos::from_secs(500), ms(11));
    assert_eq!((e.min_rtt(), e.peak_rtt()), (ms(11), ms(110)));
}

proptest! {
    #[test]
    fn never_leaves_the_range_of_what_was_taken(
        echoes in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), 0..4u8), 0..200),
    ) {
        let mut e = RttEstimator::new(ms(100));
        let mut taken = Vec::new();
        for (now, echo, hold, kind) in echoes {
            let (echo, hold) = match kind {
                0 => (echo, hold),
                1 => (now.saturating_sub(echo % (70 << 30)), hold % (1 << 30)),
                _ => (now.saturating_sub(echo % (1 << 30)), hold % (1 << 10)),
            };
            let got = e.on_echo(Nanos(now), Nanos(echo), Nanos(hold));
            if let Some(s) = got {
                prop_assert!(s <= MAX_SAMPLE && echo <= now && hold <= now - echo);
                taken.push(s);
            }
            prop_assert_eq!(e.samples(), taken.len() as u64);
            if let (Some(lo), Some(hi)) = (taken.iter().min(), taken.iter().max()) {
                prop_assert!(e.srtt().0 + 8 >= lo.0 && e.srtt() <= *hi);
                prop_assert!(e.min_rtt() >= *lo && e.min_rtt() <= *hi);
                prop_assert_eq!(e.peak_rtt(), *hi);
            }
        }
    }
}
