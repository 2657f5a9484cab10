//! Round-trip time of a connection, from the time stamps in control datagrams.
//!
//! Smoothed as in RFC 6298 section 2, with the smallest sample of the last [`WINDOW`] and the largest of all beside it.
//! Each sample leaves out the time that the peer held our stamp. The estimator trusts no echo: one that cannot be
//! true, is late, or is a duplicate is ignored, so that no sample is negative, above [`MAX_SAMPLE`], or counted twice.
//!
//! When the round trip **steps up**, `srtt` covers nine tenths of the step within 18 samples (1 - (7/8)^n), `rttvar`
//! jumps with the first one, `peak_rtt` is up at once, and `min_rtt` follows when the old values leave the window.
//! When it **steps down**, `min_rtt` is down at once, `srtt` follows as above, and `peak_rtt` stays: packets sent
//! before the step may still be under way, and what must outlast them is computed from it.

#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use crate::types::Nanos;

/// Largest sample that is believed.
pub const MAX_SAMPLE: Nanos = Nanos::from_secs(10);

/// Length of the window of the smallest sample. It moves in steps of a tenth, so that it covers 9 to 10 s.
pub const WINDOW: Nanos = Nanos::from_secs(10);

const BUCKETS: usize = 10;
const BUCKET: u64 = WINDOW.0 / BUCKETS as u64;

/// An echo held for more than this many times the round trip is not measured: two clocks may run apart by 10^-4, which
/// would be a tenth of the sample.
const MAX_HOLD: u64 = 1_024;

/// Below this the sample itself does not limit how long an echo may have been held.
const HOLD_FLOOR: Nanos = Nanos::from_micros(10);

/// Estimates the round-trip time.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    srtt: Nanos,
    rttvar: Nanos,
    peak: Nanos,
    /// Smallest sample of each tenth of the window, `Nanos::MAX` where there was none.
    mins: [Nanos; BUCKETS],
    /// Number of the newest tenth, counted from the origin of the clock.
    tenth: u64,
    samples: u64,
    /// Newest echo that was taken, and how long the peer had held it.
    newest: (Nanos, Nanos),
    last: Option<Sample>,
}

/// The round trip of one stamp; of a stamp that comes back again and again, the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The stamp: what was sent before it has left the path when the sample is known, by arriving or by being lost.
    pub sent: Nanos,
    /// Its round trip.
    pub rtt: Nanos,
}

impl RttEstimator {
    /// An estimator that says `initial` until the first sample.
    pub const fn new(initial: Nanos) -> Self {
        Self {
            srtt: initial,
            rttvar: Nanos(initial.0 / 2),
            peak: initial,
            mins: [Nanos::MAX; BUCKETS],
            tenth: 0,
            samples: 0,
            newest: (Nanos::ZERO, Nanos::ZERO),
            last: None,
        }
    }

    /// Takes an echo: the peer had our stamp `echo` and held it for `hold`. Returns the sample, or `None` when ignored.
    ///
    /// Ignored are: an echo from the future; a hold longer than the time since; a sample above [`MAX_SAMPLE`]; an echo
    /// older than one already taken, or the same one held no longer (late or duplicated datagrams); and a hold of more
    /// than 1,024 round trips, in which the clocks drift apart too far.
    pub fn on_echo(&mut self, now: Nanos, echo: Nanos, hold: Nanos) -> Option<Nanos> {
        let elapsed = now.0.checked_sub(echo.0)?;
        let sample = Nanos(elapsed.checked_sub(hold.0)?);
        let late = self.samples > 0 && (echo, hold) <= self.newest;
        if sample > MAX_SAMPLE || late || hold.0 / MAX_HOLD > sample.max(HOLD_FLOOR).0 {
            return None;
        }
        if self.last.is_none_or(|last| last.sent < echo) {
            self.last = Some(Sample { sent: echo, rtt: sample });
        }
        self.newest = (echo, hold);
        if self.samples == 0 {
            self.srtt = sample;
            self.rttvar = Nanos(sample.0 / 2);
            self.peak = sample;
        } else {
            let off = self.srtt.0.abs_diff(sample.0);
            self.rttvar = Nanos((3 * self.rttvar.0 + off) / 4);
            self.srtt = Nanos((7 * self.srtt.0 + sample.0) / 8);
            self.peak = self.peak.max(sample);
        }
        self.samples += 1;
        self.lower_min(now, sample);
        Some(sample)
    }

    fn lower_min(&mut self, now: Nanos, sample: Nanos) {
        // A clock that steps back counts for the newest tenth.
        let tenth = (now.0 / BUCKET).max(self.tenth);
        let stale = (tenth - self.tenth).min(BUCKETS as u64);
        for i in 0..stale {
            self.mins[((tenth - i) % BUCKETS as u64) as usize] = Nanos::MAX;
        }
        self.tenth = tenth;
        let slot = &mut self.mins[(tenth % BUCKETS as u64) as usize];
        *slot = sample.min(*slot);
    }

    /// Smoothed round trip.
    pub const fn srtt(&self) -> Nanos {
        self.srtt
    }

    /// Smoothed deviation of the round trip.
    pub const fn rttvar(&self) -> Nanos {
        self.rttvar
    }

    /// Smallest round trip of the [`WINDOW`] that ends with the newest sample.
    pub fn min_rtt(&self) -> Nanos {
        if self.samples == 0 {
            return self.srtt;
        }
        self.mins.iter().copied().fold(Nanos::MAX, Nanos::min)
    }

    /// Largest round trip of all samples.
    pub const fn peak_rtt(&self) -> Nanos {
        self.peak
    }

    /// The sample of the newest stamp that came back.
    pub const fn last(&self) -> Option<Sample> {
        self.last
    }

    /// Samples taken.
    pub const fn samples(&self) -> u64 {
        self.samples
    }
}
