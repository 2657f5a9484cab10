//! The frames of a handshake, as they are written and read.

#![forbid(unsafe_code)]

use super::HELLO;
use crate::fabric::soft::link::Reply;
use crate::fabric::soft::nic::template;
use crate::fabric::soft::wire::{HEADER, PacketType};
use crate::types::{Channel, Nanos};
use std::net::SocketAddr;

/// Says when it leaves: the answer is the same bytes.
pub(super) fn probe(to: SocketAddr, nonce: u64, now: Nanos, size: usize) -> Reply {
    let mut bytes = vec![0; size];
    if let Some(at) = bytes.first_chunk_mut() {
        *at = now.0.to_be_bytes();
    }
    Reply::new(Channel(0), to, &template(PacketType::Probe, 0, nonce, 0), bytes)
}

pub(super) fn sent_at(bytes: &[u8; 8]) -> Nanos {
    Nanos(u64::from_be_bytes(*bytes))
}

pub(super) fn accept((to, nonce): (SocketAddr, u64), accepted: bool, payload: &[u8]) -> Reply {
    let mut bytes = vec![u8::from(accepted)];
    bytes.extend_from_slice(payload);
    Reply::new(Channel(0), to, &template(PacketType::Accept, 0, nonce, 0), bytes)
}

pub(super) fn hello(to: SocketAddr, nonce: u64, cookie: u64, info: &[u8]) -> Reply {
    let mut bytes = Vec::with_capacity(HELLO - HEADER);
    bytes.extend(nonce.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((info.len() as u16).to_be_bytes());
    bytes.extend_from_slice(info);
    bytes.resize(bytes.len().max(HELLO - HEADER), 0);
    Reply::new(Channel(0), to, &template(PacketType::Hello, 0, nonce, 0), bytes)
}

/// Nonce, cookie and info of a HELLO that is padded as it must be.
pub(super) fn read_hello(payload: &[u8]) -> Option<(u64, u64, &[u8])> {
    if payload.len() != HELLO - HEADER {
        return None;
    }
    let (nonce, rest) = payload.split_first_chunk::<8>()?;
    let (cookie, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let info = rest.get(..usize::from(u16::from_be_bytes(*len)))?;
    Some((u64::from_be_bytes(*nonce), u64::from_be_bytes(*cookie), info))
}
