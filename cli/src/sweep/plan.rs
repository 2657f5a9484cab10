//! A plan: its text, its grids, its cells.
//!
//! All of it is checked before the first cell runs: a bad value in the last cell is not found out after a night.

use super::keys::{self, KEYS, LIMITS};
use super::row::Limits;
use crate::CommandError;
use crate::args::SimArgs;
use crate::sim;
use netem::trial::Trial;
use std::collections::HashMap;
use std::path::Path;
use toml::{Table, Value};

/// Most cells of a plan.
const MAX_CELLS: usize = 100_000;

/// One setting, to be simulated.
pub struct Cell {
    /// Its samples.
    pub trial: Trial,
    pub samples: u64,
    /// What a row says of it: its name.
    pub parameters: Vec<String>,
    pub limits: Limits,
}

impl Cell {
    /// Packets that it will take about: what a progress bar counts.
    pub fn work(&self) -> u64 {
        self.samples * self.packets()
    }

    /// Of its message.
    pub fn packets(&self) -> u64 {
        self.trial.bytes.div_ceil(self.trial.payload.into())
    }

    /// For people: what sets it apart.
    pub fn title(&self) -> String {
        title(&self.parameters)
    }
}

/// The parameters that have a value, but those of the seed.
pub fn title(parameters: &[String]) -> String {
    let named = keys::PARAMETERS.iter().zip(parameters);
    let shown = named.filter(|(name, value)| {
        !value.is_empty() && !matches!((**name, value.as_str()), ("cell_seed", _) | (_, "0" | "0ns"))
    });
    shown.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// Reads the plan in a file.
pub fn read(path: &Path) -> Result<Vec<Cell>, CommandError> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| CommandError::Usage(format!("{name}: the plan could not be read: {e}")))?;
    cells(&text, &SimArgs::defaults()?).map_err(|why| CommandError::Usage(format!("{name}: {why}")))
}

/// The cells of a plan, each once.
fn cells(text: &str, base: &SimArgs) -> Result<Vec<Cell>, String> {
    let mut plan: Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        format!("line {line}: {}", e.message().replace('\n', " "))
    })?;
    let defaults = match plan.remove("defaults") {
        None => Table::new(),
        Some(Value::Table(table)) => table,
        Some(other) => return Err(format!("defaults is {}: write it as a table, [defaults]", kind(&other))),
    };
    let grids = match plan.remove("grid") {
        None => return Err("it has no grid: add one, [[grid]] with scheme, size and so on".to_owned()),
        Some(Value::Array(grids)) if !grids.is_empty() => grids,
        Some(Value::Array(_)) => return Err("grid is an empty array: write [[grid]]".to_owned()),
        Some(other) => return Err(format!("grid is {}: write it as [[grid]]", kind(&other))),
    };
    if let Some(key) = plan.keys().next() {
        return Err(format!("key {key:?} is unknown: a plan has [defaults] and [[grid]]"));
    }
    let defaults = Axes::of(&defaults, base).map_err(|why| format!("[defaults]: {why}"))?;
    let mut cells: Vec<Cell> = Vec::new();
    let mut known = HashMap::new();
    for (i, grid) in grids.iter().enumerate() {
        let at = |why: String| format!("[[grid]] {}: {why}", i + 1);
        let Value::Table(grid) = grid else {
            return Err(at(format!("it is {}, no table", kind(grid))));
        };
        let axes = Axes::of(grid, base).map_err(at)?.over(&defaults);
        let number = axes.number();
        if number.saturating_add(cells.len()) > MAX_CELLS {
            return Err(at(format!("its axes make {number} cells: choose at most {MAX_CELLS} in a plan")));
        }
        for n in 0..number {
            let cell = axes.cell(n, base).map_err(at)?;
            match known.get(&cell.parameters) {
                // Both grids mean their limits.
                Some(&earlier) => {
                    let earlier: &mut Cell = &mut cells[earlier];
                    earlier.limits = earlier.limits.tightest(cell.limits);
                }
                None => {
                    known.insert(cell.parameters.clone(), cells.len());
                    cells.push(cell);
                }
            }
        }
    }
    Ok(cells)
}

/// The values of each key of a grid, in the order of [`KEYS`], and its limits.
struct Axes {
    values: [Option<Vec<String>>; KEYS.len()],
    limits: Limits,
}

impl Axes {
    fn of(table: &Table, base: &SimArgs) -> Result<Self, String> {
        let mut axes = Self { values: [const { None }; KEYS.len()], limits: Limits::default() };
        for (key, value) in table {
            if LIMITS.contains(&key.as_str()) {
                axes.limits.set(key, limit(key, value)?);
                continue;
            }
            let Some(i) = KEYS.iter().position(|name| name == key) else {
                return Err(format!(
                    "key {key:?} is unknown: choose {}, {}",
                    KEYS.join(", "),
                    LIMITS.join(", ")
                ));
            };
            let values = match value {
                Value::Array(axis) if axis.is_empty() => {
                    return Err(format!(
                        "{key} = []: an axis has at least one value; leave the key out, or add one"
                    ));
                }
                Value::Array(axis) => axis.iter().map(|v| scalar(key, v)).collect::<Result<_, _>>()?,
                one => vec![scalar(key, one)?],
            };
            for text in &values {
                keys::set(&mut base.clone(), key, text).map_err(|why| format!("{key} = {text}: {why}"))?;
            }
            axes.values[i] = Some(values);
        }
        Ok(axes)
    }

    /// With what `defaults` say of the keys that are not here.
    fn over(mut self, defaults: &Self) -> Self {
        for (mine, theirs) in self.values.iter_mut().zip(&defaults.values) {
            if mine.is_none() {
                mine.clone_from(theirs);
            }
        }
        self.limits = self.limits.or(defaults.limits);
        self
    }

    fn number(&self) -> usize {
        self.values.iter().flatten().fold(1, |n, axis| n.saturating_mul(axis.len()))
    }

    fn cell(&self, number: usize, base: &SimArgs) -> Result<Cell, String> {
        let mut args = base.clone();
        let mut left = number;
        for (key, axis) in KEYS.iter().zip(&self.values).rev() {
            let Some(axis) = axis else { continue };
            let text = &axis[left % axis.len()];
            left /= axis.len();
            keys::set(&mut args, key, text).map_err(|why| format!("{key} = {text}: {why}"))?;
        }
        // It speaks of flags; a plan's keys are their names.
        let mut trial = sim::trial(&args).map_err(|e| e.to_string().replace("--", ""))?;
        let (parameters, cell_seed) = keys::describe(&args, &trial, trial.path.seed);
        trial.path.seed = cell_seed;
        if args.samples < 2 && self.limits.any() {
            return Err(format!("samples = {}: choose at least 2 where there is a limit", args.samples));
        }
        Ok(Cell { trial, samples: args.samples, parameters, limits: self.limits })
    }
}

/// A value as it would stand on the command line.
fn scalar(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(n) => Ok(n.to_string()),
        Value::Float(x) => Ok(x.to_string()),
        other => Err(format!("{key} is {}: write a text or a number", kind(other))),
    }
}

fn limit(key: &str, value: &Value) -> Result<f64, String> {
    let number = match value {
        Value::Integer(n) => *n as f64,
        Value::Float(x) => *x,
        other => return Err(format!("{key} is {}: write one number, for a limit is no axis", kind(other))),
    };
    // No slowdown is below one.
    let least = if key == "max_wire" { 0.0 } else { 1.0 };
    if number >= least && number.is_finite() {
        return Ok(number);
    }
    Err(format!("{key} = {number}: choose a number from {least} up"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) | Value::Float(_) => "a number",
        Value::Boolean(true) => "true",
        Value::Boolean(false) => "false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Vec<Cell>, String> {
        cells(text, &SimArgs::defaults().expect("defaults"))
    }

    #[test]
    fn axes_multiply_and_schemes_are_neighbours() {
        let cells = plan(
            "[defaults]\nloss = [1e-3, '1%']\n[[grid]]\nscheme = ['sr', 'ec:32,8']\nsize = ['8MiB', 4096]\n",
        )
        .expect("a plan");
        let of = |i: usize| cells[i].parameters.join(" ");
        assert_eq!(cells.len(), 8);
        assert!(of(0).starts_with("sr 8MiB 4KiB 400Gbit 25ms   1e-3 1 "), "{}", of(0));
        assert!(
            of(1).starts_with("ec:32,8 8MiB") && of(2).contains(" 0.01 ") && of(4).contains(" 4KiB 4KiB")
        );
    }

    #[test]
    fn a_cell_of_two_grids_is_run_once_and_meets_both_limits() {
        let cells = plan(
            "[[grid]]\nscheme = 'hybrid'\nalpha = [1, 2]\nmax_mean = 1.5\n[[grid]]\nscheme = 'hybrid'\nmax_mean = 1.2\nmax_wire = 1\n",
        );
        let cells = cells.expect("a plan");
        assert_eq!(cells.len(), 1);
        assert_eq!(cells[0].limits.values(), [Some(1.2), None, Some(1.0)]);
    }

    #[test]
    fn a_cells_seed_is_its_own() {
        let first = |text: &str| plan(text).expect("a plan").remove(0);
        let seed = |text: &str| first(text).trial.path.seed;
        let alone = seed("[[grid]]\nloss = 1e-3");
        assert_eq!(
            alone,
            seed("[defaults]\nseed = 1\nsamples = 7\n[[grid]]\nloss = ['0.1%', 1e-5]\nsize = '128MiB'")
        );
        assert_ne!(alone, seed("[[grid]]\nloss = 1e-3\nseed = 2"));
        assert_ne!(alone, seed("[[grid]]\nloss = 2e-3"));
        // Written into files: it may never change.
        assert_eq!(alone, 1_033_474_280_127_703_644);
    }
}
