//! A window that keeps the queue short, from round trips.
//!
//! # The law
//!
//! The window is what may be on its way. As long as the queue (round trip less the smallest) is within its target, a
//! twentieth of the round trip, the window grows by the same number of bytes a round trip in every connection; beyond, it
//! is cut to what fits the path without the queue, less a twelfth. That is Chiu and Jain's additive increase and
//! multiplicative decrease on the signal of TIMELY (SIGCOMM 2015) and Swift (SIGCOMM 2020), with a window as in Swift: a rate alone
//! integrates its error into the queue, while the queue of a window is the excess of the sum of windows over what the path
//! holds, so that it is a measurement of that sum.
//!
//! Three things differ from Swift. **Growth accelerates**: four packets a round trip after a cut, then half as much again each
//! round trip, up to an eighth of the window. All who share a queue see it overflow its target together and count from
//! the same cut, so the growth is the same in all of them; and cycles have a few tens of round trips from 100 Mbit/s to
//! 400 Gbit/s, where one packet a round trip would take minutes. **Cuts empty the queue**: every cycle shows everybody the true
//! smallest round trip, so that none takes others' standing queue for the path; BBR (CACM 2017) has to stop sending for
//! that. Only where the base was not seen for long does a connection halve its window for a round trip and look, and
//! believes what it finds: a path that became longer is accepted so. **Losses** are not a signal unless they are more than
//! chance explains ([`Drops`]): then a queue is shorter than the target, the window shrinks by what was
//! lost, and the target to half of the queue that overflowed.
//!
//! The start doubles the window each round trip until the queue exceeds twice its target or overflows, then goes to what was on its way when
//! the queue was measured, less the queue.
//!
//! The pace is the window over the round trip and a twentieth more: packets are spread, and the window decides.

use super::drops::Drops;
use super::queue::Queue;
use super::{CongestionControl, Controller, Echo, Losses, Start, packet_ps};
use crate::types::Nanos;

/// Packets in the first round trip.
const INITIAL: f64 = 32.0;

/// Least window, in packets: less would wait for single stamps.
const LEAST: f64 = 2.0;

/// A cut leaves the path this part emptier than full.
const MARGIN: f64 = 1.0 / 12.0;

/// Packets that a window grows by in the first round trip after a cut.
const GROWTH: f64 = 4.0;

/// Growth of the growth, a round trip.
const ACCELERATION: f64 = 1.5;

/// Most growth a round trip, as a part of the window: short windows take smaller steps.
const MOST_GROWTH: f64 = 1.0 / 8.0;

/// A start goes on until the queue is so many times the target: others, who cut at the target, make room.
const START_TARGETS: u64 = 2;

/// The window may be that much more than what the pace fills.
const PACE_GAIN: f64 = 1.05;

/// Without a glimpse of the base for so long, it is looked for.
const DOUBT: Nanos = Nanos::from_secs(5);

/// Or after so many cuts in a row: the queue is not ours, or no queue.
const CUTS: u32 = 6;

/// Round trips of growth after a cut from which on an overflow says something about the queue.
const SETTLED: u32 = 3;

/// Congestion control by delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay;

impl CongestionControl for Delay {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn start(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Window::new(start))
    }
}

/// A look at the path with a small window.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Stamps from here on see it.
    from: Nanos,
    least: Nanos,
    /// The window afterwards.
    window: f64,
}

/// The state of one connection. Bytes are real numbers: growth a stamp may be less than one.
#[derive(Debug)]
struct Window {
    packet: f64,
    rate: Option<u64>,
    /// Pace that is never exceeded.
    most_ps: u64,
    rtt: Nanos,
    window: f64,
    queue: Queue,
    drops: Drops,
    starting: bool,
    /// Stamps before it tell of the time before the last cut.
    judge_from: Nanos,
    /// Cuts without a stamp within the target between them.
    cuts: u32,
    /// Round trips since the cut, and the stamp that ends this one.
    rounds: u32,
    round_end: Nanos,
    /// Something was held back in this round; the longest queue in it.
    limited: bool,
    peak: Nanos,
    /// By single stamps: the longest queue in this round and in the one before, when what is told of now was lost.
    longest: (Nanos, Nanos),
    /// A queue of this length overflowed.
    overflow: Option<Nanos>,
    look: Option<Look>,
}

impl Window {
    fn new(start: &Start) -> Self {
        let packet = f64::from(start.payload.max(1));
        Self {
            packet,
            rate: start.rate,
            most_ps: packet_ps(start.rate, start.payload),
            rtt: start.rtt,
            window: INITIAL * packet,
            queue: Queue::new(),
            drops: Drops::default(),
            starting: true,
            judge_from: Nanos::ZERO,
            cuts: 0,
            rounds: 0,
            round_end: Nanos::ZERO,
            limited: false,
            peak: Nanos::ZERO,
            longest: (Nanos::ZERO, Nanos::ZERO),
            overflow: None,
            look: None,
        }
    }

    fn target(&self) -> Nanos {
        let target = self.queue.target();
        let target = self.overflow.map_or(target, |o| target.min(Nanos(o.0 / 2)));
        if self.starting { target.mul_div(START_TARGETS, 1) } else { target }
    }

    /// Bytes that the window grows by in a round trip.
    fn growth(&self) -> f64 {
        let most = (self.window * MOST_GROWTH).max(self.packet);
        (GROWTH * self.packet * ACCELERATION.powi(self.rounds.min(64) as i32)).min(most)
    }

    /// Shrinks the window to `window`; what is on its way has to drain before stamps show it.
    fn cut(&mut self, now: Nanos, window: f64) {
        let before = self.window;
        self.window = window.max(LEAST * self.packet).min(before);
        let drain = self.rtt.0 as f64 * (1.0 - self.window / before);
        self.judge_from = now + Nanos(drain as u64) + Nanos(self.rtt.0 / 4);
        self.starting = false;
        self.cuts += 1;
        self.rounds = 0;
        self.queue.turn();
        self.drops.forget();
    }

    fn grow(&mut self, echo: &Echo) {
        let flight = echo.flight as f64;
        if self.starting {
            // What is not used proves nothing.
            if 2.0 * flight >= self.window {
                self.window += echo.passed as f64;
            }
        } else if 4.0 * flight >= 3.0 * self.window {
            self.limited = true;
            self.window += self.growth() * (echo.passed as f64 / self.window).min(1.0);
        }
    }

    /// A round trip has passed since the last time.
    fn turn_round(&mut self, now: Nanos) {
        let told_of_before = now < self.judge_from + self.rtt;
        let queued = self.peak.0 * 2 >= self.target().0;
        let dropped = if told_of_before { 0.0 } else { self.drops.judge(queued) };
        // Holes are found late where repairs had to come first: without a queue to be seen they are an old overflow's, or a
        // queue's that is too short to be seen, and then they come again.
        if dropped > 0.0 && (queued || self.rounds >= SETTLED) {
            // The target follows a queue that is shorter than thought, not one that a start or a step of the rate overran.
            if self.rounds >= SETTLED {
                let seen = self.longest.0.max(self.longest.1).max(Nanos(self.queue.target().0 / 4));
                self.overflow = Some(self.overflow.map_or(seen, |o| o.min(seen)));
            }
            let least = if queued { 0.5 } else { 1.0 - MARGIN };
            self.cut(now, self.window * (1.0 - dropped).max(least) * (1.0 - MARGIN));
        } else if let Some(o) = self.overflow {
            // It is forgotten as slowly as it costs little to be reminded.
            self.overflow = Some(o + Nanos(o.0 / 64)).filter(|o| o.0 / 2 < self.queue.target().0);
        }
        self.rounds += u32::from(self.limited);
        (self.limited, self.round_end, self.peak) = (false, now, Nanos::ZERO);
        self.longest = (Nanos::ZERO, self.longest.0);
    }

    fn begin_look(&mut self, now: Nanos) {
        self.look = Some(Look { from: now + self.rtt, least: Nanos::MAX, window: self.window });
        self.window = (self.window / 2.0).max(LEAST * self.packet);
    }

    /// Goes on looking; true when stamps are not to be judged.
    fn looks(&mut self, now: Nanos, echo: &Echo) -> bool {
        let Some(look) = &mut self.look else { return false };
        if echo.sent < look.from {
            return true;
        }
        look.least = look.least.min(echo.rtt);
        if echo.sent.since(look.from) < Nanos(self.rtt.0 / 2) {
            return true;
        }
        self.queue.forget(now, look.least);
        (self.window, self.look) = (look.window, None);
        (self.judge_from, self.cuts, self.rounds) = (now, 0, 0);
        true
    }
}

impl Controller for Window {
    fn echo(&mut self, now: Nanos, echo: &Echo) {
        self.rtt = echo.rtt;
        self.queue.sample(now, echo.rtt);
        if self.looks(now, echo) {
            return;
        }
        if let Some(base) = self.queue.base() {
            self.longest.0 = self.longest.0.max(echo.rtt.since(base));
        }
        if echo.sent >= self.round_end {
            self.turn_round(now);
        }
        if echo.sent < self.judge_from {
            self.queue.turn();
            return;
        }
        let (Some(base), Some(queue)) = (self.queue.base(), self.queue.delay()) else {
            return self.grow(echo);
        };
        self.peak = self.peak.max(queue);
        if queue > self.target() {
            let fits = base.0 as f64 / (base + queue).0 as f64 * (1.0 - MARGIN);
            let used = if self.starting { (echo.flight as f64).min(self.window) } else { self.window };
            self.cut(now, used * fits);
        } else {
            self.cuts = 0;
            self.grow(echo);
        }
        if self.cuts >= CUTS || self.queue.doubt(now) >= DOUBT {
            self.begin_look(now);
        }
    }

    fn losses(&mut self, _now: Nanos, losses: &Losses) {
        self.drops.told(losses);
    }

    fn resize(&mut self, payload: u32) {
        self.packet = f64::from(payload.max(1));
        self.most_ps = packet_ps(self.rate, payload);
        // A larger packet has to fit, also into the window after a look.
        let least = LEAST * self.packet;
        self.window = self.window.max(least);
        if let Some(look) = &mut self.look {
            look.window = look.window.max(least);
        }
    }

    fn pace(&self) -> u64 {
        let rtt = self.queue.base().map_or(self.rtt, |base| self.rtt.max(base));
        let ps = self.packet / (self.window * PACE_GAIN) * rtt.0 as f64 * 1e3;
        (ps as u64).max(self.most_ps).max(1)
    }

    fn window(&self) -> Option<u64> {
        Some(self.window as u64)
    }

    fn spare_parity(&self) -> bool {
        false
    }
}
