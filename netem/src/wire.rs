//! Exact time on the wire.
//!
//! A 4096 B packet takes 81.92 ns at 400 Gbit/s, and at most rates a packet time is no whole number of any unit. So the
//! end of transmission is kept as picoseconds plus a fraction of `1 / rate`: a link never drifts, and a run of packets
//! ends at the same instant however it was split.

use sdr_sdk::types::Nanos;

use crate::units::BitRate;

const PICOS_PER_SECOND: u128 = 1_000_000_000_000;

/// Picoseconds: an instant since the origin of the [`Nanos`] in use, or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Picos(pub u128);

impl From<Nanos> for Picos {
    fn from(t: Nanos) -> Self {
        Self(u128::from(t.0) * 1_000)
    }
}

impl Picos {
    /// Time of `bits` at `rate`, to the nearest picosecond.
    pub fn of_bits(bits: u64, rate: BitRate) -> Self {
        let rate = u128::from(rate.bits_per_second());
        Self((u128::from(bits) * PICOS_PER_SECOND + rate / 2) / rate)
    }

    /// `self - earlier` in whole nanoseconds rounded down, saturating at both ends.
    pub fn nanos_since(self, earlier: Self) -> Nanos {
        Nanos(u64::try_from(self.0.saturating_sub(earlier.0) / 1_000).unwrap_or(u64::MAX))
    }
}

/// The instants at which packets of a back-to-back run start: `start + floor((frac + i * step) / rate)`.
#[derive(Clone, Copy, Debug)]
pub struct Cadence {
    start: u128,
    /// Part of a picosecond beyond `start`, in units of `1 / rate`.
    frac: u128,
    /// Bits of a packet in units of 1e-12 bit.
    step: u128,
    rate: u128,
}

impl Cadence {
    /// One packet every `packet_time` from `start`.
    pub fn every(start: Picos, packet_time: Picos) -> Self {
        Self { start: start.0, frac: 0, step: packet_time.0, rate: 1 }
    }

    /// The instant packet `i` starts, which is when packet `i - 1` has left.
    pub fn at(&self, i: u32) -> Picos {
        Picos(self.start + (self.frac + u128::from(i) * self.step) / self.rate)
    }

    /// First packet of `0..limit` that starts at `t` or later; `limit` when none does.
    pub fn first_from(&self, t: Picos, limit: u32) -> u32 {
        match limit.checked_sub(1) {
            Some(last) if self.at(last) >= t => {}
            _ => return limit,
        }
        if self.start >= t.0 || self.step == 0 {
            return 0;
        }
        let distance = ((t.0 - self.start) * self.rate).saturating_sub(self.frac);
        distance.div_ceil(self.step) as u32
    }
}

/// The transmitter: a rate, and when it is next free.
#[derive(Clone, Debug)]
pub struct Line {
    rate: Option<BitRate>,
    busy: u128,
    frac: u128,
}

impl Line {
    /// An idle line; without a rate it takes no time to send.
    pub fn new(rate: Option<BitRate>) -> Self {
        Self { rate, busy: 0, frac: 0 }
    }

    /// The rate.
    pub fn rate(&self) -> Option<BitRate> {
        self.rate
    }

    /// From the next packet on; what is queued leaves at the time already given to it.
    pub fn set_rate(&mut self, rate: Option<BitRate>) {
        self.rate = rate;
        self.frac = 0;
    }

    /// When everything queued has left.
    pub fn busy_until(&self) -> Picos {
        Picos(self.busy + u128::from(self.frac > 0))
    }

    /// Bits not sent at `now`, in units of 1e-12 bit. After a change of rate, the time left at the new rate.
    fn backlog(&self, now: Picos) -> u128 {
        match self.rate {
            Some(rate) if self.busy >= now.0 => {
                ((self.busy - now.0) * u128::from(rate.bits_per_second())).saturating_add(self.frac)
            }
            _ => 0,
        }
    }

    /// Bytes not sent at `now`, rounded up.
    pub fn backlog_bytes(&self, now: Picos) -> u64 {
        u64::try_from(self.backlog(now).div_ceil(8 * PICOS_PER_SECOND)).unwrap_or(u64::MAX)
    }

    /// How many of `packets` packets of `bits` each fit, one after the other, when at most `queue` bytes may wait.
    /// An idle line takes one packet of any size.
    pub fn admits(&self, now: Picos, packets: u32, bits: u64, queue: u64) -> u32 {
        if self.rate.is_none() || packets == 0 || bits == 0 {
            return packets;
        }
        let backlog = self.backlog(now);
        let free = (u128::from(queue) * (8 * PICOS_PER_SECOND)).saturating_sub(backlog);
        let fit = free / (u128::from(bits) * PICOS_PER_SECOND);
        let fit = u32::try_from(fit).unwrap_or(u32::MAX).min(packets);
        fit.max(u32::from(backlog == 0))
    }

    /// Sends `packets` packets of `bits` each but the last, which has `last_bits`, behind what is queued.
    /// Gives the starts of the packets and the instant the last has left.
    pub fn send(&mut self, now: Picos, packets: u32, bits: u64, last_bits: u64) -> (Cadence, Picos) {
        let (start, frac) = if now.0 > self.busy { (now.0, 0) } else { (self.busy, self.frac) };
        let Some(rate) = self.rate else {
            (self.busy, self.frac) = (start, 0);
            return (Cadence { start, frac: 0, step: 0, rate: 1 }, Picos(start));
        };
        let rate = u128::from(rate.bits_per_second());
        let step = u128::from(bits) * PICOS_PER_SECOND;
        let body = u128::from(packets.saturating_sub(1)) * step;
        let total = frac + body + u128::from(last_bits) * PICOS_PER_SECOND;
        self.busy = start + total / rate;
        self.frac = total % rate;
        (Cadence { start, frac, step, rate }, Picos(self.busy))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn first_from_is_what_a_scan_finds(start in 0u128..1000, frac in 0u128..100, step in 0u128..5000, rate in 101u128..300, t in 0u128..2000, limit in 0u32..80) {
            let cadence = Cadence { start, frac, step, rate };
            let scanned = (0..limit).find(|i| cadence.at(*i).0 >= t).unwrap_or(limit);
            prop_assert_eq!(cadence.first_from(Picos(t), limit), scanned);
        }
    }
}
