//! Why a scheme has the rank that it has, in a sentence.

use super::candidates::depth;
use super::predict::Prediction;
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
        return format!(
            "{more}, and in {:.1} % of messages {what} are lost{who}, and have to be asked for: it costs {} in the mean",
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
