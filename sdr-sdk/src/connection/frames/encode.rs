//! Writing frames into a payload of limited size.
//!
//! A frame is written whole or not at all. A report never says that a packet arrived which its caller called missing:
//! what does not fit is left out of the described part, and what contradicts itself is an error.

#![forbid(unsafe_code)]

use super::{
    ANNOUNCE, Announce, DONE, DONE_ENTRY, DONE_HEAD, LOSS, LOSS_LEN, LossCount, MIN_REPORT, REPORT,
    REPORT_HEAD, Span, Status, USER, WANT, WANT_HEAD,
};
use crate::types::Seq;
use std::ops::Range;

/// Why a report could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Not even one range fits.
    #[error("{have} bytes are left, a report needs up to {MIN_REPORT}")]
    NoRoom {
        /// Bytes left.
        have: usize,
    },
    /// `base` or `from` is after `to`.
    #[error("a report on [{}, {}) cannot have base {}", .0.from, .0.to, .0.base)]
    Span(Span),
    /// The missing ranges are not ascending, or one begins before `base`, which says that all of that arrived.
    #[error("missing range [{start}, {end}) contradicts what came before it or base")]
    Contradiction {
        /// Its first packet.
        start: u32,
        /// Its end.
        end: u32,
    },
}

/// What a written report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Bytes it took.
    pub bytes: usize,
    /// End of the part that it describes.
    pub to: u32,
    /// Where the next report starts, when not everything fitted; then equal to `to`.
    pub next: Option<u32>,
}

/// Appends frames to a payload, within a limit.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> Encoder<'a> {
    /// Appends at most `limit` bytes to `out`.
    pub fn new(out: &'a mut Vec<u8>, limit: usize) -> Self {
        let end = out.len().saturating_add(limit);
        Self { out, end }
    }

    /// Bytes that may still be appended.
    pub fn room(&self) -> usize {
        self.end.saturating_sub(self.out.len())
    }

    /// Appends an ANNOUNCE; false, and nothing appended, when it does not fit.
    #[must_use]
    pub fn announce(&mut self, a: &Announce) -> bool {
        if a.encoded_len() > self.room() {
            return false;
        }
        let flags = if a.user.is_some() { USER } else { 0 };
        self.out.extend_from_slice(&[ANNOUNCE, flags]);
        self.out.extend_from_slice(&a.seq.0.to_be_bytes());
        self.out.extend_from_slice(&a.bytes.to_be_bytes());
        self.out.push(a.scheme);
        for n in [a.k, a.m, a.interleave] {
            self.out.extend_from_slice(&n.to_be_bytes());
        }
        self.out.extend_from_slice(&a.symbol.to_be_bytes());
        self.out.extend_from_slice(&a.pace.to_be_bytes());
        if let Some(user) = a.user {
            self.out.extend_from_slice(&user.to_be_bytes());
        }
        true
    }

    /// Appends a REPORT of at most `budget` bytes; on error nothing is appended.
    ///
    /// `missing` are ranges of packets that did not arrive, ascending; they may touch, they may go beyond the span, of
    /// which only the part inside is used. When not all fit, the report ends with the last range that does, and
    /// [`Reported::next`] says where to go on. With [`MIN_REPORT`] bytes there is always progress.
    pub fn report(
        &mut self,
        span: Span,
        missing: impl IntoIterator<Item = Range<u32>>,
        budget: usize,
    ) -> Result<Reported, ReportError> {
        let start = self.out.len();
        let result = self.try_report(span, missing, budget);
        if result.is_err() {
            self.out.truncate(start);
        }
        result
    }

    fn try_report(
        &mut self,
        span: Span,
        missing: impl IntoIterator<Item = Range<u32>>,
        budget: usize,
    ) -> Result<Reported, ReportError> {
        let have = self.room().min(budget);
        if have < REPORT_HEAD {
            return Err(ReportError::NoRoom { have });
        }
        if span.from > span.to || span.base > span.to {
            return Err(ReportError::Span(span));
        }
        let start = self.out.len();
        self.out.push(REPORT);
        self.out.extend_from_slice(&span.seq.0.to_be_bytes());
        for n in [span.base, span.from, span.to] {
            self.out.extend_from_slice(&n.to_be_bytes());
        }
        self.out.extend_from_slice(&[0; 2]);

        let mut ranges = RangeWriter { out: self.out, end: start + have, count: 0, at: span.from };
        // Ranges that touch are one range: the last is held back until the next is seen.
        let mut held: Option<Range<u32>> = None;
        let mut seen = span.base;
        let mut full = false;
        for r in missing.into_iter().filter(|r| r.start < r.end) {
            if r.start < seen {
                return Err(ReportError::Contradiction { start: r.start, end: r.end });
            }
            if r.start >= span.to {
                break;
            }
            seen = r.end;
            let r = r.start.max(span.from)..r.end.min(span.to);
            if r.is_empty() {
                continue;
            }
            match &mut held {
                Some(h) if h.end == r.start => h.end = r.end,
                _ => {
                    full = held.replace(r).is_some_and(|h| !ranges.write(&h));
                    if full {
                        break;
                    }
                }
            }
        }
        full |= !full && held.is_some_and(|h| !ranges.write(&h));

        let (count, at) = (ranges.count, ranges.at);
        if full && count == 0 {
            return Err(ReportError::NoRoom { have });
        }
        let to = if full { at } else { span.to };
        self.out[start + 17..start + 21].copy_from_slice(&to.to_be_bytes());
        self.out[start + 21..start + 23].copy_from_slice(&count.to_be_bytes());
        Ok(Reported { bytes: self.out.len() - start, to, next: full.then_some(to) })
    }

    /// Appends a WANT of at most `budget` bytes with as many of `ranges` as fit, and returns how many and the bytes; without
    /// any, nothing is appended. They are ascending and never touch.
    pub fn want(&mut self, seq: Seq, ranges: &[Range<u32>], budget: usize) -> (usize, usize) {
        let have = self.room().min(budget);
        let start = self.out.len();
        if have < WANT_HEAD {
            return (0, 0);
        }
        self.out.push(WANT);
        self.out.extend_from_slice(&seq.0.to_be_bytes());
        self.out.extend_from_slice(&[0; 2]);
        let mut writer = RangeWriter { out: self.out, end: start + have, count: 0, at: 0 };
        let written = ranges.iter().take_while(|r| writer.write(r)).count();
        let count = writer.count;
        if written == 0 {
            self.out.truncate(start);
            return (0, 0);
        }
        self.out[start + 9..start + 11].copy_from_slice(&count.to_be_bytes());
        (written, self.out.len() - start)
    }

    /// Appends a LOSS; false, and nothing appended, when it does not fit.
    #[must_use]
    pub fn loss(&mut self, loss: &LossCount) -> bool {
        if LOSS_LEN > self.room() {
            return false;
        }
        self.out.push(LOSS);
        for n in [loss.packets, loss.missing, loss.bursts] {
            self.out.extend_from_slice(&n.to_be_bytes());
        }
        true
    }

    /// Appends a DONE with as many entries as fit and returns how many; without any, nothing is appended.
    pub fn done(&mut self, entries: impl IntoIterator<Item = (Seq, Status)>) -> usize {
        let fit = (self.room().saturating_sub(DONE_HEAD) / DONE_ENTRY).min(u8::MAX.into());
        let start = self.out.len();
        let mut count = 0u8;
        for (seq, status) in entries.into_iter().take(fit) {
            if count == 0 {
                self.out.extend_from_slice(&[DONE, 0]);
            }
            self.out.extend_from_slice(&seq.0.to_be_bytes());
            self.out.push(status.code());
            count += 1;
            self.out[start + 1] = count;
        }
        count.into()
    }
}

/// Delta-codes ranges until the bytes run out.
struct RangeWriter<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
    count: u16,
    /// End of the last range written.
    at: u32,
}

impl RangeWriter<'_> {
    /// False, and nothing written, when it does not fit.
    fn write(&mut self, r: &Range<u32>) -> bool {
        let (gap, len) = (r.start - self.at, r.end - r.start);
        if self.count == u16::MAX || self.out.len() + varint_len(gap) + varint_len(len) > self.end {
            return false;
        }
        write_varint(self.out, gap);
        write_varint(self.out, len);
        self.count += 1;
        self.at = r.end;
        true
    }
}

/// Bytes of a varint.
pub(super) const fn varint_len(v: u32) -> usize {
    (38 - (v | 1).leading_zeros() as usize) / 7
}

pub(super) fn write_varint(out: &mut Vec<u8>, mut v: u32) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}
