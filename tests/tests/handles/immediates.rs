//! User immediates of the queue pair: they ride in fragments, and are there when every fragment is.

use crate::world::{PAYLOAD, Setup, World, pattern};
use netem::sim::{Direction, FrameKind, Granularity, Verdict};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sdr_sdk::ImmLayout;
use sdr_sdk::qp::PostError;
use sdr_sdk::types::{Channel, Nanos, PacketOffset};

const LAYOUTS: [ImmLayout; 2] = [ImmLayout::L10_18_4, ImmLayout::L8_22_2];

fn world(layout: ImmLayout) -> World {
    let mut setup = Setup::default();
    setup.qp.layout = layout;
    setup.qp.user_immediate = true;
    World::new(setup)
}

#[test]
fn a_send_with_enough_packets_carries_its_immediate() {
    for layout in LAYOUTS {
        let mut w = world(layout);
        let ends = w.connect();
        for (i, user) in [0, 1, u32::MAX, 0x8000_0001, 0x1234_5678].into_iter().enumerate() {
            let len = layout.fragments() as usize * PAYLOAD + 9 * i;
            let handle = ends.recv[1].recv(w.empty(1, len), 3).ok().unwrap();
            assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some()));
            assert_eq!(handle.immediate(), None);
            let _sent = ends.send[0].send(w.filled(0, i as u64, len), Some(user)).ok().unwrap();
            assert!(w.until(Nanos::from_secs(1), |_| handle.bitmap().is_full()));
            assert_eq!(handle.immediate(), Some(user), "{layout:?}");
            let mut retire = handle.complete();
            w.until(Nanos::from_millis(20), |_| false);
            assert_eq!(&retire.try_take().unwrap().unwrap()[..], &pattern(i as u64, len)[..]);
        }
    }
}

/// Packets of a stream in any order, some lost: the immediate appears exactly with its last residue.
#[test]
fn a_stream_in_any_order_with_loss_shows_the_immediate_with_its_last_fragment() {
    for (seed, layout) in (0..24).flat_map(|s| LAYOUTS.map(|l| (s, l))) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let fragments = layout.fragments();
        let packets = rng.random_range(fragments..4 * fragments);
        let len = packets as usize * PAYLOAD - rng.random_range(0..PAYLOAD);
        let user: u32 = rng.random();
        let mut w = world(layout);
        let ends = w.connect();
        let handle = ends.recv[1].recv(w.empty(1, len), 5).ok().unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some()));
        let buf = w.filled(0, 0, len);
        let stream = ends.send[0].stream_start(len as u64, Some(user)).ok().unwrap();
        let mut order: Vec<u32> = (0..packets).collect();
        order.shuffle(&mut rng);
        let lost: Vec<u32> = order.iter().copied().filter(|_| rng.random_bool(0.3)).collect();
        let tap = lost.clone();
        w.net.tap(Direction::A_TO_B, Granularity::Packet, move |f| match f.kind {
            FrameKind::Data { first, .. } if tap.contains(&first) => Verdict::Drop,
            _ => Verdict::Pass,
        });
        let extend = |p: u32, channel| {
            let at = p as usize * PAYLOAD;
            let run = buf.slice(at, PAYLOAD.min(len - at));
            stream.extend(PacketOffset(p), &run, Channel(channel)).unwrap();
        };
        let mut residues = vec![false; fragments as usize];
        for &p in &order {
            extend(p, 0);
            w.until(Nanos::from_millis(2), |_| false);
            residues[(p % fragments) as usize] |= !lost.contains(&p);
            let whole = residues.iter().all(|r| *r);
            assert_eq!(handle.immediate(), whole.then_some(user), "seed {seed}, {layout:?}, packet {p}");
        }
        w.net.untap(Direction::A_TO_B);
        for &p in &lost {
            assert!(!handle.bitmap().is_full());
            extend(p, 1);
            w.until(Nanos::from_millis(2), |_| false);
            residues[(p % fragments) as usize] = true;
            let whole = residues.iter().all(|r| *r);
            assert_eq!(handle.immediate(), whole.then_some(user), "seed {seed}, {layout:?}, repair {p}");
        }
        assert!(handle.bitmap().is_full());
        let _sent = stream.end().ok().unwrap();
        let mut retire = handle.complete();
        w.until(Nanos::from_millis(2), |_| false);
        assert_eq!(&retire.try_take().unwrap().unwrap()[..], &pattern(0, len)[..]);
    }
}

#[test]
fn a_stream_that_cannot_carry_its_immediate_does_not_end() {
    for layout in LAYOUTS {
        let mut w = world(layout);
        let ends = w.connect();
        let need = layout.fragments();
        let len = 2 * need as usize * PAYLOAD;
        let handle = ends.recv[1].recv(w.empty(1, len), 1).ok().unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some()));
        let buf = w.filled(0, 0, len);
        let mut stream = ends.send[0].stream_start(len as u64, Some(77)).ok().unwrap();
        // The same residue twice counts once.
        for i in 0..need {
            for p in [i, need + i] {
                let Err(PostError::ImmediateNeedsPackets { buf: back, have, need: n }) = stream.end() else {
                    panic!("{layout:?}: ended before packet {p}")
                };
                assert_eq!((have, n), (if p < need { i } else { i + 1 }, need));
                stream = back;
                stream
                    .extend(PacketOffset(p), &buf.slice(p as usize * PAYLOAD, PAYLOAD), Channel(0))
                    .unwrap();
                if i == need - 1 {
                    break;
                }
            }
        }
        let _sent = stream.end().ok().expect("all residues were sent");
        w.until(Nanos::from_millis(20), |_| false);
        assert_eq!(handle.immediate(), Some(77));
    }
}
