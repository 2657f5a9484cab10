//! What the path carries once a connection stands: probed downwards when data stalls, never upwards.
//!
//! One side doubts a size and sends a series of PATH PROBEs; the other answers each with a short PATH PROBE ACK that tells
//! the largest size of the series so far, so a lost answer is made up for by the next one. Time goes in rounds: some copies
//! of each size in question on different channels, then two probes of the smallest size, which every path carries. A
//! round counts only when one of these was answered, so silence and loss of everything say nothing of sizes; a size is
//! given up after [`ROUNDS`] such rounds without it. At a loss of 0.3 that happens to a size that passes in one series of
//! 50,000.
//!
//! It knows neither sockets nor headers. Invariant: what is sent is bounded: [`MOST_ROUNDS`] rounds in a series, a series
//! a second at most, and only as long as somebody doubts.

#![forbid(unsafe_code)]

use super::handshake::PAYLOADS;
use crate::types::{Channel, Nanos};

#[cfg(test)]
mod tests;

/// Smallest payload that is probed: every path carries it.
pub(super) const SMALLEST: u32 = PAYLOADS[PAYLOADS.len() - 1];

/// Rounds in which a size has to be lost before it counts as too long.
const ROUNDS: u32 = 3;

/// Copies of each size in a round.
const COPIES: u8 = 3;

/// Rounds of a series, those without any answer included. More, and nothing is learned.
const MOST_ROUNDS: u32 = 16;

/// A round lasts so long when nothing is known of the round trip, and none shorter than the other.
const UNKNOWN: Nanos = Nanos::from_millis(150);
const SHORTEST: Nanos = Nanos::from_millis(10);
const LONGEST: Nanos = Nanos::from_secs(1);

/// From the start of a series to that of the next.
const PAUSE: Nanos = Nanos::from_secs(1);

/// Bytes of a probe that mean something, and of its answer.
const PROBE: usize = 12;
const ACK: usize = 16;

/// A probe to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) channel: Channel,
    pub(super) size: u32,
    series: u64,
    round: u32,
}

impl Probe {
    /// The payload.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size as usize);
        out.extend(self.series.to_be_bytes());
        out.extend(self.round.to_be_bytes());
        out.resize((self.size as usize).max(PROBE), 0);
        out
    }
}

/// The side that answers: the newest series of the peer, and the largest size of it that came.
#[derive(Default)]
pub(super) struct Echo {
    series: u64,
    best: u32,
}

impl Echo {
    /// A probe came in. The answer, or none for what is no probe.
    pub(super) fn answer(&mut self, probe: &[u8]) -> Option<Vec<u8>> {
        let series = u64::from_be_bytes(*probe.first_chunk()?);
        let round = probe.get(8..PROBE)?;
        // Shorter ones would be less than their answers.
        if probe.len() < SMALLEST as usize {
            return None;
        }
        if series != self.series {
            *self = Self { series, best: 0 };
        }
        self.best = self.best.max(probe.len() as u32);
        let mut out = Vec::with_capacity(ACK);
        out.extend(series.to_be_bytes());
        out.extend_from_slice(round);
        out.extend(self.best.to_be_bytes());
        Some(out)
    }
}

/// What came of the time that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing is due.
    Waits,
    /// A round leaves.
    Send(Vec<Probe>),
    /// The series is over.
    Over {
        /// The path carries no more than this now.
        narrowed: Option<u32>,
    },
}

struct Series {
    id: u64,
    /// Looking below the size that was doubted.
    lower: bool,
    /// Largest that the peer had.
    best: u32,
    rounds: u32,
    /// Rounds that were answered without a size in question.
    lost: u32,
    answered: bool,
    /// The link had no room for some of the round.
    crowded: bool,
    sent_at: Nanos,
    next: Nanos,
    interval: Nanos,
}

/// The path to the peer.
pub(super) struct Path {
    channels: u8,
    /// Largest payload that it carries, as far as is known.
    carries: u32,
    series: Option<Series>,
    started: Option<Nanos>,
}

impl Path {
    /// It carries `payload`: that is what it was probed for.
    pub(super) fn new(payload: u32, channels: u8) -> Self {
        Self { channels: channels.max(1), carries: payload, series: None, started: None }
    }

    /// Packets of `payload` bytes seem to be lost. True when a series begins; its `id` is one that nobody can guess.
    pub(super) fn doubt(
        &mut self,
        now: Nanos,
        payload: u32,
        rtt: Option<Nanos>,
        id: impl FnOnce() -> u64,
    ) -> bool {
        let known = payload > self.carries || payload <= SMALLEST;
        if known || self.series.is_some() || self.started.is_some_and(|at| now < at + PAUSE) {
            return false;
        }
        self.started = Some(now);
        let interval = rtt.map_or(UNKNOWN, |rtt| rtt.mul_div(3, 2)).clamp(SHORTEST, LONGEST);
        self.series = Some(Series {
            id: id(),
            lower: false,
            best: 0,
            rounds: 0,
            lost: 0,
            answered: true,
            crowded: false,
            sent_at: now,
            next: now,
            interval,
        });
        true
    }

    /// When `poll` has work.
    pub(super) fn wake_at(&self) -> Option<Nanos> {
        self.series.as_ref().map(|s| s.next)
    }

    /// Passes time.
    pub(super) fn poll(&mut self, now: Nanos) -> Turn {
        let Some(s) = &mut self.series else { return Turn::Waits };
        let most = if s.lower { below(self.carries).next().unwrap_or(SMALLEST) } else { self.carries };
        let mut over = s.best >= most;
        if !over {
            if now < s.next {
                return Turn::Waits;
            }
            if s.rounds > 0 && s.answered {
                s.lost += u32::from(!s.crowded);
            } else if s.rounds > 0 {
                s.interval = s.interval.mul_div(2, 1).min(LONGEST);
            }
            if s.lost == ROUNDS {
                // Which of the smaller ones passes; the smallest was answered, so some does.
                over = s.lower || below(self.carries).next().is_none_or(|next| s.best >= next);
                (s.lower, s.lost) = (true, 0);
            }
        }
        if over || s.rounds == MOST_ROUNDS {
            let narrowed = (over && s.best < self.carries).then_some(s.best);
            self.carries = narrowed.unwrap_or(self.carries);
            self.series = None;
            return Turn::Over { narrowed };
        }
        (s.answered, s.crowded) = (false, false);
        (s.sent_at, s.next) = (now, now + s.interval);
        s.rounds += 1;
        let &mut Series { id: series, rounds: round, best, lower, .. } = s;
        let carries = self.carries;
        let asked = std::iter::once(carries).filter(|_| !lower).chain(below(carries).filter(|_| lower));
        let first = (round % u32::from(self.channels)) as u8;
        let channel = |i: u8| Channel(((u16::from(first) + u16::from(i)) % u16::from(self.channels)) as u8);
        let mut probes = Vec::new();
        for size in asked.filter(|size| *size > best) {
            probes.extend((0..COPIES).map(|i| Probe { channel: channel(i), size, series, round }));
        }
        // Last: an answer to them tells of all that came before. Two, for without one the round was for nothing.
        probes.extend([0, 1].map(|i| Probe { channel: channel(i), size: SMALLEST, series, round }));
        Turn::Send(probes)
    }

    /// Part of the round that was sent last found no room here: it says nothing of what was lost.
    pub(super) fn crowded(&mut self) {
        if let Some(s) = &mut self.series {
            s.crowded = true;
        }
    }

    /// An answer came in.
    pub(super) fn answered(&mut self, now: Nanos, ack: &[u8]) {
        let Ok(ack) = <&[u8; ACK]>::try_from(ack) else { return };
        let number = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| ack[at + i]));
        let id = u64::from_be_bytes(std::array::from_fn(|i| ack[i]));
        let Some(s) = self.series.as_mut().filter(|s| s.id == id) else { return };
        // What is answered was a probe, and none is smaller.
        let (round, best) = (number(8), number(12).clamp(SMALLEST, self.carries));
        s.best = s.best.max(best);
        if round == s.rounds && !s.answered {
            s.answered = true;
            // Half a round trip more for what another channel delays.
            let took = now.since(s.sent_at);
            s.interval = took.mul_div(3, 2).clamp(SHORTEST, LONGEST);
            s.next = s.sent_at + s.interval;
        }
    }
}

/// Sizes below `payload` that are probed, largest first.
fn below(payload: u32) -> impl Iterator<Item = u32> {
    PAYLOADS.into_iter().filter(move |size| *size < payload)
}
