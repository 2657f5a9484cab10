//! A NIC in software: writes with immediate as UDP datagrams.
//!
//! | module | what it holds |
//! |---|---|
//! | [`wire`] | the 36-byte header and its checksum |
//! | [`socket`] | runs of datagrams in and out of the kernel |

pub mod socket;
pub mod wire;
