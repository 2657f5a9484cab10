//! What the software NIC costs: two of them over a link in memory, one thread that alternates between the ends.
//!
//! `cargo run --release -p netem --example soft_nic`

use std::hint::black_box;
use std::time::Instant;

use netem::{MemoryConfig, MemoryNet};
use sdr_sdk::ImmLayout;
use sdr_sdk::fabric::soft::wire::{HEADER, Header, PacketType, parse};
use sdr_sdk::fabric::soft::{Link, SoftFabric};
use sdr_sdk::fabric::{Event, Fabric, Grant, Landing, QueueSpec, WriteRun};
use sdr_sdk::memory::Region;
use sdr_sdk::types::{Channel, Generation, MessageId, Nanos, QueueSet, Seq, SlotGen};

const PACKETS: u32 = 1024;
const ROUNDS: u32 = 200;

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds for each of `n`, the best of five.
fn best(n: u64, mut f: impl FnMut()) -> f64 {
    f();
    let once = |f: &mut dyn FnMut()| {
        let start = now();
        f();
        start.elapsed().as_nanos() as f64 / n as f64
    };
    (0..5).map(|_| once(&mut f)).fold(f64::INFINITY, f64::min)
}

fn spec(payload: u32) -> QueueSpec {
    let layout = ImmLayout::L10_18_4;
    QueueSpec { layout, channels: 4, slots: 256, generations: 1 << 16, payload, user_immediate: false }
}

fn packets(payload: usize) -> f64 {
    let net = MemoryNet::new(&MemoryConfig::default()).expect("no path");
    let (mut a, _) = SoftFabric::new(net.end(0));
    let (mut b, _) = SoftFabric::new(net.end(1));
    let spec = spec(payload as u32);
    let (qa, qb) = (a.open(&spec).expect("open"), b.open(&spec).expect("open"));
    a.connect(qa.q, &qb.address).expect("connect");
    b.connect(qb.q, &qa.address).expect("connect");
    let len = PACKETS as usize * payload;
    let (src, dst) = (Region::map(len).expect("memory"), Region::map(len).expect("memory"));
    let src = src.slice(a.register(&src).expect("register"));
    let dst = dst.slice(b.register(&dst).expect("register"));
    let at = SlotGen { slot: MessageId(0), generation: Generation(0), seq: Seq(0) };
    b.arm(qb.q, at, &Landing::data(dst, spec.payload)).expect("arm");
    let (mut runs, mut seen) = (Vec::new(), 0u64);
    let mut none = |_: Event<'_>| {};
    best(u64::from(PACKETS * ROUNDS), || {
        for _ in 0..ROUNDS {
            for first in (0..PACKETS).step_by(64) {
                let ch = Channel((first / 64 % 4) as u8);
                let part = src.slice(first as usize * payload, 64 * payload);
                let run = WriteRun {
                    q: qa.q,
                    at,
                    grant: Grant::default(),
                    first,
                    packets: 64,
                    payload: spec.payload,
                    src: part,
                    user: 0,
                };
                assert_eq!(a.post(Nanos(1), ch, &[run]), 64);
                for ch in (0..4).map(Channel) {
                    a.poll(Nanos(1), ch, &mut none);
                    while b.poll(Nanos(1), ch, &mut none) {}
                    b.take_completions(ch, &mut runs);
                }
                seen += runs.drain(..).map(|r| u64::from(r.packets)).sum::<u64>();
            }
        }
    })
}

fn link_alone(payload: usize) -> f64 {
    let net = MemoryNet::new(&MemoryConfig::default()).expect("no path");
    let (mut a, mut b) = (net.end(0), net.end(1));
    let bytes = vec![1; 64 * payload];
    let headers = [[0; HEADER]; 64];
    let to = net.address(1, Channel(0));
    best(u64::from(PACKETS * ROUNDS), || {
        for _ in 0..PACKETS / 64 * ROUNDS {
            let _ = a.send(Nanos(1), Channel(0), to, &headers, &bytes, payload);
            while b.recv(Nanos(1), Channel(0), &mut |_, frame| {
                black_box(frame);
            }) {}
        }
    })
}

fn header(kind: PacketType) -> Header {
    let (channel, generation) = (Channel(0), Generation(0));
    Header { kind, flags: 0, connection: 7, token: 7, number: 1, channel, generation, imm: 0 }
}

fn checksums(payload: usize) -> f64 {
    let bytes = vec![1; payload];
    let mut frame = vec![0; HEADER];
    frame.extend(&bytes);
    best(u64::from(PACKETS * ROUNDS), || {
        for _ in 0..PACKETS * ROUNDS {
            let mut head = [0; HEADER];
            header(PacketType::Data).write(&mut head, black_box(&bytes));
            frame[..HEADER].copy_from_slice(&head);
            let _ = black_box(parse(black_box(&frame)));
        }
    })
}

/// Frames that a NIC with one connection throws away.
fn garbage(frame: &[u8]) -> f64 {
    let net = MemoryNet::new(&MemoryConfig::default()).expect("no path");
    let (mut b, _) = SoftFabric::new(net.end(1));
    let q: QueueSet = b.open(&spec(4096)).expect("open").q;
    let mut a = net.end(0);
    let to = net.address(1, Channel(0));
    let (head, rest) = frame.split_first_chunk::<HEADER>().expect("a frame");
    let n = best(u64::from(PACKETS * ROUNDS), || {
        for _ in 0..PACKETS * ROUNDS / 64 {
            for _ in 0..64 {
                let _ = a.send(Nanos(1), Channel(0), to, &[*head], rest, rest.len());
            }
            while b.poll(Nanos(1), Channel(0), &mut |_: Event<'_>| {}) {}
        }
    });
    b.close(q);
    n
}

fn main() {
    println!("ns a packet, one core for both ends\n");
    println!("{:>8} {:>8} {:>10} {:>12} {:>10}", "payload", "NIC", "link alone", "2 checksums", "GB/s");
    for payload in [64, 512, 1408, 4096, 8192] {
        let (nic, link, crc) = (packets(payload), link_alone(payload), checksums(payload));
        println!("{payload:>8} {nic:>8.0} {link:>10.0} {crc:>12.0} {:>10.2}", payload as f64 / nic);
    }
    println!("\nns a frame thrown away, the link's cost included");
    let whole = |kind, len: usize| {
        let mut head = [0; HEADER];
        header(kind).write(&mut head, &vec![9; len]);
        [&head[..], &vec![9; len]].concat()
    };
    let mut damaged = whole(PacketType::Data, 1000);
    damaged[500] ^= 1;
    for (name, frame) in [
        ("another version", vec![0xff; 1036]),
        ("no such type", vec![0x1f; 1036]),
        ("damaged, 1 KB", damaged),
        ("unknown connection, 1 KB", whole(PacketType::Data, 1000)),
        ("unknown connection, 8 KB", whole(PacketType::Data, 8192)),
        ("HELLO without cookie", whole(PacketType::Hello, 1164)),
    ] {
        println!("{:>26} {:>6.0}", name, garbage(&frame));
    }
}
