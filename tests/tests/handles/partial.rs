//! Receives that are completed early: what the bitmap says, and what the buffer then holds.

use crate::world::{BYTES, PACKETS, PAYLOAD, Setup, World, pattern};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sdr_sdk::types::{Channel, ChunkIndex, Nanos, PacketOffset};

#[test]
fn a_receive_without_packets_comes_back_untouched() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    let mut buf = w.empty(1, BYTES);
    buf.fill(0xee);
    let handle = ends.recv[1].recv(buf, 4).ok().unwrap();
    w.until(Nanos::from_millis(5), |_| false);
    assert_eq!((handle.bitmap().count(), handle.bitmap().is_full()), (0, false));
    assert!(handle.bitmap().missing().eq(std::iter::once(0..PACKETS / 4)));
    let mut retire = handle.complete();
    w.until(Nanos::from_millis(5), |_| false);
    assert!(retire.try_take().unwrap().unwrap().iter().all(|b| *b == 0xee));
    w.post_send(&ends.send[0], 0).unwrap();
    w.pass(&ends, 1).unwrap();
}

#[test]
fn an_empty_receive_is_whole_from_the_start() {
    let mut w = World::new(Setup::default());
    let ends = w.connect();
    let (none, rest) = w.empty(1, 10).split_at(0);
    let handle = ends.recv[1].recv(none, 1).ok().unwrap();
    assert!(handle.bitmap().is_full() && handle.bitmap().missing().next().is_none());
    assert_eq!((handle.shape().packets(), handle.shape().chunks(), handle.len()), (0, 0, 0));
    assert_eq!((handle.packets(ChunkIndex(0)), handle.copy_chunk(ChunkIndex(0), &mut [])), (0, None));
    assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some()));
    let (none, _) = w.empty(0, 1).split_at(0);
    let _sent = ends.send[0].send(none.freeze(), None).ok().unwrap();
    let mut retire = handle.complete();
    w.until(Nanos::from_millis(5), |_| false);
    assert!(retire.try_take().unwrap().unwrap().is_empty());
    drop(rest);
    w.pass(&ends, 1).unwrap();
}

/// Any packets, any chunk: bitmap, per-packet state, early copies and the buffer tell the same.
#[test]
fn the_buffer_of_an_early_completion_has_the_arrived_packets_and_nothing_else() {
    for seed in 0..200 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let per_chunk = *[1, 3, 4, 7, 33, 64].get(rng.random_range(0..6)).unwrap();
        let packets = rng.random_range(1..150u32);
        let len = packets as usize * PAYLOAD - rng.random_range(0..PAYLOAD);
        let share = rng.random_range(0.0..1.0);
        let arrived: Vec<bool> = (0..packets).map(|_| rng.random_bool(share)).collect();
        let mut w = World::new(Setup::default());
        let ends = w.connect();
        let handle = ends.recv[1].recv(w.empty(1, len), per_chunk).ok().unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| ends.send[0].next_grant().is_some()));
        let stream = ends.send[0].stream_start(len as u64, None).ok().unwrap();
        let (src, bytes) = (w.filled(0, seed, len), pattern(seed, len));
        for p in (0..packets).filter(|&p| arrived[p as usize]) {
            let at = p as usize * PAYLOAD;
            stream.extend(PacketOffset(p), &src.slice(at, PAYLOAD.min(len - at)), Channel(0)).unwrap();
        }
        w.until(Nanos::from_millis(20), |_| false);

        let chunks: Vec<&[bool]> = arrived.chunks(per_chunk as usize).collect();
        let whole: Vec<bool> = chunks.iter().map(|c| c.iter().all(|p| *p)).collect();
        let bitmap = handle.bitmap();
        assert_eq!(bitmap.count() as usize, whole.iter().filter(|c| **c).count(), "seed {seed}");
        let mut snapshot = Default::default();
        bitmap.snapshot_into(&mut snapshot);
        assert!(snapshot.iter().by_vals().eq(whole.iter().copied()), "seed {seed}");
        let missing: Vec<u32> = bitmap.missing().flatten().collect();
        let expected: Vec<u32> = (0..whole.len() as u32).filter(|&c| !whole[c as usize]).collect();
        assert_eq!(missing, expected, "seed {seed}");
        let mut out = vec![0u8; per_chunk as usize * PAYLOAD];
        for (c, packets) in chunks.iter().enumerate() {
            let bits = packets.iter().enumerate().fold(0u64, |b, (i, p)| b | u64::from(*p) << i);
            let at = ChunkIndex(c as u32);
            assert_eq!(handle.packets(at), bits, "seed {seed}, chunk {c}");
            let start = c * per_chunk as usize * PAYLOAD;
            let n = (per_chunk as usize * PAYLOAD).min(len - start);
            assert_eq!(handle.copy_chunk(at, &mut out), whole[c].then_some(n), "seed {seed}, chunk {c}");
            if whole[c] {
                assert_eq!(&out[..n], &bytes[start..start + n], "seed {seed}, chunk {c}");
            }
        }
        for beyond in [whole.len() as u32, u32::MAX] {
            let c = ChunkIndex(beyond);
            assert_eq!((bitmap.is_set(c), handle.packets(c)), (false, 0));
            assert_eq!(handle.copy_chunk(c, &mut out), None);
        }
        let mut retire = handle.complete();
        // What is sent from now on must not arrive.
        let _ = stream.extend(PacketOffset(0), &src.slice(0, PAYLOAD.min(len)), Channel(1));
        let _sent = stream.end().ok().unwrap();
        w.until(Nanos::from_millis(20), |_| false);
        let buf = retire.try_take().unwrap().unwrap();
        for (p, got) in buf.chunks(PAYLOAD).enumerate() {
            // Disarmed at once here, so that the repair above finds no key.
            let at = p * PAYLOAD;
            let right =
                if arrived[p] { got == &bytes[at..at + got.len()] } else { got.iter().all(|b| *b == 0) };
            assert!(right, "seed {seed}, packet {p}");
        }
    }
}

/// From `Retire` on, the buffer is the user's alone, whatever is still on the way.
#[test]
fn packets_in_flight_do_not_touch_a_buffer_that_is_back() {
    for delay in [0, 100, 400, 900] {
        let mut setup = Setup::default();
        setup.sim.disarm_delay = Nanos::from_micros(delay);
        let mut w = World::new(setup);
        let ends = w.connect();
        let handle = w.post_recv(&ends.recv[1]).unwrap();
        let _sent = w.post_send(&ends.send[0], 0).unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| handle.packets(ChunkIndex(0)) != 0));
        let mut retire = handle.complete();
        let mut back = None;
        assert!(w.until(Nanos::from_secs(1), |_| {
            back = back.take().or_else(|| retire.try_take());
            back.is_some()
        }));
        let mut buf = back.unwrap().unwrap();
        buf.fill(0xab);
        w.until(Nanos::from_millis(20), |_| false);
        assert!(buf.iter().all(|b| *b == 0xab), "disarm delay {delay} us");
        // The same memory again, for the next message.
        let handle = ends.recv[1].recv(buf, 4).ok().unwrap();
        let _next = w.post_send(&ends.send[0], 5).unwrap();
        assert!(w.until(Nanos::from_secs(1), |_| handle.bitmap().is_full()));
        let mut retire = handle.complete();
        w.until(Nanos::from_millis(20), |_| false);
        assert_eq!(&retire.try_take().unwrap().unwrap()[..], &pattern(5, BYTES)[..]);
    }
}
