//! Garbage, replays and forgeries at 100 times the data rate, over memory and over sockets.

use netem::rng::Random;
use netem::sim::Direction;
use sdr_sdk::ImmLayout;
use sdr_sdk::connection::TransferError;
use sdr_sdk::fabric::soft::wire::{PacketType, parse};
use sdr_sdk::fabric::soft::{Endpoint, SoftCounters};
use sdr_sdk::types::{Channel, Generation, MessageId, Nanos, PacketOffset};
use sdr_tests::bed::{Bed, PACKET, RTT, usual};
use sdr_tests::soft::{Log, Seen, SoftBed, frame};
use sdr_tests::udp_net::UdpNet;
use std::net::{SocketAddr, UdpSocket};

const MS: Nanos = Nanos::from_millis(1);

/// Frames a millisecond: 100 times the 20 that the pace allows.
const RATE: usize = 2_000;

type Forge = fn(&mut Random, &[Seen]) -> Vec<u8>;

fn pick<'a>(rng: &mut Random, seen: &'a [Seen]) -> &'a Seen {
    &seen[rng.below(seen.len() as u64) as usize]
}

/// Any bytes; half look like a frame at first.
fn garbage(rng: &mut Random, _: &[Seen]) -> Vec<u8> {
    let mut bytes = vec![0; rng.below(1_600) as usize];
    for b in &mut bytes {
        *b = rng.below(256) as u8;
    }
    if rng.chance(0.5) && bytes.len() > 36 {
        bytes[0] = 0x10 | (bytes[0] % 12);
        let len = (bytes.len() - 36) as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
    }
    bytes
}

fn truncated(rng: &mut Random, seen: &[Seen]) -> Vec<u8> {
    let mut bytes = pick(rng, seen).bytes.clone();
    bytes.truncate(rng.below(bytes.len() as u64) as usize);
    bytes
}

fn flipped(rng: &mut Random, seen: &[Seen]) -> Vec<u8> {
    let mut bytes = pick(rng, seen).bytes.clone();
    let at = rng.below(bytes.len() as u64) as usize;
    bytes[at] ^= 1 << rng.below(8);
    bytes
}

/// Not challenges and their answers: who sees those that go to a stranger, and plays them to both sides, is on the path.
fn replayed(rng: &mut Random, seen: &[Seen]) -> Vec<u8> {
    loop {
        let real = pick(rng, seen);
        if matches!(real.header().kind, PacketType::Data | PacketType::Control) {
            return real.bytes.clone();
        }
    }
}

/// The right connection, any type, a token that was guessed.
fn wrong_token(rng: &mut Random, seen: &[Seen]) -> Vec<u8> {
    let mut header = pick(rng, seen).header();
    header.token ^= 1 << rng.below(64);
    header.kind = PacketType::ALL[rng.below(PacketType::ALL.len() as u64) as usize];
    frame(&header, &vec![0xee; rng.below(600) as usize])
}

/// The right token, but nothing that anybody asked for: a channel, generation or slot that does not exist or is not armed, an
/// offset behind the buffer, more bytes than a packet has.
fn wrong_place(rng: &mut Random, seen: &[Seen]) -> Vec<u8> {
    let Some(real) = seen.iter().rev().find(|s| s.header().kind == PacketType::Data) else {
        return garbage(rng, seen);
    };
    let mut header = real.header();
    let (MessageId(slot), _) = ImmLayout::L10_18_4.decode(header.imm);
    let imm = |slot, offset| ImmLayout::L10_18_4.encode(MessageId(slot), PacketOffset(offset), 0);
    let mut len = PACKET;
    match rng.below(6) {
        0 => header.channel = Channel(4 + rng.below(250) as u8),
        1 => header.generation = Generation(1 + rng.below(65_535) as u16),
        2 => header.imm = imm(100 + rng.below(900) as u16, rng.below(300) as u32),
        3 => header.imm = imm(slot, 5_000 + rng.below(200_000) as u32),
        4 => len = PACKET + 1 + rng.below(1_000) as usize,
        _ => len = 0,
    }
    frame(&header, &vec![0xee; len])
}

/// Recorded frames that open connections, and new ones.
fn handshakes(rng: &mut Random, seen: &[Seen]) -> Vec<u8> {
    let mut header = pick(rng, seen).header();
    header.token = rng.below(1 << 20);
    header.kind =
        [PacketType::Hello, PacketType::Probe, PacketType::Retry, PacketType::Accept][rng.below(4) as usize];
    let len = [1_164, 1_164, 100, 8_192][rng.below(4) as usize];
    let mut payload = vec![0; len];
    payload[..8].copy_from_slice(&header.token.to_be_bytes());
    frame(&header, &payload)
}

type Counted = fn(&SoftCounters) -> u64;

/// What storms are made of, and where it is counted.
const KINDS: [(&str, Forge, Counted); 7] = [
    ("garbage", garbage, |c| c.corrupt + c.other_version),
    ("truncated", truncated, |c| c.corrupt),
    ("flipped", flipped, |c| c.corrupt),
    ("replayed", replayed, |c| c.duplicate),
    ("wrong token", wrong_token, |c| c.forged),
    ("wrong place", wrong_place, |c| c.null_key + c.out_of_range),
    ("handshakes", handshakes, |_| u64::MAX),
];

struct Outcome {
    took: Nanos,
    counters: [SoftCounters; 2],
}

/// Ten messages each way, with a storm on both ends from three addresses, one of them the peer's. Returns how long they took.
fn storm(rate: usize, forge: Forge) -> Outcome {
    let mut s = SoftBed::usual();
    let directions = [Direction::A_TO_B, Direction::B_TO_A];
    let logs = directions.map(|d| Log::of(s.net(), d));
    let stranger = |n: u64| SocketAddr::from(([192, 0, 2, n as u8], 1234));
    for end in [0, 1] {
        s.bed.one_way(end, 10, 200 * PACKET);
    }
    s.bed.pass(RTT.mul_div(3, 2));
    let mut rng = Random::new(7);
    let mut from_strangers = [0u64; 2];
    while !s.bed.all_ended() {
        assert!(s.bed.now() < RTT.mul_div(40, 1), "{}", s.bed.open());
        for (d, log) in directions.into_iter().zip(&logs) {
            let peer = s.net().address(d.from.into(), Channel(0));
            log.with(|seen| {
                // Nobody is faster than the path: what is played again has arrived.
                let old = seen.partition_point(|f| f.now + RTT < s.bed.now());
                let seen = &seen[..old];
                for _ in 0..rate {
                    let bytes = forge(&mut rng, seen);
                    let n = rng.below(3);
                    let from = if n == 0 { peer } else { stranger(n) };
                    from_strangers[usize::from(d.from)] += if n == 0 { 0 } else { bytes.len() as u64 };
                    let at = s.bed.now() + Nanos(rng.below(1_000_000));
                    s.net().inject(d, at, from, &bytes);
                }
            });
        }
        s.bed.pass(MS);
    }
    s.bed.verify_all();
    for (d, log) in directions.into_iter().zip(&logs) {
        let out: usize = log.with(|seen| {
            let strange = seen.iter().filter(|f| f.to == stranger(1) || f.to == stranger(2));
            strange.map(|f| f.bytes.len()).sum()
        });
        assert!(out as u64 <= from_strangers[usize::from(1 - d.from)], "{out} bytes to strangers");
        let diverted = |f: &&Seen| {
            let to_stranger = f.to == stranger(1) || f.to == stranger(2);
            to_stranger && matches!(f.header().kind, PacketType::Data | PacketType::Control)
        };
        assert_eq!(log.with(|seen| seen.iter().filter(diverted).count()), 0, "diverted");
    }
    Outcome { took: s.bed.now(), counters: s.endpoints.each_ref().map(Endpoint::counters) }
}

#[test]
fn storms_cost_less_than_a_tenth() {
    let clean = storm(0, garbage).took;
    for (name, forge, counted) in KINDS {
        let Outcome { took, counters } = storm(RATE, forge);
        println!("{name}: {took} against {clean}, {:?}", counters[1]);
        assert!(took <= clean.mul_div(11, 10), "{name}: {took} against {clean}");
        for c in &counters {
            assert!(counted(c) > 10_000, "{name}: not counted: {c:?}");
        }
    }
}

/// A sender that is dead to the world but for a flood of its old frames is silent.
#[test]
fn forged_frames_keep_nobody_alive() {
    let mut s = SoftBed::usual();
    let log = Log::of(s.net(), Direction::A_TO_B);
    s.bed.one_way(0, 2, 200 * PACKET);
    s.bed.pass(MS.mul_div(30, 1));
    s.bed.pair.qps.stop(0, true);
    let mut rng = Random::new(3);
    while s.bed.recvs[1][1].result.is_none() {
        assert!(s.bed.now() < Nanos::from_secs(5), "{}", s.bed.open());
        let now = s.bed.now();
        log.with(|seen| {
            for forge in [garbage, truncated, flipped, wrong_token] as [Forge; 4] {
                let from = s.net().address(0, Channel(0));
                s.net().inject(Direction::A_TO_B, now, from, &forge(&mut rng, seen));
            }
        });
        s.bed.pass(MS);
        s.bed.collect();
    }
    let why = &s.bed.recv_error(1, 1).why;
    assert!(matches!(why, TransferError::Lost { .. }), "{why}");
}

/// Three messages each way over sockets, with a storm on both ends from two strangers' sockets. Returns how long they took.
fn storm_over_sockets(rate: usize, forge: Forge) -> Outcome {
    let mut bed = Bed::<UdpNet>::new(usual());
    let directions = [Direction::A_TO_B, Direction::B_TO_A];
    let logs = directions.map(|d| bed.pair.qps.net.log(d));
    let strangers = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    bed.exchange(3, 200 * PACKET);
    bed.pass(RTT.mul_div(3, 2));
    let (mut rng, mut sent) = (Random::new(7), [0usize; 2]);
    while !bed.all_ended() {
        assert!(bed.now() < RTT.mul_div(40, 1), "{}", bed.open());
        for (d, log) in directions.into_iter().zip(&logs) {
            let frames: Vec<_> = log.with(|seen| {
                let old = seen.partition_point(|f| f.now + RTT < bed.now());
                (0..rate).map(|_| forge(&mut rng, &seen[..old])).collect()
            });
            for (i, stranger) in strangers.iter().enumerate() {
                let his = &frames[i * frames.len() / 2..(i + 1) * frames.len() / 2];
                sent[i] += his.iter().map(Vec::len).sum::<usize>();
                bed.pair.qps.net.attack(d, stranger, his);
            }
        }
        bed.pass(MS);
    }
    bed.verify_all();
    for (stranger, sent) in strangers.iter().zip(sent) {
        stranger.set_nonblocking(true).unwrap();
        let (mut got, mut bytes) = (0, [0; 1 << 16]);
        while let Ok(n) = stranger.recv(&mut bytes) {
            got += n;
            let kind = parse(&bytes[..n]).unwrap().0.kind;
            assert!(!matches!(kind, PacketType::Data | PacketType::Control), "diverted");
        }
        assert!(got <= sent, "{got} bytes for {sent}");
    }
    let counters = bed.pair.qps.net.endpoints.each_ref().map(Endpoint::counters);
    Outcome { took: bed.now(), counters }
}

#[test]
fn storms_over_sockets_cost_less_than_a_tenth() {
    let clean = storm_over_sockets(0, garbage).took;
    for (name, forge, counted) in KINDS {
        let Outcome { took, counters } = storm_over_sockets(RATE, forge);
        println!("{name}: {took} against {clean}, {:?}", counters[1]);
        assert!(took <= clean.mul_div(11, 10), "{name}: {took} against {clean}");
        for c in &counters {
            assert!(counted(c) > 4_000, "{name}: not counted: {c:?}");
        }
    }
}
