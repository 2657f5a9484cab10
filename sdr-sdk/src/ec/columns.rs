//! Addresses of the symbols that take part in a tile, moved from tile to tile, and memory to work in.

use super::Code;
use super::kernel::QUANTUM;

/// Most bytes of each symbol that are worked on at a time.
const WIDEST: usize = 4096;

static ZEROS: [u8; WIDEST] = [0; WIDEST];

/// Bytes of each symbol to work on at a time, and lines of that length to work in.
///
/// 16 sources and 16 sums of that size share the first cache; few symbols have more bytes each, for a tile has a cost
/// of its own. A sum of all symbols keeps nothing for later.
pub(super) fn tile(code: Code, k: usize) -> (usize, Scratch) {
    let (tile, lines) = match (code, k) {
        (Code::Xor, _) => (usize::MAX, 0),
        (Code::Mds, ..=8) => (WIDEST, 16),
        (Code::Mds, 9..=16) => (WIDEST / 2, 16),
        (Code::Mds, _) => (WIDEST / 4, 16),
    };
    (tile, Scratch::new(lines, tile))
}

/// Where symbols are, at the start of a tile.
pub(super) struct Columns {
    block: usize,
    rows: Vec<usize>,
    /// Data symbols that are there; whatever follows them has no row.
    pub sources: Vec<*const u8>,
    /// The same at their places in whole blocks; zeros between and behind them.
    pub padded: Vec<*const u8>,
    /// Parity that sums are added to; or none.
    pub start: Vec<*const u8>,
    /// What is written.
    pub targets: Vec<*mut u8>,
}

impl Columns {
    /// No symbols yet, blocks of `block` rows.
    pub fn new(block: usize) -> Self {
        Self {
            block,
            rows: Vec::new(),
            sources: Vec::new(),
            padded: vec![ZEROS.as_ptr(); block],
            start: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Adds data row `row`, above those before.
    pub fn source(&mut self, row: usize, at: *const u8) {
        let blocks = row / self.block + 1;
        self.padded.resize(self.padded.len().max(blocks * self.block), ZEROS.as_ptr());
        self.padded[row] = at;
        self.rows.push(row);
        self.sources.push(at);
    }

    /// Calls `work` for tile after tile of `len` bytes, with a length up to `tile` that is a multiple of [`QUANTUM`]: what remains
    /// at the end is copied to lines of that length, and back.
    ///
    /// # Safety
    /// All addresses are good for `len` bytes: sources and starts to read, targets to write.
    pub unsafe fn tiles(mut self, len: usize, tile: usize, mut work: impl FnMut(&Self, usize)) {
        let mut left = len;
        while left >= QUANTUM {
            let now = tile.min(left - left % QUANTUM);
            work(&self, now);
            self.advance(now);
            left -= now;
        }
        if left > 0 {
            let mut lines = Scratch::new(self.sources.len() + self.start.len() + self.targets.len(), QUANTUM);
            // SAFETY: `left` bytes remain of each symbol.
            let staged = unsafe { self.stage(&mut lines, left) };
            work(&staged, QUANTUM);
            for (&line, &target) in staged.targets.iter().zip(&self.targets) {
                // SAFETY: as above; lines are our own and longer.
                unsafe { std::ptr::copy_nonoverlapping(line, target, left) };
            }
        }
    }

    fn advance(&mut self, by: usize) {
        for at in self.sources.iter_mut().chain(&mut self.start) {
            *at = at.wrapping_add(by);
        }
        for at in &mut self.targets {
            *at = at.wrapping_add(by);
        }
        self.place();
    }

    fn place(&mut self) {
        for (&row, &at) in self.rows.iter().zip(&self.sources) {
            self.padded[row] = at;
        }
    }

    /// The same with every symbol replaced by a line; those that are read have the next `left` bytes of the symbol.
    ///
    /// # Safety
    /// `left` bytes of each symbol are readable.
    unsafe fn stage(&self, lines: &mut Scratch, left: usize) -> Self {
        let mut next = 0;
        let mut line = || {
            next += 1;
            lines.line(next - 1)
        };
        let mut copy = |at: *const u8| {
            let line = line();
            // SAFETY: promised by the caller; a line has QUANTUM bytes, more than `left`.
            unsafe {
                std::ptr::copy_nonoverlapping(at, line, left);
                line.add(left).write_bytes(0, QUANTUM - left);
            }
            line.cast_const()
        };
        let mut staged = Self::new(self.block);
        staged.sources = self.sources.iter().map(|&at| copy(at)).collect();
        staged.rows.clone_from(&self.rows);
        staged.padded.clone_from(&self.padded);
        staged.place();
        staged.start = self.start.iter().map(|&at| copy(at)).collect();
        staged.targets = self.targets.iter().map(|_| line()).collect();
        staged
    }
}

#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// Lines of equal length to work in; written before they are read.
pub(super) struct Scratch {
    memory: Vec<CacheLine>,
    line: usize,
}

impl Scratch {
    /// `count` lines of `line` bytes, a multiple of 64.
    pub fn new(count: usize, line: usize) -> Self {
        Self { memory: Vec::with_capacity((count * line).div_ceil(size_of::<CacheLine>())), line }
    }

    /// Address of a line.
    pub fn line(&mut self, i: usize) -> *mut u8 {
        self.memory.as_mut_ptr().cast::<u8>().wrapping_add(i * self.line)
    }
}
