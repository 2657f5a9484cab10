//! One end on this host: sockets, software NIC, context and driver.

use crate::CommandError;
use sdr_sdk::context::{Context, ContextConfig};
use sdr_sdk::driver::{Clock, Driver};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::soft::{Endpoint, Link, SoftFabric, UdpLink};
use std::net::{SocketAddr, ToSocketAddrs};

/// Where `sdr bench server` listens when it is not told.
pub const PORT: u16 = 18_515;

/// Most channels of an end.
pub const MAX_CHANNELS: u8 = 16;

/// A context with its driver, and what makes connections.
pub struct End {
    pub context: Context,
    pub endpoint: Endpoint,
    pub driver: Driver,
    /// Whether batches of packets go to the kernel as one.
    pub gso: bool,
}

impl End {
    /// One that is found at `listen`, over UDP.
    pub fn listen(listen: SocketAddr, clock: Clock) -> Result<Self, CommandError> {
        let link = UdpLink::listen(listen, MAX_CHANNELS);
        let link = link.map_err(|e| CommandError::Failed(format!("cannot listen on {listen}: {e}")))?;
        Self::udp(link, clock)
    }

    /// One that connects to `peer` over UDP, with a socket a channel.
    pub fn dial(peer: SocketAddr, channels: u8, clock: Clock) -> Result<Self, CommandError> {
        let link = UdpLink::dial(peer, channels);
        let link = link.map_err(|e| CommandError::Failed(format!("no sockets to reach {peer}: {e}")))?;
        Self::udp(link, clock)
    }

    fn udp(link: UdpLink, clock: Clock) -> Result<Self, CommandError> {
        let (gso, _) = link.describe();
        Ok(Self { gso, ..Self::over(link, clock)? })
    }

    /// One over any link.
    pub fn over(link: impl Link + 'static, clock: Clock) -> Result<Self, CommandError> {
        let engine = Box::new(HostEngine::new(link.channels()));
        let (fabric, endpoint) = SoftFabric::new(link);
        let context = Context::open(Box::new(fabric), engine, ContextConfig::default());
        let context = context.map_err(|e| CommandError::Failed(e.to_string()))?;
        let driver = Driver::new(context.clone(), clock);
        Ok(Self { context, endpoint, driver, gso: false })
    }
}

/// The address that `text` names: `host:port`, or a host alone at the usual port.
pub fn resolve(text: &str) -> Result<SocketAddr, CommandError> {
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    if let Ok(ip) = text.parse() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let failed = |why: String| CommandError::Failed(format!("address {text:?} cannot be resolved: {why}"));
    let port = text.rsplit_once(':').map(|(_, port)| port);
    if text.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        let line = format!("address {text:?} is not understood: write host:port, such as 127.0.0.1:{PORT}");
        return Err(CommandError::Usage(line));
    }
    let found = match port {
        Some(_) => text.to_socket_addrs(),
        None => (text, PORT).to_socket_addrs(),
    };
    let mut found = found.map_err(|e| failed(e.to_string()))?;
    found.next().ok_or_else(|| failed("no address".to_owned()))
}
