//! Batches through sendmmsg with UDP_SEGMENT and recvmmsg with UDP_GRO: all unsafe code of the software NIC's socket.
//!
//! Invariant of every call below: pointers handed to the kernel are to memory that this function borrows or owns until
//! the call returns; the socket is never used for zero-copy sends, so the kernel keeps none of them.

use super::{
    Granted, HEADER, Io, MAX_DATAGRAM, MAX_SEGMENTS, Options, Outcome, Run, StdSocket, outcome, set_buffers,
};
use rustix::io::Errno;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// Receive buffers, each for one coalesced batch; from 2 to 16 of them the cost of a byte was the same.
const BATCH: usize = 8;
const PAGE: usize = 4096;
/// Where in a page a receive buffer starts: at small offsets the kernel's copy was several times slower on some runs.
const PAGE_OFFSET: usize = 2048;
/// Bytes from one receive buffer to the next: the longest batch, and the same page offset again.
const STRIDE: usize = (1 << 16) + PAGE;

#[derive(Debug)]
pub(super) struct Kernel {
    socket: StdSocket,
    gso: bool,
    granted: Granted,
    buffers: Vec<u8>,
    /// Index of the first receive buffer in `buffers`, whose heap block never moves.
    origin: usize,
    /// The kernel's 32-bit drop counter as last seen, and its 64-bit continuation.
    overflow: u32,
    drops: u64,
}

impl Io for Kernel {
    fn bind(addr: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = StdSocket::bind(addr)?;
        socket.set_nonblocking(true)?;
        let granted = set_buffers(&socket, options.buffer)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        if addr.is_ipv6() {
            set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
        }
        // A kernel that does not know the option would send a batch as one long datagram: ask before using it.
        let gso = options.gso && set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        if options.gro {
            // Without it datagrams arrive one by one, which `recv` handles anyway.
            let _ = set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        let buffers = vec![0; PAGE + BATCH * STRIDE];
        let origin =
            (buffers.as_ptr().addr().next_multiple_of(PAGE) - buffers.as_ptr().addr() + PAGE_OFFSET) % PAGE;
        Ok(Self { socket, gso, granted, buffers, origin, overflow: 0, drops: 0 })
    }

    fn socket(&self) -> &StdSocket {
        &self.socket
    }

    fn granted(&self) -> Granted {
        self.granted
    }

    fn local_drops(&self) -> u64 {
        self.drops
    }

    fn gso(&self) -> bool {
        self.gso
    }

    fn send(&mut self, dst: SocketAddr, run: &Run<'_>) -> io::Result<Outcome> {
        let mut to = Address::new(dst);
        let total = run.headers.len();
        let batch = MAX_SEGMENTS.min(MAX_DATAGRAM / (HEADER + run.size)).max(1);
        let mut sent = 0;
        while sent < total {
            let group = if self.gso { batch } else { 1 };
            let mut result = self.send_some(&mut to, run, sent, group);
            if let Err(e) = &result
                && group.min(total - sent) > 1
                && matches!(Errno::from_io_error(e), Some(Errno::IO | Errno::INVAL | Errno::MSGSIZE))
            {
                // The batch was refused. Where its datagrams pass one by one, batches do not work on this socket
                // (no checksum offload on the way out, a filter, another MTU check).
                result = self.send_some(&mut to, run, sent, 1);
                self.gso = result.is_err();
            }
            match result {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if sent > 0 => break,
                Err(e) => return outcome(e),
            }
        }
        Ok(Outcome::Sent(sent))
    }

    fn recv(&mut self, f: &mut dyn FnMut(SocketAddr, &mut [u8])) -> io::Result<bool> {
        let base = self.buffers[self.origin..].as_mut_ptr();
        let mut names = [Address::ZERO; BATCH];
        let mut control = [Control::default(); BATCH];
        let mut iov: [libc::iovec; BATCH] = std::array::from_fn(|i| libc::iovec {
            iov_base: base.wrapping_add(i * STRIDE).cast(),
            iov_len: 1 << 16,
        });
        let (name, list, extra) = (names.as_mut_ptr(), iov.as_mut_ptr(), control.as_mut_ptr());
        let mut messages: [libc::mmsghdr; BATCH] = std::array::from_fn(|i| {
            let mut m = empty_message();
            m.msg_hdr.msg_name = name.wrapping_add(i).cast();
            m.msg_hdr.msg_namelen = size_of::<Address>() as _;
            m.msg_hdr.msg_iov = list.wrapping_add(i);
            m.msg_hdr.msg_iovlen = 1;
            m.msg_hdr.msg_control = extra.wrapping_add(i).cast();
            m.msg_hdr.msg_controllen = size_of::<Control>() as _;
            m
        });
        // SAFETY: every message points to its own name, control block and buffer, which live until the end of this
        // function and have the lengths given; the buffers are inside `self.buffers` and nobody else refers to them.
        let n = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as _,
                libc::MSG_DONTWAIT as _,
                null_mut(),
            )
        };
        if n < 0 {
            let e = io::Error::last_os_error();
            return match e.kind() {
                io::ErrorKind::WouldBlock => Ok(false),
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused => Ok(true),
                _ => Err(e),
            };
        }
        for (i, m) in messages[..n as usize].iter().enumerate() {
            let len = m.msg_len as usize;
            let (size, overflow) = read_control(&m.msg_hdr);
            self.count_drops(overflow);
            let Some(from) = names[i].read() else { continue };
            let start = self.origin + i * STRIDE;
            for datagram in self.buffers[start..start + len].chunks_mut(size.unwrap_or(len).max(1)) {
                f(from, datagram);
            }
        }
        Ok(n as usize == BATCH)
    }
}

impl Kernel {
    /// Hands up to 64 datagrams from `first` on to the kernel in groups of `group`, each cut apart by the kernel;
    /// returns how many it took.
    fn send_some(&self, to: &mut Address, run: &Run<'_>, first: usize, group: usize) -> io::Result<usize> {
        let count = (run.headers.len() - first).min(MAX_SEGMENTS / group * group);
        let mut iov = [const { MaybeUninit::<libc::iovec>::uninit() }; 2 * MAX_SEGMENTS];
        for (pair, i) in iov.chunks_exact_mut(2).zip(first..first + count) {
            let (header, payload) = run.segment(i);
            pair[0].write(libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: HEADER });
            pair[1]
                .write(libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() });
        }
        let mut size = SegmentSize::new((HEADER + run.size) as u16);
        let list: *mut libc::iovec = iov.as_mut_ptr().cast();
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MAX_SEGMENTS];
        let mut n = 0;
        for start in (0..count).step_by(group) {
            let segments = group.min(count - start);
            let mut m = empty_message();
            m.msg_hdr.msg_name = (&raw mut *to).cast();
            m.msg_hdr.msg_namelen = to.len();
            m.msg_hdr.msg_iov = list.wrapping_add(2 * start);
            m.msg_hdr.msg_iovlen = (2 * segments) as _;
            if segments > 1 {
                m.msg_hdr.msg_control = (&raw mut size).cast();
                m.msg_hdr.msg_controllen = size_of::<SegmentSize>() as _;
            }
            messages[n].write(m);
            n += 1;
        }
        // SAFETY: the first n messages are written, each with a range of the first 2 * count entries of `iov`, which are
        // written too and point into slices that `run` borrows; address and size block outlive the call. The kernel
        // only reads through these pointers, except for the lengths in `messages`.
        let taken =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr().cast(), n as _, 0) };
        if taken < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((taken as usize * group).min(count))
    }

    fn count_drops(&mut self, overflow: Option<u32>) {
        // Arrivals queued by different cores may carry the counter out of order: only forward steps count.
        if let Some(now) = overflow
            && (now.wrapping_sub(self.overflow) as i32) > 0
        {
            self.drops += u64::from(now.wrapping_sub(self.overflow));
            self.overflow = now;
        }
    }
}

/// A socket address as the kernel has it.
#[derive(Clone, Copy)]
#[repr(C)]
union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Address {
    // SAFETY: all-zero bytes are a valid value of both variants, which hold integers only.
    const ZERO: Self = unsafe { zeroed() };

    fn new(a: SocketAddr) -> Self {
        let mut to = Self::ZERO;
        match a {
            SocketAddr::V4(a) => {
                to.v4.sin_family = libc::AF_INET as _;
                to.v4.sin_port = a.port().to_be();
                to.v4.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            }
            SocketAddr::V6(a) => {
                to.v6.sin6_family = libc::AF_INET6 as _;
                to.v6.sin6_port = a.port().to_be();
                to.v6.sin6_addr.s6_addr = a.ip().octets();
                to.v6.sin6_flowinfo = a.flowinfo();
                to.v6.sin6_scope_id = a.scope_id();
            }
        }
        to
    }

    fn family(&self) -> i32 {
        // SAFETY: the union is always made from ZERO, so every byte is initialised; both variants begin with the family.
        i32::from(unsafe { self.v4.sin_family })
    }

    fn len(&self) -> libc::socklen_t {
        if self.family() == libc::AF_INET {
            size_of::<libc::sockaddr_in>() as _
        } else {
            size_of::<Self>() as _
        }
    }

    fn read(&self) -> Option<SocketAddr> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: initialised, as in `family`; integers only.
                let a = unsafe { &self.v4 };
                let ip = a.sin_addr.s_addr.to_ne_bytes();
                Some(SocketAddrV4::new(ip.into(), u16::from_be(a.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: initialised, as in `family`; integers only.
                let a = unsafe { &self.v6 };
                let (ip, port) = (a.sin6_addr.s6_addr.into(), u16::from_be(a.sin6_port));
                Some(SocketAddrV6::new(ip, port, a.sin6_flowinfo, a.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Ancillary data that tells the kernel where to cut a batch.
#[repr(C)]
struct SegmentSize {
    header: libc::cmsghdr,
    bytes: u16,
}

impl SegmentSize {
    fn new(bytes: u16) -> Self {
        // SAFETY: a cmsghdr holds integers only, so all-zero bytes are a valid value.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        // SAFETY: CMSG_LEN only computes.
        header.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<u16>() as _) } as _;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        Self { header, bytes }
    }
}

// The value stands where CMSG_DATA would look for it, and the block is as long as CMSG_SPACE.
const _: () = {
    // SAFETY: CMSG_LEN and CMSG_SPACE only compute.
    let (at, space) = unsafe { (libc::CMSG_LEN(0), libc::CMSG_SPACE(2)) };
    assert!(std::mem::offset_of!(SegmentSize, bytes) == at as usize);
    assert!(size_of::<SegmentSize>() == space as usize);
};

/// Room for the ancillary data of one arrival, aligned for its header: two blocks of a 32-bit number.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Control([u64; 8]);

/// Size of the datagrams in a coalesced batch, and the drop counter, where the kernel told.
fn read_control(m: &libc::msghdr) -> (Option<usize>, Option<u32>) {
    let (mut size, mut drops) = (None, None);
    // SAFETY: `m` was filled by the kernel, control block and its length with it, and the block is still alive.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(m) };
    while !at.is_null() {
        // SAFETY: a header that FIRSTHDR or NXTHDR gives is aligned, whole and inside the control block.
        let block = unsafe { *at };
        // SAFETY: called for two kinds only, which the kernel writes with four bytes of data.
        let value = || unsafe { libc::CMSG_DATA(at).cast::<u32>().read_unaligned() };
        match (block.cmsg_level, block.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => size = Some(value() as usize),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => drops = Some(value()),
            _ => {}
        }
        // SAFETY: as for FIRSTHDR; `at` is inside the block.
        at = unsafe { libc::CMSG_NXTHDR(m, at) };
    }
    (size, drops)
}

fn empty_message() -> libc::mmsghdr {
    // SAFETY: integers and raw pointers only, for which all-zero bytes are valid.
    unsafe { zeroed() }
}

fn set(s: &StdSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option is an int, as are all that this file sets; the value lives through the call.
    let rc = unsafe {
        libc::setsockopt(s.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<i32>() as _)
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
