//! Histories written by hand: which packet comes when, and what must be in memory afterwards.
//!
//! The network does what the script says for the n-th transmission of a packet, and passes all others after 1 ms. Times
//! are virtual milliseconds; L is 100 of them, and a buffer has four packets of 16 bytes in chunks of two.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use netem::sim::{Direction, Forged, FrameKind, Granularity, Verdict};
use sdr_sdk::qp::{PostError, SendState, Stream};

use sdr_sdk::{Channel, ChunkIndex, Nanos, PacketOffset, QueueSet, Seq};

use crate::rig::{Rig, Shape, arrived};

const WHOLE: usize = 64;

fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

/// By message and packet, what happens to its transmissions in turn.
type Script = HashMap<(u64, u32), Vec<Verdict>>;

/// A rig with a scripted network.
struct History {
    rig: Rig,
    /// No control datagram of the direction comes through.
    deaf: [Arc<AtomicBool>; 2],
    script: Arc<Mutex<Script>>,
}

impl History {
    fn new(shape: Shape) -> Self {
        let rig = Rig::new(shape);
        let deaf: [Arc<AtomicBool>; 2] = Default::default();
        let script = Arc::new(Mutex::new(Script::new()));
        for (deaf, direction) in deaf.iter().zip([Direction::A_TO_B, Direction::B_TO_A]) {
            let (deaf, script) = (deaf.clone(), script.clone());
            rig.pair.net.tap(direction, Granularity::Packet, move |frame| match frame.kind {
                FrameKind::Control(_) if deaf.load(Ordering::Relaxed) => Verdict::Drop,
                FrameKind::Control(_) => Verdict::Pass,
                FrameKind::Data { at, first, .. } => {
                    let mut script = script.lock().unwrap();
                    match script.get_mut(&(at.seq.0, first)) {
                        Some(verdicts) if !verdicts.is_empty() => verdicts.remove(0),
                        _ => Verdict::Pass,
                    }
                }
            });
        }
        Self { rig, deaf, script }
    }

    /// What happens to the next transmission of a packet of which nothing is planned.
    fn plan(&self, seq: u64, packet: u32, verdict: Verdict) {
        self.script.lock().unwrap().entry((seq, packet)).or_default().push(verdict);
    }

    fn deafen(&self, direction: usize, deaf: bool) {
        self.deaf[direction].store(deaf, Ordering::Relaxed);
    }

    /// Time moves on to `n` milliseconds from the start.
    #[track_caller]
    fn until(&mut self, n: u64) {
        assert!(ms(n) >= self.rig.now(), "it is {} already", self.rig.now());
        while self.rig.now() < ms(n) {
            match self.rig.pair.next_event() {
                Some(next) if next <= ms(n) => {
                    self.rig.pair.step();
                }
                _ => self.rig.pair.run_until(ms(n)),
            }
            self.check();
        }
        self.rig.pair.run_until(ms(n));
        self.check();
    }

    #[track_caller]
    fn check(&mut self) {
        let rig = &mut self.rig;
        rig.take_back().and_then(|()| rig.check_idle()).and_then(|()| rig.check_chunks()).unwrap();
    }

    #[track_caller]
    fn post(&mut self, seq: u64) {
        assert_eq!(self.rig.post(0, 2).unwrap(), Some(Seq(seq)));
    }

    #[track_caller]
    fn busy(&mut self) {
        assert_eq!(self.rig.post(0, 2).unwrap(), None, "posted at {}", self.rig.now());
    }

    #[track_caller]
    fn send(&mut self, seq: u64) {
        assert_eq!(self.rig.sender.next_seq(), Seq(seq));
        assert!(self.rig.send(WHOLE).unwrap(), "no grant for {seq}");
    }

    #[track_caller]
    fn complete(&mut self, seq: u64) {
        let which = self.rig.armed.iter().position(|r| r.handle.seq() == Seq(seq));
        self.rig.complete(which.expect("it is posted"));
    }

    /// Which packets of a posted receive are there.
    #[track_caller]
    fn packets(&self, seq: u64) -> Vec<bool> {
        let receive = self.rig.armed.iter().find(|r| r.handle.seq() == Seq(seq));
        arrived(&receive.expect("it is posted").handle)
    }

    #[track_caller]
    fn assert_whole(&self, seq: u64) {
        assert_eq!(self.packets(seq), [true; 4], "message {seq}");
    }

    /// Posts, sends and completes the next message, within 5 ms.
    #[track_caller]
    fn whole(&mut self, seq: u64) {
        self.post(seq);
        let start = self.rig.now().0.div_ceil(1_000_000);
        self.until(start + 2);
        self.send(seq);
        self.until(start + 4);
        self.assert_whole(seq);
        self.complete(seq);
        self.until(start + 5);
    }

    /// Completions that came too late for their slot.
    fn late(&self) -> u64 {
        self.rig.receiver.engine_counters().late
    }

    fn stream(&mut self, seq: u64) -> Stream {
        let stream = self.rig.sender.stream_start(WHOLE as u64, None).expect("a grant");
        assert_eq!(stream.seq(), Seq(seq));
        self.rig.started(Seq(seq), WHOLE);
        stream
    }

    fn extend(&mut self, stream: &Stream, packet: u32) {
        let buf = self.rig.source(stream.seq(), packet as usize * 16, 16);
        stream.extend(PacketOffset(packet), &buf, Channel(0)).unwrap();
        self.rig.pair.touch(0);
    }

    /// All receives are completed and all buffers come back within a millisecond, right and untouched.
    #[track_caller]
    fn end(mut self) {
        while !self.rig.armed.is_empty() {
            self.rig.complete(0);
        }
        let now = self.rig.now().0.div_ceil(1_000_000);
        self.until(now + 1 + self.rig.shape.disarm_delay.0 / 1_000_000);
        assert!(self.rig.leaving.is_empty());
    }
}

#[test]
fn late_packet_after_retire_changes_nothing() {
    let mut h = History::new(Shape::default());
    h.plan(0, 1, Verdict::Duplicate(ms(20)));
    h.whole(0);
    h.until(30);
    assert_eq!(h.late(), 1);
    h.end();
}

#[test]
fn late_packet_in_the_disarm_delay_stays_in_its_own_buffer() {
    let mut h = History::new(Shape { disarm_delay: ms(10), ..Shape::default() });
    h.plan(0, 1, Verdict::Delay(ms(5)));
    h.post(0);
    h.until(2);
    h.send(0);
    h.until(4);
    h.complete(0);
    // The packet comes at 8; the key and with it the buffer goes 10 after the last poll, which was at 3. The packet's
    // bytes are allowed in it.
    h.until(12);
    assert_eq!((h.rig.leaving.len(), h.late()), (1, 1));
    h.until(15);
    assert!(h.rig.leaving.is_empty());
    h.end();
}

#[test]
fn late_packet_after_rearm_does_not_land_in_the_new_buffer() {
    let mut h = History::new(Shape::default());
    h.plan(0, 1, Verdict::Duplicate(ms(20)));
    h.whole(0);
    h.whole(1);
    h.post(2);
    // Slot 0 is armed for message 2, of which nothing has come.
    h.until(30);
    assert_eq!((h.late(), h.packets(2)), (1, vec![false; 4]));
    h.complete(2);
    h.until(31);
    h.end();
}

#[test]
fn late_packet_after_rearm_and_twin_does_not_overwrite_it() {
    let mut h = History::new(Shape::default());
    h.plan(0, 1, Verdict::Duplicate(ms(20)));
    h.whole(0);
    h.whole(1);
    h.post(2);
    h.until(12);
    h.send(2);
    h.until(14);
    h.assert_whole(2);
    h.until(30);
    assert_eq!(h.late(), 1);
    h.end();
}

#[test]
fn late_original_after_its_repair_rearm_and_twin_changes_nothing() {
    let mut h = History::new(Shape { channels: 2, ..Shape::default() });
    h.plan(0, 3, Verdict::Delay(ms(40)));
    h.post(0);
    h.until(2);
    let stream = h.stream(0);
    (0..4).for_each(|p| h.extend(&stream, p));
    h.until(4);
    assert_eq!(h.packets(0), [true, true, true, false]);
    h.extend(&stream, 3);
    h.until(6);
    h.assert_whole(0);
    drop(stream);
    h.rig.pair.touch(0);
    h.complete(0);
    h.until(8);
    h.whole(1);
    h.post(2);
    h.until(16);
    h.send(2);
    h.until(18);
    h.assert_whole(2);
    h.until(50);
    assert_eq!(h.late(), 1);
    h.end();
}

#[test]
fn late_packet_beyond_the_generation_wrap_is_outlived_by_the_drain() {
    let mut h = History::new(Shape::default());
    // Sent at 2, it comes one nanosecond before it is L old.
    h.plan(0, 1, Verdict::Duplicate(Nanos(ms(99).0 - 1)));
    for seq in 0..4 {
        h.whole(seq);
    }
    // Message 4 has slot and generation of message 0, whose `closed` came at 3 and was superseded until 6, when the
    // log's sixteenth of L was over.
    h.busy();
    h.until(101);
    assert_eq!(h.late(), 0);
    h.busy();
    h.until(102);
    assert_eq!(h.late(), 1);
    h.busy();
    h.until(102 + 8);
    h.post(4);
    h.until(112);
    h.send(4);
    h.until(114);
    h.assert_whole(4);
    h.end();
}

#[test]
fn granted_slot_and_generation_is_not_armed_again_before_closed_is_known() {
    let mut h = History::new(Shape { slots: 1, ..Shape::default() });
    h.post(0);
    h.until(2);
    let stream = h.stream(0);
    h.extend(&stream, 0);
    h.until(4);
    h.complete(0);
    h.until(5);
    h.whole(1);
    // Message 0 is open at the sender for far longer than L: it may still post.
    h.until(1_000);
    h.busy();
    drop(stream);
    h.rig.pair.touch(0);
    h.until(1_050);
    h.busy();
    h.until(1_110);
    h.post(2);
    h.end();
}

#[test]
fn receive_withdrawn_before_its_message_began_drains_like_any_other() {
    let mut h = History::new(Shape { slots: 1, generations: 1, ..Shape::default() });
    h.post(0);
    h.complete(0);
    h.until(1);
    h.busy();
    h.until(320);
    // The sender closed it by itself, without a call.
    assert_eq!(h.rig.receiver.peer_closed(), Seq(1));
    h.post(1);
    h.until(323);
    assert!(h.rig.sender.next_grant().is_some_and(|g| g.withdrawn && g.seq == Seq(0)));
    h.send(0);
    h.until(326);
    assert_eq!(h.packets(1), [false; 4]);
    h.send(1);
    h.until(328);
    h.assert_whole(1);
    h.end();
}

#[test]
fn lost_closed_is_asked_for_until_the_slot_is_free() {
    let mut h = History::new(Shape { slots: 1, generations: 1, ..Shape::default() });
    h.post(0);
    h.until(2);
    h.deafen(0, true);
    h.send(0);
    h.until(4);
    h.assert_whole(0);
    h.complete(0);
    h.until(6);
    // Nothing is posted at either end, and the receiver has not heard that message 0 is closed.
    h.until(400);
    assert_eq!(h.rig.receiver.peer_closed(), Seq(0));
    h.deafen(0, false);
    h.until(600);
    assert_eq!(h.rig.receiver.peer_closed(), Seq(1));
    h.until(700);
    h.whole(1);
    h.end();
}

#[test]
fn packet_in_the_queue_of_a_stopped_receiver_does_not_hit_the_new_buffer() {
    let mut h = History::new(Shape { slots: 1, generations: 1, ..Shape::default() });
    h.plan(0, 1, Verdict::Duplicate(ms(50)));
    h.whole(0);
    // The copy comes at 53 into the queue of an end that stands still for L and two seconds more.
    h.rig.pair.stop(1, true);
    h.until(2_110);
    assert_eq!(h.late(), 0);
    h.rig.pair.stop(1, false);
    // Before its first poll the end knows of no time that passed; afterwards the packet is gone.
    h.busy();
    h.until(2_111);
    assert_eq!(h.late(), 1);
    h.post(1);
    h.until(2_114);
    assert_eq!(h.packets(1), [false; 4]);
    h.send(1);
    h.until(2_116);
    h.assert_whole(1);
    h.end();
}

#[test]
fn packet_behind_more_than_one_polls_work_does_not_hit_the_new_buffer() {
    let mut h = History::new(Shape { slots: 1, generations: 1, ..Shape::default() });
    h.plan(0, 1, Verdict::Duplicate(ms(50)));
    h.whole(0);
    h.rig.pair.stop(1, true);
    for _ in 0..5_000 {
        let noise = Forged::Control { q: QueueSet(0), bytes: Vec::new(), valid: false };
        h.rig.pair.net.inject(Direction::A_TO_B, ms(20), noise);
    }
    h.until(2_110);
    h.rig.pair.stop(1, false);
    // The first poll does not come to the packet, so that it must not believe in its age.
    h.rig.pair.step();
    assert_eq!((h.rig.now(), h.late()), (ms(2_110), 0));
    h.busy();
    h.until(2_111);
    assert_eq!(h.late(), 1);
    h.post(1);
    h.until(2_114);
    assert_eq!(h.packets(1), [false; 4]);
    h.end();
}

#[test]
fn closed_in_the_queue_of_a_stopped_receiver_counts_from_when_it_is_read() {
    let mut h = History::new(Shape { slots: 1, generations: 1, ..Shape::default() });
    h.post(0);
    h.until(2);
    h.send(0);
    h.rig.pair.stop(1, true);
    h.until(2_000);
    h.rig.pair.stop(1, false);
    h.until(2_001);
    h.assert_whole(0);
    h.complete(0);
    h.until(2_090);
    h.busy();
    h.end();
}

#[test]
fn equal_counts_free_a_round_without_waiting() {
    let mut h = History::new(Shape { exact: true, ..Shape::default() });
    // Far more messages than L = 100 ms has room for by age: each takes 5 ms, 4 are a turn of the generations.
    for seq in 0..16 {
        h.whole(seq);
    }
    assert!(h.rig.now() <= ms(82));
    h.end();
}

#[test]
fn round_with_a_lost_packet_waits_for_its_age_and_the_next_goes_by_count_again() {
    let mut h = History::new(Shape { exact: true, ..Shape::default() });
    h.plan(0, 1, Verdict::Drop);
    h.post(0);
    h.until(2);
    h.send(0);
    h.until(4);
    assert_eq!(h.packets(0), [true, false, true, true]);
    h.complete(0);
    h.until(5);
    for seq in 1..4 {
        h.whole(seq);
    }
    h.until(90);
    h.busy();
    h.until(130);
    for seq in 4..12 {
        h.whole(seq);
    }
    assert!(h.rig.now() <= ms(175), "{}", h.rig.now());
    h.end();
}

#[test]
fn delayed_packet_holds_the_count_until_it_comes() {
    let mut h = History::new(Shape { exact: true, ..Shape::default() });
    h.plan(0, 1, Verdict::Delay(ms(40)));
    h.post(0);
    h.until(2);
    h.send(0);
    h.until(4);
    h.complete(0);
    h.until(5);
    for seq in 1..4 {
        h.whole(seq);
    }
    h.until(42);
    h.busy();
    h.until(44);
    assert_eq!(h.late(), 1);
    h.whole(4);
    h.end();
}

#[test]
fn stopped_receiver_counts_its_queue_before_it_trusts_equal_counts() {
    let mut h = History::new(Shape { exact: true, slots: 1, ..Shape::default() });
    h.plan(0, 1, Verdict::Delay(ms(40)));
    h.post(0);
    h.until(2);
    h.send(0);
    h.until(4);
    h.complete(0);
    h.until(5);
    h.whole(1);
    h.rig.pair.stop(1, true);
    h.until(60);
    h.rig.pair.stop(1, false);
    h.busy();
    h.until(61);
    h.post(2);
    h.until(64);
    assert_eq!((h.late(), h.packets(2)), (1, vec![false; 4]));
    h.end();
}

#[test]
fn close_with_packets_in_flight_leaves_other_memory_alone() {
    for end in [0, 1] {
        let mut h = History::new(Shape { disarm_delay: ms(3), ..Shape::default() });
        h.plan(0, 1, Verdict::Delay(ms(5)));
        h.plan(0, 2, Verdict::Delay(ms(50)));
        h.post(0);
        h.post(1);
        h.until(2);
        h.send(0);
        let handle = h.rig.sender.send(h.rig.source(Seq(1), 0, 64), None).expect("a grant");
        h.rig.started(Seq(1), WHOLE);
        if end == 0 {
            h.rig.sender.close()
        } else {
            h.rig.receiver.close()
        }
        h.rig.pair.touch(end);
        h.until(5);
        assert!(h.rig.sender.closed().is_some() && h.rig.receiver.closed().is_some());
        assert!(matches!(handle.poll(), SendState::Injected | SendState::Closed(_)));
        // Posted receives stay armed until they are completed; no new ones are taken.
        h.until(9);
        let spare = h.rig.held.remove(0);
        match h.rig.receiver.recv(spare, 1) {
            Err(PostError::Closed(buf, _)) => h.rig.held.push(buf),
            other => panic!("{:?}", other.map(|r| r.seq())),
        }
        h.complete(0);
        h.complete(1);
        h.until(20);
        assert!(h.rig.leaving.is_empty());
        h.until(100);
        h.end();
    }
}

#[test]
fn dropped_receive_gives_up_its_buffer_and_frees_its_slot() {
    let mut h = History::new(Shape { slots: 1, disarm_delay: ms(2), ..Shape::default() });
    h.plan(0, 1, Verdict::Delay(ms(1)));
    h.plan(0, 2, Verdict::Delay(ms(10)));
    h.post(0);
    h.until(2);
    h.send(0);
    h.until(3);
    h.rig.armed.clear();
    h.rig.pair.touch(1);
    h.busy();
    h.until(6);
    // The buffer never comes back; the rest of the region is as it was.
    assert_eq!(h.rig.held.len(), 3);
    h.post(1);
    h.until(20);
    assert_eq!(h.packets(1), [false; 4]);
    h.send(1);
    h.until(22);
    h.assert_whole(1);
    h.end();
}

#[test]
fn dropped_retirement_frees_the_slot_too() {
    let mut h = History::new(Shape { slots: 1, disarm_delay: ms(2), ..Shape::default() });
    h.post(0);
    h.until(2);
    h.send(0);
    h.until(4);
    h.complete(0);
    h.rig.leaving.clear();
    h.until(7);
    h.post(1);
    h.end();
}

/// Whether the memory at `at` is mapped.
fn mapped(at: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a Linux system");
    maps.lines().any(|line| {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        range.is_some_and(|(from, to)| {
            let number = |hex| usize::from_str_radix(hex, 16).expect("an address");
            (number(from)..number(to)).contains(&at)
        })
    })
}

#[test]
fn region_outlives_its_handles_until_the_key_is_gone() {
    let mut h = History::new(Shape { disarm_delay: ms(10), ..Shape::default() });
    // A region of its own, large enough that no other mapping adjoins the page that is looked at.
    let buf = h.rig.pair.contexts[1].register(1 << 20).expect("a megabyte");
    let at = buf.as_ptr().addr() + (1 << 19);
    let (buf, rest) = buf.split_at(WHOLE);
    drop(rest);
    let handle = h.rig.receiver.recv(buf, 2).expect("a slot");
    h.rig.pair.touch(1);
    h.plan(0, 1, Verdict::Delay(ms(5)));
    h.plan(0, 2, Verdict::Delay(ms(30)));
    h.until(2);
    h.send(0);
    h.until(4);
    drop(handle);
    h.rig.pair.touch(1);
    // The key is live until 13: packet 1 lands at 8 in memory that nobody else has. A registration collects.
    h.until(9);
    drop(h.rig.pair.contexts[1].register(4096).expect("a page"));
    assert!(mapped(at));
    h.until(40);
    drop(h.rig.pair.contexts[1].register(4096).expect("a page"));
    assert!(!mapped(at));
    h.end();
}

#[test]
fn everything_dropped_with_packets_in_flight_is_not_touched_afterwards() {
    // By the order in which handles, halves and contexts go; the other end and the net live on.
    for order in 0..4 {
        let mut h = History::new(Shape { disarm_delay: ms(10), ..Shape::default() });
        h.plan(0, 1, Verdict::Delay(ms(5)));
        h.plan(0, 2, Verdict::Duplicate(ms(5)));
        h.post(0);
        h.post(1);
        h.until(2);
        h.send(0);
        h.send(1);
        h.until(3);
        let History { rig, .. } = h;
        let Rig { armed, leaving, sender, receiver, held, mut pair, .. } = rig;
        let mut sender = Some(sender);
        match order {
            0 => drop((armed, receiver, held)),
            1 => drop((receiver, held, armed)),
            2 => armed.into_iter().for_each(|r| std::mem::forget(r.handle)),
            _ => drop((sender.take(), receiver, armed)),
        }
        drop(leaving);
        pair.touch(1);
        pair.run_until(ms(6));
        drop(sender);
        pair.run_until(ms(40));
        let net = pair.net.clone();
        drop(pair);
        assert_eq!(net.counters(1).out_of_range, 0);
    }
}

#[test]
fn copied_chunk_is_the_messages_own_while_a_late_packet_waits() {
    let mut h = History::new(Shape::default());
    h.plan(0, 0, Verdict::Duplicate(ms(20)));
    h.whole(0);
    h.whole(1);
    h.post(2);
    h.until(12);
    h.send(2);
    h.until(14);
    let mut early = [0; 32];
    let receive = h.rig.armed.iter().find(|r| r.handle.seq() == Seq(2)).expect("it is posted");
    assert_eq!(receive.handle.copy_chunk(ChunkIndex(0), &mut early), Some(32));
    assert_eq!(early, h.rig.source(Seq(2), 0, 32)[..]);
    h.until(30);
    let mut again = [0; 32];
    let receive = h.rig.armed.iter().find(|r| r.handle.seq() == Seq(2)).expect("it is posted");
    receive.handle.copy_chunk(ChunkIndex(0), &mut again);
    assert_eq!(early, again);
    h.end();
}
