//! Live counters of a relay.

use std::sync::{Arc, Mutex, PoisonError};

use super::rt_link::RtLinkStats;

/// One direction, since the relay was bound.
///
/// Nothing vanishes: `datagrams_in + duplicated = datagrams_out + lost + queue_drops + unsent + backlog_datagrams`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Received from one side.
    pub datagrams_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Sent to the other side, copies included.
    pub datagrams_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Lost on the emulated wire.
    pub lost: u64,
    /// Dropped at the tail of the emulated queue, or because the relay held its most.
    pub queue_drops: u64,
    /// Arrivals with a bit flipped.
    pub corrupted: u64,
    /// Copies that the link made.
    pub duplicated: u64,
    /// Arrivals held back; what jitter reorders is not counted.
    pub reordered: u64,
    /// Held now, queued or on the way.
    pub backlog_datagrams: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// Due, but refused by the socket (such as larger than the device takes), or their flow had been closed.
    pub unsent: u64,
    /// Dropped by the kernel before the relay saw them, its receive buffer being full: more than the relay can carry.
    /// Coalesced datagrams count as one.
    pub receive_drops: u64,
}

impl DirectionStats {
    /// Takes over what the link counts itself.
    pub(super) fn set_link(&mut self, stats: &RtLinkStats) {
        let link = &stats.link;
        self.lost = link.lost;
        self.queue_drops = link.queue_drops + stats.overflows;
        self.corrupted = link.corrupted;
        self.duplicated = link.duplicated;
        self.reordered = link.reordered;
        self.backlog_datagrams = stats.held_frames as u64;
        self.backlog_bytes = stats.held_bytes as u64;
    }
}

/// A relay, since it was bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayStats {
    /// From clients to the server.
    pub forward: DirectionStats,
    /// From the server to clients.
    pub reverse: DirectionStats,
    /// Clients with a forwarding socket now.
    pub flows: usize,
    /// Clients that got one so far.
    pub flows_opened: u64,
    /// Datagrams of clients for which there was none: too many clients, or no socket to be had. Not counted in `forward`.
    pub refused: u64,
}

/// Reads the counters of a relay from another thread while it runs.
#[derive(Clone, Debug, Default)]
pub struct Monitor(Arc<Mutex<RelayStats>>);

impl Monitor {
    /// As of the last turn of the loop, at most a few milliseconds ago.
    pub fn stats(&self) -> RelayStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn publish(&self, stats: RelayStats) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stats;
    }
}
