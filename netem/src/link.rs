//! One direction of a link.
//!
//! A packet waits in the queue, takes its time on the wire, may be lost, and arrives a delay later; jitter, reordering,
//! duplication and corruption come last. The link holds no packets: it says when each would arrive, and the caller keeps
//! the bytes. Deliveries are appended in sending order, not in order of arrival.

use std::ops::Range;

use sdr_sdk::types::Nanos;

use crate::loss::{LossError, LossModel, LossSpec};
use crate::rng::{Random, derive_seed};
use crate::units::{BitRate, ByteSize, Probability};
use crate::wire::{Cadence, Line, Picos};

#[cfg(test)]
mod tests;

/// The packet time of a link without a rate, for the reordering span.
const NOMINAL_PACKET_TIME: Nanos = Nanos::from_micros(10);

/// Sub-streams of the link's seed. Losses have their own, so that adding jitter does not change which packets are lost.
const IMPAIRMENT_STREAM: u64 = 0;
const LOSS_STREAM: u64 = 1;

/// What one direction does to packets. The default is a perfect link: no delay, no loss, infinite rate.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Serialisation rate; none means packets take no time on the wire and never queue.
    pub rate: Option<BitRate>,
    /// One-way propagation delay.
    pub delay: Nanos,
    /// Half-width of a uniform deviation from `delay`, drawn per packet, as tc-netem's default; it may reorder.
    /// A delay never falls below zero.
    pub jitter: Nanos,
    /// Loss on the wire.
    pub loss: LossSpec,
    /// Probability that a packet is held back.
    pub reorder: Probability,
    /// A held packet waits a uniform 1 to `reorder_span` reference-packet times (of 10 us without a rate).
    pub reorder_span: u32,
    /// Probability that a packet arrives twice; the copy draws its own jitter, hold and corruption.
    pub duplicate: Probability,
    /// Probability that a packet arrives with wrong bytes.
    pub corrupt: Probability,
    /// Most bytes waiting, the packet on the wire included; none means no limit. An idle link takes one packet of any size,
    /// and without a rate nothing ever waits.
    pub queue: Option<ByteSize>,
    /// Bytes added to each packet on the wire, such as headers, preamble and gap.
    pub overhead: u32,
    /// Payload of the packet that burst lengths and the reordering span are counted in, bytes.
    pub reference_bytes: u32,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Nanos::ZERO,
            jitter: Nanos::ZERO,
            loss: LossSpec::None,
            reorder: Probability::ZERO,
            reorder_span: 16,
            duplicate: Probability::ZERO,
            corrupt: Probability::ZERO,
            queue: None,
            overhead: 0,
            reference_bytes: 4096,
            seed: 0,
        }
    }
}

/// Whether a packet arrives for the first time or as the link's own copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeliveryKind {
    /// The packet sent.
    Original,
    /// A second copy of it.
    Duplicate,
}

/// Back-to-back packets of a run that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// First packet, counted in the run.
    pub first: u32,
    /// Consecutive packets; 1 when the link treats packets one by one.
    pub packets: u32,
    /// When the last byte of the first packet is there.
    pub first_arrival: Nanos,
    /// When the last byte of the last packet is there; those between are spread evenly.
    pub arrival: Nanos,
    /// Original or copy.
    pub kind: DeliveryKind,
    /// The bytes changed on the way; a NIC drops the packet for its checksum.
    pub corrupt: bool,
}

/// Packets since the link was made. `offered = queue_drops + lost + delivered`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to the link.
    pub offered: u64,
    /// Original packets that arrive, corrupt ones included.
    pub delivered: u64,
    /// Lost on the wire.
    pub lost: u64,
    /// Dropped at the tail of the queue.
    pub queue_drops: u64,
    /// Copies that arrive besides the originals.
    pub duplicated: u64,
    /// Arrivals with wrong bytes, originals and copies.
    pub corrupted: u64,
    /// Arrivals held back by the reorder probability; jitter's reordering is not counted.
    pub reordered: u64,
}

/// The state of one direction of a link.
#[derive(Clone, Debug)]
pub struct Link {
    spec: LinkSpec,
    line: Line,
    loss: LossModel,
    rng: Random,
    counters: Counters,
    /// Bits that were put on the wire, overhead included.
    carried: u128,
    /// How often the loss model was replaced, so that each has its own seed.
    loss_changes: u64,
    /// Scratch of `transmit`.
    survivors: Vec<Range<u32>>,
}

impl Link {
    /// An idle link.
    ///
    /// # Errors
    /// [`LossError`] when the loss parameters do not fit together.
    pub fn new(spec: LinkSpec) -> Result<Self, LossError> {
        Ok(Self {
            line: Line::new(spec.rate),
            loss: LossModel::new(&spec.loss, loss_slot(&spec), derive_seed(spec.seed, LOSS_STREAM))?,
            rng: Random::new(derive_seed(spec.seed, IMPAIRMENT_STREAM)),
            counters: Counters::default(),
            carried: 0,
            loss_changes: 0,
            survivors: Vec::new(),
            spec,
        })
    }

    /// The parameters in force.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes accepted so far, overhead included: what was not dropped before the wire.
    pub fn carried(&self) -> u64 {
        (self.carried / 8) as u64
    }

    /// When everything accepted has left the wire, rounded up; in the past on an idle link.
    pub fn busy_until(&self) -> Nanos {
        Nanos(u64::try_from(self.line.busy_until().0.div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    /// Bytes accepted and not yet sent at `now`, overhead included; always 0 without a rate.
    pub fn backlog(&self, now: Nanos) -> ByteSize {
        ByteSize(self.line.backlog_bytes(now.into()))
    }

    /// One-way delay of packets sent from here on. Those sent before may be overtaken.
    pub fn set_delay(&mut self, delay: Nanos) {
        self.spec.delay = delay;
    }

    /// Rate of packets sent from here on. What is queued keeps the arrivals already reported, and [`Link::backlog`] counts
    /// the time they take at the new rate.
    pub fn set_rate(&mut self, rate: Option<BitRate>) {
        self.spec.rate = rate;
        self.line.set_rate(rate);
        self.loss.set_slot(loss_slot(&self.spec));
    }

    /// Loss of packets sent from here on; a new model with a seed of its own.
    ///
    /// # Errors
    /// [`LossError`] when the parameters do not fit together; the link keeps the model it had.
    pub fn set_loss(&mut self, loss: LossSpec) -> Result<(), LossError> {
        let seed = derive_seed(self.spec.seed, LOSS_STREAM + self.loss_changes + 1);
        self.loss = LossModel::new(&loss, loss_slot(&self.spec), seed)?;
        self.loss_changes += 1;
        self.spec.loss = loss;
        Ok(())
    }

    /// Sends `packets` packets of `packet_bytes` each, the last of `last_packet_bytes`, and appends what arrives to `out`.
    ///
    /// `now` must not go back. Without jitter, reordering, duplication and corruption each surviving stretch is one
    /// [`Delivery`], so the cost is per loss; otherwise every packet is one.
    pub fn send_run(
        &mut self,
        now: Nanos,
        packets: u32,
        packet_bytes: u32,
        last_packet_bytes: u32,
        out: &mut Vec<Delivery>,
    ) {
        let Some(body) = packets.checked_sub(1) else { return };
        self.counters.offered += u64::from(packets);
        let (bits, last_bits) = (self.wire_bits(packet_bytes), self.wire_bits(last_packet_bytes));
        let Some(queue) = self.spec.queue else {
            return self.transmit(now, 0..packets, bits, last_bits, out);
        };
        let admitted = self.line.admits(now.into(), body, bits, queue.0);
        self.transmit(now, 0..admitted, bits, bits, out);
        // The last packet may be small enough to fit where the one before it did not.
        let last = self.line.admits(now.into(), 1, last_bits, queue.0);
        self.transmit(now, body..body + last, last_bits, last_bits, out);
        self.counters.queue_drops += u64::from(packets - admitted - last);
    }

    fn wire_bits(&self, bytes: u32) -> u64 {
        (u64::from(bytes) + u64::from(self.spec.overhead)) * 8
    }

    /// Wire, loss and delay of the packets `run`, which found room in the queue.
    fn transmit(&mut self, now: Nanos, run: Range<u32>, bits: u64, last_bits: u64, out: &mut Vec<Delivery>) {
        let packets = run.end - run.start;
        if packets == 0 {
            return;
        }
        self.carried += u128::from(packets - 1) * u128::from(bits) + u128::from(last_bits);
        let (starts, end) = self.line.send(now.into(), packets, bits, last_bits);
        let slots = if self.spec.rate.is_some() {
            starts
        } else {
            // Without a rate a slot is a packet.
            let sent = self.counters.delivered + self.counters.lost;
            Cadence::every(Picos(u128::from(sent)), Picos(1))
        };
        let mut survivors = std::mem::take(&mut self.survivors);
        self.loss.survivors(&slots, packets, &mut survivors);
        let sent_at = |i: u32| {
            let left = if i + 1 == packets { end } else { starts.at(i + 1) };
            now + left.nanos_since(now.into())
        };
        let mut delivered = 0;
        for stretch in &survivors {
            delivered += u64::from(stretch.end - stretch.start);
            if self.is_plain() {
                out.push(Delivery {
                    first: run.start + stretch.start,
                    packets: stretch.end - stretch.start,
                    first_arrival: sent_at(stretch.start) + self.spec.delay,
                    arrival: sent_at(stretch.end - 1) + self.spec.delay,
                    kind: DeliveryKind::Original,
                    corrupt: false,
                });
                continue;
            }
            for i in stretch.clone() {
                let (packet, sent) = (run.start + i, sent_at(i));
                out.push(self.arrive(packet, sent, DeliveryKind::Original));
                if self.rng.chance(self.spec.duplicate.get()) {
                    self.counters.duplicated += 1;
                    out.push(self.arrive(packet, sent, DeliveryKind::Duplicate));
                }
            }
        }
        self.survivors = survivors;
        self.counters.delivered += delivered;
        self.counters.lost += u64::from(packets) - delivered;
    }

    fn is_plain(&self) -> bool {
        let LinkSpec { jitter, reorder, duplicate, corrupt, .. } = self.spec;
        jitter == Nanos::ZERO && [reorder, duplicate, corrupt].iter().all(|p| *p == Probability::ZERO)
    }

    /// One copy of one packet that left the wire at `sent`.
    fn arrive(&mut self, packet: u32, sent: Nanos, kind: DeliveryKind) -> Delivery {
        let mut delay = self.spec.delay;
        if self.spec.jitter > Nanos::ZERO {
            let width = self.spec.jitter.0.saturating_mul(2).saturating_add(1);
            delay = (delay + Nanos(self.rng.below(width))).since(self.spec.jitter);
        }
        if self.rng.chance(self.spec.reorder.get()) {
            let packets = 1 + self.rng.below(u64::from(self.spec.reorder_span.max(1)));
            let hold = Picos(u128::from(packets).saturating_mul(packet_time(&self.spec).0));
            delay += hold.nanos_since(Picos(0));
            self.counters.reordered += 1;
        }
        let corrupt = self.rng.chance(self.spec.corrupt.get());
        self.counters.corrupted += u64::from(corrupt);
        let arrival = sent + delay;
        Delivery { first: packet, packets: 1, first_arrival: arrival, arrival, kind, corrupt }
    }
}

/// Wire time of a reference-size packet.
fn packet_time(spec: &LinkSpec) -> Picos {
    match spec.rate {
        Some(rate) => Picos::of_bits((u64::from(spec.reference_bytes) + u64::from(spec.overhead)) * 8, rate),
        None => NOMINAL_PACKET_TIME.into(),
    }
}

/// The unit of burst lengths: a reference packet's time, or with no rate one packet.
fn loss_slot(spec: &LinkSpec) -> Picos {
    if spec.rate.is_some() { packet_time(spec) } else { Picos(1) }
}
