//! What one message sent and nobody reported as arrived, with the time and the channel of its last transmission: when
//! it expires, and when it is presumed lost.
//!
//! Loss is inferred as RACK does (RFC 8985), for each channel by itself: when a packet that left later on the same channel
//! was reported, and the time that its report took plus the reordering window ([`window`]) passed since this one left: at
//! most the window and the time between two reports after that report. Channels
//! may differ in delay; against packets of another channel a wider window holds ([`spread`]), for a channel on which
//! nothing arrives any more. A repair is entered as a transmission like any other, so that its loss is found in the same way.
//! A report within a smallest round trip of a repair speaks of the transmission before: nothing is inferred from the repair,
//! and the windows learn how late that packet was.
//!
//! Times are picoseconds since the first packet: 213 days fit. Invariants: a packet is in at most one of `aloft` and
//! `lost`; the first record of a channel starts with a packet that is aloft by that transmission. Work is amortised over
//! the runs that are sent, reported and lost; a call costs a logarithm a channel beside.

use super::channels::Channels;
use super::runs::{Earlier, Run, Runs};
use super::{Conditions, Status};
use crate::types::{Channel, Nanos};
use std::collections::VecDeque;
use std::ops::Range;

/// Smallest retransmission timeout. On shorter paths reports are late by the receiver's polling and the hosts'
/// scheduling rather than by the path, and a smaller timeout would send again what has arrived.
pub const MIN_RTO: Nanos = Nanos::from_millis(1);

/// How much later than sent a packet may be booked (1 % of the smallest timeout), so that runs that a driver hands out
/// a little late share an entry.
const MERGE_SLACK_PS: u64 = MIN_RTO.0 * 1_000 / 100;

/// How late a packet may be reported after one that left later on its channel, before it is presumed lost.
///
/// It starts at max(8 packets, RTT/512: a receiver's time between reports), at most RTT/8, and follows the longest such
/// delay that was seen, by a quarter more, up to the smoothed round trip, RFC 8985's bound: where packets and reports are
/// jittered the smallest one is too little.
pub fn window(c: &Conditions) -> Nanos {
    let least = Nanos(c.packet_time_ps.saturating_mul(8).div_ceil(1_000)).max(Nanos(c.min_rtt.0 / 512));
    let seen = c.channels.reordering.mul_div(5, 4);
    least.min(Nanos(c.min_rtt.0 / 8)).max(seen).min(c.rtt)
}

/// The same for packets of different channels: it starts at RTT/2.
pub fn spread(c: &Conditions) -> Nanos {
    let least = Nanos(c.rtt.0 / 2).max(MIN_RTO);
    least.max(window(c)).max(c.channels.spread.mul_div(5, 4).min(c.rtt))
}

/// One transmission in order of time: a run as it was sent, without what its front lost.
#[derive(Clone, Copy, Debug)]
struct Record {
    run: Run,
    /// How much `start` was moved by merging.
    shifted: u64,
}

/// The latest transmission that was reported, and when.
#[derive(Clone, Copy, Debug)]
struct Newest {
    left: u64,
    reported: u64,
}

impl Newest {
    /// When a packet that left at `left` is presumed lost; None when it left later.
    fn deadline(&self, left: u64, window: u64) -> Option<u64> {
        let before = self.left.checked_sub(left).filter(|d| *d > 0)?;
        Some((self.reported + window).saturating_sub(before))
    }

    fn update(this: &mut Option<Self>, left: u64, reported: u64) {
        if this.is_none_or(|n| n.left < left) {
            *this = Some(Self { left, reported });
        }
    }
}

/// What a channel did since [`Ledger::tell`].
#[derive(Clone, Copy, Debug, Default)]
struct News {
    arrived: Option<u64>,
    lost: u32,
    first_lost: u64,
    last_lost: u64,
}

/// Everything about one channel.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// Oldest first.
    order: VecDeque<Record>,
    newest: Option<Newest>,
    news: News,
}

/// The books of one message's sender.
#[derive(Clone, Debug)]
pub struct Ledger {
    aloft: Runs,
    /// Presumed lost and not sent again yet.
    lost: Runs,
    lanes: Vec<Lane>,
    newest: Option<Newest>,
    /// Longest delays since [`tell`](Self::tell): on one channel, on any two.
    late: (u64, u64),
    has_news: bool,
    /// Instant from which times count.
    origin: Option<Nanos>,
    /// When all that was handed out is through.
    free: u64,
    /// Transmissions so far.
    sent: u64,
    /// Repairs so far, to spread them over the channels.
    repairs: u32,
    scratch: Vec<Run>,
}

impl Ledger {
    /// Of a message over `channels`, at least one.
    pub fn new(channels: u8) -> Self {
        Self {
            aloft: Runs::default(),
            lost: Runs::default(),
            lanes: vec![Lane::default(); channels.max(1).into()],
            newest: None,
            late: (0, 0),
            has_news: false,
            origin: None,
            free: 0,
            sent: 0,
            repairs: 0,
            scratch: Vec::new(),
        }
    }

    /// Packets sent and not yet reported.
    pub fn unacknowledged(&self) -> u32 {
        self.aloft.count() + self.lost.count()
    }

    /// Packets that were sent again and are not reported since.
    pub fn repaired(&self) -> impl Iterator<Item = Range<u32>> {
        self.aloft.iter().filter(|run| run.earlier.is_some()).map(|run| run.first..run.end())
    }

    /// Packets of `r` that are on their way, as far as reports say.
    pub fn on_their_way(&self, r: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let mut at = r.start;
        std::iter::from_fn(move || {
            let run = self.aloft.next_from(at).filter(|run| run.first < r.end && at < r.end)?;
            let part = run.first.max(at)..run.end().min(r.end);
            at = part.end;
            Some(part)
        })
    }

    /// Packets presumed lost and not sent again.
    pub fn presumed_lost(&self) -> u32 {
        self.lost.count()
    }

    /// Transmissions that are kept in order.
    #[cfg(test)]
    pub(super) fn records(&self) -> usize {
        self.lanes.iter().map(|lane| lane.order.len()).sum()
    }

    fn picos(&self, now: Nanos) -> u64 {
        picos(now.since(self.origin.unwrap_or(now)))
    }

    fn instant(&self, ps: u64) -> Nanos {
        self.origin.unwrap_or_default() + Nanos(ps.div_ceil(1_000))
    }

    /// Packets leave from `now` on, `gap` apart, or once all before is through. `again` is their last transmission as it
    /// was taken out.
    fn depart(
        &mut self,
        now: Nanos,
        first: u32,
        packets: u32,
        gap: u64,
        channel: Channel,
        earlier: Option<Earlier>,
    ) {
        self.origin.get_or_insert(now);
        let start = self.picos(now).max(self.free);
        self.free = start.saturating_add(gap.saturating_mul(packets.into()));
        let lane = &mut self.lanes[usize::from(channel.0)];
        if let Some(last) = lane.order.back_mut()
            && earlier.is_none()
            && last.run.earlier.is_none()
        {
            let through = last.run.left(last.run.end());
            let late = start.saturating_sub(through);
            if last.run.end() == first && last.run.gap == gap && last.shifted + late <= MERGE_SLACK_PS {
                last.run.start += late;
                last.shifted += late;
                last.run.packets += packets;
                let id = last.run.id;
                self.aloft.insert(Run { first, packets, start, gap, id, channel, earlier });
                return;
            }
        }
        self.sent += 1;
        let run = Run { first, packets, start, gap, id: self.sent, channel, earlier };
        self.aloft.insert(run);
        lane.order.push_back(Record { run, shifted: 0 });
    }

    /// Packets leave for the first time.
    pub fn send(&mut self, now: Nanos, first: u32, packets: u32, gap: u64, channel: Channel) {
        self.depart(now, first, packets, gap, channel, None);
    }

    /// Sends again what was taken out, on another channel; returns which. `remember` keeps the transmission before.
    fn resend(&mut self, now: Nanos, run: &Run, c: &Conditions, remember: bool) -> Channel {
        self.repairs = self.repairs.wrapping_add(1);
        let channel = c.channels.other(run.channel, self.repairs);
        let earlier = remember.then_some(Earlier { start: run.start, channel: run.channel });
        self.depart(now, run.first, run.packets, c.packet_time_ps, channel, earlier);
        channel
    }

    /// Restores the invariant of a channel's first record.
    fn tidy(&mut self, lane: usize) {
        let order = &mut self.lanes[lane].order;
        while let Some(Record { run, .. }) = order.front_mut() {
            match self.aloft.next_from(run.first) {
                Some(here) if here.first < run.end() && here.id == run.id => {
                    *run = run.part(here.first.max(run.first)..run.end());
                    break;
                }
                Some(here) if here.end() < run.end() => *run = run.part(here.end()..run.end()),
                _ => drop(order.pop_front()),
            }
        }
    }

    fn tidy_all(&mut self) {
        for lane in 0..self.lanes.len() {
            self.tidy(lane);
        }
    }

    /// Takes a report; returns how many packets it is the first to tell of.
    ///
    /// What was not sent is in no run: no report can acknowledge it.
    pub fn on_status(&mut self, now: Nanos, s: &Status<'_>, c: &Conditions) -> u32 {
        let mut told = std::mem::take(&mut self.scratch);
        told.clear();
        for runs in [&mut self.aloft, &mut self.lost] {
            runs.take(0..s.base, None, &mut told);
            runs.take_unless(s.from..s.to, s.missing.clone(), &mut told);
        }
        let (at, round_trip) = (self.picos(now), picos(c.min_rtt));
        for run in &mut told {
            // The transmission that arrived, if that is known; its last packet stands for the run.
            match run.earlier {
                Some(e) if at < run.left(run.end() - 1).saturating_add(round_trip) => {
                    (run.start, run.gap, run.channel) = (e.start, 0, e.channel);
                }
                _ => {}
            }
        }
        // How late, against what earlier reports said: a report does not tell in which order its own packets came.
        for run in &told {
            let late = |newest: &Option<Newest>| match newest {
                Some(n) if n.left > run.start => n.left - run.start + at.saturating_sub(n.reported),
                _ => 0,
            };
            let own = late(&self.lanes[usize::from(run.channel.0)].newest);
            self.late = (self.late.0.max(own), self.late.1.max(late(&self.newest)));
        }
        for run in &told {
            let left = run.left(run.end() - 1);
            // A repair that was followed by another within a round trip: it was neither of the two.
            if at < left.saturating_add(round_trip) && run.earlier.is_some() {
                continue;
            }
            let lane = &mut self.lanes[usize::from(run.channel.0)];
            Newest::update(&mut lane.newest, left, at);
            Newest::update(&mut self.newest, left, at);
            lane.news.arrived = lane.news.arrived.max(Some(left));
        }
        let count = told.iter().map(|run| run.packets).sum();
        self.has_news |= count > 0;
        self.scratch = told;
        self.tidy_all();
        count
    }

    /// When the first packet of a channel is presumed lost.
    fn deadline(&self, lane: &Lane, c: &Conditions) -> Option<u64> {
        let left = lane.order.front()?.run.start;
        let own = lane.newest.and_then(|n| n.deadline(left, picos(window(c))));
        let any = self.newest.and_then(|n| n.deadline(left, picos(spread(c))));
        own.into_iter().chain(any).min()
    }

    /// Moves what is to be presumed lost by `now` to the packets that wait to be sent again.
    pub fn presume(&mut self, now: Nanos, c: &Conditions) {
        let at = self.picos(now);
        for i in 0..self.lanes.len() {
            while self.deadline(&self.lanes[i], c).is_some_and(|t| t <= at) {
                let Some(Record { run, .. }) = self.lanes[i].order.front().copied() else { break };
                // How many of the run: the deadline moves with the time at which a packet left.
                let packets = match run.gap {
                    0 => run.packets,
                    gap => {
                        let bound = |n: Option<Newest>, w: Nanos| {
                            let n = n?;
                            let passed = (n.left + at.saturating_sub(n.reported)).checked_sub(picos(w))?;
                            // Packets that left at `passed` or before, and before `n.left`.
                            let by_time = passed.checked_sub(run.start)? / gap + 1;
                            Some(by_time.min(n.left.checked_sub(run.start)?.div_ceil(gap)))
                        };
                        let lane = &self.lanes[i];
                        let n = bound(lane.newest, window(c)).max(bound(self.newest, spread(c))).unwrap_or(0);
                        n.clamp(1, run.packets.into()) as u32
                    }
                };
                self.lose(i, run.first, run.first + packets, run.id);
            }
        }
    }

    /// Packets of one transmission are lost.
    fn lose(&mut self, lane: usize, first: u32, end: u32, id: u64) {
        let mut gone = std::mem::take(&mut self.scratch);
        gone.clear();
        self.aloft.take(first..end, Some(id), &mut gone);
        for run in &gone {
            let news = &mut self.lanes[lane].news;
            let (from, to) = (run.start, run.left(run.end() - 1));
            if news.lost == 0 {
                (news.first_lost, news.last_lost) = (from, to);
            }
            news.lost = news.lost.saturating_add(run.packets);
            (news.first_lost, news.last_lost) = (news.first_lost.min(from), news.last_lost.max(to));
            self.lost.insert(*run);
        }
        self.has_news |= !gone.is_empty();
        self.scratch = gone;
        if let Some(Record { run, .. }) = self.lanes[lane].order.front_mut()
            && run.id == id
        {
            // Also when none of them was aloft any more.
            if end < run.end() {
                *run = run.part(end.max(run.first)..run.end());
            } else {
                self.lanes[lane].order.pop_front();
            }
        }
        self.tidy(lane);
    }

    /// Gives up on a packet that left on a channel from which little is expected.
    pub fn give_up(&mut self, packet: u32, channel: Channel) {
        let Some(run) = self.aloft.next_from(packet) else { return };
        if run.first <= packet && run.channel == channel {
            let id = run.id;
            let mut gone = Vec::new();
            self.aloft.take(packet..packet + 1, Some(id), &mut gone);
            gone.into_iter().for_each(|run| self.lost.insert(run));
            self.tidy(usize::from(channel.0));
        }
    }

    /// Sends what is presumed lost again, at most `budget` packets, lowest first.
    pub fn repair(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<(u32, u32, Channel)> {
        let run = *self.lost.first()?;
        let end = run.end().min(run.first.saturating_add(budget));
        let mut taken = std::mem::take(&mut self.scratch);
        taken.clear();
        self.lost.take(run.first..end, None, &mut taken);
        self.scratch = taken;
        let run = run.part(run.first..end);
        let channel = self.resend(now, &run, c, true);
        Some((run.first, run.packets, channel))
    }

    /// When the oldest transmission that was not reported left.
    pub fn oldest(&self) -> Option<Nanos> {
        let lane = self.oldest_lane()?;
        Some(self.instant(self.lanes[lane].order.front()?.run.start))
    }

    fn oldest_lane(&self) -> Option<usize> {
        let fronts =
            self.lanes.iter().enumerate().filter_map(|(i, lane)| Some((lane.order.front()?.run.start, i)));
        fronts.min().map(|(_, i)| i)
    }

    /// Sends again what waited for `rto` and more, oldest first, at most `budget` packets.
    ///
    /// Of a run, as many packets as will have waited so long when they leave again, one every packet time from `now`.
    /// `remember` says whether reports on the transmission before are told from those on the repair.
    pub fn expire(
        &mut self,
        now: Nanos,
        rto: Nanos,
        budget: u32,
        c: &Conditions,
        remember: bool,
    ) -> Option<(u32, u32, Channel)> {
        let lane = self.oldest_lane()?;
        let front = &mut self.lanes[lane].order.front_mut()?.run;
        let margin =
            self.origin.map(|o| picos(now.since(o)))?.checked_sub(front.start.saturating_add(picos(rto)))?;
        let expired = match front.gap.saturating_sub(c.packet_time_ps) {
            // Leaving again at least as slowly as they left: each has waited if the first has.
            0 => front.packets,
            gain => u32::try_from(margin / gain + 1).unwrap_or(u32::MAX).min(front.packets),
        };
        let here = self.aloft.next_from(front.first)?;
        let end = here.end().min(front.first + expired.min(budget));
        let (first, id) = (front.first, front.id);
        let mut taken = std::mem::take(&mut self.scratch);
        taken.clear();
        self.aloft.take(first..end, Some(id), &mut taken);
        let run = taken.first().copied();
        self.scratch = taken;
        self.tidy(lane);
        let run = run?;
        let channel = self.resend(now, &run, c, remember);
        Some((run.first, run.packets, channel))
    }

    /// When the last packet that was not reported left.
    pub fn tail(&self) -> Option<Nanos> {
        let last = self.aloft.last()?;
        Some(self.instant(last.left(last.end() - 1)))
    }

    /// Sends the last packet that was not reported again: the report on it tells of the holes before.
    pub fn probe_tail(&mut self, now: Nanos, c: &Conditions) -> Option<(u32, u32, Channel)> {
        let last = *self.aloft.last()?;
        let run = last.part(last.end() - 1..last.end());
        let mut taken = std::mem::take(&mut self.scratch);
        taken.clear();
        self.aloft.take(run.first..run.end(), None, &mut taken);
        self.scratch = taken;
        self.tidy(usize::from(run.channel.0));
        let channel = self.resend(now, &run, c, true);
        Some((run.first, 1, channel))
    }

    /// When [`presume`](Self::presume) finds something without news.
    pub fn presume_at(&self, c: &Conditions) -> Option<Nanos> {
        let first = self.lanes.iter().filter_map(|lane| self.deadline(lane, c)).min();
        first.map(|t| self.instant(t))
    }

    /// Says what became of packets since the last call.
    pub fn tell(&mut self, now: Nanos, rtt: Nanos, channels: &mut Channels) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        let origin = self.origin.unwrap_or_default();
        let at = |ps: u64| origin + Nanos(ps / 1_000);
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            let news = std::mem::take(&mut lane.news);
            let ch = Channel(i as u8);
            if news.lost > 0 {
                channels.lost(ch, news.lost, at(news.first_lost), at(news.last_lost));
            }
            if let Some(left) = news.arrived {
                channels.arrived(ch, at(left));
            }
        }
        let (own, any) = std::mem::take(&mut self.late);
        channels.late(now, Nanos(own / 1_000), Nanos(any / 1_000), rtt);
    }
}

fn picos(d: Nanos) -> u64 {
    d.0.saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
