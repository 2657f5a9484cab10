use super::*;
use crate::bitmap::Bitmap;
use crate::fabric::{Caps, FabricError, Grant, Landing, WriteRun};
use crate::fabric::{Opened, RingMemory};
use crate::imm::ImmLayout;
use crate::memory::{Region, RegionId};
use crate::types::{MessageId, PacketOffset};

const Q: QueueSet = QueueSet(3);
const SPEC: QueueSpec = QueueSpec {
    layout: ImmLayout::L10_18_4,
    channels: 2,
    slots: 4,
    generations: 2,
    payload: 4096,
    user_immediate: true,
};

/// Hands over what the test put in; everything else a fabric does is out of reach here.
#[derive(Default)]
struct Script {
    runs: [Vec<CompletionRun>; 2],
}

impl Script {
    fn arrive(&mut self, channel: usize, q: QueueSet, at: SlotGen, first: u32, packets: u32) {
        let imm = SPEC.layout.encode(at.slot, PacketOffset(first), 0);
        self.runs[channel].push(CompletionRun { q, generation: at.generation, imm, packets, user: 0 });
    }
}

// SAFETY: it touches no memory.
unsafe impl Fabric for Script {
    fn caps(&self) -> Caps {
        Caps::new(2, SPEC.slots, SPEC.generations, SPEC.payload, true)
    }
    fn completions(&self, _: Channel) -> CompletionModel<'_> {
        CompletionModel::Batch
    }
    fn open(&mut self, _: &QueueSpec) -> Result<Opened, FabricError> {
        Err(FabricError::Peer("scripted"))
    }
    fn connect(&mut self, _: QueueSet, _: &[u8]) -> Result<(), FabricError> {
        Err(FabricError::Peer("scripted"))
    }
    fn close(&mut self, _: QueueSet) {}
    fn register(&mut self, _: &Region) -> Result<RegionId, FabricError> {
        Err(FabricError::Peer("scripted"))
    }
    fn deregister(&mut self, _: RegionId) {}
    fn arm(&mut self, _: QueueSet, _: SlotGen, _: &Landing) -> Result<Option<Grant>, FabricError> {
        Err(FabricError::Peer("scripted"))
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
        out.append(&mut self.runs[usize::from(ch.0)]);
    }
}

fn at(seq: u64) -> SlotGen {
    SlotGen { slot: MessageId((seq % 4) as u16), generation: Generation((seq / 4 % 2) as u16), seq: Seq(seq) }
}

fn open() -> (HostEngine, Script) {
    let mut e = HostEngine::new(2);
    e.open(Q, &SPEC, &[], Seq(0)).unwrap();
    (e, Script::default())
}

/// One poll; what was retired.
fn poll(e: &mut HostEngine, f: &mut Script) -> Vec<(QueueSet, SlotGen)> {
    let mut retired = Vec::new();
    e.poll(1, Nanos::ZERO, f, &mut |event: Event<'_>| match event {
        Event::Retired { q, at } => retired.push((q, at)),
        other => panic!("{other:?}"),
    });
    retired
}

#[test]
fn messages_arrive_over_two_channels_and_are_retired() {
    let (mut e, mut f) = open();
    assert_eq!(e.attach(Channel(0), &f.completions(Channel(0))), Ok(()));
    let base = std::ptr::NonNull::dangling();
    let ring = RingMemory { base, len: 0, fd: None, entries: 0, log_entries: 0, consumer: 0 };
    assert_eq!(e.attach(Channel(1), &CompletionModel::Cqe64Ring(ring)), Err(EngineError::Unsupported));
    for seq in 0..40 {
        let view = e.arm(Q, at(seq), Shape::new(40, 16)).unwrap();
        assert_eq!(Bitmap::new(&*view).count(), 0, "clear, also when used before");
        f.arrive(0, Q, at(seq), 0, 16);
        f.arrive(1, Q, at(seq), 16, 16);
        f.arrive(0, Q, at(seq), 32, 7);
        assert_eq!(poll(&mut e, &mut f), []);
        assert!(Bitmap::new(&*view).missing().eq(std::iter::once(2..3)));
        assert_eq!(e.packets(Q, at(seq), ChunkIndex(2)), 0x7f);
        f.arrive(1, Q, at(seq), 39, 1);
        f.arrive(1, Q, at(seq), 39, 1);
        poll(&mut e, &mut f);
        assert!(Bitmap::new(&*view).is_full());
        for (ch, offset) in [(0, 38), (1, 39)] {
            let want = crate::engine::Mark { seq: Seq(seq), offset: PacketOffset(offset) };
            assert_eq!(e.progress(Q, Channel(ch)).map(|p| p.any), Some(want));
        }
        e.retire(Q, at(seq));
        assert_eq!(poll(&mut e, &mut f), [(Q, at(seq))]);
        assert_eq!(poll(&mut e, &mut f), []);
        assert!(Bitmap::new(&*view).is_full(), "a view is not cleared under its holder");
        assert_eq!(e.packets(Q, at(seq), ChunkIndex(0)), 0);
    }
    let want = EngineCounters { seen: 40 * 41, fresh: 40 * 40, duplicate: 40, late: 0, out_of_range: 0 };
    assert_eq!(e.counters(Q), want);
    assert_eq!(e.counted(Q, Generation(0)) + e.counted(Q, Generation(1)), 40 * 41);
}

#[test]
fn packets_after_retire_touch_nothing() {
    let (mut e, mut f) = open();
    let first = e.arm(Q, at(0), Shape::new(4, 4)).unwrap();
    e.retire(Q, at(0));
    f.arrive(0, Q, at(0), 0, 4);
    assert_eq!(poll(&mut e, &mut f), [(Q, at(0))]);
    let second = e.arm(Q, at(4), Shape::new(4, 4)).unwrap();
    f.arrive(0, Q, at(0), 0, 4);
    poll(&mut e, &mut f);
    assert_eq!((Bitmap::new(&*first).count(), Bitmap::new(&*second).count()), (0, 0));
    assert_eq!(e.counters(Q).late, 8);
}

#[test]
fn bitmaps_are_used_again_when_nobody_looks() {
    let (mut e, mut f) = open();
    let shape = Shape::new(100, 10);
    let first = e.arm(Q, at(0), shape).unwrap();
    let address = first.chunks().as_ptr();
    f.arrive(0, Q, at(0), 0, 100);
    poll(&mut e, &mut f);
    e.retire(Q, at(0));
    poll(&mut e, &mut f);
    let other = e.arm(Q, at(1), shape).unwrap();
    assert_ne!(other.chunks().as_ptr(), address, "`first` is still held");
    drop(first);
    let again = e.arm(Q, at(2), shape).unwrap();
    assert_eq!(again.chunks().as_ptr(), address);
    assert_eq!(
        (Bitmap::new(&*again).count(), again.user().load(std::sync::atomic::Ordering::Relaxed)),
        (0, 0)
    );
}

#[test]
fn a_poll_records_a_bounded_part() {
    let (mut e, mut f) = open();
    let n = RUNS_A_BATCH as u32;
    let view = e.arm(Q, at(0), Shape::new(3 * n, 1)).unwrap();
    (0..2 * n + 1).for_each(|i| f.arrive(0, Q, at(0), i, 1));
    for want in [n, 2 * n, 2 * n + 1, 2 * n + 1] {
        poll(&mut e, &mut f);
        assert_eq!(Bitmap::new(&*view).count(), want);
    }
}

#[test]
fn a_closed_queue_pair_leaves_nothing_to_its_successor() {
    let (mut e, mut f) = open();
    e.arm(Q, at(0), Shape::new(1, 1)).unwrap();
    (0..=RUNS_A_BATCH).for_each(|_| f.arrive(0, Q, at(0), 0, 1));
    poll(&mut e, &mut f);
    e.retire(Q, at(0));
    e.close(Q);
    assert_eq!(poll(&mut e, &mut f), [], "closed without further events");
    e.open(Q, &SPEC, &[], Seq(0)).unwrap();
    let view = e.arm(Q, at(0), Shape::new(1, 1)).unwrap();
    poll(&mut e, &mut f);
    assert_eq!(Bitmap::new(&*view).count(), 0, "the last run was of the closed queues");
    assert_eq!(e.counters(Q), EngineCounters::default());
}

#[test]
fn queue_pairs_do_not_mix() {
    let (mut e, mut f) = open();
    let other = QueueSet(1);
    e.open(other, &SPEC, &[], Seq(0)).unwrap();
    let views = [Q, other].map(|q| e.arm(q, at(0), Shape::new(3, 1)).unwrap());
    f.arrive(0, Q, at(0), 0, 1);
    f.arrive(0, other, at(0), 1, 2);
    f.arrive(0, QueueSet(9), at(0), 0, 3);
    f.arrive(0, Q, at(0), 0, 1);
    poll(&mut e, &mut f);
    assert_eq!(views.map(|v| Bitmap::new(&*v).count()), [1, 2]);
    assert_eq!((e.counters(Q).seen, e.counters(other).seen), (2, 2));
}

#[test]
fn misuse_is_an_error() {
    let (mut e, _) = open();
    let shape = Shape::new(1, 1);
    let misuse = |r: Result<Arc<dyn HostBitmap>, EngineError>| matches!(r, Err(EngineError::Misuse(_)));
    assert!(misuse(e.arm(QueueSet(0), at(0), shape)));
    assert!(misuse(e.arm(Q, SlotGen { slot: MessageId(4), ..at(0) }, shape)));
    assert!(misuse(e.arm(Q, SlotGen { generation: Generation(2), ..at(0) }, shape)));
    e.arm(Q, at(0), shape).unwrap();
    assert!(misuse(e.arm(Q, at(4), shape)));
    assert!(matches!(e.arm(Q, at(1), Shape::new(1 << 18 | 1, 1)), Err(EngineError::Full(_))));
    // With extra packets the chunk that holds the last data packet counts whole.
    let with_extra = |packets, extra| Shape::new(packets, 16).with_extra(extra);
    assert!(matches!(e.arm(Q, at(1), with_extra((1 << 18) - 31, 17)), Err(EngineError::Full(_))));
    assert!(e.arm(Q, at(1), with_extra((1 << 18) - 31, 16)).is_ok());
    assert!(matches!(e.open(Q, &SPEC, &[], Seq(0)), Err(EngineError::Misuse(_))));
    let open = |e: &mut HostEngine, spec| e.open(QueueSet(0), &spec, &[], Seq(0));
    assert!(matches!(open(&mut e, QueueSpec { channels: 3, ..SPEC }), Err(EngineError::Full(_))));
    assert!(matches!(open(&mut e, QueueSpec { slots: 2048, ..SPEC }), Err(EngineError::Misuse(_))));
    assert!(matches!(open(&mut e, QueueSpec { slots: 0, ..SPEC }), Err(EngineError::Misuse(_))));
    assert!(matches!(open(&mut e, QueueSpec { generations: 3, ..SPEC }), Err(EngineError::Misuse(_))));
    assert_eq!((e.packets(QueueSet(0), at(0), ChunkIndex(0)), e.counted(QueueSet(0), Generation(0))), (0, 0));
    assert_eq!(e.progress(QueueSet(0), Channel(0)), None);
    assert_eq!(e.progress(Q, Channel(9)), None);
}
