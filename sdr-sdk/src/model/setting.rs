//! What a completion time depends on beside the scheme: the message, the path and its losses.

use crate::types::Nanos;

/// Most packets of a message that are modelled: 16 TiB in packets of 4 KiB.
pub const MAX_PACKETS: u64 = 1 << 32;

/// Largest loss that is modelled. Above it a packet needs thousands of transmissions, and sums over their number grow
/// without use.
pub const MAX_LOSS: f64 = 0.99;

/// Longest RTT + bytes / rate that is modelled, ns: 11 days. Beyond it a packet time is lost in the rounding of f64.
const MAX_BOUND_NS: f64 = 1e15;

/// A message alone on a path of constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Length of the message; its last packet may be short.
    pub bytes: u64,
    /// Payload of a packet, bytes. Headers take no time.
    pub packet_bytes: u64,
    /// Rate of the path, bit/s.
    pub rate_bps: u64,
    /// Round-trip time of the path.
    pub rtt: Nanos,
    /// Average loss of packets, 0 to [`MAX_LOSS`]. Acknowledgements and reports are never lost.
    pub loss: f64,
    /// Mean burst of losses in packets (Gilbert chain); 1 means independent losses.
    pub burst: f64,
}

/// Why a setting is not modelled.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// Zero, or too many packets.
    #[error(
        "a message of {bytes} bytes in packets of {packet_bytes}: choose at least one byte, and at most {MAX_PACKETS} packets"
    )]
    Size {
        /// As given.
        bytes: u64,
        /// As given.
        packet_bytes: u64,
    },
    /// Packets without payload.
    #[error("packets of 0 bytes: choose at least 1")]
    PacketBytes,
    /// A path that carries nothing.
    #[error("a rate of 0 bit/s: choose a rate above 0")]
    Rate,
    /// No probability.
    #[error("a loss of {0}: choose one in [0, 1)")]
    Loss(f64),
    /// A probability that the model does not cover.
    #[error("a loss of {0}: the model covers 0 to {MAX_LOSS}")]
    LossTooHigh(f64),
    /// No mean of burst lengths, or none that fits the loss.
    #[error(
        "a mean burst of {burst} packets at a loss of {loss}: choose 1 or more, and a loss of at most burst / (burst + 1)"
    )]
    Burst {
        /// As given.
        burst: f64,
        /// As given.
        loss: f64,
    },
    /// Longer than times are kept.
    #[error("RTT + bytes / rate is {seconds} s: choose a setting below 1000000 s")]
    Long {
        /// What it is.
        seconds: f64,
    },
}

impl Setting {
    /// Whether it can be modelled. The other calls take a setting that can.
    pub fn check(&self) -> Result<(), SettingError> {
        let Self { bytes, packet_bytes, loss, burst, .. } = *self;
        if packet_bytes == 0 {
            return Err(SettingError::PacketBytes);
        }
        if bytes == 0 || bytes.div_ceil(packet_bytes) > MAX_PACKETS {
            return Err(SettingError::Size { bytes, packet_bytes });
        }
        if self.rate_bps == 0 {
            return Err(SettingError::Rate);
        }
        if !(0.0..1.0).contains(&loss) {
            return Err(SettingError::Loss(loss));
        }
        if loss > MAX_LOSS {
            return Err(SettingError::LossTooHigh(loss));
        }
        // The chain leaves the good state with probability p / ((1 - p) B), which is at most one.
        if !(burst >= 1.0 && burst.is_finite()) || (burst > 1.0 && loss > burst / (burst + 1.0)) {
            return Err(SettingError::Burst { burst, loss });
        }
        let bound = self.lower_bound();
        if bound > MAX_BOUND_NS {
            return Err(SettingError::Long { seconds: bound / 1e9 });
        }
        Ok(())
    }

    /// M: packets of the message.
    pub fn packets(&self) -> u64 {
        self.bytes.div_ceil(self.packet_bytes)
    }

    /// T_inj: a full packet on the wire, ns; of a message shorter than a packet, the message.
    pub fn packet_time(&self) -> f64 {
        self.time_of(self.packet_bytes.min(self.bytes) as f64)
    }

    /// The message on the wire without losses, ns.
    pub fn injection(&self) -> f64 {
        self.time_of(self.bytes as f64)
    }

    /// Round trip, ns.
    pub fn rtt_ns(&self) -> f64 {
        self.rtt.0 as f64
    }

    /// RTT + bytes / rate, ns: no scheme is faster.
    pub fn lower_bound(&self) -> f64 {
        self.rtt_ns() + self.injection()
    }

    fn time_of(&self, bytes: f64) -> f64 {
        bytes * 8e9 / self.rate_bps as f64
    }
}
