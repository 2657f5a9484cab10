//! Schemes and coders that panic or refuse: the transfers of their connection end, typed, and nothing hangs.

use super::{SimBed, hybrid, lose};
use netem::sim::{Direction, Frame, FrameKind, Verdict};
use sdr_sdk::connection::TransferError;
use sdr_sdk::ec::{Code, Coder, DecodeJob, EcError, EncodeJob, Naive};
use sdr_sdk::reliability::{
    Conditions, MessageSpec, Outcome, Plan, PlanError, Say, Scheme, SchemeReceiver, SchemeSender, SendRun,
    Shortage, Status, Stripes, View,
};
use sdr_sdk::types::Nanos;
use sdr_tests::bed::{PACKET, RTT, USUAL, config_of};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Extra,
    Plan,
    SenderStripes,
    OnWant,
    Next,
    Asked,
    OnProgress,
    Report,
    Named,
    Shortages,
    ReceiverStripes,
    Encode,
    Decode,
}

const CALLS: [Call; 13] = [
    Call::Extra,
    Call::Plan,
    Call::SenderStripes,
    Call::OnWant,
    Call::Next,
    Call::Asked,
    Call::OnProgress,
    Call::Report,
    Call::Named,
    Call::Shortages,
    Call::ReceiverStripes,
    Call::Encode,
    Call::Decode,
];

/// Hybrid and its coder, with a bomb in the n-th of a call.
#[derive(Clone)]
struct Bomb(Call, Arc<AtomicU32>);

impl Bomb {
    fn check(&self, call: Call) {
        if call == self.0 && self.1.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic!("bomb");
        }
    }
}

struct With<T: ?Sized>(Bomb, Box<T>);

impl Scheme for Bomb {
    fn name(&self) -> Cow<'static, str> {
        "bomb".into()
    }
    fn wire_id(&self) -> u8 {
        hybrid().wire_id()
    }
    fn code(&self) -> Code {
        hybrid().code()
    }
    fn extra(&self, m: &MessageSpec, c: &Conditions) -> u32 {
        self.check(Call::Extra);
        hybrid().extra(m, c)
    }
    fn sender(&self, m: &MessageSpec, c: &Conditions) -> Box<dyn SchemeSender> {
        Box::new(With(self.clone(), hybrid().sender(m, c)))
    }
    fn receiver(
        &self,
        m: &MessageSpec,
        p: &Plan,
        c: &Conditions,
    ) -> Result<Box<dyn SchemeReceiver>, PlanError> {
        Ok(Box::new(With(self.clone(), hybrid().receiver(m, p, c)?)))
    }
}

impl SchemeSender for With<dyn SchemeSender> {
    fn plan(&self) -> Plan {
        self.0.check(Call::Plan);
        self.1.plan()
    }
    fn stripes(&self) -> Option<Stripes> {
        self.0.check(Call::SenderStripes);
        self.1.stripes()
    }
    fn on_status(&mut self, now: Nanos, status: &Status<'_>, c: &Conditions) {
        self.1.on_status(now, status, c);
    }
    fn on_want(&mut self, now: Nanos, wanted: &mut dyn Iterator<Item = Range<u32>>, c: &Conditions) {
        self.0.check(Call::OnWant);
        self.1.on_want(now, wanted, c);
    }
    fn next(&mut self, now: Nanos, budget: u32, c: &Conditions) -> Option<SendRun> {
        self.0.check(Call::Next);
        self.1.next(now, budget, c)
    }
    fn wake_at(&self, c: &Conditions) -> Option<Nanos> {
        self.1.wake_at(c)
    }
}

impl SchemeReceiver for With<dyn SchemeReceiver> {
    fn on_progress(&mut self, now: Nanos, v: &View<'_>, c: &Conditions) -> Outcome {
        self.0.check(Call::OnProgress);
        self.1.on_progress(now, v, c)
    }
    fn report<'a>(&'a mut self, now: Nanos, v: &View<'a>, c: &Conditions, part: u32) -> Option<Say<'a>> {
        self.0.check(Call::Report);
        self.1.report(now, v, c, part)
    }
    fn reported(&mut self, to: u32) {
        self.1.reported(to);
    }
    fn named(&mut self, ranges: usize) {
        self.0.check(Call::Named);
        self.1.named(ranges);
    }
    fn overdue(&self, now: Nanos, c: &Conditions) -> u32 {
        self.1.overdue(now, c)
    }
    fn asked(&self) -> u32 {
        self.0.check(Call::Asked);
        self.1.asked()
    }
    fn urgent(&self) -> bool {
        self.1.urgent()
    }
    fn wake_at(&self) -> Option<Nanos> {
        self.1.wake_at()
    }
    fn shortages(&self, v: &View<'_>) -> Vec<Shortage> {
        self.0.check(Call::Shortages);
        self.1.shortages(v)
    }
    fn stripes(&self) -> Option<Stripes> {
        self.0.check(Call::ReceiverStripes);
        self.1.stripes()
    }
}

impl Coder for Bomb {
    fn encode(&self, job: &EncodeJob<'_>) -> Result<(), EcError> {
        self.check(Call::Encode);
        Naive.encode(job)
    }
    fn decode(&self, job: &DecodeJob<'_>) -> Result<(), EcError> {
        self.check(Call::Decode);
        Naive.decode(job)
    }
}

#[test]
fn panics_end_the_connection_and_every_transfer() {
    for call in CALLS {
        for n in [1, 2] {
            let bomb = Bomb(call, Arc::new(AtomicU32::new(n)));
            let mut c = config_of(USUAL, Arc::new(bomb.clone()));
            c.connection.coder = Arc::new(bomb.clone());
            let mut bed = SimBed::new(c);
            // Of one message so much that parity makes up for it, of the next all that leaves at its end.
            let mut seen = HashSet::new();
            bed.tap(Direction::A_TO_B, move |f: &Frame<'_>| match f.kind {
                FrameKind::Data { at, first, .. } => {
                    let lost = first % 10 == 3 || (at.seq.0 % 2 == 1 && first >= 150);
                    if lost && seen.insert((at.seq, first)) { Verdict::Drop } else { Verdict::Pass }
                }
                FrameKind::Control(_) => Verdict::Pass,
            });
            bed.one_way(0, 4, 160 * PACKET);
            bed.finish(RTT.mul_div(400, 1));
            let left = bomb.1.load(Ordering::Relaxed);
            assert!(left == 0 || left > n, "{call:?} {n} was not called");
            let ends = bed.sends[0].iter().filter_map(|s| s.result.as_ref()?.as_ref().err().cloned());
            let ends = ends.chain(
                bed.recvs[1].iter().filter_map(|r| Some(r.result.as_ref()?.as_ref().err()?.why.clone())),
            );
            let ends: Vec<_> = ends.collect();
            assert!(ends.contains(&TransferError::Panicked("bomb".into())), "{call:?} {n}: {ends:?}");
            bed.verify();
        }
    }
}

/// A coder that refuses.
struct Refusing {
    encodes: bool,
}

impl Coder for Refusing {
    fn encode(&self, job: &EncodeJob<'_>) -> Result<(), EcError> {
        if self.encodes { Naive.encode(job) } else { Err(EcError::Overlap) }
    }
    fn decode(&self, _: &DecodeJob<'_>) -> Result<(), EcError> {
        Err(EcError::Overlap)
    }
}

/// No message is called whole whose bytes were not computed: the transfer ends by its deadline.
#[test]
fn coders_that_refuse_are_no_wrong_bytes() {
    for encodes in [false, true] {
        let mut c = config_of(USUAL, hybrid());
        c.connection.coder = Arc::new(Refusing { encodes });
        c.connection.progress_deadline = Nanos::from_secs(1);
        let mut bed = SimBed::new(c);
        lose(&bed, 1, |first| first % 10 == 3);
        bed.one_way(0, 2, 160 * PACKET);
        bed.finish(Nanos::from_secs(20));
        bed.verify();
        println!(
            "encodes {encodes}: {:?}",
            bed.recvs[1].iter().map(|r| r.result.as_ref().map(|r| r.is_ok())).collect::<Vec<_>>()
        );
    }
}
