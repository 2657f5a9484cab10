//! UDP sockets as a link: one for each channel, or one for all.
//!
//! A client has a socket a channel, so that each channel is a flow of its own to routers; a server has one, where clients
//! find it. The channel of a frame stands in its header, not in the socket.

use super::link::Link;
use super::socket::{Outcome, UdpSocket};
use super::wire::{HEADER, MAX_PAYLOAD};
use crate::types::{Channel, Nanos};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Sockets of one NIC.
pub struct UdpLink {
    sockets: Vec<UdpSocket>,
    channels: u8,
    local: SocketAddr,
    /// A socket had no room; it is worth another try then.
    again_at: Option<Nanos>,
}

/// From a send that found no room to the next try. A socket that polls as writable may still be refused by its device, so
/// nothing is waited for.
const RETRY: Nanos = Nanos::from_micros(50);

impl UdpLink {
    /// A server's: one socket at `addr` for all `channels`.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(addr: SocketAddr, channels: u8) -> io::Result<Self> {
        Self::new(vec![UdpSocket::bind(addr)?], channels)
    }

    /// A client's: a socket for each of `channels`, at ports that the system chooses, of the family of `peer`.
    ///
    /// # Errors
    /// The system's.
    pub fn dial(peer: SocketAddr, channels: u8) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(p) if p.ip().is_loopback() => ([127, 0, 0, 1], 0).into(),
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let sockets = (0..channels).map(|_| UdpSocket::bind(any)).collect::<io::Result<_>>()?;
        Self::new(sockets, channels)
    }

    fn new(sockets: Vec<UdpSocket>, channels: u8) -> io::Result<Self> {
        let first = sockets.first().ok_or(io::ErrorKind::InvalidInput)?;
        let local = first.local_addr()?;
        Ok(Self { sockets, channels, local, again_at: None })
    }

    /// The socket of a channel.
    fn index(&self, ch: Channel) -> usize {
        usize::from(ch.0).min(self.sockets.len() - 1)
    }

    /// How many of `asked` datagrams were taken; none when they cannot go out.
    fn taken(&mut self, now: Nanos, outcome: io::Result<Outcome>, asked: usize) -> Option<usize> {
        let taken = match outcome {
            Ok(Outcome::Sent(n)) => n,
            Ok(Outcome::Again) => 0,
            // Lost, as far as the protocol is concerned: a path that comes back carries the repair.
            Ok(_) | Err(_) => return None,
        };
        if taken < asked {
            self.again_at = Some(now + RETRY);
        }
        Some(taken)
    }

    /// Whether batches go out as one, and the socket buffers that were granted.
    pub fn describe(&self) -> (bool, super::socket::Granted) {
        (self.sockets[0].gso(), self.sockets[0].granted())
    }
}

impl Link for UdpLink {
    fn channels(&self) -> u8 {
        self.channels
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
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
        let i = self.index(ch);
        let outcome = self.sockets[i].send_run(to, headers, payload, size);
        self.taken(now, outcome, headers.len())
    }

    fn recv(&mut self, now: Nanos, ch: Channel, f: &mut dyn FnMut(SocketAddr, &[u8])) -> bool {
        self.again_at = self.again_at.filter(|t| *t > now);
        // One socket for all is read once a pass.
        let Some(socket) = self.sockets.get_mut(usize::from(ch.0)) else { return false };
        // What the socket reports as an error (a refusal by the peer's host) concerns earlier sends.
        socket.recv(&mut |from, bytes| f(from, bytes)).unwrap_or(false)
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.again_at
    }

    fn local_drops(&self) -> u64 {
        self.sockets.iter().map(UdpSocket::local_drops).sum()
    }

    fn wait_fd(&self, ch: Channel) -> Option<BorrowedFd<'_>> {
        self.sockets.get(usize::from(ch.0)).map(UdpSocket::wait_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_without_room_is_asked_again() {
        let mut link = UdpLink::listen(([127, 0, 0, 1], 0).into(), 1).unwrap();
        let now = Nanos::from_secs(1);
        assert_eq!(link.taken(now, Ok(Outcome::Sent(5)), 5), Some(5));
        assert_eq!(link.wake_at(), None);
        for outcome in [Outcome::Again, Outcome::Sent(3)] {
            let taken = if outcome == Outcome::Again { 0 } else { 3 };
            assert_eq!(link.taken(now, Ok(outcome), 5), Some(taken));
            assert_eq!(link.wake_at(), Some(now + RETRY));
            let read = |link: &mut UdpLink, at| link.recv(at, Channel(0), &mut |_, _| {});
            read(&mut link, now);
            assert_eq!(link.wake_at(), Some(now + RETRY), "not yet");
            read(&mut link, now + RETRY);
            assert_eq!(link.wake_at(), None, "what waits is tried after this");
        }
        // What cannot go out is lost, and nothing waits for it.
        for outcome in [Outcome::TooLong, Outcome::Denied, Outcome::Refused, Outcome::Unreachable] {
            assert_eq!(link.taken(now, Ok(outcome), 5), None);
        }
        assert_eq!(link.taken(now, Err(io::ErrorKind::Other.into()), 5), None);
        assert_eq!(link.wake_at(), None);
    }
}
