//! Ends that start again, disappear, refuse: over a link in memory, with the handshake.

use netem::sim::{Direction, Verdict};
use netem::{MemoryConfig, MemoryNet};
use sdr_sdk::connection::{Connection, ConnectionConfig, ConnectionDriver, TransferError};
use sdr_sdk::context::{Context, ContextConfig, QpConfig};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::soft::wire::{PacketType, parse};
use sdr_sdk::fabric::soft::{CONNECT_DEADLINE, ConnectError, DialError, Endpoint, SoftFabric};
use sdr_sdk::qp::{Closed, RecvQp, SendQp};
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::soft::memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SERVER: usize = 1;

struct End {
    context: Context,
    endpoint: Endpoint,
    drivers: Vec<ConnectionDriver>,
    wake: Nanos,
}

impl End {
    fn new(net: &MemoryNet, end: usize) -> Self {
        let (fabric, endpoint) = SoftFabric::new(net.end(end));
        let engine = Box::new(HostEngine::new(4));
        let context = Context::open(Box::new(fabric), engine, ContextConfig::default()).unwrap();
        Self { context, endpoint, drivers: Vec::new(), wake: Nanos::ZERO }
    }

    fn connection(&mut self, (send, recv): (SendQp, RecvQp)) -> Connection {
        let (connection, driver) = Connection::new(send, recv, ConnectionConfig::default());
        self.drivers.push(driver);
        connection
    }
}

/// Ends in virtual time that can be exchanged.
struct World {
    net: MemoryNet,
    ends: [End; 2],
    now: Nanos,
}

impl World {
    fn new(config: &MemoryConfig) -> Self {
        let net = MemoryNet::new(config).unwrap();
        let ends = [End::new(&net, 0), End::new(&net, 1)];
        Self { net, ends, now: Nanos::from_secs(1) }
    }

    fn restart(&mut self, end: usize) {
        self.ends[end] = End::new(&self.net, end);
    }

    /// The next event, at most a millisecond on.
    fn step(&mut self) {
        let due = (0..2).filter_map(|e| self.net.wake_at(e)).chain(self.ends.iter().map(|e| e.wake)).min();
        self.now =
            due.map_or(self.now, |d| d.max(self.now + Nanos(1_000))).min(self.now + Nanos::from_millis(1));
        let now = self.now;
        for e in &mut self.ends {
            let mut wake = e.context.poll(now).unwrap_or(Nanos::MAX);
            e.drivers.retain_mut(|d| d.poll(now).inspect(|t| wake = wake.min(*t)).is_some());
            e.wake = wake;
        }
    }

    fn until<R>(&mut self, limit: Nanos, mut done: impl FnMut(&mut Self) -> Option<R>) -> R {
        let end = self.now + limit;
        loop {
            if let Some(r) = done(self) {
                return r;
            }
            assert!(self.now < end, "nothing after {limit}");
            self.step();
        }
    }

    fn dial(&mut self, config: QpConfig) -> Result<(Connection, Connection), ConnectError> {
        let to = self.net.address(SERVER, Channel(0));
        let mut dialing = self.ends[0].endpoint.connect(&self.ends[0].context, to, config).unwrap();
        let mut accepted = None;
        let halves = self.until(Nanos::from_secs(11), |w| {
            let server = &w.ends[SERVER];
            if let Some(client) = server.endpoint.incoming() {
                accepted = server.endpoint.accept(&server.context, &client).ok();
            }
            dialing.poll()
        })?;
        let a = self.ends[0].connection(halves);
        let b = self.ends[SERVER].connection(accepted.expect("accepted"));
        Ok((a, b))
    }

    fn message(&mut self, a: &Connection, b: &Connection) {
        self.message_from(0, a, b);
    }

    fn message_from(&mut self, end: usize, a: &Connection, b: &Connection) {
        let mut src = self.ends[end].context.register(300_000).unwrap();
        src.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 253) as u8);
        let src = src.freeze();
        let mut got = b.recv(self.ends[1 - end].context.register(300_000).unwrap());
        let mut sent = a.send(src.clone(), None);
        let got = self.until(Nanos::from_secs(5), |_| got.try_take()).unwrap();
        assert!(got.buf[..] == src[..]);
        self.until(Nanos::from_secs(5), |_| sent.try_take()).unwrap();
    }
}

fn usual() -> World {
    World::new(&memory("rtt=20ms,rate=1Gbit,seed=1"))
}

fn silent(e: &TransferError) -> bool {
    matches!(e, TransferError::Lost { why: Closed::PeerSilent { .. }, .. })
}

#[test]
fn a_connection_is_made_over_any_path() {
    for path in [
        "rtt=20ms,rate=1Gbit",
        "rtt=20ms,loss=0.3,seed=4",
        "rtt=600ms,rate=10Mbit",
        "rtt=0ms,dup=0.5,corrupt=0.1,seed=6",
    ] {
        let mut w = World::new(&memory(path));
        let start = w.now;
        let (a, b) = w.dial(QpConfig::default()).unwrap();
        println!("{path}: connected after {}", w.now.since(start));
        w.message(&a, &b);
    }
}

/// Each kind of frame of the handshake lost several times in a row, corrupt, late and twice: it is made all the same, once.
#[test]
fn each_frame_of_the_handshake_lost_late_twice_corrupt() {
    let late = Nanos::from_millis(400);
    let faults = [
        (1, Verdict::Drop),
        (2, Verdict::Drop),
        (3, Verdict::Drop),
        (10, Verdict::Drop),
        (1, Verdict::Corrupt),
    ];
    let more =
        [(10, Verdict::Corrupt), (u32::MAX, Verdict::Delay(late)), (u32::MAX, Verdict::Duplicate(late))];
    for kind in
        [PacketType::Probe, PacketType::ProbeAck, PacketType::Hello, PacketType::Retry, PacketType::Accept]
    {
        for (times, verdict) in faults.into_iter().chain(more) {
            let mut w = usual();
            let hits = Arc::new(AtomicU32::new(0));
            for d in [Direction::A_TO_B, Direction::B_TO_A] {
                let hits = hits.clone();
                w.net.tap(d, move |f| {
                    let hit = parse(f.bytes).is_ok_and(|(h, _)| h.kind == kind)
                        && hits.fetch_add(1, Ordering::Relaxed) < times;
                    if hit { verdict } else { Verdict::Pass }
                });
            }
            let start = w.now;
            let (a, b) = w.dial(QpConfig::default()).unwrap();
            println!("{kind:?} {times} {verdict:?}: connected after {}", w.now.since(start));
            assert!(hits.load(Ordering::Relaxed) > 0, "{kind:?} never occurred");
            w.message(&a, &b);
            // What comes late is no second client.
            let until = w.now + late + late;
            w.until(late.mul_div(3, 1), |w| (w.now >= until).then_some(()));
            assert!(w.ends[SERVER].endpoint.incoming().is_none(), "{kind:?} {verdict:?}: a second client");
            w.message_from(SERVER, &b, &a);
        }
    }
}

#[test]
fn small_paths_get_small_packets() {
    for (mtu, payload) in [(1280, 1152), (1500, 1408), (9000, 8192)] {
        let mut w = usual();
        w.net.set_mtu(Direction::A_TO_B, Some(mtu));
        w.net.set_mtu(Direction::B_TO_A, Some(mtu));
        let (a, b) = w.dial(QpConfig::default()).unwrap();
        w.message(&a, &b);
        let sent = w.ends[0].endpoint.counters().sent;
        assert!(sent >= 300_000u64.div_ceil(payload) && sent < 300_000 / payload + 30, "{sent} packets");
    }
}

#[test]
fn nobody_there() {
    let mut w = usual();
    let to = w.net.address(0, Channel(0));
    let context = w.ends[0].context.clone();
    // An address that leads nowhere.
    let mut dialing = w.ends[0].endpoint.connect(&context, to, QpConfig::default()).unwrap();
    let start = w.now;
    let result = w.until(CONNECT_DEADLINE + Nanos::from_millis(2), |_| dialing.poll());
    assert!(matches!(result, Err(ConnectError::Dial(DialError::NoAnswer { .. }))));
    println!("{}", w.now.since(start));
}

/// The wishes of a client are refused with the same words on both sides.
#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let mut w = usual();
    let narrow = MemoryNet::new(&MemoryConfig { channels: 2, ..memory("rtt=20ms") }).unwrap();
    let (fabric, endpoint) = SoftFabric::new(narrow.end(SERVER));
    let context =
        Context::open(Box::new(fabric), Box::new(HostEngine::new(2)), ContextConfig::default()).unwrap();
    let to = w.net.address(SERVER, Channel(0));
    let mut dialing = w.ends[0].endpoint.connect(&w.ends[0].context, to, QpConfig::default()).unwrap();
    let mut here = None;
    let there = w.until(Nanos::from_secs(5), |w| {
        if let Some(client) = w.ends[SERVER].endpoint.incoming() {
            // A server with two channels only.
            here = endpoint.accept(&context, &client).err().map(|e| e.to_string());
            w.ends[SERVER].endpoint.refuse(&client, here.as_deref().unwrap_or("?"));
        }
        dialing.poll()
    });
    let (here, there) = (here.unwrap(), there.err().unwrap().to_string());
    println!("{here} / {there}");
    assert!(here.contains("channels") && there.contains(&here));
}

#[test]
fn a_client_that_starts_again_on_the_same_port() {
    let mut w = usual();
    let (a, b) = w.dial(QpConfig::default()).unwrap();
    w.message(&a, &b);
    let mut waits = b.recv(w.ends[SERVER].context.register(1000).unwrap());
    drop(a);
    w.restart(0);
    let died = w.now;
    // The new one works at once, beside the old one.
    let (c, d) = w.dial(QpConfig::default()).unwrap();
    w.message(&c, &d);
    let why = w.until(Nanos::from_secs(5), |_| waits.try_take()).unwrap_err().why;
    assert!(silent(&why) || matches!(why, TransferError::Lost { why: Closed::Peer(_), .. }), "{why}");
    println!("{} after: {why}", w.now.since(died));
    w.message(&c, &d);
}

#[test]
fn a_server_that_starts_again() {
    let mut w = usual();
    let (a, b) = w.dial(QpConfig::default()).unwrap();
    w.message(&a, &b);
    std::mem::forget(b);
    // Killed: nobody says goodbye.
    let old = std::mem::replace(&mut w.ends[SERVER], End::new(&w.net, SERVER));
    std::mem::forget(old);
    let died = w.now;
    let src = w.ends[0].context.register(1000).unwrap().freeze();
    let mut send = a.send(src, None);
    let why = w.until(Nanos::from_secs(5), |_| send.try_take()).unwrap_err();
    let took = w.now.since(died);
    println!("{took} after: {why}");
    assert!(silent(&why) && took >= Nanos::from_millis(2_900) && took <= Nanos::from_millis(3_500), "{why}");
    assert!(w.ends[SERVER].endpoint.counters().forged > 0, "frames of the old connection are counted");
    let (c, d) = w.dial(QpConfig::default()).unwrap();
    w.message(&c, &d);
}

/// Clients that connect and then say nothing cost what a connection costs, and only until what waits for them is lost.
#[test]
fn silent_clients_are_known_in_time() {
    let mut w = usual();
    let open: Vec<_> = (0..20).map(|_| w.dial(QpConfig::default()).unwrap()).collect();
    let server = w.ends[SERVER].context.clone();
    let mut waits: Vec<_> = open.iter().map(|(_, b)| b.recv(server.register(1000).unwrap())).collect();
    std::mem::forget(std::mem::replace(&mut w.ends[0], End::new(&w.net, 0)));
    let silent_since = w.now;
    let mut lost = Vec::new();
    w.until(Nanos::from_secs(5), |_| {
        lost.extend(waits.iter_mut().filter_map(|t| t.try_take()));
        (lost.len() == 20).then_some(())
    });
    let took = w.now.since(silent_since);
    println!("{took}");
    assert!(took >= Nanos::from_millis(2_900) && took <= Nanos::from_millis(3_500), "{took}");
    for e in lost.into_iter().map(Result::unwrap_err) {
        assert!(silent(&e.why) && e.buf.is_some(), "{}", e.why);
    }
    // Nothing of them is left to be driven, and the next is served.
    assert!(w.ends[SERVER].drivers.is_empty());
    let (a, b) = w.dial(QpConfig::default()).unwrap();
    w.message(&a, &b);
}
