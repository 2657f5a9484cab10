//! The conformance suite on the software NIC over real sockets.

use netem::conformance::{Pair, fabric_conformance};
use sdr_sdk::fabric::soft::{SoftFabric, UdpLink};
use sdr_sdk::types::Nanos;
use std::time::Duration;

const CHANNELS: u8 = 4;

/// Two NICs on loopback; time passes by sleeping, less than it says where nothing depends on it.
fn over_udp(dual: bool) -> Pair {
    let server = UdpLink::listen(([127, 0, 0, 1], 0).into(), CHANNELS).unwrap();
    let (server, listen) = SoftFabric::new(server);
    let at = listen.local_addr();
    let client = if dual {
        UdpLink::dial(at, CHANNELS)
    } else {
        UdpLink::listen(([127, 0, 0, 1], 0).into(), CHANNELS)
    };
    let (client, _) = SoftFabric::new(client.unwrap());
    #[expect(clippy::disallowed_methods, reason = "real time")]
    let pass = |d: Nanos| std::thread::sleep(Duration::from_nanos(d.0 / 10));
    (Box::new(client), Box::new(server), Box::new(pass))
}

#[test]
fn a_client_and_a_server_over_udp() {
    fabric_conformance(|| over_udp(true));
}

#[test]
fn two_servers_over_udp() {
    fabric_conformance(|| over_udp(false));
}
