//! What two queue pairs tell each other before they connect: an opaque, versioned blob for any out-of-band exchange.

use crate::fabric::QueueSpec;
use crate::imm::ImmLayout;
use crate::types::Seq;

const VERSION: u8 = 1;
const FIXED: usize = 1 + 1 + 1 + 1 + 4 + 4 + 4 + 8 + 8 + 2;

/// Blob that one side makes and the other connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpInfo {
    pub(crate) spec: QueueSpec,
    /// First message that this side sends.
    pub(crate) send_first: Seq,
    /// First message that this side receives.
    pub(crate) recv_first: Seq,
    pub(crate) address: Vec<u8>,
}

/// Why bytes are not a [`QpInfo`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InfoError {
    /// Too few bytes, or a length that does not fit.
    #[error("queue pair info has {have} bytes, {need} are needed")]
    Length {
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Made by another version of this library.
    #[error("queue pair info has version {theirs}, this side speaks {ours}")]
    Version {
        /// Ours.
        ours: u8,
        /// Theirs.
        theirs: u8,
    },
    /// A field holds an impossible value.
    #[error("queue pair info: {field} = {value} is not possible")]
    Field {
        /// Which.
        field: &'static str,
        /// What it held.
        value: u64,
    },
}

/// Why two queue pairs cannot talk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting differs; give both sides the same.
    #[error("{what} is {ours} here and {theirs} at the peer; both sides need the same")]
    Mismatch {
        /// Which setting.
        what: &'static str,
        /// Ours.
        ours: u64,
        /// Theirs.
        theirs: u64,
    },
    /// The fabric refused the peer's address.
    #[error(transparent)]
    Fabric(#[from] crate::fabric::FabricError),
}

impl QpInfo {
    /// First message number of the direction that its side sends, and of the one that it receives.
    pub fn first(&self) -> (Seq, Seq) {
        (self.send_first, self.recv_first)
    }

    /// The blob.
    pub fn to_bytes(&self) -> Vec<u8> {
        let s = &self.spec;
        let mut b = Vec::with_capacity(FIXED + self.address.len());
        b.extend([VERSION, (s.layout == ImmLayout::L8_22_2) as u8, s.channels, s.user_immediate as u8]);
        b.extend(s.slots.to_be_bytes());
        b.extend(s.generations.to_be_bytes());
        b.extend(s.payload.to_be_bytes());
        b.extend(self.send_first.0.to_be_bytes());
        b.extend(self.recv_first.0.to_be_bytes());
        b.extend((self.address.len() as u16).to_be_bytes());
        b.extend(&self.address);
        b
    }

    /// Compares what both sides must agree on.
    pub(crate) fn check(&self, peer: &QpInfo) -> Result<(), ConnectError> {
        let (a, b) = (&self.spec, &peer.spec);
        let pairs = [
            (
                "immediate layout (packet offset bits)",
                a.layout.offset_bits() as u64,
                b.layout.offset_bits() as u64,
            ),
            ("number of channels", a.channels as u64, b.channels as u64),
            ("number of slots", a.slots as u64, b.slots as u64),
            ("number of generations", a.generations as u64, b.generations as u64),
            ("payload bytes a packet", a.payload as u64, b.payload as u64),
            ("user immediate", a.user_immediate as u64, b.user_immediate as u64),
            ("first message sent here, received there", self.send_first.0, peer.recv_first.0),
            ("first message received here, sent there", self.recv_first.0, peer.send_first.0),
        ];
        match pairs.into_iter().find(|(_, ours, theirs)| ours != theirs) {
            Some((what, ours, theirs)) => Err(ConnectError::Mismatch { what, ours, theirs }),
            None => Ok(()),
        }
    }
}

impl TryFrom<&[u8]> for QpInfo {
    type Error = InfoError;

    fn try_from(b: &[u8]) -> Result<Self, InfoError> {
        let short = |need| InfoError::Length { have: b.len(), need };
        match b.first() {
            None => return Err(short(FIXED)),
            Some(&v) if v != VERSION => return Err(InfoError::Version { ours: VERSION, theirs: v }),
            Some(_) if b.len() < FIXED => return Err(short(FIXED)),
            Some(_) => {}
        }
        let u32_at = |i: usize| b[i..i + 4].iter().fold(0u32, |a, &x| a << 8 | x as u32);
        let u64_at = |i: usize| b[i..i + 8].iter().fold(0u64, |a, &x| a << 8 | x as u64);
        let flag = |i: usize, field| match b[i] {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(InfoError::Field { field, value: v as u64 }),
        };
        let layout = if flag(1, "layout")? { ImmLayout::L8_22_2 } else { ImmLayout::L10_18_4 };
        let (slots, generations, payload) = (u32_at(4), u32_at(8), u32_at(12));
        let field = |field, value: u32| Err(InfoError::Field { field, value: value as u64 });
        if !slots.is_power_of_two() || slots > layout.max_slots() {
            return field("slots", slots);
        }
        if !generations.is_power_of_two() || generations > 1 << 16 {
            return field("generations", generations);
        }
        if payload == 0 {
            return field("payload", payload);
        }
        if b[2] == 0 {
            return field("channels", 0);
        }
        let len = (b[FIXED - 2] as usize) << 8 | b[FIXED - 1] as usize;
        if b.len() != FIXED + len {
            return Err(short(FIXED + len));
        }
        let user_immediate = flag(3, "user immediate")?;
        let spec = QueueSpec { layout, channels: b[2], slots, generations, payload, user_immediate };
        Ok(Self {
            spec,
            send_first: Seq(u64_at(16)),
            recv_first: Seq(u64_at(24)),
            address: b[FIXED..].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn info() -> QpInfo {
        let spec = QueueSpec {
            layout: ImmLayout::L8_22_2,
            channels: 4,
            slots: 256,
            generations: 1 << 16,
            payload: 4096,
            user_immediate: true,
        };
        QpInfo { spec, send_first: Seq(7), recv_first: Seq(u64::MAX - 1), address: vec![1, 2, 3] }
    }

    #[test]
    fn round_trip_and_every_truncation_is_refused() {
        let b = info().to_bytes();
        assert_eq!(QpInfo::try_from(&b[..]), Ok(info()));
        for n in 0..b.len() {
            assert!(QpInfo::try_from(&b[..n]).is_err(), "accepted {n} bytes");
        }
        let mut v = b.clone();
        v[0] = 9;
        assert_eq!(QpInfo::try_from(&v[..]), Err(InfoError::Version { ours: 1, theirs: 9 }));
    }

    #[test]
    fn a_mismatch_names_both_values() {
        let ours = info();
        let mut theirs = QpInfo { send_first: ours.recv_first, recv_first: ours.send_first, ..info() };
        assert_eq!(ours.check(&theirs), Ok(()));
        theirs.spec.payload = 1024;
        let e = ours.check(&theirs).unwrap_err();
        assert_eq!(e, ConnectError::Mismatch { what: "payload bytes a packet", ours: 4096, theirs: 1024 });
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut b in proptest::collection::vec(any::<u8>(), 0..80), fix: bool) {
            if fix && !b.is_empty() { b[0] = VERSION; }
            let _ = QpInfo::try_from(&b[..]);
        }
    }
}
