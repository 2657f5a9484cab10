use super::super::{
    Arrived, Conditions, Loss, Outcome, PacketView, Say, SchemeReceiver, SchemeSender, SendRun, Status, View,
};
use super::monte_carlo::Random;
use super::{MIN_RTO, MessageSpec, Receiver, SelectiveRepeat, Sender};
use crate::bitmap::Shape;
use crate::reliability::ChannelView;
use crate::types::{Channel, ChunkIndex, Nanos, Seq};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// A packet a microsecond over 10 ms, so that the timeout is 30 ms.
const PATH: Conditions = Conditions {
    rtt: Nanos(10 * MS),
    min_rtt: Nanos(10 * MS),
    packet_time_ps: 1_000_000,
    spare_parity: true,
    room: u32::MAX,
    channels: ChannelView::new(1),
    loss: Loss { probability: 1e-2, burst: 16.0 },
    unfinished: crate::reliability::Unfinished { messages: 1, bytes: 0 },
};
const RTO: u64 = 30 * MS;

fn fresh(first: u32, packets: u32) -> Option<SendRun> {
    Some(SendRun { first, packets, channel: Channel(0), repair: false, parity: false })
}

fn repair(first: u32, packets: u32) -> Option<SendRun> {
    Some(SendRun { first, packets, channel: Channel(0), repair: true, parity: false })
}

/// A message on one channel.
pub(super) fn spec(packets: u32) -> MessageSpec {
    MessageSpec {
        seq: Seq(0),
        bytes: packets.into(),
        packets,
        payload: 1,
        channels: 1,
        per_chunk: 16,
        extra: 0,
        first_extra: packets.next_multiple_of(16),
    }
}

/// The receiver asked what it makes of `arrived`, without extra packets.
pub(in super::super) fn judge(r: &mut impl SchemeReceiver, now: Nanos, arrived: &Arrived) -> Outcome {
    r.on_progress(now, &View { data: arrived, parity: &Arrived::new(0) }, &PATH)
}

/// The first part of its report.
pub(in super::super) fn said<'a>(
    r: &'a mut impl SchemeReceiver,
    now: Nanos,
    arrived: &'a Arrived,
    none: &'a Arrived,
) -> Status<'a> {
    match r.report(now, &View { data: arrived, parity: none }, &PATH, 0) {
        Some(Say::Status(s)) => s,
        other => panic!("{other:?}"),
    }
}

/// A sender that has sent all of its `n` packets from time 0 on.
fn sent(n: u32) -> Sender {
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(n));
    assert_eq!(s.wake_at(&PATH), Some(Nanos::ZERO), "at once");
    assert_eq!(s.next(Nanos::ZERO, u32::MAX, &PATH), fresh(0, n));
    s
}

fn tell(s: &mut Sender, base: u32, window: Range<u32>, missing: &[Range<u32>]) {
    s.on_status(Nanos::ZERO, &Status::listed(base, window, missing), &PATH);
}

/// Checks that nothing happens before `at`, and takes what happens then.
fn at(s: &mut Sender, at: u64) -> Option<SendRun> {
    assert_eq!(s.wake_at(&PATH), Some(Nanos(at)));
    assert_eq!(s.next(Nanos(at - 1), u32::MAX, &PATH), None);
    s.next(Nanos(at), u32::MAX, &PATH)
}

#[test]
fn an_empty_message_sends_nothing() {
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(0));
    assert_eq!(s.wake_at(&PATH), None);
    assert_eq!(s.next(Nanos::ZERO, 10, &PATH), None);
    let whole = judge(&mut Receiver::default(), Nanos::ZERO, &Arrived::new(0));
    assert_eq!(whole, Outcome::Whole);
}

#[test]
fn a_lost_packet_is_sent_again_at_its_own_timeout_and_again() {
    let mut s = sent(10);
    tell(&mut s, 3, 0..10, std::slice::from_ref(&(3..4)));
    assert_eq!(at(&mut s, 3 * US + RTO), repair(3, 1));
    assert_eq!(at(&mut s, 3 * US + 2 * RTO), repair(3, 1));
    tell(&mut s, 10, 0..0, &[]);
    assert_eq!(s.wake_at(&PATH), None);
    assert_eq!(s.unacknowledged(), 0);
}

#[test]
fn losses_apart_are_sent_again_apart() {
    let mut s = sent(100);
    tell(&mut s, 10, 10..100, &[10..12, 50..51]);
    assert_eq!(at(&mut s, 10 * US + RTO), repair(10, 2));
    assert_eq!(at(&mut s, 50 * US + RTO), repair(50, 1));
    assert_eq!(at(&mut s, 10 * US + 2 * RTO), repair(10, 2));
}

#[test]
fn a_lost_tail_is_sent_again() {
    let mut s = sent(10);
    tell(&mut s, 8, 8..8, &[]);
    assert_eq!(at(&mut s, 8 * US + RTO), repair(8, 2));
}

#[test]
fn everything_lost_is_one_run_a_round() {
    let n = 1 << 22;
    let fast = Conditions { packet_time_ps: 5_000, ..PATH };
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(n));
    assert_eq!(s.next(Nanos::ZERO, u32::MAX, &fast), fresh(0, n));
    for round in 1..4 {
        assert_eq!(s.wake_at(&fast), Some(Nanos(round * RTO)));
        assert_eq!(s.next(Nanos(round * RTO), u32::MAX, &fast), repair(0, n));
    }
    assert_eq!(s.ledger.records(), 1);
}

#[test]
fn a_lost_report_costs_repairs_and_a_late_one_ends_them() {
    let mut s = sent(10);
    assert_eq!(at(&mut s, RTO), repair(0, 10));
    // The report on the first transmissions: all but 4 arrived; then an older one.
    tell(&mut s, 4, 0..10, std::slice::from_ref(&(4..5)));
    tell(&mut s, 2, 0..6, std::slice::from_ref(&(2..6)));
    assert_eq!(s.unacknowledged(), 1);
    assert_eq!(at(&mut s, 4 * US + 2 * RTO), repair(4, 1));
    tell(&mut s, 0, 4..5, &[]);
    assert_eq!(s.wake_at(&PATH), None);
}

#[test]
fn partial_reports_add_up() {
    let mut s = sent(10);
    tell(&mut s, 0, 4..8, std::slice::from_ref(&(5..6)));
    tell(&mut s, 0, 9..10, &[]);
    tell(&mut s, 2, 2..2, &[]);
    assert_eq!(s.unacknowledged(), 4, "2, 3, 5, 8");
    assert_eq!(at(&mut s, 2 * US + RTO), repair(2, 2));
    assert_eq!(at(&mut s, 5 * US + RTO), repair(5, 1));
    tell(&mut s, 0, 5..6, &[]);
    assert_eq!(at(&mut s, 8 * US + RTO), repair(8, 1));
}

#[test]
fn repairs_go_before_first_transmissions_within_the_budget() {
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(100));
    assert_eq!(s.next(Nanos::ZERO, 0, &PATH), None);
    assert_eq!(s.next(Nanos::ZERO, 10, &PATH), fresh(0, 10));
    assert_eq!(s.next(Nanos(RTO), 4, &PATH), repair(0, 4));
    assert_eq!(s.next(Nanos(RTO + 4 * US), 10, &PATH), repair(4, 6));
    assert_eq!(s.next(Nanos(RTO + 10 * US), 1_000, &PATH), fresh(10, 90));
    assert_eq!(at(&mut s, 2 * RTO), repair(0, 100), "back to back, whatever they were");
}

#[test]
fn runs_handed_out_at_one_instant_leave_one_after_the_other() {
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(20));
    assert_eq!(s.next(Nanos::ZERO, 10, &PATH), fresh(0, 10));
    assert_eq!(s.next(Nanos::ZERO, 10, &PATH), fresh(10, 10));
    tell(&mut s, 15, 0..0, &[]);
    assert_eq!(at(&mut s, 15 * US + RTO), repair(15, 5));

    let mut s = sent(20);
    tell(&mut s, 5, 5..20, &[5..6, 9..10]);
    let late = Nanos(2 * RTO);
    assert_eq!(s.next(late, 10, &PATH), repair(5, 1));
    assert_eq!(s.next(late, 10, &PATH), repair(9, 1));
    assert_eq!(at(&mut s, 3 * RTO), repair(5, 1));
    assert_eq!(at(&mut s, 3 * RTO + US), repair(9, 1));
}

#[test]
fn a_faster_pace_does_not_overtake_the_timeouts() {
    let mut s = sent(10);
    let fast = Conditions { packet_time_ps: 500_000, ..PATH };
    assert_eq!(s.next(Nanos(RTO), 10, &fast), repair(0, 1));
    assert_eq!(s.next(Nanos(RTO + 500), 10, &fast), None);
    assert_eq!(s.next(Nanos(RTO + 3 * US), 10, &fast), repair(1, 5), "packet 6 would leave at 5.5 us");
    let at_once = Conditions { packet_time_ps: 0, ..PATH };
    assert_eq!(s.next(Nanos(RTO + 7 * US), 10, &at_once), repair(6, 2));
    assert_eq!(s.next(Nanos(RTO + 9 * US), 10, &at_once), repair(8, 2));
}

#[test]
fn the_timeout_follows_the_rtt_and_has_a_floor() {
    let mut s = sent(2);
    let slower = Conditions { rtt: Nanos(20 * MS), ..PATH };
    assert_eq!(s.wake_at(&slower), Some(Nanos(2 * RTO)));
    assert_eq!(s.next(Nanos(RTO), 10, &slower), None);
    assert_eq!(s.next(Nanos(RTO), 10, &PATH), repair(0, 2));
    assert_eq!(SelectiveRepeat::default().rto(Nanos(10 * US)), MIN_RTO);
    assert_eq!(SelectiveRepeat::new(500).rto(Nanos(10 * MS)), Nanos(15 * MS));
    assert_eq!(SelectiveRepeat::new(u32::MAX).rto(Nanos::MAX), Nanos::MAX);
}

#[test]
fn false_reports_change_nothing() {
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(20));
    assert_eq!(s.next(Nanos::ZERO, 10, &PATH), fresh(0, 10));
    tell(&mut s, 0, 10..u32::MAX, &[]);
    #[expect(clippy::reversed_empty_ranges, reason = "a peer can say anything")]
    tell(&mut s, 0, 9..3, &[7..2, 0..u32::MAX]);
    tell(&mut s, 0, 0..10, &[8..9, 0..8, 9..u32::MAX]);
    assert_eq!(s.unacknowledged(), 10 - 8, "what its first range does not name");
    tell(&mut s, u32::MAX, 0..u32::MAX, &[]);
    assert_eq!(s.next(Nanos(RTO), 100, &PATH), fresh(10, 10), "what was not sent cannot have arrived");
    assert_eq!(s.unacknowledged(), 10);
}

#[test]
fn long_messages_keep_few_runs() {
    // 8 GiB handed out 64 packets at a time, by a clock of whole nanoseconds.
    let c = Conditions { packet_time_ps: 81_920, ..PATH };
    let packets = 1 << 21;
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(packets));
    for i in 0..packets as u64 / 64 {
        let now = Nanos((i * 64 * 81_920).div_ceil(1_000));
        tell(&mut s, (i as u32 * 64).saturating_sub(1 << 17), 0..0, &[]);
        assert_eq!(s.next(now, 64, &c), fresh(i as u32 * 64, 64));
        assert!(s.ledger.records() <= 2);
    }
}

#[test]
fn a_driver_that_is_a_little_late_is_never_early_with_repairs() {
    // 1 us late with each run of 10: runs merge until the slack is spent.
    let mut s = Sender::new(SelectiveRepeat::default(), &spec(1_000));
    let left = |p: u32| p as u64 * US + (p / 10) as u64 * US;
    for i in 0..100 {
        s.next(Nanos(left(i * 10)), 10, &PATH);
    }
    assert!((8..12).contains(&s.ledger.records()), "{}", s.ledger.records());
    let mut now = s.wake_at(&PATH).unwrap();
    while now.0 < 2 * RTO - US {
        if let Some(r) = s.next(now, 1, &PATH) {
            let due = left(r.first) + RTO;
            assert!((due..=due + 10 * US).contains(&now.0), "{r:?} at {now}, due {due}");
        }
        now = s.wake_at(&PATH).unwrap().max(now + Nanos(1));
    }
}

/// A receive with one bool a packet.
struct Here(Vec<bool>, u8);

impl PacketView for Here {
    fn shape(&self) -> Shape {
        Shape::new(self.0.len() as u32, self.1)
    }

    fn chunk(&self, c: ChunkIndex) -> bool {
        self.0.chunks(self.1 as usize).nth(c.0 as usize).unwrap().iter().all(|&p| p)
    }

    fn packets(&self, c: ChunkIndex) -> u64 {
        let chunk = self.0.chunks(self.1 as usize).nth(c.0 as usize).unwrap();
        chunk.iter().enumerate().map(|(i, &p)| (p as u64) << i).sum()
    }
}

#[test]
fn reports_continue_where_there_was_no_room() {
    let view = Here((0..100).map(|p| p % 10 != 0).collect(), 16);
    let mut arrived = Arrived::new(100);
    arrived.update(&view, 100);
    let (mut r, none) = (Receiver::default(), Arrived::new(0));
    let s = said(&mut r, Nanos::ZERO, &arrived, &none);
    assert_eq!((s.from, s.to), (0, 100));
    r.reported(40);
    let next = said(&mut r, Nanos::ZERO, &arrived, &none);
    assert_eq!((next.base, next.from, next.to), (0, 40, 100));
    assert_eq!(next.missing.map(|m| m.start).collect::<Vec<_>>(), [40, 50, 60, 70, 80, 90]);
    r.reported(100);
    assert_eq!(said(&mut r, Nanos::ZERO, &arrived, &none).from, 0, "from the start again");
}

enum Arrival {
    Data(u32),
    Report { base: u32, window: Range<u32>, missing: Vec<Range<u32>> },
}

/// Both ends over a path that loses, repeats and reorders, until the sender knows that all arrived.
fn transfer(total: u32, loss: f64, per_chunk: u8, seed: u64) -> Result<(), TestCaseError> {
    let mut random = Random(seed);
    let mut sender = Sender::new(SelectiveRepeat::new(random.below(3_000) as u32), &spec(total));
    let mut receiver = Receiver::default();
    let mut view = Here(vec![false; total as usize], per_chunk);
    let mut arrived = Arrived::new(total);
    let mut high = 0;
    let mut wire: BTreeMap<(u64, u64), Arrival> = BTreeMap::new();
    let mut c = PATH;
    // By packet: when it left last in picoseconds, whether a report said that it arrived.
    let (mut left, mut reported) = (vec![None; total as usize], vec![false; total as usize]);
    let (mut idle_at, mut report_at, mut events) = (0, 5 * MS, 0);
    while !sender.fresh.is_done() || sender.unacknowledged() > 0 {
        events += 1;
        prop_assert!(events < 1_000_000, "does not end");
        let wake = sender.wake_at(&c).unwrap_or(Nanos::MAX).0;
        let first_in = wire.first_key_value().map_or(u64::MAX, |(k, _)| k.0);
        let now = wake.max(idle_at).min(first_in).min(report_at);
        let delay = |random: &mut Random| now + 5 * MS + random.below(4) * random.below(MS);
        if now == first_in {
            match wire.pop_first().unwrap().1 {
                Arrival::Data(p) => {
                    view.0[p as usize] = true;
                    high = high.max(p + 1);
                }
                Arrival::Report { base, window, missing } => {
                    for p in (0..total).filter(|p| *p < base || window.contains(p)) {
                        reported[p as usize] |= !missing.iter().any(|m| m.contains(&p));
                    }
                    sender.on_status(Nanos(now), &Status::listed(base, window, &missing), &c);
                    let open = reported[..sender.fresh.next as usize].iter().filter(|r| !**r).count();
                    prop_assert_eq!(sender.unacknowledged() as usize, open);
                }
            }
        } else if now == report_at {
            arrived.update(&view, high);
            arrived.recheck(&view, 1 + random.below(20) as u32);
            let whole = view.0.iter().all(|&p| p);
            let outcome = judge(&mut receiver, Nanos(now), &arrived);
            prop_assert!(whole || outcome == Outcome::Pending);
            let none = Arrived::new(0);
            let s = said(&mut receiver, Nanos(now), &arrived, &none);
            let mut missing: Vec<_> = s.missing.clone().collect();
            let room = 1 + random.below(8) as usize;
            let to = missing.get(room).map_or(s.to, |m| m.start);
            missing.truncate(room);
            let (base, window) = (s.base, s.from..to);
            receiver.reported(to);
            if random.unit() > loss {
                wire.insert((delay(&mut random), events), Arrival::Report { base, window, missing });
            }
            report_at += 2 * MS + random.below(MS);
            c.rtt = Nanos(9 * MS + random.below(3 * MS));
            c.packet_time_ps = 500_000 + random.below(2) * random.below(1_000_000);
        } else {
            let Some(run) = sender.next(Nanos(now), 1 + random.below(70) as u32, &c) else {
                return Err(TestCaseError::fail("woken for nothing"));
            };
            let rto = sender.config.rto(c.rtt).0 * 1_000;
            for i in 0..run.packets {
                let p = (run.first + i) as usize;
                let leaves = now * 1_000 + i as u64 * c.packet_time_ps;
                prop_assert_eq!(left[p].is_some(), run.repair);
                prop_assert!(left[p].is_none_or(|t| t + rto <= leaves), "{} sent again too early", p);
                prop_assert!(!reported[p], "{} sent again after it was reported", p);
                left[p] = Some(leaves);
                for _ in 0..1 + random.below(20) / 19 {
                    if random.unit() > loss {
                        let at = delay(&mut random) + i as u64 * c.packet_time_ps / 1_000;
                        wire.insert((at, events << 32 | wire.len() as u64), Arrival::Data(p as u32));
                    }
                }
            }
            idle_at = (now * 1_000 + run.packets as u64 * c.packet_time_ps).div_ceil(1_000);
        }
        let wake = sender.wake_at(&c).unwrap_or(Nanos::MAX);
        if now > 0 && wake > Nanos(now) {
            prop_assert_eq!(sender.next(Nanos(now), 1, &c), None, "something before the wake-up");
        }
    }
    prop_assert!(left.iter().all(Option::is_some));
    prop_assert!(view.0.iter().all(|&p| p));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_transfer_ends(
        total in 0..600u32,
        loss in prop_oneof![Just(0.0), Just(0.01), Just(0.1), Just(0.5)],
        per_chunk in 1..=64u8,
        seed: u64,
    ) {
        transfer(total, loss, per_chunk, seed)?;
    }
}
