//! When the next packets may leave: a fixed rate, exact to the picosecond so that long messages do not drift.

#![forbid(unsafe_code)]

use crate::types::Nanos;

/// Packets handed out in one run at most: what a segmented send can carry.
const MAX_RUN: u32 = 64;

/// A run takes at most this part of the round trip on the wire, so that the path sees no bursts.
const RUN_SHARE: u64 = 512;

/// A sender whose driver came late makes up for at most this much: longer delays than a busy host's are not the path's to
/// bear in one burst.
const MOST_LATE: Nanos = Nanos::from_millis(2);

pub(super) struct Pacer {
    /// Picoseconds a full packet; zero without a rate.
    packet_ps: u64,
    /// There was more to send when the pace said no: what passes beyond `free_at` is lateness.
    held_back: bool,
    /// The wire is ours again from here on: nanoseconds, and picoseconds beyond.
    free_at: Nanos,
    free_ps: u64,
}

impl Pacer {
    /// `rate` in payload bits a second, `payload` bytes a packet.
    pub(super) fn new(rate: Option<u64>, payload: u32) -> Self {
        let packet_ps =
            rate.map_or(0, |r| (payload as u128 * 8 * 1_000_000_000_000 / r.max(1) as u128) as u64);
        Self { packet_ps, held_back: false, free_at: Nanos::ZERO, free_ps: 0 }
    }

    pub(super) fn packet_ps(&self) -> u64 {
        self.packet_ps
    }

    /// Full packets have `to` bytes from now on, no longer `from`; the rate stays.
    pub(super) fn resize(&mut self, from: u32, to: u32) {
        let ps = u128::from(self.packet_ps) * u128::from(to) / u128::from(from.max(1));
        self.packet_ps = ps.try_into().unwrap_or(u64::MAX);
    }

    /// Packets that may leave at `now` in one run; zero before [`free_at`](Self::free_at).
    pub(super) fn budget(&self, now: Nanos, rtt: Nanos) -> u32 {
        if now < self.free_at {
            return 0;
        }
        if self.packet_ps == 0 {
            return MAX_RUN;
        }
        let run = rtt.0.saturating_mul(1_000) / RUN_SHARE;
        run.max(self.late(now).0 * 1_000).checked_div(self.packet_ps).unwrap_or(0).clamp(1, MAX_RUN as u64)
            as u32
    }

    /// How late packets are that wait for the pace.
    fn late(&self, now: Nanos) -> Nanos {
        if self.held_back { now.since(self.free_at).min(MOST_LATE) } else { Nanos::ZERO }
    }

    /// Whether packets wait for the pace, from now until [`free_at`](Self::free_at).
    pub(super) fn hold_back(&mut self, waiting: bool) {
        self.held_back = waiting;
    }

    /// When the next packets may leave.
    pub(super) fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// `packets` left at `now`. Time in which there was nothing to send is not made up for.
    pub(super) fn sent(&mut self, now: Nanos, packets: u32) {
        let start = Nanos(now.0 - self.late(now).0.min(now.0));
        if self.free_at < start {
            // Within one nanosecond the wire was busy all along: keep the fraction.
            let busy = start.since(self.free_at).0 <= 1;
            (self.free_at, self.free_ps) = (start, if busy { self.free_ps } else { 0 });
        }
        let ps = self.free_ps + packets as u64 * self.packet_ps;
        self.free_at += Nanos(ps / 1_000);
        self.free_ps = ps % 1_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_a_million_packets() {
        // 4 KiB at 400 Gbit/s: 81.92 ns.
        let mut p = Pacer::new(Some(400_000_000_000), 4_096);
        assert_eq!(p.packet_ps(), 81_920);
        let rtt = Nanos::from_millis(25);
        let (mut now, mut left) = (Nanos(5), 1_000_000u32);
        while left > 0 {
            now = now.max(p.free_at());
            let n = p.budget(now, rtt).min(left);
            assert!((1..=64).contains(&n));
            p.sent(now, n);
            left -= n;
        }
        assert_eq!(p.free_at(), Nanos(5 + 81_920_000));
    }

    #[test]
    fn a_late_driver_keeps_the_rate_and_a_very_late_one_sends_no_long_burst() {
        let mut p = Pacer::new(Some(1_000_000_000), 8_192);
        let rtt = Nanos::from_millis(10);
        let (mut now, mut sent) = (Nanos::from_secs(1), 0u64);
        let end = now + Nanos::from_secs(1);
        while now < end {
            while let n @ 1.. = p.budget(now, rtt) {
                p.sent(now, n);
                sent += u64::from(n);
            }
            p.hold_back(true);
            now = p.free_at() + Nanos::from_micros(120);
        }
        let rate = sent * 8_192 * 8;
        assert!((998_000_000..=1_002_000_000).contains(&rate), "{rate} bit/s");

        now += Nanos::from_secs(1);
        let mut burst = 0;
        while let n @ 1.. = p.budget(now, rtt) {
            p.sent(now, n);
            burst += n;
        }
        assert!((30..=32).contains(&burst), "{burst} packets of 65.5 us for 2 ms");
        p.hold_back(false);
        now += Nanos::from_secs(1);
        assert_eq!(p.budget(now, rtt), 1, "there was nothing to send");
    }

    #[test]
    fn slow_links_send_single_packets_and_idle_time_is_lost() {
        let mut p = Pacer::new(Some(1_000_000_000), 4_096);
        assert_eq!(p.budget(Nanos(0), Nanos::from_millis(10)), 1);
        p.sent(Nanos::from_secs(1), 1);
        assert_eq!(p.budget(Nanos::from_secs(1), Nanos::from_millis(10)), 0);
        assert_eq!(p.free_at(), Nanos::from_secs(1) + Nanos(32_768));
        p.resize(4_096, 1_152);
        assert_eq!(p.packet_ps(), 9_216_000);
        assert_eq!(Pacer::new(None, 4_096).budget(Nanos::ZERO, Nanos::ZERO), 64);
    }
}
