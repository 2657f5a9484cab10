//! What is known of the channels of one direction of a connection: which of them deliver, and how far apart packets
//! arrive that left together.
//!
//! A channel is *good*; *suspect* when some packets in a row were lost on it; *dead* when all that was sent on it for a
//! round trip or more was lost, [`DEAD_PACKETS`] packets at least, while another channel delivered what was sent later.
//! A dead channel carries nothing but one packet every max(RTT, 100 ms). When one of these arrives the channel is
//! *probing*, with a packet every RTT/4, and good again after [`PROBES`] of them. State is bounded by the channels.
//! Invariant: a channel dies only while another one is in use and delivers, so that one is always in use.

use crate::types::{Channel, Nanos};

/// Packets lost in a row that make a channel suspect.
pub const SUSPECT_PACKETS: u32 = 8;

/// Packets lost in a row that a channel takes to die.
pub const DEAD_PACKETS: u32 = 32;

/// Probes that have to arrive before a channel is good again.
pub const PROBES: u32 = 3;

/// Least time from one packet on a dead channel to the next.
const PROBE_FLOOR: Nanos = Nanos::from_millis(100);

/// Round trips after which an observed delay that nothing confirmed counts for less.
const MEMORY: u64 = 16;

/// Whether a channel delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// It does.
    Good,
    /// Some packets in a row were lost.
    Suspect,
    /// Nothing arrives.
    Dead,
    /// It was dead, and something arrived since.
    Probing,
}

/// A set of channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set([u64; 4]);

impl Set {
    const fn below(n: u8) -> Self {
        let mut words = [0; 4];
        let mut i = 0;
        while i < n as usize {
            words[i / 64] |= 1 << (i % 64);
            i += 1;
        }
        Self(words)
    }

    const fn has(&self, ch: Channel) -> bool {
        self.0[ch.0 as usize / 64] >> (ch.0 % 64) & 1 == 1
    }

    fn put(&mut self, ch: Channel, member: bool) {
        let bit = 1 << (ch.0 % 64);
        let word = &mut self.0[ch.0 as usize / 64];
        *word = if member { *word | bit } else { *word & !bit };
    }

    fn len(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// The `n`-th member from 0; there are more than `n`.
    fn nth(&self, n: u32) -> Channel {
        let mut members = (0..=u8::MAX).map(Channel).filter(|ch| self.has(*ch));
        members.nth(n as usize).unwrap_or_default()
    }
}

/// What a scheme has to know of the channels when it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelView {
    /// Good and suspect ones: for first transmissions.
    in_use: Set,
    /// Good ones, or those in use when none is good: for repairs.
    good: Set,
    count: u8,
    /// A channel that is to be tried with one packet now.
    pub probe: Option<Channel>,
    /// Longest that a packet was reported after one that left later on the same channel.
    pub reordering: Nanos,
    /// The same for any two channels.
    pub spread: Nanos,
}

impl ChannelView {
    /// `count` (at least one) good channels of which nothing else is known.
    pub const fn new(count: u8) -> Self {
        let all = Set::below(count);
        Self { in_use: all, good: all, count, probe: None, reordering: Nanos::ZERO, spread: Nanos::ZERO }
    }

    /// Where the packets of a chunk leave for the first time: on channel `chunk` mod channels, if that is in use.
    pub fn home(&self, chunk: u32) -> Channel {
        let home = Channel((chunk % u32::from(self.count)) as u8);
        if self.in_use.has(home) {
            home
        } else {
            self.in_use.nth(chunk / u32::from(self.count) % self.in_use.len())
        }
    }

    /// Where packets that left on `last` are repaired: on another good channel; `turn` says which.
    pub fn other(&self, last: Channel, turn: u32) -> Channel {
        let mut set = self.good;
        set.put(last, false);
        if set.len() == 0 {
            set = self.in_use;
            set.put(last, false);
        }
        match set.len() {
            0 => self.in_use.nth(0),
            n => set.nth(turn % n),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct One {
    state: ChannelState,
    /// When the latest packet left of which it is known that it arrived.
    arrived: Nanos,
    /// Packets lost in a row that left after it, and when the first of them did.
    lost: u32,
    since: Nanos,
    /// Of a dead channel: when it died, when it is tried next, what arrived of the tries.
    died: Nanos,
    next_probe: Nanos,
    probes: u32,
}

/// The states of all channels of one direction.
#[derive(Clone, Debug)]
pub struct Channels {
    all: Vec<One>,
    view: ChannelView,
    /// When the delays of the view are reduced unless they are confirmed.
    forget_at: Nanos,
}

impl Channels {
    /// `count` good channels; at least one.
    pub fn new(count: u8) -> Self {
        let good = One {
            state: ChannelState::Good,
            arrived: Nanos::ZERO,
            lost: 0,
            since: Nanos::ZERO,
            died: Nanos::ZERO,
            next_probe: Nanos::ZERO,
            probes: 0,
        };
        let count = count.max(1);
        Self { all: vec![good; count.into()], view: ChannelView::new(count), forget_at: Nanos::ZERO }
    }

    /// The state of a channel.
    pub fn state(&self, ch: Channel) -> ChannelState {
        self.all[usize::from(ch.0)].state
    }

    /// What schemes see.
    pub fn view(&self) -> ChannelView {
        self.view
    }

    /// Packets that left at `left` or before arrived.
    pub fn arrived(&mut self, ch: Channel, left: Nanos) {
        let Some(one) = self.all.get_mut(usize::from(ch.0)) else { return };
        one.arrived = one.arrived.max(left);
        match one.state {
            ChannelState::Good | ChannelState::Suspect => {
                if one.lost > 0 && left >= one.since {
                    one.lost = 0;
                }
            }
            // What left before it died and arrived after all: it was slow, not dead.
            ChannelState::Dead | ChannelState::Probing if left >= one.since && left < one.died => {
                (one.state, one.lost, one.probes) = (ChannelState::Good, 0, 0);
            }
            ChannelState::Dead | ChannelState::Probing if left >= one.died => {
                one.probes += 1;
                if one.state == ChannelState::Dead {
                    // The next try need not wait as long as this one did.
                    one.next_probe = Nanos::ZERO;
                }
                one.state = ChannelState::Probing;
                if one.probes >= PROBES {
                    (one.state, one.lost, one.probes) = (ChannelState::Good, 0, 0);
                }
            }
            ChannelState::Dead | ChannelState::Probing => {}
        }
    }

    /// `packets` that left from `first` to `last` are presumed lost.
    pub fn lost(&mut self, ch: Channel, packets: u32, first: Nanos, last: Nanos) {
        let Some(one) = self.all.get_mut(usize::from(ch.0)) else { return };
        if last <= one.arrived || matches!(one.state, ChannelState::Dead | ChannelState::Probing) {
            return;
        }
        if one.lost == 0 {
            one.since = first.max(one.arrived);
        }
        one.lost = one.lost.saturating_add(packets);
    }

    /// A packet was reported so much after one that left later: on its own channel, on any.
    pub fn late(&mut self, now: Nanos, reordering: Nanos, spread: Nanos, rtt: Nanos) {
        if reordering > self.view.reordering.mul_div(1, 2) || spread > self.view.spread.mul_div(1, 2) {
            self.forget_at = now + rtt.mul_div(MEMORY, 1);
        }
        self.view.reordering = self.view.reordering.max(reordering);
        self.view.spread = self.view.spread.max(spread);
    }

    /// Something left on `ch`.
    pub fn sent(&mut self, now: Nanos, ch: Channel, rtt: Nanos) {
        if self.view.probe == Some(ch) {
            let one = &mut self.all[usize::from(ch.0)];
            let quick = one.state == ChannelState::Probing;
            let wait = if quick { rtt.mul_div(1, 4) } else { rtt.max(PROBE_FLOOR) };
            one.next_probe = now + wait.max(Nanos(1));
            self.poll(now, rtt);
        }
    }

    /// Judges the channels by the news since the last call, and finds the one to be tried now.
    pub fn poll(&mut self, now: Nanos, rtt: Nanos) {
        if now >= self.forget_at && self.view.reordering.max(self.view.spread) > Nanos::ZERO {
            self.view.reordering = self.view.reordering.mul_div(3, 4);
            self.view.spread = self.view.spread.mul_div(3, 4);
            self.forget_at = now + rtt.mul_div(MEMORY, 1);
        }
        for i in 0..self.all.len() {
            let one = self.all[i];
            self.all[i].state = match one.state {
                ChannelState::Good | ChannelState::Suspect if one.lost < SUSPECT_PACKETS => {
                    ChannelState::Good
                }
                ChannelState::Good | ChannelState::Suspect if self.is_dead(now, rtt, i) => {
                    let one = &mut self.all[i];
                    (one.died, one.next_probe, one.probes) = (now, now + rtt.max(PROBE_FLOOR), 0);
                    ChannelState::Dead
                }
                ChannelState::Good | ChannelState::Suspect => ChannelState::Suspect,
                // No try arrived for a while.
                ChannelState::Probing if now.since(one.arrived) > rtt.mul_div(4, 1).max(PROBE_FLOOR) => {
                    self.all[i].probes = 0;
                    ChannelState::Dead
                }
                state => state,
            };
            // At once: the next channel is judged by who is left.
            let (ch, state) = (Channel(i as u8), self.all[i].state);
            self.view.in_use.put(ch, matches!(state, ChannelState::Good | ChannelState::Suspect));
            self.view.good.put(ch, state == ChannelState::Good);
        }
        self.view.probe = (0..self.view.count).map(Channel).find(|ch| {
            let one = &self.all[usize::from(ch.0)];
            !self.view.in_use.has(*ch) && now >= one.next_probe
        });
    }

    fn is_dead(&self, now: Nanos, rtt: Nanos, i: usize) -> bool {
        let one = &self.all[i];
        let another_delivers = || {
            (0..self.all.len()).any(|j| {
                let other = &self.all[j];
                j != i
                    && self.view.in_use.has(Channel(j as u8))
                    && other.arrived > one.since
                    && other.lost == 0
            })
        };
        one.lost >= DEAD_PACKETS && now.since(one.since) >= rtt && another_delivers()
    }
}

#[cfg(test)]
mod tests;
