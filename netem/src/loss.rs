//! Which packets of a back-to-back run are lost.
//!
//! A model answers for whole runs with the ranges that survive, so its cost is per loss and not per packet. It decides
//! nothing about delay or order, and how a stream is cut into runs never changes which packets it loses.

use std::ops::Range;
use std::sync::Arc;

use crate::rng::{Geometric, Random};
use crate::units::Probability;
use crate::wire::{Cadence, Picos};
use gilbert::GilbertElliott;

mod gilbert;
#[cfg(test)]
mod tests;

/// How packets are lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossSpec {
    /// Nothing is.
    #[default]
    None,
    /// Each packet on its own.
    Iid {
        /// Loss probability.
        p: Probability,
    },
    /// Bursts: a good state that loses nothing and a bad one that loses everything (Gilbert 1960).
    GilbertElliott {
        /// Average loss over time.
        p: Probability,
        /// Mean burst length in reference-size packets at link rate; at most 1 means [`LossSpec::Iid`].
        burst: f64,
    },
    /// Packet `n` is lost when `n mod every == offset`; packets count from zero.
    Periodic {
        /// Period in packets, at least 1.
        every: u64,
        /// Below `every`.
        offset: u64,
    },
    /// One entry a packet, true for lost, repeating.
    Trace(Arc<[bool]>),
}

/// Why a loss model was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LossError {
    /// The good state would have to last less than one packet on average.
    #[error(
        "loss {p} is too high for bursts of {burst} packets; at most burst / (burst + 1) = {limit:.6} is possible"
    )]
    AboveBurstLimit {
        /// Average loss asked for.
        p: Probability,
        /// Mean burst length asked for, packets.
        burst: f64,
        /// The highest average loss with that burst length.
        limit: f64,
    },
    /// Not a usable number of packets.
    #[error("burst length {burst} is out of range; write a number of packets above 0, at most {MAX_BURST:e}")]
    BadBurst {
        /// As asked for.
        burst: f64,
    },
    /// A period of no packets, or an offset outside the period.
    #[error("periodic loss of packet {offset} in every {every} is impossible; every >= 1 and offset < every")]
    BadPeriod {
        /// Period in packets.
        every: u64,
        /// Offset in packets.
        offset: u64,
    },
    /// A trace without packets.
    #[error("loss trace is empty; write one 0 (delivered) or 1 (lost) a packet")]
    EmptyTrace,
    /// Something else than 0, 1, white space or a comment.
    #[error(
        "loss trace line {line} has {found:?}; write one 0 (delivered) or 1 (lost) a packet, # starts a comment"
    )]
    BadTrace {
        /// Line, from 1.
        line: usize,
        /// The offending character.
        found: char,
    },
}

/// Longest mean burst accepted, packets.
const MAX_BURST: f64 = 1e9;

impl LossSpec {
    /// Average loss `p` in bursts of `burst` packets on average; the simplest model with that law.
    ///
    /// # Errors
    /// As [`LossSpec::check`].
    pub fn bursty(p: Probability, burst: f64) -> Result<Self, LossError> {
        let spec = if p == Probability::ZERO {
            Self::None
        } else if burst > 0.0 && burst <= 1.0 {
            Self::Iid { p }
        } else {
            Self::GilbertElliott { p, burst }
        };
        spec.check().map(|()| spec)
    }

    /// Reads a trace: one `0` (delivered) or `1` (lost) a packet; white space, and `#` to the end of its line, are skipped.
    ///
    /// # Errors
    /// [`LossError::BadTrace`] or [`LossError::EmptyTrace`].
    pub fn trace_from_text(text: &str) -> Result<Self, LossError> {
        let mut trace = Vec::new();
        for (line, content) in text.lines().enumerate() {
            for found in content.chars().take_while(|c| *c != '#').filter(|c| !c.is_whitespace()) {
                match found {
                    '0' => trace.push(false),
                    '1' => trace.push(true),
                    _ => return Err(LossError::BadTrace { line: line + 1, found }),
                }
            }
        }
        let spec = Self::Trace(trace.into());
        spec.check().map(|()| spec)
    }

    /// Whether the parameters make sense together.
    ///
    /// # Errors
    /// The [`LossError`] that says which do not.
    pub fn check(&self) -> Result<(), LossError> {
        match *self {
            Self::GilbertElliott { p, burst } => {
                if !(burst > 0.0 && burst <= MAX_BURST) {
                    return Err(LossError::BadBurst { burst });
                }
                let limit = burst / (burst + 1.0);
                if burst > 1.0 && p.get() > limit {
                    return Err(LossError::AboveBurstLimit { p, burst, limit });
                }
                Ok(())
            }
            Self::Periodic { every, offset } if offset >= every => {
                Err(LossError::BadPeriod { every, offset })
            }
            Self::Trace(ref trace) if trace.is_empty() => Err(LossError::EmptyTrace),
            _ => Ok(()),
        }
    }
}

/// The state of one direction's losses.
#[derive(Clone, Debug)]
pub struct LossModel(State);

#[derive(Clone, Debug)]
enum State {
    Counted { source: Counted, seen: u64, next_loss: u64 },
    Timed(Box<GilbertElliott>),
}

/// Models that count packets and do not look at time; each knows its next loss. `u64::MAX` is never.
#[derive(Clone, Debug)]
enum Counted {
    Never,
    Iid { gap: Geometric, rng: Random },
    Periodic { every: u64 },
    Trace { losses: Box<[u64]>, period: u64, at: usize, base: u64 },
}

impl Counted {
    /// The first loss at packet `from` or later; `from` is 0 or one more than the last answer.
    fn next_from(&mut self, from: u64) -> u64 {
        match self {
            Self::Never => u64::MAX,
            Self::Iid { gap, rng } => from.saturating_add(gap.draw(rng)),
            Self::Periodic { every } => from.saturating_add(*every - 1),
            Self::Trace { losses, period, at, base } => {
                if losses.is_empty() {
                    return u64::MAX;
                }
                if *at == losses.len() {
                    (*at, *base) = (0, base.saturating_add(*period));
                }
                *at += 1;
                base.saturating_add(losses[*at - 1])
            }
        }
    }
}

impl LossModel {
    /// `slot` is the wire time of one reference-size packet, the unit of burst lengths.
    ///
    /// # Errors
    /// As [`LossSpec::check`].
    pub fn new(spec: &LossSpec, slot: Picos, seed: u64) -> Result<Self, LossError> {
        spec.check()?;
        let mut source = match *spec {
            LossSpec::None => Counted::Never,
            LossSpec::Iid { p } => Counted::Iid { gap: Geometric::new(p.get()), rng: Random::new(seed) },
            LossSpec::GilbertElliott { p, .. } if p == Probability::ZERO => Counted::Never,
            LossSpec::GilbertElliott { p, burst } if burst <= 1.0 => {
                Counted::Iid { gap: Geometric::new(p.get()), rng: Random::new(seed) }
            }
            LossSpec::GilbertElliott { p, burst } => {
                return Ok(Self(State::Timed(Box::new(GilbertElliott::new(p.get(), burst, slot, seed)))));
            }
            LossSpec::Periodic { every, offset } => {
                let source = Counted::Periodic { every };
                return Ok(Self(State::Counted { source, seen: 0, next_loss: offset }));
            }
            LossSpec::Trace(ref trace) => {
                let losses = (0u64..).zip(trace.iter()).filter(|(_, lost)| **lost).map(|(n, _)| n).collect();
                Counted::Trace { losses, period: trace.len() as u64, at: 0, base: 0 }
            }
        };
        let next_loss = source.next_from(0);
        Ok(Self(State::Counted { source, seen: 0, next_loss }))
    }

    /// Changes the unit of burst lengths, for a link whose rate changed.
    pub fn set_slot(&mut self, slot: Picos) {
        if let State::Timed(model) = &mut self.0 {
            model.set_slot(slot);
        }
    }

    /// Fills `out` with the surviving sub-ranges of `0..packets`, ascending and not touching.
    ///
    /// `run` says when each packet starts on the wire; only bursts look at it. A packet that starts in a bad period is lost.
    pub fn survivors(&mut self, run: &Cadence, packets: u32, out: &mut Vec<Range<u32>>) {
        out.clear();
        match &mut self.0 {
            State::Timed(model) => model.survivors(run, packets, out),
            State::Counted { source, seen, next_loss } => {
                let end = seen.saturating_add(u64::from(packets));
                let mut from = 0;
                while *next_loss < end {
                    let lost = (*next_loss - *seen) as u32;
                    if lost > from {
                        out.push(from..lost);
                    }
                    from = lost + 1;
                    *next_loss = source.next_from(*next_loss + 1);
                }
                if from < packets {
                    out.push(from..packets);
                }
                *seen = end;
            }
        }
    }
}
