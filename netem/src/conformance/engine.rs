//! What every completion engine must do, told through a fabric that hands over completions as scripted.

use sdr_sdk::ImmLayout;
use sdr_sdk::bitmap::{Bitmap, HostBitmap, Shape};
use sdr_sdk::engine::{CompletionEngine, Mark};
use sdr_sdk::fabric::{
    Caps, CompletionModel, CompletionRun, Event, EventSink, Fabric, FabricError, Grant, Landing, Opened,
    QueueSpec, WriteRun,
};
use sdr_sdk::memory::{Region, RegionId};
use sdr_sdk::types::{
    Channel, ChunkIndex, Generation, MessageId, Nanos, PacketOffset, QueueSet, Seq, SlotGen,
};
use std::sync::Arc;

/// Polls until something has happened for sure.
const PATIENCE: u64 = 100_000;

const SPEC: QueueSpec = QueueSpec {
    layout: ImmLayout::L10_18_4,
    channels: 2,
    slots: 4,
    generations: 2,
    payload: 1024,
    user_immediate: true,
};

const Q: QueueSet = QueueSet(3);
const OTHER: QueueSet = QueueSet(4);

/// Hands over the completions that the body wrote down; carries nothing.
#[derive(Default)]
struct Script([Vec<CompletionRun>; 2]);

const NO_WIRE: FabricError = FabricError::Peer("a script has no wire");

// SAFETY: it touches no memory.
#[expect(unsafe_code, reason = "promises what `Fabric` asks, by doing nothing")]
unsafe impl Fabric for Script {
    fn caps(&self) -> Caps {
        Caps::new(2, SPEC.slots, SPEC.generations, SPEC.payload, true)
    }
    fn completions(&self, _: Channel) -> CompletionModel<'_> {
        CompletionModel::Batch
    }
    fn open(&mut self, _: &QueueSpec) -> Result<Opened, FabricError> {
        Err(NO_WIRE)
    }
    fn connect(&mut self, _: QueueSet, _: &[u8]) -> Result<(), FabricError> {
        Err(NO_WIRE)
    }
    fn close(&mut self, _: QueueSet) {}
    fn register(&mut self, _: &Region) -> Result<RegionId, FabricError> {
        Err(NO_WIRE)
    }
    fn deregister(&mut self, _: RegionId) {}
    fn arm(&mut self, _: QueueSet, _: SlotGen, _: &Landing) -> Result<Option<Grant>, FabricError> {
        Err(NO_WIRE)
    }
    fn disarm(&mut self, _: QueueSet, _: SlotGen) {}
    fn post(&mut self, _: Nanos, _: Channel, _: &[WriteRun]) -> u64 {
        0
    }
    fn control(&mut self, _: Nanos, _: QueueSet, _: &[u8]) -> bool {
        false
    }
    fn poll(&mut self, _: Nanos, _: Channel, _: &mut dyn EventSink) -> bool {
        false
    }
    fn take_completions(&mut self, ch: Channel, out: &mut Vec<CompletionRun>) {
        out.append(&mut self.0[usize::from(ch.0)]);
    }
}

struct Rig {
    engine: Box<dyn CompletionEngine>,
    script: Script,
    pass: u64,
    retired: Vec<(QueueSet, SlotGen)>,
}

fn at(seq: u64) -> SlotGen {
    let (s, g) = (u64::from(SPEC.slots), u64::from(SPEC.generations));
    SlotGen { slot: MessageId((seq % s) as u16), generation: Generation((seq / s % g) as u16), seq: Seq(seq) }
}

impl Rig {
    fn arrive(&mut self, ch: u8, q: QueueSet, m: SlotGen, first: u32, packets: u32, user: u32) {
        let imm = SPEC.layout.encode(m.slot, PacketOffset(first), user);
        let fragments = (first..first + packets.min(8))
            .map(|o| SPEC.layout.user_fragment(SPEC.layout.encode(m.slot, PacketOffset(o), user)));
        let user = fragments.fold(0, |a, b| a | b);
        let run = CompletionRun { q, generation: m.generation, imm, packets, user };
        self.script.0[usize::from(ch)].push(run);
    }

    /// Polls until the engine says that it has recorded all that was there.
    fn settle(&mut self) {
        self.pass += 1;
        let asked = self.pass;
        for _ in 0..PATIENCE {
            let retired = &mut self.retired;
            let polled = self.engine.poll(
                self.pass,
                Nanos(self.pass),
                &mut self.script,
                &mut |e: Event<'_>| match e {
                    Event::Retired { q, at } => retired.push((q, at)),
                    other => panic!("unexpected {other:?}"),
                },
            );
            if polled.recorded >= asked {
                return;
            }
            self.pass += 1;
        }
        panic!("pass {asked} was never recorded");
    }

    fn arm(&mut self, q: QueueSet, m: SlotGen, shape: Shape) -> Arc<dyn HostBitmap> {
        let bitmap = self.engine.arm(q, m, shape).expect("arm");
        assert_eq!((bitmap.shape(), Bitmap::new(&*bitmap).count()), (shape, 0), "a fresh bitmap is clear");
        bitmap
    }

    /// Retires and waits for the confirmation, which comes once.
    fn retire(&mut self, q: QueueSet, m: SlotGen) {
        self.retired.clear();
        self.engine.retire(q, m);
        for _ in 0..PATIENCE {
            self.settle();
            if !self.retired.is_empty() {
                break;
            }
        }
        assert_eq!(self.retired, [(q, m)]);
        self.settle();
        assert_eq!(self.retired.len(), 1, "retired once");
    }
}

/// Runs the whole body, on a fresh engine with two channels for each part. The engine takes completions in batches.
///
/// # Panics
/// When the engine does not do what the trait says.
pub fn engine_conformance(mut make: impl FnMut() -> Box<dyn CompletionEngine>) {
    let parts: [fn(&mut Rig); 6] = [
        chunks_are_published_when_whole,
        what_does_not_belong_sets_nothing,
        extra_packets_have_their_own_chunks,
        slots_come_back,
        marks,
        queue_pairs_are_apart,
    ];
    for part in parts {
        let mut engine = make();
        for ch in [0, 1].map(Channel) {
            engine.attach(ch, &CompletionModel::Batch).expect("an engine for batches");
        }
        for q in [Q, OTHER] {
            engine.open(q, &SPEC, &[], Seq(0)).expect("open");
        }
        part(&mut Rig { engine, script: Script::default(), pass: 0, retired: Vec::new() });
    }
}

fn chunks_are_published_when_whole(rig: &mut Rig) {
    // 37 packets in chunks of 5: the last has two.
    let bitmap = rig.arm(Q, at(0), Shape::new(37, 5));
    let set = |b: &Arc<dyn HostBitmap>| -> Vec<u32> {
        (0..8).filter(|&c| Bitmap::new(&**b).is_set(ChunkIndex(c))).collect()
    };
    rig.arrive(0, Q, at(0), 3, 9, 0xdead_beef);
    rig.settle();
    assert_eq!(set(&bitmap), [1]);
    assert_eq!(rig.engine.packets(Q, at(0), ChunkIndex(0)), 0b11000);
    assert_eq!(rig.engine.packets(Q, at(0), ChunkIndex(2)), 0b00011);
    // The same packets again, on another channel, publish nothing more.
    rig.arrive(1, Q, at(0), 3, 9, 0xdead_beef);
    rig.settle();
    assert_eq!(set(&bitmap), [1]);
    rig.arrive(1, Q, at(0), 35, 2, 0xdead_beef);
    rig.arrive(0, Q, at(0), 0, 3, 0xdead_beef);
    rig.settle();
    assert_eq!(set(&bitmap), [0, 1, 7]);
    rig.arrive(0, Q, at(0), 12, 23, 0xdead_beef);
    rig.settle();
    assert!(Bitmap::new(&*bitmap).is_full());
    let user = bitmap.user().load(std::sync::atomic::Ordering::Acquire);
    assert_eq!(user, 0xff << 32 | 0xdead_beef, "all fragments, and the value");
    let c = rig.engine.counters(Q);
    assert_eq!((c.seen, c.fresh, c.duplicate, c.late, c.out_of_range), (46, 37, 9, 0, 0));
}

fn what_does_not_belong_sets_nothing(rig: &mut Rig) {
    let bitmap = rig.arm(Q, at(5), Shape::new(10, 2));
    // The generation before, a slot without a receive, a slot that does not exist, past the end, and half past it.
    rig.arrive(0, Q, at(1), 0, 10, 0);
    rig.arrive(0, Q, at(2), 0, 3, 0);
    rig.arrive(0, Q, SlotGen { slot: MessageId(900), ..at(5) }, 0, 1, 0);
    rig.arrive(0, Q, at(5), 10, 4, 0);
    rig.arrive(0, Q, at(5), 8, 6, 0);
    rig.settle();
    let b = Bitmap::new(&*bitmap);
    assert_eq!((b.count(), b.is_set(ChunkIndex(4))), (1, true));
    let c = rig.engine.counters(Q);
    assert_eq!((c.seen, c.fresh, c.late, c.out_of_range), (24, 2, 14, 8));
    // Discarded ones count as well: equal counts mean that nothing is on the way.
    assert_eq!(rig.engine.counted(Q, Generation(0)), 13);
    assert_eq!(rig.engine.counted(Q, Generation(1)), 11);
}

fn extra_packets_have_their_own_chunks(rig: &mut Rig) {
    // Ten data packets in chunks of four, five extra ones from offset 12 on: offsets 10, 11 and 17 on are nothing.
    let shape = Shape::new(10, 4).with_extra(5);
    let bitmap = rig.arm(Q, at(0), shape);
    let set = |b: &Arc<dyn HostBitmap>| -> Vec<u32> {
        (0..8).filter(|&c| Bitmap::with_extra(&**b).is_set(ChunkIndex(c))).collect()
    };
    rig.arrive(0, Q, at(0), 10, 2, 0);
    rig.arrive(1, Q, at(0), 17, 5, 0);
    rig.settle();
    assert_eq!(set(&bitmap), [0; 0]);
    assert_eq!(rig.engine.packets(Q, at(0), ChunkIndex(2)), 0);
    // Over the end of the data, and over that of the extra packets.
    rig.arrive(0, Q, at(0), 8, 5, 0);
    rig.arrive(1, Q, at(0), 16, 3, 0);
    rig.settle();
    assert_eq!(set(&bitmap), [2, 4]);
    assert_eq!(rig.engine.packets(Q, at(0), ChunkIndex(2)), 0b11);
    assert_eq!(rig.engine.packets(Q, at(0), ChunkIndex(3)), 0b1);
    assert!(!Bitmap::new(&*bitmap).is_set(ChunkIndex(4)), "the data has three chunks");
    rig.arrive(0, Q, at(0), 0, 8, 0);
    rig.settle();
    assert!(Bitmap::new(&*bitmap).is_full() && !Bitmap::with_extra(&*bitmap).is_full());
    rig.arrive(0, Q, at(0), 13, 3, 0);
    rig.settle();
    assert!(Bitmap::with_extra(&*bitmap).is_full());
    let c = rig.engine.counters(Q);
    assert_eq!((c.seen, c.fresh, c.duplicate, c.late, c.out_of_range), (26, 15, 0, 0, 11));
    assert!(rig.engine.arm(Q, at(1), Shape::new(1, 4).with_extra(SPEC.layout.max_packets() - 3)).is_err());
    rig.retire(Q, at(0));
    rig.arrive(0, Q, at(0), 12, 1, 0);
    rig.settle();
    assert_eq!(rig.engine.counters(Q).late, 1);
}

fn slots_come_back(rig: &mut Rig) {
    for round in 0..6 {
        let m = at(1 + round * u64::from(SPEC.slots));
        let bitmap = rig.arm(Q, m, Shape::new(4, 2));
        assert!(rig.engine.arm(Q, m, Shape::new(4, 2)).is_err(), "armed twice");
        rig.arrive(0, Q, m, 0, 3, 0);
        rig.settle();
        assert_eq!(Bitmap::new(&*bitmap).count(), 1);
        rig.retire(Q, m);
        // A late one changes nothing, neither in the bitmap that is still held nor in the next one.
        rig.arrive(0, Q, m, 3, 1, 0);
        rig.settle();
        assert_eq!(Bitmap::new(&*bitmap).count(), 1);
    }
    assert_eq!(rig.engine.counters(Q).late, 6);
}

fn marks(rig: &mut Rig) {
    assert_eq!(rig.engine.progress(Q, Channel(0)), None);
    let _bitmap = rig.arm(Q, at(2), Shape::new(12, 2));
    let mark = |offset| Mark { seq: Seq(2), offset: PacketOffset(offset) };
    // Chunks 0, 2, 4 are at home on channel 0; a repair of chunk 3 comes in there as well.
    rig.arrive(0, Q, at(2), 0, 2, 0);
    rig.arrive(0, Q, at(2), 6, 2, 0);
    rig.settle();
    let p = rig.engine.progress(Q, Channel(0)).expect("something arrived");
    assert_eq!((p.home, p.any), (Some(mark(1)), mark(7)));
    rig.arrive(1, Q, at(2), 4, 1, 0);
    rig.settle();
    let p = rig.engine.progress(Q, Channel(1)).expect("something arrived");
    assert_eq!((p.home, p.any), (None, mark(4)), "only a repair came");
    // What is behind changes nothing.
    rig.arrive(0, Q, at(2), 0, 1, 0);
    rig.settle();
    assert_eq!(rig.engine.progress(Q, Channel(0)).map(|p| p.any), Some(mark(7)));
}

fn queue_pairs_are_apart(rig: &mut Rig) {
    let (one, two) = (rig.arm(Q, at(0), Shape::new(2, 1)), rig.arm(OTHER, at(0), Shape::new(2, 1)));
    rig.arrive(0, OTHER, at(0), 0, 2, 0);
    rig.arrive(1, QueueSet(77), at(0), 0, 2, 0);
    rig.settle();
    assert_eq!((Bitmap::new(&*one).count(), Bitmap::new(&*two).count()), (0, 2));
    rig.engine.close(OTHER);
    rig.arrive(0, OTHER, at(0), 0, 2, 0);
    rig.arrive(0, Q, at(0), 0, 1, 0);
    rig.settle();
    assert_eq!(Bitmap::new(&*one).count(), 1);
    assert!(rig.engine.arm(OTHER, at(1), Shape::new(2, 1)).is_err(), "closed");
    rig.retire(Q, at(0));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_host_engine_conforms() {
        super::engine_conformance(|| Box::new(sdr_sdk::engine::host::HostEngine::new(2)));
    }
}
