//! What came in: frames checked, told apart, placed, and addresses that are doubted.
//!
//! Invariant: a frame acts on a connection only with that connection's token; what answers one is no longer than it.

use super::{CHALLENGE_INTERVAL, CHALLENGES_LAST, Connection, NONCE_EPOCH, Nic, SoftCounters};
use crate::fabric::keys::Placement;
use crate::fabric::soft::link::Reply;
use crate::fabric::soft::wire::{Header, PacketType, WireError, parse};
use crate::fabric::{CompletionRun, Event, EventSink};
use crate::types::{Channel, Nanos, QueueSet};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

impl Nic {
    /// One frame came in on `ch`.
    pub(in super::super) fn receive(
        &mut self,
        now: Nanos,
        ch: Channel,
        from: SocketAddr,
        bytes: &[u8],
        out: &mut dyn EventSink,
    ) {
        let (header, payload) = match parse(bytes) {
            Ok(parsed) => parsed,
            Err(WireError::Version(_)) => {
                self.counters.other_version += 1;
                self.handshake.other_version(ch, from, bytes, &mut self.replies);
                return;
            }
            Err(_) => {
                self.counters.corrupt += 1;
                return;
            }
        };
        if matches!(
            header.kind,
            PacketType::Hello
                | PacketType::Probe
                | PacketType::Retry
                | PacketType::Accept
                | PacketType::ProbeAck
        ) {
            return self.handshake.receive(now, ch, from, &header, payload, &mut self.replies);
        }
        // The open connection that it names with the right token.
        let q = self.by_id.get(&header.connection).copied();
        let c = q.and_then(|q| self.connections.get_mut(q.0 as usize)?.as_deref_mut().map(|c| (q, c)));
        let Some((q, c)) = c.filter(|(_, c)| c.token == header.token && c.peer.is_some()) else {
            self.counters.forged += 1;
            return;
        };
        let Some(seen) = c.seen.get_mut(usize::from(header.channel.0)) else {
            self.counters.out_of_range += 1;
            return;
        };
        // A report played again tells of losses that are repaired, a challenge or a probe has us answer again. A packet of a message is
        // what it was, and a response is right or wrong.
        let counts_once =
            matches!(header.kind, PacketType::Control | PacketType::PathChallenge | PacketType::PathProbe);
        let first = !counts_once || seen.first(header.number);
        self.counters.duplicate += u64::from(!first);
        let nonce = |epoch| nonce(&self.random, q, header.channel, from, epoch);
        let epoch = now.0 / NONCE_EPOCH.0;
        match header.kind {
            PacketType::PathChallenge if first => {
                // The same bytes back, no longer, and only to where the peer is known to be: an answer for somebody else is
                // what he needs to be taken for us.
                if c.peer.as_ref().is_some_and(|peer| peer.is_at(from))
                    && let Some(answer) = c.header(PacketType::PathResponse, header.channel)
                {
                    self.replies.push(Reply::new(header.channel, from, &answer, payload.to_vec()));
                }
            }
            PacketType::PathProbe if first => {
                if c.peer.as_ref().is_some_and(|peer| peer.is_at(from))
                    && let Some(answer) = c.echo.answer(payload)
                    && let Some(header) = c.header(PacketType::PathProbeAck, header.channel)
                {
                    self.replies.push(Reply::new(header.channel, from, &header, answer));
                }
            }
            PacketType::PathProbeAck => c.path.answered(now, payload),
            PacketType::PathResponse => {
                let right = nonce(epoch) == *payload || nonce(epoch.wrapping_sub(1)) == *payload;
                if let Some(peer) = c.peer.as_mut().filter(|_| right) {
                    peer.moves(header.channel, from);
                }
            }
            PacketType::Data | PacketType::Control | PacketType::Confirm => {
                // Also where somebody else's copy was faster: the peer may have moved.
                if c.doubts(now, header.channel, from, payload.len())
                    && let Some(challenge) = c.header(PacketType::PathChallenge, header.channel)
                {
                    self.replies.push(Reply::new(header.channel, from, &challenge, nonce(epoch).to_vec()));
                }
                c.show(now, &mut self.replies);
                if header.kind == PacketType::Data {
                    place(c, q, &header, payload, &mut self.counters, &mut self.completions);
                } else if header.kind == PacketType::Control && first {
                    self.counters.control_received += 1;
                    out.event(Event::Control { q, bytes: payload });
                }
            }
            _ => {}
        }
    }
}

impl Connection {
    /// Confirms the addresses of channels on which nothing left for a while.
    fn show(&mut self, now: Nanos, replies: &mut Vec<Reply>) {
        if !self.shown.look(now) {
            return;
        }
        while let Some(channel) = self.shown.due(now) {
            self.shown.sent(now, channel);
            let to = self.peer.as_ref().and_then(|peer| peer.at(channel));
            if let (Some(to), Some(header)) = (to, self.header(PacketType::Confirm, channel)) {
                // As long as the nonce that may come back for it.
                replies.push(Reply::new(channel, to, &header, vec![0; size_of::<u64>()]));
            }
        }
    }

    /// Whether `from`, where a frame with the right token and `len` bytes of payload came from, has to be challenged: once it
    /// answered, ours for the channel go there. Whoever replays frames from elsewhere cannot keep a challenge from the peer,
    /// because each address has its own nonce; and he is sent no more than he sent.
    fn doubts(&mut self, now: Nanos, channel: Channel, from: SocketAddr, len: usize) -> bool {
        let at = self.peer.as_ref().and_then(|peer| peer.at(channel));
        if at.is_none_or(|at| at == from) || len < size_of::<u64>() {
            return false;
        }
        let lately = &mut self.challenged[usize::from(channel.0)];
        if lately.iter().flatten().any(|(to, at)| *to == from && now < *at + CHALLENGE_INTERVAL) {
            return false;
        }
        let oldest = lately.iter_mut().min_by_key(|c| c.map(|(_, at)| at));
        let Some(free) = oldest.filter(|c| c.is_none_or(|(_, at)| now >= at + CHALLENGES_LAST)) else {
            return false;
        };
        *free = Some((from, now));
        true
    }
}

/// Places a packet that has a key and reports it.
fn place(
    c: &mut Connection,
    q: QueueSet,
    h: &Header,
    payload: &[u8],
    counters: &mut SoftCounters,
    completions: &mut [Vec<CompletionRun>],
) {
    let spec = &c.spec;
    let (slot, offset) = spec.layout.decode(h.imm);
    let shaped = u32::from(slot.0) < spec.slots
        && u32::from(h.generation.0) < spec.generations
        && (1..=spec.payload as usize).contains(&payload.len());
    if !shaped {
        counters.out_of_range += 1;
        return;
    }
    match c.keys.place(slot, h.generation, offset, payload) {
        Placement::Placed => {}
        Placement::Null => counters.null_key += 1,
        Placement::OutOfRange => {
            counters.out_of_range += 1;
            return;
        }
    }
    counters.received += 1;
    let user = spec.layout.user_fragment(h.imm);
    let run = CompletionRun { q, generation: h.generation, imm: h.imm, packets: 1, user };
    let runs = &mut completions[usize::from(h.channel.0)];
    if !runs.last_mut().is_some_and(|last| extend(spec.layout, last, &run)) {
        runs.push(run);
    }
}

/// What an address has to send back to be believed.
fn nonce(secret: &RandomState, q: QueueSet, channel: Channel, at: SocketAddr, epoch: u64) -> [u8; 8] {
    secret.hash_one((q, channel, at, epoch)).to_be_bytes()
}

/// Joins a packet to the run before it when it is its next one.
fn extend(layout: crate::ImmLayout, last: &mut CompletionRun, next: &CompletionRun) -> bool {
    let (slot, first) = layout.decode(last.imm);
    let (next_slot, offset) = layout.decode(next.imm);
    let follows = (last.q, last.generation, slot) == (next.q, next.generation, next_slot)
        && u64::from(first.0) + u64::from(last.packets) == u64::from(offset.0);
    // A fragment that came before in this run must say the same.
    let fits = last.packets < layout.fragments() || last.user & fragment_bits(layout, offset.0) == next.user;
    if follows && fits {
        last.packets += 1;
        last.user |= next.user;
    }
    follows && fits
}

fn fragment_bits(layout: crate::ImmLayout, offset: u32) -> u32 {
    let u = layout.user_bits();
    ((1 << u) - 1) << (offset % layout.fragments() * u)
}
