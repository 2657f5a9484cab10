//! Which schemes are compared: those that everybody knows, and codes made for the loss.

use sdr_sdk::model::rows::{MAX_COLUMNS, rows};
use sdr_sdk::model::{SchemeModel, Setting};

/// Always there.
const USUAL: [SchemeModel; 5] = [
    SchemeModel::Hybrid,
    SchemeModel::SrNack,
    SchemeModel::Sr,
    SchemeModel::Mds { k: 32, m: 8 },
    SchemeModel::Xor { k: 32, m: 8 },
];

/// Data symbols of the codes that are fitted: short stripes are spread better over bursts, long ones cost less parity.
const DATA: [u32; 3] = [32, 96, 200];

/// Probability, of a message, that a fitted code falls back.
const FALLBACK: f64 = 1e-4;

/// The schemes to rank in a setting.
pub fn of(setting: &Setting) -> Vec<SchemeModel> {
    let mut all = USUAL.to_vec();
    let packets = setting.packets();
    for k in DATA {
        let k = u64::from(k).min(packets) as u32;
        if let Some(m) = parity(setting, k) {
            let code = SchemeModel::Mds { k, m };
            if !all.contains(&code) {
                all.push(code);
            }
        }
    }
    all
}

/// The least parity with which stripes of `k` do; none when that is more than the data.
fn parity(setting: &Setting, k: u32) -> Option<u32> {
    let stripes = setting.packets().div_ceil(u64::from(k));
    let depth = depth(setting, k);
    // It divides what it is given by the depth; each of all stripes has its share of the failures.
    let each = FALLBACK / stripes as f64 * f64::from(depth);
    let m = rows(k, depth, setting.loss, setting.burst, 0, each)?.max(1);
    (m <= k && k + m <= MAX_COLUMNS).then_some(m)
}

/// Packets from one symbol of a stripe to its next: the transport lays stripes four bursts apart where the message is long
/// enough.
pub fn depth(setting: &Setting, k: u32) -> u32 {
    let apart = if setting.burst > 1.5 && setting.loss > 0.0 { (4.0 * setting.burst).ceil() } else { 1.0 };
    let stripes = setting.packets().div_ceil(u64::from(k.max(1)));
    (apart as u64).min(stripes).clamp(1, u16::MAX.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use sdr_sdk::types::Nanos;

    fn setting(bytes: u64, loss: f64, burst: f64) -> Setting {
        let (packet_bytes, rate_bps) = (4096, 400_000_000_000);
        Setting { bytes, packet_bytes, rate_bps, rtt: Nanos::from_millis(25), loss, burst }
    }

    #[test]
    fn codes_fit_the_loss() {
        let parity = |loss| {
            let all = of(&setting(128 << 20, loss, 1.0));
            all.iter().find_map(|s| match s {
                SchemeModel::Mds { k: 200, m } => Some(*m),
                _ => None,
            })
        };
        let (few, many) = (parity(1e-5), parity(1e-2));
        assert!(
            few.is_some_and(|m| m <= 3) && many.is_some_and(|m| (10..20).contains(&m)),
            "{few:?} {many:?}"
        );
    }

    #[test]
    fn a_stripe_is_no_longer_than_the_message() {
        let all = of(&setting(4096, 1e-3, 1.0));
        assert!(all.contains(&SchemeModel::Mds { k: 1, m: 1 }), "{all:?}");
        // No two are the same.
        assert!(all.iter().enumerate().all(|(i, s)| !all[..i].contains(s)));
    }

    #[test]
    fn stripes_are_spread_over_bursts_where_there_are_enough() {
        assert_eq!(depth(&setting(128 << 20, 1e-3, 16.0), 32), 64);
        assert_eq!(depth(&setting(128 << 10, 1e-3, 16.0), 32), 1);
        assert_eq!(depth(&setting(128 << 20, 1e-3, 1.0), 32), 1);
    }
}
