//! Selective Repeat: each packet has its own timer and is sent again when it expires before the packet is reported.
//!
//! The scheme of arXiv 2505.05366 section 4.1.1, at packets instead of chunks. Of the [`Ledger`] it uses the timers
//! alone. Invariant: a packet that was reported once is never sent again.

use super::ledger::{Ledger, MIN_RTO};
use super::{
    Conditions, Fresh, MessageSpec, Outcome, Plan, PlanError, Say, Scheme, SchemeReceiver, SchemeSender,
    SendRun, Status, View,
};
use crate::types::Nanos;
use std::borrow::Cow;

/// Selective Repeat with a timeout of (1 + alpha) RTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectiveRepeat {
    alpha_milli: u32,
}

impl SelectiveRepeat {
    /// A timeout of `1 + alpha_milli / 1000` times the smoothed RTT: alpha is what queues on the path may add.
    pub fn new(alpha_milli: u32) -> Self {
        Self { alpha_milli }
    }

    /// The timeout on a path with this RTT.
    pub fn rto(&self, rtt: Nanos) -> Nanos {
        let scaled = rtt.0 as u128 * (1_000 + self.alpha_milli as u128) / 1_000;
        Nanos(u64::try_from(scaled).unwrap_or(u64::MAX)).max(MIN_RTO)
    }
}

impl Default for SelectiveRepeat {
    /// Alpha = 2: the timeout of 3 RTT that the paper evaluates.
    fn default() -> Self {
        Self::new(2_000)
    }
}

impl Scheme for SelectiveRepeat {
    fn name(&self) -> Cow<'static, str> {
        "sr".into()
    }

    fn wire_id(&self) -> u8 {
        1
    }

    fn sender(&self, m: &MessageSpec, _c: &Conditions) -> Box<dyn SchemeSender> {
        Box::new(Sender::new(*self, m))
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

/// Sending half: first transmissions in increasing order, repairs before them as they expire.
#[derive(Debug)]
pub struct Sender {
    config: SelectiveRepeat,
    fresh: Fresh,
    ledger: Ledger,
}

impl Sender {
    /// For one message.
    pub fn new(config: SelectiveRepeat, m: &MessageSpec) -> Self {
        Self { config, fresh: Fresh::new(m), ledger: Ledger::new(m.channels) }
    }

    /// Packets sent and not yet reported.
    pub fn unacknowledged(&self) -> u32 {
        self.ledger.unacknowledged()
    }
}

impl SchemeSender for Sender {
    fn on_status(&mut self, now: Nanos, s: &Status<'_>, c: &Conditions) {
        self.ledger.on_status(now, s, c);
    }

    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        if budget == 0 {
            return None;
        }
        if let Some((first, packets, channel)) =
            self.ledger.expire(now, self.config.rto(c.rtt), budget, c, false)
        {
            return Some(SendRun { first, packets, channel, repair: true, parity: false });
        }
        let run = self.fresh.next(budget, c)?;
        self.ledger.send(now, run.first, run.packets, c.packet_time_ps, run.channel);
        Some(run)
    }

    /// With nothing left to send for the first time: exactly when the oldest unreported packet expires.
    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        if self.fresh.ready(c) {
            return Some(Nanos::ZERO);
        }
        Some(self.ledger.oldest()? + self.config.rto(c.rtt))
    }
}

/// Receiving half: whole when everything arrived; reports all that is missing, oldest first, over as many datagrams as
/// that takes.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Where the next report continues.
    resume: u32,
    covered: u32,
}

impl SchemeReceiver for Receiver {
    fn on_progress(&mut self, _now: Nanos, v: &View<'_>, _c: &Conditions) -> Outcome {
        if v.data.is_whole() { Outcome::Whole } else { Outcome::Pending }
    }

    fn report<'a>(&'a mut self, _now: Nanos, v: &View<'a>, _c: &Conditions, part: u32) -> Option<Say<'a>> {
        if part > 0 && self.resume == 0 {
            return None;
        }
        self.covered = v.data.covered();
        Some(Say::Status(v.data.status(self.resume.max(v.data.base()))))
    }

    fn reported(&mut self, to: u32) {
        self.resume = if to < self.covered { to } else { 0 };
    }
}

#[cfg(test)]
mod monte_carlo;
#[cfg(test)]
pub(super) mod tests;
