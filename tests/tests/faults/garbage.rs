//! Forged control and data, with valid checksums.

use super::{Bed, usual};
use netem::rng::Random;
use netem::sim::{Direction, Forged, FrameKind, Verdict};
use sdr_sdk::ImmLayout;
use sdr_sdk::connection::TransferError;
use sdr_sdk::control::Datagram;
use sdr_sdk::qp::Closed;
use sdr_sdk::types::{Channel, Generation, MessageId, Nanos, PacketOffset, QueueSet};
use sdr_tests::bed::{PACKET, RTT};
use std::sync::{Arc, Mutex};

const BOTH: [Direction; 2] = [Direction::A_TO_B, Direction::B_TO_A];

fn random_bytes(rng: &mut Random) -> Vec<u8> {
    let len = rng.below(200) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
    // Half of them get past the version and the flags.
    if rng.chance(0.5) && len > 2 {
        (bytes[0], bytes[1]) = (1, bytes[1] & 0x1f);
    }
    bytes
}

/// One to three changes: a bit, a byte, a field of eight bytes, a cut, a part of another one.
fn mutated(rng: &mut Random, seen: &[Vec<u8>]) -> Vec<u8> {
    let pick = |rng: &mut Random| seen[rng.below(seen.len() as u64) as usize].clone();
    let mut bytes = pick(rng);
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(bytes.len().max(1) as u64) as usize;
        match rng.below(5) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
            1 if !bytes.is_empty() => bytes[at] = rng.below(256) as u8,
            2 if bytes.len() >= at + 8 => {
                let near = rng.below(12).wrapping_sub(4).to_be_bytes();
                bytes[at..at + 8].copy_from_slice(&near);
            }
            3 => bytes.truncate(at),
            _ => {
                let other = pick(rng);
                let from = rng.below(other.len().max(1) as u64) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from.min(other.len())..]);
                bytes.truncate(1200);
            }
        }
    }
    bytes
}

/// Ten forged datagrams for each real one in both directions, while messages pass.
fn storm(seed: u64, forge: impl Fn(&mut Random, &[Vec<u8>]) -> Vec<u8>) -> bool {
    let mut c = usual();
    c.connection.grant_deadline = Nanos::from_secs(5);
    let mut bed = Bed::new(c);
    let seen = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    for d in BOTH {
        let log = seen.clone();
        bed.pair.qps.net.tap(d, Default::default(), move |f| {
            if let FrameKind::Control(bytes) = f.kind {
                log.lock().unwrap()[usize::from(d.from)].push(bytes.to_vec());
            }
            Verdict::Pass
        });
    }
    bed.exchange(8, 60 * PACKET);
    let mut rng = Random::new(seed);
    let mut forged = [0, 0];
    let limit = bed.now() + Nanos::from_secs(30);
    while !bed.all_ended() {
        assert!(bed.now() < limit, "seed {seed}: {}", bed.open());
        // The storm passes after half a second, as answers to it are answered by ten more.
        for d in BOTH.into_iter().filter(|_| bed.now() < Nanos::from_millis(500)) {
            let from = usize::from(d.from);
            let known = seen.lock().unwrap()[from].clone();
            while forged[from] < 10 * known.len() {
                forged[from] += 1;
                let at = bed.now() + Nanos(rng.below(1_000_000));
                let control = Forged::Control { q: QueueSet(0), bytes: forge(&mut rng, &known), valid: true };
                bed.pair.qps.net.inject(d, at, control);
            }
        }
        bed.pass(Nanos::from_millis(1));
    }
    let mut protocol = false;
    for end in [0, 1] {
        for r in bed.recvs[end].iter().map(|r| r.result.as_ref().unwrap()) {
            match r {
                // A forged ANNOUNCE may say another length; the bytes are still those of this message.
                Ok(r) => assert!(
                    Bed::holds(1 - end, r.seq.0 as usize, &r.buf[..r.len]),
                    "seed {seed}: wrong byte in message {}",
                    r.seq
                ),
                Err(e) => protocol |= closed_typed(&e.why),
            }
        }
        for i in 0..8 {
            if let Some(Err(e)) = &bed.sends[end][i].result {
                protocol |= closed_typed(e);
            }
        }
    }
    protocol
}

/// True when the connection ended, which only a breach of the protocol or a forged CLOSE may do.
fn closed_typed(e: &TransferError) -> bool {
    match e {
        TransferError::Lost { why: Closed::Protocol(_) | Closed::Peer(_), .. } => true,
        TransferError::Lost { .. } | TransferError::Panicked(_) | TransferError::Closed => panic!("{e:?}"),
        _ => false,
    }
}

#[test]
fn random_control() {
    for seed in 0..10 {
        let ended = storm(seed, |rng, _| random_bytes(rng));
        println!("seed {seed}: ended {ended}");
    }
}

#[test]
fn mutated_control() {
    let ended = (0..60).filter(|&seed| storm(seed, mutated)).count();
    println!("{ended} of 60 ended");
}

/// A real header with frames that are not: what no honest peer says about messages is survived, not punished.
fn mutated_frames(rng: &mut Random, seen: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seen[rng.below(seen.len() as u64) as usize].clone();
    let upper = Datagram::decode(&bytes).unwrap().upper.len();
    let frames: Vec<Vec<u8>> = seen
        .iter()
        .rev()
        .take(50)
        .map(|b| Datagram::decode(b).unwrap().upper.to_vec())
        .filter(|u| !u.is_empty())
        .collect();
    if !frames.is_empty() {
        bytes.truncate(bytes.len() - upper);
        bytes.extend(mutated(rng, &frames));
        bytes.truncate(1200);
    }
    bytes
}

#[test]
fn mutated_frames_do_not_end_the_connection() {
    for seed in 0..20 {
        // A code beyond its limits does.
        let coded = usual().connection.scheme.name() == "hybrid";
        assert!(!storm(seed, mutated_frames) || coded, "seed {seed}");
    }
}

/// Facts that are one datagram old or repeated are harmless, however many: real datagrams played again.
#[test]
fn replayed_control() {
    for seed in 0..4 {
        let replay = |rng: &mut Random, seen: &[Vec<u8>]| seen[rng.below(seen.len() as u64) as usize].clone();
        assert!(!storm(seed, replay), "seed {seed}");
    }
}

#[test]
fn forged_data_for_unarmed_slots_at_100_times_the_rate() {
    let time = |forge: bool| {
        let mut bed = Bed::new(usual());
        bed.one_way(0, 4, 200 * PACKET);
        let start = bed.now();
        let mut rng = Random::new(7);
        while !bed.all_ended() {
            assert!(bed.now() < RTT.mul_div(40, 1), "{}", bed.open());
            // 20 packets a millisecond are real.
            for _ in 0..if forge { 2_000 } else { 0 } {
                // Right slot of a wrong generation, or a wrong slot of any.
                let (slot, generation) = match rng.below(2) {
                    0 => (rng.below(4), 1 + rng.below(1000)),
                    _ => (4 + rng.below(1000), rng.below(3)),
                };
                let offset = PacketOffset(rng.below(300) as u32);
                let packet = Forged::Data {
                    q: QueueSet(0),
                    generation: Generation(generation as u16),
                    channel: Channel(rng.below(4) as u8),
                    imm: ImmLayout::L10_18_4.encode(MessageId(slot as u16), offset, 0),
                    bytes: vec![0xee; PACKET],
                };
                let at = bed.now() + Nanos(rng.below(1_000_000));
                bed.pair.qps.net.inject(Direction::A_TO_B, at, packet);
            }
            bed.pass(Nanos::from_millis(1));
        }
        bed.verify_all();
        bed.now().since(start)
    };
    let (clean, forged) = (time(false), time(true));
    println!("{clean} clean, {forged} under forged data");
    assert!(forged <= clean + Nanos::from_millis(1));
}
