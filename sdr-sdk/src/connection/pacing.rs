//! When the next packets may leave: at the pace that congestion control gives, exact to the picosecond so that long
//! messages do not drift, and as long as its window is open.

#![forbid(unsafe_code)]

use super::ConnectionConfig;
use super::congestion::flight::Flight;
use super::congestion::{Controller, Echo, Losses, Start};
use super::frames::LossCount;
use crate::rtt::Sample;
use crate::types::Nanos;

/// Packets handed out in one run at most: what a segmented send can carry.
const MAX_RUN: u32 = 64;

/// A run takes at most this part of the round trip on the wire, so that the path sees no bursts.
const RUN_SHARE: u64 = 512;

/// A sender whose driver came late makes up for at most this much: longer delays than a busy host's are not the path's to
/// bear in one burst.
const MOST_LATE: Nanos = Nanos::from_millis(2);

/// The fastest pace of late is forgotten by this part with each stamp: half of it in some twenty round trips.
const FORGET: u64 = 1_024;

pub(super) struct Pacer {
    control: Box<dyn Controller>,
    /// What is on its way, where the control has a window.
    flight: Flight,
    window: Option<u64>,
    payload: u32,
    /// Picoseconds a full packet; zero without a rate.
    packet_ps: u64,
    /// The fastest pace of late.
    promise_ps: u64,
    rtt: Nanos,
    /// Newest stamp that came back, and what the receiver last told.
    heard: Option<Sample>,
    told: LossCount,
    /// There was more to send when the pace said no: what passes beyond `free_at` is lateness.
    held_back: bool,
    /// The wire is ours again from here on: nanoseconds, and picoseconds beyond.
    free_at: Nanos,
    free_ps: u64,
}

impl Pacer {
    /// For packets of `payload` bytes.
    pub(super) fn new(config: &ConnectionConfig, payload: u32, rtt: Nanos) -> Self {
        let control = config.congestion.start(&Start { rate: config.rate, payload, rtt });
        Self {
            packet_ps: control.pace(),
            promise_ps: control.pace(),
            window: control.window(),
            control,
            flight: Flight::default(),
            payload,
            rtt,
            heard: None,
            told: LossCount::default(),
            held_back: false,
            free_at: Nanos::ZERO,
            free_ps: 0,
        }
    }

    pub(super) fn packet_ps(&self) -> u64 {
        self.packet_ps
    }

    /// The pace that a message is announced with. A receiver waits for what should come at that pace: one that is announced
    /// too slow costs more time than one too fast costs packets, and the pace may rise while the message is sent.
    pub(super) fn promised_ps(&self) -> u64 {
        self.promise_ps
    }

    pub(super) fn spare_parity(&self) -> bool {
        self.control.spare_parity()
    }

    fn obey(&mut self) {
        (self.packet_ps, self.window) = (self.control.pace(), self.control.window());
        let forgotten = self.promise_ps.saturating_add(self.promise_ps / FORGET);
        self.promise_ps = self.packet_ps.min(forgotten);
    }

    /// The newest stamp that came back.
    pub(super) fn heard(&mut self, now: Nanos, sample: Option<Sample>) {
        let Some(s) = sample.filter(|_| sample != self.heard && self.window.is_some()) else { return };
        (self.heard, self.rtt) = (sample, s.rtt);
        let (passed, flight) = self.flight.came_back(s.sent);
        self.control.echo(now, &Echo { sent: s.sent, rtt: s.rtt, passed, flight });
        self.obey();
    }

    /// What the receiver saw of the path since the beginning; one that is older than another changes nothing.
    pub(super) fn told(&mut self, now: Nanos, count: &LossCount) {
        if count.packets <= self.told.packets || self.window.is_none() {
            return;
        }
        let news = Losses {
            packets: count.packets - self.told.packets,
            missing: count.missing.saturating_sub(self.told.missing),
            bursts: count.bursts.saturating_sub(self.told.bursts),
        };
        self.told = *count;
        self.control.losses(now, &news);
        self.obey();
    }

    /// Whether a stamp has to leave now, before what is sent from here on.
    pub(super) fn probe(&mut self, now: Nanos) -> bool {
        let due = self.probe_at().is_some_and(|t| t <= now);
        if due {
            self.flight.stamp(now, self.rtt);
        }
        due
    }

    /// When the next stamp has to leave.
    pub(super) fn probe_at(&self) -> Option<Nanos> {
        self.flight.stamp_at()
    }

    /// Full packets have `payload` bytes from now on; the rate and the window's bytes stay.
    pub(super) fn resize(&mut self, payload: u32) {
        self.control.resize(payload);
        let ps = u128::from(self.promise_ps) * u128::from(payload) / u128::from(self.payload.max(1));
        self.promise_ps = ps.try_into().unwrap_or(u64::MAX);
        self.payload = payload;
        (self.packet_ps, self.window) = (self.control.pace(), self.control.window());
        self.promise_ps = self.promise_ps.min(self.packet_ps);
    }

    /// Packets that the window has room for.
    fn room(&self) -> u64 {
        let room = |w: u64| w.saturating_sub(self.flight.bytes()) / u64::from(self.payload.max(1));
        self.window.map_or(u64::MAX, room)
    }

    /// Packets that may leave at `now` in one run; zero before [`free_at`](Self::free_at).
    pub(super) fn budget(&self, now: Nanos, rtt: Nanos) -> u32 {
        let most = self.room().min(MAX_RUN.into());
        if now < self.free_at || most == 0 {
            return 0;
        }
        if self.packet_ps == 0 {
            return most as u32;
        }
        let run = rtt.0.saturating_mul(1_000) / RUN_SHARE;
        let run = run.max(self.late(now).0 * 1_000);
        run.checked_div(self.packet_ps).unwrap_or(0).clamp(1, most) as u32
    }

    /// How late packets are that wait for the pace.
    fn late(&self, now: Nanos) -> Nanos {
        if self.held_back { now.since(self.free_at).min(MOST_LATE) } else { Nanos::ZERO }
    }

    /// Whether packets wait for the pace, from now until [`free_at`](Self::free_at). Waiting for the window is not lateness.
    pub(super) fn hold_back(&mut self, waiting: bool) {
        self.held_back = waiting && self.room() > 0;
    }

    /// When the next packets may leave; while the window is closed that is not known.
    pub(super) fn free_at(&self) -> Nanos {
        if self.room() > 0 { self.free_at } else { Nanos::MAX }
    }

    /// `packets` left at `now`. Time in which there was nothing to send is not made up for.
    pub(super) fn sent(&mut self, now: Nanos, packets: u32) {
        if self.window.is_some() {
            self.flight.sent(u64::from(packets) * u64::from(self.payload));
        }
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

    fn pacer(rate: Option<u64>, payload: u32) -> Pacer {
        let config = ConnectionConfig { rate, ..ConnectionConfig::default() };
        Pacer::new(&config, payload, Nanos::ZERO)
    }

    #[test]
    fn a_rate_is_kept_over_a_million_packets() {
        // 4 KiB at 400 Gbit/s: 81.92 ns.
        let mut p = pacer(Some(400_000_000_000), 4_096);
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
        let mut p = pacer(Some(1_000_000_000), 8_192);
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
        let mut p = pacer(Some(1_000_000_000), 4_096);
        assert_eq!(p.budget(Nanos(0), Nanos::from_millis(10)), 1);
        p.sent(Nanos::from_secs(1), 1);
        assert_eq!(p.budget(Nanos::from_secs(1), Nanos::from_millis(10)), 0);
        assert_eq!(p.free_at(), Nanos::from_secs(1) + Nanos(32_768));
        assert_eq!(pacer(None, 4_096).budget(Nanos::ZERO, Nanos::ZERO), 64);
        p.resize(1_152);
        assert_eq!((p.packet_ps(), p.promised_ps()), (9_216_000, 9_216_000));
    }
}
