//! Schemes with parity, end to end: every byte is carried and checked, parity is computed by the real coder.
//!
//! | module | what it shows |
//! |---|---|
//! | `random` | random sizes, paths, channels and chunks |
//! | `named` | losses that parity has to make up for, memory that is not there |
//! | `want` | requests lost, late, twice, forged |
//! | `announce` | forged announcements of codes |
//! | `cancel` | transfers dropped while parity is under way |
//! | `channel` | one channel of four dead |
//! | `foreign` | schemes and coders that panic or refuse |

#[path = "parity/announce.rs"]
mod announce;
#[path = "parity/cancel.rs"]
mod cancel;
#[path = "parity/channel.rs"]
mod channel;
#[path = "parity/foreign.rs"]
mod foreign;
#[path = "parity/named.rs"]
mod named;
#[path = "parity/random.rs"]
mod random;
#[path = "parity/want.rs"]
mod want;

use netem::PairConfig;
use netem::sim::{Direction, Frame, FrameKind, Verdict};
use sdr_sdk::reliability::{Scheme, Striped};
use sdr_tests::bed::{Bed, USUAL, config_of};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type SimBed = Bed<netem::SimNet>;

fn hybrid() -> Arc<dyn Scheme> {
    Arc::new(Striped::hybrid())
}

fn schemes() -> [Arc<dyn Scheme>; 5] {
    let ec = |k, m| Striped::ec(k, m).expect("a code");
    let xor = Striped::xor(8, 4).expect("a code");
    [hybrid(), Arc::new(ec(8, 4)), Arc::new(xor), Arc::new(ec(32, 8)), Arc::new(Striped::auto())]
}

fn usual(scheme: &Arc<dyn Scheme>) -> PairConfig {
    config_of(USUAL, scheme.clone())
}

/// Drops the first `times` transmissions of each packet that is `lost`, from end 0 to end 1; returns how many it dropped.
fn lose(bed: &SimBed, times: u32, lost: impl Fn(u32) -> bool + Send + 'static) -> Arc<AtomicU64> {
    let dropped = Arc::new(AtomicU64::new(0));
    let count = dropped.clone();
    let mut seen = HashMap::new();
    bed.tap(Direction::A_TO_B, move |f: &Frame<'_>| {
        let FrameKind::Data { at, first, .. } = f.kind else { return Verdict::Pass };
        if !lost(first) {
            return Verdict::Pass;
        }
        let n = seen.entry((at.seq, first)).or_insert(0);
        *n += 1;
        if *n > times {
            return Verdict::Pass;
        }
        count.fetch_add(1, Ordering::Relaxed);
        Verdict::Drop
    });
    dropped
}
