use super::{Ledger, spread, window};
use crate::reliability::{ChannelView, Channels, Conditions, Loss, Status};
use crate::types::{Channel, Nanos};
use proptest::prelude::*;
use std::ops::Range;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const RTT: u64 = 10 * MS;
/// A packet a microsecond over 10 ms and two channels: the window is RTT/512, between channels RTT/2.
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
const WINDOW: u64 = RTT / 512;

/// Packets 0 to `n` left from time 0 on, in turns of ten on two channels.
fn sent(n: u32) -> Ledger {
    let mut l = Ledger::new(2);
    for first in (0..n).step_by(10) {
        l.send(Nanos(0), first, 10, PATH.packet_time_ps, Channel((first / 10 % 2) as u8));
    }
    l
}

fn report(l: &mut Ledger, at: u64, window: Range<u32>, missing: &[Range<u32>]) -> u32 {
    l.on_status(Nanos(at), &Status::listed(window.start, window, missing), &PATH)
}

/// Checks that nothing is presumed lost before `at`, and what is then.
fn lost_at(l: &mut Ledger, at: u64) -> Vec<Range<u32>> {
    assert_eq!(l.presume_at(&PATH), Some(Nanos(at)));
    l.presume(Nanos(at - 1), &PATH);
    assert_eq!(l.presumed_lost(), 0);
    l.presume(Nanos(at), &PATH);
    l.lost.iter().map(|run| run.first..run.end()).collect()
}

#[test]
fn the_windows_are_what_they_say() {
    assert_eq!((window(&PATH), spread(&PATH)), (Nanos(WINDOW), Nanos(RTT / 2)));
    let slow = Conditions { packet_time_ps: 100_000_000, ..PATH };
    assert_eq!(window(&slow), Nanos(800 * US));
    let slower = Conditions { packet_time_ps: 1_000_000_000, ..PATH };
    assert_eq!(window(&slower), Nanos(RTT / 8));
    let mut late = PATH;
    late.channels.reordering = Nanos(4 * MS);
    assert_eq!((window(&late), spread(&late)), (Nanos(5 * MS), Nanos(5 * MS)));
    late.channels.reordering = Nanos(60 * MS);
    assert_eq!(window(&late), Nanos(RTT), "never above the round trip");
}

#[test]
fn a_later_packet_of_the_channel_shows_a_loss_after_the_window() {
    let mut l = sent(100);
    // 3 is missing; 9 is the last of its channel that is reported.
    report(&mut l, RTT + 20 * US, 3..15, std::slice::from_ref(&(3..4)));
    assert_eq!(lost_at(&mut l, RTT + 20 * US + WINDOW - 6 * US), vec![3..4]);
    assert_eq!(l.unacknowledged(), 86);
    // It is sent again on the other channel, once.
    assert_eq!(l.repair(Nanos(RTT + 40 * US), 10, &PATH), Some((3, 1, Channel(1))));
    assert_eq!(l.repair(Nanos(RTT + 40 * US), 10, &PATH), None);
}

#[test]
fn a_packet_of_another_channel_shows_it_later() {
    let mut l = sent(20);
    // All of 10..20 arrived and the last of 0..10 did not.
    report(&mut l, RTT + 20 * US, 8..20, std::slice::from_ref(&(8..10)));
    assert_eq!(lost_at(&mut l, RTT + 20 * US + RTT / 2 - 11 * US), vec![8..9]);
    l.presume(Nanos(2 * RTT), &PATH);
    assert_eq!(l.presumed_lost(), 2);
}

#[test]
fn the_last_packets_are_not_presumed_lost_but_expire() {
    let mut l = sent(20);
    report(&mut l, RTT, 15..15, &[]);
    assert_eq!(l.presume_at(&PATH), None);
    assert_eq!((l.oldest(), l.tail()), (Some(Nanos(15 * US)), Some(Nanos(19 * US))));
    assert_eq!(l.probe_tail(Nanos(2 * RTT), &PATH), Some((19, 1, Channel(0))));
    // Its report shows the others, of which the channel is another.
    report(&mut l, 3 * RTT, 15..20, std::slice::from_ref(&(15..19)));
    l.presume(Nanos(3 * RTT + WINDOW), &PATH);
    assert_eq!(l.presumed_lost(), 4);
}

#[test]
fn a_lost_repair_is_found_in_the_same_way() {
    let mut l = sent(20);
    report(&mut l, RTT, 3..10, std::slice::from_ref(&(3..4)));
    l.presume(Nanos(RTT + WINDOW), &PATH);
    let again = RTT + WINDOW;
    assert_eq!(l.repair(Nanos(again), 10, &PATH), Some((3, 1, Channel(1))));
    l.send(Nanos(again), 20, 10, PATH.packet_time_ps, Channel(1));
    report(&mut l, again + RTT, 3..25, std::slice::from_ref(&(3..4)));
    assert_eq!(lost_at(&mut l, again + RTT + WINDOW - 4 * US - US), vec![3..4]);
}

#[test]
fn a_report_too_soon_after_a_repair_tells_of_the_packet_before() {
    let mut l = sent(20);
    report(&mut l, RTT, 3..10, std::slice::from_ref(&(3..4)));
    l.presume(Nanos(RTT + WINDOW), &PATH);
    l.send(Nanos(RTT + WINDOW), 20, 10, PATH.packet_time_ps, Channel(1));
    assert!(l.repair(Nanos(RTT + WINDOW), 10, &PATH).is_some());
    // 10..30 are on the repair's channel, and left before it; nothing of them is known.
    let soon = RTT + MS;
    assert_eq!(report(&mut l, soon, 10..10, &[]), 1);
    assert_eq!(l.presume_at(&PATH), None, "the repair was not what arrived");
    let mut channels = Channels::new(2);
    l.tell(Nanos(soon), Nanos(RTT), &mut channels);
    // 9 left 6 us later and was reported 1 ms sooner.
    assert_eq!(channels.view().reordering, Nanos(MS + 6 * US));
}

#[test]
fn what_is_reported_while_it_waits_is_not_sent_again() {
    let mut l = sent(20);
    report(&mut l, RTT, 3..10, std::slice::from_ref(&(3..6)));
    l.presume(Nanos(2 * RTT), &PATH);
    assert_eq!(l.presumed_lost(), 3);
    assert_eq!(report(&mut l, 2 * RTT, 5..5, &[]), 2);
    assert_eq!(l.repair(Nanos(2 * RTT), 10, &PATH), Some((5, 1, Channel(1))));
}

#[test]
fn false_late_and_repeated_reports_are_harmless() {
    let mut l = sent(20);
    assert_eq!(report(&mut l, RTT, 20..u32::MAX, &[]), 20, "what was sent, and nothing else");
    assert_eq!(report(&mut l, RTT, 0..20, std::slice::from_ref(&(0..20))), 0);
    assert_eq!((l.unacknowledged(), l.presume_at(&PATH), l.oldest(), l.tail()), (0, None, None, None));
    let mut l = sent(20);
    #[expect(clippy::reversed_empty_ranges, reason = "a peer can say anything")]
    l.on_status(Nanos(0), &Status::listed(0, 9..3, &[7..2, 0..u32::MAX]), &PATH);
    l.on_status(Nanos(0), &Status::listed(0, 0..10, &[8..9, 0..8, 9..u32::MAX]), &PATH);
    assert_eq!(l.unacknowledged(), 12, "what its first range does not name");
}

/// What a test knows of one packet.
#[derive(Clone, Copy, Default)]
struct Packet {
    channel: u8,
    left: u64,
    arrives: Option<u64>,
    told: bool,
}

/// Packets over two channels of which `fate` says how much later than after RTT/2 they arrive, and reports every `period`;
/// `check` sees the ledger after each report.
fn play(
    n: u32,
    period: u64,
    mut fate: impl FnMut(u32) -> Option<u64>,
    mut check: impl FnMut(&Ledger, &[Packet], u64) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut l = sent(n);
    let mut packets: Vec<Packet> = (0..n)
        .map(|p| {
            let left = u64::from(p) * US;
            let arrives = fate(p).map(|late| left + RTT / 2 + late);
            Packet { channel: (p / 10 % 2) as u8, left, arrives, told: false }
        })
        .collect();
    let end = u64::from(n) * US + 2 * RTT;
    for at in (0..end / period).map(|i| i * period) {
        let here = |p: &Packet| p.arrives.is_some_and(|t| t <= at);
        let to = packets.iter().rposition(here).map_or(0, |p| p as u32 + 1);
        let missing: Vec<_> = (0..to).filter(|p| !here(&packets[*p as usize])).map(|p| p..p + 1).collect();
        for p in &mut packets[..to as usize] {
            p.told |= here(p);
        }
        let now = Nanos(at + RTT / 2);
        l.on_status(now, &Status::listed(0, 0..to, &missing), &PATH);
        prop_assert_eq!(l.unacknowledged() as usize, packets.iter().filter(|p| !p.told).count());
        l.presume(now, &PATH);
        check(&l, &packets, now.0)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn delay_within_the_window_is_no_loss(late in prop::collection::vec(0..WINDOW - 3 * US, 200)) {
        play(200, 2 * US, |p| Some(late[p as usize]), |l, _, _| {
            prop_assert_eq!(l.presumed_lost(), 0);
            Ok(())
        })?;
    }

    #[test]
    fn a_loss_is_presumed_a_report_and_a_window_after_a_later_packet_is_reported_and_never_wrongly(
        lost in prop::collection::hash_set(0..200u32, 0..80), period in 1..100u64,
    ) {
        let mut first_told = [[u64::MAX; 200]; 2];
        play(200, period * US, |p| (!lost.contains(&p)).then_some(0), |l, packets, now| {
            for (p, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.told) {
                let told = &mut first_told[usize::from(packet.channel)][p];
                *told = now.min(*told);
            }
            for (p, packet) in packets.iter().enumerate() {
                let presumed = l.lost.iter().any(|run| (run.first..run.end()).contains(&(p as u32)));
                prop_assert!(!presumed || lost.contains(&(p as u32)), "{} arrives", p);
                let later = first_told[usize::from(packet.channel)][p + 1..].iter().min().copied();
                let due = later.is_some_and(|t| t != u64::MAX && t + WINDOW + period * US <= now);
                prop_assert!(presumed || packet.told || !due, "{} left at {}", p, packet.left);
            }
            Ok(())
        })?;
    }
}
