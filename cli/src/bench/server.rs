//! `sdr bench server`: takes clients, one after another and at once, and does what each asks for.
//!
//! One thread, one socket. Invariant: what a client does or leaves out ends at most his own session; what he costs is
//! bounded, before he has asked for anything by a small buffer and a deadline.

use super::content::Pattern;
use super::flow::{Flow, Role, Shared};
use super::side::Side;
use super::talk::Talk;
use super::wire::{MAX_MESSAGE, Run, ToClient, ToServer, VERSION};
use crate::ends::End;
use crate::{schemes, usage};
use netem::units::ByteSize;
use sdr_sdk::fabric::soft::Incoming;
use sdr_sdk::types::Nanos;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clients at a time.
const MOST_SESSIONS: usize = 256;

/// A client has this long to ask, and from one connection that it asked for to the next.
const ASK_DEADLINE: Nanos = Nanos::from_secs(10);

/// Limits of a request.
pub const MAX_INFLIGHT: u64 = 256;
pub const MAX_CONNECTIONS: u64 = 64;

/// Takes clients.
pub struct Server {
    end: End,
    sessions: Vec<Session>,
    keys: RandomState,
    drawn: u64,
    /// Writes a line about each client.
    verbose: bool,
    /// Clients that have come and gone.
    pub served: u64,
}

struct Session {
    from: SocketAddr,
    talk: Talk,
    began: Nanos,
    work: Option<Work>,
    /// All is said.
    reported: bool,
}

/// A client's run.
struct Work {
    key: u64,
    side: Side,
    memory: u64,
    opened: Vec<Option<Flow>>,
    ready: bool,
    said_finished: bool,
}

impl Server {
    /// Who comes to `end` is served.
    pub fn new(end: End, verbose: bool) -> Self {
        Self { end, sessions: Vec::new(), keys: RandomState::new(), drawn: 0, verbose, served: 0 }
    }

    /// Where clients find it.
    pub fn local_addr(&self) -> SocketAddr {
        self.end.endpoint.local_addr()
    }

    /// Serves until `stop` is set, or, with `once`, until a client has come and gone.
    pub fn run(&mut self, stop: &AtomicBool, once: bool) {
        let Self { end, sessions, keys, drawn, verbose, served } = self;
        let clock = end.driver.clock();
        let End { context, endpoint, driver, .. } = end;
        driver.run(Nanos::MAX, |driver| {
            loop {
                let now = clock.now();
                while let Some(client) = endpoint.incoming() {
                    let mut take = Take { context, endpoint, sessions, driver, now };
                    if let Err(why) = take.client(&client) {
                        note(*verbose, client.from, &why);
                    }
                }
                let mut busy = false;
                let reserved: u64 = sessions.iter().filter_map(|s| s.work.as_ref()).map(|w| w.memory).sum();
                sessions.retain_mut(|s| {
                    let mut draw = || {
                        *drawn += 1;
                        // Zero is the number of a conversation, and there is room for the connections' own above.
                        (keys.hash_one(*drawn) >> 1) | 1
                    };
                    match s.turn(now, endpoint, context, reserved, &mut draw) {
                        Ok(more) => {
                            busy |= more;
                            if s.reported && s.talk.heard() {
                                note(*verbose, s.from, &s.summary());
                                *served += 1;
                            }
                            !(s.reported && s.talk.heard())
                        }
                        Err(why) => {
                            note(*verbose, s.from, &why);
                            *served += 1;
                            false
                        }
                    }
                });
                if !busy {
                    break;
                }
                driver.turn();
            }
            let over = stop.load(Ordering::Relaxed) || (once && *served > 0 && sessions.is_empty());
            over.then_some(())
        });
        // The last words of the last client's connections.
        let linger = clock.now() + Nanos::from_millis(300);
        driver
            .run(linger, |driver| (driver.connections() == 0 || stop.load(Ordering::Relaxed)).then_some(()));
    }
}

fn note(verbose: bool, client: SocketAddr, line: &str) {
    if verbose {
        eprintln!("{client}: {line}");
    }
}

/// Somebody has come.
struct Take<'a> {
    context: &'a sdr_sdk::Context,
    endpoint: &'a sdr_sdk::fabric::soft::Endpoint,
    sessions: &'a mut Vec<Session>,
    driver: &'a mut sdr_sdk::driver::Driver,
    now: Nanos,
}

impl Take<'_> {
    fn client(&mut self, client: &Incoming) -> Result<(), String> {
        match client.info.first().0.0 {
            0 => self.conversation(client),
            key => self.connection(client, key),
        }
    }

    fn conversation(&mut self, client: &Incoming) -> Result<(), String> {
        if self.sessions.len() >= MOST_SESSIONS {
            let why = format!("refused: {MOST_SESSIONS} clients are being served");
            self.endpoint.refuse(client, &why);
            return Err(why);
        }
        let halves = self.endpoint.accept(self.context, client).map_err(|e| e.to_string())?;
        let (talk, driver) = Talk::new("the client", self.context, halves, MAX_MESSAGE)?;
        self.driver.add(driver);
        let (from, began) = (client.from, self.now);
        self.sessions.push(Session { from, talk, began, work: None, reported: false });
        Ok(())
    }

    fn connection(&mut self, client: &Incoming, key: u64) -> Result<(), String> {
        let index = client.info.first().1.0.wrapping_sub(key).wrapping_sub(1);
        let wanted = |w: &Work| w.key == key && w.opened.get(index as usize).is_some_and(Option::is_none);
        let session = self.sessions.iter_mut().find(|s| s.work.as_ref().is_some_and(wanted));
        let Some(Session { work: Some(work), began, .. }) = session else {
            let why = "refused: a connection of no run that is known here";
            self.endpoint.refuse(client, why);
            return Err(why.to_owned());
        };
        *began = self.now;
        let halves = self.endpoint.accept(self.context, client).map_err(|e| e.to_string())?;
        let (flow, driver) = Flow::new(&work.side.shared, Role::Server, index as u32, halves)?;
        self.driver.add(driver);
        work.opened[index as usize] = Some(flow);
        Ok(())
    }
}

impl Session {
    /// Goes on; whether there may be more to do at once. An error ends it.
    fn turn(
        &mut self,
        now: Nanos,
        endpoint: &sdr_sdk::fabric::soft::Endpoint,
        context: &sdr_sdk::Context,
        reserved: u64,
        draw: &mut dyn FnMut() -> u64,
    ) -> Result<bool, String> {
        if self.reported {
            return Ok(false);
        }
        match self.talk.hear()? {
            Some(ToServer::Run(run)) if self.work.is_none() => {
                let accepted = accept(&run, reserved).and_then(|scheme| {
                    let shared = Shared::new(run.clone(), scheme, context, run.reverse)?;
                    Ok(Side::new(Arc::new(shared), endpoint))
                });
                match accepted {
                    Ok(side) => {
                        let (key, memory) = (draw(), run.memory(run.reverse, run.forward));
                        let opened = (0..run.connections).map(|_| None).collect();
                        self.began = now;
                        self.work =
                            Some(Work { key, side, memory, opened, ready: false, said_finished: false });
                        self.talk.say(&ToClient::Accepted { key })?;
                    }
                    Err(why) => {
                        self.talk.say(&ToClient::Refused { why })?;
                        self.reported = true;
                    }
                }
                return Ok(true);
            }
            Some(ToServer::Run(_)) => return Err("asked twice".to_owned()),
            Some(ToServer::Stop) => self.work.iter_mut().for_each(|w| w.side.stop()),
            Some(ToServer::Finished(outgoing)) => {
                self.work.iter_mut().for_each(|w| w.side.promise(now, outgoing.delivered.clone()));
            }
            None => {}
        }
        let late = now.since(self.began) >= ASK_DEADLINE;
        let Some(work) = &mut self.work else {
            return if late { Err(format!("asked for nothing within {ASK_DEADLINE}")) } else { Ok(false) };
        };
        if !work.ready {
            work.ready = work.opened.iter().all(Option::is_some);
            if !work.ready {
                let line = "did not open the connections that it asked for";
                return if late { Err(line.to_owned()) } else { Ok(false) };
            }
            work.side.flows = work.opened.iter_mut().filter_map(Option::take).collect();
        }
        let busy = work.side.turn(now);
        if !work.said_finished && work.side.sent() {
            work.said_finished = true;
            self.talk.say(&ToClient::Finished(work.side.outgoing()))?;
        }
        if work.said_finished && work.side.received(now) {
            self.talk.say(&ToClient::Received(work.side.incoming()))?;
            self.reported = true;
        }
        Ok(busy)
    }

    fn summary(&self) -> String {
        let Some(work) = &self.work else { return "refused".to_owned() };
        let (sent, received, size) =
            (work.side.outgoing(), work.side.incoming(), ByteSize(work.side.shared.run.size));
        let mut parts = Vec::new();
        if work.side.shared.run.forward {
            let (n, corrupt) = (received.messages, received.corrupt);
            parts.push(format!("received {n} messages of {size}, {corrupt} corrupt"));
        }
        if work.side.shared.run.reverse {
            parts.push(format!("sent {} messages of {size}, {} failed", sent.messages, sent.failed));
        }
        parts.join("; ")
    }
}

/// Whether a run can be served here.
fn accept(run: &Run, reserved: u64) -> Result<Arc<dyn sdr_sdk::reliability::Scheme>, String> {
    if run.version != VERSION {
        let theirs = run.version;
        return Err(format!(
            "version {theirs} of the benchmark, here it is {VERSION}: use the same program on both sides"
        ));
    }
    let scheme = schemes::find(&run.scheme).map_err(|e| e.to_string())?;
    let limits = [
        ("size", run.size, u64::MAX - Pattern::source_len(0)),
        ("inflight", run.inflight, MAX_INFLIGHT),
        ("connections", run.connections.into(), MAX_CONNECTIONS),
    ];
    for (what, asked, most) in limits {
        if !(1..=most).contains(&asked) {
            return Err(format!("{what} = {asked}: here it can be 1 to {most}"));
        }
    }
    if !run.forward && !run.reverse {
        return Err("neither side sends".to_owned());
    }
    fits(run, run.memory(run.reverse, run.forward), reserved)?;
    Ok(scheme)
}

/// Whether the bytes that a run needs can be had, beside what is `reserved`.
pub fn fits(run: &Run, needed: u64, reserved: u64) -> Result<(), String> {
    let Some(available) = usage::available_bytes() else { return Ok(()) };
    // What is reserved may not have been touched yet.
    let most = (available / 4 * 3).saturating_sub(reserved);
    if needed <= most {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(format!(
        "{} messages with {} in flight on {} connections need {:.1} GiB of memory, {:.1} GiB can be had",
        ByteSize(run.size),
        run.inflight,
        run.connections,
        gib(needed),
        gib(most)
    ))
}
