//! Which channels have shown the peer their address, and when they have to again: an end that only receives sends control on
//! channel 0 alone, and who translates its addresses may forget the others or give them new ones.
//!
//! Asked only when something comes in, so a connection without traffic stays silent.

#![forbid(unsafe_code)]

use crate::types::{Channel, Nanos};

/// A channel on which nothing left for so long shows its address.
const INTERVAL: Nanos = Nanos::from_millis(500);

/// How often channels are looked through.
const LOOK: Nanos = Nanos::from_millis(100);

pub(super) struct Shown {
    /// By channel: when something left last.
    last: Box<[Option<Nanos>]>,
    looked: Nanos,
}

impl Shown {
    pub(super) fn new(channels: u8) -> Self {
        Self { last: vec![None; usize::from(channels)].into(), looked: Nanos::ZERO }
    }

    /// Something leaves on the channel.
    pub(super) fn sent(&mut self, now: Nanos, channel: Channel) {
        if let Some(last) = self.last.get_mut(usize::from(channel.0)) {
            *last = Some(now);
        }
    }

    /// Whether it is time to look for channels that are [`due`](Self::due).
    pub(super) fn look(&mut self, now: Nanos) -> bool {
        let time = now.since(self.looked) >= LOOK;
        if time {
            self.looked = now;
        }
        time
    }

    /// The next channel that has to show its address, if any. What never left from one is no address that the peer uses.
    pub(super) fn due(&self, now: Nanos) -> Option<Channel> {
        let late = |last: &Option<Nanos>| last.is_some_and(|at| now.since(at) >= INTERVAL);
        self.last.iter().position(late).map(|ch| Channel(ch as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_that_sent_before_are_due_after_a_while() {
        let mut shown = Shown::new(3);
        let ms = Nanos::from_millis;
        assert_eq!(shown.due(ms(10_000)), None);
        shown.sent(ms(1_000), Channel(1));
        shown.sent(ms(1_200), Channel(2));
        shown.sent(ms(1_200), Channel(200));
        assert_eq!(shown.due(ms(1_499)), None);
        assert_eq!(shown.due(ms(1_500)), Some(Channel(1)));
        shown.sent(ms(1_500), Channel(1));
        assert_eq!((shown.due(ms(1_600)), shown.due(ms(1_700))), (None, Some(Channel(2))));
        assert!(shown.look(ms(100)) && !shown.look(ms(199)) && shown.look(ms(200)));
    }
}
