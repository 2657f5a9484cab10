//! `sdr bench`: reliable messages in real time, over the fabric that is chosen.
//!
//! | module | what it holds |
//! |---|---|
//! | `bench.rs` | the three commands: loopback, server, client |
//! | [`client`], [`server`] | the two ends; `loopback` runs both here |
//! | [`wire`], [`talk`] | what they say to each other, and how |
//! | [`side`], [`flow`] | the connections of a run at one end, and one of them |
//! | [`content`] | what a message contains, and whether it still does |
//! | [`times`], [`watch`], [`report`] | completion times; what is shown during and after |
//!
//! Each end has a thread with its own context and driver, and so has the emulated link between them.

pub mod client;
mod content;
mod flow;
pub mod report;
mod server;
mod side;
mod talk;
mod times;
mod watch;
mod wire;

use crate::args::bench::{BenchArgs, ClientArgs, Fabric, LoopbackArgs, ServerArgs};
use crate::args::flag;
use crate::args::flows::Congestion;
use crate::ends::{End, MAX_CHANNELS, resolve};
use crate::link::LinkThread;
use crate::{Answer, CommandError, link, schemes, stop};
use client::{Measured, Plan};
use netem::memory_link::{MemoryConfig, MemoryNet};
use netem::spec::PathSpec;
use netem::units::{BitRate, ByteSize};
use report::{Report, Setting};
use sdr_sdk::driver::Clock;
use sdr_sdk::imm::ImmLayout;
use sdr_sdk::types::Nanos;
use server::Server;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use watch::Watch;
use wire::{Run, VERSION};

/// Largest payload of a packet, in bytes: the largest that connections look for.
pub const MAX_MTU: u64 = 8 << 10;

/// Message length when none is given.
const SIZE: ByteSize = ByteSize(8 << 20);

/// How long a run takes when neither messages nor time are given, and that of each size of `-a`.
const DURATION: Nanos = Nanos::from_secs(10);
const DURATION_OF_EACH: Nanos = Nanos::from_secs(1);

/// The sizes of `-a`: perftest's, 2 B to 8 MiB.
const ALL_SIZES: std::ops::RangeInclusive<u32> = 1..=23;

/// `sdr bench loopback`.
pub fn loopback(args: &LoopbackArgs) -> Result<Answer, CommandError> {
    let plans = plans(&args.bench)?;
    for plan in &plans {
        let run = &plan.run;
        // Both sides are here.
        let needed =
            run.memory(run.forward, run.reverse).saturating_add(run.memory(run.reverse, run.forward));
        server::fits(run, needed, 0).map_err(CommandError::Usage)?;
    }
    let path = args.bench.link.as_ref();
    path.map_or(Ok(()), link::carries_handshake)?;
    let stop = stop::on_ctrl_c()?;
    measure(&args.bench, args.fabric, &plans, &stop, |plan, watch| match args.fabric {
        Fabric::Udp => over_udp(plan, path, &stop, watch),
        Fabric::Memory => over_memory(plan, path, &stop, watch),
    })
}

/// `sdr bench client`.
pub fn client(args: &ClientArgs) -> Result<Answer, CommandError> {
    let plans = plans(&args.bench)?;
    for plan in &plans {
        let run = &plan.run;
        server::fits(run, run.memory(run.forward, run.reverse), 0).map_err(CommandError::Usage)?;
    }
    args.bench.link.as_ref().map_or(Ok(()), link::carries_handshake)?;
    let server = resolve(&args.server)?;
    let stop = stop::on_ctrl_c()?;
    measure(&args.bench, Fabric::Udp, &plans, &stop, |plan, watch| {
        let link = args.bench.link.as_ref().map(|path| link_to(server, path)).transpose()?;
        let to = link.as_ref().map_or(server, LinkThread::local_addr);
        let end = End::dial(to, plan.channels, Clock::start())?;
        client::run(plan, end, to, link.as_ref(), &stop, watch)
    })
}

/// `sdr bench server`.
pub fn server(args: &ServerArgs) -> Result<Answer, CommandError> {
    let stop = stop::on_ctrl_c()?;
    let mut server = Server::new(End::listen(resolve(&args.listen)?, Clock::start())?, true);
    eprintln!("listening on {}", server.local_addr());
    server.run(&stop, args.once);
    Ok(Answer { interrupted: stop.load(Ordering::Relaxed), ..Answer::default() })
}

/// Both ends here, each on a thread, and the link between them when there is one.
pub fn over_udp(
    plan: &Plan,
    path: Option<&PathSpec>,
    stop: &AtomicBool,
    watch: &mut Watch,
) -> Result<Measured, CommandError> {
    let listen = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let server = ServerThread::start(End::listen(listen, Clock::start())?)?;
    let link = path.map(|path| link_to(server.local, path)).transpose()?;
    let to = link.as_ref().map_or(server.local, LinkThread::local_addr);
    let end = End::dial(to, plan.channels, Clock::start())?;
    client::run(plan, end, to, link.as_ref(), stop, watch)
}

/// Both ends here, each on a thread, joined in memory: the same NIC and the same path model, without sockets.
fn over_memory(
    plan: &Plan,
    path: Option<&PathSpec>,
    stop: &AtomicBool,
    watch: &mut Watch,
) -> Result<Measured, CommandError> {
    let config = MemoryConfig { path: path.cloned(), channels: MAX_CHANNELS, ..MemoryConfig::default() };
    let net = MemoryNet::new(&config).map_err(|e| CommandError::Usage(e.to_string()))?;
    // One clock: a frame arrives at an instant that its sender reckons.
    let clock = Clock::start();
    let server = ServerThread::start(End::over(net.end(1), clock)?)?;
    client::run(plan, End::over(net.end(0), clock)?, server.local, None, stop, watch)
}

/// An emulated link with this end of it here.
fn link_to(server: SocketAddr, path: &PathSpec) -> Result<LinkThread, CommandError> {
    let here: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    LinkThread::start(SocketAddr::new(here, 0), server, path)
}

/// A server for one client, in this process.
struct ServerThread {
    local: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ServerThread {
    fn start(end: End) -> Result<Self, CommandError> {
        let mut server = Server::new(end, false);
        let local = server.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread =
            std::thread::Builder::new().name("server".to_owned()).spawn(move || server.run(&seen, true));
        let thread = Some(thread.map_err(|e| CommandError::Failed(e.to_string()))?);
        Ok(Self { local, stop, thread })
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Runs every plan with `one` and shows what came out.
fn measure(
    args: &BenchArgs,
    fabric: Fabric,
    plans: &[Plan],
    stop: &AtomicBool,
    one: impl Fn(&Plan, &mut Watch) -> Result<Measured, CommandError>,
) -> Result<Answer, CommandError> {
    let mut reports: Vec<Report> = Vec::new();
    for plan in plans {
        let both = u64::from(plan.run.forward) + u64::from(plan.run.reverse);
        let messages = plan.run.count.map(|n| n * u64::from(plan.run.connections) * both);
        let mut watch = Watch::new(messages, args.interval.map(|i| i.0));
        let measured = match one(plan, &mut watch) {
            Err(CommandError::Interrupted) if !reports.is_empty() => break,
            // Who reads documents gets one.
            Err(CommandError::Interrupted) if args.json => Measured::nothing(),
            other => other?,
        };
        let (name, link) = (fabric.name(), args.link.as_ref());
        let setting = Setting { fabric: name, link, rate: pace(args), latency: args.lat };
        reports.push(Report::new(plan, &setting, measured, watch.intervals));
        if stop.load(Ordering::Relaxed) || reports.iter().any(|r| r.failure().is_some()) {
            break;
        }
    }
    let text = if args.json { report::json(&reports, args.all) } else { report::table(&reports) };
    let failure = reports.iter().find_map(Report::failure);
    Ok(Answer { text, interrupted: stop.load(Ordering::Relaxed), failure })
}

/// The pace of all connections together: what is asked for, else the link's.
fn pace(args: &BenchArgs) -> Option<BitRate> {
    // Delay has to find the link's.
    let link = args.link.as_ref().filter(|_| args.congestion == Congestion::Fixed);
    args.rate.or_else(|| link?.rate)
}

/// What the arguments ask for, one plan a size.
fn plans(args: &BenchArgs) -> Result<Vec<Plan>, CommandError> {
    let usage = |line: String| Err(CommandError::Usage(line));
    schemes::find(&args.scheme)?;
    if args.bidirectional && args.reverse {
        return usage("-b and -R: give one of them".to_owned());
    }
    if let (true, Some(size)) = (args.all, args.size) {
        return usage(format!("-a and {}: give one of them", flag("size", size)));
    }
    if args.lat && args.inflight.is_some_and(|n| n > 1) {
        return usage(format!(
            "--lat and {}: latency is that of one message at a time",
            flag("inflight", args.inflight.unwrap_or(1))
        ));
    }
    if let (Some(count), Some(duration)) = (args.count, args.duration) {
        return usage(format!(
            "{} and {}: give one of them",
            flag("count", count),
            flag("duration", duration)
        ));
    }
    let mtu = args.mtu.map_or(MAX_MTU, |mtu| mtu.0);
    let most = ByteSize(u64::from(ImmLayout::L8_22_2.max_packets()) * mtu);
    let size = args.size.unwrap_or(SIZE);
    if !(1..=most.0).contains(&size.0) {
        return usage(format!(
            "{}: choose 1B to {most}, {} packets of {}",
            flag("size", size),
            ImmLayout::L8_22_2.max_packets(),
            ByteSize(mtu)
        ));
    }
    let connections = args.parallel;
    let time = match (args.count, args.duration) {
        (Some(_), _) => None,
        (None, Some(duration)) => Some(duration.0),
        (None, None) => Some(if args.all { DURATION_OF_EACH } else { DURATION }),
    };
    let sizes: Vec<u64> = match args.all {
        true => ALL_SIZES.map(|bits| 1 << bits).collect(),
        false => vec![size.0],
    };
    let run = |size| Run {
        version: VERSION,
        scheme: args.scheme.clone(),
        size,
        count: args.count,
        duration: time.map(|t| t.0),
        warmup: args.warmup,
        inflight: args.inflight.unwrap_or(1),
        connections: connections as u32,
        forward: !args.reverse,
        reverse: args.reverse || args.bidirectional,
        verify: !args.no_verify,
        seed: args.seed,
        chunk: args.chunk.0,
        rate: pace(args).map(|r| (r.bits_per_second() / connections).max(1)),
        congestion: args.congestion,
    };
    let channels = args.channels.min(MAX_CHANNELS.into()) as u8;
    let mtu = args.mtu.map_or(0, |mtu| mtu.0 as u32);
    Ok(sizes.into_iter().map(|size| Plan { run: run(size), channels, mtu }).collect())
}

/// One line of `sdr demo`.
pub struct Demonstration<'a> {
    pub scheme: &'a str,
    pub size: u64,
    pub link: &'a PathSpec,
    /// Messages at most, and time to send them in.
    pub most: u64,
    pub time: Nanos,
}

/// Runs it over UDP, one message at a time.
pub fn demonstrate(what: &Demonstration<'_>, stop: &AtomicBool) -> Result<Report, CommandError> {
    let rate = what.link.rate;
    let run = Run {
        version: VERSION,
        scheme: what.scheme.to_owned(),
        size: what.size,
        count: Some(what.most),
        duration: Some(what.time.0),
        warmup: 1,
        inflight: 1,
        connections: 1,
        forward: true,
        reverse: false,
        verify: true,
        seed: 1,
        chunk: 64 << 10,
        rate: rate.map(BitRate::bits_per_second),
        congestion: Congestion::Fixed,
    };
    let plan = Plan { run, channels: 4, mtu: 0 };
    // The bar shows the lines of the demo, not the messages of one.
    let mut watch = Watch::silent();
    let measured = over_udp(&plan, Some(what.link), stop, &mut watch)?;
    let setting = Setting { fabric: Fabric::Udp.name(), link: Some(what.link), rate, latency: false };
    Ok(Report::new(&plan, &setting, measured, Vec::new()))
}
