//! An address is followed after a nonce came back from it, and not before.

use netem::sim::{Direction, Verdict};
use sdr_sdk::fabric::soft::wire::{PacketType, parse};
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::bed::{PACKET, RTT};
use sdr_tests::soft::{Log, SoftBed, connection, frame};
use std::net::SocketAddr;

const MS: Nanos = Nanos::from_millis(1);
const LEN: usize = 400 * PACKET;

fn elsewhere(port: u16) -> SocketAddr {
    ([203, 0, 113, 5], port).into()
}

/// Frames to addresses for which nothing vouches yet.
fn before_response(log: &Log, back: &Log, at: SocketAddr) -> usize {
    let answered =
        back.with(|seen| seen.iter().find(|s| s.header().kind == PacketType::PathResponse).map(|s| s.now));
    log.with(|seen| {
        let early = seen.iter().filter(|s| s.to == at && answered.is_none_or(|t| s.now < t));
        early.filter(|s| s.header().kind != PacketType::PathChallenge).count()
    })
}

#[test]
fn a_client_that_moves_is_followed() {
    // What moves: each channel of a sender, or of a receiver; and the moment.
    for sender in [0, 1, 2] {
        for channel in 0..4 {
            for at in [5u64, 40, 60] {
                let mut s = SoftBed::usual();
                let there = Log::of(s.net(), Direction::B_TO_A);
                let back = Log::of(s.net(), Direction::A_TO_B);
                let send = |s: &mut SoftBed, n| {
                    (0..2)
                        .filter(|end| sender == 2 || sender == *end)
                        .for_each(|end| s.bed.one_way(end, n, LEN));
                };
                send(&mut s, 4);
                s.bed.pass(MS.mul_div(at, 1));
                s.net().rebind(0, Channel(channel), elsewhere(channel.into()));
                let took = s.bed.complete(RTT.mul_div(20, 1));
                let case = format!("{sender} sends, channel {channel} moves at {at} ms");
                println!("{case}: {took}");
                assert_eq!(before_response(&there, &back, elsewhere(channel.into())), 0, "{case}");
                // Whatever comes later arrives where the client is.
                send(&mut s, 2);
                let lost = s.net().counters(Direction::B_TO_A).unrouted;
                s.bed.complete(RTT.mul_div(6, 1));
                if sender != 1 || channel == 0 {
                    assert_eq!(s.net().counters(Direction::B_TO_A).unrouted, lost, "{case}");
                }
            }
        }
    }
}

/// A receiver has shown one address only; when that moves, no channel may stay behind.
#[test]
fn all_channels_follow_where_one_address_serves_them() {
    let mut s = SoftBed::usual();
    s.bed.one_way(1, 1, LEN);
    s.bed.complete(RTT.mul_div(6, 1));
    s.net().rebind(0, Channel(0), elsewhere(1));
    s.bed.one_way(1, 1, LEN);
    s.bed.complete(RTT.mul_div(20, 1));
    let lost = s.net().counters(Direction::B_TO_A).unrouted;
    s.bed.one_way(1, 4, LEN);
    let took = s.bed.complete(RTT.mul_div(8, 1));
    println!("{took}");
    assert_eq!(
        s.net().counters(Direction::B_TO_A).unrouted,
        lost,
        "some channels still go to the old address"
    );
}

/// Whatever happens to the questions and answers about an address, he who moved is found.
#[test]
fn challenges_lost_late_twice_corrupt() {
    let late = MS.mul_div(75, 1);
    let faults = [1, 2, 3, 10].map(|n| (n, Verdict::Drop)).into_iter();
    let more = [(3, Verdict::Corrupt), (1_000, Verdict::Delay(late)), (1_000, Verdict::Duplicate(late))];
    for kind in [PacketType::PathChallenge, PacketType::PathResponse, PacketType::Confirm] {
        for (times, verdict) in faults.clone().chain(more) {
            let mut s = SoftBed::new("rtt=25ms,rate=100Mbit,seed=1", PACKET, &connection().rate(20_000_000));
            s.bed.exchange(2, LEN / 8);
            s.bed.complete(RTT.mul_div(20, 1));
            for d in [Direction::A_TO_B, Direction::B_TO_A] {
                let mut hits = 0;
                s.net().tap(d, move |f| {
                    let hit = hits < times && parse(f.bytes).is_ok_and(|(h, _)| h.kind == kind);
                    hits += u32::from(hit);
                    if hit { verdict } else { Verdict::Pass }
                });
            }
            (0..4).for_each(|ch| s.net().rebind(0, Channel(ch), elsewhere(ch.into())));
            // His own messages show where he is, or where he only receives a confirmation every half second.
            let (sender, messages) = if kind == PacketType::Confirm { (1, 130) } else { (0, 12) };
            s.bed.one_way(sender, messages, LEN / 8);
            let took = s.bed.complete(RTT.mul_div(200, 1));
            let lost = s.net().counters(Direction::B_TO_A).unrouted;
            s.bed.one_way(1, 4, LEN / 8);
            s.bed.complete(RTT.mul_div(20, 1));
            println!("{kind:?} {times} {verdict:?}: {took}, {lost} lost");
            assert_eq!(s.net().counters(Direction::B_TO_A).unrouted, lost, "{kind:?} {times} {verdict:?}");
        }
    }
}

/// A client that only receives any more has shown an address a channel before: it shows them again and again.
#[test]
fn a_channel_that_moves_while_its_client_only_receives_is_followed() {
    for channel in 0..4 {
        let mut s = SoftBed::usual();
        s.bed.exchange(2, LEN);
        s.bed.complete(RTT.mul_div(20, 1));
        s.net().rebind(0, Channel(channel), elsewhere(channel.into()));
        let unrouted = |s: &SoftBed| s.net().counters(Direction::B_TO_A).unrouted;
        s.bed.one_way(1, 50, LEN);
        s.bed.complete(RTT.mul_div(200, 1));
        let lost = unrouted(&s);
        s.bed.one_way(1, 10, LEN);
        s.bed.complete(RTT.mul_div(40, 1));
        println!("channel {channel}: {lost} lost");
        assert_eq!(unrouted(&s), lost, "channel {channel} still goes to the old address");
    }
}

/// Recorded frames with a valid token, from an address that answers nothing.
#[test]
fn replays_from_elsewhere_divert_nothing() {
    let clean = {
        let mut s = SoftBed::usual();
        s.bed.one_way(0, 4, LEN);
        s.bed.complete(RTT.mul_div(12, 1))
    };
    let mut s = SoftBed::usual();
    let spoofed = elsewhere(9);
    let seen = Log::of(s.net(), Direction::A_TO_B);
    let there = Log::of(s.net(), Direction::B_TO_A);
    s.bed.one_way(0, 4, LEN);
    let start = s.bed.now();
    while !s.bed.all_ended() {
        assert!(s.bed.now() < RTT.mul_div(40, 1), "{}", s.bed.open());
        let (net, now) = (s.net().clone(), s.bed.now());
        seen.with(|seen| {
            for old in seen.iter().rev().step_by(7).take(100) {
                net.inject(Direction::A_TO_B, now, spoofed, &old.bytes);
            }
        });
        s.bed.pass(MS);
    }
    s.bed.verify_all();
    let took = s.bed.now().since(start);
    let to_spoofed = there.with(|seen| seen.iter().filter(|f| f.to == spoofed).cloned().collect::<Vec<_>>());
    println!("{took} against {clean}; {} frames to the spoofed address", to_spoofed.len());
    assert!(to_spoofed.iter().all(|f| f.header().kind == PacketType::PathChallenge));
    assert!(took <= clean.mul_div(11, 10));
}

/// Replays keep coming from elsewhere while the real client moves: he is found all the same.
#[test]
fn replays_do_not_keep_a_client_from_moving() {
    let mut s = SoftBed::usual();
    let seen = Log::of(s.net(), Direction::A_TO_B);
    s.bed.one_way(0, 4, LEN);
    let mut moved = false;
    while !s.bed.all_ended() {
        assert!(s.bed.now() < RTT.mul_div(24, 1), "{}", s.bed.open());
        if !moved && s.bed.now() >= MS.mul_div(50, 1) {
            moved = true;
            (0..4).for_each(|ch| s.net().rebind(0, Channel(ch), elsewhere(100 + u16::from(ch))));
        }
        let (net, now) = (s.net().clone(), s.bed.now());
        seen.with(|seen| {
            for (i, old) in seen.iter().rev().take(200).enumerate() {
                net.inject(Direction::A_TO_B, now + Nanos(i as u64 * 5_000), elsewhere(9), &old.bytes);
            }
        });
        s.bed.pass(MS);
    }
    s.bed.verify_all();
}

/// Nobody gets more bytes than he sent, also not with a frame of one byte that has the right token.
#[test]
fn a_challenge_is_no_longer_than_what_caused_it() {
    for bytes in [0usize, 1, 7, 8, 9, 100] {
        let mut s = SoftBed::usual();
        let seen = Log::of(s.net(), Direction::A_TO_B);
        let there = Log::of(s.net(), Direction::B_TO_A);
        s.bed.one_way(0, 1, LEN);
        s.bed.pass(MS.mul_div(40, 1));
        for kind in PacketType::ALL {
            let mut header = seen.last(PacketType::Data).unwrap().header();
            (header.kind, header.number) = (kind, header.number + 1_000_000 + kind as u64);
            let forged = frame(&header, &vec![0; bytes]);
            let to = elsewhere(kind as u16);
            s.net().inject(Direction::A_TO_B, s.bed.now(), to, &forged);
            s.bed.pass(MS.mul_div(60, 1));
            let out: usize =
                there.with(|seen| seen.iter().filter(|f| f.to == to).map(|f| f.bytes.len()).sum());
            assert!(out <= forged.len(), "{kind:?} of {bytes}: {out} bytes for {}", forged.len());
        }
    }
}

/// A response that guesses, or comes from elsewhere, moves nobody.
#[test]
fn wrong_responses_move_nobody() {
    let mut s = SoftBed::usual();
    let seen = Log::of(s.net(), Direction::A_TO_B);
    let there = Log::of(s.net(), Direction::B_TO_A);
    s.bed.one_way(0, 6, LEN);
    s.bed.pass(MS.mul_div(90, 1));
    let mut header = seen.last(PacketType::Data).unwrap().header();
    header.number += 1_000_000;
    let (x, y) = (elsewhere(1), elsewhere(2));
    s.net().inject(Direction::A_TO_B, s.bed.now(), x, &frame(&header, &[0; 64]));
    s.bed.pass(MS);
    let challenge = there.with(|seen| seen.iter().find(|f| f.to == x).cloned()).unwrap();
    assert_eq!(challenge.header().kind, PacketType::PathChallenge);
    let nonce = parse(&challenge.bytes).unwrap().1.to_vec();
    header.kind = PacketType::PathResponse;
    let now = s.bed.now();
    s.net().inject(Direction::A_TO_B, now, x, &frame(&header, &[0; 8]));
    s.net().inject(Direction::A_TO_B, now, x, &frame(&header, &nonce[..7]));
    s.net().inject(Direction::A_TO_B, now, y, &frame(&header, &nonce));
    header.channel = Channel((header.channel.0 + 1) % 4);
    s.net().inject(Direction::A_TO_B, now, x, &frame(&header, &nonce));
    s.bed.complete(RTT.mul_div(12, 1));
    let strays = there.with(|seen| seen.iter().filter(|f| f.to == x || f.to == y).count());
    assert_eq!(strays, 1, "the challenge and nothing else");
}

/// Challenges leave more often than the path takes to bring an answer.
#[test]
fn a_client_moves_on_a_long_path() {
    let mut s = SoftBed::new("rtt=400ms,rate=100Mbit,seed=1", PACKET, &connection());
    s.bed.one_way(0, 40, LEN);
    s.bed.pass(MS.mul_div(900, 1));
    (0..4).for_each(|ch| s.net().rebind(0, Channel(ch), elsewhere(ch.into())));
    let took = s.bed.complete(Nanos::from_secs(8));
    println!("{took}");
}
