//! The relay over loopback sockets. These run beside other work, so time is bounded from below only, except that the best
//! of a few attempts must be on time.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::*;

mod throughput;

/// A relay in a thread of its own, and its server's socket.
struct Running {
    address: SocketAddr,
    server: UdpSocket,
    monitor: Monitor,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<RelayStats>>,
}

impl Running {
    fn start(path: &str) -> Self {
        let server = socket("127.0.0.1:0");
        let listen = "127.0.0.1:0".parse().unwrap();
        let relay = Relay::bind(listen, server.local_addr().unwrap(), path.parse().unwrap()).unwrap();
        Self::with(relay, server)
    }

    fn with(mut relay: Relay, server: UdpSocket) -> Self {
        let (address, monitor) = (relay.local_addr(), relay.monitor());
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            relay.run(&flag).unwrap();
            relay.stats()
        });
        Self { address, server, monitor, stop, thread: Some(thread) }
    }

    fn client(&self) -> UdpSocket {
        let client = socket("127.0.0.1:0");
        client.connect(self.address).unwrap();
        client
    }

    /// Waits until `done`, at most five seconds.
    fn until(&self, done: impl Fn(&RelayStats) -> bool) -> RelayStats {
        let begin = Instant::now();
        while !done(&self.monitor.stats()) && begin.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(2));
        }
        self.monitor.stats()
    }

    fn stop(mut self) -> RelayStats {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    sys::tune(&socket);
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Everything that arrives until `count` datagrams have, or nothing more does.
fn receive(socket: &UdpSocket, count: usize, mut each: impl FnMut(&[u8])) -> usize {
    let mut receiver = Receiver::new();
    let (mut received, mut last) = (0, Instant::now());
    while received < count && last.elapsed() < Duration::from_millis(500) {
        match receiver.recv(socket) {
            Ok((messages, _)) => {
                for i in 0..messages {
                    for datagram in receiver.message(i).1 {
                        received += 1;
                        each(datagram);
                    }
                }
                last = Instant::now();
            }
            Err(_) => thread::sleep(Duration::from_micros(200)),
        }
    }
    received
}

fn balanced(stats: &DirectionStats) {
    let into = stats.datagrams_in + stats.duplicated;
    let out = stats.datagrams_out + stats.lost + stats.queue_drops + stats.unsent + stats.backlog_datagrams;
    assert_eq!(into, out, "{stats:?}");
}

#[test]
fn nothing_is_early_and_the_median_is_on_time() {
    let relay = Running::start("rtt=10ms");
    let client = relay.client();
    let one_way = Duration::from_millis(5);
    let mut medians = Vec::new();
    for _ in 0..20 {
        let mut delays: Vec<Duration> = (0..21)
            .map(|_| {
                let sent = Instant::now();
                client.send(&[7; 100]).unwrap();
                relay.server.recv(&mut [0; 200]).unwrap();
                sent.elapsed()
            })
            .collect();
        delays.sort_unstable();
        assert!(delays[0] >= one_way, "{:?} is early", delays[0]);
        medians.push(delays[10]);
        if delays[10] < one_way + Duration::from_millis(1) {
            return;
        }
    }
    panic!("medians of one-way delay {medians:?}, expected {one_way:?} to 1 ms more");
}

#[test]
fn the_rate_is_what_was_asked_for() {
    let mut rates = Vec::new();
    for _ in 0..3 {
        let relay = Running::start("rate=200Mbit");
        let client = relay.client();
        // A second's worth at 1.4 times the rate; the link is never idle, however late a thread wakes.
        let count = 17_857;
        let begin = Instant::now();
        let sender = thread::spawn(move || {
            let (mut out, mut stats) = (Sender::new(), DirectionStats::default());
            let frames = vec![vec![3; 1400]; 25];
            for burst in 0..count / 25 + 1 {
                let due = Duration::from_millis(burst as u64);
                thread::sleep(due.saturating_sub(begin.elapsed()));
                out.send(&client, &frames[..25.min(count - burst * 25)], None, &mut stats);
            }
        });
        let received = receive(&relay.server, count, |_| ());
        let elapsed = begin.elapsed().as_secs_f64();
        sender.join().unwrap();
        let rate = received as f64 * 1400.0 * 8.0 / elapsed;
        assert!(rate <= 200e6, "{rate} bit/s is more than the link has");
        balanced(&relay.stop().forward);
        rates.push(rate);
        if rate >= 194e6 {
            return;
        }
    }
    panic!("rates {rates:?} bit/s, expected 200e6 within 3 %");
}

#[test]
fn each_datagram_of_a_batch_has_its_own_fate() {
    let relay = Running::start("rtt=4ms,loss=0.1,dup=0.05,corrupt=0.05,reorder=0.02,seed=9");
    let client = relay.client();
    let sender = thread::spawn(move || {
        let (mut out, mut stats) = (Sender::new(), DirectionStats::default());
        for batch in 0..400u32 {
            // Joined on the way out and on the way in; the last is shorter.
            let size = |i| if i == 24 { 300 } else { 1000 };
            let frames: Vec<Vec<u8>> = (0..25u32).map(|i| numbered(batch * 25 + i, size(i))).collect();
            out.send(&client, &frames, None, &mut stats);
            thread::sleep(Duration::from_millis(1));
        }
        stats
    });
    let (mut copies, mut corrupt) = (HashMap::new(), 0u64);
    let received = receive(&relay.server, usize::MAX, |bytes| {
        let (body, sum) = bytes.split_at(bytes.len() - 4);
        if crc32c::crc32c(body).to_le_bytes() == sum {
            let n = u32::from_le_bytes(body[..4].try_into().unwrap());
            assert_eq!(bytes.len(), if n % 25 == 24 { 300 } else { 1000 });
            *copies.entry(n).or_insert(0) += 1;
        } else {
            corrupt += 1;
        }
    });
    let sent = sender.join().unwrap();
    let forward = relay.stop().forward;
    balanced(&forward);
    assert_eq!(forward.datagrams_in + forward.receive_drops, sent.datagrams_out);
    assert_eq!((received as u64, forward.unsent, forward.backlog_datagrams), (forward.datagrams_out, 0, 0));
    assert_eq!(corrupt, forward.corrupted);
    assert!(copies.values().all(|c| *c <= 2));
    // Six sigma and more of 10,000.
    for (what, count, expected, within) in [
        ("lost", forward.lost, 1_000, 200),
        ("duplicated", forward.duplicated, 450, 150),
        ("corrupted", forward.corrupted, 472, 150),
        ("reordered", forward.reordered, 189, 100),
    ] {
        let expected = expected * forward.datagrams_in / 10_000;
        assert!(count.abs_diff(expected) < within, "{what}: {count} of 10,000, expected {expected}");
    }
}

/// `size` bytes: a number, filling, and their checksum.
fn numbered(n: u32, size: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = n.to_le_bytes().into_iter().cycle().take(size - 4).collect();
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

#[test]
fn every_client_has_its_own_port_and_gets_its_own_replies() {
    let relay = Running::start("rtt=2ms");
    let clients: Vec<_> = (0..10).map(|_| relay.client()).collect();
    let mut sources = HashSet::new();
    let mut room = [0; 100];
    for round in 0..2u8 {
        for (n, client) in (0u8..).zip(&clients) {
            client.send(&[n, round]).unwrap();
        }
        for _ in &clients {
            let (len, from) = relay.server.recv_from(&mut room).unwrap();
            sources.insert(from);
            relay.server.send_to(&[&room[..len], &[99]].concat(), from).unwrap();
        }
        for (n, client) in (0u8..).zip(&clients) {
            let len = client.recv(&mut room).unwrap();
            assert_eq!(room[..len], [n, round, 99]);
        }
    }
    assert_eq!(sources.len(), clients.len());
    let stats = relay.until(|s| s.reverse.datagrams_out == 20);
    assert_eq!((stats.flows, stats.flows_opened, stats.refused), (10, 10, 0));
    assert_eq!((stats.forward.bytes_in, stats.reverse.bytes_out), (40, 60));
}

#[test]
fn any_size_passes_as_it_is() {
    let relay = Running::start("");
    let client = relay.client();
    let mut room = vec![0; 1 << 16];
    for size in [0, 1, 0, 1472, 1473, 9_000, 65_507] {
        client.send(&vec![size as u8; size]).unwrap();
        let (len, from) = relay.server.recv_from(&mut room).unwrap();
        assert!(len == size && room[..len].iter().all(|b| *b == size as u8), "{len} of {size}");
        relay.server.send_to(&room[..len], from).unwrap();
        assert_eq!(client.recv(&mut room).unwrap(), size);
    }
}

#[test]
fn a_server_may_be_late_and_come_back() {
    let mut relay = Running::start("");
    let client = relay.client();
    let address = relay.server.local_addr().unwrap();
    // Nobody has the server's port: each datagram is refused, and the relay goes on.
    relay.server = socket("127.0.0.1:0");
    for n in 0..50u64 {
        client.send(&[1; 10]).unwrap();
        relay.until(|s| s.forward.datagrams_out + s.forward.unsent > n);
    }
    relay.server = UdpSocket::bind(address).unwrap();
    relay.server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut room = [0; 100];
    let arrived = (0..10).any(|_| {
        client.send(&[2; 20]).unwrap();
        relay.server.recv(&mut room).is_ok_and(|len| len == 20)
    });
    assert!(arrived);
    balanced(&relay.stop().forward);
}

/// A client that the server has answered.
fn answered(relay: &Running, n: u64) -> UdpSocket {
    let client = relay.client();
    client.send(&[1]).unwrap();
    let (_, from) = relay.server.recv_from(&mut [0; 10]).unwrap();
    relay.server.send_to(&[1], from).unwrap();
    relay.until(|s| s.reverse.datagrams_in >= n);
    client
}

#[test]
fn too_many_clients_are_refused_and_the_others_go_on() {
    let relay = Running::start("");
    let clients: Vec<_> = (1..=flows::MOST_FLOWS as u64).map(|n| answered(&relay, n)).collect();
    for n in 1..=5 {
        relay.client().send(&[1]).unwrap();
        relay.until(|s| s.refused >= n);
    }
    clients[0].send(&[2]).unwrap();
    assert_eq!(relay.server.recv(&mut [0; 10]).unwrap(), 1);
    let stats = relay.stop();
    assert_eq!((stats.flows, stats.refused), (flows::MOST_FLOWS, 5));
}

#[test]
fn clients_that_nobody_answers_make_room() {
    let relay = Running::start("");
    let first = answered(&relay, 1);
    let junk: Vec<_> = (0..flows::MOST_FLOWS as u64 + 20)
        .map(|n| {
            let client = relay.client();
            client.send(&[1]).unwrap();
            relay.until(|s| s.forward.datagrams_in > n + 1);
            client
        })
        .collect();
    assert_eq!(receive(&relay.server, junk.len(), |_| ()), junk.len());
    let second = answered(&relay, 2);
    for client in [first, second] {
        client.send(&[3; 7]).unwrap();
        assert_eq!(relay.server.recv(&mut [0; 10]).unwrap(), 7);
    }
    let stats = relay.stop();
    assert_eq!((stats.flows, stats.refused), (flows::MOST_FLOWS, 0));
}

#[test]
fn both_families() {
    let Ok(server) = UdpSocket::bind("[::1]:0") else {
        return eprintln!("skipped: no IPv6 on loopback");
    };
    server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // A client over IPv4, a server over IPv6.
    let listen = "127.0.0.1:0".parse().unwrap();
    let relay = Relay::bind(listen, server.local_addr().unwrap(), PathSpec::default()).unwrap();
    let relay = Running::with(relay, server);
    let client = relay.client();
    client.send(b"ping").unwrap();
    let mut room = [0; 10];
    let (len, from) = relay.server.recv_from(&mut room).unwrap();
    assert!(from.is_ipv6() && room[..len] == *b"ping");
    relay.server.send_to(b"pong", from).unwrap();
    let len = client.recv(&mut room).unwrap();
    assert_eq!(room[..len], *b"pong");
}

#[test]
fn stopping_leaves_the_rest_for_the_next_run() {
    let server = socket("127.0.0.1:0");
    let listen = "127.0.0.1:0".parse().unwrap();
    let path = "rtt=400ms".parse().unwrap();
    let relay = Relay::bind(listen, server.local_addr().unwrap(), path).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&[5; 5], relay.local_addr()).unwrap();
    let (mut relay, stop) = (relay, AtomicBool::new(true));
    relay.run(&stop).unwrap();
    assert_eq!(relay.stats().forward.datagrams_in, 0);
    let relay = Running::with(relay, server);
    let sent = Instant::now();
    let held = relay.until(|s| s.forward.datagrams_in == 1).forward;
    if sent.elapsed() < Duration::from_millis(150) {
        assert_eq!((held.backlog_datagrams, held.backlog_bytes), (1, 5));
    }
    relay.server.recv(&mut [0; 10]).unwrap();
    assert_eq!(relay.stop().forward.datagrams_out, 1);
}

#[test]
fn what_cannot_be_bound_says_why() {
    let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let taken = UdpSocket::bind(free).unwrap().local_addr().unwrap();
    let own = Relay::bind(taken, taken, PathSpec::default()).unwrap_err();
    assert_eq!(own.to_string(), format!("forward address {taken} is the relay's own; give the server's"));
    let holder = UdpSocket::bind(free).unwrap();
    let listen = holder.local_addr().unwrap();
    let busy = Relay::bind(listen, taken, PathSpec::default()).unwrap_err();
    assert!(
        matches!(&busy, RelayError::Listen { listen: l, source } if *l == listen && source.kind() == io::ErrorKind::AddrInUse)
    );
    assert!(busy.to_string().starts_with(&format!("cannot listen on {listen}: ")));
}

#[test]
fn a_relay_can_move_to_a_thread() {
    fn send<T: Send>() {}
    fn share<T: Send + Sync>() {}
    send::<Relay>();
    share::<Monitor>();
}
