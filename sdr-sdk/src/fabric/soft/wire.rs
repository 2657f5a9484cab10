//! The header of a datagram on the software NIC, 36 bytes, big-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version (high four bits), packet type (low four) |
//! | 1 | flags; the top bit, [`ENCRYPTED`], is reserved |
//! | 2..4 | payload bytes |
//! | 4..8 | connection id |
//! | 8..16 | token |
//! | 16..24 | packet number |
//! | 24..28 | queue: zero byte, channel, generation (two bytes) |
//! | 28..32 | immediate |
//! | 32..36 | CRC-32C over everything else, header first |
//!
//! Every version, also those to come, keeps the version's place, the numbers of HELLO and PROBE, at least 1,188 bytes for both
//! of them, and the token's place, which in a handshake has the number that the client drew: so each side can tell the other
//! what it speaks.
//!
//! It knows neither connections nor keys. Invariant: nothing of a frame is handed out before version, type, length and
//! checksum are verified, so a frame that a link damaged is a lost frame.

#![forbid(unsafe_code)]

use crate::types::{Channel, Generation};
use crc_fast::{CrcAlgorithm, Digest};

#[cfg(test)]
mod tests;

/// Bytes of a header.
pub const HEADER: usize = 36;
/// Version this module speaks.
pub const VERSION: u8 = 1;
/// Most payload bytes that fit in a UDP datagram over IPv4 beside the header.
pub const MAX_PAYLOAD: usize = 65_507 - HEADER;
/// Flag: the payload is sealed and a tag stands in for the checksum. Reserved; such frames are refused.
pub const ENCRYPTED: u8 = 0x80;

const CRC_AT: usize = HEADER - 4;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// One packet of a message: a write with immediate.
    Data = 1,
    /// A control message of a queue pair.
    Control = 2,
    /// Opens a connection; padded by its sender.
    Hello = 3,
    /// Answers a HELLO that has no valid cookie.
    Retry = 4,
    /// Answers a HELLO that has one.
    Accept = 5,
    /// Shows the address of a channel on which nothing else leaves.
    Confirm = 6,
    /// As long as the payload size in question.
    Probe = 7,
    /// A probe came through; carries its size.
    ProbeAck = 8,
    /// A nonce for an address that is not yet validated.
    PathChallenge = 9,
    /// The nonce, sent back.
    PathResponse = 10,
    /// As long as the payload size in question, on a connection.
    PathProbe = 11,
    /// The largest of them that came in lately.
    PathProbeAck = 12,
}

impl PacketType {
    /// Every type, in the order of their numbers, which start at 1.
    pub const ALL: [Self; 12] = [
        Self::Data,
        Self::Control,
        Self::Hello,
        Self::Retry,
        Self::Accept,
        Self::Confirm,
        Self::Probe,
        Self::ProbeAck,
        Self::PathChallenge,
        Self::PathResponse,
        Self::PathProbe,
        Self::PathProbeAck,
    ];

    fn from_wire(n: u8) -> Option<Self> {
        Self::ALL.get(usize::from(n).checked_sub(1)?).copied()
    }
}

/// Everything in a header but payload length and checksum, which follow from the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the datagram is.
    pub kind: PacketType,
    /// The lower seven bits belong to the packet type. [`ENCRYPTED`] can be written, but not read yet.
    pub flags: u8,
    /// The receiver's name for the connection.
    pub connection: u32,
    /// Random number that both ends of the connection know.
    pub token: u64,
    /// Counts up by one with each datagram of a direction and channel; a repair has a new one. Not used in handshakes.
    pub number: u64,
    /// Channel of the queue.
    pub channel: Channel,
    /// Generation of the queue.
    pub generation: Generation,
    /// The immediate, see [`crate::imm`].
    pub imm: u32,
}

/// Why a frame was thrown away. All of them are counted as corrupt, and are loss to everyone else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Shorter than a header.
    #[error("{0} bytes are no header")]
    Short(usize),
    /// Another version.
    #[error("version {0}, expected {VERSION}")]
    Version(u8),
    /// No such packet type.
    #[error("no packet type {0}")]
    Type(u8),
    /// [`ENCRYPTED`] is set.
    #[error("encrypted frames are not supported")]
    Encrypted,
    /// The header's length is not what came.
    #[error("{got} payload bytes, header says {said}")]
    Length {
        /// Payload bytes that came.
        got: usize,
        /// Payload bytes in the header.
        said: u16,
    },
    /// Damaged on the way.
    #[error("checksum {got:08x}, header says {said:08x}")]
    Checksum {
        /// Computed.
        got: u32,
        /// In the header.
        said: u32,
    },
    /// Intact, but sent with a queue number that has no meaning.
    #[error("queue number {0:#x}")]
    Queue(u32),
}

impl Header {
    /// Writes the header of a datagram that carries `payload`.
    ///
    /// # Panics
    /// When the payload is longer than [`MAX_PAYLOAD`].
    pub fn write(&self, out: &mut [u8; HEADER], payload: &[u8]) {
        assert!(payload.len() <= MAX_PAYLOAD, "payload of {} bytes", payload.len());
        let queue = u32::from(self.channel.0) << 16 | u32::from(self.generation.0);
        out[0] = VERSION << 4 | self.kind as u8;
        out[1] = self.flags;
        out[2..4].copy_from_slice(&(payload.len() as u16).to_be_bytes());
        out[4..8].copy_from_slice(&self.connection.to_be_bytes());
        out[8..16].copy_from_slice(&self.token.to_be_bytes());
        out[16..24].copy_from_slice(&self.number.to_be_bytes());
        out[24..28].copy_from_slice(&queue.to_be_bytes());
        out[28..32].copy_from_slice(&self.imm.to_be_bytes());
        let crc = checksum(out, payload);
        out[CRC_AT..].copy_from_slice(&crc.to_be_bytes());
    }
}

/// Header and payload of one datagram, verified.
pub fn parse(frame: &[u8]) -> Result<(Header, &[u8]), WireError> {
    let Some((head, payload)) = frame.split_first_chunk::<HEADER>() else {
        return Err(WireError::Short(frame.len()));
    };
    if head[0] >> 4 != VERSION {
        return Err(WireError::Version(head[0] >> 4));
    }
    let kind = PacketType::from_wire(head[0] & 0xf).ok_or(WireError::Type(head[0] & 0xf))?;
    if head[1] & ENCRYPTED != 0 {
        return Err(WireError::Encrypted);
    }
    let said = u16::from_be_bytes(field(head, 2));
    if usize::from(said) != payload.len() {
        return Err(WireError::Length { got: payload.len(), said });
    }
    let (got, said) = (checksum(head, payload), u32::from_be_bytes(field(head, CRC_AT)));
    if got != said {
        return Err(WireError::Checksum { got, said });
    }
    let queue = u32::from_be_bytes(field(head, 24));
    let [0, channel, g0, g1] = queue.to_be_bytes() else { return Err(WireError::Queue(queue)) };
    let header = Header {
        kind,
        flags: head[1],
        connection: u32::from_be_bytes(field(head, 4)),
        token: u64::from_be_bytes(field(head, 8)),
        number: u64::from_be_bytes(field(head, 16)),
        channel: Channel(channel),
        generation: Generation(u16::from_be_bytes([g0, g1])),
        imm: u32::from_be_bytes(field(head, 28)),
    };
    Ok((header, payload))
}

/// Version, packet type and token of a frame of any version.
pub(super) fn every_version(frame: &[u8]) -> Option<(u8, u8, u64)> {
    let head = frame.first_chunk::<HEADER>()?;
    Some((head[0] >> 4, head[0] & 0xf, u64::from_be_bytes(field(head, 8))))
}

fn field<const N: usize>(head: &[u8; HEADER], at: usize) -> [u8; N] {
    std::array::from_fn(|i| head[at + i])
}

/// CRC-32C (Castagnoli) of the header without its last four bytes, as if they were zero, and the payload.
fn checksum(head: &[u8; HEADER], payload: &[u8]) -> u32 {
    let mut zeroed = *head;
    zeroed[CRC_AT..].fill(0);
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&zeroed);
    digest.update(payload);
    digest.finalize() as u32
}
