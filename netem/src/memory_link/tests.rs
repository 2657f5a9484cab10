use super::*;
use crate::conformance::{self, fabric_conformance};

const A: Channel = Channel(0);

fn net(path: Option<&str>, buffer: usize) -> MemoryNet {
    let path = path.map(|p| p.parse().unwrap());
    MemoryNet::new(&MemoryConfig { path, buffer, ..MemoryConfig::default() }).unwrap()
}

fn send(link: &mut MemoryLink, now: Nanos, to: SocketAddr, frames: usize, size: usize) -> usize {
    let payload: Vec<u8> = (0..frames * size).map(|i| i as u8).collect();
    link.send(now, A, to, &vec![[7; HEADER]; frames], &payload, size).unwrap()
}

fn received(link: &mut MemoryLink, now: Nanos) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut out = Vec::new();
    while link.recv(now, A, &mut |from, bytes| out.push((from, bytes.to_vec()))) {}
    out
}

#[test]
fn frames_are_handed_over_at_once_and_a_full_buffer_holds_back() {
    let net = net(None, 1000);
    let (mut a, mut b) = (net.end(0), net.end(1));
    assert_eq!(net.wake_at(1), None);
    // 64 + 36 bytes each: the eleventh finds 1000 bytes waiting.
    assert_eq!(send(&mut a, Nanos(5), net.address(1, A), 20, 64), 10);
    assert_eq!((net.wake_at(1), net.wake_at(0)), (Some(Nanos::ZERO), None));
    let got = received(&mut b, Nanos(5));
    assert_eq!(got.len(), 10);
    assert_eq!(got[9].0, net.address(0, A));
    assert!(
        got[9].1[..HEADER] == [7; HEADER]
            && got[9].1[HEADER..] == (576..640).map(|i| i as u8).collect::<Vec<_>>()
    );
    assert_eq!((net.wake_at(1), net.wake_at(0)), (None, Some(Nanos::ZERO)), "room again");
    assert_eq!(send(&mut a, Nanos(5), net.address(1, A), 1, 64), 1);
    assert_eq!(net.wake_at(0), None);
}

#[test]
fn a_path_takes_its_time_and_its_wire_holds_back() {
    let net = net(Some("rtt=10ms,rate=8Mbit"), 10_000);
    let (mut a, mut b) = (net.end(0), net.end(1));
    // 1000 bytes are a millisecond.
    let taken = send(&mut a, Nanos::ZERO, net.address(1, A), 64, 964);
    assert_eq!(taken, 10);
    assert_eq!(net.wake_at(0), Some(Nanos::from_millis(5)), "half of the buffer has left");
    assert_eq!(net.wake_at(1), Some(Nanos::from_millis(6)));
    assert_eq!(received(&mut b, Nanos::from_millis(8)).len(), 3);
    assert_eq!(send(&mut a, Nanos::from_millis(5), net.address(1, A), 64, 964), 5);
    assert_eq!(received(&mut b, Nanos::from_millis(100)).len(), 12);
}

#[test]
fn taps_and_injections_act_on_frames() {
    let net = net(None, 1 << 20);
    let (mut a, mut b) = (net.end(0), net.end(1));
    let to = net.address(1, A);
    let d = Direction::A_TO_B;
    let mut n = 0;
    let ms = Nanos::from_millis(1);
    net.tap(d, move |f| {
        assert_eq!(f.bytes.len(), HEADER + 10);
        n += 1;
        [Verdict::Pass, Verdict::Drop, Verdict::Delay(ms), Verdict::Duplicate(ms), Verdict::Corrupt][n - 1]
    });
    for i in 0..5u8 {
        let _ = a.send(Nanos::ZERO, A, to, &[[i; HEADER]], &[0; 10], 10);
    }
    let firsts = |frames: Vec<(SocketAddr, Vec<u8>)>| frames.iter().map(|f| f.1[20]).collect::<Vec<_>>();
    let now = received(&mut b, Nanos::ZERO);
    let wrong = |f: &[u8]| {
        f.iter()
            .zip([[4; HEADER].as_slice(), &[0; 10]].concat())
            .map(|(a, b)| (a ^ b).count_ones())
            .sum::<u32>()
    };
    assert_eq!(wrong(&now[2].1), 1);
    assert_eq!(firsts(now)[..2], [0, 3]);
    assert_eq!(net.wake_at(1), Some(ms));
    assert_eq!(firsts(received(&mut b, ms)), [2, 3]);
    net.untap(d);

    let stranger: SocketAddr = ([192, 0, 2, 1], 9).into();
    net.inject(d, ms + ms, stranger, b"hello");
    assert!(received(&mut b, ms).is_empty());
    assert_eq!(received(&mut b, ms + ms), [(stranger, b"hello".to_vec())]);

    // Old addresses lead nowhere, long frames vanish.
    net.set_mtu(d, Some(IP_UDP + HEADER + 9));
    assert_eq!(
        send(&mut a, ms, to, 1, 10) + send(&mut a, ms, to, 1, 9) + send(&mut a, ms, stranger, 1, 1),
        3
    );
    net.rebind(0, Channel(2), stranger);
    let _ = a.send(ms, Channel(2), to, &[[1; HEADER]], &[], 0);
    assert_eq!(received(&mut b, ms).iter().map(|f| f.0).collect::<Vec<_>>(), [net.address(0, A), stranger]);
    let c = net.counters(d);
    assert_eq!((c.frames, c.dropped, c.too_long, c.unrouted, c.injected, c.received), (9, 1, 1, 1, 1, 8));
}

/// The software NIC at both ends.
fn nics(net: &MemoryNet) -> conformance::Pair {
    let fabric = |end| Box::new(SoftFabric::new(net.end(end)).0);
    (fabric(0), fabric(1), Box::new(|_| {}))
}

#[test]
fn the_software_nic_is_a_fabric() {
    fabric_conformance(|| nics(&net(None, 1 << 20)));
}

#[test]
fn the_software_nic_is_a_fabric_over_a_path_too() {
    fabric_conformance(|| nics(&net(Some("rtt=10ms,rate=1Gbit"), 50_000)));
}
