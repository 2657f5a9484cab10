//! The command-line form of a path.
//!
//! `rtt=25ms,rate=2Gbit,loss=1e-3,burst=4,jitter=1ms,reorder=0.01,dup=1e-4,corrupt=1e-4,queue=16MiB,seed=7`, in any order
//! and any subset; `distance=3750km,medium=fibre` may stand for the rtt. Both directions get the same parameters, half
//! the rtt each, and random streams of their own. `Display` gives the canonical form: fixed order, defaults left out.

use std::fmt;
use std::str::FromStr;

use sdr_sdk::types::Nanos;

use crate::link::LinkSpec;
use crate::loss::{LossError, LossSpec};
use crate::rng::derive_seed;
use crate::units::{BitRate, ByteSize, Distance, Duration, Medium, Probability, UnitError};

#[cfg(test)]
mod tests;

const KEYS: &str = "rtt, distance, medium, rate, loss, burst, jitter, reorder, dup, corrupt, queue, seed";

/// Why a path was refused; one line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// An item without `=`.
    #[error("{item:?} is no key=value; keys are {KEYS}")]
    NotKeyValue {
        /// The item.
        item: String,
    },
    /// No such key.
    #[error("key {key:?} is unknown; keys are {KEYS}")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key given twice.
    #[error("key {key} is given twice; give it once")]
    DuplicateKey {
        /// The key.
        key: &'static str,
    },
    /// Two keys that say the same thing.
    #[error("rtt={rtt} and distance={distance} are both given; give one of them")]
    RttAndDistance {
        /// The rtt given.
        rtt: Duration,
        /// The distance given.
        distance: Distance,
    },
    /// A key that means nothing without another.
    #[error("{key}={value} needs {needs}; add {needs}= or leave {key} out")]
    Needs {
        /// The key given.
        key: &'static str,
        /// Its value.
        value: String,
        /// The key missing.
        needs: &'static str,
    },
    /// A value its unit's parser refused.
    #[error("{key}: {source}")]
    Unit {
        /// The key.
        key: &'static str,
        /// The parser's reason.
        source: UnitError,
    },
    /// A value that is no number of the right kind.
    #[error("{key}: {value:?} is not understood; write {allowed}")]
    Number {
        /// The key.
        key: &'static str,
        /// As it was written.
        value: String,
        /// The accepted form.
        allowed: &'static str,
    },
    /// Loss and burst that do not fit together.
    #[error("loss, burst: {0}")]
    Loss(#[from] LossError),
}

/// How long the path is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PathLength {
    /// Round-trip propagation time.
    Rtt(Nanos),
    /// Kilometres one way through a medium.
    Distance(Distance, Medium),
}

impl PathLength {
    /// Round-trip propagation time.
    pub fn rtt(self) -> Nanos {
        match self {
            Self::Rtt(rtt) => rtt,
            Self::Distance(distance, medium) => distance.rtt(medium),
        }
    }
}

/// Both directions of a path. The default is perfect: no delay, no loss, infinite rate.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// Length.
    pub length: PathLength,
    /// Rate of each direction; none is infinite.
    pub rate: Option<BitRate>,
    /// Average loss of each direction.
    pub loss: Probability,
    /// Mean burst of losses in packets at link rate; 1 means independent losses.
    pub burst: f64,
    /// Half-width of the uniform deviation from the one-way delay.
    pub jitter: Nanos,
    /// Probability that a packet is held back.
    pub reorder: Probability,
    /// Probability that a packet arrives twice.
    pub duplicate: Probability,
    /// Probability that a packet arrives with wrong bytes.
    pub corrupt: Probability,
    /// Most bytes waiting in each direction; none is no limit.
    pub queue: Option<ByteSize>,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for PathSpec {
    fn default() -> Self {
        Self {
            length: PathLength::Rtt(Nanos::ZERO),
            rate: None,
            loss: Probability::ZERO,
            burst: 1.0,
            jitter: Nanos::ZERO,
            reorder: Probability::ZERO,
            duplicate: Probability::ZERO,
            corrupt: Probability::ZERO,
            queue: None,
            seed: 0,
        }
    }
}

impl PathSpec {
    /// Round-trip propagation time.
    pub fn rtt(&self) -> Nanos {
        self.length.rtt()
    }

    /// Whether packets of one run arrive each at an instant of its own.
    pub fn scatters(&self) -> bool {
        let single = [self.reorder, self.duplicate, self.corrupt];
        self.jitter > Nanos::ZERO || single.iter().any(|p| *p > Probability::ZERO)
    }

    /// The direction away from the side that gave the path.
    ///
    /// # Errors
    /// [`LossError`] when `loss` and `burst` do not fit together; never for a parsed path.
    pub fn forward(&self) -> Result<LinkSpec, LossError> {
        self.direction(0, Nanos(self.rtt().0.div_ceil(2)))
    }

    /// The direction back.
    ///
    /// # Errors
    /// As [`PathSpec::forward`].
    pub fn reverse(&self) -> Result<LinkSpec, LossError> {
        self.direction(1, Nanos(self.rtt().0 / 2))
    }

    fn direction(&self, stream: u64, delay: Nanos) -> Result<LinkSpec, LossError> {
        Ok(LinkSpec {
            rate: self.rate,
            delay,
            jitter: self.jitter,
            loss: LossSpec::bursty(self.loss, self.burst)?,
            reorder: self.reorder,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            queue: self.queue,
            seed: derive_seed(self.seed, stream),
            ..LinkSpec::default()
        })
    }
}

/// What was written, before the keys are looked at together.
#[derive(Default)]
struct Given {
    rtt: Option<Duration>,
    distance: Option<Distance>,
    medium: Option<Medium>,
    rate: Option<BitRate>,
    loss: Option<Probability>,
    burst: Option<f64>,
    jitter: Option<Duration>,
    reorder: Option<Probability>,
    duplicate: Option<Probability>,
    corrupt: Option<Probability>,
    queue: Option<ByteSize>,
    seed: Option<u64>,
}

impl Given {
    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match key {
            "rtt" => put(&mut self.rtt, "rtt", value, unit),
            "distance" => put(&mut self.distance, "distance", value, unit),
            "medium" => put(&mut self.medium, "medium", value, unit),
            "rate" => put(&mut self.rate, "rate", value, unit),
            "loss" => put(&mut self.loss, "loss", value, unit),
            "burst" => put(&mut self.burst, "burst", value, burst),
            "jitter" => put(&mut self.jitter, "jitter", value, unit),
            "reorder" => put(&mut self.reorder, "reorder", value, unit),
            "dup" => put(&mut self.duplicate, "dup", value, unit),
            "corrupt" => put(&mut self.corrupt, "corrupt", value, unit),
            "queue" => put(&mut self.queue, "queue", value, unit),
            "seed" => put(&mut self.seed, "seed", value, seed),
            _ => Err(SpecError::UnknownKey { key: key.to_owned() }),
        }
    }
}

fn put<T>(
    slot: &mut Option<T>,
    key: &'static str,
    value: &str,
    parse: impl Fn(&'static str, &str) -> Result<T, SpecError>,
) -> Result<(), SpecError> {
    if slot.is_some() {
        return Err(SpecError::DuplicateKey { key });
    }
    *slot = Some(parse(key, value)?);
    Ok(())
}

fn unit<T: FromStr<Err = UnitError>>(key: &'static str, value: &str) -> Result<T, SpecError> {
    value.parse().map_err(|source| SpecError::Unit { key, source })
}

fn burst(key: &'static str, value: &str) -> Result<f64, SpecError> {
    let allowed = "a number of packets above 0, such as 4; up to 1 means independent losses";
    match value.parse::<f64>() {
        Ok(burst) if burst > 0.0 && burst.is_finite() => Ok(burst.max(1.0)),
        _ => Err(SpecError::Number { key, value: value.to_owned(), allowed }),
    }
}

fn seed(key: &'static str, value: &str) -> Result<u64, SpecError> {
    let allowed = "an integer from 0 to 18446744073709551615";
    value.parse().map_err(|_| SpecError::Number { key, value: value.to_owned(), allowed })
}

impl FromStr for PathSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut given = Given::default();
        for item in text.split(',').map(str::trim) {
            if item.is_empty() && text.trim().is_empty() {
                break;
            }
            let Some((key, value)) = item.split_once('=') else {
                return Err(SpecError::NotKeyValue { item: item.to_owned() });
            };
            given.set(key.trim_end(), value.trim_start())?;
        }
        let length = match (given.rtt, given.distance, given.medium) {
            (Some(rtt), Some(distance), _) => return Err(SpecError::RttAndDistance { rtt, distance }),
            (_, None, Some(medium)) => {
                return Err(SpecError::Needs { key: "medium", value: medium.to_string(), needs: "distance" });
            }
            (_, Some(distance), medium) => PathLength::Distance(distance, medium.unwrap_or_default()),
            (rtt, None, None) => PathLength::Rtt(rtt.unwrap_or_default().0),
        };
        let loss = match (given.loss, given.burst) {
            (None, Some(burst)) => {
                return Err(SpecError::Needs { key: "burst", value: burst.to_string(), needs: "loss" });
            }
            (loss, _) => loss.unwrap_or_default(),
        };
        let burst = given.burst.unwrap_or(1.0);
        LossSpec::bursty(loss, burst)?;
        Ok(Self {
            length,
            rate: given.rate,
            loss,
            burst: if loss == Probability::ZERO { 1.0 } else { burst },
            jitter: given.jitter.unwrap_or_default().0,
            reorder: given.reorder.unwrap_or_default(),
            duplicate: given.duplicate.unwrap_or_default(),
            corrupt: given.corrupt.unwrap_or_default(),
            queue: given.queue,
            seed: given.seed.unwrap_or_default(),
        })
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut item = |key: &str, value: &dyn fmt::Display, given: bool| {
            if !given {
                return Ok(());
            }
            write!(f, "{separator}{key}={value}")?;
            separator = ",";
            Ok(())
        };
        match self.length {
            PathLength::Rtt(rtt) => item("rtt", &Duration(rtt), rtt > Nanos::ZERO)?,
            PathLength::Distance(distance, medium) => {
                item("distance", &distance, true)?;
                item("medium", &medium, medium != Medium::default())?;
            }
        }
        if let Some(rate) = self.rate {
            item("rate", &rate, true)?;
        }
        let lossy = self.loss > Probability::ZERO;
        item("loss", &self.loss, lossy)?;
        item("burst", &self.burst, lossy && self.burst > 1.0)?;
        item("jitter", &Duration(self.jitter), self.jitter > Nanos::ZERO)?;
        item("reorder", &self.reorder, self.reorder > Probability::ZERO)?;
        item("dup", &self.duplicate, self.duplicate > Probability::ZERO)?;
        item("corrupt", &self.corrupt, self.corrupt > Probability::ZERO)?;
        if let Some(queue) = self.queue {
            item("queue", &queue, true)?;
        }
        item("seed", &self.seed, self.seed != 0)
    }
}
