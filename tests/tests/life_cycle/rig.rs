//! Two connected queue pairs, the receiver's memory under guard, and the checks.
//!
//! Every byte of the receiver's region is accounted for: it belongs to a guard, to a buffer that is here (filled with a
//! marker, untouched until it is posted), or to a posted receive. A message's bytes follow from (seed, seq, offset) and
//! are never marker or guard.

use netem::rng::derive_seed;
use netem::units::BitRate;
use netem::{LinkSpec, QpPair, SimConfig};
use sdr_sdk::qp::{PostError, RecvHandle, RecvQp, Retire, SendQp};
use sdr_sdk::{ChunkIndex, ContextConfig, Nanos, QpConfig, RecvBuf, SendBuf, Seq};

const GUARD: u8 = 0xa7;
const MARKER: u8 = 0x5c;
const GUARD_LEN: usize = 16;

/// Ok, or what was found wrong.
pub type Check<T = ()> = Result<T, String>;

/// What the two ends are like.
#[derive(Clone, Debug)]
pub struct Shape {
    pub seed: u64,
    pub slots: u32,
    pub generations: u32,
    pub channels: u8,
    pub payload: usize,
    /// The fabric never counts a packet twice.
    pub exact: bool,
    /// L.
    pub lifetime: Nanos,
    /// One way.
    pub delay: Nanos,
    pub disarm_delay: Nanos,
    pub post_limit: Option<u64>,
    /// Bits per second; without, packets take no time on the wire.
    pub rate: Option<u64>,
    /// First message number.
    pub first: Seq,
    /// Messages that the sender has bytes for.
    pub messages: usize,
    /// Lengths of the receiver's buffers.
    pub buffers: Vec<usize>,
}

impl Default for Shape {
    /// Two slots, two generations, four buffers of four packets of 16 bytes; 1 ms there, L = 100 ms.
    fn default() -> Self {
        Self {
            seed: 1,
            slots: 2,
            generations: 2,
            channels: 1,
            payload: 16,
            exact: false,
            lifetime: Nanos::from_millis(100),
            delay: Nanos::from_millis(1),
            disarm_delay: Nanos::ZERO,
            post_limit: None,
            rate: None,
            first: Seq(0),
            messages: 32,
            buffers: vec![64; 4],
        }
    }
}

impl Shape {
    pub fn longest(&self) -> usize {
        self.buffers.iter().copied().max().unwrap_or(0).max(1)
    }

    /// Messages between two uses of a slot and generation.
    pub fn reuse(&self) -> usize {
        (self.slots * self.generations) as usize
    }

    fn pair(&self) -> (QpPair, [(SendQp, RecvQp); 2]) {
        let rate = self.rate.map(|bits| BitRate::new(bits).expect("a rate that a link can have"));
        let seed = |n| derive_seed(self.seed, n);
        let link = |n| LinkSpec { rate, delay: self.delay, seed: seed(n), ..LinkSpec::default() };
        let sim = SimConfig {
            path: (link(1), link(2)).into(),
            channels: self.channels,
            generations: self.generations,
            max_payload: self.payload as u32,
            exact_counts: self.exact,
            disarm_delay: self.disarm_delay,
            post_limit: self.post_limit,
            ..SimConfig::default()
        };
        let mut context = ContextConfig::default();
        context.packet_lifetime = self.lifetime;
        context.initial_rtt = self.lifetime.mul_div(1, 8);
        let mut qp = QpConfig::default();
        qp.slots = self.slots;
        qp.send_first = self.first;
        QpPair::new(sim, context, &qp).expect("the settings are within the limits")
    }
}

/// What each message is made of.
struct Messages {
    longest: usize,
    bytes: Vec<u8>,
}

impl Messages {
    fn new(shape: &Shape) -> Self {
        let longest = shape.longest();
        let of = |n: usize| {
            let seed = derive_seed(shape.seed, 1_000 + n as u64);
            (0..longest).map(move |offset| content(derive_seed(seed, offset as u64)))
        };
        Self { longest, bytes: (0..shape.messages).flat_map(of).collect() }
    }

    fn of(&self, n: usize) -> &[u8] {
        &self.bytes[n * self.longest..][..self.longest]
    }
}

/// A byte that is neither zero, marker nor guard.
fn content(hash: u64) -> u8 {
    let allowed = |b: &u8| ![0, MARKER, GUARD].contains(b);
    hash.to_le_bytes().into_iter().find(allowed).unwrap_or(1)
}

/// A posted receive.
pub struct Receive {
    pub handle: RecvHandle,
    /// A forged packet named it: its bytes are anybody's guess.
    pub tainted: bool,
}

/// A completed receive whose buffer is not back.
pub struct Leaving {
    pub seq: Seq,
    retire: Retire,
    /// Packets whose bits were set when it was completed.
    arrived: Vec<bool>,
    tainted: bool,
}

pub struct Rig {
    pub shape: Shape,
    // Handles before contexts: the order in which a careful user drops them.
    pub armed: Vec<Receive>,
    pub leaving: Vec<Leaving>,
    pub sender: SendQp,
    pub receiver: RecvQp,
    _idle_halves: (RecvQp, SendQp),
    pub held: Vec<RecvBuf>,
    guards: Vec<RecvBuf>,
    source: SendBuf,
    pub pair: QpPair,
    messages: Messages,
    /// Length of each message that was started.
    lens: Vec<Option<usize>>,
    scratch: Vec<u8>,
}

impl Rig {
    pub fn new(shape: Shape) -> Self {
        let (pair, [(sender, idle_receiver), (idle_sender, receiver)]) = shape.pair();
        let messages = Messages::new(&shape);
        let mut source = pair.contexts[0].register(messages.bytes.len()).expect("a small region");
        source.copy_from_slice(&messages.bytes);
        let total = shape.buffers.iter().map(|len| len + GUARD_LEN).sum::<usize>() + GUARD_LEN;
        let mut rest = pair.contexts[1].register(total).expect("a small region");
        let (mut held, mut guards) = (Vec::new(), Vec::new());
        for &len in &shape.buffers {
            let (mut guard, tail) = rest.split_at(GUARD_LEN);
            let (mut buf, tail) = tail.split_at(len);
            guard.fill(GUARD);
            buf.fill(MARKER);
            guards.push(guard);
            held.push(buf);
            rest = tail;
        }
        rest.fill(GUARD);
        guards.push(rest);
        let (lens, scratch) = (vec![None; shape.messages], vec![0; shape.longest()]);
        Self {
            armed: Vec::new(),
            leaving: Vec::new(),
            sender,
            receiver,
            _idle_halves: (idle_receiver, idle_sender),
            held,
            guards,
            source: source.freeze(),
            pair,
            messages,
            lens,
            scratch,
            shape,
        }
    }

    pub fn now(&self) -> Nanos {
        self.pair.now()
    }

    /// Which message of this rig it is.
    pub fn index(&self, seq: Seq) -> usize {
        seq.distance(self.shape.first) as usize
    }

    /// Length of a message, once it was started.
    pub fn len_of(&self, seq: Seq) -> Option<usize> {
        self.lens[self.index(seq)]
    }

    /// The message was started with that length.
    pub fn started(&mut self, seq: Seq, len: usize) {
        let n = self.index(seq);
        self.lens[n] = Some(len);
    }

    /// Bytes of a message, to be sent.
    pub fn source(&self, seq: Seq, offset: usize, len: usize) -> SendBuf {
        self.source.slice(self.index(seq) * self.messages.longest + offset, len)
    }

    /// Sends the next message at once; false while there is no grant.
    pub fn send(&mut self, len: usize) -> Check<bool> {
        let seq = self.sender.next_seq();
        match self.sender.send(self.source(seq, 0, len), None) {
            Ok(handle) => {
                self.started(handle.seq(), len);
                self.pair.touch(0);
                Ok(true)
            }
            Err(PostError::Busy(_)) => Ok(false),
            Err(e) => Err(format!("send of {len} bytes as {seq:?}: {e}")),
        }
    }

    /// Posts the buffer at `which` of those held; none while no slot is free.
    pub fn post(&mut self, which: usize, per_chunk: u32) -> Check<Option<Seq>> {
        let buf = self.held.remove(which);
        match self.receiver.recv(buf, per_chunk) {
            Ok(handle) => {
                let seq = handle.seq();
                self.armed.push(Receive { handle, tainted: false });
                self.pair.touch(1);
                Ok(Some(seq))
            }
            Err(PostError::Busy(buf)) => {
                self.held.push(buf);
                Ok(None)
            }
            Err(e) => Err(format!("receive refused: {e}")),
        }
    }

    /// Completes the receive at `which` of those armed.
    pub fn complete(&mut self, which: usize) {
        let Receive { handle, tainted } = self.armed.remove(which);
        let (seq, arrived) = (handle.seq(), arrived(&handle));
        self.leaving.push(Leaving { seq, retire: handle.complete(), arrived, tainted });
        self.pair.touch(1);
    }

    /// Packets of the message that are there, of those that it has; equal when whole.
    pub fn progress(&self, receive: &Receive) -> (usize, usize) {
        let len = self.len_of(receive.handle.seq()).unwrap_or(0);
        let packets = len.div_ceil(self.shape.payload);
        let there = arrived(&receive.handle).into_iter().take(packets).filter(|&a| a).count();
        (there, packets)
    }

    /// Takes buffers that came back, checks and marks them.
    pub fn take_back(&mut self) -> Check {
        let mut i = 0;
        while i < self.leaving.len() {
            match self.leaving[i].retire.try_take() {
                None => i += 1,
                Some(Err(e)) => return Err(format!("{:?} did not come back: {e}", self.leaving[i].seq)),
                Some(Ok(mut buf)) => {
                    let leaving = self.leaving.remove(i);
                    if !leaving.tainted {
                        self.check_returned(&leaving, &buf)?;
                    }
                    buf.fill(MARKER);
                    self.held.push(buf);
                }
            }
        }
        Ok(())
    }

    /// A returned buffer holds whole packets of its own message, the marker, and nothing else.
    fn check_returned(&self, leaving: &Leaving, buf: &[u8]) -> Check {
        for (p, got) in buf.chunks(self.shape.payload).enumerate() {
            let expected = |offset| self.expected(leaving.seq, p * self.shape.payload + offset);
            let right = got.iter().enumerate().all(|(i, &b)| b == expected(i));
            let untouched = got.iter().all(|&b| b == MARKER);
            if !(right || (untouched && !leaving.arrived[p])) {
                return Err(format!(
                    "wrong bytes in the returned buffer of {:?}, packet {p} (bit {}): {got:02x?} instead of {:02x?}{}",
                    leaving.seq,
                    leaving.arrived[p],
                    (0..got.len()).map(expected).collect::<Vec<_>>(),
                    self.owner(p, got),
                ));
            }
        }
        Ok(())
    }

    /// Whose packet the bytes are, for reports.
    fn owner(&self, p: usize, got: &[u8]) -> String {
        let at = p * self.shape.payload;
        let of = |n: &usize| {
            let len = self.lens[*n].unwrap_or(0).saturating_sub(at).min(got.len());
            len > 0 && self.messages.of(*n)[at..][..len] == got[..len]
        };
        match (0..self.shape.messages).find(of) {
            Some(n) => format!(", bytes of {:?}", self.shape.first.plus(n as u64)),
            None => String::new(),
        }
    }

    /// Byte of a receive into which its whole message came.
    fn expected(&self, seq: Seq, offset: usize) -> u8 {
        let n = self.index(seq);
        if offset < self.lens[n].unwrap_or(0) { self.messages.of(n)[offset] } else { MARKER }
    }

    /// Guards and buffers that are here are as they were left.
    pub fn check_idle(&self) -> Check {
        let touched = |what: &str, bufs: &[RecvBuf], fill: u8| match bufs
            .iter()
            .position(|b| b.iter().any(|&b| b != fill))
        {
            Some(i) => Err(format!("{what} {i} was written: {:02x?}", &*bufs[i])),
            None => Ok(()),
        };
        touched("guard", &self.guards, GUARD)?;
        touched("the buffer that is not posted at", &self.held, MARKER)
    }

    /// A chunk is set exactly when all its packets are, and then its bytes are right.
    pub fn check_chunks(&mut self) -> Check {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.armed.iter().try_for_each(|r| self.check_receive(r, &mut scratch));
        self.scratch = scratch;
        result
    }

    fn check_receive(&self, receive: &Receive, scratch: &mut [u8]) -> Check {
        let Receive { handle, tainted } = receive;
        let (seq, shape, bitmap) = (handle.seq(), handle.shape(), handle.bitmap());
        let per_chunk = u32::from(shape.per_chunk());
        for c in 0..shape.chunks() {
            let all = per_chunk.min(shape.packets() - c * per_chunk);
            let there = handle.packets(ChunkIndex(c)).count_ones();
            let set = bitmap.is_set(ChunkIndex(c));
            if set != (there == all) {
                return Err(format!("{seq:?} chunk {c} is {set} with {there} of {all} packets"));
            }
            let copied = handle.copy_chunk(ChunkIndex(c), scratch);
            if copied.is_some() != set {
                return Err(format!("{seq:?} chunk {c} is {set}, and copied {copied:?} bytes"));
            }
            let start = (c * per_chunk) as usize * self.shape.payload;
            let got = &scratch[..copied.unwrap_or(0)];
            let wrong = got.iter().enumerate().find(|&(i, &b)| b != self.expected(seq, start + i));
            if let (Some((i, b)), false) = (wrong, *tainted) {
                return Err(format!(
                    "{seq:?} chunk {c} is set and byte {} of the message is {b:02x}",
                    start + i
                ));
            }
        }
        Ok(())
    }
}

/// Packets of a receive whose bits are set.
pub fn arrived(handle: &RecvHandle) -> Vec<bool> {
    let per_chunk = u32::from(handle.shape().per_chunk());
    (0..handle.shape().packets())
        .map(|p| handle.packets(ChunkIndex(p / per_chunk)) >> (p % per_chunk) & 1 == 1)
        .collect()
}
