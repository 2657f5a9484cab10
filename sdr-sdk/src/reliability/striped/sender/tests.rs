use super::*;
use crate::reliability::{ChannelView, Loss, Unfinished};
use crate::types::Seq;
use std::collections::HashMap;

const RTT: Nanos = Nanos::from_millis(10);
/// A packet a microsecond.
const PATH: Conditions = Conditions {
    rtt: RTT,
    min_rtt: RTT,
    packet_time_ps: 1_000_000,
    room: u32::MAX,
    channels: ChannelView::new(1),
    loss: Loss { probability: 1e-2, burst: 1.0 },
    spare_parity: true,
    unfinished: Unfinished { messages: 1, bytes: 0 },
};

/// A message of `packets` with `k` rows of data, 2 of parity and 4 more in reserve, `depth` stripes a group.
fn sender(packets: u32, k: u16, depth: u16, whole: bool) -> Sender {
    let extra = 6 * u32::from(depth) * packets.div_ceil(u32::from(k * depth));
    let m = MessageSpec {
        seq: Seq(0),
        bytes: packets.into(),
        packets,
        payload: 1,
        channels: 1,
        per_chunk: 8,
        extra,
        first_extra: packets.next_multiple_of(8),
    };
    let plan = Plan { k, m: 2, interleave: depth };
    let stripes = Stripes::new(&m, &plan, whole, 6);
    Sender::new(&m, Choice { plan, gap: Nanos::ZERO, copies: 1 }, stripes)
}

/// What it sends until `until`, paced; a request of everything arrives every `every`.
fn run(s: &mut Sender, until: Nanos, every: Option<Nanos>) -> HashMap<(bool, u32), Vec<Nanos>> {
    let mut sent: HashMap<(bool, u32), Vec<Nanos>> = HashMap::new();
    let (mut now, mut ask_at) = (Nanos::ZERO, every.unwrap_or(Nanos::MAX));
    while now < until {
        if ask_at <= now {
            s.on_want(now, &mut std::iter::once(0..u32::MAX), &PATH);
            ask_at = now + every.unwrap_or(Nanos::MAX);
        }
        match s.next(now, 16, &PATH) {
            Some(r) => {
                (r.first..r.first + r.packets).for_each(|p| sent.entry((r.parity, p)).or_default().push(now));
                now += Nanos::from_micros(r.packets.into());
            }
            None => {
                let next = s.wake_at(&PATH).unwrap_or(Nanos::MAX).min(ask_at).max(now + Nanos(1));
                now = next.min(until);
            }
        }
    }
    sent
}

#[test]
fn everything_leaves_once_unasked() {
    for (packets, k, depth, whole) in
        [(1, 1, 1, false), (100, 10, 4, false), (100, 10, 4, true), (97, 8, 3, true)]
    {
        let mut s = sender(packets, k, depth, whole);
        let stripes = s.stripes.unwrap();
        let sent = run(&mut s, RTT, None);
        assert!(sent.values().all(|t| t.len() == 1));
        assert!((0..packets).all(|p| sent.contains_key(&(false, p))));
        let parity: u32 = (0..stripes.groups()).map(|g| stripes.unasked(g).len() as u32).sum();
        assert_eq!(sent.len() as u32, packets + parity);
        // A group's parity follows its data.
        for g in 0..stripes.groups() {
            let data = stripes.data(g).map(|p| sent[&(false, p)][0]).max();
            let parity = stripes.unasked(g).map(|e| sent[&(true, e)][0]).min();
            assert!(data < parity);
        }
    }
}

#[test]
fn a_greedy_peer_is_answered_once_a_round_trip() {
    for (packets, k, depth, whole) in [(1, 1, 1, false), (40, 10, 4, false), (100, 10, 4, true)] {
        let mut s = sender(packets, k, depth, whole);
        let extra = s.stripes.unwrap().parity_packets();
        let sent = run(&mut s, RTT.mul_div(10, 1), Some(Nanos::from_micros(50)));
        assert!(sent.keys().all(|&(parity, p)| p < if parity { extra } else { packets }));
        for (p, times) in &sent {
            assert!(times.windows(3).all(|t| t[2].since(t[0]) >= RTT), "{p:?}: {times:?}");
        }
    }
}

/// The end that was sent again into silence is not sent once more for a request that crossed it.
#[test]
fn a_request_after_long_silence_is_older_than_the_answer() {
    let mut s = sender(10, 10, 1, false);
    let mut sent = 0;
    let mut now = Nanos::ZERO;
    while s.silent < 2 || s.wake_at(&PATH).is_some_and(|t| t <= now) {
        now = now.max(s.wake_at(&PATH).unwrap());
        sent += s.next(now, 64, &PATH).map_or(0, |r| r.packets);
    }
    assert_eq!(sent, 12 + 2 * 10);
    s.on_want(now + Nanos(1), &mut std::iter::once(0..10), &PATH);
    assert_eq!(s.next(now + Nanos(1), 64, &PATH), None, "it is on its way");
    s.on_want(now + RTT, &mut std::iter::once(0..10), &PATH);
    assert!(s.next(now + RTT, 64, &PATH).is_some());
}
