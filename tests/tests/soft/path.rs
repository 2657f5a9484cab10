//! Channels that are late or dead, damage.

use netem::sim::{Direction, Verdict};
use netem::{MemoryConfig, Pair, QpPair};
use sdr_sdk::context::{ContextConfig, QpConfig};
use sdr_sdk::fabric::soft::wire::{PacketType, parse};
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::bed::{Bed, PACKET, RTT, usual};
use sdr_tests::nets::FaultNet;
use sdr_tests::soft::{SoftBed, connection};
use sdr_tests::udp_net::UdpNet;

const MS: Nanos = Nanos::from_millis(1);
const LEN: usize = 400 * PACKET + 77;

#[test]
fn all_that_a_path_does() {
    for path in [
        "rtt=25ms,rate=100Mbit,seed=1",
        "rtt=25ms,rate=100Mbit,loss=1e-2,reorder=0.01,dup=1e-3,corrupt=1e-4,jitter=1ms,seed=2",
        "rtt=25ms,rate=100Mbit,loss=1e-2,burst=16,seed=3",
        "rtt=25ms,rate=100Mbit,dup=0.99,seed=4",
        "rtt=25ms,rate=100Mbit,corrupt=0.05,seed=5",
        "rtt=25ms,rate=100Mbit,loss=0.5,seed=6",
        "rtt=25ms,rate=60Mbit,queue=200KiB,seed=7",
        "rtt=1ms,seed=8",
    ] {
        let mut s = SoftBed::new(path, PACKET, &connection());
        s.bed.exchange(6, LEN);
        let took = s.bed.complete(RTT.mul_div(200, 1));
        println!("{path}: {:.1} RTT, {:?}", took.0 as f64 / RTT.0 as f64, s.endpoints[1].counters());
    }
}

fn channel_of(bytes: &[u8], kind: PacketType) -> Option<Channel> {
    parse(bytes).ok().filter(|(h, _)| h.kind == kind).map(|(h, _)| h.channel)
}

#[test]
fn a_channel_that_is_ten_milliseconds_late() {
    for late in 0..4 {
        let mut s = SoftBed::usual();
        s.net().tap(Direction::A_TO_B, move |f| {
            let hit = channel_of(f.bytes, PacketType::Data) == Some(Channel(late));
            if hit { Verdict::Delay(MS.mul_div(10, 1)) } else { Verdict::Pass }
        });
        s.bed.one_way(0, 6, LEN);
        let took = s.bed.complete(RTT.mul_div(20, 1));
        println!("channel {late} late: {:.1} RTT", took.0 as f64 / RTT.0 as f64);
    }
}

#[test]
fn a_channel_that_is_dead_and_heals() {
    for dead in 0..4 {
        let mut s = SoftBed::usual();
        s.net().tap(Direction::A_TO_B, move |f| {
            let hit =
                f.now < Nanos::from_secs(2) && channel_of(f.bytes, PacketType::Data) == Some(Channel(dead));
            if hit { Verdict::Drop } else { Verdict::Pass }
        });
        s.bed.one_way(0, 6, LEN);
        let took = s.bed.complete(RTT.mul_div(40, 1));
        s.bed.pass(Nanos::from_secs(2));
        s.bed.one_way(0, 6, LEN);
        let healed = s.bed.complete(RTT.mul_div(16, 1));
        println!(
            "channel {dead} dead: {:.1} RTT, healed: {:.1}",
            took.0 as f64 / RTT.0 as f64,
            healed.0 as f64 / RTT.0 as f64
        );
    }
}

/// The link takes nothing for a while, as a socket without room: everything goes on when it does again.
#[test]
fn a_link_without_room_holds_back_and_goes_on() {
    for path in [None, Some("rtt=10ms,rate=50Mbit")] {
        let path = path.map(|p| p.parse().unwrap());
        let config = MemoryConfig { path, buffer: 8_000, ..MemoryConfig::default() };
        let qp = QpConfig::default().payload(PACKET as u32);
        let (qps, halves, endpoints) = QpPair::memory(&config, ContextConfig::default(), &qp).unwrap();
        // No pace: as fast as the link takes it.
        let mut c = connection();
        c.rate = None;
        let mut bed = Bed::over(Pair::over(qps, halves, &c));
        bed.exchange(4, LEN);
        let took = bed.complete(Nanos::from_secs(2));
        let held = bed.pair.qps.net.counters(Direction::A_TO_B).held_back;
        println!("{took}, held back {held} times, {:?}", endpoints[0].counters());
        assert!(held > 10);
    }
}

/// What found no room goes out as soon as the link said, not when something else happens.
#[test]
fn a_socket_without_room_is_asked_again_soon() {
    let took = |every| {
        let (mut pair, [(send, _receive), (_send, receive)]) = UdpNet::ends(&usual()).unwrap();
        pair.net.crowd(every);
        let posted = receive.recv(pair.contexts[1].register(LEN).unwrap(), 8).unwrap();
        pair.touch(1);
        pair.run_until(MS.mul_div(30, 1));
        let _sent = send.send(pair.contexts[0].register(LEN).unwrap().freeze(), None).unwrap();
        pair.touch(0);
        while !posted.bitmap().is_full() {
            assert!(pair.now() < Nanos::from_secs(1) && pair.step());
        }
        pair.now()
    };
    let (clean, crowded) = (took(0), took(2));
    println!("{crowded}, with room {clean}");
    assert!(crowded <= clean + MS, "{crowded}, with room {clean}");
}
