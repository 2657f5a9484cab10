//! The rows of a sweep, in memory and in the file that it goes on with after an interruption.
//!
//! A row is one `write` of a whole line at the end of the file: a process that is killed leaves whole lines, and at most one
//! torn one behind them, which is cut off and whose cell is run again. A lock keeps a second run from the same file.

use super::csv;
use super::plan::Cell;
use super::row::Row;
use crate::CommandError;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Rows, each of another cell.
pub struct Store {
    rows: Vec<Row>,
    file: Option<(PathBuf, File)>,
}

impl Store {
    /// What `path` holds of `cells`, or nothing yet; judged by their limits.
    pub fn open(path: Option<&Path>, cells: &[Cell]) -> Result<Self, CommandError> {
        let Some(path) = path else { return Ok(Self { rows: Vec::new(), file: None }) };
        let failed = |what: &str, e: std::io::Error| {
            CommandError::Failed(format!("{}: the rows could not be {what}: {e}", path.display()))
        };
        let refused = |why: String| CommandError::Usage(format!("{}: {why}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| failed("opened", e))?;
        match file.try_lock() {
            Ok(()) => {}
            // Some network file systems have no locks; there, people have to take care themselves.
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(failed("locked", e)),
            Err(TryLockError::WouldBlock) => {
                return Err(refused(
                    "another run writes it: wait for its end, or choose another --out".to_owned(),
                ));
            }
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| failed("read", e))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        let header = csv::line(Row::columns());
        if whole == 0 && !header.as_bytes().starts_with(&bytes) {
            return Err(refused(not_ours()));
        }
        let text = std::str::from_utf8(&bytes[..whole]).map_err(|_| refused(not_ours()))?;
        let (mut rows, changed) = read(text, &header, cells).map_err(refused)?;
        if changed || whole == 0 {
            let lines = rows.iter().map(|row| csv::line(row.fields())).collect::<String>();
            file = replace(path, &(header + &lines)).map_err(|e| failed("written", e))?;
        } else if whole < bytes.len() {
            file.set_len(whole as u64).map_err(|e| failed("written", e))?;
        }
        file.seek(SeekFrom::End(0)).map_err(|e| failed("written", e))?;
        rows.shrink_to_fit();
        Ok(Self { rows, file: Some((path.to_owned(), file)) })
    }

    /// Names of the cells that have a row.
    pub fn done(&self) -> HashSet<Vec<String>> {
        self.rows.iter().map(|row| row.parameters().to_vec()).collect()
    }

    /// A row more.
    pub fn append(&mut self, row: Row) -> Result<(), CommandError> {
        if let Some((path, file)) = &mut self.file {
            file.write_all(csv::line(row.fields()).as_bytes()).and_then(|()| file.flush()).map_err(|e| {
                CommandError::Failed(format!("{}: a row could not be written: {e}", path.display()))
            })?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// In the order in which they were done.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// All of them, as a file has them.
    pub fn text(&self) -> String {
        csv::line(Row::columns()) + &self.rows.iter().map(|row| csv::line(row.fields())).collect::<String>()
    }
}

fn not_ours() -> String {
    "its first line is not the header of this version's rows: choose another --out".to_owned()
}

/// The rows of whole lines, and whether a judgement changed.
fn read(text: &str, header: &str, cells: &[Cell]) -> Result<(Vec<Row>, bool), String> {
    let limits: HashMap<&[String], _> = cells.iter().map(|c| (&c.parameters[..], c.limits)).collect();
    let mut seen: HashMap<Vec<String>, usize> = HashMap::new();
    let (mut rows, mut changed) = (Vec::new(), false);
    for (i, line) in text.lines().enumerate() {
        if line == header.trim_end() {
            // Shards that were put together have it several times; once is enough.
            changed |= i > 0;
            continue;
        }
        let n = i + 1;
        if i == 0 {
            return Err(not_ours());
        }
        let damaged = || format!("line {n} is no row: remove the line, and its cell is run again");
        let mut row = Row::of_fields(csv::fields(line)).ok_or_else(damaged)?;
        let Some(&limits) = limits.get(row.parameters()) else {
            return Err(format!(
                "line {n} is of a cell that the plan does not have, {}: choose another --out, or remove the line",
                row.title()
            ));
        };
        if let Some(first) = seen.insert(row.parameters().to_vec(), n) {
            return Err(format!("line {n} is of the same cell as line {first}: remove one of them"));
        }
        changed |= row.judge(limits);
        rows.push(row);
    }
    Ok((rows, changed))
}

/// Puts `text` in the place of a file, all or nothing; the new file is open and locked as the old one was.
pub fn replace(path: &Path, text: &str) -> std::io::Result<File> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&new)?;
    // Where there are no locks there was none before.
    _ = file.try_lock();
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    Ok(file)
}
