//! What every fabric must do, as one test body that runs on all of them.
//!
//! It knows a fabric by the trait alone and takes its path to be lossless. Time goes in steps, so that the same body runs
//! in virtual and in real time. It is not a test of what a fabric does beyond the trait, such as its faults or its speed.

mod landing;

use std::sync::Arc;

use sdr_sdk::ImmLayout;
use sdr_sdk::fabric::{
    CompletionRun, Event, Fabric, FabricError, Grant, Landing, MAX_CONTROL, Opened, QueueSpec, WriteRun,
};
use sdr_sdk::memory::{RawSlice, Region, RegionId};
use sdr_sdk::types::{Channel, Generation, MessageId, Nanos, PacketOffset, QueueSet, Seq, SlotGen};

use crate::sim::raw::TestMemory;

/// Time between two polls.
const STEP: Nanos = Nanos::from_micros(100);
/// Polls until a fabric that has not answered never will.
const PATIENCE: u32 = 50_000;
/// Polls after which nothing more is expected to happen.
const QUIET: u32 = 100;

/// Two connected NICs, and what passes time: it sleeps, or does nothing where time is only the argument.
pub type Pair = (Box<dyn Fabric>, Box<dyn Fabric>, Box<dyn FnMut(Nanos)>);

/// Runs the whole body, on a fresh pair for each part.
///
/// # Panics
/// When the fabric does not do what the trait says.
pub fn fabric_conformance(mut make: impl FnMut() -> Pair) {
    type Part = fn(&mut Rig);
    let parts: [(&str, Part); 15] = [
        ("limits are kept", limits_are_kept),
        ("addresses are checked", addresses_are_checked),
        ("a message arrives", a_message_arrives),
        ("every channel carries", every_channel_carries),
        ("an armed slot refuses", an_armed_slot_refuses),
        ("a disarm is confirmed once", a_disarm_is_confirmed_once),
        ("a late packet is reported and discarded", a_late_packet_is_reported_and_discarded),
        ("control passes both ways", control_passes_both_ways),
        ("queue sets are apart", queue_sets_are_apart),
        ("closed queues are silent", closed_queues_are_silent),
        ("data and extra packets land apart", landing::data_and_extra_packets_land_apart),
        ("other offsets touch nothing", landing::other_offsets_touch_nothing),
        ("receives have their own payload", landing::receives_have_their_own_payload),
        ("late packets do not reach extra memory", landing::late_packets_do_not_reach_extra_memory),
        ("landings are checked", landing::landings_are_checked),
    ];
    for (name, part) in parts {
        let (a, b, advance) = make();
        let mut rig = Rig { a: Side::new(a), b: Side::new(b), advance, now: Nanos::ZERO, name };
        part(&mut rig);
    }
}

/// One NIC and all it reported.
struct Side {
    fabric: Box<dyn Fabric>,
    sent: Vec<(QueueSet, SlotGen, u64)>,
    armed: Vec<(QueueSet, SlotGen, Grant)>,
    disarmed: Vec<(QueueSet, SlotGen)>,
    control: Vec<(QueueSet, Vec<u8>)>,
    completions: Vec<(Channel, CompletionRun)>,
}

impl Side {
    fn new(fabric: Box<dyn Fabric>) -> Self {
        Self { fabric, sent: vec![], armed: vec![], disarmed: vec![], control: vec![], completions: vec![] }
    }

    fn poll(&mut self, now: Nanos) {
        let Self { fabric, sent, armed, disarmed, control, completions } = self;
        for ch in (0..fabric.caps().channels).map(Channel) {
            fabric.poll(now, ch, &mut |e: Event<'_>| match e {
                Event::Sent { q, at, packets } => sent.push((q, at, packets)),
                Event::Armed { q, at, grant } => armed.push((q, at, grant)),
                Event::Disarmed { q, at } => disarmed.push((q, at)),
                Event::Control { q, bytes } => control.push((q, bytes.to_vec())),
                other => panic!("unexpected {other:?}"),
            });
            let mut runs = Vec::new();
            fabric.take_completions(ch, &mut runs);
            completions.extend(runs.into_iter().map(|run| (ch, run)));
        }
    }

    fn packets_sent(&self, q: QueueSet) -> u64 {
        self.sent.iter().filter(|s| s.0 == q).map(|s| s.2).sum()
    }

    fn packets_in(&self, q: QueueSet) -> u64 {
        self.completions.iter().filter(|c| c.1.q == q).map(|c| u64::from(c.1.packets)).sum()
    }

    /// Memory that is registered, filled with `byte`.
    fn memory(&mut self, len: usize, byte: u8) -> Memory {
        let region = Region::map(len).expect("memory for the test");
        TestMemory(&region).fill(&vec![byte; len]);
        let id = self.fabric.register(&region).expect("register");
        Memory { all: region.slice(id), region, id }
    }
}

struct Memory {
    region: Arc<Region>,
    id: RegionId,
    all: RawSlice,
}

impl Memory {
    fn bytes(&self) -> Vec<u8> {
        TestMemory(&self.region).bytes()
    }
}

struct Rig {
    a: Side,
    b: Side,
    advance: Box<dyn FnMut(Nanos)>,
    now: Nanos,
    name: &'static str,
}

impl Rig {
    /// What every fabric can do, but for the payload.
    fn spec(&self) -> QueueSpec {
        let caps = self.a.fabric.caps();
        QueueSpec {
            layout: ImmLayout::L10_18_4,
            channels: caps.channels,
            slots: caps.slots.min(4),
            generations: caps.generations.min(4),
            payload: caps.max_payload.min(1024),
            user_immediate: true,
        }
    }

    /// A connected queue set on each side.
    fn connected(&mut self) -> (QueueSet, QueueSet) {
        let spec = self.spec();
        let (a, b) = (self.a.fabric.open(&spec).expect("open"), self.b.fabric.open(&spec).expect("open"));
        self.a.fabric.connect(a.q, &b.address).expect("connect");
        self.b.fabric.connect(b.q, &a.address).expect("connect");
        (a.q, b.q)
    }

    fn step(&mut self) {
        self.a.poll(self.now);
        self.b.poll(self.now);
        (self.advance)(STEP);
        self.now += STEP;
    }

    fn until(&mut self, what: &str, done: impl Fn(&Side, &Side) -> bool) {
        for _ in 0..PATIENCE {
            if done(&self.a, &self.b) {
                return;
            }
            self.step();
        }
        panic!("{}: {what} did not happen in {}", self.name, STEP.mul_div(PATIENCE.into(), 1));
    }

    fn quiet(&mut self) {
        (0..QUIET).for_each(|_| self.step());
    }

    /// Arms a slot at B for data of full size and waits until its key works.
    fn arm(&mut self, q: QueueSet, at: SlotGen, dst: RawSlice) -> Grant {
        let to = self.data(dst);
        self.arm_landing(q, at, &to)
    }

    fn data(&self, dst: RawSlice) -> Landing {
        Landing::data(dst, self.spec().payload)
    }

    fn arm_landing(&mut self, q: QueueSet, at: SlotGen, to: &Landing) -> Grant {
        if let Some(grant) = self.b.fabric.arm(q, at, to).expect("arm") {
            return grant;
        }
        let found = |b: &Side| b.armed.iter().find(|a| (a.0, a.1) == (q, at)).map(|a| a.2);
        self.until("Armed", |_, b| found(b).is_some());
        found(&self.b).expect("just seen")
    }

    /// Posts from A, in as many calls as the fabric wants.
    fn post(&mut self, ch: Channel, run: WriteRun) {
        let mut rest = run;
        for _ in 0..PATIENCE {
            let taken = self.a.fabric.post(self.now, ch, &[rest]) as u32;
            assert!(taken <= rest.packets, "{}: {taken} of {} packets taken", self.name, rest.packets);
            if taken == rest.packets {
                return;
            }
            let bytes = taken as usize * rest.payload as usize;
            rest.src = rest.src.slice(bytes, rest.src.len() - bytes);
            rest.first += taken;
            rest.packets -= taken;
            self.step();
        }
        panic!("{}: {run:?} was never taken", self.name);
    }
}

fn message(spec: &QueueSpec, seq: u64) -> SlotGen {
    let slots = u64::from(spec.slots);
    SlotGen {
        slot: MessageId((seq % slots) as u16),
        generation: Generation((seq / slots % u64::from(spec.generations)) as u16),
        seq: Seq(seq),
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i >> 10) as u8 ^ seed).collect()
}

fn whole(q: QueueSet, at: SlotGen, grant: Grant, src: RawSlice, spec: &QueueSpec, user: u32) -> WriteRun {
    let packets = src.len().div_ceil(spec.payload as usize) as u32;
    WriteRun { q, at, grant, first: 0, packets, payload: spec.payload, src, user }
}

/// How often each packet of a slot and generation was reported, and the user immediate that came with them.
fn seen(side: &Side, q: QueueSet, at: SlotGen, layout: ImmLayout, packets: u32) -> (Vec<u32>, u32) {
    let (mut count, mut user) = (vec![0; packets as usize], 0);
    for (_, run) in side.completions.iter().filter(|(_, r)| r.q == q && r.generation == at.generation) {
        let (slot, PacketOffset(first)) = layout.decode(run.imm);
        if slot == at.slot {
            (first..first + run.packets).for_each(|o| count[o as usize] += 1);
            user |= run.user;
        }
    }
    (count, user)
}

fn limits_are_kept(rig: &mut Rig) {
    let (caps, good) = (rig.a.fabric.caps(), rig.spec());
    let slots = caps.slots.min(good.layout.max_slots());
    let mut refused: Vec<QueueSpec> = vec![
        QueueSpec { slots: slots * 2, ..good },
        QueueSpec { slots: 3, ..good },
        QueueSpec { generations: caps.generations * 2, ..good },
        QueueSpec { generations: 3, ..good },
        QueueSpec { payload: caps.max_payload + 1, ..good },
        QueueSpec { payload: 0, ..good },
        QueueSpec { channels: 0, ..good },
    ];
    refused.extend(caps.channels.checked_add(1).map(|channels| QueueSpec { channels, ..good }));
    for spec in refused {
        let answer = rig.a.fabric.open(&spec);
        assert!(matches!(answer, Err(FabricError::Limit { .. })), "{spec:?}: {answer:?}");
    }
    let most = QueueSpec { channels: caps.channels, slots, payload: caps.max_payload, ..good };
    let q = rig.a.fabric.open(&most).expect("everything that the caps promise").q;
    rig.a.fabric.close(q);
}

fn addresses_are_checked(rig: &mut Rig) {
    let spec = rig.spec();
    let qa = rig.a.fabric.open(&spec).expect("open").q;
    let Opened { q: qb, address, .. } = rig.b.fabric.open(&spec).expect("open");
    for bad in [&[][..], &[0xff], &address[..address.len() - 1]] {
        let answer = rig.a.fabric.connect(qa, bad);
        assert!(matches!(answer, Err(FabricError::Peer(_))), "{bad:?}: {answer:?}");
    }
    // Not connected: nothing is taken, and nobody is told.
    let src = rig.a.memory(64, 1);
    let run = whole(qa, message(&spec, 0), Grant::default(), src.all, &spec, 0);
    assert_eq!(rig.a.fabric.post(rig.now, Channel(0), &[run]), 0);
    assert!(!rig.a.fabric.control(rig.now, qa, b"nobody there"));
    rig.quiet();
    assert_eq!((rig.a.packets_sent(qa), rig.b.packets_in(qb), rig.b.control.len()), (0, 0, 0));
    rig.a.fabric.connect(qa, &address).expect("the good address");
}

fn a_message_arrives(rig: &mut Rig) {
    const USER: u32 = 0xdead_beef;
    let spec = rig.spec();
    let (qa, qb) = rig.connected();
    let len = spec.payload as usize * 70 + 13;
    // The receive is longer than the message: what is behind it stays as it was.
    let (src, dst) = (rig.a.memory(len, 0), rig.b.memory(len + 5000, 0xee));
    let sent = pattern(len, 1);
    TestMemory(&src.region).fill(&sent);
    let at = message(&spec, 0);
    let grant = rig.arm(qb, at, dst.all);
    let run = whole(qa, at, grant, src.all, &spec, USER);
    rig.post(Channel(0), run);
    rig.until("Sent of every packet", |a, _| a.packets_sent(qa) == 71);
    // From here on the source is the sender's again.
    TestMemory(&src.region).fill(&vec![0xaa; len]);
    rig.until("completion of every packet", |_, b| b.packets_in(qb) >= 71);
    rig.quiet();
    let (count, user) = seen(&rig.b, qb, at, spec.layout, 71);
    if rig.b.fabric.caps().exact_counts {
        assert_eq!(count, vec![1; 71], "each packet is reported once");
    }
    assert!(count.iter().all(|n| *n >= 1), "each packet is reported: {count:?}");
    assert_eq!(user, USER);
    assert!(rig.b.completions.iter().all(|(ch, _)| *ch == Channel(0)));
    let got = dst.bytes();
    assert!(got[..len] == sent[..], "the payload is what was posted");
    assert!(got[len..].iter().all(|b| *b == 0xee), "nothing is written behind the message");
    assert_eq!(rig.a.packets_sent(qa), 71);
    rig.b.fabric.disarm(qb, at);
    rig.until("Disarmed", |_, b| b.disarmed == [(qb, at)]);
    rig.b.fabric.deregister(dst.id);
    rig.a.fabric.deregister(src.id);
}

fn every_channel_carries(rig: &mut Rig) {
    let spec = rig.spec();
    let (qa, qb) = rig.connected();
    let (channels, each) = (usize::from(spec.channels), 3 * spec.payload as usize);
    let (src, dst) = (rig.a.memory(each * channels, 0), rig.b.memory(each * channels, 0));
    TestMemory(&src.region).fill(&pattern(each * channels, 2));
    let at = message(&spec, 1);
    let grant = rig.arm(qb, at, dst.all);
    for ch in 0..channels {
        let src = src.all.slice(ch * each, each);
        let run = WriteRun { first: 3 * ch as u32, ..whole(qa, at, grant, src, &spec, 0) };
        rig.post(Channel(ch as u8), run);
    }
    let all = 3 * channels as u64;
    rig.until("all", |a, b| a.packets_sent(qa) == all && b.packets_in(qb) >= all);
    assert!(dst.bytes() == pattern(each * channels, 2));
    for (Channel(ch), run) in &rig.b.completions {
        let (_, PacketOffset(first)) = spec.layout.decode(run.imm);
        let channel_of = |o: u32| (o / 3) as u8;
        assert_eq!((channel_of(first), channel_of(first + run.packets - 1)), (*ch, *ch), "{run:?}");
    }
}

fn an_armed_slot_refuses(rig: &mut Rig) {
    let spec = rig.spec();
    let (_, qb) = rig.connected();
    let dst = rig.b.memory(4096, 0);
    let at = message(&spec, 0);
    rig.arm(qb, at, dst.all);
    let to = rig.data(dst.all);
    assert!(rig.b.fabric.arm(qb, at, &to).is_err(), "armed twice");
    let twin = message(&spec, u64::from(spec.slots));
    assert!(rig.b.fabric.arm(qb, twin, &to).is_err(), "armed for the next generation too early");
    rig.b.fabric.disarm(qb, at);
    rig.until("Disarmed", |_, b| b.disarmed == [(qb, at)]);
    rig.arm(qb, twin, dst.all);
}

fn a_disarm_is_confirmed_once(rig: &mut Rig) {
    let spec = rig.spec();
    let (_, qb) = rig.connected();
    let dst = rig.b.memory(4096, 0);
    let messages: Vec<SlotGen> = (0..u64::from(spec.slots)).map(|seq| message(&spec, seq)).collect();
    for at in &messages {
        rig.arm(qb, *at, dst.all);
    }
    rig.quiet();
    assert!(rig.b.disarmed.is_empty(), "nothing was disarmed");
    messages.iter().for_each(|at| rig.b.fabric.disarm(qb, *at));
    rig.until("Disarmed of all", |_, b| b.disarmed.len() >= messages.len());
    rig.quiet();
    assert_eq!(rig.b.disarmed.len(), messages.len());
    assert!(messages.iter().all(|at| rig.b.disarmed.contains(&(qb, *at))));
}

fn a_late_packet_is_reported_and_discarded(rig: &mut Rig) {
    let spec = rig.spec();
    if spec.generations < 2 {
        // Each receive has a key of its own that dies with it, and with it the queue that uses it.
        return;
    }
    let (qa, qb) = rig.connected();
    let len = 4 * spec.payload as usize;
    let (src, old, new) = (rig.a.memory(len, 1), rig.b.memory(len, 2), rig.b.memory(len, 3));
    let (at, twin) = (message(&spec, 0), message(&spec, u64::from(spec.slots)));
    let grant = rig.arm(qb, at, old.all);
    rig.b.fabric.disarm(qb, at);
    rig.until("Disarmed", |_, b| b.disarmed == [(qb, at)]);
    let late = whole(qa, at, grant, src.all, &spec, 0);
    rig.post(Channel(0), late);
    rig.until("completion of late packets", |_, b| b.packets_in(qb) >= 4);
    let new_grant = rig.arm(qb, twin, new.all);
    rig.post(Channel(0), late);
    rig.until("completion of packets of the old generation", |_, b| b.packets_in(qb) >= 8);
    rig.quiet();
    assert!(seen(&rig.b, qb, at, spec.layout, 4).0.iter().all(|n| *n >= 2), "reported both times");
    assert_eq!(seen(&rig.b, qb, twin, spec.layout, 4).0, [0; 4], "not as the new generation");
    assert!(old.bytes().iter().all(|b| *b == 2), "a disarmed buffer was written");
    assert!(new.bytes().iter().all(|b| *b == 3), "a packet of another generation was placed");
    rig.post(Channel(0), whole(qa, twin, new_grant, src.all, &spec, 0));
    rig.until("the new message", |_, b| b.packets_in(qb) >= 12);
    assert!(new.bytes().iter().all(|b| *b == 1), "the new message was not placed");
    assert!(old.bytes().iter().all(|b| *b == 2));
}

fn control_passes_both_ways(rig: &mut Rig) {
    let (qa, qb) = rig.connected();
    let (now, largest) = (rig.now, pattern(MAX_CONTROL, 3));
    assert!(!rig.a.fabric.control(now, qa, &[0; MAX_CONTROL + 1]), "longer than a datagram can be");
    for (msg, times) in [(&b"x"[..], 1), (&largest[..], 2)] {
        assert!(rig.a.fabric.control(rig.now, qa, msg) && rig.b.fabric.control(rig.now, qb, msg));
        rig.until("control", |a, b| a.control.len() >= times && b.control.len() >= times);
        let newest = |side: &Side| side.control.last().cloned();
        assert_eq!(newest(&rig.b), Some((qb, msg.to_vec())));
        assert_eq!(newest(&rig.a), Some((qa, msg.to_vec())));
    }
    assert_eq!((rig.a.packets_in(qa), rig.b.packets_in(qb)), (0, 0), "control is no data");
}

fn queue_sets_are_apart(rig: &mut Rig) {
    let spec = rig.spec();
    let (one, two) = (rig.connected(), rig.connected());
    assert!(one.0 != two.0 && one.1 != two.1);
    let len = 2 * spec.payload as usize;
    let at = message(&spec, 0);
    let src = [rig.a.memory(len, 1), rig.a.memory(len, 2)];
    let dst = [rig.b.memory(len, 0), rig.b.memory(len, 0)];
    for (((qa, qb), src), dst) in [one, two].into_iter().zip(&src).zip(&dst) {
        let grant = rig.arm(qb, at, dst.all);
        rig.post(Channel(0), whole(qa, at, grant, src.all, &spec, 0));
        let now = rig.now;
        assert!(rig.a.fabric.control(now, qa, &src.bytes()[..1]));
    }
    rig.until("both", |_, b| b.packets_in(one.1) >= 2 && b.packets_in(two.1) >= 2 && b.control.len() >= 2);
    rig.until("Sent of both", |a, _| a.packets_sent(one.0) == 2 && a.packets_sent(two.0) == 2);
    assert!(dst[0].bytes().iter().all(|b| *b == 1) && dst[1].bytes().iter().all(|b| *b == 2));
    assert!(rig.b.control.contains(&(one.1, vec![1])) && rig.b.control.contains(&(two.1, vec![2])));
}

fn closed_queues_are_silent(rig: &mut Rig) {
    let spec = rig.spec();
    let (qa, qb) = rig.connected();
    let len = 8 * spec.payload as usize;
    let (src, dst) = (rig.a.memory(len, 1), rig.b.memory(len, 2));
    let at = message(&spec, 0);
    let grant = rig.arm(qb, at, dst.all);
    rig.post(Channel(0), whole(qa, at, grant, src.all, &spec, 0));
    let now = rig.now;
    assert!(rig.a.fabric.control(now, qa, b"on its way"));
    rig.b.fabric.close(qb);
    // Some may have arrived before; from here on nothing is written or reported.
    let before = dst.bytes();
    rig.b.completions.clear();
    rig.b.control.clear();
    rig.b.fabric.deregister(dst.id);
    rig.quiet();
    assert!(dst.bytes() == before, "a buffer of closed queues was written");
    assert_eq!((rig.b.packets_in(qb), rig.b.control.len(), rig.b.disarmed.len()), (0, 0, 0));
    rig.a.fabric.close(qa);
    rig.a.fabric.deregister(src.id);
    let sent = rig.a.sent.len();
    rig.quiet();
    assert_eq!(rig.a.sent.len(), sent, "events after close");
    // The number may come back; nothing of the old queues does.
    let (_, qb) = rig.connected();
    rig.quiet();
    assert_eq!((rig.b.packets_in(qb), rig.b.control.len()), (0, 0));
}
