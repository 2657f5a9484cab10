//! Random messages over random paths: every byte right, every transfer ends.

use super::schemes;
use netem::rng::Random;
use sdr_sdk::reliability::Scheme;
use sdr_sdk::types::Nanos;
use sdr_tests::bed::{Bed, config_of};
use sdr_tests::nets::FaultNet;
use std::sync::Arc;

/// From 1 to 2^`bits` bytes; each order of magnitude is as likely.
fn size(rng: &mut Random, bits: u64) -> usize {
    let bits = rng.below(bits + 1);
    1 + rng.below(1 << bits) as usize
}

fn path(rng: &mut Random, seed: u64) -> String {
    let mut path = format!("rtt=10ms,rate=200Mbit,seed={seed}");
    let loss = [0.0, 1e-3, 1e-2, 0.05, 0.2, 0.5][rng.below(6) as usize];
    if loss > 0.0 {
        path += &format!(",loss={loss}");
        let burst = [1, 1, 4, 16, 64][rng.below(5) as usize];
        if burst > 1 {
            path += &format!(",burst={burst}");
        }
    }
    for fault in ["jitter=1ms", "reorder=0.05", "dup=0.05", "corrupt=0.02"] {
        if rng.chance(0.25) {
            path += &format!(",{fault}");
        }
    }
    path
}

/// Eight messages at a time, into receives that may be longer.
fn pipelined<N: FaultNet>(scheme: &Arc<dyn Scheme>, seed: u64, bits: u64) {
    let mut rng = Random::new(seed);
    let path = path(&mut rng, seed);
    let mut c = config_of(&path, scheme.clone());
    c.sim.exact_counts = false;
    c.sim.channels = [1, 2, 4][rng.below(3) as usize];
    c.sim.max_payload = [64, 512, 1_024][rng.below(3) as usize];
    c.connection.per_chunk = [1, 4, 16, 64][rng.below(4) as usize];
    c.connection.rate = rng.chance(0.8).then_some(150_000_000);
    c.connection.progress_deadline = Nanos::from_secs(60);
    println!(
        "{} seed {seed}: {path}, {} channels, {} B, {} a chunk, rate {:?}",
        scheme.name(),
        c.sim.channels,
        c.sim.max_payload,
        c.connection.per_chunk,
        c.connection.rate
    );
    let most = c.sim.max_payload as usize * (1 << 13);
    let mut bed = Bed::<N>::new(c);
    for _ in 0..8 + rng.below(8) {
        let len = size(&mut rng, bits).min(most);
        let longer = if rng.chance(0.3) { size(&mut rng, 14) } else { 0 };
        bed.recv(1, len + longer);
        bed.send(0, len);
    }
    bed.complete(Nanos::from_secs(120));
}

fn all<N: FaultNet>(seeds: std::ops::Range<u64>, bits: u64) {
    for scheme in schemes() {
        for seed in seeds.clone() {
            pipelined::<N>(&scheme, seed, bits);
        }
    }
}

#[test]
fn short_messages() {
    all::<netem::SimNet>(0..40, 16);
}

#[test]
fn long_messages() {
    all::<netem::SimNet>(100..106, 22);
}

#[cfg(target_os = "linux")]
#[test]
fn over_software_nics() {
    all::<sdr_tests::soft_net::SoftNet>(200..206, 16);
}
