//! Why a scheme has the rank that it has, in a sentence.

use super::candidates::depth;
use super::predict::{Basis, NO_ROOM, Prediction, SEEN_LATE};
use sdr_sdk::model::{SchemeModel, Setting};

/// Below it a share of messages is not worth a clause.
const RARE: f64 = 1e-3;

/// The sentence.
pub fn why(prediction: &Prediction, setting: &Setting) -> String {
    let f = &prediction.figures;
    let trips = (f.mean - setting.lower_bound()) / setting.rtt_ns();
    let tail = (f.p999 - setting.lower_bound()) / setting.rtt_ns();
    let cost = format!("repairs cost {} in the mean and {} at p99.9", round_trips(trips), round_trips(tail));
    match prediction.scheme {
        SchemeModel::Sr => format!("a loss is noticed by a timeout of 3 round trips: {cost}"),
        SchemeModel::SrNack => format!("a loss is asked for and sent again a round trip later: {cost}"),
        SchemeModel::Hybrid => {
            let body = setting.injection() > setting.rtt_ns();
            let how = if body {
                "losses are repaired while data still flows, and those of the last round trip by parity behind it"
            } else {
                "losses are repaired by parity behind the data"
            };
            format!("{how}: {cost}")
        }
        SchemeModel::Mds { k, m } => code(prediction, setting, k, m, &format!("more than {m} of {}", k + m)),
        SchemeModel::Xor { k, m } => {
            code(prediction, setting, k, m, &format!("two of a group of {}", k.div_ceil(m) + 1))
        }
    }
}

/// Of a code that fails where `what` is lost.
fn code(prediction: &Prediction, setting: &Setting, k: u32, m: u32, what: &str) -> String {
    let f = &prediction.figures;
    let more = format!("{:.1} % more to send", 100.0 * f.wire_extra);
    let fails = f.fallback.unwrap_or(0.0);
    let bursts = setting.burst > 1.0 && setting.loss > 0.0;
    let spread = bursts && depth(setting, k.div_ceil(groups(prediction.scheme, m))) > 1;
    let who = match (bursts, spread) {
        (false, _) => String::new(),
        (true, true) => format!(" although stripes are spread over bursts of {}", setting.burst),
        (true, false) => format!(" in bursts of {}", setting.burst),
    };
    if fails >= RARE {
        let trips = (f.mean - setting.lower_bound()) / setting.rtt_ns();
        let cause = match prediction.basis {
            Basis::Simulation(_, SEEN_LATE) => {
                "packets are asked for whose parity is not seen in time".to_owned()
            }
            Basis::Simulation(_, NO_ROOM) => {
                "packets have to be asked for, as there is no memory for all parity".to_owned()
            }
            _ => format!("{what} are lost{who}, and have to be asked for"),
        };
        return format!(
            "{more}, and in {:.1} % of messages {cause}: it costs {} in the mean",
            100.0 * fails,
            round_trips(trips)
        );
    }
    let time = (f.mean / setting.lower_bound() - 1.0).max(0.0);
    let spread =
        if spread { format!(" of a stripe spread over bursts of {}", setting.burst) } else { String::new() };
    format!("{more} takes {:.1} % longer, and {what}{spread} are hardly ever lost", 100.0 * time)
}

/// Stripes side by side that one name stands for.
fn groups(scheme: SchemeModel, m: u32) -> u32 {
    if matches!(scheme, SchemeModel::Xor { .. }) { m.max(1) } else { 1 }
}

fn round_trips(n: f64) -> String {
    match n {
        n if n < 0.01 => "less than 0.01 round trips".to_owned(),
        n if (0.995..1.005).contains(&n) => "1 round trip".to_owned(),
        n => format!("{n:.2} round trips"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::predict::Figures;
    use super::*;
    use sdr_sdk::types::Nanos;

    #[test]
    fn a_code_says_what_it_is_short_of() {
        let setting = |bytes, burst| Setting {
            bytes,
            packet_bytes: 4096,
            rate_bps: 400_000_000_000,
            rtt: Nanos::from_millis(25),
            loss: 1e-2,
            burst,
        };
        let said = |setting: &Setting, fallback, basis| {
            let bound = setting.lower_bound();
            let mean = bound + setting.rtt_ns() * fallback;
            let figures =
                Figures { mean, error: 0.0, p999: mean, wire_extra: 0.25, fallback: Some(fallback) };
            why(&Prediction { scheme: SchemeModel::Mds { k: 32, m: 8 }, figures, basis }, setting)
        };
        let simulated = Basis::Simulation(100, "a reason");
        for (bytes, burst, fallback, basis, part) in [
            (8 << 20, 1.0, 0.0, Basis::Model, "more than 8 of 40 are hardly ever lost"),
            (8 << 20, 16.0, 0.0, simulated, "of a stripe spread over bursts of 16 are hardly ever lost"),
            (
                128 << 10,
                16.0,
                0.02,
                simulated,
                "in 2.0 % of messages more than 8 of 40 are lost in bursts of 16, and",
            ),
            (
                8 << 20,
                16.0,
                0.5,
                simulated,
                "although stripes are spread over bursts of 16, and have to be asked for: it costs 0.50",
            ),
            (1 << 30, 1.0, 0.5, Basis::Simulation(4, SEEN_LATE), "whose parity is not seen in time"),
            (8 << 30, 1.0, 0.5, Basis::Simulation(4, NO_ROOM), "no memory for all parity"),
        ] {
            let said = said(&setting(bytes, burst), fallback, basis);
            assert!(said.starts_with("25.0 % more to send") && said.contains(part), "{said}");
        }
    }
}
