//! Over UDP on loopback, in real time.

use netem::rng::Random;
use sdr_sdk::connection::{Connection, ConnectionConfig, TransferError};
use sdr_sdk::context::{Context, ContextConfig, QpConfig};
use sdr_sdk::driver::{Clock, Driver};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::soft::{Endpoint, SoftFabric, UdpLink};
use sdr_sdk::qp::Closed;
use sdr_sdk::types::Nanos;
use std::net::{SocketAddr, UdpSocket};

struct End {
    context: Context,
    endpoint: Endpoint,
    driver: Driver,
}

impl End {
    fn new(link: UdpLink, clock: Clock) -> Self {
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
                bytes[0] = 1 << 4 | rng.below(11) as u8;
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
