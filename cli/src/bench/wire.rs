//! What client and server of a benchmark say to each other: JSON messages over a connection of their own.
//!
//! The client sends [`ToServer::Run`] and gets a number, with which it opens the connections that carry the messages
//! being measured; each side says when its sending is over, and the server last what it received.

use super::times::Sent;
use crate::args::flows::Congestion;
use serde::{Deserialize, Serialize};

/// Of this conversation; both sides need the same.
pub const VERSION: u32 = 2;

/// Longest message of either side: a distribution of times has at most some ten thousand entries.
pub const MAX_MESSAGE: usize = 2 << 20;

/// Bytes of header that the fabric puts before each packet's payload.
pub const HEADER: u64 = sdr_sdk::fabric::soft::wire::HEADER as u64;

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub version: u32,
    pub scheme: String,
    /// Bytes of a message.
    pub size: u64,
    /// Messages of each connection and direction; none: until the time is over.
    pub count: Option<u64>,
    /// Nanoseconds that each direction sends.
    pub duration: Option<u64>,
    /// Messages of each connection before measuring.
    pub warmup: u64,
    /// Messages under way at a time on each connection.
    pub inflight: u64,
    pub connections: u32,
    /// The client sends.
    pub forward: bool,
    /// The server sends.
    pub reverse: bool,
    /// Contents are checked.
    pub verify: bool,
    pub seed: u64,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Bits of datagrams a second for each connection; none: as fast as it goes.
    pub rate: Option<u64>,
    pub congestion: Congestion,
}

impl Run {
    /// Packets a chunk: whole ones, 1 to 64.
    pub fn per_chunk(&self, payload: u32) -> u32 {
        (self.chunk / u64::from(payload.max(1))).clamp(1, 64) as u32
    }

    /// Payload bits a second that make the rate together with their headers.
    pub fn payload_rate(&self, payload: u32) -> Option<u64> {
        let payload = u128::from(payload);
        self.rate.map(|r| (u128::from(r) * payload / (payload + u128::from(HEADER))).max(1) as u64)
    }

    /// Receives that are posted ahead on each connection: one that fills, one that is next, one whose bytes are checked.
    pub fn receives(&self) -> u64 {
        self.inflight + 2
    }

    /// Memory that a side needs which `sends`, `receives` or both.
    pub fn memory(&self, sends: bool, receives: bool) -> u64 {
        let posted = u64::from(self.connections).saturating_mul(self.receives().saturating_mul(self.size));
        let source = super::content::Pattern::source_len(self.size);
        [(sends, source), (receives, posted)]
            .into_iter()
            .filter_map(|(needed, bytes)| needed.then_some(bytes))
            .fold(0, u64::saturating_add)
    }
}

/// From the client.
#[derive(Serialize, Deserialize)]
pub enum ToServer {
    /// First.
    Run(Run),
    /// Sends no more than is under way: somebody does not want to wait any longer.
    Stop,
    /// The client has sent everything.
    Finished(Outgoing),
}

/// From the server.
#[derive(Serialize, Deserialize)]
pub enum ToClient {
    /// The number of this run: connection i is opened with `key` and `key + 1 + i` as its first message numbers.
    Accepted { key: u64 },
    /// It will not be, and why.
    Refused { why: String },
    /// The server has sent everything.
    Finished(Outgoing),
    /// What the server received, after everything.
    Received(Incoming),
}

/// One side's sending, all connections together.
#[derive(Default, Serialize, Deserialize)]
pub struct Outgoing {
    /// Delivered on each connection, warm-up included.
    pub delivered: Vec<u64>,
    /// Delivered and measured.
    pub messages: u64,
    /// Given up.
    pub failed: u64,
    /// The first reason.
    pub why: Option<String>,
    /// Nanoseconds from the first measured call until the last was done.
    pub elapsed: u64,
    /// Packets of the measured messages.
    pub packets: u64,
    /// Those of them that were sent again.
    pub repairs: u64,
    /// Those of them that were parity.
    pub parity: u64,
    pub times: Sent,
}

/// One side's receiving, all connections together, after the warm-up.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Incoming {
    pub messages: u64,
    /// With wrong bytes.
    pub corrupt: u64,
    /// Ended without the message.
    pub failed: u64,
    /// The first reason.
    pub why: Option<String>,
    /// Packets, discarded ones included.
    pub packets: u64,
    pub duplicate: u64,
    pub late: u64,
    /// Datagrams with a wrong checksum at this side's sockets; of all clients, since their sender is not known.
    pub corrupt_packets: u64,
    /// Datagrams that this host had no room for, likewise.
    pub local_drops: u64,
    /// Nanoseconds that receives waited for a slot.
    pub slot_wait: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_needs_memory_for_what_it_does() {
        let mib = 1 << 20;
        let run = Run {
            version: VERSION,
            scheme: "sr".to_owned(),
            size: 64 * mib,
            count: None,
            duration: None,
            warmup: 0,
            inflight: 2,
            connections: 3,
            forward: true,
            reverse: false,
            verify: true,
            seed: 1,
            chunk: 1,
            rate: None,
            congestion: Congestion::Fixed,
        };
        let (source, posted) = (run.memory(true, false), run.memory(false, true));
        assert_eq!((source / mib, posted / mib), (64, 3 * 4 * 64));
        assert_eq!((run.memory(true, true), run.memory(false, false)), (source + posted, 0));
    }
}
