//! Connections over UDP on loopback, in real time.

use sdr_sdk::connection::{Connection, ConnectionConfig};
use sdr_sdk::context::{Context, ContextConfig, QpConfig};
use sdr_sdk::driver::{Clock, Driver};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::soft::{Endpoint, SoftFabric, UdpLink};
use sdr_sdk::types::Nanos;

const CHANNELS: u8 = 4;

fn context(link: UdpLink) -> (Context, Endpoint) {
    let (fabric, endpoint) = SoftFabric::new(link);
    let engine = Box::new(HostEngine::new(CHANNELS));
    (Context::open(Box::new(fabric), engine, ContextConfig::default()).unwrap(), endpoint)
}

#[test]
fn messages_cross_loopback_whole() {
    let clock = Clock::start();
    let (server, listen) = context(UdpLink::listen(([127, 0, 0, 1], 0).into(), CHANNELS).unwrap());
    let at = listen.local_addr();
    let (client, dial) = context(UdpLink::dial(at, CHANNELS).unwrap());
    let mut s = Driver::new(server.clone(), clock);
    let mut c = Driver::new(client.clone(), clock);

    let mut dialing = dial.connect(&client, at, QpConfig::default()).unwrap();
    let mut accepted = None;
    let deadline = clock.now() + Nanos::from_secs(10);
    let halves = c.run(deadline, |_| {
        s.turn();
        if let Some(incoming) = listen.incoming() {
            accepted = Some(listen.accept(&server, &incoming).unwrap());
        }
        dialing.poll()
    });
    let (send, recv) = halves.expect("connected in time").unwrap();
    assert_eq!(send.payload(), 8192, "loopback passes the largest");
    let config = ConnectionConfig::default();
    let (a, driver) = Connection::new(send, recv, config.clone());
    c.add(driver);
    let (send, recv) = accepted.unwrap();
    let (b, driver) = Connection::new(send, recv, config);
    s.add(driver);

    for len in [0usize, 1, 100, 8192, 100_001, 4 << 20] {
        let mut src = client.register(len.max(1)).unwrap();
        src.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7 + i / 251) as u8);
        let src = src.freeze().slice(0, len);
        let mut receive = b.recv(server.register(len.max(1)).unwrap());
        let mut send = a.send(src.clone(), Some(len as u32));
        let deadline = clock.now() + Nanos::from_secs(20);
        let (mut sent, mut got) = (None, None);
        c.run(deadline, |_| {
            s.turn();
            sent = sent.take().or_else(|| send.try_take());
            got = got.take().or_else(|| receive.try_take());
            (sent.is_some() && got.is_some()).then_some(())
        })
        .unwrap_or_else(|| panic!("{len} bytes: not done in time"));
        let (sent, got) = (sent.unwrap().unwrap(), got.unwrap().unwrap());
        assert_eq!((sent.bytes, got.len, got.user), (len as u64, len, Some(len as u32)));
        assert!(got.buf[..len] == src[..], "{len} bytes arrived wrong");
    }
}
