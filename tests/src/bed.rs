//! A pair of connections in virtual time, the transfers on them, and what must come out.
//!
//! Each message has contents of its own, so that a received buffer says which message it holds. Invariant: a run that
//! does not end by its virtual limit, or that polls without end, panics; nothing waits for a wall clock.

use crate::nets::FaultNet;
use netem::link::Link;
use netem::sim::{Direction, Frame, Granularity, NicCounters, Verdict};
use netem::spec::PathSpec;
use netem::{Net, Pair, PairConfig, SimConfig, SimNet};
use sdr_sdk::connection::{ConnectionConfig, Received, RecvError, RecvResult, SendResult, Transfer};
use sdr_sdk::memory::RecvBuf;
use sdr_sdk::reliability::Scheme;
use sdr_sdk::types::{Nanos, Seq};
use std::sync::Arc;

/// Round trip of the usual path.
pub const RTT: Nanos = Nanos::from_millis(25);

/// Retransmission timeout of the default scheme on it: 3 RTT.
pub const RTO: Nanos = Nanos::from_millis(75);

/// Payload bytes of a packet on the usual path.
pub const PACKET: usize = 512;

/// Most steps of one run; more is a driver that is polled for nothing.
const STEPS: u64 = 2_000_000;

/// The usual settings: 100 Mbit/s, 512-byte packets paced to 80 Mbit/s, 4 channels.
///
/// # Panics
/// When `path` is not understood.
pub fn config(path: &str) -> PairConfig {
    let path = match path.parse::<PathSpec>() {
        Ok(path) => path,
        Err(e) => panic!("{path}: {e}"),
    };
    PairConfig {
        sim: SimConfig { path: path.into(), max_payload: PACKET as u32, ..SimConfig::default() },
        connection: ConnectionConfig::default().rate(80_000_000).per_chunk(8),
        ..PairConfig::default()
    }
}

/// The usual settings with another scheme than the default.
///
/// # Panics
/// When `path` is not understood.
pub fn config_of(path: &str, scheme: Arc<dyn Scheme>) -> PairConfig {
    let mut c = config(path);
    c.connection.scheme = scheme;
    c
}

/// Description of the usual path.
pub const USUAL: &str = "rtt=25ms,rate=100Mbit,seed=1";

/// The usual path: 25 ms, 100 Mbit/s, no losses.
pub fn usual() -> PairConfig {
    config(USUAL)
}

/// Byte `i` of message `tag`.
pub fn byte(tag: u64, i: usize) -> u8 {
    let x = (tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i as u64).wrapping_mul(0x2545_f491_4f6c_dd1d);
    (x >> 56) as u8
}

/// Contents of the `index`-th message that `end` was asked to send.
fn tag(end: usize, index: usize) -> u64 {
    (end as u64) << 32 | index as u64
}

/// A transfer and how it ended; neither when it was dropped.
pub struct Tracked<T> {
    /// Bytes of the message, or of the receive.
    pub len: usize,
    transfer: Option<Transfer<T>>,
    /// The result, once there is one.
    pub result: Option<T>,
}

impl<T> Tracked<T> {
    fn ended(&mut self) -> bool {
        if self.result.is_none()
            && let Some(t) = &mut self.transfer
        {
            self.result = t.try_take();
        }
        self.transfer.is_none() || self.result.is_some()
    }
}

/// Two ends and all that was asked of them.
pub struct Bed<N = SimNet> {
    /// The ends.
    pub pair: Pair<N>,
    arenas: [Option<RecvBuf>; 2],
    /// By end, in order of the calls.
    pub sends: [Vec<Tracked<SendResult>>; 2],
    /// By end, in order of the calls.
    pub recvs: [Vec<Tracked<RecvResult>>; 2],
    ended: [[usize; 2]; 2],
}

/// On the simulated net.
pub type SimBed = Bed<SimNet>;

impl<N: FaultNet> Bed<N> {
    /// Two connected ends.
    ///
    /// # Panics
    /// When the settings are refused.
    pub fn new(config: PairConfig) -> Self {
        match N::pair(config) {
            Ok(pair) => Self::over(pair),
            Err(e) => panic!("{e}"),
        }
    }

    /// Lets `decide` judge each packet and control datagram of a direction, in place of an earlier tap.
    pub fn tap(&self, direction: Direction, decide: impl FnMut(&Frame<'_>) -> Verdict + Send + 'static) {
        self.pair.qps.net.fault(direction, Granularity::Packet, decide);
    }

    /// Reads or changes the link of a direction.
    pub fn link<R>(&self, direction: Direction, f: impl FnOnce(&mut Link) -> R) -> R {
        self.pair.qps.net.path(direction, f)
    }

    /// What an end counted.
    pub fn counters(&self, end: u16) -> NicCounters {
        self.pair.qps.net.counted(end)
    }
}

impl<N: Net> Bed<N> {
    /// Whether the first bytes of a received message are those of the `index`-th send of `sender`.
    pub fn holds(sender: usize, index: usize, received: &[u8]) -> bool {
        received.iter().enumerate().all(|(i, b)| *b == byte(tag(sender, index), i))
    }
}

impl<N: Net> Bed<N> {
    /// On a pair that is connected.
    pub fn over(pair: Pair<N>) -> Self {
        Self {
            pair,
            arenas: [None, None],
            sends: [Vec::new(), Vec::new()],
            recvs: [Vec::new(), Vec::new()],
            ended: Default::default(),
        }
    }

    /// The instant.
    pub fn now(&self) -> Nanos {
        self.pair.now()
    }

    /// Memory of an end, zeroed.
    ///
    /// # Panics
    /// When there is none.
    pub fn memory(&mut self, end: usize, len: usize) -> RecvBuf {
        let arena = self.arenas[end].take().filter(|a| a.len() >= len);
        let arena = match arena {
            Some(arena) => arena,
            None => match self.pair.qps.contexts[end].register(len.max(1 << 20)) {
                Ok(region) => region,
                Err(e) => panic!("{e}"),
            },
        };
        let (buf, rest) = arena.split_at(len);
        self.arenas[end] = Some(rest);
        buf
    }

    /// Sends a message of `len` bytes from `end`; returns its index.
    pub fn send(&mut self, end: usize, len: usize) -> usize {
        let index = self.sends[end].len();
        let mut buf = self.memory(end, len);
        for (i, b) in buf.iter_mut().enumerate() {
            *b = byte(tag(end, index), i);
        }
        let transfer = Some(self.pair.connections[end].send(buf.freeze(), Some(index as u32)));
        self.sends[end].push(Tracked { len, transfer, result: None });
        self.pair.qps.touch(end);
        index
    }

    /// Posts a receive of `len` bytes at `end`; returns its index.
    pub fn recv(&mut self, end: usize, len: usize) -> usize {
        let index = self.recvs[end].len();
        let buf = self.memory(end, len);
        let transfer = Some(self.pair.connections[end].recv(buf));
        self.recvs[end].push(Tracked { len, transfer, result: None });
        self.pair.qps.touch(end);
        index
    }

    /// `n` messages of `len` bytes each way, and receives for them.
    pub fn exchange(&mut self, n: usize, len: usize) {
        for end in [0, 1] {
            self.one_way(end, n, len);
        }
    }

    /// `n` messages of `len` bytes from `end`, and receives for them.
    pub fn one_way(&mut self, end: usize, n: usize, len: usize) {
        for _ in 0..n {
            self.recv(1 - end, len);
            self.send(end, len);
        }
    }

    /// Drops a send.
    pub fn drop_send(&mut self, end: usize, index: usize) {
        self.sends[end][index].transfer = None;
        self.pair.qps.touch(end);
    }

    /// Drops a receive.
    pub fn drop_recv(&mut self, end: usize, index: usize) {
        self.recvs[end][index].transfer = None;
        self.pair.qps.touch(end);
    }

    /// Takes the results that are there.
    pub fn collect(&mut self) {
        for end in 0..2 {
            for t in &mut self.sends[end] {
                t.ended();
            }
            for t in &mut self.recvs[end] {
                t.ended();
            }
        }
    }

    /// Whether every transfer ended. Stops looking at the first that did not.
    pub fn all_ended(&mut self) -> bool {
        fn pass<T>(all: &mut [Tracked<T>], from: &mut usize) -> bool {
            while *from < all.len() && all[*from].ended() {
                *from += 1;
            }
            *from == all.len()
        }
        (0..2).all(|end| {
            pass(&mut self.sends[end], &mut self.ended[end][0])
                && pass(&mut self.recvs[end], &mut self.ended[end][1])
        })
    }

    /// Lets `d` pass.
    pub fn pass(&mut self, d: Nanos) {
        let t = self.now() + d;
        self.pair.run_until(t);
    }

    /// Steps until `done`, for `limit` at most; false when that passed.
    ///
    /// # Panics
    /// When the ends are polled without end.
    pub fn until(&mut self, limit: Nanos, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now() + limit;
        let mut steps = 0;
        while !done(self) {
            if self.pair.qps.next_event().is_none_or(|t| t > limit) {
                self.pair.run_until(limit);
                return done(self);
            }
            self.pair.step();
            steps += 1;
            assert!(steps < STEPS, "{steps} steps until {}", self.now());
        }
        true
    }

    /// Runs until every transfer ended; returns how long that took.
    ///
    /// # Panics
    /// When it takes longer than `limit`.
    pub fn finish(&mut self, limit: Nanos) -> Nanos {
        let start = self.now();
        let done = self.until(limit, Self::all_ended);
        assert!(done, "not ended after {limit}: {}", self.open());
        self.now().since(start)
    }

    /// The unfinished transfers, for people.
    pub fn open(&mut self) -> String {
        let mut out = String::new();
        for end in 0..2 {
            for (i, t) in
                self.sends[end].iter_mut().enumerate().filter_map(|(i, t)| (!t.ended()).then_some((i, t)))
            {
                out += &format!("send {i} ({} bytes) of end {end}; ", t.len);
            }
            for (i, t) in
                self.recvs[end].iter_mut().enumerate().filter_map(|(i, t)| (!t.ended()).then_some((i, t)))
            {
                out += &format!("recv {i} ({} bytes) of end {end}; ", t.len);
            }
        }
        out
    }

    /// Everything went well, and every byte is right.
    ///
    /// # Panics
    /// When not.
    pub fn verify_all(&mut self) {
        for end in 0..2 {
            for (i, s) in self.sends[end].iter().enumerate() {
                assert!(matches!(s.result, Some(Ok(_))), "send {i} of end {end}: {:?}", s.result);
            }
            for (i, r) in self.recvs[end].iter().enumerate() {
                assert!(matches!(r.result, Some(Ok(_))), "recv {i} of end {end}: {:?}", r.result);
            }
        }
        self.verify();
    }

    /// Runs to the end, then [`verify_all`](Self::verify_all); returns how long it took.
    pub fn complete(&mut self, limit: Nanos) -> Nanos {
        let took = self.finish(limit);
        self.verify_all();
        took
    }

    /// What was received is right: each message that came is one that was sent, whole, under its number, no message came
    /// twice or out of order, and what was delivered came.
    ///
    /// # Panics
    /// When not.
    pub fn verify(&self) {
        for end in 0..2 {
            let peer = 1 - end;
            let mut got: Vec<(&Received, usize)> = Vec::new();
            for r in &self.recvs[end] {
                let Some(Ok(r)) = &r.result else { continue };
                let index = self.index_of(peer, r);
                assert!(r.buf[r.len..].iter().all(|b| *b == 0), "bytes beyond message {} changed", r.seq);
                if let Some(Ok(d)) = &self.sends[peer][index].result {
                    assert_eq!(d.seq, r.seq, "send {index} of end {peer} was received under another number");
                    assert_eq!(d.bytes as usize, r.len);
                }
                assert_eq!(r.user, Some(index as u32));
                got.push((r, index));
            }
            got.sort_by(|a, b| a.0.seq.serial_cmp(b.0.seq));
            for pair in got.windows(2) {
                assert!(pair[0].1 < pair[1].1, "messages out of order at end {end}");
            }
            for (i, s) in self.sends[peer].iter().enumerate() {
                let Some(Ok(d)) = &s.result else { continue };
                let lost = !got.iter().any(|(r, index)| (*index, r.seq) == (i, d.seq));
                // A receive whose transfer was dropped may have become whole before.
                let dropped = self.recvs[end].iter().any(|r| r.transfer.is_none());
                assert!(!lost || dropped, "send {i} of end {peer} was delivered, but not received");
            }
        }
    }

    /// Which message of `sender` the buffer holds, by the user immediate, after a look at every byte.
    fn index_of(&self, sender: usize, r: &Received) -> usize {
        let index = r.user.map_or(usize::MAX, |u| u as usize);
        let Some(s) = self.sends[sender].get(index) else {
            panic!("message {} is none of ours: {:?}", r.seq, r.user)
        };
        assert_eq!(s.len, r.len, "length of message {}", r.seq);
        let wrong = (0..r.len).find(|&i| r.buf[i] != byte(tag(sender, index), i));
        assert_eq!(wrong, None, "byte of message {} (send {index} of end {sender})", r.seq);
        index
    }

    /// The error of a send.
    ///
    /// # Panics
    /// When it has none.
    pub fn send_error(&self, end: usize, index: usize) -> &sdr_sdk::connection::TransferError {
        match &self.sends[end][index].result {
            Some(Err(e)) => e,
            other => panic!("send {index} of end {end}: {other:?}"),
        }
    }

    /// The error of a receive.
    ///
    /// # Panics
    /// When it has none.
    pub fn recv_error(&self, end: usize, index: usize) -> &RecvError {
        match &self.recvs[end][index].result {
            Some(Err(e)) => e,
            other => panic!("recv {index} of end {end}: {other:?}"),
        }
    }

    /// The number of a received message.
    ///
    /// # Panics
    /// When it was not received.
    pub fn received_seq(&self, end: usize, index: usize) -> Seq {
        match &self.recvs[end][index].result {
            Some(Ok(r)) => r.seq,
            other => panic!("recv {index} of end {end}: {other:?}"),
        }
    }
}
