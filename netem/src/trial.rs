//! Completion times by simulation: the protocol itself, one message a sample, each on a fresh pair of ends.
//!
//! A sample is a function of its seed, so results do not depend on the number of threads. The control path is warm (the
//! receive is granted and the round trip measured) before the message is sent, as on a connection in use.

use crate::pair::{Pair, PairConfig, PairError};
use crate::rng::derive_seed;
use crate::sim::{Direction, NicCounters, SimConfig, SimPath};
use crate::spec::PathSpec;
use sdr_sdk::connection::ConnectionConfig;
use sdr_sdk::context::{ContextConfig, QpConfig};
use sdr_sdk::ec::{Coder, DecodeJob, EcError, EncodeJob};
use sdr_sdk::imm::ImmLayout;
use sdr_sdk::reliability::{Loss, Scheme};
use sdr_sdk::types::Nanos;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many steps of a sample pass between two questions whether to go on: about a millisecond.
const STEPS_A_QUESTION: u64 = 1_024;

/// What is simulated.
#[derive(Clone)]
pub struct Trial {
    /// Both directions of the path; its seed is the base of all samples' seeds.
    pub path: PathSpec,
    /// How messages become whole.
    pub scheme: Arc<dyn Scheme>,
    /// Message length in bytes.
    pub bytes: u64,
    /// Payload bytes a packet.
    pub payload: u32,
    /// Packets a chunk of the receive.
    pub per_chunk: u32,
    /// What both ends know of the path's losses; None: nothing, as on the first message of a connection.
    pub known_loss: Option<Loss>,
}

/// Codes nothing: for packets without payload.
#[derive(Clone, Copy, Debug)]
pub struct PayloadFree;

impl Coder for PayloadFree {
    fn encode(&self, _job: &EncodeJob<'_>) -> Result<(), EcError> {
        Ok(())
    }

    fn decode(&self, _job: &DecodeJob<'_>) -> Result<(), EcError> {
        Ok(())
    }
}

/// Packets of one or more samples, seen from the sender's NIC, the receiver's NIC and the receiver's engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Data packets injected, repairs included.
    pub sent: u64,
    /// Data packets that came in.
    pub received: u64,
    /// Data packets that the link lost.
    pub lost: u64,
    /// Data packets injected again.
    pub retransmitted: u64,
    /// Parity packets injected.
    pub parity: u64,
    /// Data packets that had arrived before.
    pub duplicate: u64,
    /// Data packets for a receive that had ended.
    pub late: u64,
    /// Packets dropped for a wrong checksum.
    pub corrupt: u64,
    /// Packets that a full queue dropped before the wire.
    pub local_drops: u64,
    /// Control datagrams, both directions.
    pub control: u64,
}

impl PacketCounts {
    /// Adds another sample's.
    pub fn add(&mut self, o: &Self) {
        for (a, b) in [
            (&mut self.sent, o.sent),
            (&mut self.received, o.received),
            (&mut self.lost, o.lost),
            (&mut self.retransmitted, o.retransmitted),
            (&mut self.parity, o.parity),
            (&mut self.duplicate, o.duplicate),
            (&mut self.late, o.late),
            (&mut self.corrupt, o.corrupt),
            (&mut self.local_drops, o.local_drops),
            (&mut self.control, o.control),
        ] {
            *a += b;
        }
    }
}

/// One message's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// From the call to the peer's DONE.
    pub completion: Nanos,
    /// Packets of it.
    pub packets: PacketCounts,
    /// Instants at which an end acted, the call included.
    pub events: u64,
}

/// Why a sample has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The ends could not be set up.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The path has no rate; simulated time needs one.
    #[error("the path has no rate; give one, such as rate=400Gbit")]
    NoRate,
    /// The message does not fit a queue pair of this packet size.
    #[error(
        "{bytes} bytes in packets of {payload} bytes: a message has 1 to {max} bytes; choose a larger packet"
    )]
    Size {
        /// Asked for.
        bytes: u64,
        /// Payload bytes a packet.
        payload: u32,
        /// The largest message.
        max: u64,
    },
    /// Memory could not be mapped.
    #[error("memory for the message: {0}")]
    Memory(String),
    /// A transfer failed; `seed` repeats it.
    #[error("sample with seed {seed} failed: {why}")]
    Failed {
        /// The sample's seed.
        seed: u64,
        /// The transfer's error.
        why: String,
    },
}

impl Trial {
    /// RTT + bytes / rate: the time that no transport can beat.
    ///
    /// # Errors
    /// [`TrialError::NoRate`].
    pub fn lower_bound(&self) -> Result<Nanos, TrialError> {
        let rate = self.path.rate.ok_or(TrialError::NoRate)?;
        let wire = self.bytes as u128 * 8 * 1_000_000_000 / rate.bits_per_second() as u128;
        Ok(self.path.rtt() + Nanos(wire as u64))
    }

    /// The seed of sample `i`.
    pub fn seed(&self, i: u64) -> u64 {
        derive_seed(self.path.seed, i)
    }

    /// Checks what every sample needs.
    ///
    /// # Errors
    /// No rate, or a size that cannot be.
    pub fn check(&self) -> Result<(), TrialError> {
        self.lower_bound()?;
        let max = ImmLayout::L8_22_2.max_packets() as u64 * self.payload as u64;
        if self.bytes == 0 || self.bytes > max {
            return Err(TrialError::Size { bytes: self.bytes, payload: self.payload, max });
        }
        Ok(())
    }

    /// Sample `i`.
    ///
    /// # Errors
    /// As [`TrialError`] says; none of them is chance.
    pub fn sample(&self, i: u64) -> Result<Sample, TrialError> {
        let sample = self.sample_while(i, &|| true)?;
        Ok(sample.expect("nothing stops it"))
    }

    /// Sample `i`, or nothing when `go_on` said no on the way; it is asked every [`STEPS_A_QUESTION`] steps.
    fn sample_while(&self, i: u64, go_on: &dyn Fn() -> bool) -> Result<Option<Sample>, TrialError> {
        self.check()?;
        let seed = self.seed(i);
        let rate = self.path.rate.ok_or(TrialError::NoRate)?.bits_per_second();
        let connection = ConnectionConfig::default()
            .scheme(self.scheme.clone())
            .rate(rate)
            .per_chunk(self.per_chunk)
            .coder(Arc::new(PayloadFree))
            .parity_pool(self.parity_pool()?)
            // What a long link with heavy loss needs.
            .progress_deadline(self.path.rtt().mul_div(200, 1).max(Nanos::from_secs(60)));
        let connection = match self.known_loss {
            Some(loss) => connection.loss(loss),
            None => connection,
        };
        let config = PairConfig {
            sim: SimConfig {
                path: SimPath::Path(PathSpec { seed, ..self.path.clone() }),
                channels: 1,
                max_payload: self.payload,
                payload_copy: false,
                exact_counts: false,
                ..SimConfig::default()
            },
            context: ContextConfig::default().initial_rtt(self.path.rtt()),
            qp: QpConfig::default().layout(ImmLayout::L8_22_2),
            connection,
        };
        let mut pair = Pair::new(config)?;
        if self.path.scatters() {
            // Else each packet would be a look of its own; a 4,096th of the round trip is far below what is measured.
            pair.qps.moderate(self.path.rtt().mul_div(1, 4_096));
        }
        let memory = |e: sdr_sdk::context::RegisterError| TrialError::Memory(e.to_string());
        let len = self.bytes as usize;
        let src = pair.qps.contexts[0].register(len).map_err(memory)?.freeze();
        let dst = pair.qps.contexts[1].register(len).map_err(memory)?;
        let _receive = pair.connections[1].recv(dst);
        pair.touch();
        let rtt = self.path.rtt();
        pair.run_until(rtt.mul_div(4, 1) + Nanos::from_millis(1));
        let before = self.counts(&pair);
        let start = pair.now();
        let mut send = pair.connections[0].send(src, None);
        pair.touch();
        let limit =
            start + rtt.mul_div(1_000, 1) + self.lower_bound()?.mul_div(1_000, 1) + Nanos::from_secs(3_600);
        let failed = |why: String| TrialError::Failed { seed, why };
        let mut steps = 0_u64;
        let end = pair.run(limit, |_| {
            steps += 1;
            match send.try_take() {
                Some(result) => Some(Some(result)),
                None => (steps.is_multiple_of(STEPS_A_QUESTION) && !go_on()).then_some(None),
            }
        });
        let delivered = match end {
            Some(Some(result)) => result.map_err(|e| failed(e.to_string()))?,
            Some(None) => return Ok(None),
            None => return Err(failed(format!("no result after {}", limit.since(start)))),
        };
        let mut packets = self.counts(&pair);
        packets.control -= before.control;
        packets.retransmitted = delivered.repairs;
        packets.parity = delivered.parity;
        Ok(Some(Sample { completion: delivered.at.since(start), packets, events: steps }))
    }

    /// Memory that each end has for parity, at least 64 MiB: a quarter of what is on its way, or what a code with a fixed rate adds
    /// to the whole message, with as much in reserve.
    ///
    /// # Errors
    /// [`TrialError::NoRate`].
    pub fn parity_pool(&self) -> Result<usize, TrialError> {
        let rate = self.path.rate.ok_or(TrialError::NoRate)?.bits_per_second();
        let bits = u128::from(rate) * u128::from(self.path.rtt().0) / 1_000_000_000;
        let on_the_way = (bits / 8 / 4) as usize;
        let whole = if self.scheme.protects_all() { 3 * self.bytes as usize } else { 0 };
        Ok(on_the_way.max(whole).max(64 << 20))
    }

    fn counts(&self, pair: &Pair) -> PacketCounts {
        let (a, b): (NicCounters, NicCounters) = (pair.qps.net.counters(0), pair.qps.net.counters(1));
        PacketCounts {
            sent: a.sent,
            received: b.delivered,
            lost: a.lost,
            retransmitted: 0,
            parity: 0,
            duplicate: b.duplicate,
            late: b.null_key,
            corrupt: a.corrupt + b.corrupt,
            local_drops: pair.qps.net.link(Direction::A_TO_B, |l| l.counters().queue_drops),
            control: a.control_sent + b.control_sent,
        }
    }

    /// Samples 0 to `n`, on `threads` threads, in order.
    ///
    /// `progress` is told how many are done, from any thread, after each sample and now and then within a long one; it says
    /// whether to go on. When it says no, the samples under way are given up and those that were done come back.
    ///
    /// # Errors
    /// The first sample's that failed.
    pub fn run(
        &self,
        n: u64,
        threads: usize,
        progress: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Vec<Sample>, TrialError> {
        self.check()?;
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let work = || {
            let mut mine = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return Ok(mine);
                }
                match self.sample_while(i, &|| progress(done.load(Ordering::Relaxed))) {
                    Ok(Some(s)) => mine.push((i, s)),
                    Ok(None) => {
                        next.store(n, Ordering::Relaxed);
                        return Ok(mine);
                    }
                    Err(e) => {
                        next.store(n, Ordering::Relaxed);
                        return Err(e);
                    }
                }
                if !progress(done.fetch_add(1, Ordering::Relaxed) + 1) {
                    next.store(n, Ordering::Relaxed);
                }
            }
        };
        let mut all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            let mut all = Vec::new();
            for t in threads {
                match t.join() {
                    Ok(part) => all.extend(part?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok::<_, TrialError>(all)
        })?;
        all.sort_unstable_by_key(|&(i, _)| i);
        Ok(all.into_iter().map(|(_, s)| s).collect())
    }
}
