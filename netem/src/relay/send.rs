//! Due datagrams out of a socket in as few calls as possible.
//!
//! Neighbours of one size go out as one message that the kernel cuts up, which costs a fraction of
//! single ones. Where a device or path refuses that, the datagrams go out one by one.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use super::stats::DirectionStats;
use super::sys::{self, Run};

/// Most bytes of one message: the largest UDP payload over either IP, with room to spare for headers.
const MOST_BYTES: usize = 65_000;

/// The sending side of one direction.
#[derive(Debug)]
pub(super) struct Sender {
    /// Datagrams above this size go out one by one.
    largest_joined: usize,
    runs: Vec<Run>,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self { largest_joined: MOST_BYTES, runs: Vec::with_capacity(sys::SEND_FRAMES) }
    }

    /// Sends `frames` in order, at most [`sys::SEND_FRAMES`], to `to`, or where the socket is connected to.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        frames: &[impl AsRef<[u8]>],
        to: Option<SocketAddr>,
        stats: &mut DirectionStats,
    ) {
        self.runs.clear();
        join(frames, self.largest_joined, &mut self.runs);
        let (mut next, mut retried) = (0, false);
        while let Some(run) = self.runs.get(next).copied() {
            match sys::send(socket, to, frames, &self.runs[next..]) {
                Ok(sent) => {
                    for frame in
                        self.runs[next..next + sent].iter().flat_map(|r| &frames[r.first..][..r.frames])
                    {
                        stats.datagrams_out += 1;
                        stats.bytes_out += frame.as_ref().len() as u64;
                    }
                    next += sent;
                    retried = false;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if run.frames > 1 && refuses_joining(&e) => {
                    self.largest_joined = frames[run.first].as_ref().len() - 1;
                    let single = |first| Run { first, frames: 1 };
                    self.runs.splice(next..=next, (run.first..run.first + run.frames).map(single));
                }
                // On a connected socket the error may be the news that an earlier datagram was not wanted.
                Err(_) if !retried => retried = true,
                Err(_) => {
                    stats.unsent += run.frames as u64;
                    next += 1;
                    retried = false;
                }
            }
        }
    }
}

/// What the kernel says when a device or path cannot cut a message into datagrams.
fn refuses_joining(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP))
}

/// Cuts `frames` into runs that may go out as one message.
fn join(frames: &[impl AsRef<[u8]>], largest_joined: usize, runs: &mut Vec<Run>) {
    let mut bytes = 0;
    let mut before = 0;
    for (i, frame) in frames.iter().enumerate() {
        let len = frame.as_ref().len();
        if let Some(run) = runs.last_mut() {
            let size = frames[run.first].as_ref().len();
            let whole_before = before == size && size <= largest_joined;
            // An empty datagram at the end of a message would vanish.
            let fits = (1..=size).contains(&len) && bytes + len <= MOST_BYTES;
            if whole_before && fits {
                run.frames += 1;
                bytes += len;
                before = len;
                continue;
            }
        }
        runs.push(Run { first: i, frames: 1 });
        (bytes, before) = (len, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frame counts of the runs of datagrams of `sizes`.
    fn joined(sizes: &[usize], largest_joined: usize) -> Vec<usize> {
        let frames: Vec<Vec<u8>> = sizes.iter().map(|s| vec![0; *s]).collect();
        let mut runs = Vec::new();
        join(&frames, largest_joined, &mut runs);
        assert_eq!(runs.iter().map(|r| r.frames).sum::<usize>(), sizes.len());
        runs.iter().map(|r| r.frames).collect()
    }

    #[test]
    fn runs_are_equal_sizes_and_one_shorter_end() {
        let all = MOST_BYTES;
        assert_eq!(joined(&[], all), []);
        assert_eq!(joined(&[1400, 1400, 1400], all), [3]);
        assert_eq!(joined(&[1400, 1400, 200, 200], all), [3, 1]);
        assert_eq!(joined(&[200, 1400, 1400], all), [1, 2]);
        assert_eq!(joined(&[1400, 0, 0, 1400], all), [1, 1, 1, 1]);
        assert_eq!(joined(&[30_000, 30_000, 30_000, 5_000], all), [2, 2]);
        assert_eq!(joined(&[8_192, 8_192, 1400, 1400], 8_191), [1, 1, 2]);
    }

    #[test]
    fn single_datagrams_when_joining_is_refused() {
        // Larger together than any message may be, which the kernel refuses as it refuses a path too narrow.
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.connect(to.local_addr().unwrap()).unwrap();
        let frames = [vec![1; 40_000], vec![2; 40_000], vec![3; 100], vec![4; 100]];
        let mut sender = Sender::new();
        let mut stats = DirectionStats::default();
        sender.send(&from, &frames, None, &mut stats);
        assert_eq!((stats.datagrams_out, stats.bytes_out, stats.unsent), (4, 80_200, 0));
        let mut room = [0; 65_536];
        for frame in &frames {
            let len = to.recv(&mut room).unwrap();
            assert_eq!(room[..len], frame[..]);
        }
        let too_large = [vec![0; 66_000], vec![5; 10]];
        sender.send(&from, &too_large, None, &mut stats);
        assert_eq!((stats.datagrams_out, stats.unsent), (5, 1));
    }
}
