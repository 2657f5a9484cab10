//! The frames of a connection: what it puts into the upper payload of a control datagram.
//!
//! A payload is a sequence of frames; each starts with a type byte, is valid alone, and may be lost, late or repeated.
//! Decoding allocates nothing, survives any bytes and stops at the first error. Only the format is judged here; whether
//! a seq exists, and whether k, m or a symbol are within the agreed limits, is judged by the connection.
//!
//! # Format
//!
//! Big-endian; a varint is LEB128, at most 32 bits, in its shortest form.
//!
//! | frame | type | fields, with their bytes |
//! |---|---|---|
//! | ANNOUNCE | 1 | flags 1 (0x01 user), seq 8, length in bytes 8, scheme 1, k 2, m 2, interleave 2, symbol in bytes 4, pace in ps 8, user 4 when flagged |
//! | REPORT | 2 | seq 8, base 4, from 4, to 4, number of ranges 2; each range: gap varint, length varint |
//! | DONE | 3 | number of entries 1; each entry: seq 8, status 1 |
//! | WANT | 4 | seq 8, number of ranges 2; each range: gap varint, length varint |
//! | LOSS | 5 | packets looked at 8, of them missing 8, in so many bursts 8 |
//!
//! # What a report means
//!
//! Every packet of [0, base) arrived. Of [from, to), everything arrived except the missing ranges. Nothing is said of
//! the rest. A WANT asks for packets: data, or parity by its number in the receive. LOSS counts since the connection began.
//! The first gap counts from `from`, each later one from the end of the range before; lengths count packets.
//! Accepted is only: `base <= to`, `from <= to`, lengths of at least 1, gaps of at least 1 but the first (ranges are
//! ascending and never touch), every range inside [max(base, from), to). `base` may lie before, at or after `from`.

#![forbid(unsafe_code)]

mod encode;
#[cfg(test)]
mod tests;

pub use encode::{Encoder, ReportError, Reported};

use crate::control::wire::Reader;
use crate::types::Seq;
use std::ops::Range;

const ANNOUNCE: u8 = 1;
const REPORT: u8 = 2;
const DONE: u8 = 3;
const WANT: u8 = 4;
const LOSS: u8 = 5;

const USER: u8 = 0x01;

const REPORT_HEAD: usize = 23;
const WANT_HEAD: usize = 11;
const DONE_HEAD: usize = 2;
const DONE_ENTRY: usize = 9;

/// Most bytes of an ANNOUNCE.
pub const MAX_ANNOUNCE: usize = 41;

/// Bytes of a LOSS.
pub const LOSS_LEN: usize = 25;

/// With this many bytes a REPORT or a WANT always holds at least one range, so that a continued one makes progress.
pub const MIN_REPORT: usize = REPORT_HEAD + 10;

/// What the receiver must know of a message before its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announce {
    /// The message.
    pub seq: Seq,
    /// Its length in bytes; zero completes without packets.
    pub bytes: u64,
    /// Family of the reliability scheme.
    pub scheme: u8,
    /// Data symbols of a stripe.
    pub k: u16,
    /// Parity symbols of a stripe that are sent unasked.
    pub m: u16,
    /// Stripes that are interleaved.
    pub interleave: u16,
    /// Bytes of a symbol.
    pub symbol: u32,
    /// Time between two packets, in picoseconds.
    pub pace: u64,
    /// The user immediate.
    pub user: Option<u32>,
}

impl Announce {
    const fn encoded_len(&self) -> usize {
        if self.user.is_some() { MAX_ANNOUNCE } else { MAX_ANNOUNCE - 4 }
    }

    fn read(r: &mut Reader<'_>) -> Option<Result<Self, FrameError>> {
        let flags = r.u8()?;
        if flags & !USER != 0 {
            return Some(Err(FrameError::Flags(flags)));
        }
        Some(Ok(Self {
            seq: Seq(r.u64()?),
            bytes: r.u64()?,
            scheme: r.u8()?,
            k: r.u16()?,
            m: r.u16()?,
            interleave: r.u16()?,
            symbol: r.u32()?,
            pace: r.u64()?,
            user: if flags & USER != 0 { Some(r.u32()?) } else { None },
        }))
    }
}

/// Of which packets a report speaks; see the module for what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The message.
    pub seq: Seq,
    /// Every packet before it arrived.
    pub base: u32,
    /// First packet of the part that is described.
    pub from: u32,
    /// End of the part that is described, exclusive.
    pub to: u32,
}

/// What arrived of a message, and what is missing.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Of which packets it speaks.
    pub span: Span,
    missing: Missing<'a>,
}

impl<'a> Report<'a> {
    /// The missing ranges, ascending, inside [max(base, from), to), never touching.
    pub fn missing(&self) -> Missing<'a> {
        self.missing
    }

    fn read(r: &mut Reader<'a>) -> Option<Result<Self, FrameError>> {
        let span = Span { seq: Seq(r.u64()?), base: r.u32()?, from: r.u32()?, to: r.u32()? };
        let left = r.u16()?;
        if span.from > span.to || span.base > span.to {
            return Some(Err(FrameError::Span(span)));
        }
        let missing = Missing { bytes: *r, left, first: true, at: span.from };
        let mut check = missing;
        for _ in 0..left {
            match check.read() {
                Ok(range) if range.start >= span.base && range.end <= span.to => {}
                Ok(range) => return Some(Err(FrameError::Outside { start: range.start, end: range.end })),
                Err(e) => return Some(Err(e)),
            }
        }
        *r = check.bytes;
        Some(Ok(Self { span, missing }))
    }
}

/// Packets that the receiver wants.
#[derive(Clone, Copy, Debug)]
pub struct Want<'a> {
    /// The message.
    pub seq: Seq,
    ranges: Missing<'a>,
}

impl<'a> Want<'a> {
    /// The packets, ascending, never touching.
    pub fn ranges(&self) -> Missing<'a> {
        self.ranges
    }

    fn read(r: &mut Reader<'a>) -> Option<Result<Self, FrameError>> {
        let (seq, left) = (Seq(r.u64()?), r.u16()?);
        let ranges = Missing { bytes: *r, left, first: true, at: 0 };
        let mut check = ranges;
        for _ in 0..left {
            if let Err(e) = check.read() {
                return Some(Err(e));
            }
        }
        *r = check.bytes;
        Some(Ok(Self { seq, ranges }))
    }
}

/// What a receiver saw of its path's losses since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCount {
    /// Packets that were looked at.
    pub packets: u64,
    /// Those that were missing at first sight.
    pub missing: u64,
    /// Bursts: missing ones in a row.
    pub bursts: u64,
}

impl LossCount {
    fn read(r: &mut Reader<'_>) -> Option<Result<Self, FrameError>> {
        let count = Self { packets: r.u64()?, missing: r.u64()?, bursts: r.u64()? };
        let fits = count.bursts <= count.missing && count.missing <= count.packets;
        Some(if fits { Ok(count) } else { Err(FrameError::Loss(count)) })
    }
}

/// Missing ranges of a report, already checked.
#[derive(Clone, Copy, Debug)]
pub struct Missing<'a> {
    bytes: Reader<'a>,
    left: u16,
    first: bool,
    /// End of the range before.
    at: u32,
}

impl Missing<'_> {
    /// Reads one range, whatever `left` says.
    fn read(&mut self) -> Result<Range<u32>, FrameError> {
        let gap = read_varint(&mut self.bytes)?;
        let len = read_varint(&mut self.bytes)?;
        if len == 0 || (gap == 0 && !self.first) {
            return Err(FrameError::EmptyRange);
        }
        self.first = false;
        let start = self.at.checked_add(gap).ok_or(FrameError::Overflow)?;
        let end = start.checked_add(len).ok_or(FrameError::Overflow)?;
        self.at = end;
        Ok(start..end)
    }
}

impl Iterator for Missing<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        self.left = self.left.checked_sub(1)?;
        self.read().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.into(), Some(self.left.into()))
    }
}

impl ExactSizeIterator for Missing<'_> {}

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Every byte is there.
    Whole,
    /// The receiver gave it up.
    Cancelled,
    /// The message is longer than the receive.
    TooLong,
    /// The receiver does not take what was announced.
    Refused,
}

impl Status {
    const fn code(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::Cancelled => 1,
            Self::TooLong => 2,
            Self::Refused => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Whole,
            1 => Self::Cancelled,
            2 => Self::TooLong,
            3 => Self::Refused,
            _ => return None,
        })
    }
}

/// Ended receives of a DONE frame, already checked.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    bytes: Reader<'a>,
}

impl<'a> Done<'a> {
    fn read(r: &mut Reader<'a>) -> Option<Result<Self, FrameError>> {
        let n = usize::from(r.u8()?);
        let bytes = r.take(n * DONE_ENTRY)?;
        let codes = bytes.iter().skip(DONE_ENTRY - 1).step_by(DONE_ENTRY);
        for &code in codes {
            if Status::from_code(code).is_none() {
                return Some(Err(FrameError::Status(code)));
            }
        }
        Some(Ok(Self { bytes: Reader(bytes) }))
    }
}

impl Iterator for Done<'_> {
    type Item = (Seq, Status);

    fn next(&mut self) -> Option<Self::Item> {
        Some((Seq(self.bytes.u64()?), Status::from_code(self.bytes.u8()?)?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = self.bytes.0.len() / DONE_ENTRY;
        (n, Some(n))
    }
}

impl ExactSizeIterator for Done<'_> {}

/// One frame; borrows the payload.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'a> {
    /// From the sender: what a message is.
    Announce(Announce),
    /// From the receiver: what arrived of a message.
    Report(Report<'a>),
    /// From the receiver: receives that ended.
    Done(Done<'a>),
    /// From the receiver: packets that it lacks.
    Want(Want<'a>),
    /// From the receiver: what it saw of the path.
    Loss(LossCount),
}

/// Why bytes are not a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The payload ends inside a frame.
    #[error("the payload ends inside a frame")]
    Truncated,
    /// No such frame type.
    #[error("unknown frame type {0}")]
    Type(u8),
    /// A flag of no known meaning is set.
    #[error("announce flags {0:#04x} contain an unknown one")]
    Flags(u8),
    /// `base` or `from` is after `to`.
    #[error("report of {} on [{}, {}) with base {}", .0.seq, .0.from, .0.to, .0.base)]
    Span(Span),
    /// A number is longer than 32 bits or not in its shortest form.
    #[error("malformed varint")]
    Varint,
    /// A missing range has no packets, or touches the one before.
    #[error("empty gap or empty missing range")]
    EmptyRange,
    /// A missing range ends beyond 32 bits.
    #[error("missing range beyond 32 bits")]
    Overflow,
    /// A missing range leaves the part that is described.
    #[error("missing range [{start}, {end}) outside the report")]
    Outside {
        /// Its first packet.
        start: u32,
        /// Its end.
        end: u32,
    },
    /// More missing than there were, or more bursts than missing.
    #[error("impossible loss count {0:?}")]
    Loss(LossCount),
    /// No such status.
    #[error("unknown status {0}")]
    Status(u8),
}

/// The frames of an upper payload; ends after the first error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: Reader<'a>,
}

impl<'a> Frames<'a> {
    /// The frames in `payload`.
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { rest: Reader(payload) }
    }

    fn read(&mut self) -> Result<Frame<'a>, FrameError> {
        let r = &mut self.rest;
        let frame = match r.u8().ok_or(FrameError::Truncated)? {
            ANNOUNCE => Announce::read(r).map(|a| a.map(Frame::Announce)),
            REPORT => Report::read(r).map(|a| a.map(Frame::Report)),
            DONE => Done::read(r).map(|a| a.map(Frame::Done)),
            WANT => Want::read(r).map(|a| a.map(Frame::Want)),
            LOSS => LossCount::read(r).map(|a| a.map(Frame::Loss)),
            other => return Err(FrameError::Type(other)),
        };
        frame.unwrap_or(Err(FrameError::Truncated))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.0.is_empty() {
            return None;
        }
        let frame = self.read();
        if frame.is_err() {
            self.rest = Reader(&[]);
        }
        Some(frame)
    }
}

impl std::iter::FusedIterator for Frames<'_> {}

fn read_varint(r: &mut Reader<'_>) -> Result<u32, FrameError> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = r.u8().ok_or(FrameError::Truncated)?;
        let bits = u32::from(byte & 0x7f);
        // The fifth byte has four bits left; a zero at the end could have been left out.
        if (shift == 28 && bits > 0xf) || (shift > 0 && byte == 0) {
            return Err(FrameError::Varint);
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(FrameError::Varint)
}
