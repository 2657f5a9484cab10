//! The control datagram of a queue pair: cumulative facts, grants, and one opaque payload of the layer above.
//!
//! Datagrams are unreliable and idempotent: each is valid alone and carries the newest cumulative facts, so that any
//! later one makes up for a lost one. Integrity is checked by the fabric; decoding still survives any bytes, allocates
//! nothing and reads nothing outside them. Only the format is judged here; whether counters make sense is judged by
//! the queue pair, which knows what it granted.
//!
//! # Format
//!
//! Big-endian, at most [`MAX_CONTROL`] bytes. The second group is there when its flag is set, in this order.
//!
//! | field | bytes | meaning |
//! |---|---|---|
//! | version | 1 | [`VERSION`] |
//! | flags | 1 | 0x01 `to_receiver`, 0x02 `reply_wanted`, 0x04 close, 0x08 drain, 0x10 echo, 0x20 path; others are zero |
//! | granted | 8 | next seq that will be granted |
//! | grants seen | 8 | next seq whose grant is awaited |
//! | closed | 8 | every earlier seq is closed by its sender |
//! | retired | 8 | every earlier seq was completed by its receiver |
//! | sent at | 8 | sender's clock, ns |
//! | first | 8 | seq of the first entry |
//! | entries | 1 | number of entries |
//! | close | 1 | code of a [`CloseReason`] |
//! | drain | 8 + 8 | first seq of a wholly closed round, packets posted on its generation since the connection began |
//! | echo | 8 + 8 | newest `sent at` from the peer; how long ago it came in, ns |
//! | path | 4 | payload bytes of a packet that the path from the sender carries, less than the queue pair's |
//! | entry, repeated | 17 or 29 | see below |
//! | upper payload | rest | opaque |
//!
//! | field of an entry | bytes | meaning |
//! |---|---|---|
//! | packets per chunk | 1 | 1 to 64, 0 for a withdrawn receive; 0x80 is added when key and address follow |
//! | length | 8 | bytes of the receive |
//! | payload | 4 | bytes of a full packet of its message, 0 for a withdrawn receive |
//! | extra | 4 | packets that it takes behind its data |
//! | key, address | 4 + 8 | left out when both are zero, as on fabrics that derive them |

#![forbid(unsafe_code)]

pub(crate) mod wire;

#[cfg(test)]
mod tests;

use crate::fabric::{Grant, MAX_CONTROL, QueueSpec};
use crate::types::{Nanos, Seq};
use wire::Reader;

/// Format version that is written, and the only one that is read.
pub const VERSION: u8 = 3;

/// Most packets in a chunk.
pub const MAX_PER_CHUNK: u8 = 64;

const TO_RECEIVER: u8 = 0x01;
const REPLY_WANTED: u8 = 0x02;
const CLOSE: u8 = 0x04;
const DRAIN: u8 = 0x08;
const ECHO: u8 = 0x10;
const PATH: u8 = 0x20;
const ALL_FLAGS: u8 = TO_RECEIVER | REPLY_WANTED | CLOSE | DRAIN | ECHO | PATH;

const KEYED: u8 = 0x80;

const FIXED: usize = 51;
const CLOSE_LEN: usize = 1;
const DRAIN_LEN: usize = 16;
const ECHO_LEN: usize = 16;
const PATH_LEN: usize = 4;
const PLAIN_ENTRY: usize = 17;
const KEYED_ENTRY: usize = 29;

/// Largest upper payload beside any header, in bytes.
pub const MAX_UPPER: usize = MAX_CONTROL - FIXED - CLOSE_LEN - DRAIN_LEN - ECHO_LEN - PATH_LEN;

/// Where the number of entries stands.
const COUNT_AT: usize = FIXED - 1;

// The number of entries fits its byte.
const _: () = assert!((MAX_CONTROL - FIXED) / PLAIN_ENTRY <= u8::MAX as usize);

/// Why a peer ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// It was done.
    Normal,
    /// It received something that the protocol does not allow.
    ProtocolViolation,
    /// It was asked for more than it agreed to at connect.
    LimitsExceeded,
    /// It heard nothing for too long.
    PeerSilent,
    /// It failed by itself.
    Internal,
    /// A code of a later version.
    Unknown(u8),
}

impl CloseReason {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Normal => 0,
            Self::ProtocolViolation => 1,
            Self::LimitsExceeded => 2,
            Self::PeerSilent => 3,
            Self::Internal => 4,
            Self::Unknown(code) => code,
        }
    }

    /// The reason of a code; never `Unknown` of a known code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Normal,
            1 => Self::ProtocolViolation,
            2 => Self::LimitsExceeded,
            3 => Self::PeerSilent,
            4 => Self::Internal,
            _ => Self::Unknown(code),
        }
    }
}

/// What every control datagram says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The upper payload comes from the peer's send half and is for our receive half.
    pub to_receiver: bool,
    /// PROBE: the receiver of this datagram answers at once.
    pub reply_wanted: bool,
    /// The peer ended the connection.
    pub close: Option<CloseReason>,
    /// Next seq that the peer's receive half will grant; every earlier one is granted.
    pub granted: Seq,
    /// Next seq whose grant the peer's send half awaits; it holds every earlier one.
    pub grants_seen: Seq,
    /// The peer's send half will post nothing more of any seq before this one.
    pub closed: Seq,
    /// The peer's receive half completed every seq before this one, whole or not.
    pub retired: Seq,
    /// First seq of a round (S messages) that the peer's send half closed wholly, and the packets it had posted on that
    /// round's generation by then.
    pub drain: Option<(Seq, u64)>,
    /// When it was sent, on the peer's clock.
    pub sent_at: Nanos,
    /// The newest `sent_at` that the peer had from us, and how long before `sent_at` it came in.
    pub echo: Option<(Nanos, Nanos)>,
    /// Payload bytes of a packet that the path from the peer's send half to us carries, where that became less than the
    /// queue pair's.
    pub path: Option<u32>,
}

impl Header {
    /// Bytes it takes, the number of entries and their first seq included.
    pub const fn encoded_len(&self) -> usize {
        let mut n = FIXED;
        if self.close.is_some() {
            n += CLOSE_LEN;
        }
        if self.drain.is_some() {
            n += DRAIN_LEN;
        }
        if self.echo.is_some() {
            n += ECHO_LEN;
        }
        if self.path.is_some() {
            n += PATH_LEN;
        }
        n
    }

    /// Largest upper payload beside it, in bytes. A payload of that size leaves no room for entries.
    pub const fn upper_room(&self) -> usize {
        MAX_CONTROL - self.encoded_len()
    }

    fn flags(&self) -> u8 {
        [
            (self.to_receiver, TO_RECEIVER),
            (self.reply_wanted, REPLY_WANTED),
            (self.close.is_some(), CLOSE),
            (self.drain.is_some(), DRAIN),
            (self.echo.is_some(), ECHO),
            (self.path.is_some(), PATH),
        ]
        .into_iter()
        .filter(|&(on, _)| on)
        .fold(0, |all, (_, bit)| all | bit)
    }
}

/// The grant of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtsEntry {
    /// Length of the receive in bytes.
    pub bytes: u64,
    /// Packets per chunk, 1 to [`MAX_PER_CHUNK`]; 0 when withdrawn.
    pub per_chunk: u8,
    /// Bytes of a full packet; 0 when withdrawn.
    pub payload: u32,
    /// Packets that may be sent behind the data, from the next chunk boundary on.
    pub extra: u32,
    /// What a write into it needs.
    pub grant: Grant,
}

impl CtsEntry {
    /// Owed for a receive that was completed before its grant was seen: a message sent to it goes nowhere.
    pub const WITHDRAWN: Self =
        Self { bytes: 0, per_chunk: 0, payload: 0, extra: 0, grant: Grant { key: 0, address: 0 } };

    /// Whether a queue pair of this kind can send what is granted.
    pub fn fits(&self, spec: &QueueSpec) -> bool {
        if *self == Self::WITHDRAWN {
            return true;
        }
        if self.per_chunk == 0 || self.payload == 0 || self.payload > spec.payload {
            return false;
        }
        let data = self.bytes.div_ceil(self.payload.into());
        let end = match self.extra {
            0 => data,
            extra => first_extra(data, self.per_chunk).saturating_add(extra.into()),
        };
        end <= spec.layout.max_packets().into()
    }

    /// Bytes it takes.
    fn encoded_len(&self) -> usize {
        if self.grant == Grant::default() { PLAIN_ENTRY } else { KEYED_ENTRY }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let keyed = self.grant != Grant::default();
        out.push(self.per_chunk | if keyed { KEYED } else { 0 });
        out.extend_from_slice(&self.bytes.to_be_bytes());
        out.extend_from_slice(&self.payload.to_be_bytes());
        out.extend_from_slice(&self.extra.to_be_bytes());
        if keyed {
            out.extend_from_slice(&self.grant.key.to_be_bytes());
            out.extend_from_slice(&self.grant.address.to_be_bytes());
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let head = r.u8().ok_or(DecodeError::Truncated)?;
        let per_chunk = head & !KEYED;
        if !valid_per_chunk(per_chunk) {
            return Err(DecodeError::PerChunk(per_chunk));
        }
        let bytes = r.u64().ok_or(DecodeError::Truncated)?;
        let payload = r.u32().ok_or(DecodeError::Truncated)?;
        let extra = r.u32().ok_or(DecodeError::Truncated)?;
        let mut grant = Grant::default();
        if head & KEYED != 0 {
            grant.key = r.u32().ok_or(DecodeError::Truncated)?;
            grant.address = r.u64().ok_or(DecodeError::Truncated)?;
        }
        Ok(Self { bytes, per_chunk, payload, extra, grant })
    }
}

/// Offset of the first extra packet behind `data` packets in chunks of `per_chunk`: the next chunk boundary.
pub fn first_extra(data: u64, per_chunk: u8) -> u64 {
    let per_chunk = u64::from(per_chunk.max(1));
    data.div_ceil(per_chunk).saturating_mul(per_chunk)
}

const fn valid_per_chunk(n: u8) -> bool {
    n <= MAX_PER_CHUNK
}

/// Why a datagram could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The upper payload does not fit beside the header.
    #[error("upper payload of {len} bytes, the datagram has room for {room}")]
    UpperTooLong {
        /// Its bytes.
        len: usize,
        /// [`Header::upper_room`].
        room: usize,
    },
    /// An entry's packets per chunk are above 64.
    #[error("{0} packets per chunk, allowed are 0 to 64")]
    PerChunk(u8),
}

/// Why bytes are not a datagram.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The peer speaks another version.
    #[error("control version {got}, expected {VERSION}")]
    Version {
        /// Its version.
        got: u8,
    },
    /// More bytes than a control datagram may have.
    #[error("{0} bytes, more than a control datagram may have")]
    TooLong(usize),
    /// The bytes end inside a field.
    #[error("the datagram ends inside a field")]
    Truncated,
    /// A flag of no known meaning is set.
    #[error("flags {0:#04x} contain an unknown one")]
    Flags(u8),
    /// An entry's packets per chunk are above 64.
    #[error("{0} packets per chunk, allowed are 0 to 64")]
    PerChunk(u8),
}

/// Writes a datagram over the contents of `out` and returns the number of entries written.
///
/// `entries` are those of `first`, `first + 1` and so on; as many are written as fit beside `upper`, which has
/// precedence. On error `out` is empty.
pub fn encode(
    header: &Header,
    first: Seq,
    entries: impl IntoIterator<Item = CtsEntry>,
    upper: &[u8],
    out: &mut Vec<u8>,
) -> Result<usize, EncodeError> {
    out.clear();
    let room = header.upper_room();
    if upper.len() > room {
        return Err(EncodeError::UpperTooLong { len: upper.len(), room });
    }
    out.push(VERSION);
    out.push(header.flags());
    let facts = [header.granted, header.grants_seen, header.closed, header.retired];
    for n in [facts[0].0, facts[1].0, facts[2].0, facts[3].0, header.sent_at.0, first.0] {
        out.extend_from_slice(&n.to_be_bytes());
    }
    out.push(0);
    if let Some(reason) = header.close {
        out.push(reason.code());
    }
    if let Some((round, packets)) = header.drain {
        out.extend_from_slice(&round.0.to_be_bytes());
        out.extend_from_slice(&packets.to_be_bytes());
    }
    if let Some((sent_at, hold)) = header.echo {
        out.extend_from_slice(&sent_at.0.to_be_bytes());
        out.extend_from_slice(&hold.0.to_be_bytes());
    }
    if let Some(path) = header.path {
        out.extend_from_slice(&path.to_be_bytes());
    }
    let mut count = 0u8;
    let end = MAX_CONTROL - upper.len();
    let mut entries = entries.into_iter();
    while out.len() + PLAIN_ENTRY <= end {
        let Some(e) = entries.next() else { break };
        if !valid_per_chunk(e.per_chunk) {
            out.clear();
            return Err(EncodeError::PerChunk(e.per_chunk));
        }
        if out.len() + e.encoded_len() > end {
            break;
        }
        e.write(out);
        count += 1;
    }
    out[COUNT_AT] = count;
    out.extend_from_slice(upper);
    Ok(usize::from(count))
}

/// A received datagram; borrows its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The cumulative facts.
    pub header: Header,
    /// The payload of the layer above.
    pub upper: &'a [u8],
    entries: Entries<'a>,
}

impl<'a> Datagram<'a> {
    /// Checks the whole format, so that nothing can fail afterwards.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader(bytes);
        let version = r.u8().ok_or(DecodeError::Truncated)?;
        if version != VERSION {
            return Err(DecodeError::Version { got: version });
        }
        if bytes.len() > MAX_CONTROL {
            return Err(DecodeError::TooLong(bytes.len()));
        }
        let flags = r.u8().ok_or(DecodeError::Truncated)?;
        if flags & !ALL_FLAGS != 0 {
            return Err(DecodeError::Flags(flags));
        }
        let mut number = || r.u64().ok_or(DecodeError::Truncated);
        let [granted, grants_seen, closed, retired, sent_at, first] =
            [number()?, number()?, number()?, number()?, number()?, number()?];
        let left = r.u8().ok_or(DecodeError::Truncated)?;
        let mut header = Header {
            to_receiver: flags & TO_RECEIVER != 0,
            reply_wanted: flags & REPLY_WANTED != 0,
            close: None,
            granted: Seq(granted),
            grants_seen: Seq(grants_seen),
            closed: Seq(closed),
            retired: Seq(retired),
            drain: None,
            sent_at: Nanos(sent_at),
            echo: None,
            path: None,
        };
        if flags & CLOSE != 0 {
            header.close = Some(CloseReason::from_code(r.u8().ok_or(DecodeError::Truncated)?));
        }
        if flags & DRAIN != 0 {
            let round = Seq(r.u64().ok_or(DecodeError::Truncated)?);
            header.drain = Some((round, r.u64().ok_or(DecodeError::Truncated)?));
        }
        if flags & ECHO != 0 {
            let sent_at = Nanos(r.u64().ok_or(DecodeError::Truncated)?);
            header.echo = Some((sent_at, Nanos(r.u64().ok_or(DecodeError::Truncated)?)));
        }
        if flags & PATH != 0 {
            header.path = Some(r.u32().ok_or(DecodeError::Truncated)?);
        }
        let entries = Entries { bytes: r, left, seq: Seq(first) };
        for _ in 0..left {
            CtsEntry::read(&mut r)?;
        }
        Ok(Self { header, upper: r.0, entries })
    }

    /// Seq of the first entry; of no meaning without entries.
    pub fn first(&self) -> Seq {
        self.entries.seq
    }

    /// The grants, in seq order.
    pub fn entries(&self) -> Entries<'a> {
        self.entries
    }
}

/// The grants of a datagram, already checked.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    bytes: Reader<'a>,
    left: u8,
    seq: Seq,
}

impl Iterator for Entries<'_> {
    type Item = (Seq, CtsEntry);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = CtsEntry::read(&mut self.bytes).ok()?;
        let seq = self.seq;
        self.seq = seq.next();
        Some((seq, entry))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left.into(), Some(self.left.into()))
    }
}

impl ExactSizeIterator for Entries<'_> {}
