//! What happened in schedules, so that a property can insist that each class of event really occurred.

/// What can happen in a schedule; the properties count it, and insist that it does happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Message,
    ZeroBytes,
    Whole,
    Partial,
    /// Completed before any of it came.
    Nothing,
    Aborted,
    /// A longer message than the receive was refused.
    TooLong,
    Packet,
    /// For a receive that is posted, and there already.
    Duplicate,
    /// After `complete`, before the buffer was back.
    LateWhileRetiring,
    LateAfterRetire,
    LateAfterRearm,
    LateAfterTwin,
    /// Of the slot and generation that the next receive waits for.
    LateWhileHeldBack,
    /// In the queue of a receiver that was stopped.
    InStoppedQueue,
    /// The same slot and generation armed again.
    Wrap,
    /// Sooner than L after `closed` was received.
    WrapByCount,
    Stop,
    Forged,
    /// Into a posted receive.
    ForgedHit,
}

/// Counts of [`Seen`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Coverage([u64; 20]);

impl Coverage {
    pub const ALL: [Seen; 20] = {
        use Seen::*;
        [
            Message,
            ZeroBytes,
            Whole,
            Partial,
            Nothing,
            Aborted,
            TooLong,
            Packet,
            Duplicate,
            LateWhileRetiring,
            LateAfterRetire,
            LateAfterRearm,
            LateAfterTwin,
            LateWhileHeldBack,
            InStoppedQueue,
            Wrap,
            WrapByCount,
            Stop,
            Forged,
            ForgedHit,
        ]
    };

    pub fn add(&mut self, what: Seen) {
        self.0[what as usize] += 1;
    }

    pub fn of(&self, what: Seen) -> u64 {
        self.0[what as usize]
    }

    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a += b);
    }
}
