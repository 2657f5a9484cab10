//! Beds of software NICs over a link in memory, what crossed it, and forged frames.

use crate::bed::{Bed, PACKET};
use netem::sim::{Direction, Verdict};
use netem::spec::PathSpec;
use netem::{MemoryConfig, MemoryNet, Pair, QpPair};
use sdr_sdk::connection::ConnectionConfig;
use sdr_sdk::context::{ContextConfig, QpConfig};
use sdr_sdk::fabric::soft::Endpoint;
use sdr_sdk::fabric::soft::wire::{HEADER, Header, PacketType, parse};
use sdr_sdk::types::Nanos;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Two software NICs with a connection between them.
pub struct SoftBed {
    /// The ends and their transfers.
    pub bed: Bed<MemoryNet>,
    /// What makes further connections, and counts.
    pub endpoints: [Endpoint; 2],
}

/// The usual connection: 512-byte packets paced to 80 Mbit/s.
pub fn connection() -> ConnectionConfig {
    let mut c = ConnectionConfig::default().rate(80_000_000);
    c.per_chunk = 8;
    c
}

/// A net with this path.
///
/// # Panics
/// When `path` is not understood.
pub fn memory(path: &str) -> MemoryConfig {
    match path.parse::<PathSpec>() {
        Ok(path) => MemoryConfig { path: Some(path), ..MemoryConfig::default() },
        Err(e) => panic!("{path}: {e}"),
    }
}

impl SoftBed {
    /// Over `path`, with the usual connection but for `payload` bytes a packet.
    ///
    /// # Panics
    /// When the settings are refused.
    pub fn new(path: &str, payload: usize, connection: &ConnectionConfig) -> Self {
        let qp = QpConfig::default().payload(payload as u32);
        match QpPair::memory(&memory(path), ContextConfig::default(), &qp) {
            Ok((qps, halves, endpoints)) => {
                Self { bed: Bed::over(Pair::over(qps, halves, connection)), endpoints }
            }
            Err(e) => panic!("{e}"),
        }
    }

    /// The usual path: 25 ms, 100 Mbit/s, no losses.
    pub fn usual() -> Self {
        Self::new("rtt=25ms,rate=100Mbit,seed=1", PACKET, &connection())
    }

    /// The net.
    pub fn net(&self) -> &MemoryNet {
        &self.bed.pair.qps.net
    }
}

/// A frame that crossed the net.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub now: Nanos,
    /// Where to.
    pub to: SocketAddr,
    /// Header and payload.
    pub bytes: Vec<u8>,
}

impl Seen {
    /// Its header.
    ///
    /// # Panics
    /// When it is no frame of ours.
    pub fn header(&self) -> Header {
        match parse(&self.bytes) {
            Ok((header, _)) => header,
            Err(e) => panic!("{e}"),
        }
    }
}

/// What a direction carried so far.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    /// Writes down what `direction` carries.
    pub fn of(net: &MemoryNet, direction: Direction) -> Self {
        let log = Self::default();
        let copy = log.clone();
        net.tap(direction, move |f| {
            copy.add(f);
            Verdict::Pass
        });
        log
    }

    /// For a tap that does more.
    pub fn add(&self, f: &netem::memory_link::MemoryFrame<'_>) {
        self.push(Seen { now: f.now, to: f.to, bytes: f.bytes.to_vec() });
    }

    /// Adds an entry.
    pub fn push(&self, seen: Seen) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    /// Looks at it.
    pub fn with<R>(&self, f: impl FnOnce(&[Seen]) -> R) -> R {
        f(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The latest frame of a kind.
    pub fn last(&self, kind: PacketType) -> Option<Seen> {
        self.with(|seen| seen.iter().rev().find(|s| s.header().kind == kind).cloned())
    }
}

/// A whole frame.
pub fn frame(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; HEADER];
    header.write(&mut head, payload);
    [&head[..], payload].concat()
}
