use super::*;
use crate::reliability::striped::Striped;
use crate::reliability::{ChannelView, Scheme, Stripes, Unfinished};
use crate::types::Seq;
use proptest::prelude::*;

fn message(packets: u32, extra: u32) -> MessageSpec {
    MessageSpec {
        seq: Seq(0),
        bytes: u64::from(packets) * 4_096,
        packets,
        payload: 4_096,
        channels: 1,
        per_chunk: 16,
        extra,
        first_extra: packets.next_multiple_of(16),
    }
}

fn path(packet_time_ps: u64, probability: f64, burst: f64, messages: u32) -> Conditions {
    Conditions {
        rtt: Nanos::from_millis(25),
        min_rtt: Nanos::from_millis(25),
        packet_time_ps,
        room: u32::MAX,
        channels: ChannelView::new(1),
        loss: Loss { probability, burst },
        spare_parity: true,
        unfinished: Unfinished { messages, bytes: u64::from(messages) << 20 },
    }
}

fn within_limits(m: &MessageSpec, c: &Conditions) -> Result<Choice, TestCaseError> {
    let choice = choose(m, c);
    let Plan { k, m: rows, interleave } = choice.plan;
    prop_assert!(k >= 1 && u32::from(k) <= MAX_K);
    prop_assert!(u32::from(k) + u32::from(rows) <= MAX_COLUMNS);
    prop_assert!(interleave >= 1);
    // Not a stripe more than there are packets.
    prop_assert!((u32::from(k) - 1) * u32::from(interleave) < m.packets);
    prop_assert!((1..=8).contains(&choice.copies));
    prop_assert!(choice.gap.0 <= c.rtt.0 / 250);
    if c.unfinished.messages <= 1 {
        prop_assert!(rows > u16::from(k > 1) || u32::from(k) + 2 > MAX_COLUMNS);
    }
    Ok(choice)
}

#[test]
fn every_length_in_the_corners() {
    for bits in 0..=22 {
        for packets in [(1u32 << bits).saturating_sub(1).max(1), 1 << bits, (1 << bits) + 1] {
            for pace in [0, 1, 81_920, 40_960_000] {
                for loss in [0.0, 1e-9, 1e-4, 0.02, 0.2, 0.5] {
                    for burst in [0.0, 1.0, 16.0, 256.0] {
                        within_limits(&message(packets, u32::MAX), &path(pace, loss, burst, 1)).unwrap();
                    }
                }
            }
        }
    }
}

/// What a peer counts is bounded by the frame's checks alone.
#[test]
fn absurd_losses_are_survived() {
    for loss in [0.0, 0.5, 1.0, 1e300, f64::INFINITY] {
        for burst in [0.0, 1e19, f64::INFINITY] {
            for pace in [0, 1, u64::MAX] {
                within_limits(&message(5_000, 1_000), &path(pace, loss, burst, 3)).unwrap();
                report_copies(&path(pace, loss, burst, 1));
            }
        }
    }
}

#[test]
fn an_empty_message_has_no_plan() {
    assert_eq!(choose(&message(0, 0), &path(81_920, 0.1, 1.0, 1)).plan, Plan::default());
}

/// What the receiver reserves suffices for what the sender will send, when both see the same path.
#[test]
fn a_receive_has_memory_for_the_plan() {
    for packets in [1, 2, 3, 100, 1_000, 70_000] {
        for loss in [1e-4, 1e-2, 0.2] {
            let c = path(81_920, loss, 4.0, 1);
            let m = message(packets, extra(&message(packets, 0), &c));
            let choice = choose(&m, &c);
            let s = Stripes::new(&m, &choice.plan, false, 256 - u32::from(choice.plan.k)).unwrap();
            assert_eq!(s.sent, choice.plan.m.into(), "{packets} packets, loss {loss}");
            assert!(s.rows > s.sent, "some in reserve: {s:?}");
        }
    }
}

fn schemes() -> impl Strategy<Value = Striped> {
    prop_oneof![
        Just(Striped::hybrid()),
        (1u32..=224, 1u32..=16).prop_map(|(k, m)| Striped::ec(k, m).unwrap()),
        (1u32..=224, 1u32..=16).prop_map(|(k, m)| Striped::xor(k, m.min(k)).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_choice_is_within_the_limits(
        bits in 0u32..=22, fraction in 0.0..1.0f64, loss in prop_oneof![0.0..0.5f64, 0.0..0.01f64],
        burst in 1.0..256.0f64, pace in prop_oneof![Just(0u64), 1u64..100_000_000], messages in 0u32..40,
    ) {
        let packets = (f64::from(1u32 << bits) * (1.0 + fraction)) as u32;
        within_limits(&message(packets, u32::MAX), &path(pace, loss, burst, messages))?;
    }

    /// Whatever memory a receive has, the receiver accepts what the sender announces, and both have the same stripes. What does
    /// not fit is left out, row by row.
    #[test]
    fn less_memory_is_fewer_rows(
        scheme in schemes(), packets in 1u32..20_000, loss in 0.0..0.5f64, burst in 1.0..64.0f64,
        extra in prop_oneof![Just(0u32), 1u32..100, 0u32..30_000], pace in prop_oneof![Just(0u64), Just(81_920u64)],
    ) {
        let c = path(pace, loss, burst, 1);
        let m = message(packets, extra);
        let sender = scheme.sender(&m, &c);
        let receiver = scheme.receiver(&m, &sender.plan(), &c);
        prop_assert!(receiver.is_ok(), "{:?} of {:?}", receiver.err(), scheme);
        let stripes = sender.stripes();
        prop_assert_eq!(stripes, receiver.unwrap().stripes().map(|s| Stripes { sent: stripes.map_or(0, |s| s.sent), ..s }));
        if let Some(s) = stripes {
            prop_assert!(s.parity_packets() <= extra && s.sent <= s.rows);
            prop_assert_eq!(u32::from(sender.plan().m), s.sent);
            let more = scheme.sender(&message(packets, extra + s.count()), &c);
            prop_assert!(more.stripes().is_some_and(|t| t.rows >= s.rows));
        }
    }
}
