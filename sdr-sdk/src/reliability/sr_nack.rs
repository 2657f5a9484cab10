//! Selective Repeat with losses found by what arrived since, instead of by a timeout.
//!
//! The receiver reports a new hole at once. The sender repairs what its [`Ledger`] presumes lost, which takes about one
//! round trip from the loss ("SR NACK" of arXiv 2505.05366 section 5.1.1 is the same with exactly one). Two timers stand
//! behind it. When the last packets are lost nothing shows it: the last unreported one is sent again after 1.5 RTT
//! (RFC 8985 waits 2, for acknowledgements that are held back; here DONE and holes are reported at once), and the report
//! on it shows the holes before it. What neither finds is sent again after 3 RTT. While the peer is silent the two grow to 3
//! and 8 RTT.
//!
//! A packet that tries a dead channel is sent on a good one a quarter of a round trip later, so that trying costs no
//! message more than that.

use super::ledger::{Ledger, MIN_RTO};
use super::selective_repeat as sr;
use super::{
    Arrived, Channels, Conditions, Fresh, MessageSpec, Outcome, Plan, PlanError, Say, Scheme, SchemeReceiver,
    SchemeSender, SendRun, Status, View,
};
use crate::types::{Channel, Nanos};
use std::borrow::Cow;

/// Selective Repeat with negative acknowledgements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrNack;

impl Scheme for SrNack {
    fn name(&self) -> Cow<'static, str> {
        "sr-nack".into()
    }

    fn wire_id(&self) -> u8 {
        2
    }

    fn sender(&self, m: &MessageSpec, _c: &Conditions) -> Box<dyn SchemeSender> {
        Box::new(Sender::new(m))
    }

    fn receiver(
        &self,
        _m: &MessageSpec,
        _plan: &Plan,
        _c: &Conditions,
    ) -> Result<Box<dyn SchemeReceiver>, PlanError> {
        Ok(Box::<Receiver>::default())
    }
}

/// A packet on a channel that was dead.
#[derive(Clone, Copy, Debug)]
struct Try {
    packet: u32,
    channel: Channel,
    /// When it is sent on another.
    until: Nanos,
}

/// Sending half: repairs first, then first transmissions in increasing order.
#[derive(Debug)]
pub struct Sender {
    fresh: Fresh,
    ledger: Ledger,
    tried: Option<Try>,
    /// Timeouts since the peer last told of a packet, at most one a round trip; and when the next one counts.
    timeouts: u32,
    count_at: Nanos,
}

impl Sender {
    /// For one message.
    pub fn new(m: &MessageSpec) -> Self {
        Self {
            fresh: Fresh::new(m),
            ledger: Ledger::new(m.channels),
            tried: None,
            timeouts: 0,
            count_at: Nanos::ZERO,
        }
    }

    /// Everything was sent once.
    pub fn is_out(&self) -> bool {
        self.fresh.is_done()
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// `first` for four timeouts, then twice as long each time up to `most`: however many are lost in a row, the last packet
    /// is sent again no later than by a fixed timeout of 3 RTT.
    fn patience(&self, first: Nanos, most: Nanos) -> Nanos {
        let doublings = self.timeouts.saturating_sub(3).min(8);
        first.mul_div(1 << doublings, 1).min(most).max(MIN_RTO)
    }

    fn rto(&self, c: &Conditions) -> Nanos {
        self.patience(c.rtt.mul_div(3, 1), c.rtt.mul_div(8, 1))
    }

    fn tail_timeout(&self, c: &Conditions) -> Nanos {
        self.patience(c.rtt.mul_div(3, 2), c.rtt.mul_div(3, 1))
    }

    fn timed_out(&mut self, now: Nanos, c: &Conditions) {
        if now >= self.count_at {
            self.timeouts += 1;
            self.count_at = now + c.rtt;
        }
    }

    /// What a timer sends again.
    fn late_repair(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<(u32, u32, Channel)> {
        if let Some(run) = self.ledger.expire(now, self.rto(c), budget, c, true) {
            self.timed_out(now, c);
            return Some(run);
        }
        let tail = self.ledger.tail().filter(|_| self.fresh.is_done())?;
        if now < tail + self.tail_timeout(c) {
            return None;
        }
        self.timed_out(now, c);
        self.ledger.probe_tail(now, c)
    }
}

impl SchemeSender for Sender {
    fn on_status(&mut self, now: Nanos, s: &Status<'_>, c: &Conditions) {
        if self.ledger.on_status(now, s, c) > 0 {
            self.timeouts = 0;
        }
    }

    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        if budget == 0 {
            return None;
        }
        if let Some(t) = self.tried.take_if(|t| t.until <= now) {
            self.ledger.give_up(t.packet, t.channel);
        }
        self.ledger.presume(now, c);
        let repair = self.ledger.repair(now, budget, c).or_else(|| self.late_repair(now, budget, c));
        if let Some((first, packets, channel)) = repair {
            return Some(SendRun { first, packets, channel, repair: true, parity: false });
        }
        let run = match c.channels.probe.filter(|_| self.tried.is_none() && c.room > 0) {
            Some(channel) => {
                let run = self.fresh.on(channel, 1)?;
                let until = now + c.min_rtt.mul_div(1, 4);
                self.tried = Some(Try { packet: run.first, channel, until });
                run
            }
            None => self.fresh.next(budget, c)?,
        };
        self.ledger.send(now, run.first, run.packets, c.packet_time_ps, run.channel);
        Some(run)
    }

    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        if self.fresh.ready(c) || self.ledger.presumed_lost() > 0 {
            return Some(Nanos::ZERO);
        }
        let tried = self.tried.map(|t| t.until);
        let expired = self.ledger.oldest().map(|t| t + self.rto(c));
        let tail = self.ledger.tail().map(|t| t + self.tail_timeout(c));
        [tried, expired, tail, self.ledger.presume_at(c)].into_iter().flatten().min()
    }

    fn tell(&mut self, now: Nanos, rtt: Nanos, channels: &mut Channels) {
        self.ledger.tell(now, rtt, channels);
    }
}

/// Receiving half: that of Selective Repeat, in a hurry when packets turn out to be missing or are so no longer.
#[derive(Debug, Default)]
pub struct Receiver {
    reports: sr::Receiver,
    /// Holes as they were at the last report: how many packets, and the end of the last.
    holes: (u32, u32),
    changed: bool,
}

fn holes(arrived: &Arrived) -> (u32, u32) {
    (arrived.missing().count(), arrived.missing().end().unwrap_or(0))
}

impl SchemeReceiver for Receiver {
    fn on_progress(&mut self, now: Nanos, v: &View<'_>, c: &Conditions) -> Outcome {
        self.changed |= holes(v.data) != self.holes;
        self.reports.on_progress(now, v, c)
    }

    fn report<'a>(&'a mut self, now: Nanos, v: &View<'a>, c: &Conditions, part: u32) -> Option<Say<'a>> {
        (self.holes, self.changed) = (holes(v.data), false);
        self.reports.report(now, v, c, part)
    }

    fn reported(&mut self, to: u32) {
        self.reports.reported(to);
    }

    fn urgent(&self) -> bool {
        self.changed
    }
}

#[cfg(test)]
mod tests;
