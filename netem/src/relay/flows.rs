//! Who talks through the relay: a forwarding socket for each client, found by address or by slot.
//!
//! Slots are used again; an id names one flow only, so a datagram that outlives its flow never reaches the next one.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use sdr_sdk::types::Nanos;

/// Most flows open at once.
pub(super) const MOST_FLOWS: usize = 256;
/// A flow without a datagram for so long is closed.
const IDLE: Nanos = Nanos::from_secs(60);

/// Names a flow; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowId {
    slot: u32,
    generation: u32,
}

impl FlowId {
    pub(super) fn slot(self) -> usize {
        self.slot as usize
    }
}

/// One client.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) client: SocketAddr,
    /// Connected to the server.
    pub(super) socket: UdpSocket,
    /// Receptions that the socket is known to have dropped.
    pub(super) drops: u32,
    last_used: Nanos,
    /// The server has sent something.
    answered: bool,
}

impl Flow {
    pub(super) fn touch(&mut self, now: Nanos) {
        self.last_used = now;
    }

    /// The server sent something.
    pub(super) fn answered(&mut self, now: Nanos) {
        self.touch(now);
        self.answered = true;
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    flow: Option<Flow>,
}

impl Slot {
    /// Ids of its flow name nothing any more.
    fn close(&mut self) -> Option<Flow> {
        self.generation = self.generation.wrapping_add(1);
        self.flow.take()
    }
}

/// All flows.
#[derive(Debug, Default)]
pub(super) struct Flows {
    slots: Vec<Slot>,
    by_client: HashMap<SocketAddr, FlowId>,
}

impl Flows {
    pub(super) fn len(&self) -> usize {
        self.by_client.len()
    }

    pub(super) fn find(&self, client: SocketAddr) -> Option<FlowId> {
        self.by_client.get(&client).copied()
    }

    /// Opens a flow whose socket `open` makes for the slot it will have. Where all are in use, the one makes room that was idle
    /// longest of those that never got an answer: nobody talks to a server through it.
    ///
    /// # Errors
    /// When all are in use and were answered, or of `open`.
    pub(super) fn open(
        &mut self,
        client: SocketAddr,
        now: Nanos,
        open: impl FnOnce(usize) -> io::Result<UdpSocket>,
    ) -> io::Result<FlowId> {
        if self.len() >= MOST_FLOWS {
            let waiting = self.slots.iter_mut().filter(|s| s.flow.as_ref().is_some_and(|f| !f.answered));
            let idle = waiting.min_by_key(|s| s.flow.as_ref().map(|f| f.last_used));
            let idle = idle.ok_or(io::ErrorKind::QuotaExceeded)?;
            if let Some(flow) = idle.close() {
                self.by_client.remove(&flow.client);
            }
        }
        let slot = self.slots.iter().position(|s| s.flow.is_none()).unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let socket = open(slot)?;
        let entry = &mut self.slots[slot];
        entry.flow = Some(Flow { client, socket, drops: 0, last_used: now, answered: false });
        let id = FlowId { slot: slot as u32, generation: entry.generation };
        self.by_client.insert(client, id);
        Ok(id)
    }

    pub(super) fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        let slot = self.slots.get_mut(id.slot()).filter(|s| s.generation == id.generation)?;
        slot.flow.as_mut()
    }

    /// The flow that has slot `slot` now.
    pub(super) fn at_slot(&mut self, slot: usize) -> Option<(FlowId, &mut Flow)> {
        let entry = self.slots.get_mut(slot)?;
        let id = FlowId { slot: slot as u32, generation: entry.generation };
        entry.flow.as_mut().map(|flow| (id, flow))
    }

    /// Closes the flows that nothing has used lately.
    pub(super) fn close_idle(&mut self, now: Nanos) {
        for slot in &mut self.slots {
            let idle = slot.flow.as_ref().is_some_and(|f| now.since(f.last_used) >= IDLE);
            if idle && let Some(flow) = slot.close() {
                self.by_client.remove(&flow.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], n as u16))
    }

    fn socket(_slot: usize) -> io::Result<UdpSocket> {
        UdpSocket::bind("127.0.0.1:0")
    }

    #[test]
    fn flows_are_bounded_and_make_room_when_idle() {
        let mut flows = Flows::default();
        let ids: Vec<_> =
            (0..MOST_FLOWS).map(|n| flows.open(client(n), Nanos::ZERO, socket).unwrap()).collect();
        assert_eq!(flows.find(client(7)), Some(ids[7]));
        ids.iter().for_each(|id| flows.get_mut(*id).unwrap().answered(Nanos::ZERO));
        let full = flows.open(client(9_000), Nanos::ZERO, socket).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!((flows.len(), flows.find(client(9_000))), (MOST_FLOWS, None));

        let used = Nanos::from_secs(30);
        flows.get_mut(ids[3]).unwrap().touch(used);
        flows.close_idle(Nanos::from_secs(59));
        assert_eq!(flows.len(), MOST_FLOWS);
        flows.close_idle(Nanos::from_secs(60));
        assert_eq!((flows.len(), flows.find(client(3))), (1, Some(ids[3])));

        // The slot is used again, its old id is not.
        let new = flows.open(client(9_000), Nanos::from_secs(60), socket).unwrap();
        assert_eq!(new.slot(), ids[0].slot());
        assert!(flows.get_mut(ids[0]).is_none());
        assert_eq!(flows.at_slot(new.slot()).unwrap().0, new);
        assert_eq!(flows.get_mut(new).unwrap().client, client(9_000));
        flows.close_idle(Nanos::from_secs(90));
        assert_eq!((flows.len(), flows.find(client(9_000))), (1, Some(new)));
    }

    /// Who sends from many ports to a server that does not answer takes nobody's place.
    #[test]
    fn flows_that_never_got_an_answer_make_room() {
        let mut flows = Flows::default();
        let ids: Vec<_> =
            (0..MOST_FLOWS).map(|n| flows.open(client(n), Nanos(n as u64), socket).unwrap()).collect();
        for id in &ids[..2] {
            flows.get_mut(*id).unwrap().answered(Nanos(5));
        }
        flows.get_mut(ids[2]).unwrap().touch(Nanos(1_000));
        let new = flows.open(client(9_000), Nanos(2_000), socket).unwrap();
        assert_eq!((flows.len(), flows.find(client(9_000))), (MOST_FLOWS, Some(new)));
        assert!(flows.get_mut(ids[3]).is_none() && flows.find(client(3)).is_none(), "idle longest");
        // A thousand later those that were answered are still there.
        for n in 10_000..11_000 {
            flows.open(client(n), Nanos(n as u64), socket).unwrap();
        }
        assert_eq!(flows.len(), MOST_FLOWS);
        assert_eq!([0, 1].map(|n| flows.find(client(n))), [Some(ids[0]), Some(ids[1])]);
        // Where all were, the next has to wait.
        for slot in 0..MOST_FLOWS {
            flows.at_slot(slot).unwrap().1.answered(Nanos(20_000));
        }
        let full = flows.open(client(12_345), Nanos(20_001), socket).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::QuotaExceeded);
    }
}
