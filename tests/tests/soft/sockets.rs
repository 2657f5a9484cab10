//! Over UDP on loopback, in real time.

use netem::rng::Random;
use sdr_sdk::connection::{Connection, ConnectionConfig, TransferError};
use sdr_sdk::context::{Context, ContextConfig, QpConfig};
use sdr_sdk::driver::{Clock, Driver};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::soft::wire::HEADER;
use sdr_sdk::fabric::soft::{Endpoint, Link, SoftFabric, UdpLink};
use sdr_sdk::qp::Closed;
use sdr_sdk::types::{Channel, Nanos};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

struct End {
    context: Context,
    endpoint: Endpoint,
    driver: Driver,
}

/// Sockets that can be exchanged for others, or lose all that is sent, or what is longer than so many bytes.
struct Fragile {
    udp: Arc<Mutex<UdpLink>>,
    mute: Arc<AtomicBool>,
    most: Arc<AtomicUsize>,
}

impl Fragile {
    fn new(udp: Arc<Mutex<UdpLink>>, mute: Arc<AtomicBool>) -> Self {
        Self { udp, mute, most: Arc::new(usize::MAX.into()) }
    }

    fn udp(&self) -> MutexGuard<'_, UdpLink> {
        self.udp.lock().unwrap()
    }
}

impl Link for Fragile {
    fn channels(&self) -> u8 {
        self.udp().channels()
    }

    fn max_payload(&self) -> usize {
        self.udp().max_payload()
    }

    fn local_addr(&self) -> SocketAddr {
        self.udp().local_addr()
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
        let long = HEADER + size.min(payload.len()) > self.most.load(Ordering::Relaxed);
        if long || self.mute.load(Ordering::Relaxed) {
            return Some(headers.len());
        }
        self.udp().send(now, ch, to, headers, payload, size)
    }

    fn recv(&mut self, now: Nanos, ch: Channel, f: &mut dyn FnMut(SocketAddr, &[u8])) -> bool {
        self.udp().recv(now, ch, f)
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.udp().wake_at()
    }
}

impl End {
    fn new(link: impl Link + 'static, clock: Clock) -> Self {
        let (fabric, endpoint) = SoftFabric::new(link);
        let engine = Box::new(HostEngine::new(4));
        let context = Context::open(Box::new(fabric), engine, ContextConfig::default()).unwrap();
        Self { driver: Driver::new(context.clone(), clock), context, endpoint }
    }

    fn server(at: SocketAddr, clock: Clock) -> Self {
        Self::new(UdpLink::listen(at, 4).unwrap(), clock)
    }
}

fn within<R>(
    client: &mut End,
    server: &mut End,
    limit: Nanos,
    mut done: impl FnMut(&mut End) -> Option<R>,
) -> R {
    let deadline = client.driver.clock().now() + limit;
    let r = client.driver.run(deadline, |_| {
        server.driver.turn();
        done(server)
    });
    r.expect("in time")
}

fn connect(client: &mut End, server: &mut End) -> (Connection, Connection) {
    let at = server.endpoint.local_addr();
    let mut dialing = client.endpoint.connect(&client.context, at, QpConfig::default()).unwrap();
    let mut accepted = None;
    let halves = within(client, server, Nanos::from_secs(10), |server| {
        if let Some(c) = server.endpoint.incoming() {
            accepted = Some(server.endpoint.accept(&server.context, &c).unwrap());
        }
        dialing.poll()
    });
    let add = |end: &mut End, (send, recv)| {
        let (connection, driver) = Connection::new(send, recv, ConnectionConfig::default());
        end.driver.add(driver);
        connection
    };
    (add(client, halves.unwrap()), add(server, accepted.unwrap()))
}

fn message(
    client: &mut End,
    server: &mut End,
    (a, b): &(Connection, Connection),
    len: usize,
    mut each: impl FnMut(),
) -> Nanos {
    let start = client.driver.clock().now();
    let mut src = client.context.register(len).unwrap();
    src.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 249) as u8);
    let src = src.freeze();
    let (mut got, mut sent) = (b.recv(server.context.register(len).unwrap()), a.send(src.clone(), None));
    let (mut x, mut y) = (None, None);
    within(client, server, Nanos::from_secs(20), |_| {
        each();
        x = x.take().or_else(|| got.try_take());
        y = y.take().or_else(|| sent.try_take());
        (x.is_some() && y.is_some()).then_some(())
    });
    assert!(x.unwrap().unwrap().buf[..] == src[..]);
    y.unwrap().unwrap();
    client.driver.clock().now().since(start)
}

#[test]
fn a_server_that_is_gone_and_comes_back_on_its_port() {
    let clock = Clock::start();
    let mut server = End::server(([127, 0, 0, 1], 0).into(), clock);
    let at = server.endpoint.local_addr();
    let mut client = End::new(UdpLink::dial(at, 4).unwrap(), clock);
    let pair = connect(&mut client, &mut server);
    message(&mut client, &mut server, &pair, 1 << 20, || {});
    // Nobody is at the port any more; the goodbye may or may not have left.
    let (a, b) = pair;
    let idle = End::server(([127, 0, 0, 1], 0).into(), clock);
    drop((b, std::mem::replace(&mut server, idle)));
    let mut send = a.send(client.context.register(1 << 20).unwrap().freeze(), None);
    let start = clock.now();
    let why = within(&mut client, &mut server, Nanos::from_secs(6), |_| send.try_take()).unwrap_err();
    println!("{} after: {why}", clock.now().since(start));
    assert!(
        matches!(
            why,
            TransferError::Lost { why: Closed::PeerSilent { .. } | Closed::Peer(_), .. }
                | TransferError::Closed
        ),
        "{why}"
    );
    let mut again = End::server(at, clock);
    let pair = connect(&mut client, &mut again);
    message(&mut client, &mut again, &pair, 1 << 20, || {});
}

#[test]
fn garbage_over_loopback() {
    let clock = Clock::start();
    let mut server = End::server(([127, 0, 0, 1], 0).into(), clock);
    let at = server.endpoint.local_addr();
    let mut client = End::new(UdpLink::dial(at, 4).unwrap(), clock);
    let pair = connect(&mut client, &mut server);
    let clean = message(&mut client, &mut server, &pair, 8 << 20, || {});
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    attacker.set_nonblocking(true).unwrap();
    let mut rng = Random::new(1);
    let mut bytes = vec![0u8; 1500];
    let mut sent = 0u64;
    let under = message(&mut client, &mut server, &pair, 8 << 20, || {
        for _ in 0..20 {
            let len = rng.below(1500) as usize;
            bytes[..len.min(64)].iter_mut().for_each(|b| *b = rng.below(256) as u8);
            if rng.chance(0.5) {
                bytes[0] = 0x10 | rng.below(11) as u8;
            }
            sent += u64::from(attacker.send_to(&bytes[..len], at).is_ok());
        }
    });
    let counters = server.endpoint.counters();
    println!(
        "{clean} clean, {under} with {sent} frames of garbage, {counters:?}, {} local drops",
        server.endpoint.local_drops()
    );
    assert!(counters.corrupt + counters.other_version > 100);
}

/// Where a peer is killed nothing says goodbye, and its port answers that nobody is there.
#[test]
fn a_killed_peer_is_a_typed_error_in_time() {
    let clock = Clock::start();
    let (udp, mute) = (UdpLink::listen(([127, 0, 0, 1], 0).into(), 4).unwrap(), Arc::<AtomicBool>::default());
    let at = udp.local_addr();
    let mut server = End::new(Fragile::new(Arc::new(Mutex::new(udp)), mute.clone()), clock);
    let mut client = End::new(UdpLink::dial(at, 4).unwrap(), clock);
    let (a, b) = connect(&mut client, &mut server);
    let register = |end: &End| end.context.register(1 << 20).unwrap();
    // For the last there is no receive.
    let mut sends: Vec<_> = (0..4).map(|_| a.send(register(&client).freeze(), None)).collect();
    let mut recv = a.recv(register(&client));
    // Amid the first message.
    let _posted: Vec<_> = (0..3).map(|_| b.recv(register(&server))).collect();
    within(&mut client, &mut server, Nanos::from_secs(5), |_| (a.stats().sent > 20).then_some(()));
    mute.store(true, Ordering::Relaxed);
    drop((server, b, _posted));
    let killed = clock.now();
    let mut idle = End::server(([127, 0, 0, 1], 0).into(), clock);
    let mut results = Vec::new();
    within(&mut client, &mut idle, Nanos::from_secs(10), |_| {
        results.extend(sends.iter_mut().filter_map(|s| s.try_take()));
        (results.len() == 4).then_some(())
    });
    let took = clock.now().since(killed);
    let silent = |e: &TransferError| matches!(e, TransferError::Lost { why: Closed::PeerSilent { .. }, .. });
    println!("{took}: {results:?}");
    // What was whole before may have been confirmed.
    assert!(results.iter().all(|r| r.as_ref().err().is_none_or(silent)), "{results:?}");
    assert!(results.iter().any(Result::is_err));
    let got = within(&mut client, &mut idle, Nanos::from_secs(1), |_| recv.try_take()).unwrap_err();
    assert!(silent(&got.why) && got.buf.is_some(), "{}", got.why);
    assert!(took >= Nanos::from_millis(2_900), "{took}");
}

/// As under SIGSTOP: neither driver runs for two seconds, and then both go on.
#[test]
#[expect(clippy::disallowed_methods, reason = "time passes for both")]
fn ends_that_stand_still_for_two_seconds_go_on() {
    let clock = Clock::start();
    let mut server = End::server(([127, 0, 0, 1], 0).into(), clock);
    let mut client = End::new(UdpLink::dial(server.endpoint.local_addr(), 4).unwrap(), clock);
    let pair = connect(&mut client, &mut server);
    let mut stopped = false;
    message(&mut client, &mut server, &pair, 8 << 20, || {
        if !std::mem::replace(&mut stopped, true) {
            std::thread::sleep(std::time::Duration::from_secs(2));
        }
    });
    message(&mut client, &mut server, &pair, 1 << 20, || {});
}

/// All of a client's sockets get other ports amid a message, as behind a translator that forgot him.
#[test]
fn a_client_whose_ports_change_is_followed() {
    let clock = Clock::start();
    let mut server = End::server(([127, 0, 0, 1], 0).into(), clock);
    let at = server.endpoint.local_addr();
    let udp = Arc::new(Mutex::new(UdpLink::dial(at, 4).unwrap()));
    let mut client = End::new(Fragile::new(udp.clone(), Arc::default()), clock);
    let pair = connect(&mut client, &mut server);
    let mut turns = 0;
    for _ in 0..3 {
        message(&mut client, &mut server, &pair, 4 << 20, || {
            turns += 1;
            if turns % 40 == 20 {
                *udp.lock().unwrap() = UdpLink::dial(at, 4).unwrap();
            }
        });
    }
    // And in the other direction, where the client's answers alone say where he is.
    let (a, b) = pair;
    *udp.lock().unwrap() = UdpLink::dial(at, 4).unwrap();
    message(&mut server, &mut client, &(b, a), 4 << 20, || {});
}

/// What the path carries becomes less amid a message: that one ends typed at both ends, the next ones pass.
#[test]
fn a_path_over_sockets_that_narrows() {
    let clock = Clock::start();
    let mut server = End::server(([127, 0, 0, 1], 0).into(), clock);
    let udp = UdpLink::dial(server.endpoint.local_addr(), 4).unwrap();
    let fragile = Fragile::new(Arc::new(Mutex::new(udp)), Arc::default());
    let most = fragile.most.clone();
    let mut client = End::new(fragile, clock);
    let pair = connect(&mut client, &mut server);
    message(&mut client, &mut server, &pair, 1 << 20, || {});
    most.store(1_280 - 28, Ordering::Relaxed);
    let (a, b) = &pair;
    let start = clock.now();
    let mut got: Vec<_> = (0..4).map(|_| b.recv(server.context.register(1 << 20).unwrap())).collect();
    let src = client.context.register(1 << 20).unwrap().freeze();
    let mut sent: Vec<_> = (0..4).map(|_| a.send(src.clone(), None)).collect();
    let narrowed = |e: &TransferError| matches!(e, TransferError::PathMtu { was: 8192, now: 1152, .. });
    let mut left = (4, 4);
    within(&mut client, &mut server, Nanos::from_secs(5), |_| {
        for e in sent.iter_mut().filter_map(|s| s.try_take()) {
            assert!(e.as_ref().is_err_and(narrowed), "{e:?}");
            left.0 -= 1;
        }
        for e in got.iter_mut().filter_map(|g| g.try_take()) {
            assert!(e.as_ref().is_err_and(|e| narrowed(&e.why)), "{e:?}");
            left.1 -= 1;
        }
        (left == (0, 0)).then_some(())
    });
    println!("{}, {:?}", clock.now().since(start), client.endpoint.counters());
    for _ in 0..3 {
        message(&mut client, &mut server, &pair, 4 << 20, || {});
    }
    // The way back is as it was.
    message(&mut server, &mut client, &(pair.1, pair.0), 4 << 20, || {});
}
