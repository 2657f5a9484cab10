//! Queue pairs: the SDK calls.
//!
//! | file | what it holds |
//! |---|---|
//! | `qp.rs` | `UnconnectedQp`, errors, what both halves share |
//! | `qp/send.rs` | `SendQp`, `Stream`, `SendHandle` |
//! | `qp/recv.rs` | `RecvQp`, `RecvHandle`, `Retire` |
//! | `qp/info.rs` | the blob exchanged before connecting |
//! | `qp/core.rs`, `qp/send_side.rs`, `qp/link.rs`, `qp/cts.rs` | the state behind them, under the context's lock |
//!
//! A queue pair delivers nothing by itself: it shows what has arrived. Reliability is the layer above, which has a small
//! unreliable datagram service for its acknowledgements here. Dropping or forgetting a handle is always sound: the
//! context holds the memory. A forgotten handle keeps the queue pair and its context; a forgotten [`RecvHandle`] also
//! its slot, so that the receive S later is `Busy` for good, closed or not, and a forgotten [`Stream`] its generation,
//! with the same effect S * G later.

pub(crate) mod core;
mod cts;
mod info;
pub(crate) mod link;
mod recv;
mod send;
pub(crate) mod send_side;

pub use self::core::QpCounters;
pub use info::{ConnectError, InfoError, QpInfo};
pub use link::Closed;
pub use recv::{RecvHandle, RecvOptions, RecvQp, Retire};
pub use send::{Path, SendHandle, SendQp, SendState, Stream, StreamError};
pub use send_side::NextGrant;

use crate::context::{Context, QpId};
use crate::engine::EngineCounters;
use crate::memory::{RecvBuf, SendBuf};
use crate::slots::ArmError;
use crate::types::Nanos;
use crate::wake::wake_all;
use std::sync::Arc;

/// Why a post was refused. Nothing was consumed; the buffer is inside.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError<B> {
    /// No slot, no grant or no queue space right now; try again after a poll.
    #[error("no resources right now; poll and try again")]
    Busy(B),
    /// The message is longer than the receive that it would go to.
    #[error("message of {len} bytes, the peer's receive has {posted}")]
    TooLong {
        /// The refused buffer.
        buf: B,
        /// Bytes of the message.
        len: u64,
        /// Bytes of the receive.
        posted: u64,
    },
    /// Longer than a message can be with this layout, payload size and number of extra packets.
    #[error("{len} bytes, a message has at most {max}")]
    TooLarge {
        /// The refused buffer.
        buf: B,
        /// Bytes asked for.
        len: u64,
        /// Largest message in bytes.
        max: u64,
    },
    /// A user immediate travels in `need` packets with different offsets.
    #[error("a user immediate needs {need} packets, the message has {have}")]
    ImmediateNeedsPackets {
        /// The refused buffer.
        buf: B,
        /// Packets that the message has.
        have: u32,
        /// Packets needed.
        need: u32,
    },
    /// Packets a chunk outside 1 to 64.
    #[error("{asked} packets a chunk; give 1 to 64")]
    Chunk {
        /// The refused buffer.
        buf: B,
        /// The value.
        asked: u32,
    },
    /// Payload bytes a packet outside 1 to those of the queue pair.
    #[error("{asked} payload bytes a packet; give 1 to {max}")]
    Payload {
        /// The refused buffer.
        buf: B,
        /// The value.
        asked: u32,
        /// Those of the queue pair.
        max: u32,
    },
    /// The extra buffer is not whole packets.
    #[error("{len} bytes for extra packets; give a multiple of the {payload} of a packet")]
    Extra {
        /// The refused buffer.
        buf: B,
        /// Bytes of the extra buffer.
        len: u64,
        /// Bytes of a packet.
        payload: u32,
    },
    /// The buffer is memory of another context.
    #[error("the buffer was registered with another context")]
    Foreign(B),
    /// Fabric or engine refused to arm the slot.
    #[error("arming the slot failed: {1}")]
    Arm(B, ArmError),
    /// The queue pair no longer works.
    #[error("the queue pair is closed: {1}")]
    Closed(B, Closed),
}

impl<B> PostError<B> {
    /// The buffer that was refused.
    pub fn into_buf(self) -> B {
        match self {
            Self::Busy(b) | Self::Foreign(b) | Self::Arm(b, _) | Self::Closed(b, _) => b,
            Self::TooLong { buf, .. }
            | Self::TooLarge { buf, .. }
            | Self::ImmediateNeedsPackets { buf, .. }
            | Self::Chunk { buf, .. }
            | Self::Payload { buf, .. }
            | Self::Extra { buf, .. } => buf,
        }
    }

    /// The same refusal of another form of the buffer.
    pub(crate) fn map<C>(self, f: impl FnOnce(B) -> C) -> PostError<C> {
        match self {
            Self::Busy(b) => PostError::Busy(f(b)),
            Self::Foreign(b) => PostError::Foreign(f(b)),
            Self::TooLong { buf, len, posted } => PostError::TooLong { buf: f(buf), len, posted },
            Self::TooLarge { buf, len, max } => PostError::TooLarge { buf: f(buf), len, max },
            Self::ImmediateNeedsPackets { buf, have, need } => {
                PostError::ImmediateNeedsPackets { buf: f(buf), have, need }
            }
            Self::Chunk { buf, asked } => PostError::Chunk { buf: f(buf), asked },
            Self::Payload { buf, asked, max } => PostError::Payload { buf: f(buf), asked, max },
            Self::Extra { buf, len, payload } => PostError::Extra { buf: f(buf), len, payload },
            Self::Arm(b, e) => PostError::Arm(f(b), e),
            Self::Closed(b, why) => PostError::Closed(f(b), why),
        }
    }
}

/// Destroys the queue pair when the last half or handle is gone.
pub(crate) struct Guard {
    pub(crate) ctx: Context,
    pub(crate) id: QpId,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.ctx.lock().destroy(self.id);
    }
}

/// What both halves can be asked.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Guard>);

impl Shared {
    /// Runs `f` on the queue pair, which exists as long as the guard does.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut self::core::QpCore) -> R) -> R {
        let mut core = self.0.ctx.lock();
        match core.qp(self.0.id) {
            Some(qp) => f(qp),
            None => unreachable!("the guard keeps the queue pair"),
        }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.0.ctx
    }

    pub(crate) fn id(&self) -> QpId {
        self.0.id
    }
}

macro_rules! both_halves {
    ($t:ty) => {
        impl $t {
            /// Why the queue pair no longer works, if so.
            pub fn closed(&self) -> Option<Closed> {
                self.shared.with(|qp| qp.link.closed())
            }

            /// Closes the queue pair for both sides; posted receives stay armed until they are completed.
            pub fn close(&self) {
                self.shared.with(|qp| qp.link.close(Closed::Here));
            }

            /// Registers memory for the layer above.
            pub(crate) fn register(&self, len: usize) -> Option<SendBuf> {
                self.shared.context().register(len).ok().map(RecvBuf::freeze)
            }

            /// Smoothed round-trip time, from the control path.
            pub fn rtt(&self) -> Nanos {
                self.shared.with(|qp| qp.link.rtt.srtt())
            }

            /// Smallest recent round-trip time.
            pub fn min_rtt(&self) -> Nanos {
                self.shared.with(|qp| qp.link.rtt.min_rtt())
            }

            /// Round-trip times measured so far.
            pub fn rtt_samples(&self) -> u64 {
                self.shared.with(|qp| qp.link.rtt.samples())
            }

            /// Payload bytes of a full packet, where a receive does not settle for less.
            pub fn payload(&self) -> u32 {
                self.shared.with(|qp| qp.spec.payload)
            }

            /// Channels it sprays over.
            pub fn channels(&self) -> u8 {
                self.shared.with(|qp| qp.spec.channels)
            }

            /// Largest message in bytes.
            pub fn max_message(&self) -> u64 {
                self.shared.with(|qp| qp.spec.layout.max_packets() as u64 * qp.spec.payload as u64)
            }

            /// Whether messages carry a user immediate; where not, one given to a send goes nowhere.
            pub fn user_immediate(&self) -> bool {
                self.shared.with(|qp| qp.spec.user_immediate)
            }

            /// What the queue pair counted.
            pub fn counters(&self) -> QpCounters {
                self.shared.with(|qp| qp.counters)
            }

            /// What the engine counted on this queue pair.
            pub fn engine_counters(&self) -> EngineCounters {
                self.shared.context().engine_counters(self.shared.id())
            }

            /// Says that the layer above waits for the peer although nothing is posted: keep-alives run, silence is
            /// an error.
            pub fn expect_peer(&self, expecting: bool) {
                self.shared.with(|qp| qp.expecting = expecting);
            }

            /// Tells the peer the cumulative facts again, at most every RTT / 16; for when it shows that it lacks them.
            pub fn repeat_facts(&self) {
                self.shared.with(|qp| qp.link.owe_again());
            }

            /// Posts what waits and sends what is due on this queue pair only. Returns when to come again.
            pub fn flush(&self, now: Nanos) -> Option<Nanos> {
                self.shared.flush(now)
            }
        }
    };
}
both_halves!(SendQp);
both_halves!(RecvQp);

impl Shared {
    fn flush(&self, now: Nanos) -> Option<Nanos> {
        let mut wakers = Vec::new();
        let wake_at = {
            let mut core = self.0.ctx.lock();
            let (qp, fabric, _) = core.parts(self.0.id)?;
            qp.flush(now, fabric, &mut wakers);
            [qp.wake_at(now), qp.fabric_wake_at(fabric)].into_iter().flatten().min()
        };
        wake_all(wakers);
        wake_at
    }
}

/// A queue pair before it is connected.
pub struct UnconnectedQp {
    shared: Shared,
    info: QpInfo,
}

impl UnconnectedQp {
    pub(crate) fn new(ctx: Context, id: QpId, info: QpInfo) -> Self {
        Self { shared: Shared(Arc::new(Guard { ctx, id })), info }
    }

    /// What the peer needs to connect.
    pub fn info(&self) -> &QpInfo {
        &self.info
    }

    /// Connects to the peer whose info this is. On error the queue pair is gone.
    pub fn connect(self, peer: &QpInfo) -> Result<(SendQp, RecvQp), ConnectError> {
        self.info.check(peer)?;
        {
            let mut core = self.shared.context().lock();
            let Some((qp, fabric, _)) = core.parts(self.shared.id()) else {
                unreachable!("the guard keeps the queue pair")
            };
            fabric.connect(qp.q, &peer.address)?;
            qp.connected = true;
        }
        Ok((SendQp { shared: self.shared.clone() }, RecvQp { shared: self.shared }))
    }
}
