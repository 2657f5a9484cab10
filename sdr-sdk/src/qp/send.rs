//! The sending half: one-shot sends, streams, the datagrams to the peer's receiving half.

use crate::memory::SendBuf;
use crate::qp::send_side::MAX_QUEUED_RUNS;
use crate::qp::{Closed, NextGrant, PostError, Shared};
use crate::rtt::Sample;
use crate::types::{Channel, Nanos, PacketOffset, Seq};

/// Sending half of a connected queue pair.
pub struct SendQp {
    pub(super) shared: Shared,
}

/// The path and the queue in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Smoothed round-trip time.
    pub rtt: Nanos,
    /// Smallest recent round-trip time.
    pub min_rtt: Nanos,
    /// Runs that wait for the fabric.
    pub queued_runs: usize,
    /// Round trip of the newest stamp that came back.
    pub sample: Option<Sample>,
    /// Payload bytes of a packet that it carries: those of the queue pair until it was found to carry less.
    pub payload: u32,
}

/// Where a send stands. None of these means delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// Packets still wait for the fabric, or it still needs the source memory.
    Injecting {
        /// How many.
        packets: u64,
    },
    /// Everything was injected; the memory is free again.
    Injected,
    /// The receiver completed the receive, whole or not; nothing more is injected.
    Completed,
    /// The queue pair closed first.
    Closed(Closed),
}

impl SendQp {
    /// The receive that the next message goes to, once its grant is here.
    pub fn next_grant(&self) -> Option<NextGrant> {
        self.shared.with(|qp| qp.send.next_grant())
    }

    /// One-shot write of a whole message into the peer's next posted receive.
    ///
    /// `imm` goes along where the queue pair has user immediates; it then needs 8 (or 16) packets.
    pub fn send(&self, buf: SendBuf, imm: Option<u32>) -> Result<SendHandle, PostError<SendBuf>> {
        if !self.accepts(&buf) {
            return Err(PostError::Foreign(buf));
        }
        let len = buf.len() as u64;
        let stream = match self.start(len, imm, true) {
            Ok(s) => s,
            Err(e) => return Err(e.map(|()| buf)),
        };
        let payload = stream.grant.payload as usize;
        let packets = buf.len().div_ceil(payload) as u32;
        if packets > 0 {
            self.shared.with(|qp| {
                if qp.send.withdrawn(stream.seq) {
                    return;
                }
                // Each chunk on its home; one channel takes all at once.
                let channels = u32::from(qp.spec.channels);
                let per_chunk = u32::from(stream.grant.per_chunk.max(1));
                let run = if channels == 1 { packets } else { per_chunk };
                for first in (0..packets).step_by(run as usize) {
                    let ch = Channel((first / per_chunk % channels) as u8);
                    let at = first as usize * payload;
                    let part = buf.slice(at, (run as usize * payload).min(buf.len() - at));
                    qp.send.push(stream.seq, first, run.min(packets - first), &part, ch);
                }
            });
        }
        Ok(stream.finish(false))
    }

    /// Whether `buf` can be sent here: it is memory of the same context.
    pub fn accepts(&self, buf: &SendBuf) -> bool {
        buf.owner() == self.shared.context().lock().number()
    }

    /// Opens a message of `len` bytes whose packets are added by [`Stream::extend`].
    pub fn stream_start(&self, len: u64, imm: Option<u32>) -> Result<Stream, PostError<()>> {
        self.start(len, imm, false)
    }

    /// With `whole`, the message is sent once from end to end, so it alone has to carry the user immediate.
    fn start(&self, len: u64, imm: Option<u32>, whole: bool) -> Result<Stream, PostError<()>> {
        let max = self.max_message();
        let (seq, grant) = self.shared.with(|qp| {
            let payload = qp.send.next_grant().map_or(qp.spec.payload, |g| g.payload);
            let (have, need) = (len.div_ceil(payload.into()) as u32, qp.send.needed_packets());
            if whole && imm.is_some() && have < need {
                return Err(PostError::ImmediateNeedsPackets { buf: (), have, need });
            }
            if len > max {
                return Err(PostError::TooLarge { buf: (), len, max });
            }
            if let Some(why) = qp.link.closed() {
                return Err(PostError::Closed((), why));
            }
            let Some(grant) = qp.send.next_grant() else { return Err(PostError::Busy(())) };
            if len > grant.bytes && !grant.withdrawn {
                return Err(PostError::TooLong { buf: (), len, posted: grant.bytes });
            }
            let seq = qp.send.start(imm.unwrap_or(0)).ok_or(PostError::Busy(()))?;
            Ok((seq, grant))
        })?;
        Ok(Stream { shared: self.shared.clone(), seq, len, grant, imm: imm.is_some(), ended: false })
    }

    /// Sends a datagram of the layer above to the peer's receiving half, unreliably; false when too many wait.
    pub fn post_datagram(&self, bytes: &[u8]) -> bool {
        self.shared.with(|qp| qp.post_datagram(true, bytes))
    }

    /// A datagram from the peer's receiving half.
    pub fn take_datagram(&self) -> Option<Box<[u8]>> {
        self.shared.with(|qp| qp.to_send_half.pop_front())
    }

    /// Everything before it is closed: it will never be posted again.
    pub fn closed_seq(&self) -> Seq {
        self.shared.with(|qp| qp.send.closed())
    }

    /// Number of the next message to be started.
    pub fn next_seq(&self) -> Seq {
        self.shared.with(|qp| qp.send.next())
    }

    /// What a sender wants to know each time it looks, in one call.
    pub fn path(&self) -> Path {
        self.shared.with(|qp| Path {
            rtt: qp.link.rtt.srtt(),
            min_rtt: qp.link.rtt.min_rtt(),
            queued_runs: qp.send.queued_runs(),
            sample: qp.link.rtt.last(),
            payload: qp.path_out,
        })
    }

    /// A stamp leaves before what is sent from here on, behind what the fabric has, and the peer sends it back at once.
    pub fn probe(&self) {
        self.shared.with(|qp| {
            qp.link.ask();
            // An empty datagram; when too many wait, one of them carries the stamp.
            qp.post_datagram(true, &[]);
        });
    }

    /// Says that packets of `payload` bytes seem not to reach the peer. Where the fabric can, it finds out what the path
    /// carries: [`Path::payload`] then says so, here, and receives that the peer posts from then on are cut accordingly. A
    /// message on a receive with more, see [`NextGrant::payload`], does not arrive. May be said at each poll.
    pub fn doubt_payload(&self, now: Nanos, payload: u32) {
        let mut core = self.shared.context().lock();
        if let Some((qp, fabric, _)) = core.parts(self.shared.id()) {
            fabric.doubt_payload(now, qp.q, payload, qp.link.rtt.srtt());
        }
    }

    /// Runs that wait for the fabric; a sender that paces itself keeps this small.
    pub fn queued_runs(&self) -> usize {
        self.shared.with(|qp| qp.send.queued_runs())
    }
}

/// Why packets could not be added to a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// Too many runs wait for the fabric; poll and try again.
    #[error("no queue space right now; poll and try again")]
    Busy,
    /// The bytes do not stand for whole packets of the message, or of the receive's extra packets, at that offset.
    #[error(
        "packets from {first}: {got} bytes given, at most {left} are left there, only the last data packet may be short"
    )]
    Range {
        /// First packet asked for.
        first: u32,
        /// Bytes given.
        got: u64,
        /// Bytes from there to the end of the message, or of the extra packets.
        left: u64,
    },
    /// The queue pair has no such channel.
    #[error("channel {asked} of a queue pair that has {channels}")]
    Channel {
        /// Asked for.
        asked: Channel,
        /// How many there are.
        channels: u8,
    },
    /// The receiver completed the receive, whole or not: end the stream.
    #[error("the receiver completed the receive")]
    Completed,
    /// The buffer is memory of another context.
    #[error("the buffer was registered with another context")]
    Foreign,
    /// The queue pair no longer works.
    #[error("the queue pair is closed: {0}")]
    Closed(Closed),
}

/// An open message. Dropping it ends it.
pub struct Stream {
    shared: Shared,
    seq: Seq,
    len: u64,
    grant: NextGrant,
    imm: bool,
    ended: bool,
}

impl Stream {
    /// The message's number.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The receive it goes to.
    pub fn grant(&self) -> NextGrant {
        self.grant
    }

    /// Adds the packets from `first` whose bytes are `buf`, at any offset, any number of times: data, or extra packets
    /// where the receive takes some (see [`NextGrant::extra`]), not both in one call.
    ///
    /// They leave on `channel`. Chunk c is at home on channel c mod channels.
    pub fn extend(&self, first: PacketOffset, buf: &SendBuf, channel: Channel) -> Result<(), StreamError> {
        let got = buf.len() as u64;
        if buf.owner() != self.shared.context().lock().number() {
            return Err(StreamError::Foreign);
        }
        self.shared.with(|qp| {
            let payload = self.grant.payload as u64;
            let (end, short) = self.part_of(first);
            let left = end.saturating_sub(first.0 as u64 * payload);
            let whole = got.is_multiple_of(payload) || (short && got == left);
            if got == 0 || got > left || !whole {
                return Err(StreamError::Range { first: first.0, got, left });
            }
            if channel.0 >= qp.spec.channels {
                return Err(StreamError::Channel { asked: channel, channels: qp.spec.channels });
            }
            if let Some(why) = qp.link.closed() {
                return Err(StreamError::Closed(why));
            }
            if qp.send.withdrawn(self.seq) {
                return Err(StreamError::Completed);
            }
            if qp.send.queued_runs() >= MAX_QUEUED_RUNS {
                return Err(StreamError::Busy);
            }
            qp.send.push(self.seq, first.0, got.div_ceil(payload) as u32, buf, channel);
            Ok(())
        })
    }

    /// End of the part that packet `first` is in, in bytes as if all packets before it were full, and whether it may end
    /// with a short packet.
    fn part_of(&self, first: PacketOffset) -> (u64, bool) {
        let (extra, from) = (self.grant.extra, self.grant.first_extra());
        if extra == 0 || first.0 < from {
            return (self.len, true);
        }
        (u64::from(from.saturating_add(extra)) * u64::from(self.grant.payload), false)
    }

    /// No packets will be added any more.
    ///
    /// Gives the stream back when it has a user immediate and not enough packets were sent to carry it.
    pub fn end(self) -> Result<SendHandle, PostError<Stream>> {
        if self.imm {
            let (need, missing) =
                self.shared.with(|qp| (qp.send.needed_packets(), qp.send.missing_residues(self.seq)));
            if missing > 0 {
                return Err(PostError::ImmediateNeedsPackets { buf: self, have: need - missing, need });
            }
        }
        Ok(self.finish(false))
    }

    /// Ends the stream and drops what still waits for the fabric.
    pub fn abort(self) -> SendHandle {
        self.finish(true)
    }

    fn finish(mut self, discard: bool) -> SendHandle {
        self.close(discard);
        SendHandle { shared: self.shared.clone(), seq: self.seq }
    }

    fn close(&mut self, discard: bool) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.with(|qp| qp.end_message(self.seq, discard));
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.close(true);
    }
}

/// Follows the injection of a message. Dropping it changes nothing.
pub struct SendHandle {
    shared: Shared,
    seq: Seq,
}

impl SendHandle {
    /// The message's number.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Whether the message was injected locally; says nothing about delivery.
    pub fn poll(&self) -> SendState {
        self.shared.with(|qp| match (qp.send.outstanding(self.seq), qp.link.closed()) {
            (None | Some(0), _) if qp.send.withdrawn(self.seq) => SendState::Completed,
            (None | Some(0), _) => SendState::Injected,
            (Some(_), Some(why)) => SendState::Closed(why),
            (Some(packets), None) => SendState::Injecting { packets },
        })
    }
}
