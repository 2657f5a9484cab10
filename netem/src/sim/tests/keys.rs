//! Who may write where, and when.

use super::*;

fn two_packets(rig: &mut Rig, byte: u8) -> Memory {
    Memory::new(&mut rig.a, &[byte; 2 * P as usize])
}

fn buffer(rig: &mut Rig) -> Memory {
    Memory::new(&mut rig.b, &[0; 2 * P as usize])
}

#[test]
fn a_packet_without_a_key_is_reported_and_discarded() {
    let mut rig = Rig::path("");
    let (src, dst, qb) = (two_packets(&mut rig, 1), buffer(&mut rig), rig.qb);
    rig.arm(1, dst.all);
    rig.post(0, CH, 0, 0, src.all);
    assert_eq!(rig.b_sees(0), [completed(qb, 0, 0, 2)], "slot never armed");
    rig.post(0, CH, 5, 0, src.all);
    assert_eq!(rig.b_sees(0), [completed(qb, 5, 0, 2)], "slot armed for another generation");
    assert_eq!(dst.bytes(), [0; 2 * P as usize]);
    let counters = rig.b_counters();
    assert_eq!((counters.null_key, counters.delivered, counters.placed_bytes), (4, 4, 0));
}

#[test]
fn a_key_is_live_until_its_disarm_is_confirmed_and_not_longer() {
    let mut rig = Rig::new(SimConfig { disarm_delay: Nanos(500), ..config("rtt=200ns") });
    let (first, second) = (two_packets(&mut rig, 1), two_packets(&mut rig, 2));
    let (dst, at) = (buffer(&mut rig), message(0));
    let (qb, half) = (rig.qb, P as usize);
    rig.arm(0, dst.all);
    rig.b_sees(1_000);
    rig.b.disarm(qb, at);
    rig.b.disarm(qb, at);
    rig.post(1_300, CH, 0, 0, first.all.slice(0, half));
    assert_eq!(rig.b_sees(1_499), [completed(qb, 0, 0, 1)]);
    assert_eq!(dst.bytes()[0], 1, "the worst hardware still writes");
    assert!(
        rig.b.arm(qb, message(4), &Landing::data(dst.all, P)).is_err(),
        "not reusable before the confirmation"
    );

    // One arrives before the confirmation and one after it, both seen by the same poll.
    rig.post(1_399, CH, 0, 1, first.all.slice(half, half));
    rig.post(1_401, CH, 0, 0, second.all);
    assert_eq!(
        rig.b_sees(9_000),
        [Seen::Disarmed(qb, at), completed(qb, 0, 1, 1), completed(qb, 0, 0, 2)],
        "confirmed once"
    );
    assert_eq!(dst.bytes(), [1; 2 * P as usize]);
    assert_eq!(rig.b_counters().null_key, 2);
    rig.arm(4, dst.all);
}

#[test]
fn a_late_packet_never_reaches_the_next_buffer_of_its_slot() {
    let mut rig = Rig::path("rtt=2us");
    let (old, new) = (two_packets(&mut rig, 1), two_packets(&mut rig, 2));
    let (dst, qb) = (buffer(&mut rig), rig.qb);
    rig.arm(0, dst.all);
    rig.post(0, CH, 0, 0, old.all);
    rig.b.disarm(qb, message(0));
    assert_eq!(rig.b_sees(0), [Seen::Disarmed(qb, message(0))]);
    rig.arm(4, dst.all);
    rig.post(0, CH, 4, 0, new.all.slice(0, P as usize));
    assert_eq!(rig.b_sees(1_000), [completed(qb, 0, 0, 2), completed(qb, 4, 0, 1)]);
    let (placed, untouched) = (vec![2; P as usize], vec![0; P as usize]);
    assert_eq!(dst.bytes(), [placed, untouched].concat());
    assert_eq!(rig.b_counters().null_key, 2);
}

#[test]
fn disarming_what_is_not_armed_is_confirmed_and_takes_no_key() {
    let mut rig = Rig::path("");
    let (src, dst, qb) = (two_packets(&mut rig, 1), buffer(&mut rig), rig.qb);
    rig.arm(4, dst.all);
    rig.b.disarm(qb, message(0));
    assert_eq!(rig.b_sees(0), [Seen::Disarmed(qb, message(0))]);
    rig.post(0, CH, 4, 0, src.all);
    rig.b_sees(0);
    assert_eq!(dst.bytes(), [1; 2 * P as usize]);
}

#[test]
fn a_packet_that_does_not_fit_is_dropped_whole() {
    let mut rig = Rig::path("");
    let src = Memory::new(&mut rig.a, &[1; 4 * P as usize]);
    let dst = Memory::new(&mut rig.b, &[0; 2 * P as usize + 10]);
    let qb = rig.qb;
    rig.arm(0, dst.all);
    rig.post(0, CH, 0, 0, src.all);
    assert_eq!(rig.b_sees(0), [completed(qb, 0, 0, 2)]);
    rig.post(0, CH, 0, 2, src.all.slice(0, 11));
    rig.post(0, CH, 0, 3, src.all.slice(0, 1));
    assert_eq!(rig.b_sees(0), []);
    assert_eq!(rig.b_counters().out_of_range, 4);
    assert_eq!(dst.bytes()[2 * P as usize..], [0; 10]);
    rig.post(0, CH, 0, 2, src.all.slice(0, 10));
    assert_eq!(rig.b_sees(0), [completed(qb, 0, 2, 1)]);
    assert_eq!(dst.bytes(), [1; 2 * P as usize + 10]);
}

#[test]
fn memory_is_registered_before_it_is_used() {
    let mut rig = Rig::path("");
    let dst = buffer(&mut rig);
    rig.b.deregister(dst.all.region());
    assert!(rig.b.arm(rig.qb, message(0), &Landing::data(dst.all, P)).is_err());
    let dst = buffer(&mut rig);
    let bad_slot = SlotGen { slot: MessageId(4), ..message(0) };
    let bad_generation = SlotGen { generation: Generation(4), ..message(0) };
    for at in [bad_slot, bad_generation] {
        let answer = rig.b.arm(rig.qb, at, &Landing::data(dst.all, P));
        assert!(matches!(answer, Err(FabricError::Limit { .. })), "{answer:?}");
    }
}

#[test]
#[should_panic(expected = "armed in it")]
fn memory_with_a_receive_in_it_stays_registered() {
    let mut rig = Rig::path("");
    let dst = buffer(&mut rig);
    rig.arm(0, dst.all);
    rig.b.deregister(dst.all.region());
}

#[test]
#[should_panic(expected = "do not make")]
fn a_run_has_the_bytes_of_its_packets() {
    let mut rig = Rig::path("");
    let src = two_packets(&mut rig, 1);
    let short = WriteRun { packets: 3, ..run(rig.qa, 0, 0, src.all) };
    rig.a.post(Nanos(0), CH, &[short]);
}

#[test]
fn two_queue_sets_have_keys_of_their_own() {
    let mut rig = Rig::path("");
    let (qa2, qb2) = connect(&mut rig.a, &mut rig.b);
    let (src, one, two) = (two_packets(&mut rig, 1), buffer(&mut rig), buffer(&mut rig));
    rig.arm(0, one.all);
    rig.b.arm(qb2, message(0), &Landing::data(two.all, P)).unwrap();
    rig.a.post(Nanos(0), CH, &[run(qa2, 0, 0, src.all)]);
    assert_eq!(rig.b_sees(0), [completed(qb2, 0, 0, 2)]);
    assert_eq!((one.bytes()[0], two.bytes()[0]), (0, 1));
    assert_eq!(rig.a_sees(0), [Seen::Sent(qa2, message(0), 2)]);
}

#[test]
fn what_is_on_its_way_to_closed_queues_vanishes() {
    let mut rig = Rig::new(SimConfig { post_limit: Some(4), ..config("rtt=2us,rate=1Gbit") });
    let (src, dst, qa, qb) = (two_packets(&mut rig, 1), buffer(&mut rig), rig.qa, rig.qb);
    rig.arm(0, dst.all);
    rig.post(0, CH, 0, 0, src.all);
    rig.a.control(Nanos(0), qa, b"late");
    rig.b.disarm(qb, message(0));
    rig.b.close(qb);
    rig.b.deregister(dst.all.region());
    // New queues have another number, and the old sender is not their peer.
    let new = rig.b.open(&SPEC).unwrap().q;
    assert_ne!(new, qb);
    assert_eq!(rig.b_sees(1_000_000), []);
    assert_eq!(dst.bytes()[0], 0);
    assert_eq!(rig.b_counters().vanished, 3);
    assert_eq!(rig.post(1_000_000, CH, 0, 0, src.all), 2);

    // The sender's queues closed: their packets leave the send queue without an event.
    rig.a.close(qa);
    assert_eq!(rig.post(1_000_000, CH, 0, 0, src.all), 0);
    let (qa, _) = connect(&mut rig.a, &mut rig.b);
    let four = [run(qa, 0, 0, src.all), run(qa, 1, 0, src.all)];
    assert_eq!(rig.a.post(Nanos(1_000_000), CH, &four), 4);
    assert_eq!(rig.a_sees(2_000_000), [Seen::Sent(qa, message(0), 2), Seen::Sent(qa, message(1), 2)]);
}

#[test]
fn completions_of_closed_queues_are_not_handed_over() {
    let mut rig = Rig::path("");
    let src = two_packets(&mut rig, 1);
    rig.post(0, CH, 0, 0, src.all);
    rig.b.poll(Nanos(0), CH, &mut |e: Event<'_>| panic!("{e:?}"));
    rig.b.close(rig.qb);
    assert_eq!(rig.b_sees(0), []);
}

#[test]
fn a_dropped_nic_is_gone() {
    let Rig { net, mut a, b, qa, .. } = Rig::path("");
    let src = Memory::new(&mut a, &[1]);
    drop(b);
    assert_eq!(a.post(Nanos(0), CH, &[run(qa, 0, 0, src.all)]), 1);
    let address = a.open(&SPEC).unwrap().address;
    assert!(a.connect(qa, &address).is_err(), "its own address");
    assert_eq!(net.counters(0).sent, 1);
}
