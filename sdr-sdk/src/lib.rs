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
//! | [`reliability`] | schemes: what to send again, what to report |

pub mod bitmap;
pub mod engine;
pub mod fabric;
pub mod imm;
pub mod memory;
pub mod reliability;
mod sync;
pub mod types;

pub use imm::ImmLayout;
pub use types::{Channel, ChunkIndex, Generation, MessageId, Nanos, PacketOffset, QueueSet, Seq, SlotGen};
