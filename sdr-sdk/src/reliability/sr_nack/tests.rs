use super::{Receiver, Sender};
use crate::reliability::arrived::PacketView;
use crate::reliability::selective_repeat::tests::{judge, said};
use crate::reliability::{
    Arrived, ChannelView, Conditions, Loss, MessageSpec, SchemeReceiver, SchemeSender, SendRun, Status,
};
use crate::types::{Channel, ChunkIndex, Nanos, Seq};

const US: u64 = 1_000;
const RTT: u64 = 10_000 * US;
const PATH: Conditions = Conditions {
    rtt: Nanos(RTT),
    min_rtt: Nanos(RTT),
    packet_time_ps: 1_000_000,
    spare_parity: true,
    room: u32::MAX,
    channels: ChannelView::new(2),
    loss: Loss { probability: 1e-2, burst: 16.0 },
    unfinished: crate::reliability::Unfinished { messages: 1, bytes: 0 },
};

fn sender(packets: u32) -> Sender {
    Sender::new(&MessageSpec {
        seq: Seq(0),
        bytes: packets.into(),
        packets,
        payload: 1,
        channels: 2,
        per_chunk: 8,
        extra: 0,
        first_extra: packets.next_multiple_of(8),
    })
}

fn run(first: u32, packets: u32, channel: u8, repair: bool) -> Option<SendRun> {
    Some(SendRun { first, packets, channel: Channel(channel), repair, parity: false })
}

/// Checks that nothing happens before `at`, and takes what happens then.
fn at(s: &mut Sender, at: u64) -> Option<SendRun> {
    assert_eq!(s.wake_at(&PATH), Some(Nanos(at)));
    assert_eq!(s.next(Nanos(at - 1), 100, &PATH), None);
    s.next(Nanos(at), 100, &PATH)
}

#[test]
fn first_transmissions_end_with_chunks_and_go_home() {
    let mut s = sender(20);
    assert_eq!(s.next(Nanos(0), 5, &PATH), run(0, 5, 0, false));
    assert_eq!(s.next(Nanos(0), 100, &PATH), run(5, 3, 0, false));
    assert_eq!(s.next(Nanos(0), 100, &PATH), run(8, 8, 1, false));
    assert_eq!(s.next(Nanos(0), 100, &PATH), run(16, 4, 0, false));
    assert_eq!(s.next(Nanos(0), 100, &PATH), None);
}

#[test]
fn a_silent_peer_gets_the_last_packet_then_everything() {
    let mut s = sender(8);
    assert_eq!(s.next(Nanos(0), 100, &PATH), run(0, 8, 0, false));
    let mut events = Vec::new();
    while events.len() < 10 {
        let now = s.wake_at(&PATH).unwrap();
        assert!(s.next(Nanos(now.0 - 1), 100, &PATH).is_none());
        let run = s.next(now, 100, &PATH).unwrap();
        events.push((now.0 / US, run.first, run.packets));
    }
    let (all, last) = ((0, 7), (7, 1));
    let expected = [
        (15_007, last),
        (30_000, all),
        (30_007, last),
        (45_007, last),
        (60_000, all),
        // Four timeouts, each a round trip or more after the one before: both wait longer.
        (75_007, last),
        (105_007, last),
        (135_007, last),
        (140_000, all),
        (165_007, last),
    ];
    assert_eq!(events, expected.map(|(at, (first, packets))| (at, first, packets)));
}

#[test]
fn a_report_ends_the_patience_with_a_silent_peer() {
    let mut s = sender(8);
    s.next(Nanos(0), 100, &PATH);
    s.timeouts = 9;
    assert_eq!(s.wake_at(&PATH), Some(Nanos(7 * US + 3 * RTT)));
    s.on_status(Nanos(RTT), &Status::listed(0, 0..0, &[]), &PATH);
    assert_eq!(s.timeouts, 9, "it told nothing");
    s.on_status(Nanos(RTT), &Status::listed(1, 1..1, &[]), &PATH);
    assert_eq!(s.wake_at(&PATH), Some(Nanos(7 * US + RTT * 3 / 2)));
}

#[test]
fn a_packet_that_tries_a_dead_channel_follows_on_another() {
    let mut s = sender(20);
    let mut trying = PATH;
    trying.channels.probe = Some(Channel(1));
    assert_eq!(s.next(Nanos(0), 100, &trying), run(0, 1, 1, false));
    assert_eq!(s.next(Nanos(0), 100, &trying), run(1, 7, 0, false), "one at a time");
    assert_eq!(s.next(Nanos(0), 100, &PATH), run(8, 8, 1, false));
    assert_eq!(s.next(Nanos(0), 100, &PATH), run(16, 4, 0, false));
    assert_eq!(at(&mut s, RTT / 4), run(0, 1, 0, true));
}

/// Nothing of the second chunk arrived but its last packet, and all of the others.
struct Gap(u64);

impl PacketView for Gap {
    fn shape(&self) -> crate::bitmap::Shape {
        crate::bitmap::Shape::new(32, 8)
    }

    fn chunk(&self, c: ChunkIndex) -> bool {
        self.packets(c) == 0xff
    }

    fn packets(&self, c: ChunkIndex) -> u64 {
        if c.0 == 1 { self.0 } else { 0xff }
    }
}

#[test]
fn a_hole_is_reported_at_once_and_only_once() {
    let mut arrived = Arrived::new(32);
    let mut r = Receiver::default();
    arrived.update(&Gap(0x80), 8);
    judge(&mut r, Nanos(0), &arrived);
    assert!(!r.urgent());
    arrived.update(&Gap(0x80), 16);
    judge(&mut r, Nanos(0), &arrived);
    assert!(r.urgent());
    let none = Arrived::new(0);
    assert_eq!(said(&mut r, Nanos(0), &arrived, &none).missing.collect::<Vec<_>>(), vec![8..15]);
    assert!(!r.urgent());
    arrived.update(&Gap(0x80), 32);
    judge(&mut r, Nanos(0), &arrived);
    assert!(!r.urgent(), "it is known");
    arrived.recheck(&Gap(0x81), 9);
    judge(&mut r, Nanos(0), &arrived);
    assert!(r.urgent(), "it changed");
}
