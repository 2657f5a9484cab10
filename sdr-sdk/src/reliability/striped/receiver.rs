//! The receiving half of the schemes with parity.
//!
//! Of the body it reports losses at once and some times over: each report describes what was looked at since the last few,
//! and what is overdue. Of the protected part nothing is reported: when its parity was due and a stripe still lacks
//! symbols, it asks for packets by number, parity that was never sent first, because a row of it serves many stripes and
//! takes few bytes to name.

use super::super::{Conditions, Missing, Outcome, RangeSet, Say, SchemeReceiver, Shortage, Status, View};
use super::balance::Balance;
use super::plan::report_interval;
use super::stripes::{Stripe, Stripes};
use crate::types::Nanos;
use std::collections::VecDeque;
use std::ops::Range;

/// Parity that was expected and is late by so many report intervals is not waited for.
const LATE: u64 = 2;

/// What a receiver is told when it is made.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The protected part; None when there is none.
    pub stripes: Option<Stripes>,
    /// Packets of the message, and where its extra packets begin.
    pub packets: u32,
    /// First extra packet of the receive.
    pub first_extra: u32,
    /// The message is protected as a whole, and what its parity does not give is asked for only after this part of a round
    /// trip, in thousandths, beyond its expected end.
    pub fallback_milli: Option<u32>,
    /// Reports in a row that name a loss.
    pub copies: u32,
    /// Loss that is assumed of answers.
    pub loss: f64,
}

/// Judges a message with parity.
#[derive(Debug)]
pub struct Receiver {
    setup: Setup,
    balance: Option<Balance>,
    /// Earlier reports: when, and how far the body had been looked at.
    history: VecDeque<(Nanos, u32)>,
    /// What the report being written still has to describe: what is new, and what is overdue.
    windows: [Range<u32>; 2],
    /// Which of them the part given last describes.
    describing: usize,
    asking: Asking,
    /// When a packet arrived last that was not there before, and how many there were.
    moved_at: Nanos,
    count: u32,
    wake_at: Option<Nanos>,
    urgent: bool,
    /// A repair of the body arrived since the last report.
    repaired: bool,
}

#[derive(Debug, Default)]
struct Asking {
    /// As it travels: extra packets after the data.
    list: Vec<Range<u32>>,
    /// Parity rows of a stripe that were sent unasked or asked for.
    rows: Vec<u8>,
    /// End of the data, once some of it was asked for of which nothing had been seen.
    end: u32,
    /// Ranges of it that were named this time through.
    named: usize,
    /// Nothing is asked in the report being written.
    silent: bool,
    /// Times that it is still to be named.
    times: u32,
    /// Next repetition; next list.
    at: Nanos,
    again_at: Nanos,
}

impl Receiver {
    /// For one message.
    pub fn new(setup: Setup) -> Self {
        Self {
            balance: setup.stripes.map(Balance::new),
            history: VecDeque::new(),
            windows: [0..0, 0..0],
            describing: 0,
            asking: Asking::default(),
            moved_at: Nanos::ZERO,
            // So that the first look moves.
            count: u32::MAX,
            wake_at: None,
            urgent: false,
            repaired: false,
            setup,
        }
    }

    fn body_end(&self) -> u32 {
        self.setup.stripes.map_or(self.setup.packets, |s| s.body_end())
    }

    /// Packets that are still to leave the sender unasked, by what arrived.
    fn expected(&self, v: &View<'_>) -> u64 {
        let (Some(s), Some(b)) = (self.setup.stripes, &self.balance) else { return 0 };
        let left = u64::from(s.end - v.data.covered());
        let groups = u64::from(s.groups());
        let per_group = u64::from(s.sent * s.depth);
        // Parity of groups whose data is through, or as far as parity was seen.
        let through = u64::from(v.data.covered().saturating_sub(s.start) / s.group_packets());
        let seen = match s.rows * s.depth {
            0 => 0,
            rows => {
                let (group, rest) = (b.parity_covered() / rows, b.parity_covered() % rows);
                u64::from(group) * per_group + u64::from(rest).min(per_group)
            }
        };
        let passed = seen.max(if groups > 1 { through * per_group } else { 0 });
        left + (groups * per_group).saturating_sub(passed)
    }

    /// When the sender is through with all that it sends unasked.
    fn due(&self, v: &View<'_>, c: &Conditions) -> Nanos {
        let wire = u128::from(self.expected(v)) * u128::from(c.packet_time_ps) / 1_000;
        let slack = match self.setup.fallback_milli {
            Some(milli) => c.rtt.mul_div(u64::from(milli), 1_000),
            None => report_interval(c.rtt).mul_div(LATE, 1) + c.channels.reordering,
        };
        self.moved_at + Nanos(wire as u64) + slack
    }

    /// Makes the list of what is lacking.
    fn ask(&mut self, now: Nanos, v: &View<'_>, c: &Conditions) {
        let (Some(s), Some(b)) = (self.setup.stripes, &self.balance) else { return };
        self.asking.rows.resize(s.count() as usize, s.sent.min(255) as u8);
        let mut set = RangeSet::new();
        let mut want = |stripe: Stripe, lack: u32| {
            let mut left = lack + spare(lack, self.setup.loss);
            let rows = &mut self.asking.rows[s.index(stripe)];
            while left > 0 && u32::from(*rows) < s.rows {
                let e = self.setup.first_extra + s.parity(stripe, u32::from(*rows));
                set.insert(e..e + 1);
                *rows += 1;
                left -= 1;
            }
            let data = (0..s.k).filter_map(|row| s.packet(stripe, row));
            for p in
                data.filter(|&p| p >= v.data.covered() || v.data.missing().contains(p)).take(left as usize)
            {
                set.insert(p..p + 1);
            }
        };
        // Data that was not looked at is as good as missing: nothing of it arrived.
        let unseen = v.data.covered()..s.end;
        for group in 0..s.groups() {
            let data = s.data(group);
            let dark = data.start.max(unseen.start)..data.end;
            for column in 0..s.depth {
                let stripe = Stripe { group, column };
                let hidden = dark.len() as u32 / s.depth + u32::from(!dark.is_empty());
                let need = b.need(stripe) + if dark.is_empty() { 0 } else { hidden as i32 };
                if need > 0 {
                    want(stripe, need as u32);
                }
            }
        }
        self.asking.list = set.iter().collect();
        if !unseen.is_empty() {
            self.asking.end = s.end;
        }
        self.asking.named = 0;
        self.asking.times = if self.asking.list.is_empty() { 0 } else { self.setup.copies };
        self.asking.at = now;
        let answer = u128::from(set.count()) * u128::from(c.packet_time_ps) / 1_000;
        let wait = c.rtt
            + Nanos(answer as u64)
            + report_interval(c.rtt).mul_div(LATE + 1, 1)
            + c.channels.reordering;
        self.asking.again_at = now + wait;
    }

    /// How far back a report looks, and how far the overdue reach.
    fn bounds(&self, now: Nanos, c: &Conditions) -> (u32, u32) {
        let copies = self.setup.copies as usize;
        let from = self.history.len().checked_sub(copies).map_or(0, |i| self.history[i].1);
        let age = self.age(c);
        let old = self.history.partition_point(|(at, _)| *at + age <= now);
        (from, old.checked_sub(1).map_or(0, |i| self.history[i].1.min(from)))
    }

    /// Of what was looked at so long ago, repairs may have arrived: a round trip, and a little less, for the sender tells by
    /// itself which repairs a report cannot speak of yet.
    fn age(&self, c: &Conditions) -> Nanos {
        Nanos(c.min_rtt.0.saturating_sub(report_interval(c.rtt).0 * 2))
    }
}

/// Packets beyond `lack` that are asked for, so that the answer suffices although some of it is lost.
fn spare(lack: u32, loss: f64) -> u32 {
    let mut chance = 1.0;
    let mut x = 0;
    loop {
        // C(lack + x, x + 1) p^(x + 1), roughly the probability that more than x are lost.
        chance *= f64::from(lack + x) / f64::from(x + 1) * loss;
        if (x >= 2 && chance < 1e-5) || x > lack + 8 {
            return x;
        }
        x += 1;
    }
}

impl SchemeReceiver for Receiver {
    fn on_progress(&mut self, now: Nanos, v: &View<'_>, c: &Conditions) -> Outcome {
        let count = v.data.count() + v.parity.count();
        if count != self.count {
            (self.count, self.moved_at) = (count, now);
        }
        if let Some(b) = &mut self.balance {
            b.update(v.data, v.parity);
        }
        let (short, protected) = self.balance.as_ref().map_or((0, 0), |b| (b.short(), b.missing()));
        let all_seen = v.data.covered() == v.data.total();
        if all_seen && short == 0 && v.data.missing().count() == protected {
            return if protected == 0 { Outcome::Whole } else { Outcome::Solvable };
        }
        let mut wake_at = None;
        let mut urgent = false;
        if (short > 0 || !all_seen) && self.setup.stripes.is_some() {
            let next = match self.asking.times {
                0 => self.asking.again_at.max(self.due(v, c)),
                _ => self.asking.at,
            };
            urgent = next <= now;
            wake_at = Some(next);
        }
        let (from, old) = self.bounds(now, c);
        let body = v.data.covered().min(self.body_end());
        let reported = self.history.back().map_or(0, |&(_, to)| to);
        let loud = |r: Range<u32>| v.data.missing().within(r).next().is_some();
        // The sender takes a repair for lost whose arrival it does not hear of.
        self.repaired |= v.data.found().iter().any(|r| r.start < body);
        urgent |=
            self.repaired || loud(from..body) || loud(0..old) || (reported < body && body == self.body_end());
        if v.data.missing().first().is_some_and(|p| p < body) {
            // Nothing may arrive that would bring us back.
            let next = now + report_interval(c.rtt);
            wake_at = Some(wake_at.map_or(next, |t: Nanos| t.min(next)));
        }
        (self.urgent, self.wake_at) = (urgent, wake_at.filter(|t| *t > now));
        Outcome::Pending
    }

    fn report<'a>(&'a mut self, now: Nanos, v: &View<'a>, c: &Conditions, part: u32) -> Option<Say<'a>> {
        if part == 0 {
            self.begin_report(now, v, c);
        }
        let base = v.data.base();
        let status = |r: Range<u32>| {
            let missing = Missing::Tracked(v.data.missing().within(r.clone()));
            Say::Status(Status { base: base.min(r.end), from: r.start, to: r.end, missing })
        };
        // The first part always speaks, if only of the message.
        let speaks = |w: &Range<u32>| !Range::is_empty(w);
        self.describing = if part == 0 { 0 } else { self.windows.iter().position(speaks).unwrap_or(2) };
        if let Some(window) = self.windows.get(self.describing) {
            return Some(status(window.clone()));
        }
        let left = &self.asking.list[self.asking.named..];
        (!self.asking.silent && !left.is_empty()).then_some(Say::Want(left))
    }

    fn reported(&mut self, to: u32) {
        if let Some(window) = self.windows.get_mut(self.describing) {
            window.start = to.clamp(window.start, window.end);
        }
    }

    fn named(&mut self, ranges: usize) {
        let a = &mut self.asking;
        a.named += ranges;
        if a.named >= a.list.len() {
            // Once through: the next time in the next report.
            (a.named, a.silent) = (0, true);
            a.times = a.times.saturating_sub(1);
        }
    }

    fn overdue(&self, now: Nanos, c: &Conditions) -> u32 {
        self.bounds(now, c).1
    }

    fn asked(&self) -> u32 {
        self.asking.end
    }

    fn urgent(&self) -> bool {
        self.urgent
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.wake_at
    }

    fn shortages(&self, v: &View<'_>) -> Vec<Shortage> {
        let Some(s) = self.setup.stripes else { return Vec::new() };
        let lost = v.data.missing().within(s.start..s.end).flatten();
        let mut lost: Vec<(Stripe, u32)> = lost.map(|p| s.of_data(p)).collect();
        lost.sort_unstable();
        let have = |e: u32| e < v.parity.covered() && !v.parity.missing().contains(e);
        let of_stripe = lost.chunk_by(|a, b| a.0 == b.0);
        let shortage = |lost: &[(Stripe, u32)]| {
            let stripe = lost[0].0;
            let rows = (0..s.rows).filter(|&row| have(s.parity(stripe, row))).take(lost.len());
            Shortage {
                stripe,
                missing: lost.iter().map(|&(_, row)| row as u8).collect(),
                parity: rows.map(|row| row as u8).collect(),
            }
        };
        of_stripe.map(shortage).collect()
    }

    fn stripes(&self) -> Option<Stripes> {
        self.setup.stripes
    }
}

impl Receiver {
    fn begin_report(&mut self, now: Nanos, v: &View<'_>, c: &Conditions) {
        let (from, old) = self.bounds(now, c);
        let to = v.data.covered().min(self.body_end());
        self.windows = [from.min(to)..to, v.data.base().min(old)..old];
        let age = self.age(c);
        let overdue = self.history.partition_point(|(at, _)| *at + age <= now);
        self.history.drain(..overdue.saturating_sub(1));
        self.history.push_back((now, to));
        self.repaired = false;
        let lacking =
            self.balance.as_ref().is_some_and(|b| b.short() > 0) || v.data.covered() < v.data.total();
        self.asking.silent = !lacking || self.setup.stripes.is_none();
        if self.asking.silent {
            return;
        }
        if self.asking.times == 0 && now >= self.asking.again_at.max(self.due(v, c)) {
            self.ask(now, v, c);
        }
        self.asking.silent = self.asking.times == 0 || now < self.asking.at;
        self.asking.at = self.asking.at.max(now + report_interval(c.rtt));
    }
}
