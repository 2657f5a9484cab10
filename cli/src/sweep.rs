//! `sdr sim run`: every cell of a plan.
//!
//! | file | what it holds |
//! |---|---|
//! | `plan.rs`, `keys.rs` | TOML to cells; the keys, and a cell's name and seed |
//! | `row.rs`, `csv.rs` | what came out of a cell, its limits and verdict; lines |
//! | `store.rs` | the file that a run goes on with |
//!
//! A cell is its parameters, a row carries them, and so the file alone says what is left to do.

mod csv;
mod keys;
mod plan;
mod row;
mod store;

use crate::args::sweep::RunArgs;
use crate::{Answer, CommandError, sim, stop};
use indicatif::{ProgressBar, ProgressStyle};
use plan::Cell;
use row::Row;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use store::Store;

/// Runs what a plan asks for and has no row yet.
pub fn run(args: &RunArgs) -> Result<Answer, CommandError> {
    let cells = plan::read(&args.plan)?;
    let mut store = Store::open(args.out.as_deref(), &cells)?;
    let mine: Vec<&Cell> =
        cells.iter().enumerate().filter(|&(i, _)| args.shard.has(i)).map(|(_, cell)| cell).collect();
    let done = store.done();
    let todo: Vec<&Cell> = mine.iter().copied().filter(|cell| !done.contains(&cell.parameters)).collect();
    let there = mine.len() - todo.len();

    let stop = stop::on_ctrl_c()?;
    let bar = Bar::new(&todo, there);
    let threads = args.threads.unwrap_or_else(sim::cores);
    let mut broken = Vec::new();
    let mut interrupted = false;
    for cell in &todo {
        match sample(cell, threads, &bar, &stop) {
            Ok(Some(row)) => store.append(row)?,
            Ok(None) => {
                interrupted = true;
                break;
            }
            // The others may be good; without a row this one is tried again next time.
            Err(why) => broken.push(format!("{}: {why}", cell.title())),
        }
        bar.cell_done(cell);
    }
    bar.bar.finish_and_clear();

    if let Some(path) = &args.json {
        write_json(path, &store, mine.len(), interrupted)?;
    }
    let outside = outside(&store, &cells);
    let ran = store.rows().len() - done.len();
    let text = match &args.out {
        None => store.text(),
        Some(path) => format!(
            "{}: {} rows of {} cells, {ran} of them run now; {} outside their limits\n",
            path.display(),
            there + ran,
            mine.len(),
            outside.len()
        ),
    };
    Ok(Answer { text, interrupted, failure: failure(&broken, &outside, store.rows().len()) })
}

/// The row of a cell, or nothing when Ctrl-C came.
fn sample(cell: &Cell, threads: u64, bar: &Bar, stop: &AtomicBool) -> Result<Option<Row>, String> {
    #[expect(clippy::disallowed_methods, reason = "a program says how long it took")]
    let begin = Instant::now();
    let go_on = |done| {
        bar.sample_done(cell, done);
        !stop.load(Ordering::Relaxed)
    };
    let threads = threads.min(cell.samples) as usize;
    let samples = cell.trial.run(cell.samples, threads, &go_on).map_err(|e| e.to_string())?;
    if (samples.len() as u64) < cell.samples {
        return Ok(None);
    }
    let bound = cell.trial.lower_bound().map_err(|e| e.to_string())?;
    Ok(Some(Row::measured(cell, &samples, bound, begin.elapsed())))
}

/// Cells with a row that are outside their limits, and in what.
fn outside(store: &Store, cells: &[Cell]) -> Vec<String> {
    let limits: std::collections::HashMap<_, _> =
        cells.iter().map(|c| (&c.parameters[..], c.limits)).collect();
    let list = |row: &Row| {
        let excesses = row.excesses(limits.get(row.parameters()).copied().unwrap_or_default());
        (!excesses.is_empty()).then(|| format!("{}: {}", row.title(), excesses.join(", ")))
    };
    store.rows().iter().filter_map(list).collect()
}

/// What went wrong, a line a cell.
fn failure(broken: &[String], outside: &[String], rows: usize) -> Option<String> {
    let mut lines = Vec::new();
    if !broken.is_empty() {
        lines.push(format!("{} cells could not be simulated:", broken.len()));
        lines.extend(broken.iter().map(|line| format!("  {line}")));
    }
    if !outside.is_empty() {
        lines.push(format!("{} of {rows} cells are outside their limits:", outside.len()));
        lines.extend(outside.iter().map(|line| format!("  {line}")));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn write_json(path: &Path, store: &Store, cells: usize, interrupted: bool) -> Result<(), CommandError> {
    let rows: Vec<_> = store.rows().iter().map(Row::json).collect();
    let document = serde_json::json!({ "cells": cells, "interrupted": interrupted, "rows": rows });
    let failed = |e: &dyn std::fmt::Display| {
        CommandError::Failed(format!("{}: the document could not be written: {e}", path.display()))
    };
    let text = serde_json::to_string_pretty(&document).map_err(|e| failed(&e))? + "\n";
    store::replace(path, &text).map(drop).map_err(|e| failed(&e))
}

/// Progress on stderr. It counts packets, which take about equally long: the time left is then right for small and large cells.
struct Bar {
    bar: ProgressBar,
    cells: usize,
    state: std::sync::Mutex<(usize, u64)>,
}

impl Bar {
    fn new(todo: &[&Cell], there: usize) -> Self {
        let work = todo.iter().map(|cell| cell.work()).sum();
        let style = ProgressStyle::with_template("{bar:40} {msg}, {eta} left");
        let bar = ProgressBar::new(work).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, cells: there + todo.len(), state: (there, 0).into() }
    }

    /// Cells that are done, and their packets.
    fn state(&self) -> std::sync::MutexGuard<'_, (usize, u64)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sample_done(&self, cell: &Cell, samples: u64) {
        let (cells, packets) = *self.state();
        self.bar.set_message(format!(
            "cell {} of {}: {samples} of {} samples",
            cells + 1,
            self.cells,
            cell.samples
        ));
        self.bar.set_position(packets + samples * cell.packets());
    }

    fn cell_done(&self, cell: &Cell) {
        let mut state = self.state();
        state.0 += 1;
        state.1 += cell.work();
    }
}
