use super::*;
use crate::ec::{Fast, Naive};
use crate::memory::{RecvBuf, Region, RegionId};
use crate::reliability::{Plan, Stripe};
use crate::types::Seq;
use proptest::prelude::*;
use std::sync::Mutex;

fn memory(len: usize) -> RecvBuf {
    RecvBuf::whole(1, Region::map(len.max(1)).unwrap(), RegionId(0))
}

/// A coder that notes what it wrote.
#[derive(Default)]
struct Noting(Mutex<Vec<(usize, usize, usize)>>);

impl Coder for Noting {
    fn encode(&self, job: &EncodeJob<'_>) -> Result<(), EcError> {
        for row in job.rows.clone() {
            self.0.lock().unwrap().extend(job.stripes.clone().map(|s| (job.group, row, s)));
        }
        Naive.encode(job)
    }

    fn decode(&self, job: &DecodeJob<'_>) -> Result<(), EcError> {
        Naive.decode(job)
    }
}

#[derive(Clone, Debug)]
struct Case {
    spec: MessageSpec,
    stripes: Stripes,
    code: Code,
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (1usize..4_000, 1u32..40, 1u16..20, 1u16..8, 0u16..5, any::<bool>());
    (shape, 0u32..400, any::<bool>()).prop_map(|((bytes, payload, k, interleave, m, whole), extra, xor)| {
        let packets = (bytes as u32).div_ceil(payload);
        let spec = MessageSpec {
            seq: Seq(0),
            bytes: bytes as u64,
            packets,
            payload,
            channels: 1,
            per_chunk: 8,
            extra,
            first_extra: packets.next_multiple_of(8),
        };
        let rows = if xor { 1 } else { 6 };
        let stripes = Stripes::new(&spec, &Plan { k, m, interleave }, whole, rows).unwrap();
        Case { spec, stripes, code: if xor { Code::Xor } else { Code::Mds } }
    })
}

fn message(spec: &MessageSpec, seed: u64) -> SendBuf {
    let mut buf = memory(spec.bytes as usize).split_at(spec.bytes as usize).0;
    for (i, b) in buf.iter_mut().enumerate() {
        *b = ((seed ^ i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    }
    buf.freeze()
}

fn parity(c: &Case) -> Parity {
    let bytes = Parity::bytes(&c.spec, &c.stripes);
    Parity::new(&c.spec, c.stripes, c.code, memory(bytes).freeze()).unwrap()
}

/// All rows, by the oracle, in one go.
fn reference(c: &Case, message: &SendBuf) -> Vec<u8> {
    let p = Protected::new(&c.spec, c.stripes, c.code).unwrap();
    let mut all = vec![0; Parity::bytes(&c.spec, &c.stripes)];
    for group in (0..c.stripes.groups() as usize).take(all.len()) {
        let job = EncodeJob {
            code: c.code,
            layout: p.layout,
            group,
            stripes: 0..c.stripes.depth as usize,
            rows: 0..c.stripes.rows as usize,
            allocated: c.stripes.rows as usize,
            data: Readable::from(&message[p.offset..]),
            parity: Writable::from(&mut all[..]),
        };
        Naive.encode(&job).unwrap();
    }
    all
}

proptest! {
    /// In steps ahead, on demand in runs of any cut, or both at once: the same bytes, and none is written twice.
    #[test]
    fn parity_is_the_same_however_it_is_computed(
        c in case(), seed: u64, calls in prop::collection::vec((any::<bool>(), any::<u32>(), 1u32..20), 0..30),
    ) {
        let message = message(&c.spec, seed);
        let (all, packets) = (reference(&c, &message), c.stripes.parity_packets());
        prop_assume!(packets > 0);
        let noting = Noting::default();
        let mut p = parity(&c);
        let payload = c.spec.payload as usize;
        let check = |p: &mut Parity, r: Range<u32>| {
            let got = p.packets(&noting, &message, r.clone()).unwrap();
            prop_assert_eq!(&*got, &all[r.start as usize * payload..r.end as usize * payload]);
            Ok(())
        };
        for (ahead, first, n) in calls {
            if ahead {
                p.ahead(&noting, &message).unwrap();
            } else {
                let first = first % packets;
                check(&mut p, first..(first + n).min(packets))?;
            }
        }
        while p.ahead(&noting, &message).unwrap() {}
        check(&mut p, 0..packets)?;
        let mut written = noting.0.into_inner().unwrap();
        let times = written.len();
        written.sort_unstable();
        written.dedup();
        prop_assert_eq!(written.len(), times, "some parity was written again, that may be on its way");
    }

    /// Data lost where there is parity for it comes back to the byte, and nothing else changes.
    #[test]
    fn solving_restores_what_was_lost(c in case(), seed: u64, lost in prop::collection::vec(any::<bool>(), 4_000)) {
        let message = message(&c.spec, seed);
        let all = reference(&c, &message);
        prop_assume!(!all.is_empty());
        let s = c.stripes;
        let mut damaged = memory(message.len()).split_at(message.len()).0;
        damaged.copy_from_slice(&message);
        let mut extra = memory(all.len()).split_at(all.len()).0;
        extra.copy_from_slice(&all);
        let mut left = Vec::new();
        for group in 0..s.groups() {
            for column in 0..s.depth {
                let stripe = Stripe { group, column };
                let rows = (0..s.k).filter_map(|row| s.packet(stripe, row).map(|p| (row, p)));
                let missing: Vec<_> = rows.filter(|(_, p)| lost[*p as usize]).take(s.rows as usize).collect();
                for (_, p) in &missing {
                    let start = *p as usize * c.spec.payload as usize;
                    let end = (start + c.spec.payload as usize).min(damaged.len());
                    damaged[start..end].fill(0xa5);
                }
                if missing.is_empty() {
                    continue;
                }
                // The last rows: any do.
                let parity = (s.rows - missing.len() as u32..s.rows).map(|row| row as u8).collect();
                left.push(Shortage { stripe, missing: missing.iter().map(|(row, _)| *row as u8).collect(), parity });
            }
        }
        for coder in [&Naive as &dyn Coder, &Fast::new().unwrap()] {
            let mut again = memory(damaged.len()).split_at(damaged.len()).0;
            again.copy_from_slice(&damaged);
            let mut solving = Solving::new(&c.spec, s, c.code, left.clone()).unwrap();
            // SAFETY: both are ours alone and as long as they should be.
            while !unsafe { solving.step(coder, again.raw(), extra.raw()) }.unwrap() {}
            prop_assert_eq!(&*again, &*message);
        }
    }
}

/// A coder that refuses every second job.
#[derive(Default)]
struct Failing(Mutex<u32>);

impl Coder for Failing {
    fn encode(&self, job: &EncodeJob<'_>) -> Result<(), EcError> {
        Naive.encode(job)
    }

    fn decode(&self, job: &DecodeJob<'_>) -> Result<(), EcError> {
        let mut calls = self.0.lock().unwrap();
        *calls += 1;
        if calls.is_multiple_of(2) { Naive.decode(job) } else { Err(EcError::Overlap) }
    }
}

/// A stripe that could not be computed is not forgotten: a message is whole only when all of it is.
#[test]
fn what_was_not_computed_is_not_done() {
    let spec = MessageSpec {
        seq: Seq(0),
        bytes: 40,
        packets: 4,
        payload: 10,
        channels: 1,
        per_chunk: 1,
        extra: 2,
        first_extra: 4,
    };
    let stripes = Stripes::new(&spec, &Plan { k: 2, m: 1, interleave: 2 }, true, 1).unwrap();
    let c = Case { spec, stripes, code: Code::Mds };
    let message = message(&spec, 1);
    let all = reference(&c, &message);
    let mut extra = memory(all.len()).split_at(all.len()).0;
    extra.copy_from_slice(&all);
    let mut damaged = memory(40).split_at(40).0;
    damaged.copy_from_slice(&message);
    damaged[..20].fill(0);
    let lack = |column| Shortage { stripe: Stripe { group: 0, column }, missing: vec![0], parity: vec![0] };
    let mut solving = Solving::new(&spec, stripes, Code::Mds, vec![lack(0), lack(1)]).unwrap();
    let coder = Failing::default();
    for _ in 0..10 {
        // SAFETY: both are ours alone and as long as they should be.
        if unsafe { solving.step(&coder, damaged.raw(), extra.raw()) } == Ok(true) {
            break;
        }
    }
    assert_eq!(&*damaged, &*message);
}
