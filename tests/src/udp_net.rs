//! Software NICs over sockets of this host, in virtual time, as a net with hooks for faults.
//!
//! Every frame passes the kernel, in batches where it takes them. What came out of a socket is shown to the tap and enters the
//! path, which decides when the NIC sees it. The loopback device delivers within the call that sends, so the same seed
//! gives the same run, unless the kernel drops something: then it was lost.

use crate::nets::FaultNet;
use crate::soft::{Log, Seen};
use crate::soft_net::{counted, reading};
use netem::link::Link;
use netem::loss::LossError;
use netem::pair::{Halves, Net, PairError};
use netem::relay::{Limits, RtLink};
use netem::sim::{Direction, Frame, Granularity, NicCounters, SimError, SimPath, Verdict};
use netem::spec::PathSpec;
use netem::{PairConfig, QpPair};
use sdr_sdk::fabric::soft::wire::HEADER;
use sdr_sdk::fabric::soft::{Endpoint, Link as NicLink, SoftFabric, UdpLink};
use sdr_sdk::types::{Channel, Nanos};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// After a call that found no room, as [`UdpLink`] has it.
const RETRY: Nanos = Nanos::from_micros(50);

type Tap = dyn FnMut(&Frame<'_>) -> Verdict + Send;

/// One direction, behind the receiver's sockets.
struct Way {
    path: RtLink<SocketAddr>,
    tap: Option<Box<Tap>>,
    /// Enters the path then; in order.
    late: BTreeMap<(Nanos, u64), (SocketAddr, Vec<u8>)>,
    frames: u64,
    /// Came from elsewhere: there at once.
    ready: Vec<(SocketAddr, Vec<u8>)>,
    log: Option<Log>,
}

impl Way {
    fn came(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8]) {
        self.frames += 1;
        if let Some(log) = &self.log {
            log.push(Seen { now, to: from, bytes: bytes.to_vec() });
        }
        let verdict = match (&mut self.tap, reading(now, bytes)) {
            (Some(decide), Some(frame)) => decide(&frame),
            _ => Verdict::Pass,
        };
        match verdict {
            Verdict::Pass => self.path.push(now, from, bytes),
            Verdict::Drop => {}
            Verdict::Delay(later) => self.later(now + later, from, bytes),
            Verdict::Duplicate(later) => {
                self.path.push(now, from, bytes);
                self.later(now + later, from, bytes);
            }
            Verdict::Corrupt => {
                // Another bit each time, the same ones in every repetition.
                let bit = self.frames.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize % (bytes.len() * 8);
                let mut bytes = bytes.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                self.path.push(now, from, &bytes);
            }
        }
    }

    fn later(&mut self, at: Nanos, from: SocketAddr, bytes: &[u8]) {
        self.late.insert((at, self.frames), (from, bytes.to_vec()));
    }

    fn enter_late(&mut self, now: Nanos) {
        while let Some(entry) = self.late.first_entry().filter(|e| e.key().0 <= now) {
            let ((at, _), (from, bytes)) = entry.remove_entry();
            self.path.push(at, from, &bytes);
        }
    }

    fn arrives_at(&self) -> Option<Nanos> {
        let ready = (!self.ready.is_empty()).then_some(Nanos::ZERO);
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        [ready, late, self.path.next_due()].into_iter().flatten().min()
    }
}

/// The sockets of both ends and what is between them, by end: the way from it.
struct Wires {
    sockets: [Mutex<UdpLink>; 2],
    ways: [Mutex<Way>; 2],
    /// Every so many calls find no room; zero: none does.
    crowded: AtomicU32,
}

impl Wires {
    fn new(path: &PathSpec, sockets: [UdpLink; 2]) -> Result<Self, LossError> {
        let way = |spec| -> Result<_, LossError> {
            let path = RtLink::new(spec, Limits::default())?;
            Ok(Mutex::new(Way {
                path,
                tap: None,
                late: BTreeMap::new(),
                frames: 0,
                ready: Vec::new(),
                log: None,
            }))
        };
        let ways = [way(path.forward()?)?, way(path.reverse()?)?];
        Ok(Self { sockets: sockets.map(Mutex::new), ways, crowded: AtomicU32::new(0) })
    }

    fn sockets(&self, end: usize) -> MutexGuard<'_, UdpLink> {
        self.sockets[end].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn from(&self, end: usize) -> MutexGuard<'_, Way> {
        self.ways[end].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end.
struct End {
    wires: Arc<Wires>,
    end: usize,
    max_payload: usize,
    calls: u32,
    /// There was no room; there will be then.
    full_until: Option<Nanos>,
}

impl NicLink for End {
    fn channels(&self) -> u8 {
        self.wires.sockets(self.end).channels()
    }

    fn max_payload(&self) -> usize {
        self.max_payload
    }

    fn local_addr(&self) -> SocketAddr {
        self.wires.sockets(self.end).local_addr()
    }

    fn send(
        &mut self,
        now: Nanos,
        ch: Channel,
        to: SocketAddr,
        headers: &[[u8; HEADER]],
        payload: &[u8],
        size: usize,
    ) -> Option<usize> {
        self.calls += 1;
        let every = self.wires.crowded.load(Ordering::Relaxed);
        if every > 0 && self.calls.is_multiple_of(every) {
            self.full_until = Some(now + RETRY);
            return Some(0);
        }
        let sent = self.wires.sockets(self.end).send(now, ch, to, headers, payload, size);
        // Read at once: the path starts here, whether or not the other end is running.
        let mut peer = self.wires.sockets(1 - self.end);
        let mut way = self.wires.from(self.end);
        for ch in 0..peer.channels() {
            while peer.recv(now, Channel(ch), &mut |from, bytes| way.came(now, from, bytes)) {}
        }
        sent
    }

    fn recv(&mut self, now: Nanos, ch: Channel, f: &mut dyn FnMut(SocketAddr, &[u8])) -> bool {
        // The channel stands in the frame; all of them are handed over in one pass.
        if ch != Channel(0) {
            return false;
        }
        self.full_until = self.full_until.filter(|t| *t > now);
        let (foreign, due) = {
            let mut way = self.wires.from(1 - self.end);
            way.enter_late(now);
            let due: Vec<_> = std::iter::from_fn(|| way.path.pop_due(now)).collect();
            (std::mem::take(&mut way.ready), due)
        };
        foreign.iter().for_each(|(from, bytes)| f(*from, bytes));
        due.iter().for_each(|frame| f(frame.tag, &frame.bytes));
        let mut way = self.wires.from(1 - self.end);
        due.into_iter().for_each(|frame| way.path.recycle(frame.bytes));
        false
    }

    fn wake_at(&self) -> Option<Nanos> {
        [self.full_until, self.wires.from(1 - self.end).arrives_at()].into_iter().flatten().min()
    }

    fn local_drops(&self) -> u64 {
        self.wires.sockets(self.end).local_drops()
    }
}

/// Two software NICs whose frames pass the loopback device.
pub struct UdpNet {
    wires: Arc<Wires>,
    /// By end.
    pub endpoints: [Endpoint; 2],
}

impl UdpNet {
    /// From here on every so many calls that send find no room at first, as a socket does whose device is busy.
    pub fn crowd(&self, every: u32) {
        self.wires.crowded.store(every, Ordering::Relaxed);
    }

    /// Writes down what a direction carries; `to` of an entry says whence it came.
    pub fn log(&self, direction: Direction) -> Log {
        let log = Log::default();
        self.wires.from(direction.from.into()).log = Some(log.clone());
        log
    }

    /// Sends frames from a socket of somebody else's to the receiver of a direction, who has them at once.
    pub fn attack(&self, direction: Direction, from: &UdpSocket, frames: &[Vec<u8>]) {
        let mut sockets = self.wires.sockets(direction.to.into());
        let mut way = self.wires.from(direction.from.into());
        // Few at a time: what does not fit the socket's buffer would be lost.
        for part in frames.chunks(8) {
            for frame in part {
                // A datagram too long for the loopback device would not get here in any other way either.
                let _ = from.send_to(frame, sockets.local_addr());
            }
            let mut take = |from: SocketAddr, bytes: &[u8]| way.ready.push((from, bytes.to_vec()));
            while sockets.recv(Nanos::ZERO, Channel(0), &mut take) {}
        }
    }
}

impl Net for UdpNet {
    fn wake_at(&self, end: usize) -> Option<Nanos> {
        self.wires.from(1 - end).arrives_at()
    }
}

impl FaultNet for UdpNet {
    fn ends(config: &PairConfig) -> Result<(QpPair<Self>, [Halves; 2]), PairError> {
        let SimPath::Path(path) = &config.sim.path else {
            unreachable!("beds are made from a description of the path")
        };
        let channels = config.sim.channels;
        let server = UdpLink::listen(([127, 0, 0, 1], 0).into(), channels);
        let client = server.and_then(|s| Ok([UdpLink::dial(s.local_addr(), channels)?, s]));
        let links = match client {
            Ok(links) => links,
            Err(e) => panic!("no sockets: {e}"),
        };
        let wires = Arc::new(Wires::new(path, links).map_err(SimError::Loss)?);
        let [(a, ea), (b, eb)] = [0, 1].map(|end| {
            let (wires, max_payload) = (wires.clone(), config.sim.max_payload as usize);
            SoftFabric::new(End { wires, end, max_payload, calls: 0, full_until: None })
        });
        let net = Self { wires, endpoints: [ea, eb] };
        QpPair::over(net, [Box::new(a), Box::new(b)], config.context, &config.qp)
    }

    fn fault(
        &self,
        direction: Direction,
        _granularity: Granularity,
        decide: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static,
    ) {
        self.wires.from(direction.from.into()).tap = Some(Box::new(decide));
    }

    fn path<R>(&self, direction: Direction, f: impl FnOnce(&mut Link) -> R) -> R {
        f(self.wires.from(direction.from.into()).path.link_mut())
    }

    fn counted(&self, end: u16) -> NicCounters {
        counted(&self.endpoints[usize::from(end)])
    }
}
