//! An emulated link on a thread of its own, between two UDP programs or two ends of this one.

use crate::CommandError;
use netem::relay::{DirectionStats, Monitor, Relay, RelayStats};
use netem::spec::PathSpec;
use netem::units::BitRate;
use sdr_sdk::fabric::soft::CONNECT_DEADLINE;
use sdr_sdk::types::Nanos;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Payload bytes that a connection attempt sends each time it looks for the payload size, and datagrams that follow.
const PROBES: u64 = 8_192 + 4_096 + 1_408 + 1_152 + 4 * 36;
const LARGEST_PROBE: u64 = 8_192 + 36;
const HELLO: u64 = 1_200;

/// How often it looks while nothing has come back.
const INTERVAL: Nanos = Nanos::from_millis(150);

/// About how long it takes to connect over an empty link: probes there and back, then two HELLOs behind what is queued.
fn handshake_time(rtt: Nanos, rate: Option<BitRate>) -> Nanos {
    let on_wire = |bytes: u64| match rate {
        Some(rate) => Nanos((u128::from(bytes) * 8_000_000_000 / u128::from(rate.bits_per_second())) as u64),
        None => Nanos::ZERO,
    };
    let first = rtt + on_wire(2 * LARGEST_PROBE);
    let rounds = 1 + first.0 / INTERVAL.0;
    first.max(on_wire(rounds.saturating_mul(PROBES))) + rtt.mul_div(2, 1) + on_wire(4 * HELLO)
}

/// Refuses a link over which no connection can be made within its deadline.
pub fn carries_handshake(path: &PathSpec) -> Result<(), CommandError> {
    let needed = handshake_time(path.rtt(), path.rate);
    if needed <= CONNECT_DEADLINE {
        return Ok(());
    }
    let why = format!(
        "--link {path}: connecting over it takes about {needed}, and is given up after {CONNECT_DEADLINE}"
    );
    let most = Nanos(CONNECT_DEADLINE.0 / 3);
    Err(CommandError::Usage(if handshake_time(path.rtt(), None) > CONNECT_DEADLINE {
        format!("{why}: choose an rtt below {most}")
    } else {
        // In steps of a tenth: the time is no simple function of the rate.
        let least =
            std::iter::successors(path.rate, |r| BitRate::new(r.bits_per_second() / 10 * 11 + 10).ok())
                .find(|r| handshake_time(path.rtt(), Some(*r)) <= CONNECT_DEADLINE);
        let whole = |r: BitRate| BitRate::new(r.bits_per_second().next_multiple_of(1_000)).unwrap_or(r);
        let least = least.map(|r| format!(" of {} or more", whole(r))).unwrap_or_default();
        format!("{why}: choose a rate{least}")
    }))
}

/// A relay that runs until it is dropped.
pub struct LinkThread {
    local: SocketAddr,
    monitor: Monitor,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LinkThread {
    /// Relays from `listen` to `server` through `path`.
    pub fn start(listen: SocketAddr, server: SocketAddr, path: &PathSpec) -> Result<Self, CommandError> {
        let failed = |e: &dyn std::fmt::Display| CommandError::Failed(e.to_string());
        let mut relay = Relay::bind(listen, server, path.clone()).map_err(|e| failed(&e))?;
        let (local, monitor) = (relay.local_addr(), relay.monitor());
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let run = move || {
            if let Err(e) = relay.run(&seen) {
                eprintln!("sdr: {e}");
            }
        };
        let thread = std::thread::Builder::new().name("link".to_owned()).spawn(run);
        let thread = Some(thread.map_err(|e| failed(&e))?);
        Ok(Self { local, monitor, stop, thread })
    }

    /// Where clients send to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Its counters.
    pub fn stats(&self) -> RelayStats {
        self.monitor.stats()
    }

    /// Whether it still relays.
    pub fn running(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

impl Drop for LinkThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// A path as it is given on the command line: `key=value,...`, or the name of a TOML file with the same keys.
pub fn parse(text: &str) -> Result<PathSpec, String> {
    if !text.ends_with(".toml") {
        return text.parse().map_err(|e: netem::SpecError| e.to_string());
    }
    let file = std::fs::read_to_string(text).map_err(|e| format!("{text}: {e}"))?;
    let table: toml::Table = file.parse().map_err(|e: toml::de::Error| format!("{text}: {}", e.message()))?;
    let pairs = table.iter().map(|(key, value)| match value {
        toml::Value::String(s) => Ok(format!("{key}={s}")),
        toml::Value::Integer(n) => Ok(format!("{key}={n}")),
        toml::Value::Float(x) => Ok(format!("{key}={x}")),
        other => {
            Err(format!("{text}: {key} is a {}; give a number or a text such as \"25ms\"", other.type_str()))
        }
    });
    let line = pairs.collect::<Result<Vec<_>, _>>()?.join(",");
    line.parse().map_err(|e: netem::SpecError| format!("{text}: {e}"))
}

/// What the emulated wire and queue of one direction did away with.
pub fn lost(d: &DirectionStats) -> u64 {
    d.lost + d.queue_drops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_the_same_as_a_line() {
        let path = std::env::temp_dir().join(format!("sdr-link-{}.toml", std::process::id()));
        let name = path.to_str().unwrap();
        let try_file = |text: &str| {
            std::fs::write(&path, text).unwrap();
            parse(name)
        };
        let same = try_file("rtt = \"25ms\"\nrate = \"2Gbit\"\nloss = 1e-3\nburst = 4\nseed = 7\n");
        assert_eq!(same, parse("rtt=25ms,rate=2Gbit,loss=1e-3,burst=4,seed=7"));
        for (text, says) in [("rtt = [1]", "rtt is a array"), ("speed = 1", "speed"), ("rtt =", "")] {
            let e = try_file(text).unwrap_err();
            assert!(e.contains(says) && e.contains(name), "{text}: {e}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(parse(name).unwrap_err().contains(name), "no such file");
    }
}
