//! Faults that hit control datagrams by what they say.

use crate::nets::FaultNet;
use netem::Pair;
use netem::sim::{Direction, Forged, Frame, FrameKind, Verdict};
use sdr_sdk::connection::frames::{self, Frames};
use sdr_sdk::control::Datagram;
use sdr_sdk::types::{Nanos, QueueSet, Seq};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a control datagram can say. One datagram can say several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Grants.
    Cts,
    /// A message begins.
    Announce,
    /// What arrived.
    Report,
    /// Packets that are asked for; only of schemes with parity.
    Want,
    /// How receives ended.
    Done,
    /// No grants and nothing of the layer above.
    FactsOnly,
    /// More grants seen than any datagram said that passed.
    GrantsSeen,
    /// More messages closed than any datagram said that passed.
    Closed,
    /// An answer is wanted.
    Probe,
    /// The end.
    Close,
}

impl Kind {
    /// All that occur in a connection that goes on.
    pub const LIVING: [Self; 8] = [
        Self::Cts,
        Self::Announce,
        Self::Report,
        Self::Done,
        Self::FactsOnly,
        Self::GrantsSeen,
        Self::Closed,
        Self::Probe,
    ];
}

/// What happens to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The first so many are lost.
    Lose(u64),
    /// The first so many arrive with a wrong bit.
    Corrupt(u64),
    /// All are late.
    Delay(Nanos),
    /// All come twice.
    Duplicate(Nanos),
}

/// Facts of the datagrams that passed, to tell what is news.
#[derive(Default)]
pub struct Facts {
    grants_seen: Option<Seq>,
    closed: Option<Seq>,
}

impl Facts {
    /// Whether the datagram says it. The first datagram of a direction is no news.
    pub fn says(&mut self, kind: Kind, d: &Datagram<'_>) -> bool {
        let frame =
            |wanted: fn(&frames::Frame<'_>) -> bool| Frames::new(d.upper).flatten().any(|f| wanted(&f));
        match kind {
            Kind::Cts => d.entries().len() > 0,
            Kind::Announce => frame(|f| matches!(f, frames::Frame::Announce(_))),
            Kind::Report => frame(|f| matches!(f, frames::Frame::Report(_))),
            Kind::Want => frame(|f| matches!(f, frames::Frame::Want(_))),
            Kind::Done => frame(|f| matches!(f, frames::Frame::Done(_))),
            Kind::FactsOnly => d.entries().len() == 0 && d.upper.is_empty() && d.header.close.is_none(),
            Kind::GrantsSeen => {
                self.grants_seen.get_or_insert(d.header.grants_seen).before(d.header.grants_seen)
            }
            Kind::Closed => self.closed.get_or_insert(d.header.closed).before(d.header.closed),
            Kind::Probe => d.header.reply_wanted,
            Kind::Close => d.header.close.is_some(),
        }
    }

    /// The datagram passed.
    pub fn passed(&mut self, d: &Datagram<'_>) {
        self.grants_seen = Some(d.header.grants_seen);
        self.closed = Some(d.header.closed);
    }
}

/// Lets a fault hit a kind in one direction; returns how many datagrams said it.
///
/// # Panics
/// The tap panics on a datagram that does not decode: the ends would have written it.
pub fn afflict<N: FaultNet>(net: &N, direction: Direction, kind: Kind, fault: Fault) -> Arc<AtomicU64> {
    let hits = Arc::new(AtomicU64::new(0));
    let count = hits.clone();
    let mut facts = Facts::default();
    net.fault(direction, Default::default(), move |f: &Frame<'_>| {
        let FrameKind::Control(bytes) = f.kind else { return Verdict::Pass };
        let Ok(d) = Datagram::decode(bytes) else { panic!("an end wrote {bytes:?}") };
        if !facts.says(kind, &d) {
            facts.passed(&d);
            return Verdict::Pass;
        }
        let before = count.fetch_add(1, Ordering::Relaxed);
        match fault {
            Fault::Lose(n) if before < n => Verdict::Drop,
            Fault::Corrupt(n) if before < n => Verdict::Corrupt,
            Fault::Lose(_) | Fault::Corrupt(_) => {
                facts.passed(&d);
                Verdict::Pass
            }
            Fault::Delay(t) => Verdict::Delay(t),
            Fault::Duplicate(t) => Verdict::Duplicate(t),
        }
    });
    hits
}

/// A control datagram with the facts of `known`, which an end sent, and other contents: frames for the peer's receiving half, or for
/// its sending half.
///
/// # Panics
/// When `known` does not decode.
pub fn forge(known: &[u8], to_receiver: bool, upper: &[u8]) -> Forged {
    let Ok(d) = Datagram::decode(known) else { panic!("an end wrote {known:?}") };
    let mut bytes = known[..known.len() - d.upper.len()].to_vec();
    // Two flags: for whom it is, and whether it wants an answer.
    bytes[1] = bytes[1] & !0x03 | u8::from(to_receiver);
    bytes.extend_from_slice(upper);
    Forged::Control { q: QueueSet(0), bytes, valid: true }
}

/// Control datagrams that both ends sent so far.
pub fn datagrams<N: FaultNet>(pair: &Pair<N>) -> u64 {
    pair.qps.net.counted(0).control_sent + pair.qps.net.counted(1).control_sent
}
