//! One datagram a system call through the standard library: for systems without batches.
//!
//! It copies each datagram once to join header and payload, and cannot forbid fragmentation.

#![forbid(unsafe_code)]

use super::{Granted, HEADER, Io, MAX_DATAGRAM, Options, Outcome, Run, StdSocket, outcome, set_buffers};
use std::io;
use std::net::SocketAddr;

/// Datagrams taken in one call.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Kernel {
    socket: StdSocket,
    granted: Granted,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Io for Kernel {
    fn bind(addr: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = StdSocket::bind(addr)?;
        socket.set_nonblocking(true)?;
        let granted = set_buffers(&socket, options.buffer)?;
        Ok(Self {
            socket,
            granted,
            outgoing: Vec::with_capacity(HEADER + 8192),
            incoming: vec![0; MAX_DATAGRAM],
        })
    }

    fn socket(&self) -> &StdSocket {
        &self.socket
    }

    fn granted(&self) -> Granted {
        self.granted
    }

    fn send(&mut self, dst: SocketAddr, run: &Run<'_>) -> io::Result<Outcome> {
        for i in 0..run.headers.len() {
            let (header, payload) = run.segment(i);
            self.outgoing.clear();
            self.outgoing.extend_from_slice(header);
            self.outgoing.extend_from_slice(payload);
            match self.socket.send_to(&self.outgoing, dst) {
                Ok(_) => {}
                Err(_) if i > 0 => return Ok(Outcome::Sent(i)),
                Err(e) => return outcome(e),
            }
        }
        Ok(Outcome::Sent(run.headers.len()))
    }

    fn recv(&mut self, f: &mut dyn FnMut(SocketAddr, &mut [u8])) -> io::Result<bool> {
        for _ in 0..BATCH {
            match self.socket.recv_from(&mut self.incoming) {
                Ok((0, _)) => {}
                Ok((len, from)) => f(from, &mut self.incoming[..len]),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => {}
                    _ => return Err(e),
                },
            }
        }
        Ok(true)
    }
}
