//! The configured rate, whatever the path says; without one, as fast as the fabric takes packets.

use super::{CongestionControl, Controller, Echo, Losses, Start, packet_ps};
use crate::types::Nanos;

/// For a path that is reserved: nothing is measured, nothing reacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed;

struct Rate {
    rate: Option<u64>,
    packet_ps: u64,
}

impl CongestionControl for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn start(&self, start: &Start) -> Box<dyn Controller> {
        Box::new(Rate { rate: start.rate, packet_ps: packet_ps(start.rate, start.payload) })
    }
}

impl Controller for Rate {
    fn echo(&mut self, _now: Nanos, _echo: &Echo) {}

    fn losses(&mut self, _now: Nanos, _losses: &Losses) {}

    fn resize(&mut self, payload: u32) {
        self.packet_ps = packet_ps(self.rate, payload);
    }

    fn pace(&self) -> u64 {
        self.packet_ps
    }

    fn window(&self) -> Option<u64> {
        None
    }

    fn spare_parity(&self) -> bool {
        true
    }
}
