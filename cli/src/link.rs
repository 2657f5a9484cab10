//! An emulated link on a thread of its own, between two UDP programs or two ends of this one.

use crate::CommandError;
use netem::relay::{DirectionStats, Monitor, Relay, RelayStats};
use netem::spec::PathSpec;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

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

/// What the emulated wire and queue of one direction did away with.
pub fn lost(d: &DirectionStats) -> u64 {
    d.lost + d.queue_drops
}
