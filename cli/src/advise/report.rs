//! The result of `sdr advise`, as a table and as one JSON document.

use super::predict::{Basis, Figures, Prediction};
use super::ranking::{Disagreement, TIE};
use super::why::why;
use crate::CommandError;
use crate::table::{Table, rows};
use netem::units::{BitRate, ByteSize};
use sdr_sdk::model::Setting;
use serde::Serialize;

/// What was found.
pub struct Report<'a> {
    pub setting: &'a Setting,
    /// Best first.
    pub predictions: &'a [Prediction],
    pub ranks: &'a [usize],
    pub check: Option<Check>,
}

/// What the simulator says to it.
pub struct Check {
    pub samples: u64,
    /// In the order of the predictions.
    pub simulated: Vec<Figures>,
    pub disagreements: Vec<Disagreement>,
}

/// Field names are an interface: scripts read them.
#[derive(Serialize)]
struct Document {
    message_bytes: u64,
    packet_bytes: u64,
    rate_bps: u64,
    rtt_ms: f64,
    loss: f64,
    burst: f64,
    lower_bound_ms: f64,
    tie: f64,
    schemes: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Verdict>,
}

#[derive(Serialize)]
struct Entry {
    rank: usize,
    scheme: String,
    #[serde(flatten)]
    figures: Times,
    fallback_probability: Option<f64>,
    /// `model` or `simulation`.
    basis: &'static str,
    /// Of a simulation.
    basis_samples: Option<u64>,
    basis_reason: Option<&'static str>,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated: Option<Times>,
}

#[derive(Serialize)]
struct Times {
    mean_ms: f64,
    p999_ms: f64,
    slowdown: Slowdown,
    wire_extra: f64,
}

#[derive(Serialize)]
struct Slowdown {
    mean: f64,
    p999: f64,
    mean_error: f64,
}

#[derive(Serialize)]
struct Verdict {
    samples: u64,
    agrees: bool,
    /// Pairs, the one that is faster in the simulator first.
    disagreements: Vec<[String; 2]>,
}

impl Times {
    fn of(f: &Figures, bound: f64) -> Self {
        Self {
            mean_ms: f.mean / 1e6,
            p999_ms: f.p999 / 1e6,
            slowdown: Slowdown { mean: f.mean / bound, p999: f.p999 / bound, mean_error: f.error / bound },
            wire_extra: f.wire_extra,
        }
    }
}

impl Report<'_> {
    fn simulated(&self, i: usize) -> Option<&Figures> {
        self.check.as_ref()?.simulated.get(i)
    }

    fn names(&self, d: &Disagreement) -> [String; 2] {
        [d.fast, d.slow].map(|i| self.predictions[i].scheme.to_string())
    }

    /// The pairs in the wrong order, in a line.
    pub fn failure(&self) -> Option<String> {
        let found = &self.check.as_ref()?.disagreements;
        let pairs = found.iter().map(|d| self.names(d).join(" before "));
        let pairs: Vec<_> = pairs.collect();
        (!pairs.is_empty()).then(|| format!("the simulator has another order: {}", pairs.join(", ")))
    }

    /// Why formulas were not used, and of which schemes.
    fn reasons(&self) -> Vec<(&'static str, Vec<String>)> {
        let mut reasons: Vec<(_, Vec<String>)> = Vec::new();
        for p in self.predictions {
            let Basis::Simulation(samples, why) = p.basis else { continue };
            let scheme = format!("{} ({samples} messages)", p.scheme);
            match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, schemes)) => schemes.push(scheme),
                None => reasons.push((why, vec![scheme])),
            }
        }
        reasons
    }

    /// One document, with the line's end.
    pub fn json(&self) -> Result<String, CommandError> {
        let s = self.setting;
        let bound = s.lower_bound();
        let entry = |(i, p): (usize, &Prediction)| Entry {
            rank: self.ranks[i],
            scheme: p.scheme.to_string(),
            figures: Times::of(&p.figures, bound),
            fallback_probability: p.figures.fallback,
            basis: if p.basis == Basis::Model { "model" } else { "simulation" },
            basis_samples: match p.basis {
                Basis::Model => None,
                Basis::Simulation(samples, _) => Some(samples),
            },
            basis_reason: match p.basis {
                Basis::Model => None,
                Basis::Simulation(_, why) => Some(why),
            },
            why: why(p, s),
            simulated: self.simulated(i).map(|f| Times::of(f, bound)),
        };
        let document = Document {
            message_bytes: s.bytes,
            packet_bytes: s.packet_bytes,
            rate_bps: s.rate_bps,
            rtt_ms: s.rtt.as_millis_f64(),
            loss: s.loss,
            burst: s.burst,
            lower_bound_ms: bound / 1e6,
            tie: TIE,
            schemes: self.predictions.iter().enumerate().map(entry).collect(),
            check: self.check.as_ref().map(|check| Verdict {
                samples: check.samples,
                agrees: check.disagreements.is_empty(),
                disagreements: check.disagreements.iter().map(|d| self.names(d)).collect(),
            }),
        };
        let text = serde_json::to_string_pretty(&document);
        Ok(text.map_err(|e| CommandError::Failed(e.to_string()))? + "\n")
    }

    /// For people.
    pub fn table(&self) -> String {
        let s = self.setting;
        let bound = s.lower_bound();
        let mut table = Table::default();
        let rate = BitRate::new(s.rate_bps).map_or_else(|e| e.to_string(), |rate| rate.to_string());
        let burst = if s.burst > 1.0 { format!(" in bursts of {}", s.burst) } else { String::new() };
        table
            .fact("Link", format!("rate={rate}, RTT {} ms, loss {:e}{burst}", s.rtt.as_millis_f64(), s.loss));
        let (bytes, packet) = (ByteSize(s.bytes), ByteSize(s.packet_bytes));
        table.fact("Message", format!("{bytes} in {} packets of {packet} payload", s.packets()));
        table.fact("Lossless bound", format!("{:.6} ms = RTT + bytes / rate", bound / 1e6));
        table.fact("Ranked by", format!("mean; within {:.0} % is a tie", 100.0 * TIE));

        let all = self.predictions.iter().zip(self.ranks);
        let column = |name: &str, text: &dyn Fn(usize, &Prediction) -> String| {
            let cells = self.predictions.iter().enumerate().map(|(i, p)| text(i, p));
            (name.to_owned(), cells.collect())
        };
        let times = |ns: f64| format!("{:.3} {:.3}x", ns / 1e6, ns / bound);
        let mut columns = vec![
            column("#rank", &|i, _| self.ranks[i].to_string()),
            column("scheme", &|_, p| p.scheme.to_string()),
            column("t_mean[ms]", &|_, p| times(p.figures.mean)),
            column("t_p99.9[ms]", &|_, p| times(p.figures.p999)),
            column("wire_extra", &|_, p| format!("{:.1}%", 100.0 * p.figures.wire_extra)),
            column("fallback", &|_, p| p.figures.fallback.map_or("-".to_owned(), |f| format!("{f:.1e}"))),
            column("from", &|_, p| match p.basis {
                Basis::Model => "model".to_owned(),
                Basis::Simulation(samples, _) => format!("sim({samples})"),
            }),
        ];
        if let Some(check) = &self.check {
            let of = |i: usize, value: fn(&Figures) -> f64| check.simulated.get(i).map_or(f64::NAN, value);
            columns.push(column("sim_mean[ms]", &|i, _| times(of(i, |f| f.mean))));
            columns.push(column("sim_p99.9[ms]", &|i, _| times(of(i, |f| f.p999))));
            columns.push(column("sim_wire", &|i, _| format!("{:.1}%", 100.0 * of(i, |f| f.wire_extra))));
        }
        table.block(rows(&columns));
        let mut lines = String::new();
        for (p, rank) in all {
            lines += &format!(" {rank}. {}: {}.\n", p.scheme, why(p, s));
        }
        table.block(lines);
        let mut notes = String::new();
        for (reason, schemes) in self.reasons() {
            notes += &format!(" Simulated shortly, as {reason}: {}.\n", schemes.join(", "));
        }
        if let Some(check) = &self.check {
            let verdict = self.failure().unwrap_or_else(|| "the simulator has the same order".to_owned());
            notes += &format!(" Checked with {} messages a scheme: {verdict}.\n", check.samples);
        }
        if !notes.is_empty() {
            table.block(notes);
        }
        table.render()
    }
}
