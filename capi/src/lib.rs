//! The C interface of the transport: `libsdr`, declared in `include/sdr.h`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`status`] | results, the text of the last one, the boundary that no panic crosses |
//! | [`handle`] | pointers from C: null checks, boxes that become handles and back |
//! | [`context`] | a software NIC over UDP and its progress |
//! | [`memory`] | registered memory and ranges of it |
//! | [`qp`] | queue pairs: created and exchanged by hand, or dialled and accepted |
//! | [`send`], [`recv`] | the SDK calls on a queue pair |
//! | [`message`] | reliable messages |
//!
//! `cargo xtask gen-header` writes the header from this source; what stands before an item here stands before it there.
//! Nothing is decided here: a call checks its pointers, calls `sdr-sdk`, and translates the answer.
//!
//! How memory that C owns stays sound. The crate never makes a reference to it and hands no buffer of it to anyone: a
//! registration keeps one frozen buffer as its root, a post takes a counted range of that root, and `sdr_mr_dereg`
//! succeeds only when the root is the last. So a program that has its memory back knows that nothing of this library
//! points there; what it must not do meanwhile is the contract of each post.
//!
//! Handles hold a count of what they belong to. A parent is not destroyed before its children: it answers `SDR_RETRY`.

#![expect(non_camel_case_types, reason = "types are named as C sees them")]

pub mod context;
pub mod handle;
pub mod memory;
pub mod message;
pub mod qp;
pub mod recv;
pub mod send;
pub mod status;
