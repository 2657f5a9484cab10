//! Reports for the body of a message, parity after the data for its tail.
//!
//! Derived, approximate. What leaves more than a round trip before the end of the data (the body) is repaired by reports
//! while data still flows: that costs nothing but the wire time of the repairs, p / (1 - p) of the body. The last round
//! trip (the tail) is cut into D stripes of k packets, packet i in stripe i mod D, and parity follows the data in rounds
//! of one symbol a stripe. The message is complete when the last stripe is, and a stripe is after the first r rounds of
//! which it lost at most as many symbols, data included, as there were rounds:
//!
//! P(r rounds suffice for a stripe) = 1 - P(more than r of k + r symbols lost).
//!
//! So T = RTT + bytes / rate + body repair + what the slowest of D stripes needs; parity that nobody needs costs no time.
//! With a probability of about [`EPSILON`] the planned rows do not suffice, and fresh ones come a round trip later.
//!
//! Left out: lost reports, spread of the body repair, copies of repairs that leave in the last round trip, stripes
//! shorter by one packet, encoding and decoding. Against packet-level simulation the mean slowdown is within 0.004 for
//! losses up to 1e-2.

use super::law::{Law, ROUNDING};
use super::rows::{MAX_COLUMNS, Shortfall, rows};
use super::scheme::MAX_DATA;
use super::setting::Setting;

/// Probability, of a message, that the planned rows do not suffice.
pub const EPSILON: f64 = 1e-4;

/// Rows that a lone message plans for at least: unused parity is free for it, and an estimate of the loss may be ten
/// times too low.
pub const FLOOR: u32 = 16;

/// Messages up to this many packets are one stripe and keep to a lower floor, or parity would be most of what is sent.
const SMALL: u64 = 64;

/// How the tail of a message is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Packets of the tail.
    pub packets: u64,
    /// D: its stripes.
    pub stripes: u32,
    /// k: data symbols of a stripe.
    pub k: u32,
    /// m0: planned parity rows.
    pub rows: u32,
    /// Idle slots between data and parity.
    pub gap: u32,
}

impl Tail {
    /// The tail: the last RTT and two report intervals of RTT / 128 (at least 16 packets each), k at most 224 and less
    /// where more rows are needed.
    pub fn new(setting: &Setting) -> Self {
        let (rtt, packet_time) = (setting.rtt_ns(), setting.packet_time());
        let report = (rtt / 128.0).max(16.0 * packet_time);
        let packets = (((rtt + 2.0 * report) / packet_time).ceil() as u64).min(setting.packets());
        let mut most = MAX_DATA;
        loop {
            let stripes = packets.div_ceil(u64::from(most));
            let k = packets.div_ceil(stripes) as u32;
            // The setting bounds the packets, and with them this.
            let stripes = stripes as u32;
            let spread = setting.burst <= 1.0 || f64::from(stripes) >= 4.0 * setting.burst;
            let gap = if spread { 0.0 } else { (8.0 * setting.burst).min(0.002 * rtt / packet_time) };
            let gap = gap as u32;
            let floor = match k {
                1 => 2,
                _ if setting.packets() <= SMALL => 3,
                _ => FLOOR.min(MAX_COLUMNS - k),
            };
            let wanted = rows(k, stripes, setting.loss, setting.burst, gap, EPSILON);
            let tail = |rows: u32| Self { packets, stripes, k, rows: rows.max(floor), gap };
            match wanted {
                Some(rows) => return tail(rows),
                None if most > 8 => most -= 8,
                // No code is strong enough: all columns there are.
                None => return tail(MAX_COLUMNS - k),
            }
        }
    }

    /// P(r rows do not suffice for a stripe) for r = 0 to `rows`.
    fn shortfalls(&self, setting: &Setting) -> Vec<f64> {
        let tails = Shortfall::new(self.k, self.stripes, setting.loss, setting.burst, self.gap);
        tails.into_iter().flatten().take(self.rows as usize + 1).collect()
    }
}

/// Completion time of the hybrid scheme.
pub struct Hybrid {
    tail: Tail,
    /// All data and its repair is on the wire, and the acknowledgement is back.
    data_done: f64,
    packet_time: f64,
    /// Of a completion with fresh rows, in slots after the data.
    fresh: f64,
    /// Index r: logarithm of P(a stripe is whole after r rounds).
    ln_whole: Vec<f64>,
    extra_bytes: f64,
}

impl Hybrid {
    /// A lone message, the loss known.
    pub fn new(setting: &Setting) -> Self {
        let tail = Tail::new(setting);
        let packet_time = setting.packet_time();
        let body = (setting.packets() - tail.packets) as f64;
        let repair = body * setting.loss / (1.0 - setting.loss);
        let ln_whole: Vec<f64> =
            tail.shortfalls(setting).into_iter().map(|short| (-short.min(1.0)).ln_1p()).collect();
        let planned = f64::from(tail.rows) * f64::from(tail.stripes);
        let end = f64::from(tail.gap) + planned;
        Self {
            tail,
            data_done: setting.lower_bound() + repair * packet_time,
            packet_time,
            // A stripe that lacks d symbols gets d + 2; nearly always d is 1.
            fresh: end + setting.rtt_ns() / packet_time + 3.0,
            ln_whole,
            extra_bytes: (repair + planned) * setting.packet_bytes.min(setting.bytes) as f64,
        }
    }

    /// How the tail is protected.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Logarithm of the probability that every stripe is whole when `slots` parity packets have come.
    ///
    /// Parity packet s belongs to stripe s mod D, so in an unfinished round the first stripes have one row more than the rest.
    fn ln_whole(&self, slots: u64) -> f64 {
        let stripes = u64::from(self.tail.stripes);
        let (round, ahead) = ((slots / stripes) as usize, slots % stripes);
        let last = self.ln_whole.len() - 1;
        let whole = |round: usize| self.ln_whole[round.min(last)];
        let behind = (stripes - ahead) as f64 * whole(round);
        // Zero times minus infinity has no value, and stands for nothing here.
        if ahead == 0 { behind } else { behind + ahead as f64 * whole(round + 1) }
    }

    fn planned(&self) -> u64 {
        u64::from(self.tail.stripes) * (self.ln_whole.len() as u64 - 1)
    }

    /// When `slots` parity packets have come; without parity the gap does not count.
    fn time_after(&self, slots: u64) -> f64 {
        let gap = if slots > 0 { f64::from(self.tail.gap) } else { 0.0 };
        self.data_done + (gap + slots as f64) * self.packet_time
    }
}

impl Law for Hybrid {
    fn cdf(&self, t: f64) -> f64 {
        let slots = (t * (1.0 + ROUNDING) - self.data_done) / self.packet_time;
        if slots < 0.0 {
            return 0.0;
        }
        if slots >= self.fresh {
            return 1.0;
        }
        // A float is cast to the nearest integer of the type.
        let slots = ((slots - f64::from(self.tail.gap)).max(0.0) as u64).min(self.planned());
        self.ln_whole(slots).exp()
    }

    fn mean(&self) -> f64 {
        let stripes = f64::from(self.tail.stripes);
        // The expected number of slots is the sum of the probabilities that they do not suffice; in a round that is a
        // geometric series.
        let mut slots = f64::from(self.tail.gap) * -self.ln_whole(0).exp_m1();
        for pair in self.ln_whole.windows(2) {
            let (level, rise) = (stripes * pair[0], pair[1] - pair[0]);
            if level < -700.0 && stripes * pair[1] < -700.0 {
                slots += stripes;
                continue;
            }
            // From the end of the round downwards the terms fall, so nothing overflows.
            let top = (stripes * pair[1]).exp();
            let whole =
                if rise > 0.0 { top * -(-stripes * rise).exp_m1() / rise.exp_m1() } else { stripes * top };
            slots += stripes - whole;
        }
        let waits = self.fresh - f64::from(self.tail.gap) - self.planned() as f64;
        slots += self.fallback() * waits;
        self.data_done + slots * self.packet_time
    }

    fn quantile(&self, q: f64) -> f64 {
        let planned = self.planned();
        if self.ln_whole(planned).exp() < q {
            return self.data_done + self.fresh * self.packet_time;
        }
        let (mut low, mut high) = (0, planned);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.ln_whole(middle).exp() >= q { high = middle } else { low = middle + 1 }
        }
        self.time_after(high)
    }

    fn fallback(&self) -> f64 {
        -self.ln_whole(self.planned()).exp_m1()
    }

    fn extra_bytes(&self) -> f64 {
        self.extra_bytes
    }
}
