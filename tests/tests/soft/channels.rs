//! A long message of which one channel in four goes dark after a round trip, and what it costs.

use netem::PairConfig;
use netem::sim::{Direction, FrameKind, Verdict};
use sdr_sdk::reliability::SrNack;
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::bed::{Bed, RTT, config_of};
use sdr_tests::nets::FaultNet;
use sdr_tests::soft_net::SoftNet;
use sdr_tests::udp_net::UdpNet;
use std::sync::{Arc, Mutex, PoisonError};

const LEN: usize = 64 << 20;
const RATE: u64 = 1_000_000_000;
const DARK: Channel = Channel(1);

fn config(channels: u8) -> PairConfig {
    let mut c = config_of("rtt=25ms,rate=1Gbit,seed=1", Arc::new(SrNack));
    (c.sim.channels, c.sim.max_payload) = (channels, 4096);
    // As `sdr bench` paces: to the link, without the headers.
    c.connection.rate = Some(RATE / 1000 * 4096 / (4096 + 36) * 1000);
    c.connection.per_chunk = 16;
    c
}

/// Times over the round trip and the bytes at the link's rate.
fn slowdown(took: Nanos) -> f64 {
    let bound = RTT + Nanos(LEN as u64 * 8_000_000_000 / RATE);
    took.0 as f64 / bound.0 as f64
}

fn one_dark_channel_of_four<N: FaultNet>() {
    let mut bed = Bed::<N>::new(config(3));
    bed.one_way(0, 1, LEN);
    let three = slowdown(bed.complete(Nanos::from_secs(5)));

    let mut bed = Bed::<N>::new(config(4));
    let counts = Arc::new(Mutex::new([0u64; 4]));
    let healed = Nanos::from_secs(2);
    let tapped = counts.clone();
    bed.tap(Direction::A_TO_B, move |f| {
        let FrameKind::Data { channel, packets, .. } = f.kind else { return Verdict::Pass };
        tapped.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(channel.0)] += u64::from(packets);
        let dark = channel == DARK && f.now >= RTT && f.now < healed;
        if dark { Verdict::Drop } else { Verdict::Pass }
    });
    let sent = || std::mem::take(&mut *counts.lock().unwrap_or_else(PoisonError::into_inner));
    bed.one_way(0, 1, LEN);
    let dark = slowdown(bed.complete(Nanos::from_secs(5)));
    println!("slowdown {dark:.3}, with three channels {three:.3}; packets by channel {:?}", sent());
    assert!(dark <= 1.5 * three, "slowdown {dark}, with three channels {three}");

    let pause = healed.since(bed.now());
    bed.pass(pause);
    // A probe has to find out, and the message under way keeps to the channels that it began with.
    bed.one_way(0, 2, LEN / 4);
    bed.complete(Nanos::from_secs(5));
    sent();
    bed.one_way(0, 1, LEN / 4);
    bed.complete(Nanos::from_secs(5));
    let by_channel = sent();
    println!("healed: {by_channel:?}");
    let quarter = (LEN / 4 / 4096 / 4) as u64;
    assert!(by_channel.iter().all(|n| *n >= quarter * 9 / 10), "its quarter flows again: {by_channel:?}");
}

#[test]
fn a_dark_channel_of_four_over_memory() {
    one_dark_channel_of_four::<SoftNet>();
}

#[test]
fn a_dark_channel_of_four_over_sockets() {
    one_dark_channel_of_four::<UdpNet>();
}
