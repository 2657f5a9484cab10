//! A NIC in software: writes with immediate as datagrams, over UDP or any other [`Link`].
//!
//! | module | what it holds |
//! |---|---|
//! | `soft.rs` | [`SoftFabric`], and [`Endpoint`], which makes connections |
//! | `soft/nic.rs` | connections, keys, departures |
//! | `soft/nic/arrivals.rs` | what came in |
//! | `soft/connect.rs` | from an address to a connected queue pair |
//! | `soft/handshake.rs` | cookie, exchange of queue pair infos |
//! | `soft/handshake/probing.rs` | the payload size of a path without a connection |
//! | `soft/path.rs` | the payload size, looked for again when data stalls |
//! | `soft/replay.rs` | control datagrams count once |
//! | `soft/shown.rs` | channels show their address again |
//! | [`link`] | what carries frames |
//! | [`udp`] | sockets as a link |
//! | [`wire`] | the 36-byte header and its checksum |
//! | [`socket`] | runs of datagrams in and out of the kernel |
//!
//! Threats. Against who cannot see the path: a 64-bit token and a 32-bit connection id. Against who can see it: nothing,
//! there is no encryption yet. The address of a peer follows him only after a nonce came back from the new one.

mod connect;
mod handshake;
pub mod link;
mod nic;
mod path;
mod replay;
mod shown;
pub mod socket;
pub mod udp;
pub mod wire;

pub use connect::{ConnectError, Dialing};
use handshake::DialId;
pub use handshake::{CONNECT_DEADLINE, DialError};
pub use link::Link;
pub use nic::SoftCounters;
pub use udp::UdpLink;

use crate::fabric::{
    Caps, CompletionModel, CompletionRun, EventSink, Fabric, FabricError, Grant, Landing, Opened, QueueSpec,
    WriteRun,
};
use crate::memory::{Region, RegionId};
use crate::qp::{InfoError, QpInfo};
use crate::types::{Channel, Nanos, QueueSet, SlotGen};
use nic::Nic;
use std::net::{SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Generations on this fabric: a queue number is only a number.
const GENERATIONS: u32 = 1 << 16;

struct State {
    nic: Nic,
    link: Box<dyn Link>,
}

impl State {
    /// Sends what answers arrivals, and what the handshake has due.
    fn flush(&mut self, now: Nanos) {
        let Self { nic, link } = self;
        nic.handshake.drive(now, &mut nic.replies);
        nic.probe_paths(now);
        let mut room = true;
        for reply in nic.replies.drain(..) {
            room &= reply.send(&mut **link, now);
        }
        if !room {
            nic.probes_crowded();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // What was recorded before a panic in a link stays valid.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The software NIC as a fabric, for [`Context::open`](crate::Context::open).
pub struct SoftFabric {
    state: Arc<Mutex<State>>,
    caps: Caps,
    /// The link's sockets, for waiting without the lock.
    local: SocketAddr,
}

/// Somebody who wants to connect.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Where from.
    pub from: SocketAddr,
    /// His queue pair, reachable where he is seen to be.
    pub info: QpInfo,
    request: handshake::Incoming,
}

/// What a peer sent as the info of his queue pair, with the address at which he is seen: behind a translator or a relay
/// he does not know it himself.
fn seen_at(bytes: &[u8], at: SocketAddr) -> Result<QpInfo, InfoError> {
    let mut info = QpInfo::try_from(bytes)?;
    info.address.truncate(NAMES);
    write_socket(at, &mut info.address);
    Ok(info)
}

/// Makes connections over a software NIC: the client dials, the server takes who comes.
#[derive(Clone)]
pub struct Endpoint(Arc<Mutex<State>>);

impl SoftFabric {
    /// A NIC on `link`, and what makes connections over it.
    pub fn new(link: impl Link + 'static) -> (Self, Endpoint) {
        let caps = Caps::new(link.channels(), 1 << 10, GENERATIONS, link.max_payload() as u32, false);
        let local = link.local_addr();
        let nic = Nic::new(link.channels());
        let state = Arc::new(Mutex::new(State { nic, link: Box::new(link) }));
        (Self { state: state.clone(), caps, local }, Endpoint(state))
    }
}

impl Endpoint {
    /// Starts to connect to the server at `to`. The context has to be polled.
    ///
    /// # Errors
    /// Too many attempts at once.
    fn dial(&self, to: SocketAddr) -> Result<DialId, DialError> {
        lock(&self.0).nic.handshake.dial(to)
    }

    /// The largest payload, in bytes, that packets to the server and back can have; None while it is being found out.
    fn payload(&self, id: DialId) -> Option<Result<u32, DialError>> {
        lock(&self.0).nic.handshake.payload(id)
    }

    /// Goes on with the queue pair that was made for the attempt.
    fn hello(&self, id: DialId, info: &QpInfo) {
        lock(&self.0).nic.handshake.hello(id, info.to_bytes());
    }

    /// The info of the server's queue pair, once it is here. Ends the attempt.
    fn result(&self, id: DialId) -> Option<Result<QpInfo, DialError>> {
        let (to, result) = lock(&self.0).nic.handshake.result(id)?;
        Some(result.and_then(|bytes| {
            seen_at(&bytes, to).map_err(|e| DialError::Refused { to, why: format!("unusable answer: {e}") })
        }))
    }

    /// Gives an attempt up.
    fn cancel(&self, id: DialId) {
        lock(&self.0).nic.handshake.cancel(id);
    }

    /// A client that wants to connect. Who sends nonsense is refused here.
    pub fn incoming(&self) -> Option<Incoming> {
        loop {
            let request = lock(&self.0).nic.handshake.take_incoming()?;
            match seen_at(&request.info, request.from) {
                Ok(info) => return Some(Incoming { from: request.from, info, request }),
                Err(e) => self.answer(&request, Err(e.to_string())),
            }
        }
    }

    fn answer(&self, to: &handshake::Incoming, answer: Result<Vec<u8>, String>) {
        let nic = &mut lock(&self.0).nic;
        nic.handshake.answer(to, answer, &mut nic.replies);
    }

    /// Takes a client: `info` is that of the queue pair that was made for him.
    fn grant(&self, client: &Incoming, info: &QpInfo) {
        self.answer(&client.request, Ok(info.to_bytes()));
    }

    /// Refuses a client, and tells him why.
    pub fn refuse(&self, client: &Incoming, why: &str) {
        self.answer(&client.request, Err(why.to_owned()));
    }

    /// Where clients find this NIC.
    pub fn local_addr(&self) -> SocketAddr {
        lock(&self.0).link.local_addr()
    }

    /// What the NIC counted.
    pub fn counters(&self) -> SoftCounters {
        lock(&self.0).nic.counters
    }

    /// Frames dropped on this host for lack of room.
    pub fn local_drops(&self) -> u64 {
        lock(&self.0).link.local_drops()
    }
}

/// The address of a queue pair begins with the connection id and the token; the socket's follows.
const NAMES: usize = 12;

/// IP address, port and, for IPv6, scope: each family has a length of its own, so that a part of one is none.
fn write_socket(at: SocketAddr, out: &mut Vec<u8>) {
    match at {
        SocketAddr::V4(a) => out.extend(a.ip().octets()),
        SocketAddr::V6(a) => out.extend(a.ip().octets()),
    }
    out.extend(at.port().to_be_bytes());
    if let SocketAddr::V6(a) = at {
        out.extend(a.scope_id().to_be_bytes());
    }
}

fn read_socket(bytes: &[u8]) -> Option<SocketAddr> {
    if let &[a, b, c, d, p0, p1] = bytes {
        return Some(([a, b, c, d], u16::from_be_bytes([p0, p1])).into());
    }
    let (ip, rest) = bytes.split_first_chunk::<16>()?;
    let &[p0, p1, s0, s1, s2, s3] = rest else { return None };
    let scope = u32::from_be_bytes([s0, s1, s2, s3]);
    Some(SocketAddrV6::new((*ip).into(), u16::from_be_bytes([p0, p1]), 0, scope).into())
}

// SAFETY: memory of `arm` is written by `KeyTable::place` alone, under a key that `disarm` (which reports) or `close` takes
// away at once, both under the lock that arrivals are handled under; memory of `post` is read within the call. A
// completion is recorded after the payload is placed.
unsafe impl Fabric for SoftFabric {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn completions(&self, _ch: Channel) -> CompletionModel<'_> {
        CompletionModel::Batch
    }

    fn open(&mut self, spec: &QueueSpec) -> Result<Opened, FabricError> {
        let most = |what, asked: u32, allowed: u32| match asked > allowed {
            true => Err(FabricError::Limit { what, asked: asked.into(), allowed: allowed.into() }),
            false => Ok(()),
        };
        most("channels", spec.channels.into(), self.caps.channels.into())?;
        most("slots", spec.slots, self.caps.slots.min(spec.layout.max_slots()))?;
        most("generations", spec.generations, self.caps.generations)?;
        most("payload", spec.payload, self.caps.max_payload)?;
        for (what, n) in [("channels", spec.channels.into()), ("payload", spec.payload)] {
            if n == 0 {
                return Err(FabricError::Limit { what, asked: 0, allowed: self.caps.max_payload.into() });
            }
        }
        for (what, n, allowed) in
            [("slots", spec.slots, self.caps.slots), ("generations", spec.generations, self.caps.generations)]
        {
            if !n.is_power_of_two() {
                return Err(FabricError::Limit { what, asked: n.into(), allowed: allowed.into() });
            }
        }
        let (q, id, token) = lock(&self.state).nic.open(spec);
        let mut address = Vec::with_capacity(NAMES + 22);
        address.extend(id.to_be_bytes());
        address.extend(token.to_be_bytes());
        write_socket(self.local, &mut address);
        Ok(Opened { q, address, queues: Vec::new() })
    }

    fn connect(&mut self, q: QueueSet, peer: &[u8]) -> Result<(), FabricError> {
        let parsed = peer.split_first_chunk::<4>().and_then(|(id, rest)| {
            let (token, socket) = rest.split_first_chunk::<8>()?;
            Some((id, token, read_socket(socket)?))
        });
        let (id, token, at) = parsed.ok_or(FabricError::Peer("not the address of a software NIC"))?;
        lock(&self.state).nic.connect(q, u32::from_be_bytes(*id), u64::from_be_bytes(*token), at)
    }

    fn close(&mut self, q: QueueSet) {
        lock(&self.state).nic.close(q);
    }

    fn register(&mut self, _region: &Region) -> Result<RegionId, FabricError> {
        Ok(RegionId(lock(&self.state).nic.region()))
    }

    fn deregister(&mut self, _region: RegionId) {}

    fn arm(&mut self, q: QueueSet, at: SlotGen, to: &Landing) -> Result<Option<Grant>, FabricError> {
        // SAFETY: the caller keeps what `Fabric::arm` asks: the memory is ours until `Disarmed` or `close`.
        unsafe { lock(&self.state).nic.arm(q, at, to) }?;
        Ok(Some(Grant::default()))
    }

    fn disarm(&mut self, q: QueueSet, at: SlotGen) {
        lock(&self.state).nic.disarm(q, at);
    }

    fn post(&mut self, now: Nanos, ch: Channel, runs: &[WriteRun]) -> u64 {
        let State { nic, link } = &mut *lock(&self.state);
        nic.post(&mut **link, now, ch, runs)
    }

    fn control(&mut self, now: Nanos, q: QueueSet, msg: &[u8]) -> bool {
        let State { nic, link } = &mut *lock(&self.state);
        nic.control(&mut **link, now, q, msg)
    }

    fn doubt_payload(&mut self, now: Nanos, q: QueueSet, payload: u32, rtt: Nanos) {
        let mut state = lock(&self.state);
        if state.nic.doubt(now, q, payload, rtt) {
            state.flush(now);
        }
    }

    fn poll(&mut self, now: Nanos, ch: Channel, out: &mut dyn EventSink) -> bool {
        let state = &mut *lock(&self.state);
        state.nic.report(out);
        let State { nic, link } = state;
        let more = link.recv(now, ch, &mut |from, bytes| nic.receive(now, ch, from, bytes, out));
        state.flush(now);
        more
    }

    fn take_completions(&mut self, ch: Channel, out: &mut Vec<CompletionRun>) {
        if let Some(runs) = lock(&self.state).nic.completions.get_mut(usize::from(ch.0)) {
            out.append(runs);
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        let state = lock(&self.state);
        if state.nic.ready() {
            return Some(Nanos::ZERO);
        }
        let State { nic, link } = &*state;
        [link.wake_at(), nic.handshake.wake_at(), nic.probes_at()].into_iter().flatten().min()
    }

    fn wait_fd(&self, _ch: Channel) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_survive_and_parts_of_them_are_none() {
        for at in ["10.1.2.3:4000", "[2001:db8::7]:65535", "[fe80::1%3]:1"] {
            let at: SocketAddr = at.parse().unwrap();
            let mut bytes = Vec::new();
            write_socket(at, &mut bytes);
            assert_eq!(read_socket(&bytes), Some(at));
            for n in 0..bytes.len() {
                // The one part that has the length of another family is not a prefix that anything cuts off.
                assert!(n == 6 || read_socket(&bytes[..n]).is_none(), "{n} bytes of {at}");
            }
            bytes.push(0);
            assert_eq!(read_socket(&bytes), None);
        }
    }
}
