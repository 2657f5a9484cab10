//! A row: what came out of a cell, as texts in the order of the columns.
//!
//! A row is judged by what it says, not by what was measured before it was rounded: a row that is read back from a file
//! gets the same verdict.

use super::keys::PARAMETERS;
use super::plan::{Cell, title};
use crate::interval::{self, Mean};
use crate::stats::Summary;
use netem::trial::{PacketCounts, Sample};
use sdr_sdk::types::Nanos;
use serde_json::{Map, Number, Value};
use std::time::Duration;

/// Columns behind the parameters. Times in ms; slowdowns are times by the lossless bound; `_low` and `_high` are the ends of
/// 95 % intervals; packets are means of a message; the last three are of the run, and differ each time.
pub const RESULTS: [&str; 31] = [
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "max_ms",
    "lower_bound_ms",
    "slowdown_mean",
    "slowdown_p50",
    "slowdown_p99",
    "slowdown_p999",
    "slowdown_max",
    "slowdown_error",
    "mean_low",
    "mean_high",
    "p999_low",
    "p999_high",
    "sent",
    "lost",
    "retransmitted",
    "parity",
    "control",
    "wire_extra",
    "wire_low",
    "wire_high",
    "max_mean",
    "max_p999",
    "max_wire",
    "verdict",
    "elapsed_s",
    "events_per_second",
    "packets_per_second",
];

/// Parameters that are no plain numbers.
const TEXTS: [&str; 11] =
    ["scheme", "size", "mtu", "rate", "rtt", "distance", "medium", "jitter", "queue", "estimate", "verdict"];

/// What a cell must not exceed, each judged by the lower end of the 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    mean: Option<f64>,
    p999: Option<f64>,
    wire: Option<f64>,
}

impl Limits {
    /// Sets the one called `key`.
    pub fn set(&mut self, key: &str, limit: f64) {
        match key {
            "max_mean" => self.mean = Some(limit),
            "max_p999" => self.p999 = Some(limit),
            _ => self.wire = Some(limit),
        }
    }

    /// In the order of their columns.
    pub fn values(self) -> [Option<f64>; 3] {
        [self.mean, self.p999, self.wire]
    }

    /// Whether there is one.
    pub fn any(self) -> bool {
        self.values().iter().any(Option::is_some)
    }

    /// What is missing here from `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            mean: self.mean.or(other.mean),
            p999: self.p999.or(other.p999),
            wire: self.wire.or(other.wire),
        }
    }

    /// Both of them.
    pub fn tightest(self, other: Self) -> Self {
        let least = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            mean: least(self.mean, other.mean),
            p999: least(self.p999, other.p999),
            wire: least(self.wire, other.wire),
        }
    }
}

/// A cell's row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(Vec<String>);

impl Row {
    /// All columns' names.
    pub fn columns() -> impl Iterator<Item = &'static str> {
        PARAMETERS.into_iter().chain(RESULTS)
    }

    /// From the fields of a line; none when their number is wrong.
    pub fn of_fields(fields: Vec<String>) -> Option<Self> {
        (fields.len() == PARAMETERS.len() + RESULTS.len()).then_some(Self(fields))
    }

    /// Of all samples of a cell.
    pub fn measured(cell: &Cell, samples: &[Sample], bound: Nanos, elapsed: Duration) -> Self {
        let n = samples.len() as f64;
        let bound = bound.0 as f64;
        let mut packets = PacketCounts::default();
        samples.iter().for_each(|s| packets.add(&s.packets));
        let events: u64 = samples.iter().map(|s| s.events).sum();
        let mut times: Vec<Nanos> = samples.iter().map(|s| s.completion).collect();
        let mean = Mean::of(&times.iter().map(|t| t.0 as f64 / bound).collect::<Vec<_>>());
        let message = cell.packets() as f64;
        let wire =
            Mean::of(&samples.iter().map(|s| s.packets.sent as f64 / message - 1.0).collect::<Vec<_>>());
        let completion = Summary::of(times.clone());
        times.sort_unstable();
        let (low, high) = interval::ranks(samples.len() as u64, 1e-3);
        let at = |rank: Option<u64>| {
            let time = rank.and_then(|rank| times.get((rank as usize).checked_sub(1)?));
            time.map_or(f64::NAN, |t| t.0 as f64 / bound)
        };

        let mut fields = cell.parameters.clone();
        let mut add = |values: &[f64], digits: usize| {
            // NaN: there is none.
            fields.extend(
                values.iter().map(|v| if v.is_nan() { String::new() } else { format!("{v:.digits$}") }),
            );
        };
        add(&completion.per(1e6).values(), 6);
        add(&[bound / 1e6], 6);
        add(&completion.per(bound).values(), 6);
        add(&[mean.error, mean.low, mean.high, at(low), at(high)], 6);
        let counts = [packets.sent, packets.lost, packets.retransmitted, packets.parity, packets.control];
        add(&counts.map(|count| count as f64 / n), 4);
        add(&[wire.mean, wire.low, wire.high], 6);
        add(&[f64::NAN; 4], 0);
        let seconds = elapsed.as_secs_f64();
        add(&[seconds], 3);
        add(&[events as f64 / seconds, packets.sent as f64 / seconds], 0);
        let mut row = Self(fields);
        row.judge(cell.limits);
        row
    }

    /// The name of its cell.
    pub fn parameters(&self) -> &[String] {
        &self.0[..PARAMETERS.len()]
    }

    /// As it stands in a line.
    pub fn fields(&self) -> &[String] {
        &self.0
    }

    /// Writes limits and verdict anew; says whether they changed.
    pub fn judge(&mut self, limits: Limits) -> bool {
        let verdict = match (limits.any(), self.excesses(limits).is_empty()) {
            (false, _) => "",
            (true, true) => "pass",
            (true, false) => "fail",
        };
        let texts = limits.values().map(|limit| limit.map(|l| l.to_string()).unwrap_or_default());
        let mut changed = false;
        for (name, text) in ["max_mean", "max_p999", "max_wire", "verdict"]
            .into_iter()
            .zip(texts.into_iter().chain([verdict.to_owned()]))
        {
            let field = &mut self.0[column(name)];
            changed |= *field != text;
            *field = text;
        }
        changed
    }

    /// What of it is above its limit, in words.
    pub fn excesses(&self, limits: Limits) -> Vec<String> {
        let names = [
            ("mean", "slowdown_mean", "mean_low", "max_mean"),
            ("p99.9", "slowdown_p999", "p999_low", "max_p999"),
            ("wire", "wire_extra", "wire_low", "max_wire"),
        ];
        let above = |(limit, (what, value, low, key)): (Option<f64>, (&str, &str, &str, &str))| {
            let limit = limit?;
            let [value, low] = [value, low].map(|name| self.0[column(name)].as_str());
            let least: f64 = low.parse().ok()?;
            (least > limit).then(|| format!("{what} {value} (at least {low}) is above {key} = {limit}"))
        };
        limits.values().into_iter().zip(names).filter_map(above).collect()
    }

    /// Its cell, for people.
    pub fn title(&self) -> String {
        title(self.parameters())
    }

    /// As an object: numbers where they are, null for none.
    pub fn json(&self) -> Value {
        let value = |name: &str, text: &String| {
            if text.is_empty() {
                Value::Null
            } else if TEXTS.contains(&name) {
                Value::String(text.clone())
            } else if let Ok(whole) = text.parse::<u64>() {
                whole.into()
            } else {
                let number = text.parse().ok().and_then(Number::from_f64);
                number.map_or_else(|| Value::String(text.clone()), Value::Number)
            }
        };
        let fields = Self::columns().zip(&self.0);
        Value::Object(fields.map(|(name, text)| (name.to_owned(), value(name, text))).collect::<Map<_, _>>())
    }
}

/// Index of a result's column.
fn column(name: &str) -> usize {
    PARAMETERS.len() + RESULTS.iter().position(|&result| result == name).unwrap_or_default()
}
