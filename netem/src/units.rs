//! Numbers as people write them: sizes, rates, times, probabilities, distances.
//!
//! Decimal fractions are converted exactly (`1.5ms` is 1 500 000 ns, never 1 499 999); what is finer than the unit kept
//! is refused instead of rounded. Every type's `Display` gives a form its parser reads back to the same value.

use std::fmt;
use std::str::FromStr;

use sdr_sdk::types::Nanos;

#[cfg(test)]
mod tests;

/// Why a number was refused; one line, with what would have been accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// Not a number followed by a known unit.
    #[error("{what} {value:?} is not understood; write {allowed}")]
    Malformed {
        /// The kind of number.
        what: &'static str,
        /// As it was written.
        value: String,
        /// The accepted form.
        allowed: &'static str,
    },
    /// A number outside what the type holds.
    #[error("{what} {value:?} is out of range; write {allowed}")]
    OutOfRange {
        /// The kind of number.
        what: &'static str,
        /// As it was written.
        value: String,
        /// The accepted form.
        allowed: &'static str,
    },
    /// A fraction of the smallest unit kept.
    #[error("{what} {value:?} is no whole number of {unit}; write {allowed}")]
    TooFine {
        /// The kind of number.
        what: &'static str,
        /// As it was written.
        value: String,
        /// The smallest unit kept.
        unit: &'static str,
        /// The accepted form.
        allowed: &'static str,
    },
}

/// One kind of number with units: its name, its smallest unit and the multiples, in the order a value is formatted with.
struct Kind {
    what: &'static str,
    allowed: &'static str,
    smallest: &'static str,
    /// Suffix and worth; the first that divides a value is the one it is written with.
    units: &'static [(&'static str, u64)],
    /// Whether an integer without a unit is accepted.
    plain: bool,
}

const SIZE: Kind = Kind {
    what: "size",
    allowed: "a number with B, kB, MB, GB, KiB, MiB or GiB, or plain bytes, such as 100001B, 4KiB, 8MiB",
    smallest: "bytes",
    units: &[
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1_000),
        ("B", 1),
    ],
    plain: true,
};

const RATE: Kind = Kind {
    what: "rate",
    allowed: "a number above 0 with bit, kbit, Mbit, Gbit or Tbit (per second), such as 400Gbit, 3.2Tbit",
    smallest: "bit/s",
    units: &[
        ("Tbit", 1_000_000_000_000),
        ("Gbit", 1_000_000_000),
        ("Mbit", 1_000_000),
        ("kbit", 1_000),
        ("bit", 1),
    ],
    plain: false,
};

const TIME: Kind = Kind {
    what: "time",
    allowed: "a number with ns, us, ms or s, such as 25ms, 1.5ms, 300ns",
    smallest: "ns",
    units: &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)],
    plain: false,
};

impl Kind {
    fn malformed(&self, value: &str) -> UnitError {
        UnitError::Malformed { what: self.what, value: value.to_owned(), allowed: self.allowed }
    }

    fn out_of_range(&self, value: &str) -> UnitError {
        UnitError::OutOfRange { what: self.what, value: value.to_owned(), allowed: self.allowed }
    }

    /// `digits[.digits]unit` in smallest units.
    fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(number_end);
        let worth = match self.units.iter().find(|(name, _)| *name == suffix) {
            Some((_, worth)) => *worth,
            None if suffix.is_empty() && self.plain => 1,
            None => return Err(self.malformed(text)),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
            return Err(self.malformed(text));
        }
        // Digits beyond the 18th of a fraction cannot make a whole number of anything here unless they are zeros.
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 18 {
            return Err(self.too_fine(text));
        }
        let whole: u64 = whole.parse().map_err(|_| self.out_of_range(text))?;
        let scale = 10u128.pow(fraction.len() as u32);
        let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().unwrap_or(0) };
        let part = part * u128::from(worth);
        if !part.is_multiple_of(scale) {
            return Err(self.too_fine(text));
        }
        let total = u128::from(whole) * u128::from(worth) + part / scale;
        u64::try_from(total).map_err(|_| self.out_of_range(text))
    }

    fn too_fine(&self, value: &str) -> UnitError {
        let (what, unit, allowed) = (self.what, self.smallest, self.allowed);
        UnitError::TooFine { what, value: value.to_owned(), unit, allowed }
    }

    /// With the largest unit that keeps the value a whole number.
    fn format(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = self.units.iter().find(|(_, worth)| value != 0 && value.is_multiple_of(*worth));
        let (name, worth) = fits.copied().unwrap_or((self.units[self.units.len() - 1].0, 1));
        write!(f, "{}{name}", value / worth)
    }
}

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        SIZE.parse(text).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SIZE.format(self.0, f)
    }
}

/// Bits per second, above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// `bits` per second.
    ///
    /// # Errors
    /// [`UnitError::OutOfRange`] for zero.
    pub fn new(bits: u64) -> Result<Self, UnitError> {
        if bits == 0 { Err(RATE.out_of_range("0bit")) } else { Ok(Self(bits)) }
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for BitRate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match RATE.parse(text)? {
            0 => Err(RATE.out_of_range(text)),
            bits => Ok(Self(bits)),
        }
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RATE.format(self.0, f)
    }
}

/// A duration as it stands on a command line; [`Nanos`] itself displays for reports, rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub Nanos);

impl FromStr for Duration {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        TIME.parse(text).map(|ns| Self(Nanos(ns)))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TIME.format(self.0.0, f)
    }
}

/// A probability in [0, 1): a link that loses everything is not a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);
    const WHAT: &str = "probability";
    const ALLOWED: &str = "a number in [0, 1) or a percentage below 100%, such as 1e-5, 0.01, 1%";

    /// `p` in [0, 1).
    ///
    /// # Errors
    /// [`UnitError::OutOfRange`] for anything else, NaN included.
    pub fn new(p: f64) -> Result<Self, UnitError> {
        Self::checked(p, || p.to_string())
    }

    fn checked(p: f64, value: impl Fn() -> String) -> Result<Self, UnitError> {
        if (0.0..1.0).contains(&p) {
            // Adding zero turns -0.0 into 0.0.
            return Ok(Self(p + 0.0));
        }
        Err(UnitError::OutOfRange { what: Self::WHAT, value: value(), allowed: Self::ALLOWED })
    }

    /// As a float in [0, 1).
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number, 100.0),
            None => (text, 1.0),
        };
        match number.parse::<f64>() {
            Ok(p) => Self::checked(p / scale, || text.to_owned()),
            Err(_) => {
                let (what, allowed) = (Self::WHAT, Self::ALLOWED);
                Err(UnitError::Malformed { what, value: text.to_owned(), allowed })
            }
        }
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0.0 || self.0 >= 0.01 { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

/// What carries the light.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// 299 792.458 km/s, the convention of the papers compared with.
    #[default]
    Vacuum,
    /// Group index 1.468, single-mode fibre (ITU-T G.652) at 1550 nm.
    Fibre,
}

impl Medium {
    /// Speed of light in it, km/s.
    pub fn km_per_second(self) -> f64 {
        match self {
            Self::Vacuum => 299_792.458,
            Self::Fibre => 299_792.458 / 1.468,
        }
    }
}

impl FromStr for Medium {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "vacuum" => Ok(Self::Vacuum),
            "fibre" => Ok(Self::Fibre),
            _ => Err(UnitError::Malformed {
                what: "medium",
                value: text.to_owned(),
                allowed: "vacuum or fibre",
            }),
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vacuum => "vacuum",
            Self::Fibre => "fibre",
        })
    }
}

/// One-way length of a path, km.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Distance(f64);

impl Distance {
    const WHAT: &str = "distance";
    const ALLOWED: &str = "a number from 0 to 1e9 with km, such as 3750km";

    /// Kilometres.
    pub const fn km(self) -> f64 {
        self.0
    }

    /// Round-trip time `2 d / v`, to the nearest nanosecond.
    pub fn rtt(self, medium: Medium) -> Nanos {
        Nanos((2e9 * self.0 / medium.km_per_second()).round() as u64)
    }
}

impl FromStr for Distance {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (what, allowed, value) = (Self::WHAT, Self::ALLOWED, text.to_owned());
        match text.strip_suffix("km").and_then(|number| number.parse::<f64>().ok()) {
            Some(km) if (0.0..=1e9).contains(&km) => Ok(Self(km + 0.0)),
            Some(_) => Err(UnitError::OutOfRange { what, value, allowed }),
            None => Err(UnitError::Malformed { what, value, allowed }),
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}km", self.0)
    }
}
