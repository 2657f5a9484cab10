use super::{ChannelState, Channels, DEAD_PACKETS, PROBES, SUSPECT_PACKETS};
use crate::types::{Channel, Nanos};
use ChannelState::{Dead, Good, Probing, Suspect};

const RTT: Nanos = Nanos::from_millis(25);

fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

fn states(c: &Channels) -> Vec<ChannelState> {
    (0..c.all.len()).map(|i| c.state(Channel(i as u8))).collect()
}

/// Three channels, of which 1 was found dead at 60 ms.
fn one_dead() -> Channels {
    let mut c = Channels::new(3);
    c.lost(Channel(1), DEAD_PACKETS, ms(10), ms(20));
    c.arrived(Channel(0), ms(21));
    c.arrived(Channel(2), ms(21));
    c.poll(ms(60), RTT);
    assert_eq!(states(&c), [Good, Dead, Good]);
    c
}

#[test]
fn losses_in_a_row_make_a_channel_suspect_and_an_arrival_good() {
    let mut c = Channels::new(2);
    c.lost(Channel(1), SUSPECT_PACKETS - 1, ms(10), ms(11));
    c.poll(ms(40), RTT);
    assert_eq!(states(&c), [Good, Good]);
    c.lost(Channel(1), 1, ms(12), ms(12));
    c.poll(ms(40), RTT);
    assert_eq!(states(&c), [Good, Suspect]);
    assert_eq!(c.view().home(1), Channel(1), "it still carries what is its own");
    assert_eq!(c.view().other(Channel(0), 0), Channel(1), "there is no good one beside");
    c.arrived(Channel(1), ms(13));
    c.poll(ms(41), RTT);
    assert_eq!(states(&c), [Good, Good]);
    c.lost(Channel(1), 100, ms(5), ms(12));
    c.poll(ms(99), RTT);
    assert_eq!(states(&c), [Good, Good], "what left later arrived");
}

#[test]
fn a_channel_dies_of_enough_packets_over_enough_time_while_another_delivers() {
    for (packets, at, other, dies) in [
        (DEAD_PACKETS, 35, 11, true),
        (DEAD_PACKETS - 1, 35, 11, false),
        (DEAD_PACKETS, 34, 11, false),
        (DEAD_PACKETS, 35, 10, false),
    ] {
        let mut c = Channels::new(2);
        c.lost(Channel(1), packets, ms(10), ms(10));
        c.arrived(Channel(0), ms(other));
        c.poll(ms(at), RTT);
        let state = if dies { Dead } else { Suspect };
        assert_eq!(c.state(Channel(1)), state, "{packets} at {at}, the other at {other}");
    }
}

#[test]
fn one_channel_is_always_in_use() {
    let mut c = Channels::new(2);
    c.lost(Channel(0), 1_000, ms(10), ms(20));
    c.lost(Channel(1), 1_000, ms(10), ms(20));
    c.poll(ms(1_000), RTT);
    assert_eq!(states(&c), [Suspect, Suspect]);
    let mut c = one_dead();
    for ch in [0, 2] {
        c.lost(Channel(ch), 1_000, ms(100), ms(200));
    }
    c.poll(ms(1_000), RTT);
    assert_eq!(states(&c), [Suspect, Dead, Suspect]);
    assert_eq!(c.view().other(Channel(0), 5), Channel(2));
    let mut c = Channels::new(1);
    c.lost(Channel(0), 1_000, ms(10), ms(20));
    c.poll(ms(1_000), RTT);
    assert_eq!((c.state(Channel(0)), c.view().other(Channel(0), 3)), (Suspect, Channel(0)));
}

#[test]
fn a_dead_channel_carries_nothing_but_a_packet_now_and_then() {
    let mut c = one_dead();
    let homes: Vec<_> = (0..9).map(|chunk| c.view().home(chunk).0).collect();
    assert!(!homes.contains(&1) && homes.contains(&0) && homes.contains(&2), "{homes:?}");
    assert!((0..9).all(|turn| c.view().other(Channel(0), turn) == Channel(2)));
    assert_eq!(c.view().probe, None);
    c.poll(ms(159), RTT);
    assert_eq!(c.view().probe, None);
    c.poll(ms(160), RTT);
    assert_eq!(c.view().probe, Some(Channel(1)), "after 100 ms, the longer of the two");
    c.sent(ms(160), Channel(0), RTT);
    assert_eq!(c.view().probe, Some(Channel(1)));
    c.sent(ms(160), Channel(1), RTT);
    assert_eq!(c.view().probe, None);
    c.poll(ms(260), RTT);
    assert_eq!(c.view().probe, Some(Channel(1)));
}

#[test]
fn a_channel_is_good_again_when_its_probes_arrive() {
    let mut c = one_dead();
    for i in 0..u64::from(PROBES) {
        let at = 160 + 10 * i;
        c.poll(ms(at), RTT);
        assert_eq!(c.view().probe, Some(Channel(1)), "probe {i}");
        c.sent(ms(at), Channel(1), RTT);
        c.arrived(Channel(1), ms(at));
        let state = if i + 1 < u64::from(PROBES) { Probing } else { Good };
        assert_eq!(c.state(Channel(1)), state);
    }
    c.poll(ms(200), RTT);
    assert_eq!(c.view().home(1), Channel(1));
}

#[test]
fn a_channel_that_stops_answering_probes_is_dead_again() {
    let mut c = one_dead();
    c.poll(ms(160), RTT);
    c.sent(ms(160), Channel(1), RTT);
    c.arrived(Channel(1), ms(160));
    c.poll(ms(200), RTT);
    assert_eq!(c.state(Channel(1)), Probing);
    c.poll(ms(261), RTT);
    assert_eq!(c.state(Channel(1)), Dead);
}

#[test]
fn a_channel_that_was_only_slow_is_good_again_at_once() {
    let mut c = one_dead();
    c.arrived(Channel(1), ms(9));
    assert_eq!(c.state(Channel(1)), Dead);
    c.arrived(Channel(1), ms(15));
    assert_eq!(c.state(Channel(1)), Good);
}

#[test]
fn delays_are_forgotten_unless_they_come_again() {
    let mut c = Channels::new(2);
    c.late(ms(0), ms(4), ms(8), RTT);
    c.poll(ms(399), RTT);
    assert_eq!((c.view().reordering, c.view().spread), (ms(4), ms(8)));
    c.late(ms(399), ms(3), ms(0), RTT);
    c.poll(ms(400), RTT);
    assert_eq!(c.view().reordering, ms(4));
    c.poll(ms(799), RTT);
    assert_eq!((c.view().reordering, c.view().spread), (ms(3), ms(6)));
}
