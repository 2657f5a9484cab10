//! Tables in perftest's shape: what was run between rules, then columns.

use std::fmt::{Display, Write};

/// Columns under their names, aligned to the right, two spaces apart.
pub fn rows(columns: &[(String, Vec<String>)]) -> String {
    let mut lines = vec![String::new(); 1 + columns.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0)];
    for (name, cells) in columns {
        let width = cells.iter().chain([name]).map(String::len).max().unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip([name].into_iter().chain(cells)) {
            _ = write!(line, "  {cell:>width$}");
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end().strip_prefix(' ').unwrap_or(line))).collect()
}

/// A number to three places, `-` for none.
pub fn number(value: f64, unit: &str) -> String {
    if value.is_nan() { "-".to_owned() } else { format!("{value:.3}{unit}") }
}

/// A table from its blocks: facts, then columns, a rule before each and at the end.
#[derive(Default)]
pub struct Table {
    facts: String,
    blocks: Vec<String>,
}

impl Table {
    /// A line above the columns.
    pub fn fact(&mut self, name: &str, value: impl Display) {
        _ = writeln!(self.facts, " {name:<15}: {value}");
    }

    /// Lines under a rule of their own.
    pub fn block(&mut self, text: String) {
        self.blocks.push(text);
    }

    /// All of it.
    pub fn render(self) -> String {
        let width = self.blocks.iter().flat_map(|b| b.lines()).map(str::len).max().unwrap_or(0).max(40);
        let rule = format!("{}\n", "-".repeat(width + 1));
        let mut text = format!("{rule}{}", self.facts);
        for block in &self.blocks {
            text += &rule;
            text += block;
        }
        text + &rule
    }
}
