//! One random schedule. Everything follows from its plan, and the plan from a seed.
//!
//! The users post, send, complete and stop at random; the network does to each packet what it may do within the packet
//! lifetime L: delays it up to just under L, doubles it, drops it, damages it. At the end the weather calms down, and
//! every slot has to come back within a bounded time and to carry a whole message.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use netem::rng::{Random, derive_seed};
use netem::sim::{Direction, Forged, Frame, FrameKind, Granularity, Verdict};
use sdr_sdk::qp::{PostError, Stream};
use sdr_sdk::{Channel, Generation, ImmLayout, MessageId, Nanos, PacketOffset, QueueSet, Seq};

use crate::coverage::{Coverage, Seen};
use crate::plan::{Plan, log_uniform};
use crate::rig::{Check, Rig, Shape, arrived};

/// Turns of the users before the calm begins, at most.
const TURNS: usize = 4_000;

/// Packets on their way to the receiver, by the instant and order in which they come.
type InFlight = Arc<Mutex<BTreeMap<(Nanos, u64), (Seq, u32)>>>;

/// An open stream and the runs that were not sent yet.
struct Open {
    stream: Stream,
    packets: u32,
    todo: Vec<(u32, u32)>,
}

struct Schedule<'a> {
    plan: &'a Plan,
    rig: Rig,
    rng: Random,
    in_flight: InFlight,
    streams: Vec<Open>,
    /// When a stopped end resumes.
    stopped: [Option<Nanos>; 2],
    /// When the receiver was told that a message is closed, by index.
    closed_at: Vec<Nanos>,
    seen: Coverage,
    log: Option<&'a mut Vec<String>>,
}

macro_rules! note {
    ($s:expr, $($what:tt)*) => {
        if let Some(log) = &mut $s.log {
            log.push(format!("{:>12} {}", $s.rig.pair.now().to_string(), format_args!($($what)*)));
        }
    };
}

/// Runs a schedule; the log tells what happened in it.
pub fn run(plan: &Plan, log: Option<&mut Vec<String>>) -> Check<Coverage> {
    let mut s = Schedule {
        plan,
        rig: Rig::new(plan.shape.clone()),
        rng: Random::new(derive_seed(plan.shape.seed, 1)),
        in_flight: InFlight::default(),
        streams: Vec::new(),
        stopped: [None; 2],
        closed_at: Vec::new(),
        seen: Coverage::default(),
        log,
    };
    s.storm();
    for _ in 0..TURNS {
        if s.finished() {
            break;
        }
        s.turn()?;
    }
    s.calm()?;
    Ok(s.seen)
}

impl Schedule<'_> {
    fn storm(&mut self) {
        let Plan { data, control, shape, .. } = self.plan.clone();
        for (n, direction) in [(2, Direction::A_TO_B), (3, Direction::B_TO_A)] {
            let mut rng = Random::new(derive_seed(shape.seed, n));
            let in_flight = self.in_flight.clone();
            let mut count = 0;
            let decide = move |frame: &Frame<'_>| {
                let FrameKind::Data { at, first, .. } = frame.kind else { return control.verdict(&mut rng) };
                let verdict = data.verdict(&mut rng);
                let mut arrives = |later| {
                    count += 1;
                    let mut in_flight = in_flight.lock().expect("nobody panics with it");
                    in_flight.insert((frame.now + shape.delay + later, count), (at.seq, first));
                };
                match verdict {
                    Verdict::Pass => arrives(Nanos::ZERO),
                    Verdict::Delay(later) => arrives(later),
                    Verdict::Duplicate(later) => {
                        arrives(Nanos::ZERO);
                        // A NIC that counts exactly throws the copy away.
                        if !shape.exact {
                            arrives(later);
                        }
                    }
                    Verdict::Drop | Verdict::Corrupt => {}
                }
                verdict
            };
            self.rig.pair.net.tap(direction, Granularity::Packet, decide);
        }
    }

    /// All messages of the storm were sent and their receives completed.
    fn finished(&self) -> bool {
        let all = |next: Seq| self.rig.index(next) >= self.plan.messages;
        all(self.rig.sender.next_seq())
            && all(self.rig.receiver.next_seq())
            && self.streams.is_empty()
            && self.rig.armed.is_empty()
            && self.rig.leaving.is_empty()
    }

    fn chance(&mut self, p: f64) -> bool {
        self.rng.chance(p)
    }

    fn turn(&mut self) -> Check {
        if self.stopped[0].is_none() {
            self.sender_acts()?;
        }
        if self.stopped[1].is_none() {
            self.receiver_acts()?;
            if self.chance(self.plan.forge) {
                self.forge();
            }
        }
        for end in 0..2 {
            if self.stopped[end].is_none() && self.chance(self.plan.stop) {
                let long = Nanos(self.rng.below(self.plan.longest_stop().0));
                note!(self, "end {end} stops for {long}");
                self.seen.add(Seen::Stop);
                self.stopped[end] = Some(self.rig.now() + long);
                self.rig.pair.stop(end, true);
            }
        }
        // To the next event, unless that is far.
        let Shape { delay, lifetime, .. } = self.plan.shape;
        let patience = log_uniform(&mut self.rng, delay.mul_div(1, 4), lifetime.mul_div(1, 4));
        self.advance(self.rig.now() + patience)
    }

    /// Time moves to the next event, or to `limit` when that is sooner.
    fn advance(&mut self, limit: Nanos) -> Check {
        let resume = self.stopped.into_iter().flatten().min();
        let next = self.rig.pair.next_event();
        let to = [next, resume, Some(limit)].into_iter().flatten().min().unwrap_or(limit).max(self.rig.now());
        let came = if self.stopped[1].is_none() { self.arrivals_until(to)? } else { false };
        if next.is_some_and(|n| n <= to) {
            self.rig.pair.step();
        } else {
            self.rig.pair.run_until(to);
        }
        for end in 0..2 {
            if self.stopped[end].is_some_and(|until| until <= self.rig.now()) {
                note!(self, "end {end} resumes");
                self.stopped[end] = None;
                self.rig.pair.stop(end, false);
            }
        }
        self.hear();
        if let Some(why) = self.rig.receiver.closed().or(self.rig.sender.closed()) {
            return Err(format!("the queue pair closed: {why}"));
        }
        self.rig.take_back()?;
        if came {
            self.rig.check_idle()?;
            self.rig.check_chunks()?;
        }
        Ok(())
    }

    /// Remembers when the receiver was told what is closed.
    fn hear(&mut self) {
        let (now, closed) = (self.rig.now(), self.rig.index(self.rig.receiver.peer_closed()));
        self.closed_at.resize(closed.max(self.closed_at.len()), now);
    }

    /// Tells apart what the next poll of the receiver meets; true when there is any.
    fn arrivals_until(&mut self, to: Nanos) -> Check<bool> {
        let mut any = false;
        loop {
            let mut in_flight = self.in_flight.lock().map_err(|e| e.to_string())?;
            let Some(entry) = in_flight.first_entry().filter(|e| e.key().0 <= to) else { return Ok(any) };
            let at = entry.key().0;
            let (seq, offset) = entry.remove();
            drop(in_flight);
            any = true;
            self.seen.add(Seen::Packet);
            if at < self.rig.now() {
                self.seen.add(Seen::InStoppedQueue);
            }
            let class = self.classify(seq, offset);
            note!(self, "packet {offset} of {seq:?} comes, due {at}: {class:?}");
            if let Some(class) = class {
                self.seen.add(class);
            }
        }
    }

    /// What a packet is to its receive; none when it is just on time.
    fn classify(&self, seq: Seq, offset: u32) -> Option<Seen> {
        let shape = &self.plan.shape;
        let (slots, n) = (shape.slots as usize, self.rig.index(seq));
        // Slots are counted from seq 0, not from the first message.
        let mut armed = self.rig.armed.iter().map(|r| (r.handle.seq(), r));
        if let Some((owner, r)) = armed.find(|(s, _)| s.distance(seq) % slots as i64 == 0) {
            let there = arrived(&r.handle).get(offset as usize) == Some(&true);
            return match (owner == seq, there) {
                (true, false) => None,
                (true, true) => Some(Seen::Duplicate),
                (false, false) => Some(Seen::LateAfterRearm),
                (false, true) => Some(Seen::LateAfterTwin),
            };
        }
        if self.rig.leaving.iter().any(|l| l.seq == seq) {
            return Some(Seen::LateWhileRetiring);
        }
        let next = self.rig.index(self.rig.receiver.next_seq());
        let held_back = n + shape.reuse() == next && !self.rig.receiver.ready();
        Some(if held_back { Seen::LateWhileHeldBack } else { Seen::LateAfterRetire })
    }

    fn receiver_acts(&mut self) -> Check {
        let mut which = 0;
        while which < self.rig.armed.len() {
            let receive = &self.rig.armed[which];
            let seq = receive.handle.seq();
            let (there, all) = self.rig.progress(receive);
            let started = self.rig.len_of(seq).is_some();
            let ended = started && !self.streams.iter().any(|o| o.stream.seq() == seq);
            let p = match (started && there == all, ended) {
                (true, _) => self.plan.eager,
                (false, true) => 0.05,
                (false, false) => self.plan.early,
            };
            if !self.chance(p) {
                which += 1;
                continue;
            }
            note!(self, "{seq:?} is completed with {there} of {all} packets");
            self.seen.add(match (there, all) {
                _ if started && there == all => Seen::Whole,
                (0, _) => Seen::Nothing,
                _ => Seen::Partial,
            });
            self.rig.complete(which);
        }
        while self.rig.index(self.rig.receiver.next_seq()) < self.plan.messages
            && !self.rig.held.is_empty()
            && self.chance(self.plan.eager)
        {
            let which = self.rng.below(self.rig.held.len() as u64) as usize;
            let per_chunk = 1 + self.rng.below(5) as u32;
            let Some(seq) = self.rig.post(which, per_chunk)? else { break };
            self.posted(seq);
        }
        Ok(())
    }

    fn posted(&mut self, seq: Seq) {
        note!(self, "{seq:?} is posted");
        let n = self.rig.index(seq);
        if let Some(before) = n.checked_sub(self.plan.shape.reuse()) {
            self.seen.add(Seen::Wrap);
            let closed_at = self.closed_at.get(before).copied().unwrap_or(self.rig.now());
            if self.rig.now() < closed_at + self.plan.shape.lifetime {
                self.seen.add(Seen::WrapByCount);
            }
        }
    }

    fn sender_acts(&mut self) -> Check {
        while self.rig.index(self.rig.sender.next_seq()) < self.plan.messages && self.chance(self.plan.eager)
        {
            if !self.start()? {
                break;
            }
        }
        let mut streams = std::mem::take(&mut self.streams);
        streams.retain_mut(|open| !self.stream_acts(open));
        self.streams = streams;
        Ok(())
    }

    /// Starts the next message; false without a grant.
    fn start(&mut self) -> Check<bool> {
        let Some(grant) = self.rig.sender.next_grant() else { return Ok(false) };
        let room = grant.bytes;
        if !grant.withdrawn && self.rng.below(8) == 0 {
            match self.rig.sender.stream_start(room + 1, None) {
                Err(PostError::TooLong { .. }) => self.seen.add(Seen::TooLong),
                Err(e) => return Err(format!("{} bytes into {grant:?}: {e}", room + 1)),
                Ok(_) => return Err(format!("{} bytes were accepted into {grant:?}", room + 1)),
            }
        }
        let len = match self.rng.below(6) {
            0 => 0,
            1 | 2 => room,
            _ => self.rng.below(room + 1),
        } as usize;
        self.seen.add(Seen::Message);
        if len == 0 {
            self.seen.add(Seen::ZeroBytes);
        }
        if self.rng.below(3) == 0 {
            note!(self, "{:?} is sent, {len} bytes", grant.seq);
            return self.rig.send(len);
        }
        let stream = self.rig.sender.stream_start(len as u64, None).map_err(|e| format!("{grant:?}: {e}"))?;
        if stream.seq() != grant.seq {
            return Err(format!("{grant:?} was used for {:?}", stream.seq()));
        }
        note!(self, "{:?} is begun, {len} bytes", grant.seq);
        self.rig.started(grant.seq, len);
        let packets = len.div_ceil(self.plan.shape.payload) as u32;
        let mut todo = Vec::new();
        let mut first = 0;
        while first < packets {
            let n = (1 + self.rng.below(4) as u32).min(packets - first);
            let place = self.rng.below(todo.len() as u64 + 1) as usize;
            todo.insert(place, (first, n));
            first += n;
        }
        self.streams.push(Open { stream, packets, todo });
        Ok(true)
    }

    /// True when the stream ended.
    fn stream_acts(&mut self, open: &mut Open) -> bool {
        if !self.chance(self.plan.eager) {
            return false;
        }
        let repair = open.todo.is_empty();
        let run = match open.todo.pop() {
            _ if self.chance(self.plan.early / 2.0) => None,
            Some(run) => Some(run),
            None if open.packets > 0 && self.chance(0.5) => {
                let first = self.rng.below(open.packets.into()) as u32;
                Some((first, 1 + self.rng.below((open.packets - first).into()) as u32))
            }
            None => None,
        };
        let seq = open.stream.seq();
        let whole = self.rig.armed.iter().find(|r| r.handle.seq() == seq).is_some_and(|r| {
            let (there, all) = self.rig.progress(r);
            there == all
        });
        self.rig.pair.touch(0);
        match run {
            Some((first, n)) => {
                let (payload, len) = (self.plan.shape.payload, self.rig.len_of(seq).unwrap_or(0));
                let from = first as usize * payload;
                let bytes = (n as usize * payload).min(len - from);
                let buf = self.rig.source(seq, from, bytes);
                let channels = u64::from(self.plan.shape.channels);
                let channel = Channel(if repair {
                    self.rng.below(channels) as u8
                } else {
                    first as u8 % channels as u8
                });
                let result = open.stream.extend(PacketOffset(first), &buf, channel);
                note!(self, "{seq:?} packets {first}+{n}, repair {repair}: {result:?}");
                result.is_err()
            }
            // Mostly repaired until it is whole.
            None => {
                let aborted = !repair || !whole && self.rng.below(8) == 0;
                if aborted {
                    self.seen.add(Seen::Aborted);
                }
                aborted || whole
            }
        }
    }

    fn forge(&mut self) {
        let Shape { slots, generations, channels, payload, .. } = self.plan.shape;
        let r = &mut self.rng;
        // Names beyond what exists, too.
        let slot = r.below(u64::from(slots) + 1) as u16;
        let generation = r.below(u64::from(generations) + 1) as u16;
        let channel = Channel(r.below(u64::from(channels) + 1) as u8);
        let offset = if r.below(8) == 0 { r.below(1 << 18) } else { r.below(14) } as u32;
        let bytes = (0..r.below(payload as u64 + 9)).map(|_| r.below(256) as u8).collect();
        let (s, g) = (u64::from(slots), u64::from(generations));
        let named = |seq: Seq| seq.0 % s == u64::from(slot) && seq.0 / s % g == u64::from(generation);
        if self.rig.leaving.iter().any(|l| named(l.seq)) {
            return;
        }
        if let Some(receive) = self.rig.armed.iter_mut().find(|r| named(r.handle.seq())) {
            // Nothing but a key keeps it out of a posted receive; it must do no harm beyond that one.
            if r.below(4) != 0 {
                return;
            }
            receive.tainted = true;
            self.seen.add(Seen::ForgedHit);
        }
        self.seen.add(Seen::Forged);
        note!(self, "forged: slot {slot} generation {generation} offset {offset} {channel:?}");
        let imm = ImmLayout::default().encode(MessageId(slot), PacketOffset(offset), 0);
        let (q, generation) = (QueueSet(0), Generation(generation));
        let data = Forged::Data { q, generation, channel, imm, bytes };
        self.rig.pair.net.inject(Direction::A_TO_B, self.rig.now(), data);
        let bytes = (0..self.rng.below(80)).map(|_| self.rng.below(256) as u8).collect();
        let control = Forged::Control { q, bytes, valid: false };
        self.rig.pair.net.inject(Direction::A_TO_B, self.rig.now(), control);
        // Before anything else is posted.
        self.rig.pair.run_until(self.rig.now());
        self.hear();
    }

    /// The network is well, the streams end, the receives are completed: every slot comes back and works.
    fn calm(&mut self) -> Check {
        let shape = &self.plan.shape;
        note!(self, "calm");
        self.rig.pair.net.untap(Direction::A_TO_B);
        self.rig.pair.net.untap(Direction::B_TO_A);
        for end in 0..2 {
            if self.stopped[end].take().is_some() {
                self.rig.pair.stop(end, false);
            }
        }
        self.arrivals_until(self.rig.now())?;
        self.streams.clear();
        while !self.rig.armed.is_empty() {
            self.rig.complete(0);
        }
        self.rig.pair.touch(0);
        self.rig.pair.touch(1);

        // L is at least four of the largest round trip, in which an end may have been stopped.
        let stop = if self.plan.stop > 0.0 { self.plan.longest_stop() } else { Nanos::ZERO };
        let peak = (shape.delay + self.plan.control.longest + stop).mul_div(2, 1);
        let keep_alive = peak.max(Nanos::from_millis(150));
        let lifetime = shape.lifetime.max(peak.mul_div(4, 1));
        let bound = lifetime.mul_div(17, 16) + keep_alive.mul_div(4, 1) + shape.disarm_delay;
        let limit = self.rig.now() + bound;
        let first = self.rig.receiver.next_seq();
        let (first, slots) = (first, shape.slots as usize);
        while self.rig.armed.len() < slots {
            if !self.rig.held.is_empty()
                && let Some(seq) = self.rig.post(0, 3)?
            {
                self.posted(seq);
                continue;
            }
            if self.rig.now() >= limit {
                return Err(format!("the slot of {:?} is stuck", self.rig.receiver.next_seq()));
            }
            self.advance(limit)?;
        }

        // What the sender never began was withdrawn; then a whole message into every slot.
        let limit = self.rig.now() + bound;
        loop {
            let next = self.rig.sender.next_seq();
            let receive = self.rig.armed.iter().find(|r| r.handle.seq() == next);
            let len = receive.map_or(0, |r| r.handle.len() as usize);
            if next.before(first.plus(slots as u64)) && self.rig.send(len)? {
                continue;
            }
            if self.rig.armed.iter().all(|r| r.handle.bitmap().is_full())
                && !next.before(first.plus(slots as u64))
            {
                break;
            }
            if self.rig.now() >= limit {
                return Err(format!("the messages from {first:?} on do not arrive in the calm"));
            }
            self.advance(limit)?;
        }
        while !self.rig.armed.is_empty() {
            self.rig.complete(0);
        }
        while !self.rig.leaving.is_empty() {
            if self.rig.now() >= limit + bound {
                return Err(format!("{:?} does not come back", self.rig.leaving[0].seq));
            }
            self.advance(limit + bound)?;
        }
        self.rig.check_idle()
    }
}
