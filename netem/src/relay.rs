//! A link between two UDP programs, in real time.
//!
//! Clients send to the relay, it forwards to a server, and replies come back the same way: point the client at the relay
//! instead of the server, and the path between them is the one asked for. It is two [`RtLink`]s, one a direction, and
//! sockets; all clients share the links, which are the bottleneck. The server sees one source port for each client.
//!
//! | file | what it holds |
//! |---|---|
//! | `relay.rs` | [`Relay`]: the loop |
//! | `relay/rt_link.rs` | [`RtLink`]: one direction with the bytes in it, in real or virtual time |
//! | `relay/flows.rs` | a forwarding socket for each client |
//! | `relay/send.rs` | due datagrams in few calls |
//! | `relay/stats.rs` | counters |
//! | `relay/pool.rs` | buffers used again |
//! | `relay/clock.rs` | the only readings of a clock |
//! | `relay/sys.rs` | system calls |
//!
//! Choices. Rate and queue count UDP payload, without headers; bursts count packets of [`LinkSpec::reference_bytes`] at
//! link rate. A datagram enters its link when the kernel received it, so a relay that wakes late adds nothing as long as
//! the delay is longer than it was late. Nothing leaves early. A busy relay turns its loop at most once in [`GRAIN`],
//! which is also the most that batching delays a datagram. What the kernel drops before the relay can read it is counted
//! apart, as [`DirectionStats::receive_drops`]: with any of those the link was not the one asked for.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use sdr_sdk::types::Nanos;

use crate::link::LinkSpec;
use crate::loss::LossError;
use crate::spec::PathSpec;
use clock::Clock;
use flows::{FlowId, Flows};
use send::Sender;
use sys::{Poller, Receiver};

pub use rt_link::{Frame, Limits, RtLink, RtLinkStats};
pub use stats::{DirectionStats, Monitor, RelayStats};

#[expect(clippy::disallowed_methods, reason = "the relay runs in real time")]
mod clock;
mod flows;
mod pool;
mod rt_link;
mod send;
mod stats;
#[expect(unsafe_code, reason = "system calls")]
mod sys;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the relay runs in real time")]
mod tests;

/// Shortest turn of a busy loop. At 1 Gbit/s of 1400 B datagrams, nine come in and go out in one turn.
pub const GRAIN: Nanos = Nanos::from_micros(100);
/// Longest sleep, after which the loop looks at its stop flag.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(10);
/// How often idle flows are looked for.
const SWEEP: Nanos = Nanos::from_secs(1);
/// Receive calls on one socket in a row, so that no client keeps the others waiting.
const RECV_ROUNDS: usize = 4;
/// What the poller calls the listening socket; flow sockets have their slot.
const LISTENER: u64 = u64::MAX;

/// Why a relay could not be made or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The listening socket.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// Address asked for.
        listen: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The relay would send to itself.
    #[error("forward address {0} is the relay's own; give the server's")]
    ForwardsToItself(SocketAddr),
    /// Loss parameters that do not fit together.
    #[error("loss, burst: {0}")]
    Loss(#[from] LossError),
    /// A system call that the loop cannot do without.
    #[error("the relay's loop failed: {0}")]
    Io(#[from] io::Error),
}

/// One direction: its link, its sending side, its counters.
#[derive(Debug)]
struct Direction {
    link: RtLink<FlowId>,
    sender: Sender,
    stats: DirectionStats,
    /// Taken from the link and being sent.
    due: Vec<Frame<FlowId>>,
}

impl Direction {
    fn new(spec: LinkSpec) -> Result<Self, LossError> {
        Ok(Self {
            link: RtLink::new(spec, Limits::default())?,
            sender: Sender::new(),
            stats: DirectionStats::default(),
            due: Vec::with_capacity(sys::SEND_FRAMES),
        })
    }

    fn push<'a>(&mut self, at: Nanos, flow: FlowId, datagrams: impl Iterator<Item = &'a [u8]>) {
        for datagram in datagrams {
            self.stats.datagrams_in += 1;
            self.stats.bytes_in += datagram.len() as u64;
            self.link.push(at, flow, datagram);
        }
    }

    /// Sends what is due by `now`, from `listener` to the clients or without it to the server; whether anything was.
    fn release(&mut self, now: Nanos, flows: &mut Flows, listener: Option<&UdpSocket>) -> bool {
        let mut any = false;
        while self.take_due(now) {
            any = true;
            for of_one_flow in self.due.chunk_by(|a, b| a.tag == b.tag) {
                let Some(flow) = flows.get_mut(of_one_flow[0].tag) else {
                    self.stats.unsent += of_one_flow.len() as u64;
                    continue;
                };
                flow.touch(now);
                let to = listener.map(|_| flow.client);
                let socket = listener.unwrap_or(&flow.socket);
                self.sender.send(socket, of_one_flow, to, &mut self.stats);
            }
            self.due.drain(..).for_each(|frame| self.link.recycle(frame.bytes));
        }
        any
    }

    /// Takes the next datagrams that are due; false when there are none.
    fn take_due(&mut self, now: Nanos) -> bool {
        while self.due.len() < sys::SEND_FRAMES {
            let Some(frame) = self.link.pop_due(now) else { break };
            self.due.push(frame);
        }
        !self.due.is_empty()
    }

    /// Counts what the kernel dropped between two of its own counts.
    fn count_drops(&mut self, seen: &mut u32, drops: Option<u32>) {
        let drops = drops.unwrap_or(*seen);
        self.stats.receive_drops += u64::from(drops.wrapping_sub(*seen));
        *seen = drops;
    }
}

/// A relay; bound, it collects what comes in, and [`Relay::run`] lets it through.
#[derive(Debug)]
pub struct Relay {
    clock: Clock,
    listener: UdpSocket,
    local: SocketAddr,
    server: SocketAddr,
    poller: Poller,
    flows: Flows,
    forward: Direction,
    reverse: Direction,
    listener_drops: u32,
    flows_opened: u64,
    refused: u64,
    swept: Nanos,
    monitor: Monitor,
}

impl Relay {
    /// Listens on `listen` (port 0 takes a free one) for datagrams to `forward`, through `path`.
    ///
    /// # Errors
    /// [`RelayError`] when the address is not to be had or the path's loss does not fit together.
    pub fn bind(listen: SocketAddr, forward: SocketAddr, path: PathSpec) -> Result<Self, RelayError> {
        Self::with_links(listen, forward, path.forward()?, path.reverse()?)
    }

    /// As [`Relay::bind`], with each direction by itself: to the server, and back.
    ///
    /// # Errors
    /// As [`Relay::bind`].
    pub fn with_links(
        listen: SocketAddr,
        forward: SocketAddr,
        there: LinkSpec,
        back: LinkSpec,
    ) -> Result<Self, RelayError> {
        let refused = |source| RelayError::Listen { listen, source };
        let listener = UdpSocket::bind(listen).map_err(refused)?;
        let local = listener.local_addr().map_err(refused)?;
        let here =
            local.ip().is_unspecified() && (forward.ip().is_loopback() || forward.ip().is_unspecified());
        if forward == local || (here && forward.port() == local.port()) {
            return Err(RelayError::ForwardsToItself(forward));
        }
        sys::tune(&listener);
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER)?;
        Ok(Self {
            clock: Clock::start(),
            listener,
            local,
            server: forward,
            poller,
            flows: Flows::default(),
            forward: Direction::new(there)?,
            reverse: Direction::new(back)?,
            listener_drops: 0,
            flows_opened: 0,
            refused: 0,
            swept: Nanos::ZERO,
            monitor: Monitor::default(),
        })
    }

    /// Where clients send to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Counters now.
    pub fn stats(&self) -> RelayStats {
        let mut stats = RelayStats {
            forward: self.forward.stats,
            reverse: self.reverse.stats,
            flows: self.flows.len(),
            flows_opened: self.flows_opened,
            refused: self.refused,
        };
        stats.forward.set_link(&self.forward.link.stats());
        stats.reverse.set_link(&self.reverse.link.stats());
        stats
    }

    /// Reads the counters while [`Relay::run`] has the relay.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Relays until `stop` is set, which it notices within 10 ms. What is on its way then stays there, for the next run.
    ///
    /// # Errors
    /// [`RelayError::Io`] when the listening socket or waiting fails; trouble of single datagrams is counted instead.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), RelayError> {
        let _timers = sys::FineTimers::new();
        let mut receiver = Receiver::new();
        let mut ready = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let turn = self.clock.now();
            let mut behind = false;
            for token in &ready {
                behind |= self.receive(*token, &mut receiver)?;
            }
            let sent = self.release();
            if turn.since(self.swept) >= SWEEP {
                self.flows.close_idle(turn);
                self.swept = turn;
            }
            self.monitor.publish(self.stats());
            let spent = self.clock.now().since(turn);
            if (sent || !ready.is_empty()) && !behind && spent < GRAIN {
                sys::pause(GRAIN - spent)?;
            }
            let due = [&self.forward, &self.reverse].into_iter().filter_map(|d| d.link.next_due()).min();
            let sleep = due.unwrap_or(Nanos::MAX).since(self.clock.now()).min(LONGEST_SLEEP);
            self.poller.wait(sleep, &mut ready)?;
        }
        self.monitor.publish(self.stats());
        Ok(())
    }

    /// Takes what a socket has; whether there may be more.
    fn receive(&mut self, token: u64, receiver: &mut Receiver) -> io::Result<bool> {
        for _ in 0..RECV_ROUNDS {
            let more = if token == LISTENER {
                self.receive_from_clients(receiver)?
            } else {
                self.receive_from_server(token as usize, receiver)
            };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether there may be more.
    fn receive_from_clients(&mut self, receiver: &mut Receiver) -> io::Result<bool> {
        let (messages, more) = match receiver.recv(&self.listener) {
            Ok(received) => received,
            Err(e) if is_passing(&e) => return Ok(false),
            Err(e) => return Err(e),
        };
        let reading = self.clock.reading();
        for i in 0..messages {
            let (message, datagrams) = receiver.message(i);
            let at = reading.place(message.stamp);
            self.forward.count_drops(&mut self.listener_drops, message.drops);
            match message.from.and_then(|client| self.flow_of(client, at)) {
                Some(flow) => self.forward.push(at, flow, datagrams),
                None => self.refused += datagrams.count() as u64,
            }
        }
        Ok(more)
    }

    /// The flow of a client, opened when it is new.
    fn flow_of(&mut self, client: SocketAddr, now: Nanos) -> Option<FlowId> {
        if let Some(id) = self.flows.find(client) {
            self.flows.get_mut(id)?.touch(now);
            return Some(id);
        }
        let (server, poller) = (self.server, &self.poller);
        let open = |slot: usize| {
            let any = match server {
                SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(server)?;
            sys::tune(&socket);
            poller.add(&socket, slot as u64)?;
            Ok(socket)
        };
        let id = self.flows.open(client, now, open).ok()?;
        self.flows_opened += 1;
        Some(id)
    }

    /// Whether there may be more.
    fn receive_from_server(&mut self, slot: usize, receiver: &mut Receiver) -> bool {
        let Some((id, flow)) = self.flows.at_slot(slot) else { return false };
        // An error is the news that a datagram was not wanted; reading it clears it.
        let Ok((messages, more)) = receiver.recv(&flow.socket) else { return false };
        let reading = self.clock.reading();
        for i in 0..messages {
            let (message, datagrams) = receiver.message(i);
            let at = reading.place(message.stamp);
            flow.answered(at);
            self.reverse.count_drops(&mut flow.drops, message.drops);
            self.reverse.push(at, id, datagrams);
        }
        more
    }

    /// Sends everything that is due; whether anything was.
    fn release(&mut self) -> bool {
        let now = self.clock.now();
        let forward = self.forward.release(now, &mut self.flows, None);
        let reverse = self.reverse.release(now, &mut self.flows, Some(&self.listener));
        forward || reverse
    }
}

/// Errors of a listening socket that say nothing about the next call.
fn is_passing(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, OutOfMemory, WouldBlock};
    matches!(e.kind(), WouldBlock | Interrupted | ConnectionRefused | OutOfMemory)
}
