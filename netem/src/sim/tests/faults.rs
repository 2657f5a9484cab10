//! Taps, forged packets, and what links do to bytes.

use super::*;

fn one_packet(rig: &mut Rig) -> Memory {
    Memory::new(&mut rig.a, &[1; P as usize])
}

fn packets(seen: &[Seen]) -> u32 {
    seen.iter().map(|s| if let Seen::Run(_, run) = s { run.packets } else { 0 }).sum()
}

#[test]
fn a_duplicate_is_reported_again() {
    let mut rig = Rig::new(SimConfig { exact_counts: false, ..config("dup=0.5,seed=1") });
    let src = Memory::new(&mut rig.a, &[1; 100 * P as usize]);
    rig.post(0, CH, 0, 0, src.all);
    let seen = rig.b_sees(0);
    let duplicate = rig.b_counters().duplicate;
    assert!((30..70).contains(&duplicate), "{duplicate}");
    assert_eq!(u64::from(packets(&seen)), 100 + duplicate);
}

#[test]
fn exact_counts_discard_copies() {
    let mut rig = Rig::path("");
    let src = one_packet(&mut rig);
    rig.net.tap(Direction::A_TO_B, Granularity::Run, |_| Verdict::Duplicate(Nanos(10)));
    rig.post(0, CH, 0, 0, src.all);
    assert_eq!(rig.b_sees(10), [completed(rig.qb, 0, 0, 1)]);
    assert_eq!(rig.b_counters().duplicate, 1);
    rig.a_sees(0);
    rig.assert_empty();
}

#[test]
fn corrupt_bytes_are_caught() {
    let mut rig = Rig::path("corrupt=0.5,seed=2");
    let (src, dst) =
        (Memory::new(&mut rig.a, &[1; 100 * P as usize]), Memory::new(&mut rig.b, &[0; 100 * P as usize]));
    rig.arm(0, dst.all);
    rig.post(0, CH, 0, 0, src.all);
    let good = packets(&rig.b_sees(0));
    assert!((30..70).contains(&good), "{good}");
    assert_eq!(rig.b_counters().corrupt, u64::from(100 - good));
    assert_eq!(dst.bytes().iter().filter(|b| **b == 1).count(), (good * P) as usize);

    let qa = rig.qa;
    (0..100u8).for_each(|i| assert!(rig.a.control(Nanos(0), qa, &[i; 40])));
    let seen = rig.b_sees(0);
    assert!((30..70).contains(&seen.len()), "{}", seen.len());
    for s in &seen {
        assert!(
            matches!(s, Seen::Control(_, bytes) if bytes.len() == 40 && bytes.iter().all(|b| *b == bytes[0]))
        );
    }
    let counters = rig.b_counters();
    assert_eq!(counters.corrupt, u64::from(100 - good) + 100 - seen.len() as u64);
    assert_eq!(counters.control_delivered, seen.len() as u64);
}

#[test]
fn any_flipped_bit_of_a_datagram_is_caught() {
    for bit in 0..(9 + 4) * 8 {
        let (mut found, mut nic) = (Vec::new(), nic::Nic::new(0, 1));
        let mut frame = b"nine byte".to_vec();
        frame.extend(crc32c::crc32c(b"nine byte").to_be_bytes());
        frame[bit / 8] ^= 1 << (bit % 8);
        net::receive_control(&mut nic, QueueSet(0), frame, &mut found);
        assert!(found.is_empty() && nic.counters.corrupt == 1, "bit {bit}");
    }
}

#[test]
fn verdicts_hold_for_data_and_control() {
    let verdicts = [
        Verdict::Pass,
        Verdict::Drop,
        Verdict::Delay(Nanos(50)),
        Verdict::Duplicate(Nanos(30)),
        Verdict::Corrupt,
    ];
    for verdict in verdicts {
        let mut rig = Rig::new(SimConfig { exact_counts: false, ..config("rtt=200ns") });
        let (src, qa, qb) = (one_packet(&mut rig), rig.qa, rig.qb);
        rig.net.tap(Direction::A_TO_B, Granularity::Run, move |_| verdict);
        rig.post(0, CH, 0, 0, src.all);
        assert!(rig.a.control(Nanos(0), qa, b"c"));
        let at: Vec<usize> = [99, 100, 129, 130, 149, 150].map(|now| rig.b_sees(now).len()).to_vec();
        let expected = match verdict {
            Verdict::Pass => [0, 2, 0, 0, 0, 0],
            Verdict::Drop | Verdict::Corrupt => [0; 6],
            Verdict::Delay(_) => [0, 0, 0, 0, 0, 2],
            Verdict::Duplicate(_) => [0, 2, 0, 2, 0, 0],
        };
        assert_eq!(at, expected, "{verdict:?}");
        let (a, b) = (rig.net.counters(0), rig.b_counters());
        let dropped = u64::from(verdict == Verdict::Drop);
        assert_eq!((a.sent, a.lost, a.control_sent, a.control_lost), (1, dropped, 1, dropped), "{verdict:?}");
        assert_eq!(b.corrupt, if verdict == Verdict::Corrupt { 2 } else { 0 });
        assert_eq!(rig.a_sees(200), [Seen::Sent(qa, message(0), 1)], "{verdict:?}");
        rig.assert_empty();

        rig.net.untap(Direction::A_TO_B);
        rig.post(1_000, CH, 1, 0, src.all);
        assert_eq!(rig.b_sees(1_100), [completed(qb, 1, 0, 1)]);
    }
}

#[test]
fn a_tap_sees_what_is_sent() {
    let mut rig = Rig::path("");
    let src = Memory::new(&mut rig.a, &[1; 3 * P as usize]);
    let (qa, qb) = (rig.qa, rig.qb);
    let frames = Arc::new(Mutex::new(Vec::new()));
    let log = frames.clone();
    rig.net.tap(Direction::A_TO_B, Granularity::Run, move |frame| {
        log.lock().unwrap().push(format!("{frame:?}"));
        Verdict::Pass
    });
    rig.post(5, Channel(2), 6, 7, src.all);
    rig.a.control(Nanos(6), qa, b"hi");
    rig.b.control(Nanos(6), qb, b"the other way");
    let data = FrameKind::Data { channel: Channel(2), at: message(6), first: 7, packets: 3 };
    let expected = [
        Frame { now: Nanos(5), q: qa, kind: data },
        Frame { now: Nanos(6), q: qa, kind: FrameKind::Control(b"hi") },
    ];
    assert_eq!(*frames.lock().unwrap(), expected.map(|f| format!("{f:?}")));
}

#[test]
fn a_tap_can_be_asked_for_each_packet() {
    let mut rig = Rig::path("");
    let len = 10 * P as usize - 6;
    let (src, dst) = (Memory::new(&mut rig.a, &pattern(len, 1)), Memory::new(&mut rig.b, &vec![0; len]));
    let qb = rig.qb;
    rig.arm(0, dst.all);
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    rig.net.tap(Direction::A_TO_B, Granularity::Packet, move |frame| {
        let FrameKind::Data { first, packets, .. } = frame.kind else { return Verdict::Pass };
        assert_eq!((first, packets), (count.fetch_add(1, Ordering::Relaxed), 1));
        match first {
            3 | 4 => Verdict::Drop,
            6 => Verdict::Delay(Nanos(9)),
            _ => Verdict::Pass,
        }
    });
    assert_eq!(rig.post(0, CH, 0, 0, src.all), 10);
    assert_eq!(asked.load(Ordering::Relaxed), 10);
    let first = [completed(qb, 0, 0, 3), completed(qb, 0, 5, 1), completed(qb, 0, 7, 3)];
    assert_eq!(rig.b_sees(8), first, "neighbours stay together");
    assert_eq!(rig.b_sees(9), [completed(qb, 0, 6, 1)]);
    let mut expected = pattern(len, 1);
    expected[3 * P as usize..5 * P as usize].fill(0);
    assert!(dst.bytes() == expected);
    assert_eq!(rig.net.counters(0).lost, 2);
}

#[test]
fn forged_packets_meet_the_same_checks() {
    let mut rig = Rig::path("rtt=2ms");
    let dst = Memory::new(&mut rig.b, &[0; 2 * P as usize]);
    let (qb, layout) = (rig.qb, SPEC.layout);
    rig.arm(0, dst.all);
    let data = |generation: u16, channel: u8, slot: u16, offset: u32, len: usize| Forged::Data {
        q: qb,
        generation: Generation(generation),
        channel: Channel(channel),
        imm: layout.encode(MessageId(slot), PacketOffset(offset), 0),
        bytes: vec![8; len],
    };
    let full = P as usize;
    // Fits: placed. Wrong generation: discarded, reported. The rest: dropped.
    let refused = [
        data(0, 0, 0, 2, 1),
        data(0, 0, 0, 1, full + 1),
        data(0, 0, 0, 1, 0),
        data(0, 0, 9, 0, full),
        data(9, 0, 0, 0, full),
        data(0, 9, 0, 0, full),
    ];
    let all = [data(0, 0, 0, 0, full), data(1, 0, 0, 1, full)].into_iter().chain(refused);
    all.for_each(|packet| rig.net.inject(Direction::A_TO_B, Nanos(77), packet));
    assert_eq!(rig.b_sees(76), []);
    assert_eq!(rig.b_sees(77), [completed(qb, 0, 0, 1), completed(qb, 4, 1, 1)]);
    let counters = rig.b_counters();
    assert_eq!((counters.delivered, counters.null_key, counters.out_of_range), (2, 1, 6));
    assert_eq!(dst.bytes(), [vec![8; full], vec![0; full]].concat());

    let control = |q, valid| Forged::Control { q, bytes: b"forged".to_vec(), valid };
    for (q, valid) in [(qb, false), (qb, true), (QueueSet(7), true)] {
        rig.net.inject(Direction::A_TO_B, Nanos(0), control(q, valid));
    }
    rig.net.inject(Direction::B_TO_A, Nanos(0), control(rig.qa, true));
    assert_eq!(rig.b_sees(78), [Seen::Control(qb, b"forged".to_vec())]);
    assert_eq!(rig.a_sees(78), [Seen::Control(rig.qa, b"forged".to_vec())]);
    let counters = rig.b_counters();
    assert_eq!((counters.corrupt, counters.vanished, counters.control_delivered), (1, 1, 1));
}

#[test]
fn user_fragments_come_with_the_packets_that_carry_them() {
    const USER: u32 = 0x1234_5678;
    let mut rig = Rig::path("loss=0.4,seed=9");
    let src = Memory::new(&mut rig.a, &[1; 40 * P as usize]);
    let posted = WriteRun { user: USER, ..run(rig.qa, 0, 0, src.all) };
    rig.a.post(Nanos(0), CH, &[posted]);
    for seen in rig.b_sees(0) {
        let Seen::Run(_, run) = seen else { panic!("{seen:?}") };
        let (slot, PacketOffset(first)) = SPEC.layout.decode(run.imm);
        let imm = |o| SPEC.layout.encode(slot, PacketOffset(o), USER);
        let user = (first..first + run.packets).fold(0, |u, o| u | SPEC.layout.user_fragment(imm(o)));
        assert_eq!((run.imm, run.user), (imm(first), user), "{run:?}");
    }
}

#[test]
#[should_panic(expected = "has no Direction")]
fn a_direction_has_two_ends() {
    let (net, ..) = SimNet::pair(SimConfig::default()).unwrap();
    net.untap(Direction { from: 0, to: 0 });
}
