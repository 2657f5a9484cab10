//! How two software NICs exchange what their queue pairs need to know, over the same datagrams.
//!
//! Client: PROBE of each payload size, which comes back if it passes both ways, then HELLO; server: RETRY with a cookie,
//! then, for a HELLO that brings it back, ACCEPT. The server keeps nothing for a HELLO without a valid cookie, and sends
//! no more bytes than it got. Lost frames are sent again by the client; a HELLO that comes again gets the same ACCEPT
//! again. Everything kept is bounded.

#![forbid(unsafe_code)]

use super::link::Reply;
use super::nic::template;
use super::wire::{self, HEADER, Header, PacketType};
use crate::types::{Channel, Nanos};
use frames::{accept, hello, probe, read_hello, sent_at};
use probing::Probing;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

mod frames;
mod probing;
#[cfg(test)]
mod tests;

/// Bytes of a padded HELLO, header included.
const HELLO: usize = 1_200;

/// Payload sizes that are probed, largest first; the last passes every path that IPv6 allows.
pub(super) const PAYLOADS: [u32; 4] = [8_192, 4_096, 1_408, 1_152];

/// Bytes of the smallest probe. A HELLO is longer.
const SMALLEST: usize = PAYLOADS[PAYLOADS.len() - 1] as usize + HEADER;

/// A connection attempt ends after this.
pub const CONNECT_DEADLINE: Nanos = Nanos::from_secs(10);

/// Time between two HELLOs, and between probes before the first answer.
const INTERVAL: Nanos = Nanos::from_millis(150);

/// Bytes a second that go to strangers, probes sent back and RETRYs each: thirty clients a second that probe all sizes.
const STRANGERS_RATE: u64 = 1 << 19;

/// The most of them at once.
const STRANGERS_BURST: u64 = 1 << 16;

/// A cookie is good for one to two of these.
const COOKIE: Nanos = Nanos::from_secs(10);

/// HELLOs are remembered for longer than their cookies are good, so that one played again is no second client.
const MEMORY: Nanos = Nanos::from_secs(20);

/// HELLOs that are remembered, waiting and answered ones.
const MOST: usize = 4_096;

/// Dials at a time.
const MOST_DIALS: usize = 256;

/// Why a connection attempt failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// Nobody answered.
    #[error(
        "no answer from {to} within {waited}; is the server running there, and does it speak this version?"
    )]
    NoAnswer {
        /// Where to.
        to: SocketAddr,
        /// How long it was tried.
        waited: Nanos,
    },
    /// The peer refused, and said why.
    #[error("{to} refused: {why}")]
    Refused {
        /// Who.
        to: SocketAddr,
        /// Its reason.
        why: String,
    },
    /// The peer speaks another version.
    #[error("{to} speaks version {theirs} of the protocol, this side version {ours}; update the older one")]
    Version {
        /// Who.
        to: SocketAddr,
        /// Ours.
        ours: u8,
        /// The peer's.
        theirs: u8,
    },
    /// Too many attempts are under way.
    #[error("{MOST_DIALS} connection attempts are under way; wait for one")]
    TooMany,
}

/// Somebody wants to connect: what he sent, and who it is.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    pub(super) from: SocketAddr,
    pub(super) info: Vec<u8>,
    key: (SocketAddr, u64),
    at: Nanos,
}

/// Names an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DialId(u64);

enum DialState {
    /// Looking for the payload size.
    Probing(Probing),
    /// The payload size is known.
    Probed(u32),
    /// Saying HELLO.
    Hello {
        info: Vec<u8>,
        cookie: u64,
    },
    Ended(Result<Vec<u8>, DialError>),
}

struct Dial {
    to: SocketAddr,
    state: DialState,
    started: Option<Nanos>,
    next: Nanos,
}

enum Answer {
    /// The user has not decided yet.
    Pending,
    Given {
        accepted: bool,
        payload: Vec<u8>,
    },
}

pub(super) struct Handshake {
    secret: RandomState,
    dials: HashMap<u64, Dial>,
    next_dial: u64,
    incoming: VecDeque<Incoming>,
    answers: HashMap<(SocketAddr, u64), Answer>,
    /// When each answer came in, oldest first; those that wait for the user are in the same order.
    ages: VecDeque<(Nanos, (SocketAddr, u64))>,
    echo: Budget,
    retry: Budget,
    now: Nanos,
}

/// Bytes that strangers may be sent: who claims to be somebody else would have us fill the other's link.
struct Budget {
    left: u64,
    at: Nanos,
}

impl Budget {
    fn new() -> Self {
        Self { left: STRANGERS_BURST, at: Nanos::ZERO }
    }

    /// Takes `bytes` out, if they are there.
    fn allows(&mut self, now: Nanos, bytes: u64) -> bool {
        let more = now.since(self.at).mul_div(STRANGERS_RATE, 1_000_000_000).0;
        if more > 0 {
            (self.left, self.at) = (STRANGERS_BURST.min(self.left.saturating_add(more)), now);
        }
        let allowed = bytes <= self.left;
        self.left -= if allowed { bytes } else { 0 };
        allowed
    }
}

impl Handshake {
    pub(super) fn new(secret: RandomState) -> Self {
        Self {
            secret,
            dials: HashMap::new(),
            next_dial: 0,
            incoming: VecDeque::new(),
            answers: HashMap::new(),
            ages: VecDeque::new(),
            echo: Budget::new(),
            retry: Budget::new(),
            now: Nanos::ZERO,
        }
    }

    /// Starts an attempt: looks for the payload size first.
    pub(super) fn dial(&mut self, to: SocketAddr) -> Result<DialId, DialError> {
        if self.dials.len() >= MOST_DIALS {
            return Err(DialError::TooMany);
        }
        // Hard to guess, so that nobody answers who did not see the HELLO.
        let id = self.secret.hash_one((self.next_dial, to));
        self.next_dial += 1;
        let state = DialState::Probing(Probing::new());
        self.dials.insert(id, Dial { to, state, started: None, next: Nanos::ZERO });
        Ok(DialId(id))
    }

    /// The payload size, once it is known.
    pub(super) fn payload(&self, id: DialId) -> Option<Result<u32, DialError>> {
        match &self.dials.get(&id.0)?.state {
            DialState::Ended(Err(e)) => Some(Err(e.clone())),
            DialState::Probed(payload) => Some(Ok(*payload)),
            _ => None,
        }
    }

    /// Goes on with the attempt, with the info of the queue pair that was made for it.
    pub(super) fn hello(&mut self, id: DialId, info: Vec<u8>) {
        if let Some(d) = self.dials.get_mut(&id.0)
            && matches!(d.state, DialState::Probed(_))
        {
            d.state = DialState::Hello { info, cookie: 0 };
            d.next = Nanos::ZERO;
        }
    }

    /// The peer's info, once it is here; ends the attempt.
    pub(super) fn result(&mut self, id: DialId) -> Option<(SocketAddr, Result<Vec<u8>, DialError>)> {
        if !matches!(self.dials.get(&id.0)?.state, DialState::Ended(_)) {
            return None;
        }
        let d = self.dials.remove(&id.0)?;
        match d.state {
            DialState::Ended(r) => Some((d.to, r)),
            _ => None,
        }
    }

    /// Gives an attempt up.
    pub(super) fn cancel(&mut self, id: DialId) {
        self.dials.remove(&id.0);
    }

    /// The next who wants to connect and has not given up meanwhile.
    pub(super) fn take_incoming(&mut self) -> Option<Incoming> {
        let now = self.now;
        std::iter::from_fn(|| self.incoming.pop_front()).find(|i| now.since(i.at) < CONNECT_DEADLINE)
    }

    /// Answers an incoming attempt, with our info or the reason for refusing.
    pub(super) fn answer(
        &mut self,
        to: &Incoming,
        answer: Result<Vec<u8>, String>,
        replies: &mut Vec<Reply>,
    ) {
        let Some(entry) = self.answers.get_mut(&to.key) else { return };
        let (accepted, payload) = match answer {
            Ok(info) => (true, info),
            Err(why) => (false, why.into_bytes()),
        };
        // What answers a HELLO is never longer than it.
        let payload = payload[..payload.len().min(HELLO - HEADER - 9)].to_vec();
        replies.push(accept(to.key, accepted, &payload));
        *entry = Answer::Given { accepted, payload };
    }

    /// When `drive` has work.
    pub(super) fn wake_at(&self) -> Option<Nanos> {
        let at_work = |d: &&Dial| matches!(d.state, DialState::Probing(_) | DialState::Hello { .. });
        self.dials.values().filter(at_work).map(|d| d.next).min()
    }

    /// Sends what is due.
    pub(super) fn drive(&mut self, now: Nanos, replies: &mut Vec<Reply>) {
        self.now = now;
        self.forget(now);
        for (&nonce, d) in &mut self.dials {
            let started = *d.started.get_or_insert(now);
            if matches!(d.state, DialState::Ended(_) | DialState::Probed(_)) || now < d.next {
                continue;
            }
            if now.since(started) >= CONNECT_DEADLINE {
                d.state = DialState::Ended(Err(DialError::NoAnswer { to: d.to, waited: now.since(started) }));
                continue;
            }
            let interval = match &mut d.state {
                DialState::Probing(p) => match p.round() {
                    Ok((sizes, wait)) => {
                        replies.extend(sizes.map(|size| probe(d.to, nonce, now, size as usize)));
                        wait
                    }
                    Err(best) => {
                        d.state = DialState::Probed(best);
                        continue;
                    }
                },
                DialState::Hello { info, cookie } => {
                    replies.push(hello(d.to, nonce, *cookie, info));
                    INTERVAL
                }
                DialState::Probed(_) | DialState::Ended(_) => continue,
            };
            d.next = (now + interval).min(started + CONNECT_DEADLINE);
        }
    }

    /// Drops what was remembered long enough.
    fn forget(&mut self, now: Nanos) {
        while let Some(&(at, key)) = self.ages.front()
            && now.since(at) >= MEMORY
        {
            self.ages.pop_front();
            self.answers.remove(&key);
            if self.incoming.front().is_some_and(|i| i.key == key) {
                self.incoming.pop_front();
            }
        }
    }

    /// A frame of the handshake came in.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        ch: Channel,
        from: SocketAddr,
        h: &Header,
        payload: &[u8],
        replies: &mut Vec<Reply>,
    ) {
        self.now = now;
        match h.kind {
            PacketType::Hello => self.on_hello(now, ch, from, payload, replies),
            PacketType::Probe => {
                // The same bytes back: no longer than what came, and it measures the way back too.
                let bytes = (HEADER + payload.len()) as u64;
                if self.echo.allows(now, bytes) {
                    let header = template(PacketType::ProbeAck, 0, h.token, 0);
                    replies.push(Reply::new(ch, from, &header, payload.to_vec()));
                }
            }
            PacketType::ProbeAck => {
                let (size, sent) = (payload.len() as u32, payload.first_chunk().map_or(now, sent_at));
                if let Some(d) = self.dials.get_mut(&h.token).filter(|_| PAYLOADS.contains(&size))
                    && let DialState::Probing(p) = &mut d.state
                {
                    if p.came_back(now, size, sent) {
                        d.next = d.next.min(now + p.interval);
                    }
                    if size == PAYLOADS[0] {
                        d.state = DialState::Probed(size);
                    }
                }
            }
            PacketType::Retry => {
                if let (Some(d), Some(given)) = (self.dials.get_mut(&h.token), payload.first_chunk())
                    && let DialState::Hello { cookie, .. } = &mut d.state
                {
                    *cookie = u64::from_be_bytes(*given);
                    d.next = now;
                }
            }
            PacketType::Accept => {
                if let (Some(d), Some((&kind, rest))) = (self.dials.get_mut(&h.token), payload.split_first())
                    && matches!(d.state, DialState::Hello { .. })
                {
                    d.state = DialState::Ended(match kind {
                        1 => Ok(rest.to_vec()),
                        _ => Err(DialError::Refused {
                            to: d.to,
                            why: String::from_utf8_lossy(rest).into_owned(),
                        }),
                    });
                }
            }
            _ => {}
        }
    }

    /// A frame of another version came in. A whole PROBE or HELLO is answered with a RETRY of ours, which says what we speak; a
    /// frame for an attempt of ours ends it. Both rest on what [`super::wire`] promises of every version.
    pub(super) fn other_version(
        &mut self,
        ch: Channel,
        from: SocketAddr,
        frame: &[u8],
        replies: &mut Vec<Reply>,
    ) {
        let Some((theirs, kind, token)) = wire::every_version(frame) else { return };
        if let Some(d) = self.dials.get_mut(&token).filter(|d| d.to == from) {
            if !matches!(d.state, DialState::Ended(_)) {
                d.state = DialState::Ended(Err(DialError::Version { to: d.to, ours: wire::VERSION, theirs }));
            }
        } else if [PacketType::Hello as u8, PacketType::Probe as u8].contains(&kind)
            && frame.len() >= SMALLEST
        {
            replies.push(Reply::new(ch, from, &template(PacketType::Retry, 0, token, 0), vec![0; 8]));
        }
    }

    fn on_hello(
        &mut self,
        now: Nanos,
        ch: Channel,
        from: SocketAddr,
        payload: &[u8],
        replies: &mut Vec<Reply>,
    ) {
        let Some((nonce, cookie, info)) = read_hello(payload) else { return };
        let bucket = now.0 / COOKIE.0;
        let valid = [bucket, bucket.wrapping_sub(1)].iter().any(|&b| self.cookie(from, nonce, b) == cookie);
        if !valid {
            if !self.retry.allows(now, (HEADER + 8) as u64) {
                return;
            }
            let header = template(PacketType::Retry, 0, nonce, 0);
            let cookie = self.cookie(from, nonce, bucket).to_be_bytes();
            replies.push(Reply::new(ch, from, &header, cookie.to_vec()));
            return;
        }
        let key = (from, nonce);
        match self.answers.get(&key) {
            Some(Answer::Given { accepted, payload }) => replies.push(accept(key, *accepted, payload)),
            Some(Answer::Pending) => {}
            None => {
                self.forget(now);
                if self.answers.len() < MOST {
                    self.answers.insert(key, Answer::Pending);
                    self.ages.push_back((now, key));
                    self.incoming.push_back(Incoming { from, info: info.to_vec(), key, at: now });
                }
            }
        }
    }

    /// Never zero, so that a HELLO without a cookie has none.
    fn cookie(&self, from: SocketAddr, nonce: u64, bucket: u64) -> u64 {
        self.secret.hash_one((from, nonce, bucket)) | 1
    }
}
