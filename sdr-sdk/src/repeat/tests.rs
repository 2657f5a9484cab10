use super::*;

const fn us(n: u64) -> Nanos {
    Nanos::from_micros(n)
}

const fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// 512 us * 100: RTT/512 is 100 us, RTT/128 400 us, RTT/8 6.4 ms, RTT/4 12.8 ms.
const RTT: Nanos = us(51_200);
const TINY: Nanos = us(10);
const HUGE: Nanos = Nanos::from_secs(3_600);

/// Instants at which a DONE leaves when it always leaves when due.
fn done_schedule(rtt: Nanos, times: usize) -> Vec<Nanos> {
    let mut d = DoneRepeater::new(ms(1));
    (0..times)
        .map(|_| {
            let at = d.wake_at().unwrap();
            assert!(d.due(at) && !d.due(Nanos(at.0 - 1)));
            d.sent(at, rtt);
            at - ms(1)
        })
        .collect()
}

#[test]
fn report_after_32_packets_and_the_interval() {
    let mut p = ReportPacer::new();
    assert_eq!(p.wake_at(), None);
    p.arrived(1, 4_096);
    assert!(p.due(ms(5)));
    p.sent(ms(5), RTT);
    assert_eq!(p.wake_at(), None);
    // Few, on a slow path: the sender's timers do not wait for more.
    p.arrived(31, 31 * 4_096);
    assert_eq!(p.wake_at(), Some(ms(5) + us(12_800)));
    p.arrived(1, 4_096);
    // RTT/512 later, not before.
    assert_eq!(p.wake_at(), Some(ms(5) + us(100)));
    assert!(!p.due(ms(5) + us(99)) && p.due(ms(5) + us(100)));
    // Late, and much arrived meanwhile: one report, and the next counts from there.
    p.arrived(1_000, 0);
    p.sent(ms(9), RTT);
    assert_eq!(p.wake_at(), None);
    p.arrived(32, 0);
    assert_eq!(p.wake_at(), Some(ms(9) + us(100)));
}

#[test]
fn what_is_urgent_needs_no_packets_but_the_interval() {
    let mut p = ReportPacer::new();
    p.sent(ms(5), RTT);
    p.set_urgent(true);
    assert_eq!(p.wake_at(), Some(ms(5) + us(100)));
    assert_eq!(p.budget(), MAX_CONTROL, "and no more bytes than others");
    p.sent(ms(5) + us(100), RTT);
    assert_eq!(p.wake_at(), None, "once");
    p.set_urgent(true);
    p.set_urgent(false);
    assert_eq!(p.wake_at(), None);
}

#[test]
fn report_every_quarter_round_trip_while_something_is_missing() {
    let mut p = ReportPacer::new();
    p.set_missing(true);
    assert!(p.due(Nanos::ZERO));
    p.sent(ms(1), RTT);
    assert_eq!(p.wake_at(), Some(ms(1) + us(12_800)));
    p.arrived(5, 0);
    assert_eq!(p.wake_at(), Some(ms(1) + us(12_800)));
    p.arrived(27, 0);
    assert_eq!(p.wake_at(), Some(ms(1) + us(100)));
    p.sent(ms(2), RTT);
    p.set_missing(false);
    assert_eq!(p.wake_at(), None);
    // Missing again, long after the last report: at once.
    p.set_missing(true);
    assert_eq!(p.wake_at(), Some(ms(2) + us(12_800)));
    assert!(p.due(ms(100)));
    p.sent(ms(100), RTT);
    assert_eq!(p.wake_at(), Some(ms(100) + us(12_800)));
}

#[test]
fn report_intervals_stay_sensible() {
    for (rtt, packets, missing) in [
        (Nanos::ZERO, us(20), us(20)),
        (TINY, us(20), us(20)),
        (us(800), us(20), us(200)),
        (HUGE, ms(1_000), ms(1_000)),
    ] {
        let mut p = ReportPacer::new();
        p.sent(ms(1), rtt);
        p.set_missing(true);
        assert_eq!(p.wake_at(), Some(ms(1) + missing));
        p.set_missing(false);
        p.arrived(32, 0);
        assert_eq!(p.wake_at(), Some(ms(1) + packets));
    }
}

#[test]
fn report_bytes_are_a_hundredth_of_the_data() {
    let mut p = ReportPacer::new();
    assert_eq!(p.budget(), MAX_CONTROL);
    p.arrived(10, 120_000);
    assert_eq!(p.budget(), 1_200);
    p.arrived(10, 120_100);
    assert_eq!(p.budget(), 2_401);
    p.sent(ms(1), RTT);
    assert_eq!(p.budget(), MAX_CONTROL);
    p.arrived(u64::MAX, u64::MAX);
    p.arrived(u64::MAX, u64::MAX);
    assert_eq!(p.budget() as u64, u64::MAX / 100);
}

#[test]
fn done_follows_its_four_phases() {
    let at = done_schedule(RTT, 500);
    assert_eq!(at[..5], [us(0), us(100), us(200), us(300), us(400)]);
    // Then every 400 us up to 3 RTT = 153.6 ms.
    for (n, t) in at[4..388].iter().enumerate() {
        assert_eq!(*t, us(400 * (n as u64 + 1)));
    }
    assert_eq!(at[387], us(153_600));
    let backoff: Vec<_> = at[387..].windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(
        backoff[..9],
        [6_400, 12_800, 25_600, 51_200, 102_400, 204_800, 409_600, 819_200, 1_000_000].map(us)
    );
    assert!(backoff[9..].iter().all(|d| *d == ms(1_000)));
}

#[test]
fn done_intervals_stay_sensible() {
    // 3 RTT are over before the quick repetitions are: they are made nevertheless, then backoff from 10 us.
    let at = done_schedule(TINY, 10);
    assert_eq!(at, [0, 10, 20, 30, 40, 50, 70, 110, 190, 350].map(us));
    assert_eq!(done_schedule(Nanos::ZERO, 10), at);
    let at = done_schedule(HUGE, 10);
    assert!(at.windows(2).all(|w| w[1] - w[0] == ms(1_000)));
    done_schedule(Nanos::MAX, 10);
}

#[test]
fn a_late_done_makes_no_burst_and_a_closed_one_none_at_all() {
    let mut d = DoneRepeater::new(ms(1));
    d.sent(ms(50), RTT);
    assert_eq!(d.wake_at(), Some(ms(50) + us(100)));
    d.sent(ms(60), RTT);
    assert_eq!(d.wake_at(), Some(ms(60) + us(100)));
    for _ in 0..3 {
        d.sent(ms(60), RTT);
    }
    assert_eq!(d.wake_at(), Some(ms(60) + us(400)));
    // Stopped until after 3 RTT: straight into the backoff, counted from then.
    d.sent(ms(2_000), RTT);
    assert_eq!(d.wake_at(), Some(ms(2_000) + us(6_400)));
    // A round trip that grows does not lead back to the faster phase.
    d.sent(ms(2_010), Nanos::from_secs(60));
    assert_eq!(d.wake_at(), Some(ms(2_010) + us(12_800)));
    d.closed();
    assert_eq!(d.wake_at(), None);
    d.sent(ms(3_000), RTT);
    assert!(!d.due(Nanos::MAX));
}

#[test]
fn announce_goes_first_and_is_repeated_until_mentioned() {
    let mut a = AnnounceRepeater::new(ms(3));
    assert!(!a.announced() && a.due(ms(3)) && !a.due(ms(2)));
    a.sent(ms(4), RTT);
    assert!(a.announced());
    // RTT/512, RTT/128, RTT/32, then every RTT/8, each counted from when it left.
    assert_eq!(a.wake_at(), Some(ms(4) + us(100)));
    a.sent(ms(5), RTT);
    assert_eq!(a.wake_at(), Some(ms(5) + us(400)));
    a.sent(ms(6), RTT);
    assert_eq!(a.wake_at(), Some(ms(6) + us(1_600)));
    a.sent(ms(8), RTT);
    assert_eq!(a.wake_at(), Some(ms(8) + us(6_400)));
    a.sent(ms(400), RTT);
    assert_eq!(a.wake_at(), Some(ms(400) + us(6_400)));
    a.mentioned();
    assert_eq!(a.wake_at(), None);
    a.sent(ms(500), RTT);
    assert!(a.announced() && !a.due(Nanos::MAX));

    let quick = us(50);
    for (rtt, waits) in [
        (Nanos::ZERO, [quick, quick, quick, ms(1)]),
        (TINY, [quick, quick, quick, ms(1)]),
        (ms(8), [quick, Nanos(62_500), us(250), ms(1)]),
        (ms(80), [Nanos(156_250), us(625), us(2_500), ms(10)]),
        (HUGE, [ms(1_000); 4]),
    ] {
        let mut a = AnnounceRepeater::new(ms(0));
        for wait in waits {
            a.sent(ms(0), rtt);
            assert_eq!(a.wake_at(), Some(wait));
        }
    }
}
