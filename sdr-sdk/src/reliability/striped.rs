//! Schemes with parity: `ec:K,M`, `xor:K,M` and `hybrid`.
//!
//! | file | what it holds |
//! |---|---|
//! | `striped.rs` | the schemes |
//! | `striped/stripes.rs` | which packets a parity packet protects |
//! | `striped/plan.rs` | how much parity, and when |
//! | `striped/sender.rs`, `striped/receiver.rs` | the two halves |
//! | `striped/balance.rs` | what each stripe lacks |

mod balance;
pub mod plan;
mod receiver;
mod sender;
pub mod stripes;

pub use plan::Loss;
pub use receiver::Receiver;
pub use sender::Sender;
pub use stripes::{MAX_COLUMNS, MAX_K, Plan, Stripe, Stripes};

use super::{Conditions, MessageSpec, PlanError, Scheme, SchemeReceiver, SchemeSender};
use crate::ec::Code;
use plan::Choice;
use receiver::Setup;
use std::borrow::Cow;

/// Beyond its expected end, a message of a fixed code is waited for half a round trip (beta of arXiv 2505.05366
/// section 4.2.3) before what it lacks is asked for.
const FALLBACK_MILLI: u32 = 500;

/// Rows of the code beyond `k` data symbols.
fn code_rows(k: u32) -> u32 {
    256 - k.min(256)
}

/// Why a code cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// A number of data symbols outside the range.
    #[error("k = {0}: a stripe has 1 to {MAX_K} data symbols")]
    Data(u32),
    /// No parity, or more than the code has.
    #[error("m = {m} with k = {k}: a stripe has 1 to {} parity symbols there, k + m is at most {MAX_COLUMNS}", MAX_COLUMNS - k)]
    Parity {
        /// Data symbols.
        k: u32,
        /// Parity symbols.
        m: u32,
    },
    /// More XOR groups than data symbols.
    #[error(
        "m = {m} with k = {k}: each of the m parity symbols of xor covers k / m data symbols, so m is at most k"
    )]
    Groups {
        /// Data symbols.
        k: u32,
        /// Parity symbols.
        m: u32,
    },
}

/// Below so many expected losses of a message, `auto` sends no parity.
const RARE: f64 = 1e-4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Hybrid or none of it, as the path and the message ask for.
    Auto,
    Hybrid,
    Mds {
        k: u16,
        m: u16,
    },
    Xor {
        k: u16,
        m: u16,
    },
}

/// A scheme with parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striped(Kind);

impl Striped {
    /// `hybrid`: negative acknowledgements for the body, parity for what leaves in the last round trip.
    pub const fn hybrid() -> Self {
        Self(Kind::Hybrid)
    }

    /// `auto`: `hybrid`, or `sr-nack` where a loss is so unlikely that parity is not worth sending.
    pub const fn auto() -> Self {
        Self(Kind::Auto)
    }

    /// `ec:K,M`: M parity symbols behind every K data symbols, any K of which suffice.
    ///
    /// # Errors
    /// As [`CodeError`] says.
    pub fn ec(k: u32, m: u32) -> Result<Self, CodeError> {
        let (k, m) = checked(k, m)?;
        Ok(Self(Kind::Mds { k, m }))
    }

    /// `xor:K,M`: parity symbol i of M covers the data symbols j of K with j mod M = i; each makes up for one loss.
    ///
    /// # Errors
    /// As [`CodeError`] says.
    pub fn xor(k: u32, m: u32) -> Result<Self, CodeError> {
        let (k, m) = checked(k, m)?;
        if m > k {
            return Err(CodeError::Groups { k: k.into(), m: m.into() });
        }
        Ok(Self(Kind::Xor { k, m }))
    }

    /// What a message is sent with.
    fn choose(&self, m: &MessageSpec, c: &Conditions) -> Choice {
        let fixed = |k: u32, rows: u16, stripes: u32| {
            // Consecutive packets go to different stripes, four bursts apart where the message is long enough.
            let apart = if c.loss.burst > 1.5 { (4.0 * c.loss.burst).ceil() as u32 } else { 1 };
            let most = m.packets.div_ceil(k * stripes).max(1);
            let depth = (apart.div_ceil(stripes).min(most) * stripes).min(u16::MAX.into());
            Choice { plan: Plan { k: k as u16, m: rows, interleave: depth as u16 }, ..Choice::default() }
        };
        match self.0 {
            Kind::Auto if c.loss.probability * f64::from(m.packets) < RARE => Choice::default(),
            Kind::Auto | Kind::Hybrid => plan::choose(m, c),
            Kind::Mds { k, m: rows } => fixed(u32::from(k), rows, 1),
            // A parity symbol a stripe: the M groups are stripes side by side.
            Kind::Xor { k, m: groups } => fixed(u32::from(k.div_ceil(groups)), 1, groups.into()),
        }
    }

    fn stripes(&self, m: &MessageSpec, plan: &Plan) -> Option<Stripes> {
        let rows = match self.0 {
            Kind::Xor { .. } => 1,
            _ => code_rows(plan.k.into()),
        };
        Stripes::new(m, plan, self.is_fixed(), rows)
    }

    /// The code is given, and protects all of a message.
    fn is_fixed(&self) -> bool {
        matches!(self.0, Kind::Mds { .. } | Kind::Xor { .. })
    }

    fn is_xor(&self) -> bool {
        matches!(self.0, Kind::Xor { .. })
    }
}

fn checked(k: u32, m: u32) -> Result<(u16, u16), CodeError> {
    if !(1..=MAX_K).contains(&k) {
        return Err(CodeError::Data(k));
    }
    if m == 0 || k + m.min(256) > MAX_COLUMNS {
        return Err(CodeError::Parity { k, m });
    }
    Ok((k as u16, m as u16))
}

impl Scheme for Striped {
    fn name(&self) -> Cow<'static, str> {
        match self.0 {
            Kind::Auto => "auto".into(),
            Kind::Hybrid => "hybrid".into(),
            Kind::Mds { k, m } => format!("ec:{k},{m}").into(),
            Kind::Xor { k, m } => format!("xor:{k},{m}").into(),
        }
    }

    fn wire_id(&self) -> u8 {
        match self.0 {
            Kind::Hybrid => 3,
            Kind::Mds { .. } => 4,
            Kind::Xor { .. } => 5,
            Kind::Auto => 6,
        }
    }

    fn protects_all(&self) -> bool {
        self.is_fixed()
    }

    fn code(&self) -> Code {
        if self.is_xor() { Code::Xor } else { Code::Mds }
    }

    fn extra(&self, m: &MessageSpec, c: &Conditions) -> u32 {
        match self.0 {
            Kind::Auto | Kind::Hybrid => plan::extra(m, c),
            Kind::Mds { .. } | Kind::Xor { .. } => {
                let plan = self.choose(m, c).plan;
                let spare = if self.is_xor() { 0 } else { u32::from(plan.m) };
                let group = u32::from(plan.k) * u32::from(plan.interleave);
                let stripes = m.packets.div_ceil(group).saturating_mul(plan.interleave.into());
                stripes.saturating_mul(u32::from(plan.m) + spare)
            }
        }
    }

    fn explain(&self, m: &MessageSpec, c: &Conditions) -> Option<String> {
        let Plan { k, m: rows, interleave } = self.choose(m, c).plan;
        let (p, burst) = (c.loss.probability, c.loss.burst);
        let seen = format!("loss up to {p:.1e} in bursts of {burst:.1}");
        let stripes = u32::from(k) * u32::from(interleave);
        Some(match (self.0, k, rows) {
            (Kind::Auto, 0, _) => {
                format!("sr-nack: {seen} is less than {RARE:e} losses in the whole message")
            }
            (Kind::Auto | Kind::Hybrid, _, 0) => {
                format!("hybrid without unasked parity: {seen}, and the messages behind fill the path")
            }
            (Kind::Auto | Kind::Hybrid, ..) => {
                let last = if stripes < m.packets {
                    format!("the last {stripes} packets")
                } else {
                    "all packets".to_owned()
                };
                format!(
                    "hybrid: {seen}; {last} are protected by {rows} parity packets for each {k}, {interleave} interleaved"
                )
            }
            _ => return None,
        })
    }

    fn sender(&self, m: &MessageSpec, c: &Conditions) -> Box<dyn SchemeSender> {
        let mut choice = self.choose(m, c);
        // Without a row of parity there is no stripe: of the peer's memory for it nothing is known, and what it would ask for
        // before it asks for data does not exist.
        let stripes = self.stripes(m, &choice.plan).filter(|s| s.rows > 0);
        if stripes.is_none() {
            choice.plan = Plan::default();
        }
        choice.plan.m = stripes.map_or(0, |s| s.sent as u16);
        Box::new(Sender::new(m, choice, stripes))
    }

    fn receiver(
        &self,
        m: &MessageSpec,
        plan: &Plan,
        c: &Conditions,
    ) -> Result<Box<dyn SchemeReceiver>, PlanError> {
        let columns = u32::from(plan.k) + u32::from(plan.m);
        let packets = u32::from(plan.k).checked_mul(plan.interleave.into());
        if u32::from(plan.k) > MAX_K || columns > MAX_COLUMNS || packets.is_none_or(|p| p > 1 << 24) {
            return Err(PlanError { plan: *plan, scheme: self.name() });
        }
        let setup = Setup {
            stripes: self.stripes(m, plan),
            packets: m.packets,
            first_extra: m.first_extra,
            fallback_milli: self.is_fixed().then_some(FALLBACK_MILLI),
            copies: plan::report_copies(c),
            loss: c.loss.probability,
        };
        Ok(Box::new(Receiver::new(setup)))
    }
}
