//! Software NICs over a link in memory, as a net with hooks for faults.
//!
//! Each packet is a frame of its own with a header and a checksum, so a wrong bit is found where it would be found on a wire.

use crate::nets::FaultNet;
use netem::link::Link;
use netem::pair::{Halves, Net, PairError};
use netem::sim::{Direction, Frame, FrameKind, Granularity, NicCounters, SimError, SimPath, Verdict};
use netem::{MemoryConfig, MemoryNet, PairConfig, QpPair};
use sdr_sdk::fabric::soft::wire::{PacketType, parse};
use sdr_sdk::fabric::soft::{Endpoint, SoftFabric};
use sdr_sdk::imm::ImmLayout;
use sdr_sdk::types::{Nanos, QueueSet, Seq, SlotGen};

/// Software NICs over a link in memory.
pub struct SoftNet {
    /// The link.
    pub memory: MemoryNet,
    /// By end.
    pub endpoints: [Endpoint; 2],
}

impl Net for SoftNet {
    fn wake_at(&self, end: usize) -> Option<Nanos> {
        self.memory.wake_at(end)
    }
}

/// What a frame on the link says. None for what belongs to no message: the questions and answers about addresses.
pub(crate) fn reading(now: Nanos, bytes: &[u8]) -> Option<Frame<'_>> {
    let (header, payload) = parse(bytes).ok()?;
    let kind = match header.kind {
        PacketType::Control => FrameKind::Control(payload),
        PacketType::Data => {
            let (slot, first) = ImmLayout::default().decode(header.imm);
            // Right for the first 2^16 rounds of a queue pair with all slots that counts from zero.
            let seq = Seq(u64::from(header.generation.0) << 10 | u64::from(slot.0));
            let at = SlotGen { slot, generation: header.generation, seq };
            FrameKind::Data { channel: header.channel, at, first: first.0, packets: 1 }
        }
        _ => return None,
    };
    Some(Frame { now, q: QueueSet(0), kind })
}

impl FaultNet for SoftNet {
    fn ends(config: &PairConfig) -> Result<(QpPair<Self>, [Halves; 2]), PairError> {
        let SimPath::Path(path) = &config.sim.path else {
            unreachable!("beds are made from a description of the path")
        };
        let payload = config.sim.max_payload as usize;
        let mut memory = MemoryConfig {
            path: Some(path.clone()),
            channels: config.sim.channels,
            max_payload: payload,
            ..MemoryConfig::default()
        };
        if let Some(packets) = config.sim.post_limit {
            memory.buffer = packets as usize * payload;
        }
        let memory = MemoryNet::new(&memory).map_err(SimError::Loss)?;
        let [(a, ea), (b, eb)] = [0, 1].map(|end| SoftFabric::new(memory.end(end)));
        let net = Self { memory, endpoints: [ea, eb] };
        QpPair::over(net, [Box::new(a), Box::new(b)], config.context, &config.qp)
    }

    fn fault(
        &self,
        direction: Direction,
        _granularity: Granularity,
        mut decide: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static,
    ) {
        self.memory.tap(direction, move |f| reading(f.now, f.bytes).map_or(Verdict::Pass, |f| decide(&f)));
    }

    fn path<R>(&self, direction: Direction, f: impl FnOnce(&mut Link) -> R) -> R {
        match self.memory.link(direction, f) {
            Some(r) => r,
            None => unreachable!("beds have a path"),
        }
    }

    fn counted(&self, end: u16) -> NicCounters {
        counted(&self.endpoints[usize::from(end)])
    }
}

/// What a software NIC counted.
pub(crate) fn counted(endpoint: &Endpoint) -> NicCounters {
    let c = endpoint.counters();
    NicCounters {
        sent: c.sent,
        delivered: c.received,
        corrupt: c.corrupt,
        null_key: c.null_key,
        out_of_range: c.out_of_range,
        control_sent: c.control_sent,
        control_delivered: c.control_received,
        ..NicCounters::default()
    }
}
