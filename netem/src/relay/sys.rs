//! The system calls of the relay, behind safe functions.
//!
//! Nothing here keeps a pointer beyond its call: the arrays that the kernel reads and fills live on the stack of the
//! function that passes them.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use sdr_sdk::types::Nanos;

/// Messages of one receive call; with coalescing each holds up to 64 datagrams.
const RECV_MESSAGES: usize = 16;
/// Room of each, more than the largest UDP payload.
const RECV_ROOM: usize = 1 << 16;
/// A page apart, so that every buffer starts at the same offset in its page.
const RECV_STRIDE: usize = RECV_ROOM + 4096;
/// The kernel's copy is several times slower into memory that starts within the first 256 bytes of a page.
const RECV_PAGE_OFFSET: usize = 2048;
/// Most datagrams of one send call.
pub(super) const SEND_FRAMES: usize = 64;
/// Asked of both socket buffers; the system's limit may give less.
const SOCKET_BUFFER: libc::c_int = 4 << 20;
/// Asked of the receive buffer where privileges reach beyond that limit: a quarter of a second of 1400 B at 1 Gbit/s.
const FORCED_BUFFER: libc::c_int = 32 << 20;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set(socket: &UdpSocket, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is a live `int` of the size given.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) })?;
    Ok(())
}

/// Large buffers, and where the kernel has them: coalesced receiving, times of arrival, counts of overflow.
pub(super) fn tune(socket: &UdpSocket) {
    for (level, option, value) in [
        (libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, FORCED_BUFFER),
        (libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1),
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1),
        (libc::SOL_UDP, libc::UDP_GRO, 1),
    ] {
        // Each is an improvement that the relay works without.
        let _ = set(socket, level, option, value);
    }
}

/// Room for an address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Name {
    fn v4(address: SocketAddrV4) -> Self {
        Self {
            v4: libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            },
        }
    }

    fn v6(address: SocketAddrV6) -> Self {
        Self {
            v6: libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            },
        }
    }

    /// Every byte is initialised.
    fn empty() -> Self {
        Self::v6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0))
    }

    fn encode(address: SocketAddr) -> (Self, usize) {
        match address {
            SocketAddr::V4(v4) => (Self::v4(v4), size_of::<libc::sockaddr_in>()),
            SocketAddr::V6(v6) => (Self::v6(v6), size_of::<libc::sockaddr_in6>()),
        }
    }

    /// Of a name that started as [`Name::empty`].
    fn decode(&self, len: usize) -> Option<SocketAddr> {
        // SAFETY: all bytes are initialised, by `empty` or by the kernel, and any bytes are valid integers; both variants
        // start with the family.
        let (v4, v6) = unsafe { (self.v4, self.v6) };
        match i32::from(v4.sin_family) {
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// Room for control messages, aligned for their headers.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control<const N: usize>([u8; N]);

/// What came with one received message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    /// The sender.
    pub(super) from: Option<SocketAddr>,
    len: usize,
    /// Size of the datagrams that the kernel joined, the last may be shorter; 0 for a single datagram.
    segment: usize,
    /// When it came in, by the wall clock since the epoch.
    pub(super) stamp: Option<Duration>,
    /// Receptions that the socket has dropped for want of room since it was opened.
    pub(super) drops: Option<u32>,
}

/// Buffers of the receive call.
pub(super) struct Receiver {
    area: Vec<u8>,
    start: usize,
    received: [Received; RECV_MESSAGES],
}

impl Receiver {
    pub(super) fn new() -> Self {
        let area = vec![0; RECV_MESSAGES * RECV_STRIDE + 4096];
        let start = (RECV_PAGE_OFFSET + 4096 - area.as_ptr().addr() % 4096) % 4096;
        Self { area, start, received: Default::default() }
    }

    /// Takes what is there, without waiting; gives the number of messages, and whether there may be more.
    pub(super) fn recv(&mut self, socket: &UdpSocket) -> io::Result<(usize, bool)> {
        let mut names = [Name::empty(); RECV_MESSAGES];
        let mut controls = [Control([0; 128]); RECV_MESSAGES];
        let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: RECV_ROOM }; RECV_MESSAGES];
        for (vector, room) in vectors.iter_mut().zip(self.area[self.start..].chunks_exact_mut(RECV_STRIDE)) {
            vector.iov_base = room.as_mut_ptr().cast();
        }
        // SAFETY: a header of zeros is a valid one that refers to nothing.
        let mut headers: [libc::mmsghdr; RECV_MESSAGES] = unsafe { zeroed() };
        for (i, header) in headers.iter_mut().enumerate() {
            header.msg_hdr.msg_name = (&raw mut names[i]).cast();
            header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
            header.msg_hdr.msg_iov = &raw mut vectors[i];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = controls[i].0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = controls[i].0.len() as _;
        }
        let (count, flags) = (RECV_MESSAGES as libc::c_uint, libc::MSG_DONTWAIT as _);
        // SAFETY: names, controls and vectors outlive the call, each as long as its header says; the vectors cover disjoint
        // parts of `area`, which is borrowed mutably.
        let taken = check(unsafe {
            libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, flags, ptr::null_mut())
        })? as usize;
        for i in 0..taken {
            let mut message = Received {
                from: names[i].decode(headers[i].msg_hdr.msg_namelen as usize),
                len: (headers[i].msg_len as usize).min(RECV_ROOM),
                ..Received::default()
            };
            // SAFETY: the kernel has written the control messages of this header into its aligned room.
            unsafe { read_controls(&headers[i].msg_hdr, &mut message) };
            self.received[i] = message;
        }
        Ok((taken, taken == RECV_MESSAGES))
    }

    /// Message `i` of the last call and its datagrams.
    pub(super) fn message(&self, i: usize) -> (Received, impl Iterator<Item = &[u8]>) {
        let message = self.received[i];
        let bytes = &self.area[self.start + i * RECV_STRIDE..][..message.len];
        let size = if message.segment > 0 { message.segment } else { message.len.max(1) };
        // An empty datagram is one too.
        let empty = bytes.is_empty().then_some(bytes);
        (message, bytes.chunks(size).chain(empty))
    }
}

/// Reads the control messages that came with a message.
///
/// # Safety
/// `msg_control` points at `msg_controllen` initialised bytes, aligned for headers and written by the kernel.
unsafe fn read_controls(header: &libc::msghdr, message: &mut Received) {
    // SAFETY: as the caller promises; the pointers given here and below are null or within the control messages.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: not null, so a header written by the kernel.
        let control = unsafe { &*next };
        match (control.cmsg_level, control.cmsg_type) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // SAFETY: `next` is a header written by the kernel, and any bytes are a number.
                let size: Option<libc::c_int> = unsafe { read_data(next) };
                message.segment = size.and_then(|s| usize::try_from(s).ok()).unwrap_or(0);
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: as above; two numbers.
                let at: Option<libc::timespec> = unsafe { read_data(next) };
                message.stamp = at.and_then(|at| {
                    Some(Duration::new(u64::try_from(at.tv_sec).ok()?, u32::try_from(at.tv_nsec).ok()?))
                });
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                // SAFETY: as above.
                message.drops = unsafe { read_data(next) };
            }
            _ => {}
        }
        // SAFETY: `next` is a header within the control messages of `header`.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

/// The data of a control message, when it is as long as a `T`.
///
/// # Safety
/// `control` is a header followed by the data that its length says; any bytes are a valid `T`.
unsafe fn read_data<T>(control: *const libc::cmsghdr) -> Option<T> {
    // SAFETY: arithmetic on a constant.
    let whole = unsafe { libc::CMSG_LEN(size_of::<T>() as libc::c_uint) };
    // SAFETY: the caller's header.
    if unsafe { (*control).cmsg_len } != whole as _ {
        return None;
    }
    // SAFETY: that many bytes follow the header, and any are a `T`; they may be unaligned.
    Some(unsafe { libc::CMSG_DATA(control).cast::<T>().read_unaligned() })
}

/// Datagrams that go out as one message: all of one size, but the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First frame.
    pub(super) first: usize,
    /// Frames, at least 1.
    pub(super) frames: usize,
}

/// Sends runs of `frames`, at most [`SEND_FRAMES`], to `to`, or where the socket is connected to; waits while the device
/// is busy. Gives how many runs have gone.
///
/// # Errors
/// Of the first run; when a later one fails, those before it are reported.
pub(super) fn send(
    socket: &UdpSocket,
    to: Option<SocketAddr>,
    frames: &[impl AsRef<[u8]>],
    runs: &[Run],
) -> io::Result<usize> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; SEND_FRAMES];
    let mut name = to.map(Name::encode);
    let mut controls = [Control([0; 32]); SEND_FRAMES];
    // SAFETY: a header of zeros is a valid one that refers to nothing.
    let mut headers: [libc::mmsghdr; SEND_FRAMES] = unsafe { zeroed() };
    for (vector, frame) in vectors.iter_mut().zip(frames) {
        let bytes = frame.as_ref();
        *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    }
    let count = runs.len().min(SEND_FRAMES);
    for (i, run) in runs[..count].iter().enumerate() {
        let header = &mut headers[i].msg_hdr;
        let own = &mut vectors[..frames.len().min(SEND_FRAMES)][run.first..run.first + run.frames];
        header.msg_iov = own.as_mut_ptr();
        header.msg_iovlen = own.len() as _;
        if let Some((name, len)) = &mut name {
            header.msg_name = (&raw mut *name).cast();
            header.msg_namelen = *len as libc::socklen_t;
        }
        if run.frames > 1 {
            put_segment(header, &mut controls[i], own[0].iov_len as u16);
        }
    }
    // SAFETY: the name, controls, vectors and the frames outlive the call, each as long as its header says; the kernel only
    // reads the frames.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, 0) };
    Ok(check(sent)? as usize)
}

/// Gives `header` the control message that has the kernel cut it into datagrams of `size`.
fn put_segment(header: &mut libc::msghdr, control: &mut Control<32>, size: u16) {
    // SAFETY: arithmetic on a constant.
    let (space, len) = unsafe { (libc::CMSG_SPACE(2), libc::CMSG_LEN(2)) };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = space as _;
    // SAFETY: `msg_control` points at 32 aligned bytes, room for a header and two bytes, so the first header is there.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = libc::SOL_UDP;
        (*first).cmsg_type = libc::UDP_SEGMENT;
        (*first).cmsg_len = len as _;
        libc::CMSG_DATA(first).cast::<u16>().write_unaligned(size);
    }
}

/// Which sockets have input.
#[derive(Debug)]
pub(super) struct Poller(OwnedFd);

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes no memory.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `socket` until it is closed.
    pub(super) fn add(&self, socket: &UdpSocket, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        let (fd, add) = (socket.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: `event` is live and only read.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), add, fd, &raw mut event) })?;
        Ok(())
    }

    /// Waits for input, at most `timeout`, and puts the tokens of sockets that have some into `ready`.
    pub(super) fn wait(&self, timeout: Nanos, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        // The set can be polled itself, with a finer timeout than its own call takes.
        if timeout > Nanos::ZERO && !poll(Some(self.0.as_raw_fd()), timeout)? {
            return Ok(());
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let (fd, room) = (self.0.as_raw_fd(), events.len() as libc::c_int);
        // SAFETY: `events` has room for as many as the call is told.
        match check(unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), room, 0) }) {
            Ok(count) => ready.extend(events[..count as usize].iter().map(|e| e.u64)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// Sleeps.
pub(super) fn pause(time: Nanos) -> io::Result<()> {
    poll(None, time).map(|_| ())
}

/// Whether `fd` became readable within `timeout`; a signal ends the wait.
fn poll(fd: Option<RawFd>, timeout: Nanos) -> io::Result<bool> {
    let mut watched = libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 };
    let timeout = libc::timespec {
        tv_sec: (timeout.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout.0 % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: one live `pollfd` and a live timeout; no signal mask.
    match check(unsafe { libc::ppoll(&raw mut watched, 1, &raw const timeout, ptr::null()) }) {
        Ok(ready) => Ok(ready > 0),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(e) => Err(e),
    }
}

/// While it lives, sleeps of this thread end when they were asked to, not up to 50 us later to save wake-ups.
pub(super) struct FineTimers(libc::c_int);

impl FineTimers {
    pub(super) fn new() -> Self {
        let zero: libc::c_ulong = 0;
        // SAFETY: takes and gives numbers only.
        let before = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, zero, zero, zero, zero) };
        Self::set(1);
        Self(before)
    }

    fn set(nanos: libc::c_ulong) {
        let zero: libc::c_ulong = 0;
        // SAFETY: takes numbers only, and concerns the calling thread alone.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos, zero, zero, zero) };
    }
}

impl Drop for FineTimers {
    fn drop(&mut self) {
        // Zero, which a failed query becomes here, restores the thread's default.
        Self::set(libc::c_ulong::try_from(self.0).unwrap_or(0));
    }
}
