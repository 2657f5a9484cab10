//! All interleavings of a worker and a host that takes a slot back; how to run them stands in `bitmap/loom_tests.rs`.

use super::*;
use crate::bitmap::{Bitmap, Shape};
use crate::types::{MessageId, QueueSet};
use loom::thread;

fn spec(generations: u32) -> QueueSpec {
    let layout = ImmLayout::L10_18_4;
    QueueSpec { layout, channels: 1, slots: 1, generations, payload: 1, user_immediate: false }
}

fn at(seq: u64, generations: u64) -> SlotGen {
    SlotGen { slot: MessageId(0), generation: Generation((seq % generations) as u16), seq: Seq(seq) }
}

/// One packet of generation 0, in a section of its own.
fn record(epoch: &mut WorkerEpoch, table: &SlotTable, packet: u32) {
    let imm = table.layout.encode(MessageId(0), PacketOffset(packet), 0);
    let section = epoch.enter();
    let mut batch = section.batch(table, Channel(0)).unwrap();
    batch.record(&CompletionRun { q: QueueSet(0), generation: Generation(0), imm, packets: 1, user: 0 });
}

fn worker(mut epoch: WorkerEpoch, table: Arc<SlotTable>) -> thread::JoinHandle<()> {
    thread::spawn(move || record(&mut epoch, &table, 0))
}

#[test]
fn loom_an_armed_slot_is_seen_whole() {
    loom::model(|| {
        let (epochs, mut workers) = WorkerEpochs::new(1);
        let mut control = SlotControl::new(&spec(1), Seq(0), &epochs);
        let worker = worker(workers.remove(0), control.table().clone());
        let bits = Arc::new(PacketBits::new(Shape::new(1, 1)));
        control.arm(at(7, 1), bits.clone()).unwrap();
        worker.join().unwrap();
        let c = control.counters();
        assert_eq!((c.fresh, c.late), if bits.packets(ChunkIndex(0)) == 1 { (1, 0) } else { (0, 1) });
        assert_eq!(control.progress(Channel(0)).map(|p| p.any.seq), (c.fresh == 1).then_some(Seq(7)));
    });
}

/// Waits as the host must.
fn after_a_grace(control: &mut SlotControl) -> Arc<PacketBits> {
    let mut back = None;
    while control.reclaim(|_, bits| back = Some(bits)) {
        thread::yield_now();
    }
    back.unwrap()
}

/// The mutant: the closed slot is free at once.
fn at_once(control: &mut SlotControl) -> Arc<PacketBits> {
    control.closed.clear();
    control.held[0].stamp = FREE;
    let slot = &control.table.slots[0];
    slot.stamp.store(FREE, Ordering::Relaxed);
    // SAFETY: the slot's count, taken over once. The test holds another, so that the worker's late access is to live
    // memory also here, where the host is wrong.
    unsafe { Arc::from_raw(slot.bits.load(Ordering::Relaxed)) }
}

/// The host retires generation 0 and arms the same bits for generation 1, while a packet of generation 0 may stand
/// between its check and its OR.
fn rearm(take_back: fn(&mut SlotControl) -> Arc<PacketBits>) {
    loom::model(move || {
        let (epochs, mut workers) = WorkerEpochs::new(1);
        let mut control = SlotControl::new(&spec(2), Seq(0), &epochs);
        let bits = Arc::new(PacketBits::new(Shape::new(1, 1)));
        control.arm(at(0, 2), bits.clone()).unwrap();
        let worker = worker(workers.remove(0), control.table().clone());
        assert!(control.close(at(0, 2)));
        let again = take_back(&mut control);
        again.clear_shared();
        control.arm(at(1, 2), again).unwrap();
        worker.join().unwrap();
        assert_eq!(bits.packets(ChunkIndex(0)), 0, "stale bit");
        assert_eq!(Bitmap::new(&*bits).count(), 0, "stale chunk");
    });
}

#[test]
fn loom_no_stale_bit_after_a_grace() {
    rearm(after_a_grace);
}

#[test]
#[should_panic(expected = "stale bit")]
fn loom_stale_bit_without_the_grace() {
    rearm(at_once);
}

#[test]
fn loom_bits_are_unshared_after_a_grace() {
    loom::model(|| {
        let (epochs, mut workers) = WorkerEpochs::new(1);
        let mut control = SlotControl::new(&spec(1), Seq(0), &epochs);
        control.arm(at(0, 1), Arc::new(PacketBits::new(Shape::new(1, 1)))).unwrap();
        let worker = worker(workers.remove(0), control.table().clone());
        assert!(control.close(at(0, 1)));
        let mut bits = after_a_grace(&mut control);
        // Loom's own check: exclusive access while the worker could still OR is reported.
        let known = bits.packets(ChunkIndex(0));
        Arc::get_mut(&mut bits).unwrap().clear();
        drop(bits);
        worker.join().unwrap();
        assert_eq!(known, control.counters().fresh);
    });
}

// In the next two the host is the spawned thread. A worker loads its own sums before it stores them, and loom, which
// remembers one access to an atomic when it looks for races, would not try the worker first on its own account.

/// With one generation only the counts tell old packets from new: the host arms again once all are counted.
#[test]
fn loom_counted_means_checked() {
    loom::model(|| {
        let (epochs, mut workers) = WorkerEpochs::new(1);
        let mut control = SlotControl::new(&spec(1), Seq(0), &epochs);
        let bits = Arc::new(PacketBits::new(Shape::new(1, 1)));
        let (table, new) = (control.table().clone(), bits.clone());
        let host = thread::spawn(move || {
            if control.counted(Generation(0)) == 1 {
                control.arm(at(0, 1), new).unwrap();
            }
        });
        record(&mut workers[0], &table, 0);
        host.join().unwrap();
        assert_eq!(bits.packets(ChunkIndex(0)), 0);
    });
}

#[test]
fn loom_progress_shows_what_arrived_before() {
    loom::model(|| {
        let (epochs, mut workers) = WorkerEpochs::new(1);
        let mut control = SlotControl::new(&spec(1), Seq(0), &epochs);
        control.arm(at(0, 1), Arc::new(PacketBits::new(Shape::new(2, 2)))).unwrap();
        let table = control.table().clone();
        let host = thread::spawn(move || {
            if let Some(p) = control.progress(Channel(0)) {
                assert_eq!(p.any, Mark { seq: Seq(0), offset: PacketOffset(1) });
                assert_eq!(control.packets(at(0, 1), ChunkIndex(0)), 0b10);
            }
        });
        record(&mut workers[0], &table, 1);
        host.join().unwrap();
    });
}
