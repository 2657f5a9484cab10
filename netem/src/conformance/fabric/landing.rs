//! Where packets of a receive land: its data, its extra packets, the offsets that are neither, other packet sizes.

use super::*;

/// Guard bytes on each side of what a receive is given.
const GUARD: usize = 300;
/// Data packets and packets a chunk: the extra packets begin at offset 12.
const DATA: u32 = 10;
const FIRST_EXTRA: u32 = 12;
const EXTRA: u32 = 5;

/// One region for both buffers of a receive, guarded.
struct Buffers {
    memory: Memory,
    to: Landing,
}

impl Buffers {
    /// The last data packet has 13 bytes.
    fn new(rig: &mut Rig, payload: u32) -> Self {
        let data = (DATA as usize - 1) * payload as usize + 13;
        let extra = (EXTRA * payload) as usize;
        let memory = rig.b.memory(data + extra + 3 * GUARD, 0xee);
        let to = Landing {
            dst: memory.all.slice(GUARD, data),
            extra: Some(memory.all.slice(2 * GUARD + data, extra)),
            payload,
            first_extra: FIRST_EXTRA,
        };
        Self { memory, to }
    }

    /// Data, extra, and whether all guards are as they were.
    fn read(&self) -> (Vec<u8>, Vec<u8>, bool) {
        let (bytes, data) = (self.memory.bytes(), self.to.dst.len());
        let extra = &bytes[2 * GUARD + data..bytes.len() - GUARD];
        let guards = [&bytes[..GUARD], &bytes[GUARD + data..2 * GUARD + data], &bytes[bytes.len() - GUARD..]];
        let kept = guards.iter().all(|g| g.iter().all(|b| *b == 0xee));
        (bytes[GUARD..GUARD + data].to_vec(), extra.to_vec(), kept)
    }

    fn untouched(&self) -> bool {
        self.memory.bytes().iter().all(|b| *b == 0xee)
    }
}

/// A run from `first` on that is cut into packets of `payload` bytes.
fn cut(q: QueueSet, at: SlotGen, grant: Grant, first: u32, src: RawSlice, payload: u32) -> WriteRun {
    let packets = src.len().div_ceil(payload as usize) as u32;
    WriteRun { q, at, grant, first, packets, payload, src, user: 0 }
}

pub(super) fn data_and_extra_packets_land_apart(rig: &mut Rig) {
    let spec = rig.spec();
    let (qa, qb) = rig.connected();
    let (at, to) = (message(&spec, 0), Buffers::new(rig, spec.payload));
    let (data, extra) = (to.to.dst.len(), (EXTRA * spec.payload) as usize);
    let src = rig.a.memory(data + extra, 0);
    let sent = pattern(data + extra, 4);
    TestMemory(&src.region).fill(&sent);
    let grant = rig.arm_landing(qb, at, &to.to);
    // Extra packets first: neither part waits for the other.
    rig.post(Channel(0), cut(qa, at, grant, FIRST_EXTRA, src.all.slice(data, extra), spec.payload));
    rig.post(Channel(0), cut(qa, at, grant, 0, src.all.slice(0, data), spec.payload));
    let all = u64::from(DATA + EXTRA);
    rig.until("all packets", |a, b| a.packets_sent(qa) == all && b.packets_in(qb) >= all);
    let got = to.read();
    assert!(got.0 == sent[..data], "the data is in its buffer, to the last byte");
    assert!(got.1 == sent[data..], "the extra packets are in theirs, to the last byte");
    assert!(got.2, "a packet was written beside the buffers");
    let (count, _) = seen(&rig.b, qb, at, spec.layout, FIRST_EXTRA + EXTRA);
    let reported = |o: &usize| count[*o] >= 1;
    assert!((0..DATA as usize).chain(12..17).all(|o| reported(&o)), "each packet is reported: {count:?}");
    assert_eq!(count[10..12], [0, 0], "nothing was sent there");
}

pub(super) fn other_offsets_touch_nothing(rig: &mut Rig) {
    let spec = rig.spec();
    let (qa, qb) = rig.connected();
    let (at, to) = (message(&spec, 0), Buffers::new(rig, spec.payload));
    let src = rig.a.memory(2 * spec.payload as usize, 1);
    let grant = rig.arm_landing(qb, at, &to.to);
    let full = spec.payload as usize;
    let last = spec.layout.max_packets() - 1;
    for (first, len) in [
        // Behind the data, in part or whole.
        (DATA - 1, 14),
        (DATA - 1, full),
        (DATA, 1),
        (DATA, 2 * full),
        // An extra packet is full.
        (FIRST_EXTRA, full - 1),
        (FIRST_EXTRA + EXTRA - 1, 1),
        // Beyond the extra packets.
        (FIRST_EXTRA + EXTRA, 2 * full),
        (last, full),
    ] {
        rig.post(Channel(0), cut(qa, at, grant, first, src.all.slice(0, len), spec.payload));
    }
    rig.quiet();
    assert!(to.untouched(), "a packet without a place was placed");
    // The receive is as good as before.
    rig.post(Channel(0), cut(qa, at, grant, FIRST_EXTRA, src.all.slice(0, full), spec.payload));
    rig.post(Channel(0), cut(qa, at, grant, DATA - 1, src.all.slice(0, 13), spec.payload));
    let there = |b: &Side| {
        let (count, _) = seen(b, qb, at, spec.layout, last + 1);
        count[FIRST_EXTRA as usize] >= 1 && count[DATA as usize - 1] >= 1
    };
    rig.until("good packets", |_, b| there(b));
    rig.quiet();
    let (data, extra, kept) = to.read();
    assert!(data[data.len() - 13..] == [1; 13] && extra[..full].iter().all(|b| *b == 1) && kept);
    let written = to.memory.bytes().iter().filter(|b| **b == 1).count();
    assert_eq!(written, full + 13, "bytes beside the good packets");
}

pub(super) fn receives_have_their_own_payload(rig: &mut Rig) {
    let spec = rig.spec();
    let (qa, qb) = rig.connected();
    // An odd one, so that no offset of the one is one of the other.
    let small = spec.payload / 2 + 3;
    let cases = [(message(&spec, 0), small), (message(&spec, 1), spec.payload)];
    if spec.slots < 2 {
        return;
    }
    let mut posted = Vec::new();
    for (i, (at, payload)) in cases.into_iter().enumerate() {
        let to = Buffers::new(rig, payload);
        let (data, extra) = (to.to.dst.len(), (EXTRA * payload) as usize);
        let src = rig.a.memory(data + extra, 0);
        TestMemory(&src.region).fill(&pattern(data + extra, 5 + i as u8));
        let grant = rig.arm_landing(qb, at, &to.to);
        posted.push((to, src, at, payload, grant));
    }
    for (to, src, at, payload, grant) in &posted {
        let data = to.to.dst.len();
        let half = 4 * *payload as usize;
        rig.post(Channel(0), cut(qa, *at, *grant, 0, src.all.slice(0, half), *payload));
        rig.post(Channel(0), cut(qa, *at, *grant, 4, src.all.slice(half, data - half), *payload));
        let extra = (EXTRA * payload) as usize;
        rig.post(Channel(0), cut(qa, *at, *grant, FIRST_EXTRA, src.all.slice(data, extra), *payload));
    }
    let all = 2 * u64::from(DATA + EXTRA);
    rig.until("both messages", |a, b| a.packets_sent(qa) == all && b.packets_in(qb) >= all);
    for (to, src, _, payload, _) in &posted {
        let (sent, got) = (src.bytes(), to.read());
        let data = to.to.dst.len();
        assert!(got.0 == sent[..data] && got.1 == sent[data..] && got.2, "{payload} bytes a packet");
    }
}

pub(super) fn late_packets_do_not_reach_extra_memory(rig: &mut Rig) {
    let spec = rig.spec();
    if spec.generations < 2 {
        // As for late data packets.
        return;
    }
    let (qa, qb) = rig.connected();
    let (old, new) = (Buffers::new(rig, spec.payload), Buffers::new(rig, spec.payload));
    let src = rig.a.memory((EXTRA * spec.payload) as usize, 1);
    let (at, twin) = (message(&spec, 0), message(&spec, u64::from(spec.slots)));
    let grant = rig.arm_landing(qb, at, &old.to);
    rig.b.fabric.disarm(qb, at);
    rig.until("Disarmed", |_, b| b.disarmed == [(qb, at)]);
    let late = cut(qa, at, grant, FIRST_EXTRA, src.all, spec.payload);
    rig.post(Channel(0), late);
    rig.until("completion of late packets", |_, b| b.packets_in(qb) >= u64::from(EXTRA));
    let new_grant = rig.arm_landing(qb, twin, &new.to);
    rig.post(Channel(0), late);
    rig.until("completion of packets of the old generation", |_, b| b.packets_in(qb) >= 2 * u64::from(EXTRA));
    rig.quiet();
    assert!(old.untouched(), "the extra memory of a disarmed receive was written");
    assert!(new.untouched(), "a packet of another generation was placed");
    rig.post(Channel(0), cut(qa, twin, new_grant, FIRST_EXTRA, src.all, spec.payload));
    rig.until("the new extra packets", |_, b| b.packets_in(qb) >= 3 * u64::from(EXTRA));
    assert!(new.read().1.iter().all(|b| *b == 1) && old.untouched());
}

pub(super) fn landings_are_checked(rig: &mut Rig) {
    let spec = rig.spec();
    let (_, qb) = rig.connected();
    let most = spec.layout.max_packets() as usize;
    let memory = rig.b.memory(most + 1, 0);
    let (dst, at) = (memory.all.slice(0, 100), message(&spec, 0));
    let of = |extra, payload, first_extra| Landing { dst, extra, payload, first_extra };
    let bytes = |n| Some(memory.all.slice(0, n));
    for to in [
        of(None, 0, 0),
        of(None, spec.payload + 1, 0),
        // Half a packet, extra packets among the data, more packets than the immediate can number.
        of(bytes(15), 10, 10),
        of(bytes(10), 10, 9),
        of(bytes(most - 99), 1, 100),
        Landing::data(memory.all, 1),
    ] {
        let answer = rig.b.fabric.arm(qb, at, &to);
        assert!(matches!(answer, Err(FabricError::Limit { .. })), "{to:?}: {answer:?}");
    }
    rig.arm_landing(qb, at, &of(bytes(most - 100), 1, 100));
}
