use super::super::wire::{Header, PacketType, parse};
use super::*;
use crate::types::{Channel, Generation};
use std::time::Duration;

const PAYLOADS: [usize; 4] = [100, 1_372, 4_060, 8_156];

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn without_gso() -> Options {
    Options { gso: false, ..Options::default() }
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + seed).wrapping_mul(0x9e37_79b1) >> 11) as u8).collect()
}

/// The headers of a run, numbered from `first`.
fn headers(payload: &[u8], size: usize, first: u64) -> Vec<[u8; HEADER]> {
    let one = |(i, part): (usize, &[u8])| {
        let mut out = [0; HEADER];
        let h = Header {
            kind: PacketType::Data,
            flags: 0,
            connection: 7,
            token: 11,
            number: first + i as u64,
            channel: Channel(3),
            generation: Generation(513),
            imm: i as u32,
        };
        h.write(&mut out, part);
        out
    };
    payload.chunks(size).enumerate().map(one).collect()
}

/// Waits until something can be received; false after half a second.
fn wait(s: &StdSocket) -> bool {
    s.set_nonblocking(false).unwrap();
    s.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let arrived = s.peek_from(&mut [0]).is_ok();
    s.set_nonblocking(true).unwrap();
    arrived
}

/// Receives until `n` datagrams have come or none comes any more.
fn collect<K: Io>(k: &mut K, n: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut got = Vec::new();
    while got.len() < n && wait(k.socket()) {
        while k.recv(&mut |from, d| got.push((from, d.to_vec()))).unwrap() {}
    }
    got
}

/// Sends one run and checks each byte of what arrives.
fn carries<A: Io, B: Io>(a: &mut A, b: &mut B, segments: usize, size: usize, last: usize) {
    let payload = bytes((segments - 1) * size + last, size + segments);
    let headers = headers(&payload, size, 1_000);
    let run = Run::new(&headers, &payload, size).unwrap();
    let to = b.socket().local_addr().unwrap();
    assert_eq!(a.send(to, &run).unwrap(), Outcome::Sent(segments));
    let got = collect(b, segments);
    assert_eq!(got.len(), segments, "of {size} bytes, the last {last}");
    for (i, (from, datagram)) in got.iter().enumerate() {
        assert_eq!(*from, a.socket().local_addr().unwrap());
        let (h, part) = parse(datagram).unwrap();
        assert_eq!(h.number, 1_000 + i as u64);
        assert_eq!(datagram[..HEADER], headers[i]);
        assert!(part == payload.chunks(size).nth(i).unwrap(), "datagram {i} of {segments} x {size}");
    }
}

fn carries_every_run<A: Io, B: Io>(mut a: A, mut b: B) {
    for size in PAYLOADS {
        for segments in 1..=MAX_SEGMENTS {
            carries(&mut a, &mut b, segments, size, 1 + segments * 37 % size);
        }
        carries(&mut a, &mut b, 1, size, size);
        carries(&mut a, &mut b, MAX_SEGMENTS, size, size);
        carries(&mut a, &mut b, MAX_SEGMENTS, size, 1);
    }
    carries(&mut a, &mut b, 300, 1_372, 5);
    assert_eq!(b.local_drops(), 0);
}

fn bind<K: Io>(options: Options) -> K {
    K::bind(loopback(), options).unwrap()
}

#[test]
fn batches_carry_every_byte() {
    let a: Kernel = bind(Options::default());
    let b: Kernel = bind(Options::default());
    carries_every_run(a, b);
}

#[test]
fn single_datagrams_carry_the_same_bytes() {
    carries_every_run(bind::<Kernel>(without_gso()), bind::<Kernel>(Options::default()));
}

#[test]
fn batches_are_cut_for_a_receiver_that_takes_single_datagrams() {
    let b = Options { gro: false, ..Options::default() };
    carries_every_run(bind::<Kernel>(Options::default()), bind::<Kernel>(b));
}

#[test]
fn the_portable_socket_carries_the_same_bytes() {
    carries_every_run(
        bind::<portable::Kernel>(Options::default()),
        bind::<portable::Kernel>(Options::default()),
    );
}

#[test]
fn ipv6_carries_every_byte() {
    let bind = || match Kernel::bind("[::1]:0".parse().unwrap(), Options::default()) {
        // A machine without IPv6 has nothing to test.
        Err(e) if Errno::from_io_error(&e) == Some(Errno::ADDRNOTAVAIL) => None,
        Err(e) if Errno::from_io_error(&e) == Some(Errno::AFNOSUPPORT) => None,
        other => Some(other.unwrap()),
    };
    if let (Some(a), Some(b)) = (bind(), bind()) {
        carries_every_run(a, b);
    }
}

#[test]
fn a_single_datagram_may_have_no_payload() {
    let (mut a, mut b) = (UdpSocket::bind(loopback()).unwrap(), UdpSocket::bind(loopback()).unwrap());
    let to = b.local_addr().unwrap();
    assert_eq!(a.send_run(to, &[[5; HEADER]], &[], 0).unwrap(), Outcome::Sent(1));
    assert_eq!(a.send_run(to, &[], &[], 100).unwrap(), Outcome::Sent(0));
    let got = collect(&mut b.0, 1);
    assert_eq!(got, [(a.local_addr().unwrap(), vec![5; HEADER])]);
}

#[test]
fn lengths_that_do_not_fit_are_refused() {
    let mut a = UdpSocket::bind(loopback()).unwrap();
    let to = a.local_addr().unwrap();
    for (n, len, size) in
        [(0, 1, 10), (1, 11, 10), (2, 10, 10), (2, 21, 10), (3, 20, 10), (2, 0, 10), (2, 1, 0)]
    {
        let e = a.send_run(to, &vec![[0; HEADER]; n], &vec![0; len], size).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput, "{n} datagrams, {len} bytes, {size} each");
    }
    let long = MAX_DATAGRAM - HEADER + 1;
    assert_eq!(a.send_run(to, &[[0; HEADER]], &vec![0; long], long).unwrap(), Outcome::TooLong);
    let longest = long - 1;
    assert_eq!(a.send_run(to, &[[0; HEADER]], &vec![0; longest], longest).unwrap(), Outcome::Sent(1));
    assert_eq!(a.send_run(to, &[[0; HEADER]], &[0; 9], usize::MAX).unwrap(), Outcome::Sent(1));
}

#[test]
fn errors_of_the_system_become_outcomes() {
    let of = |e: Errno| outcome(io::Error::from_raw_os_error(e.raw_os_error())).ok();
    assert_eq!(of(Errno::AGAIN), Some(Outcome::Again));
    assert_eq!(of(Errno::NOBUFS), Some(Outcome::Again));
    assert_eq!(of(Errno::MSGSIZE), Some(Outcome::TooLong));
    assert_eq!(of(Errno::PERM), Some(Outcome::Denied));
    assert_eq!(of(Errno::CONNREFUSED), Some(Outcome::Refused));
    assert_eq!(of(Errno::NETUNREACH), Some(Outcome::Unreachable));
    assert_eq!(of(Errno::BADF), None);
}

#[cfg(target_os = "linux")]
mod linux_only {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn one_call_takes_more_datagrams_than_messages() {
        let (mut a, mut b) = (bind::<Kernel>(Options::default()), bind::<Kernel>(Options::default()));
        let payload = bytes(64 * 100, 1);
        let headers = headers(&payload, 100, 0);
        let run = Run::new(&headers, &payload, 100).unwrap();
        assert_eq!(a.send(b.socket().local_addr().unwrap(), &run).unwrap(), Outcome::Sent(64));
        assert!(wait(b.socket()));
        let mut got = 0;
        let more = b.recv(&mut |_, d| got += usize::from(d.len() == HEADER + 100)).unwrap();
        assert_eq!((got, more), (64, false), "coalesced into one message and cut again");
    }

    /// The kernel refuses to cut batches when it may not write checksums.
    #[test]
    fn a_kernel_that_refuses_batches_gets_single_datagrams() {
        let (mut a, mut b) = (bind::<Kernel>(Options::default()), bind::<Kernel>(Options::default()));
        assert!(a.gso());
        let on = 1i32;
        // SAFETY: SO_NO_CHECK is an int, which lives through the call.
        let rc = unsafe {
            let value = (&raw const on).cast();
            libc::setsockopt(a.socket().as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, value, 4)
        };
        assert_eq!(rc, 0);
        for size in PAYLOADS {
            carries(&mut a, &mut b, 64, size, 3);
            assert!(!a.gso());
        }
    }

    /// A port that cannot be sent to says nothing about batches.
    #[test]
    fn a_wrong_address_fails_and_leaves_batches_on() {
        let (mut a, mut b) = (bind::<Kernel>(Options::default()), bind::<Kernel>(Options::default()));
        let headers = [[0; HEADER]; 2];
        let run = Run::new(&headers, &[0; 200], 100).unwrap();
        assert!(a.send("127.0.0.1:0".parse().unwrap(), &run).is_err());
        assert!(a.send("[::1]:9".parse().unwrap(), &run).is_err());
        assert!(a.gso());
        carries(&mut a, &mut b, 64, 100, 100);
    }

    /// An ICMP error of a connected socket is one outcome, and gone from the next call.
    #[test]
    fn nobody_at_the_port_is_refused() {
        let mut a = bind::<Kernel>(Options::default());
        let nobody = StdSocket::bind(loopback()).unwrap().local_addr().unwrap();
        a.socket().connect(nobody).unwrap();
        let run = Run::new(&[[0; HEADER]], &[0; 9], 9).unwrap();
        assert_eq!(a.send(nobody, &run).unwrap(), Outcome::Sent(1));
        let mut next = a.send(nobody, &run).unwrap();
        for _ in 0..1_000 {
            if next == Outcome::Refused {
                break;
            }
            next = a.send(nobody, &run).unwrap();
        }
        assert_eq!(next, Outcome::Refused);
        assert!(a.recv(&mut |_, _| panic!("nothing was sent here")).is_ok());
    }

    fn overrun(gso: bool, gro: bool) -> (usize, usize, u64) {
        let mut a = bind::<Kernel>(Options { gso, ..Options::default() });
        let mut b = bind::<Kernel>(Options { gro, buffer: 64 << 10, ..Options::default() });
        let to = b.socket().local_addr().unwrap();
        let payload = bytes(64 * 1_372, 2);
        let headers = headers(&payload, 1_372, 0);
        let run = Run::new(&headers, &payload, 1_372).unwrap();
        for _ in 0..20 {
            assert_eq!(
                a.send(to, &run).unwrap(),
                Outcome::Sent(64),
                "a full receiver is no error of the sender"
            );
        }
        let mut got = collect(&mut b, 20 * 64).len();
        // What arrives after the loss carries the count.
        let one = Run::new(&headers[..1], &payload[..1_372], 1_372).unwrap();
        assert_eq!(a.send(to, &one).unwrap(), Outcome::Sent(1));
        got += collect(&mut b, 1).len();
        (20 * 64 + 1, got, b.local_drops())
    }

    #[test]
    fn a_full_receiver_drops_and_counts() {
        let (sent, got, drops) = overrun(false, false);
        assert!(got < sent);
        assert_eq!(sent, got + drops as usize);
        let (sent, got, drops) = overrun(true, true);
        assert!(got < sent && drops > 0, "{got} of {sent} arrived, {drops} drops");
    }

    #[test]
    fn buffers_are_granted_and_told() {
        let small = bind::<Kernel>(Options { buffer: 64 << 10, ..Options::default() }).granted();
        assert_eq!(small, Granted { recv: 128 << 10, send: 128 << 10 });
        let large = bind::<Kernel>(Options::default()).granted();
        assert!(large.recv >= small.recv && large.send >= small.send);
    }

    #[test]
    fn the_descriptor_is_readable_when_there_is_work() {
        let (mut a, b) = (UdpSocket::bind(loopback()).unwrap(), UdpSocket::bind(loopback()).unwrap());
        let ready = |ms| {
            let mut p = libc::pollfd { fd: b.wait_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, which lives through the call.
            unsafe { libc::poll(&raw mut p, 1, ms) }
        };
        assert_eq!(ready(0), 0);
        assert_eq!(a.send_run(b.local_addr().unwrap(), &[[1; HEADER]], &[], 0).unwrap(), Outcome::Sent(1));
        assert_eq!(ready(2_000), 1);
    }
}
