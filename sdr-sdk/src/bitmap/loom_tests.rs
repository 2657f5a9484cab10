//! All interleavings of two writers and a reader.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p sdr-sdk --release loom
//! ```

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// One chunk of two packets, and their payload, which loom watches for unordered access.
struct Shared {
    bits: PacketBits,
    payload: [UnsafeCell<u8>; 2],
}

/// Two workers write a packet each and record it with `record`; the host reads the payload once the byte is set.
fn two_workers(record: fn(&PacketBits, u32) -> u32) {
    loom::model(move || {
        let shared = Arc::new(Shared {
            bits: PacketBits::new(Shape::new(2, 2)),
            payload: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let worker = |packet: u32| {
            let shared = shared.clone();
            thread::spawn(move || {
                // SAFETY: packet i is written by worker i alone, before it is recorded; loom checks that.
                shared.payload[packet as usize].with_mut(|p| unsafe { *p = 1 });
                record(&shared.bits, packet)
            })
        };
        let workers = [worker(0), worker(1)];
        let read = || {
            // SAFETY: the chunk's byte was seen, so both payloads were written before; loom checks that.
            shared.payload.iter().for_each(|cell| cell.with(|p| assert_eq!(unsafe { *p }, 1)));
        };
        if Bitmap::new(&shared.bits).is_full() {
            read();
        }
        let published: u32 = workers.into_iter().map(|w| w.join().unwrap()).sum();
        assert_eq!(published, 1, "exactly one worker completes the chunk");
        assert!(Bitmap::new(&shared.bits).is_full());
        read();
    });
}

#[test]
fn loom_two_workers_publish_a_shared_chunk_once() {
    two_workers(|bits, packet| bits.record(packet, 1).chunks);
}

#[test]
#[should_panic(expected = "exactly one worker completes the chunk")]
fn loom_or_in_two_steps_fails() {
    two_workers(|bits, packet| {
        let old = bits.words[0].load(Ordering::Acquire);
        bits.words[0].store(old | 1 << packet, Ordering::Release);
        bits.publish(0, old | 1 << packet, 1 << packet)
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_relaxed_or_fails() {
    two_workers(|bits, packet| {
        let old = bits.words[0].fetch_or(1 << packet, Ordering::Relaxed);
        bits.publish(0, old | 1 << packet, 1 << packet)
    });
}

#[test]
fn loom_a_duplicate_never_publishes() {
    loom::model(|| {
        let bits = Arc::new(PacketBits::new(Shape::new(2, 2)));
        let other = bits.clone();
        // Packets 0 and 1 here, 0 again there: three records of two packets.
        let worker = thread::spawn(move || other.record(0, 1));
        let done = bits.record(0, 2);
        let other = worker.join().unwrap();
        assert_eq!(done.fresh + other.fresh, 2);
        assert_eq!((done.chunks, other.chunks), (1, 0));
    });
}
