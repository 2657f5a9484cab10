//! What carries frames for a software NIC: sockets, or anything else that takes and gives datagrams.

use super::wire::{HEADER, Header};
use crate::types::{Channel, Nanos};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Carries frames, unreliably and in any order. Non-blocking.
pub trait Link: Send {
    /// Channels it has.
    fn channels(&self) -> u8;

    /// Largest payload beside the header that it can carry at all, in bytes.
    fn max_payload(&self) -> usize;

    /// Where frames for this end go.
    fn local_addr(&self) -> SocketAddr;

    /// Sends `headers.len()` frames: header i, then bytes `i * size ..` of `payload`; only the last may be shorter. Returns
    /// how many were taken, from the front: fewer than all when there is no room now, none at all when they cannot go out
    /// (too long, forbidden, nobody there).
    fn send(
        &mut self,
        now: Nanos,
        ch: Channel,
        to: SocketAddr,
        headers: &[[u8; HEADER]],
        payload: &[u8],
        size: usize,
    ) -> Option<usize>;

    /// Hands over what came in on `ch`; true when it stopped at its bound.
    fn recv(&mut self, now: Nanos, ch: Channel, f: &mut dyn FnMut(SocketAddr, &[u8])) -> bool;

    /// When `recv` has something without input from elsewhere.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Frames dropped here for lack of room.
    fn local_drops(&self) -> u64 {
        0
    }

    /// Readable when `recv` has work.
    fn wait_fd(&self, _ch: Channel) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A frame that goes out once the link is free again.
pub(super) struct Reply {
    ch: Channel,
    to: SocketAddr,
    header: [u8; HEADER],
    payload: Vec<u8>,
}

impl Reply {
    pub(super) fn new(ch: Channel, to: SocketAddr, header: &Header, payload: Vec<u8>) -> Self {
        let mut out = [0; HEADER];
        header.write(&mut out, &payload);
        Self { ch, to, header: out, payload }
    }

    /// Channel, destination and bytes.
    #[cfg(test)]
    pub(super) fn frame(&self) -> (Channel, SocketAddr, Vec<u8>) {
        (self.ch, self.to, [&self.header[..], &self.payload].concat())
    }

    /// Best effort: what finds no room is lost; then false.
    pub(super) fn send(&self, link: &mut dyn Link, now: Nanos) -> bool {
        let size = self.payload.len();
        let sent = link.send(now, self.ch, self.to, &[self.header], &self.payload, size);
        sent != Some(0)
    }
}
