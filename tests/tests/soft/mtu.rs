//! Paths that carry less than they did when the connection was made.

use netem::memory_link::MemoryLink;
use netem::sim::{Direction, Verdict};
use netem::{MemoryNet, Pair, QpPair};
use sdr_sdk::connection::TransferError;
use sdr_sdk::context::{ContextConfig, QpConfig};
use sdr_sdk::fabric::soft::wire::{HEADER, PacketType, parse};
use sdr_sdk::fabric::soft::{Endpoint, Link, SoftFabric};
use sdr_sdk::reliability::{Scheme, SrNack, Striped};
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::bed::Bed;
use sdr_tests::soft::{SoftBed, connection, memory};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MS: Nanos = Nanos::from_millis(1);
const LEN: usize = 1 << 20;
const USUAL: &str = "rtt=25ms,rate=100Mbit,seed=1";

/// How each message from end 0 ended, the same at both ends: whole, or with the sizes of its packets. The number of those that
/// did not arrive.
fn outcomes(bed: &Bed<MemoryNet>, from: usize, since: usize, was: u32, now: u32) -> usize {
    let sizes = |e: &TransferError| match e {
        TransferError::PathMtu { was, now, .. } => (*was, *now),
        other => panic!("{other}"),
    };
    let mut failed = 0;
    for i in since..bed.sends[from].len() {
        match (&bed.sends[from][i].result, &bed.recvs[1 - from][i].result) {
            (Some(Ok(_)), Some(Ok(_))) => {}
            (Some(Err(s)), Some(Err(r))) => {
                assert_eq!((sizes(s), sizes(&r.why)), ((was, now), (was, now)), "message {i}");
                assert!(r.buf.is_some(), "the buffer of message {i} came back");
                failed += 1;
            }
            (s, r) => panic!("message {i}: {s:?}, {r:?}"),
        }
    }
    bed.verify();
    failed
}

/// Messages that leave in `f`: how long the longest of their frames is.
fn longest(s: &mut SoftBed, direction: Direction, f: impl FnOnce(&mut SoftBed)) -> usize {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    s.net().tap(direction, move |frame| {
        if parse(frame.bytes).is_ok_and(|(h, _)| h.kind == PacketType::Data) {
            seen.fetch_max(frame.bytes.len() - HEADER, Ordering::Relaxed);
        }
        Verdict::Pass
    });
    f(s);
    s.net().untap(direction);
    most.load(Ordering::Relaxed)
}

#[test]
fn messages_under_way_end_typed_and_later_ones_pass() {
    for (payload, mtu, now) in
        [(4096, 1280, 1152), (8192, 1280, 1152), (8192, 1500, 1408), (8192, 4200, 4096), (1408, 1280, 1152)]
    {
        for path in [USUAL, "rtt=25ms,rate=100Mbit,loss=1e-2,jitter=1ms,seed=2"] {
            let mut s = SoftBed::new(path, payload, &connection());
            s.bed.one_way(0, 8, LEN);
            // The second is under way, the others are granted.
            s.bed.pass(MS.mul_div(200, 1));
            s.net().set_mtu(Direction::A_TO_B, Some(mtu));
            let took = s.bed.finish(Nanos::from_secs(3));
            let failed = outcomes(&s.bed, 0, 0, payload as u32, now);
            let probes = s.endpoints[0].counters().path_probes;
            println!("{payload} to {now}, {path}: {failed} of 8 failed after {took}, {probes} probes");
            assert!((6..8).contains(&failed));
            assert!(probes <= 100);
            let most = longest(&mut s, Direction::A_TO_B, |s| {
                s.bed.one_way(0, 4, LEN);
                s.bed.finish(Nanos::from_secs(3));
            });
            assert_eq!(outcomes(&s.bed, 0, 8, 0, 0), 0);
            assert_eq!(most, now as usize);
        }
    }
}

#[test]
fn a_path_that_narrows_while_nothing_is_sent() {
    let mut s = SoftBed::new(USUAL, 8192, &connection());
    s.bed.one_way(0, 2, LEN);
    s.bed.complete(Nanos::from_secs(2));
    s.bed.pass(Nanos::from_secs(5));
    s.net().set_mtu(Direction::A_TO_B, Some(1280));
    s.net().set_mtu(Direction::B_TO_A, Some(1280));
    s.bed.pass(Nanos::from_secs(5));
    assert_eq!(s.endpoints[0].counters().path_probes, 0, "nothing was in doubt");
    s.bed.one_way(0, 1, LEN);
    s.bed.one_way(1, 1, LEN);
    let took = s.bed.finish(Nanos::from_secs(3));
    println!("{took}");
    assert_eq!(outcomes(&s.bed, 0, 2, 8192, 1152), 1);
    assert_eq!(outcomes(&s.bed, 1, 0, 8192, 1152), 1);
    s.bed.exchange(3, LEN);
    s.bed.finish(Nanos::from_secs(3));
    assert_eq!((outcomes(&s.bed, 0, 3, 0, 0), outcomes(&s.bed, 1, 1, 0, 0)), (0, 0));
}

#[test]
fn the_other_direction_keeps_its_size() {
    let mut s = SoftBed::new(USUAL, 4096, &connection());
    s.bed.exchange(6, LEN);
    s.bed.pass(MS.mul_div(150, 1));
    s.net().set_mtu(Direction::B_TO_A, Some(1280));
    s.bed.finish(Nanos::from_secs(3));
    assert_eq!(outcomes(&s.bed, 0, 0, 0, 0), 0);
    assert!(outcomes(&s.bed, 1, 0, 4096, 1152) > 3);
    for (direction, payload) in [(Direction::A_TO_B, 4096), (Direction::B_TO_A, 1152)] {
        let most = longest(&mut s, direction, |s| {
            s.bed.exchange(2, LEN);
            s.bed.finish(Nanos::from_secs(3));
        });
        assert_eq!(most, payload);
    }
    assert_eq!((outcomes(&s.bed, 0, 6, 0, 0), outcomes(&s.bed, 1, 6, 0, 0)), (0, 0));
}

/// It narrows again; and that it is wide again is not looked for.
#[test]
fn one_step_after_the_other_and_never_back() {
    let mut s = SoftBed::new(USUAL, 8192, &connection());
    let mut since = 0;
    for (mtu, was, now) in [(4200, 8192, 4096), (1500, 4096, 1408), (1280, 1408, 1152)] {
        s.net().set_mtu(Direction::A_TO_B, Some(mtu));
        s.bed.one_way(0, 2, LEN);
        s.bed.finish(Nanos::from_secs(3));
        assert_eq!(outcomes(&s.bed, 0, since, was, now), 2);
        s.bed.one_way(0, 2, LEN);
        s.bed.finish(Nanos::from_secs(3));
        assert_eq!(outcomes(&s.bed, 0, since + 2, 0, 0), 0);
        since += 4;
    }
    s.net().set_mtu(Direction::A_TO_B, None);
    let most = longest(&mut s, Direction::A_TO_B, |s| {
        s.bed.one_way(0, 2, LEN);
        s.bed.finish(Nanos::from_secs(3));
    });
    assert_eq!(most, 1152);
}

/// What fits one packet of the new size passes also where its receive was granted with more.
#[test]
fn short_messages_pass_on_old_grants() {
    let mut s = SoftBed::new(USUAL, 8192, &connection());
    for len in [LEN, 700, LEN, 1152, 1153, 0] {
        s.bed.recv(1, LEN);
        s.bed.send(0, len);
    }
    s.net().set_mtu(Direction::A_TO_B, Some(1280));
    s.bed.finish(Nanos::from_secs(3));
    assert_eq!(outcomes(&s.bed, 0, 0, 8192, 1152), 3);
}

#[test]
fn losses_are_not_taken_for_a_smaller_path() {
    for (path, most) in [
        ("rtt=25ms,rate=100Mbit,loss=0.3,seed=1", 4_000),
        ("rtt=25ms,rate=100Mbit,loss=0.3,burst=16,seed=2", 4_000),
        ("rtt=100ms,rate=100Mbit,loss=0.3,seed=3", 4_000),
        (USUAL, 0),
    ] {
        let mut s = SoftBed::new(path, 8192, &connection());
        for _ in 0..20 {
            s.bed.one_way(0, 10, LEN / 4);
            s.bed.finish(Nanos::from_secs(60));
        }
        s.bed.verify_all();
        let probes = s.endpoints[0].counters().path_probes;
        println!("{path}: {probes} probes until {}", s.bed.now());
        assert!(probes <= most);
    }
}

fn schemes() -> [Arc<dyn Scheme>; 5] {
    let ec = Striped::ec(16, 4).unwrap();
    let xor = Striped::xor(16, 4).unwrap();
    [Arc::new(SrNack), Arc::new(Striped::hybrid()), Arc::new(Striped::auto()), Arc::new(ec), Arc::new(xor)]
}

#[test]
fn whatever_the_scheme() {
    for scheme in schemes() {
        let name = scheme.name();
        let mut c = connection();
        c.scheme = scheme;
        let mut s = SoftBed::new("rtt=25ms,rate=100Mbit,loss=1e-2,seed=4", 8192, &c);
        s.bed.one_way(0, 8, LEN);
        s.bed.pass(MS.mul_div(200, 1));
        s.net().set_mtu(Direction::A_TO_B, Some(1500));
        let took = s.bed.finish(Nanos::from_secs(4));
        let failed = outcomes(&s.bed, 0, 0, 8192, 1408);
        println!("{name}: {failed} of 8 failed after {took}");
        assert!(failed > 4);
        s.bed.one_way(0, 4, LEN);
        s.bed.finish(Nanos::from_secs(4));
        assert_eq!(outcomes(&s.bed, 0, 8, 0, 0), 0);

        let mut s = SoftBed::new("rtt=25ms,rate=100Mbit,loss=0.3,seed=5", 8192, &c);
        for _ in 0..20 {
            s.bed.one_way(0, 10, LEN / 4);
            s.bed.finish(Nanos::from_secs(60));
        }
        s.bed.verify_all();
        println!("{name}: {} probes until {}", s.endpoints[0].counters().path_probes, s.bed.now());
    }
}

/// Nothing passes in one direction for a while: no size is to blame, and the questions stay few.
#[test]
fn silence_says_nothing_of_sizes() {
    let mut s = SoftBed::new(USUAL, 8192, &connection());
    s.bed.one_way(0, 8, LEN);
    s.bed.pass(MS.mul_div(100, 1));
    s.net().tap(Direction::A_TO_B, |_| Verdict::Drop);
    s.bed.pass(MS.mul_div(2_500, 1));
    s.net().untap(Direction::A_TO_B);
    s.bed.finish(Nanos::from_secs(5));
    s.bed.verify_all();
    let probes = s.endpoints[0].counters().path_probes;
    println!("{probes} probes");
    assert!((1..=100).contains(&probes));
}

/// A link that refuses what is longer than its device takes, as a socket does with EMSGSIZE.
struct Device {
    link: MemoryLink,
    mtu: Arc<AtomicUsize>,
}

impl Link for Device {
    fn channels(&self) -> u8 {
        self.link.channels()
    }

    fn max_payload(&self) -> usize {
        self.link.max_payload()
    }

    fn local_addr(&self) -> SocketAddr {
        self.link.local_addr()
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
        let fits = HEADER + size.min(payload.len()) + 28 <= self.mtu.load(Ordering::Relaxed);
        if fits { self.link.send(now, ch, to, headers, payload, size) } else { None }
    }

    fn recv(&mut self, now: Nanos, ch: Channel, f: &mut dyn FnMut(SocketAddr, &[u8])) -> bool {
        self.link.recv(now, ch, f)
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.link.wake_at()
    }
}

#[test]
fn a_device_that_refuses_what_it_took_before() {
    let net = MemoryNet::new(&memory(USUAL)).unwrap();
    let mtu = Arc::new(AtomicUsize::new(9_000));
    let (a, ea): (_, Endpoint) = SoftFabric::new(Device { link: net.end(0), mtu: mtu.clone() });
    let (b, _) = SoftFabric::new(net.end(1));
    let qp = QpConfig::default().payload(8192);
    let (qps, halves) = QpPair::over(net, [Box::new(a), Box::new(b)], ContextConfig::default(), &qp).unwrap();
    let mut bed = Bed::over(Pair::over(qps, halves, &connection()));
    bed.one_way(0, 8, LEN);
    bed.pass(MS.mul_div(200, 1));
    mtu.store(1_500, Ordering::Relaxed);
    let took = bed.finish(Nanos::from_secs(2));
    let failed = outcomes(&bed, 0, 0, 8192, 1408);
    println!("{failed} of 8 failed after {took}, {:?}", ea.counters());
    assert!((5..8).contains(&failed) && ea.counters().refused > 0);
    bed.one_way(0, 4, LEN);
    bed.finish(Nanos::from_secs(2));
    assert_eq!(outcomes(&bed, 0, 8, 0, 0), 0);
}
