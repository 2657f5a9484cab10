//! The software NIC under attack, on bad paths and between ends that come and go: in virtual time over a link in memory, and
//! in real time over sockets where the system plays a part.
//!
//! | module | what happens |
//! |---|---|
//! | `hostile` | garbage, replays and forgeries at 100 times the data rate |
//! | `address` | peers that move, and those who claim that they did |
//! | `channels` | one of four channels dark from the first round trip, over memory and over sockets |
//! | `path` | channels that are late or dead, damage |
//! | `mtu` | paths that carry less than before |
//! | `ends` | ends that start again, disappear, refuse |
//! | `sockets` | the same where sockets matter |

#![cfg(target_os = "linux")]

#[path = "soft/address.rs"]
mod address;
#[path = "soft/channels.rs"]
mod channels;
#[path = "soft/ends.rs"]
mod ends;
#[path = "soft/hostile.rs"]
mod hostile;
#[path = "soft/mtu.rs"]
mod mtu;
#[path = "soft/path.rs"]
mod path;
#[path = "soft/sockets.rs"]
mod sockets;
