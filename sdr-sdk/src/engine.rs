//! The second seam: what turns completions into bitmaps.
//!
//! An engine checks the generation of each completion against the slot, sets packet bits, and publishes a chunk's byte
//! when the last of its packets arrived. It does not know reliability. Invariant: after [`Event::Retired`] no worker
//! touches the bitmap of that [`SlotGen`] any more.
//!
//! [`Event::Retired`]: crate::fabric::Event::Retired

pub mod host;
pub mod table;

use crate::bitmap::{HostBitmap, Shape};
use crate::fabric::{CompletionModel, EventSink, Fabric, QueueNumber, QueueSpec};
use crate::types::{Channel, ChunkIndex, Generation, Nanos, PacketOffset, QueueSet, Seq, SlotGen};
use std::sync::Arc;

/// A place in the stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Message.
    pub seq: Seq,
    /// Packet of it.
    pub offset: PacketOffset,
}

/// How far a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Furthest packet seen of those whose home is this channel, (offset / packets a chunk) mod channels. First
    /// transmissions leave a channel in order; only a packet that was repaired twice, or that left elsewhere because
    /// the channel was dead, comes home later.
    pub home: Option<Mark>,
    /// Furthest packet seen of any kind.
    pub any: Mark,
}

/// Why an engine refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// It cannot consume what the fabric produces.
    #[error("the engine cannot consume this fabric's completions")]
    Unsupported,
    /// It has no room for another queue pair or bitmap.
    #[error("the engine has no room for {0}")]
    Full(&'static str),
    /// The caller broke a rule of the trait; nothing was changed.
    #[error("wrong use of the engine: {0}")]
    Misuse(&'static str),
}

/// What an engine counted on one queue pair since it was opened, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Completions seen, of any kind.
    pub seen: u64,
    /// Set a bit for the first time.
    pub fresh: u64,
    /// Packet was there already.
    pub duplicate: u64,
    /// Slot not armed, or armed for another generation.
    pub late: u64,
    /// Offset that is not one of the receive's: behind its data, or beyond its extra packets.
    pub out_of_range: u64,
}

/// What a poll of the engine came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Newest pass for which everything that was there for the engine when it was polled has been recorded.
    pub recorded: u64,
    /// When to poll again without outside input.
    pub wake_at: Option<Nanos>,
}

/// Turns completions into bitmaps.
///
/// # Safety
/// The context reads buffers on the word of this trait. A chunk byte is set only when a completion for each of its
/// packets was taken while the slot was armed for that [`SlotGen`]; after [`Event::Retired`] nothing of it changes.
///
/// [`Event::Retired`]: crate::fabric::Event::Retired
pub unsafe trait CompletionEngine: Send {
    /// Starts to consume the completions of `ch`; once a channel, before any `open`. A ring stays mapped until the engine
    /// is dropped.
    fn attach(&mut self, ch: Channel, m: &CompletionModel<'_>) -> Result<(), EngineError>;

    /// Prepares the slots of a queue pair; `queues` is how completion entries name its queues, `first` its first message.
    fn open(
        &mut self,
        q: QueueSet,
        spec: &QueueSpec,
        queues: &[QueueNumber],
        first: Seq,
    ) -> Result<(), EngineError>;

    /// Forgets a queue pair, after its fabric queues were closed. What workers may still touch is freed later.
    fn close(&mut self, q: QueueSet);

    /// Gives `at` a clear bitmap. The slot's previous use is retired.
    fn arm(&mut self, q: QueueSet, at: SlotGen, shape: Shape) -> Result<Arc<dyn HostBitmap>, EngineError>;

    /// Closes the slot; answered by [`Event::Retired`](crate::fabric::Event::Retired) after every worker's batch boundary.
    fn retire(&mut self, q: QueueSet, at: SlotGen);

    /// Makes progress: takes completions from `f` (or a ring), sets bits, reports retirements. `pass` grows with each call;
    /// an engine that works elsewhere says later that it has recorded all that was there at a pass.
    fn poll(&mut self, pass: u64, now: Nanos, f: &mut dyn Fabric, out: &mut dyn EventSink) -> Polled;

    /// Per-packet state of one chunk of an armed slot, bit i = packet i of the chunk. May cost a round trip to a device.
    fn packets(&self, q: QueueSet, at: SlotGen, c: ChunkIndex) -> u64;

    /// How far `ch` has come, once anything arrived on it.
    fn progress(&self, q: QueueSet, ch: Channel) -> Option<Progress>;

    /// Completions seen on the queues of one generation, also discarded ones, since the queue pair was opened.
    fn counted(&self, q: QueueSet, generation: Generation) -> u64;

    /// Counters of a queue pair.
    fn counters(&self, q: QueueSet) -> EngineCounters;
}
