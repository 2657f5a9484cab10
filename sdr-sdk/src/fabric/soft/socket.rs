//! Runs of datagrams in and out of the kernel, non-blocking, without copies in user space.
//!
//! It knows nothing of what a datagram means. On Linux one call hands a batch of datagrams to the kernel as a scatter
//! list and one call takes coalesced batches; elsewhere the standard library carries them one by one. Invariant: a
//! datagram leaves as its header and its part of the payload, unfragmented where the system can promise that, and
//! arrives as one slice; what the network or the kernel lost is never an error.

use super::wire::HEADER;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsFd, BorrowedFd};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(not(target_os = "linux"), test))]
mod portable;
#[cfg(test)]
mod tests;

#[cfg(target_os = "linux")]
use linux::Kernel;
#[cfg(not(target_os = "linux"))]
use portable::Kernel;

/// Longest UDP payload over IPv4, in bytes; also the longest batch.
const MAX_DATAGRAM: usize = 65_507;
/// Most datagrams in a batch that every kernel with UDP segmentation takes.
const MAX_SEGMENTS: usize = 64;

/// What a socket asks of the kernel. What the kernel does not have is done without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of each socket buffer; the system's limit may grant less, see [`UdpSocket::granted`].
    pub buffer: usize,
    /// Let the kernel cut batches into datagrams (UDP_SEGMENT).
    pub gso: bool,
    /// Take datagrams coalesced (UDP_GRO).
    pub gro: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { buffer: 8 << 20, gso: true, gro: true }
    }
}

/// Socket buffers in bytes as the kernel counts them: with its own overhead, on Linux twice what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// SO_RCVBUF.
    pub recv: usize,
    /// SO_SNDBUF.
    pub send: usize,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Outcome {
    /// The kernel took this many datagrams, counted from the front. When it took fewer than all, the next call tells why.
    Sent(usize),
    /// No room now (EAGAIN, ENOBUFS). [`UdpSocket::wait_fd`] need not become writable at the right time: try later.
    Again,
    /// Datagrams of this size do not fit the path, or no path (EMSGSIZE).
    TooLong,
    /// A local rule forbids it (EPERM, EACCES).
    Denied,
    /// The peer's host has nobody at that port (ECONNREFUSED).
    Refused,
    /// No route or no link now.
    Unreachable,
}

/// A bound, non-blocking UDP socket that serves any number of peers.
#[derive(Debug)]
pub struct UdpSocket(Kernel);

impl UdpSocket {
    /// Binds with the default options.
    pub fn bind(addr: SocketAddr) -> io::Result<Self> {
        Self::bind_with(addr, Options::default())
    }

    /// Binds. Datagrams are never fragmented, and on Linux the kernel ignores reports of a smaller path MTU: whoever
    /// holds the socket probes the path.
    pub fn bind_with(addr: SocketAddr, options: Options) -> io::Result<Self> {
        Kernel::bind(addr, options).map(Self)
    }

    /// The address that it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket().local_addr()
    }

    /// Socket buffers that the system granted.
    pub fn granted(&self) -> Granted {
        self.0.granted()
    }

    /// Sends `headers.len()` datagrams: header i, then bytes `i * payload_size ..` of `payload`. All have `payload_size`
    /// payload bytes, the last 1 to `payload_size`; a single datagram may also have none.
    ///
    /// # Errors
    /// `InvalidInput` when the lengths do not fit together, and what is not an [`Outcome`], such as an address of the
    /// other family.
    pub fn send_run(
        &mut self,
        dst: SocketAddr,
        headers: &[[u8; HEADER]],
        payload: &[u8],
        payload_size: usize,
    ) -> io::Result<Outcome> {
        let run = Run::new(headers, payload, payload_size)?;
        if HEADER + run.size > MAX_DATAGRAM {
            return Ok(Outcome::TooLong);
        }
        self.0.send(dst, &run)
    }

    /// Hands over what has arrived, one datagram a call, with the address it came from. Bounded work; true when more may
    /// wait. Datagrams without any byte are skipped.
    pub fn recv(&mut self, f: &mut dyn FnMut(SocketAddr, &mut [u8])) -> io::Result<bool> {
        self.0.recv(f)
    }

    /// Arrivals that the kernel threw away because this socket's buffer was full, as far as later arrivals told: local
    /// loss, not the path's. The kernel's unit: a coalesced batch counts once.
    pub fn local_drops(&self) -> u64 {
        self.0.local_drops()
    }

    /// Whether batches still go out as one; false from the first time that the kernel refuses them.
    pub fn gso(&self) -> bool {
        self.0.gso()
    }

    /// Readable when [`UdpSocket::recv`] has work.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.0.socket().as_fd()
    }
}

/// The system's part: what [`UdpSocket`] says of each call, for runs already checked.
trait Io: Sized {
    fn bind(addr: SocketAddr, options: Options) -> io::Result<Self>;
    fn socket(&self) -> &StdSocket;
    fn send(&mut self, dst: SocketAddr, run: &Run<'_>) -> io::Result<Outcome>;
    fn recv(&mut self, f: &mut dyn FnMut(SocketAddr, &mut [u8])) -> io::Result<bool>;
    fn granted(&self) -> Granted;
    fn local_drops(&self) -> u64 {
        0
    }
    fn gso(&self) -> bool {
        false
    }
}

/// Datagrams of one call; lengths fit together.
#[derive(Clone, Copy)]
struct Run<'a> {
    headers: &'a [[u8; HEADER]],
    payload: &'a [u8],
    size: usize,
}

impl<'a> Run<'a> {
    fn new(headers: &'a [[u8; HEADER]], payload: &'a [u8], size: usize) -> io::Result<Self> {
        let fits = match headers.len() {
            0 => payload.is_empty(),
            1 => payload.len() <= size,
            n => payload.len().checked_div(size).is_some() && payload.len().div_ceil(size) == n,
        };
        if !fits {
            let (n, len) = (headers.len(), payload.len());
            let why = format!("{len} payload bytes are not {n} datagrams of {size}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self { headers, payload, size: size.min(payload.len()) })
    }

    /// Header and payload of datagram `i`.
    fn segment(&self, i: usize) -> (&'a [u8; HEADER], &'a [u8]) {
        let start = i * self.size;
        (&self.headers[i], &self.payload[start..self.payload.len().min(start + self.size)])
    }
}

/// Asks for `bytes` in each direction, and for less where the system refuses instead of granting its limit.
fn set_buffers(s: &StdSocket, bytes: usize) -> io::Result<Granted> {
    let halves = || std::iter::successors(Some(bytes), |n| Some(n / 2)).take_while(|n| *n > 0);
    let _ = halves().find(|n| sockopt::set_socket_recv_buffer_size(s, *n).is_ok());
    let _ = halves().find(|n| sockopt::set_socket_send_buffer_size(s, *n).is_ok());
    Ok(Granted { recv: sockopt::socket_recv_buffer_size(s)?, send: sockopt::socket_send_buffer_size(s)? })
}

/// What a failed send means, when no datagram of the call was taken.
fn outcome(e: io::Error) -> io::Result<Outcome> {
    Ok(match Errno::from_io_error(&e) {
        Some(Errno::AGAIN | Errno::NOBUFS) => Outcome::Again,
        Some(Errno::MSGSIZE) => Outcome::TooLong,
        Some(Errno::PERM | Errno::ACCESS) => Outcome::Denied,
        Some(Errno::CONNREFUSED) => Outcome::Refused,
        Some(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN) => Outcome::Unreachable,
        _ => return Err(e),
    })
}
