//! The transport: RDMA writes that show what has arrived, and software that chooses the reliability.
//!
//! | module | what it holds |
//! |---|---|
//! | [`connection`] | reliable messages over a queue pair: what most users hold |
//! | [`reliability`] | the scheme traits, the receiver's view of a message, Selective Repeat |
//! | [`events`] | one queue of what has finished, with a descriptor |
//! | [`context`], [`qp`] | the SDK calls: a message shows what has arrived of it |
//! | [`slots`] | receive slots: seq, generations, drain, retire |
//! | [`control`] | the control datagram of a queue pair |
//! | [`rtt`], [`repeat`] | round-trip time, repetition of what may be lost |
//! | [`driver`] | real time: the clock and the threads |
//! | [`fabric`] | seam one: carries packets, owns keys; the software NIC over UDP |
//! | [`engine`] | seam two: turns completions into bitmaps; the host engine |
//! | [`ec`] | erasure codes: parity from data, missing data from parity |
//! | [`bitmap`] | packet bitmap to chunk bitmap, lock-free |
//! | [`memory`] | regions, buffers, raw slices |
//! | [`imm`] | the 32-bit immediate |
//! | [`model`] | completion times from formulas, and how many parity rows are enough |
//! | [`types`] | newtypes: `Nanos`, `Seq`, `MessageId`, `Generation`, `PacketOffset`, `ChunkIndex`, ... |

pub mod bitmap;
pub mod connection;
pub mod context;
pub mod control;
pub mod driver;
pub mod ec;
pub mod engine;
pub mod events;
pub mod fabric;
pub mod imm;
pub mod memory;
pub mod model;
pub mod qp;
pub mod reliability;
pub mod repeat;
pub mod rtt;
pub mod slots;
mod sync;
pub mod types;
mod wake;

pub use connection::{Connection, ConnectionConfig, ConnectionDriver};
pub use context::{Context, ContextConfig, QpConfig};
pub use imm::ImmLayout;
pub use memory::{RecvBuf, SendBuf};
pub use types::{Channel, ChunkIndex, Generation, MessageId, Nanos, PacketOffset, QueueSet, Seq, SlotGen};
