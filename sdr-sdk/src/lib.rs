//! The transport: RDMA writes that show what has arrived, and software that chooses the reliability.
//!
//! | module | what it holds |
//! |---|---|
//! | [`types`] | newtypes: `Nanos`, `Seq`, `MessageId`, `Generation`, `PacketOffset`, `ChunkIndex`, ... |
//! | [`imm`] | the 32-bit immediate |

pub mod imm;
pub mod types;

pub use imm::ImmLayout;
pub use types::{Channel, ChunkIndex, Generation, MessageId, Nanos, PacketOffset, QueueSet, Seq, SlotGen};
