//! The largest payload that passes to a server and back, looked for before there is a connection.
//!
//! All sizes are asked for until the first answer; from then on those that are larger, and the largest that came back once
//! more: whether that one is lost tells what the silence about the larger ones is worth.

#![forbid(unsafe_code)]

use super::{INTERVAL, PAYLOADS};
use crate::types::Nanos;

/// Rounds of probes after the first answer: a size counts as too long for the path when none of them comes back.
const ROUNDS: u32 = 4;

/// A round trip counts as no shorter and no longer than this.
const SHORTEST: Nanos = Nanos::from_millis(5);
const LONGEST: Nanos = Nanos::from_secs(1);

/// As many more where probes of sizes that pass were lost too: at a loss of 0.3 each way half of all are, and a size
/// that passes is missed in a few of a thousand attempts.
const MORE_ROUNDS: u32 = 8;

/// One attempt's search.
pub(super) struct Probing {
    /// Largest that came back.
    best: Option<u32>,
    /// Between rounds: once something came back, the shortest round trip.
    pub(super) interval: Nanos,
    rounds_left: u32,
    /// Sizes that came back, by their place in [`PAYLOADS`].
    seen: [bool; PAYLOADS.len()],
    /// When the first answer came. Probes of sizes that had come back before, sent since then, and how many came back again.
    answered: Option<Nanos>,
    again: (u32, u32),
    /// Lost probes were seen: there are more rounds.
    lossy: bool,
}

impl Probing {
    pub(super) fn new() -> Self {
        Self {
            best: None,
            interval: INTERVAL,
            rounds_left: ROUNDS,
            seen: [false; PAYLOADS.len()],
            answered: None,
            again: (0, 0),
            lossy: false,
        }
    }

    /// Whether probes were lost that are not too long for the path.
    fn lost_some(&self) -> bool {
        let passes = |size: u32| self.best.is_some_and(|best| size <= best);
        self.again.1 < self.again.0
            || PAYLOADS.into_iter().zip(self.seen).any(|(size, seen)| passes(size) && !seen)
    }

    /// The next round: the sizes to ask for and how long to wait for them, or the largest that passes.
    pub(super) fn round(&mut self) -> Result<(impl Iterator<Item = u32> + use<>, Nanos), u32> {
        if let Some(best) = self.best {
            if self.rounds_left == 0 {
                if self.lossy || !self.lost_some() {
                    return Err(best);
                }
                (self.lossy, self.rounds_left) = (true, MORE_ROUNDS);
            }
            self.rounds_left -= 1;
            self.again.0 += 1;
        }
        // Rounds follow one another before the answers are here; the last one's are waited for, and may be late.
        let wait = match (self.best, self.rounds_left) {
            (None, _) => self.interval,
            (_, 0) => self.interval.mul_div(2, 1),
            _ => self.interval.mul_div(3, 4),
        };
        let best = self.best.unwrap_or(0);
        // The largest size first: small paths lose only probes. The best so far again: it tells of losses.
        Ok((PAYLOADS.into_iter().filter(move |&size| size >= best), wait))
    }

    /// A probe came back that had left at `sent`. True when that is the first.
    pub(super) fn came_back(&mut self, now: Nanos, size: u32, sent: Nanos) -> bool {
        let Some(place) = PAYLOADS.iter().position(|p| *p == size) else { return false };
        let first = self.answered.is_none();
        let rtt = now.since(sent).clamp(SHORTEST, LONGEST);
        self.interval = if first { rtt } else { self.interval.min(rtt) };
        let known = std::mem::replace(&mut self.seen[place], true);
        let answered = *self.answered.get_or_insert(now);
        self.again.1 += u32::from(known && answered <= sent);
        self.best = self.best.max(Some(size));
        first
    }
}
