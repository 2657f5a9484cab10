//! `sdr advise`: which scheme is best for a message on a path, and why.
//!
//! | file | what it holds |
//! |---|---|
//! | `candidates.rs` | which schemes are compared |
//! | `predict.rs` | what is expected of each: formula, or short simulation |
//! | `ranking.rs` | ranks, ties, and whether the simulator has the same order |
//! | `why.rs`, `report.rs` | a sentence each; table and JSON |

mod candidates;
mod predict;
mod ranking;
mod report;
mod why;

use crate::args::advise::AdviseArgs;
use crate::{Answer, CommandError, model, stop};
use indicatif::{ProgressBar, ProgressStyle};
use report::{Check, Report};
use sdr_sdk::model::SchemeModel;
use std::sync::atomic::Ordering;

/// The same command gives the same ranks.
const SEED: u64 = 1;

/// Of the check: with the seed of the prediction it would agree with itself.
const CHECK_SEED: u64 = 2;

/// Runs it.
pub fn run(args: &AdviseArgs) -> Result<Answer, CommandError> {
    let setting = model::setting(&args.setting)?;
    // What cannot be simulated is refused whether or not it would be.
    predict::trial(args, SchemeModel::Sr, SEED)?;
    let schemes = candidates::of(&setting);
    let stop = stop::on_ctrl_c()?;
    let bar = ProgressBar::new(schemes.len() as u64 * if args.check.is_some() { 2 } else { 1 });
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    let go_on = |_| {
        bar.tick();
        !stop.load(Ordering::Relaxed)
    };

    let mut predictions = Vec::new();
    for &scheme in &schemes {
        bar.set_message(scheme.to_string());
        let prediction = predict::predict(args, &setting, scheme, SEED, &go_on)?;
        predictions.push(prediction.ok_or(CommandError::Interrupted)?);
        bar.inc(1);
    }
    let ranks = ranking::rank(&mut predictions);
    let check = match args.check {
        None => None,
        Some(samples) => {
            let mut simulated = Vec::new();
            for prediction in &predictions {
                bar.set_message(format!("{} simulated", prediction.scheme));
                let measured = predict::measure(args, prediction.scheme, samples, CHECK_SEED, &go_on)?;
                simulated.push(measured.ok_or(CommandError::Interrupted)?);
                bar.inc(1);
            }
            // Rule of three: what happened to none of n may happen to three of them. The dearest event is a timeout.
            let unseen = 3.0 / samples as f64 * 3.0 * setting.rtt_ns();
            let disagreements = ranking::disagreements(&predictions, &simulated, unseen);
            Some(Check { samples, simulated, disagreements })
        }
    };
    bar.finish_and_clear();
    let report = Report { setting: &setting, predictions: &predictions, ranks: &ranks, check };
    let text = if args.json { report.json()? } else { report.table() };
    Ok(Answer { text, interrupted: false, failure: report.failure() })
}
