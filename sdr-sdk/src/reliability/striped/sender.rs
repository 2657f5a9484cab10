//! The sending half of the schemes with parity.
//!
//! Order of a tail-protected message: repairs of the body, new data, then parity in rounds (row r of every stripe, then row
//! r + 1), so that an undamaged message ends with its last data packet and a damaged one waits only for the rounds that it
//! needs. Repairs of the body that left so late that the loss of one could not be repaired any more are copied between the
//! rounds. A message that is protected as a whole has the parity of each group behind its data.
//!
//! The receiver asks for what it lacks beyond that by packet number, parity included; nothing is inferred here.

use super::super::sr_nack;
use super::super::{Conditions, Fresh, MessageSpec, RangeSet, SchemeSender, SendRun, Status};
use super::plan::{Choice, report_interval};
use super::stripes::{Plan, Stripes};
use crate::reliability::Channels;
use crate::types::Nanos;
use std::collections::VecDeque;
use std::ops::Range;

/// A sender without an answer sends the end of the message again, at most so many packets.
const UNANSWERED: u32 = 32;

/// Sends a message with parity.
#[derive(Debug)]
pub struct Sender {
    message: MessageSpec,
    choice: Choice,
    /// None when nothing is protected.
    stripes: Option<Stripes>,
    /// What is repaired by its reports alone.
    body: sr_nack::Sender,
    /// The protected data.
    fresh: Fresh,
    /// Group whose data or parity is sent.
    group: u32,
    /// Next parity packet of it; none before its data is through.
    parity: Option<Parity>,
    copies: Copies,
    asked: Asked,
    /// When the receiver has to have spoken; how often it had not.
    answer_by: Option<Nanos>,
    silent: u32,
}

#[derive(Clone, Copy, Debug)]
struct Parity {
    next: u32,
    /// Not before.
    at: Nanos,
}

/// Copies of body packets that were sent again too late to be repaired once more.
#[derive(Debug, Default)]
struct Copies {
    /// Such packets, and how many more copies each gets.
    late: Vec<(Range<u32>, u32)>,
    /// The round being sent.
    round: VecDeque<Range<u32>>,
    /// When the next round may begin, once no parity is left to go between.
    at: Nanos,
    turn: u32,
}

/// What the receiver asked for.
#[derive(Debug, Default)]
struct Asked {
    wanted: RangeSet,
    /// Sent so lately that a request may be older.
    recent: RangeSet,
    since: VecDeque<(Nanos, Range<u32>)>,
    turn: u32,
}

impl Asked {
    fn forget(&mut self, now: Nanos, wait: Nanos) {
        while let Some((at, r)) = self.since.front()
            && *at + wait <= now
        {
            self.recent.remove(r.clone());
            self.since.pop_front();
        }
    }
}

impl Sender {
    /// For one message.
    pub fn new(m: &MessageSpec, choice: Choice, stripes: Option<Stripes>) -> Self {
        let start = stripes.map_or(m.packets, |s| s.body_end());
        let answered = m.packets == 0;
        Self {
            message: *m,
            choice,
            stripes,
            body: sr_nack::Sender::new(&MessageSpec { packets: start, ..*m }),
            fresh: Fresh::from(m, start),
            group: 0,
            parity: None,
            copies: Copies::default(),
            asked: Asked::default(),
            answer_by: answered.then_some(Nanos::MAX),
            silent: 0,
        }
    }

    fn out_of_data(&self) -> bool {
        self.fresh.is_done()
    }

    /// A run of parity or of copies, that ends with its chunk where there are several channels.
    fn cut(&self, first: u32, packets: u32) -> u32 {
        if self.message.channels == 1 {
            return packets;
        }
        let per_chunk = u32::from(self.message.per_chunk.max(1));
        packets.min(per_chunk - first % per_chunk)
    }

    fn next_asked(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        let from = self.asked.wanted.first()?;
        let r = self.asked.wanted.next_from(from)?;
        let (data_end, extra) = (self.message.packets, self.message.first_extra);
        let parity = r.start >= data_end;
        let mut end = r.end.min(r.start.saturating_add(budget));
        if !parity {
            end = end.min(data_end);
        }
        let first = if parity { r.start - extra } else { r.start };
        end = r.start + self.cut(first, end - r.start);
        let r = r.start..end;
        self.asked.wanted.remove(r.clone());
        self.asked.recent.insert(r.clone());
        self.asked.since.push_back((now, r.clone()));
        self.asked.turn = self.asked.turn.wrapping_add(1);
        let home = c.channels.home(r.start / u32::from(self.message.per_chunk.max(1)));
        let channel = if parity && r.len() > 1 { home } else { c.channels.other(home, self.asked.turn) };
        Some(SendRun { first, packets: r.end - r.start, channel, repair: !parity, parity })
    }

    fn next_fresh(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        let stripes = self.stripes?;
        if self.parity.is_some() {
            return None;
        }
        let end = stripes.data(self.group).end;
        if self.fresh.sent() == end {
            // All of it left with the body.
            if self.body.is_out() {
                self.begin_parity(&stripes, now);
            }
            return None;
        }
        let run = self.fresh.next(budget.min(end - self.fresh.sent()), c)?;
        if self.fresh.sent() == end {
            let through = Nanos((u128::from(run.packets) * u128::from(c.packet_time_ps) / 1_000) as u64);
            self.begin_parity(&stripes, now + through);
        }
        Some(run)
    }

    /// The data of the group is out at `through`.
    fn begin_parity(&mut self, stripes: &Stripes, through: Nanos) {
        let next = stripes.unasked(self.group).start;
        self.parity = Some(Parity { next, at: through + self.choice.gap });
        if stripes.data(self.group).end == stripes.end {
            let repaired = self.body.ledger().repaired();
            self.copies.late.extend(repaired.map(|r| (r, self.choice.copies)));
        }
    }

    fn next_parity(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        let stripes = self.stripes?;
        let Parity { next, at } = self.parity.filter(|p| p.at <= now)?;
        let all = stripes.unasked(self.group);
        if next >= all.end {
            return None;
        }
        let row_end = next - (next - all.start) % stripes.depth + stripes.depth;
        let whole_rows = if self.copies.late.is_empty() { all.end } else { row_end };
        let packets = self.cut(next, budget.min(whole_rows.min(all.end) - next));
        self.parity = Some(Parity { next: next + packets, at });
        let rows = (next + packets - all.start) / stripes.depth;
        if next + packets == row_end && self.out_of_data() && rows.is_multiple_of(self.rows_a_copy(&stripes))
        {
            self.start_copies();
        }
        let per_chunk = u32::from(self.message.per_chunk.max(1));
        let channel = c.channels.home((self.message.first_extra + next) / per_chunk);
        Some(SendRun { first: next, packets, channel, repair: false, parity: true })
    }

    fn rows_a_copy(&self, stripes: &Stripes) -> u32 {
        (stripes.sent / self.choice.copies.max(1)).max(1)
    }

    /// One more copy of each that may still be on its way.
    fn start_copies(&mut self) {
        if !self.copies.round.is_empty() {
            return;
        }
        for (r, left) in &mut self.copies.late {
            self.copies.round.extend(self.body.ledger().on_their_way(r.clone()));
            *left = if self.copies.round.is_empty() { 0 } else { left.saturating_sub(1) };
        }
        self.copies.late.retain(|(_, left)| *left > 0);
    }

    fn next_copy(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        let over = self.copies.round.is_empty() && self.parity_is_done();
        if over && !self.copies.late.is_empty() && self.copies.at <= now {
            self.start_copies();
            self.copies.at = now + self.choice.gap.max(report_interval(c.rtt));
        }
        let r = self.copies.round.front_mut()?;
        let first = r.start;
        r.start += (r.end - r.start).min(budget);
        let packets = r.start - first;
        if Range::is_empty(r) {
            self.copies.round.pop_front();
        }
        self.copies.turn = self.copies.turn.wrapping_add(1);
        let home = c.channels.home(first / u32::from(self.message.per_chunk.max(1)));
        let channel = c.channels.other(home, self.copies.turn);
        Some(SendRun { first, packets, channel, repair: true, parity: false })
    }

    fn parity_is_done(&self) -> bool {
        match (self.stripes, self.parity) {
            (Some(s), Some(p)) => self.out_of_data() && p.next >= s.unasked(self.group).end,
            (Some(_), None) => false,
            (None, _) => self.out_of_data(),
        }
    }

    /// The next group, once the parity of this one is out.
    fn turn_over(&mut self) {
        if let (Some(s), Some(p)) = (self.stripes, self.parity)
            && self.group + 1 < s.groups()
            && p.next >= s.unasked(self.group).end
        {
            self.group += 1;
            self.parity = None;
        }
    }

    fn silence(&self, c: &Conditions) -> Nanos {
        let wait = c.rtt + report_interval(c.rtt).mul_div(4, 1) + c.channels.spread;
        wait.max(super::super::ledger::MIN_RTO).mul_div(1 << self.silent.min(4), 1)
    }

    /// The receiver said nothing at all: its reports, or all that it could report on, are lost.
    fn break_silence(&mut self, now: Nanos, c: &Conditions) {
        let Some(s) = self.stripes else { return };
        if self.answer_by.is_none_or(|t| now < t) || !self.parity_is_done() {
            return;
        }
        self.asked.forget(now, c.rtt);
        let from = s.start.max(s.end.saturating_sub(UNANSWERED));
        self.asked.wanted.insert(from..s.end);
        self.silent += 1;
        self.answer_by = Some(now + self.silence(c));
    }

    fn heard(&mut self) {
        self.answer_by = Some(Nanos::MAX);
    }
}

impl SchemeSender for Sender {
    fn plan(&self) -> Plan {
        self.choice.plan
    }

    fn stripes(&self) -> Option<Stripes> {
        self.stripes
    }

    fn on_status(&mut self, now: Nanos, s: &Status<'_>, c: &Conditions) {
        self.heard();
        self.body.on_status(now, s, c);
    }

    fn on_want(&mut self, now: Nanos, wanted: &mut dyn Iterator<Item = Range<u32>>, c: &Conditions) {
        self.heard();
        let Some(s) = self.stripes else { return };
        self.asked.forget(now, c.rtt);
        let extra = self.message.first_extra;
        let data = s.start..self.fresh.sent();
        let parity = extra..extra + s.parity_packets();
        for r in wanted {
            for area in [&data, &parity] {
                let mut at = r.start.max(area.start);
                let end = r.end.min(area.end);
                while at < end {
                    let recent =
                        self.asked.recent.next_from(at).filter(|r| r.start < end).unwrap_or(end..end);
                    self.asked.wanted.insert(at..recent.start);
                    at = recent.end;
                }
            }
        }
    }

    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        if budget == 0 {
            return None;
        }
        self.turn_over();
        self.break_silence(now, c);
        if let Some(run) = self.next_asked(now, budget, c) {
            return Some(run);
        }
        if let Some(run) = self.body.next(now, budget, c) {
            if run.repair && self.out_of_data() && self.choice.copies > 0 {
                self.copies.late.push((run.first..run.first + run.packets, self.choice.copies));
            }
            return Some(run);
        }
        let run = match self.next_copy(now, budget, c) {
            Some(run) => Some(run),
            None => self.next_fresh(now, budget, c).or_else(|| self.next_parity(now, budget, c)),
        };
        if run.is_some() && self.answer_by != Some(Nanos::MAX) {
            self.answer_by = Some(now + self.silence(c));
        }
        run
    }

    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        if !self.asked.wanted.is_empty() || !self.copies.round.is_empty() {
            return Some(Nanos::ZERO);
        }
        let tail = match (self.stripes, self.parity) {
            (Some(s), Some(p)) if p.next < s.unasked(self.group).end => Some(p.at),
            (Some(s), Some(_)) if self.group + 1 < s.groups() => self.fresh.ready(c).then_some(Nanos::ZERO),
            (Some(_), None) if self.body.is_out() && (self.fresh.is_done() || self.fresh.ready(c)) => {
                Some(Nanos::ZERO)
            }
            _ => None,
        };
        let late = (!self.copies.late.is_empty() && self.parity_is_done()).then_some(self.copies.at);
        let silence = self.answer_by.filter(|&t| t < Nanos::MAX && self.parity_is_done());
        [tail, late, silence, self.body.wake_at(c)].into_iter().flatten().min()
    }

    fn tell(&mut self, now: Nanos, rtt: Nanos, channels: &mut Channels) {
        self.body.tell(now, rtt, channels);
    }
}

#[cfg(test)]
mod tests;
