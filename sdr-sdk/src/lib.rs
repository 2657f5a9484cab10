//! The transport: RDMA writes that show what has arrived, and software that chooses the reliability.
//!
//! | module | what it holds |
//! |---|---|
//! | [`types`] | newtypes: `Nanos`, `Seq`, `MessageId`, `Generation`, `PacketOffset`, `ChunkIndex`, ... |
//! | [`imm`] | the 32-bit immediate |
//! | [`memory`] | regions, buffers, raw slices |
//! | [`bitmap`] | packet bitmap to chunk bitmap, lock-free |
//! | [`fabric`] | seam one: carries packets, owns keys |
//! | [`engine`] | seam two: turns completions into bitmaps; the host engine |
//! | [`control`] | the control datagram of a queue pair |
//! | [`context`], [`qp`] | the SDK calls: a message shows what has arrived of it |
//! | [`slots`] | receive slots: seq, generations, drain, retire |
//! | [`rtt`], [`repeat`] | round-trip time, repetition of what may be lost |
//! | [`connection`] | reliable messages over a queue pair |

pub mod bitmap;
pub mod connection;
pub mod context;
pub mod control;
pub mod engine;
pub mod fabric;
pub mod imm;
pub mod memory;
pub mod qp;
pub mod repeat;
pub mod rtt;
pub mod slots;
mod sync;
pub mod types;

pub use imm::ImmLayout;
pub use types::{Channel, ChunkIndex, Generation, MessageId, Nanos, PacketOffset, QueueSet, Seq, SlotGen};
pub use context::{Context, ContextConfig, QpConfig};
