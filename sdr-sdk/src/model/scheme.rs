//! The schemes that are modelled, by name.

use super::erasure::{Code, Erasure};
use super::hybrid::Hybrid;
use super::law::Law;
use super::repeat::Repeat;
use super::rows::MAX_COLUMNS;
use super::setting::{Setting, SettingError};
use std::fmt;
use std::str::FromStr;

/// Most data symbols of a stripe: with [`MAX_COLUMNS`] that leaves 16 rows for parity sent at once.
pub const MAX_DATA: u32 = 224;

/// Timeout of `sr` beyond the round trip, in round trips (arXiv 2505.05366, section 5.1.1: RTO = 3 RTT).
pub const ALPHA: f64 = 2.0;

/// A scheme whose completion time has a formula. `Display` and `FromStr` agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemeModel {
    /// `sr`: selective repeat by timeouts, RTO = RTT + 2 RTT.
    Sr,
    /// `sr-nack`: the same with RTO = RTT, the best case of a report that names the lost packet.
    SrNack,
    /// `ec:K,M`: M parity symbols of an MDS code for every K consecutive packets; what fails is sent again by `sr`.
    Mds {
        /// Data symbols of a stripe.
        k: u32,
        /// Parity symbols of a stripe.
        m: u32,
    },
    /// `xor:K,M`: parity symbol i is the XOR of the data symbols j with j mod M = i; what fails is sent again by `sr`.
    Xor {
        /// Data symbols of a stripe.
        k: u32,
        /// Parity symbols of a stripe, and groups of its data.
        m: u32,
    },
    /// `hybrid`: reports for what left more than a round trip before the end, parity after the data for the rest.
    Hybrid,
}

/// Why a text names no scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// No such name.
    #[error("scheme {0:?} is unknown: choose sr, sr-nack, ec:K,M, xor:K,M or hybrid, such as ec:32,8")]
    Unknown(String),
    /// Not two numbers.
    #[error("scheme {0:?}: write two whole numbers after the colon, such as {1}:32,8")]
    Numbers(String, &'static str),
    /// Too few or too many data symbols.
    #[error("scheme {scheme:?}: k = {k} data symbols, choose 1 to {MAX_DATA}")]
    Data {
        /// As written.
        scheme: String,
        /// Out of range.
        k: u32,
    },
    /// Too few or too many parity symbols.
    #[error("scheme {scheme:?}: m = {m} parity symbols, choose 1 to {max} with k = {k}")]
    Parity {
        /// As written.
        scheme: String,
        /// Out of range.
        m: u32,
        /// Data symbols.
        k: u32,
        /// Most parity symbols that go with them.
        max: u32,
    },
}

/// Why there is no distribution.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The setting is impossible or out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The groups of an XOR code in a burst have no formula here.
    #[error(
        "xor is modelled for independent losses only, not for bursts of {0} packets: choose a burst of 1, or ec"
    )]
    XorBurst(f64),
}

impl SchemeModel {
    /// Distribution of the completion time of one message.
    pub fn law(&self, setting: &Setting) -> Result<Box<dyn Law>, ModelError> {
        setting.check()?;
        let code = match *self {
            Self::Sr => return Ok(Box::new(Repeat::of(setting, ALPHA))),
            Self::SrNack => return Ok(Box::new(Repeat::of(setting, 0.0))),
            Self::Hybrid => return Ok(Box::new(Hybrid::new(setting))),
            Self::Xor { .. } if setting.burst > 1.0 && setting.loss > 0.0 => {
                return Err(ModelError::XorBurst(setting.burst));
            }
            Self::Mds { k, m } => Code::Mds { k, m },
            Self::Xor { k, m } => Code::Xor { k, m },
        };
        Ok(Box::new(Erasure::new(setting, code)))
    }
}

impl fmt::Display for SchemeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sr => f.write_str("sr"),
            Self::SrNack => f.write_str("sr-nack"),
            Self::Mds { k, m } => write!(f, "ec:{k},{m}"),
            Self::Xor { k, m } => write!(f, "xor:{k},{m}"),
            Self::Hybrid => f.write_str("hybrid"),
        }
    }
}

impl FromStr for SchemeModel {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        match text {
            "sr" => return Ok(Self::Sr),
            "sr-nack" => return Ok(Self::SrNack),
            "hybrid" => return Ok(Self::Hybrid),
            _ => {}
        }
        let (name, numbers) = match text.split_once(':') {
            Some(("ec", numbers)) => ("ec", numbers),
            Some(("xor", numbers)) => ("xor", numbers),
            _ => return Err(SchemeError::Unknown(text.to_owned())),
        };
        let malformed = || SchemeError::Numbers(text.to_owned(), name);
        // `u32::from_str` takes a sign; nobody means one.
        let number = |digits: &str| -> Result<u32, SchemeError> {
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse().ok().filter(|_| plain).ok_or_else(malformed)
        };
        let (k, m) = numbers.split_once(',').ok_or_else(malformed)?;
        let (k, m) = (number(k)?, number(m)?);
        if !(1..=MAX_DATA).contains(&k) {
            return Err(SchemeError::Data { scheme: text.to_owned(), k });
        }
        let room = MAX_COLUMNS - k;
        let max = if name == "xor" { room.min(k) } else { room };
        if !(1..=max).contains(&m) {
            return Err(SchemeError::Parity { scheme: text.to_owned(), m, k, max });
        }
        Ok(if name == "xor" { Self::Xor { k, m } } else { Self::Mds { k, m } })
    }
}
