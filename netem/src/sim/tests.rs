//! What the simulated fabric does beyond the trait; the trait itself is in `conformance`.

use std::sync::atomic::{AtomicU32, Ordering};

use sdr_sdk::ImmLayout;
use sdr_sdk::memory::RawSlice;
use sdr_sdk::types::{Generation, MessageId, PacketOffset, Seq};

use super::raw::TestMemory;
use super::*;
use crate::conformance::fabric_conformance;
use crate::loss::LossSpec;

mod faults;
mod keys;
mod speed;

const P: u32 = 256;
const CH: Channel = Channel(0);

/// What came out of polls, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Sent(QueueSet, SlotGen, u64),
    Disarmed(QueueSet, SlotGen),
    Control(QueueSet, Vec<u8>),
    Run(Channel, CompletionRun),
}

struct Memory {
    region: Arc<Region>,
    all: RawSlice,
}

impl Memory {
    fn new(fabric: &mut SimFabric, bytes: &[u8]) -> Self {
        let region = Region::map(bytes.len()).unwrap();
        TestMemory(&region).fill(bytes);
        let all = region.slice(fabric.register(&region).unwrap());
        Self { region, all }
    }

    fn bytes(&self) -> Vec<u8> {
        TestMemory(&self.region).bytes()
    }
}

/// A pair with one connected queue set on each side, 4 slots and 4 generations.
struct Rig {
    net: SimNet,
    a: SimFabric,
    b: SimFabric,
    qa: QueueSet,
    qb: QueueSet,
}

const SPEC: QueueSpec = QueueSpec {
    layout: ImmLayout::L10_18_4,
    channels: 4,
    slots: 4,
    generations: 4,
    payload: P,
    user_immediate: true,
};

impl Rig {
    fn new(config: SimConfig) -> Self {
        let (net, mut a, mut b) = SimNet::pair(config).unwrap();
        let (qa, qb) = connect(&mut a, &mut b);
        Self { net, a, b, qa, qb }
    }

    fn path(path: &str) -> Self {
        Self::new(config(path))
    }

    /// Posts `packets` full packets of message `seq` from A.
    fn post(&mut self, now: u64, ch: Channel, seq: u64, first: u32, src: RawSlice) -> u64 {
        let run = run(self.qa, seq, first, src);
        self.a.post(Nanos(now), ch, &[run])
    }

    fn arm(&mut self, seq: u64, dst: RawSlice) {
        self.b.arm(self.qb, message(seq), &Landing::data(dst, P)).unwrap();
    }

    fn b_sees(&mut self, now: u64) -> Vec<Seen> {
        poll(&mut self.b, Nanos(now))
    }

    fn a_sees(&mut self, now: u64) -> Vec<Seen> {
        poll(&mut self.a, Nanos(now))
    }

    fn b_counters(&self) -> NicCounters {
        self.net.counters(1)
    }

    /// Nothing in flight holds a buffer.
    fn assert_empty(&self) {
        assert_eq!(self.net.wake_at(), None);
        assert_eq!(lock(&self.net.0).pool.in_use(), 0);
    }
}

fn config(path: &str) -> SimConfig {
    SimConfig { path: path.parse::<PathSpec>().unwrap().into(), ..SimConfig::default() }
}

fn connect(a: &mut SimFabric, b: &mut SimFabric) -> (QueueSet, QueueSet) {
    connect_as(&SPEC, a, b)
}

fn connect_as(spec: &QueueSpec, a: &mut SimFabric, b: &mut SimFabric) -> (QueueSet, QueueSet) {
    let (at_a, at_b) = (a.open(spec).unwrap(), b.open(spec).unwrap());
    a.connect(at_a.q, &at_b.address).unwrap();
    b.connect(at_b.q, &at_a.address).unwrap();
    (at_a.q, at_b.q)
}

fn message(seq: u64) -> SlotGen {
    let (slot, generation) = (MessageId((seq % 4) as u16), Generation((seq / 4 % 4) as u16));
    SlotGen { slot, generation, seq: Seq(seq) }
}

fn run(q: QueueSet, seq: u64, first: u32, src: RawSlice) -> WriteRun {
    let packets = src.len().div_ceil(P as usize) as u32;
    WriteRun { q, at: message(seq), grant: Grant::default(), first, packets, payload: P, src, user: 0 }
}

fn poll(fabric: &mut SimFabric, now: Nanos) -> Vec<Seen> {
    let mut seen = Vec::new();
    for ch in (0..4).map(Channel) {
        fabric.poll(now, ch, &mut |e: Event<'_>| match e {
            Event::Sent { q, at, packets } => seen.push(Seen::Sent(q, at, packets)),
            Event::Disarmed { q, at } => seen.push(Seen::Disarmed(q, at)),
            Event::Control { q, bytes } => seen.push(Seen::Control(q, bytes.to_vec())),
            other => panic!("unexpected {other:?}"),
        });
    }
    for ch in (0..4).map(Channel) {
        let mut runs = Vec::new();
        fabric.take_completions(ch, &mut runs);
        seen.extend(runs.into_iter().map(|run| Seen::Run(ch, run)));
    }
    seen
}

/// A completion of message `seq` on channel 0 without user immediate.
fn completed(q: QueueSet, seq: u64, first: u32, packets: u32) -> Seen {
    let at = message(seq);
    let imm = SPEC.layout.encode(at.slot, PacketOffset(first), 0);
    Seen::Run(CH, CompletionRun { q, generation: at.generation, imm, packets, user: 0 })
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ seed).collect()
}

fn conforms(config: &SimConfig) {
    let make = || -> crate::conformance::Pair {
        let (_, a, b) = SimNet::pair(config.clone()).unwrap();
        (Box::new(a), Box::new(b), Box::new(|_| {}))
    };
    fabric_conformance(make);
}

#[test]
fn conformance() {
    conforms(&SimConfig::default());
    conforms(&config("rtt=1ms,rate=1Gbit"));
    conforms(&SimConfig { post_limit: Some(1), control_limit: Some(2), ..config("rtt=1ms,rate=10Mbit") });
    conforms(&SimConfig { disarm_delay: Nanos::from_millis(3), channels: 1, ..SimConfig::default() });
    conforms(&config("rtt=1ms,jitter=400us,reorder=0.2"));
    conforms(&SimConfig { exact_counts: false, ..config("rtt=1ms,dup=0.3,jitter=100us") });
    conforms(&SimConfig { generations: 1, slots: 2, max_payload: 100, ..SimConfig::default() });
}

#[test]
fn configurations_are_checked() {
    let refused = |config: SimConfig| SimNet::pair(config).map(|_| ()).unwrap_err();
    let duplicates = refused(config("dup=0.1"));
    assert!(matches!(duplicates, SimError::ExactCounts { .. }), "{duplicates}");
    for bad in [
        SimConfig { channels: 0, ..SimConfig::default() },
        SimConfig { slots: 3, ..SimConfig::default() },
        SimConfig { slots: 2048, ..SimConfig::default() },
        SimConfig { generations: 1 << 17, ..SimConfig::default() },
        SimConfig { max_payload: 0, ..SimConfig::default() },
    ] {
        assert!(matches!(refused(bad.clone()), SimError::Config { .. }), "{bad:?}");
    }
    assert!(SimNet::mesh(SimConfig::default(), 1).is_err());
}

#[test]
fn events_come_in_order_of_arrival_and_not_before() {
    // 1,024 bits: 256 B take 2,048 ns at 1 Gbit/s.
    let mut rig = Rig::path("rtt=20us,rate=1Gbit");
    let src = Memory::new(&mut rig.a, &[7; 2 * P as usize]);
    rig.post(0, CH, 1, 0, src.all);
    assert!(rig.a.control(Nanos(0), rig.qa, &[1; 252]));
    rig.post(0, CH, 2, 0, src.all.slice(0, 256));
    let (qa, qb) = (rig.qa, rig.qb);

    assert_eq!(rig.b.wake_at(), Some(Nanos(2 * 2048 + 10_000)));
    assert_eq!(rig.b_sees(2 * 2048 + 9_999), []);
    assert_eq!(rig.b_sees(2 * 2048 + 10_000), [completed(qb, 1, 0, 2)]);
    assert_eq!(rig.b.wake_at(), Some(Nanos(3 * 2048 + 10_000)));
    assert_eq!(rig.b_sees(4 * 2048 + 10_000), [Seen::Control(qb, vec![1; 252]), completed(qb, 2, 0, 1)]);
    assert_eq!(rig.b.wake_at(), None);

    assert_eq!(rig.a.wake_at(), Some(Nanos(2 * 2048)));
    assert_eq!(rig.a_sees(2 * 2048 - 1), []);
    assert_eq!(rig.a_sees(2 * 2048), [Seen::Sent(qa, message(1), 2)]);
    assert_eq!(rig.a_sees(4 * 2048), [Seen::Sent(qa, message(2), 1)]);
    rig.assert_empty();
}

#[test]
fn payload_is_that_of_the_time_of_the_post() {
    let mut rig = Rig::path("rtt=1ms,loss=0.2,seed=4");
    let len = 300 * P as usize + 17;
    let (src, dst) =
        (Memory::new(&mut rig.a, &pattern(len, 1)), Memory::new(&mut rig.b, &vec![9; len + 100]));
    rig.arm(0, dst.all);
    assert_eq!(rig.post(0, CH, 0, 0, src.all), 301);
    TestMemory(&src.region).fill(&vec![0xff; len]);
    let mut expected = vec![9; len + 100];
    let mut arrived = 0;
    for seen in rig.b_sees(500_000) {
        let Seen::Run(_, run) = seen else { panic!("{seen:?}") };
        let first = SPEC.layout.decode(run.imm).1.0 as usize * P as usize;
        let end = (first + run.packets as usize * P as usize).min(len);
        expected[first..end].copy_from_slice(&pattern(len, 1)[first..end]);
        arrived += run.packets;
    }
    assert!((180..301).contains(&arrived), "{arrived} of 301 with 20 % loss");
    assert!(dst.bytes() == expected);
    let (a, b) = (rig.net.counters(0), rig.b_counters());
    assert_eq!((a.sent, a.sent_bytes, a.lost), (301, len as u64, u64::from(301 - arrived)));
    assert_eq!(b.delivered, u64::from(arrived));
    rig.a_sees(500_000);
    rig.assert_empty();
}

#[test]
fn without_payload_no_memory_is_touched() {
    let mut rig = Rig::new(SimConfig { payload_copy: false, ..config("rtt=1ms") });
    // 64 MiB that would be committed if they were read.
    let len = SPEC.layout.max_packets() as usize * P as usize;
    let (src, dst) = (Region::map(len).unwrap(), Region::map(len).unwrap());
    let (src, into) = (src.slice(rig.a.register(&src).unwrap()), dst.slice(rig.b.register(&dst).unwrap()));
    rig.arm(0, into);
    let packets = SPEC.layout.max_packets();
    assert_eq!(rig.post(0, CH, 0, 0, src), u64::from(packets));
    assert_eq!(rig.b_sees(500_000), [completed(rig.qb, 0, 0, packets)]);
    assert_eq!(rig.b_counters().placed_bytes, len as u64);
    assert_eq!(lock(&rig.net.0).pool.in_use(), 0);
}

#[test]
fn a_full_send_queue_takes_what_fits_until_the_wire_is_free() {
    let mut rig = Rig::new(SimConfig { post_limit: Some(3), control_limit: Some(1), ..config("rate=1Gbit") });
    let src = Memory::new(&mut rig.a, &pattern(5 * P as usize - 1, 1));
    let dst = Memory::new(&mut rig.b, &[0; 5 * P as usize]);
    rig.arm(0, dst.all);
    let qa = rig.qa;
    assert_eq!(rig.post(0, CH, 0, 0, src.all), 3, "the front of the run");
    assert_eq!(rig.post(0, Channel(1), 0, 3, src.all.slice(768, 511)), 0, "the limit is the NIC's");
    assert_eq!(rig.a_sees(3 * 2048), [Seen::Sent(qa, message(0), 3)]);
    assert_eq!(rig.post(3 * 2048, CH, 0, 3, src.all.slice(768, 511)), 2);
    assert_eq!(rig.a_sees(10 * 2048), [Seen::Sent(qa, message(0), 2)]);
    rig.b_sees(10 * 2048);
    assert!(dst.bytes()[..1279] == pattern(1279, 1));

    let (now, q) = (Nanos(30_000), rig.qa);
    assert!(rig.a.control(now, q, b"one") && !rig.a.control(now, q, b"two"));
    rig.a_sees(40_000);
    assert!(rig.a.control(Nanos(40_000), q, b"two"));
}

#[test]
fn sent_is_reported_by_message() {
    let mut rig = Rig::path("rate=1Gbit");
    let src = Memory::new(&mut rig.a, &[1; 3 * P as usize]);
    let (qa, one) = (rig.qa, src.all.slice(0, 256));
    rig.post(0, Channel(1), 0, 0, src.all);
    rig.post(0, Channel(0), 1, 0, one);
    rig.post(0, Channel(1), 2, 0, one);
    let sent = |seq, packets| Seen::Sent(qa, message(seq), packets);
    assert_eq!(rig.a_sees(1_000_000), [sent(0, 3), sent(1, 1), sent(2, 1)]);
    assert_eq!(rig.a.wake_at(), None);
}

#[test]
fn a_poll_is_bounded_and_says_that_more_is_due() {
    let mut rig = Rig::path("");
    let src = Memory::new(&mut rig.a, &[1]);
    for _ in 0..10_000 {
        rig.post(0, CH, 0, 0, src.all);
    }
    let (mut polls, mut runs) = (0, Vec::new());
    while rig.b.wake_at() == Some(Nanos(0)) {
        rig.b.poll(Nanos(0), CH, &mut |e: Event<'_>| panic!("{e:?}"));
        polls += 1;
    }
    rig.b.take_completions(CH, &mut runs);
    assert_eq!((polls, runs.len()), (3, 10_000));
}

#[test]
fn three_nics_have_links_of_their_own() {
    let (net, mut nics) = SimNet::mesh(config("rtt=2us,loss=0.5,seed=3"), 3).unwrap();
    let [a, b, c] = &mut nics[..] else { panic!() };
    let ((ab, ba), (ac, ca)) = (connect(a, b), connect(a, c));
    assert_eq!((ab, ba, ac, ca), (QueueSet(0), QueueSet(0), QueueSet(1), QueueSet(0)));
    let src = Memory::new(a, &[1; 64 * P as usize]);
    a.post(Nanos(0), CH, &[run(ab, 0, 0, src.all), run(ac, 0, 0, src.all)]);
    let (at_b, at_c) = (poll(b, Nanos(1000)), poll(c, Nanos(1000)));
    assert!(!at_b.is_empty() && !at_c.is_empty());
    assert_ne!(at_b, at_c, "another seed");
    assert_eq!(net.counters(0).sent, 128);
    assert_eq!(net.counters(0).lost + net.counters(1).delivered + net.counters(2).delivered, 128);
}

#[test]
fn same_seed_and_calls_give_the_same_events() {
    let trace = |seed: u64| {
        let path = format!(
            "rtt=100us,rate=1Gbit,loss=0.1,burst=3,jitter=30us,reorder=0.1,dup=0.1,corrupt=0.1,seed={seed}"
        );
        let mut rig = Rig::new(SimConfig { exact_counts: false, ..config(&path) });
        let src = Memory::new(&mut rig.a, &[1; 16 * P as usize]);
        let mut all = Vec::new();
        for i in 0..200 {
            let now = i * 7_000;
            rig.post(now, Channel((i % 4) as u8), i, 0, src.all);
            let (qa, qb) = (rig.qa, rig.qb);
            rig.a.control(Nanos(now), qa, &i.to_be_bytes());
            rig.b.control(Nanos(now), qb, &i.to_be_bytes());
            all.extend(rig.a_sees(now));
            all.extend(rig.b_sees(now));
        }
        all.extend(rig.a_sees(1_000_000_000));
        all.extend(rig.b_sees(1_000_000_000));
        rig.assert_empty();
        (all, rig.net.counters(0), rig.net.counters(1))
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1).0, trace(2).0);
}

#[test]
fn a_link_changes_while_it_is_in_use() {
    let mut rig = Rig::path("rtt=2us");
    let src = Memory::new(&mut rig.a, &[1]);
    rig.post(0, CH, 0, 0, src.all);
    let slower = |link: &mut Link| link.set_delay(Nanos(5_000));
    rig.net.link(Direction::A_TO_B, slower);
    rig.post(0, CH, 1, 0, src.all);
    assert_eq!(rig.b_sees(1_000), [completed(rig.qb, 0, 0, 1)]);
    assert_eq!(rig.b_sees(4_999), []);
    assert_eq!(rig.b_sees(5_000), [completed(rig.qb, 1, 0, 1)]);
    let dead = LossSpec::Periodic { every: 1, offset: 0 };
    rig.net.link(Direction::A_TO_B, |link| link.set_loss(dead)).unwrap();
    rig.post(5_000, CH, 2, 0, src.all);
    assert_eq!(rig.b.wake_at(), None);
    assert_eq!(rig.net.counters(0).lost, 1);
}
