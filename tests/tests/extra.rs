//! Receives with a payload of their own and memory for packets behind the data, over the queue pair's calls alone: on the
//! simulated fabric and on software NICs over a link in memory.

use netem::pair::{Halves, Net};
use netem::sim::SimConfig;
use netem::{MemoryConfig, QpPair};
use sdr_sdk::SendBuf;
use sdr_sdk::bitmap::Bitmap;
use sdr_sdk::context::{ContextConfig, QpConfig};
use sdr_sdk::qp::{RecvOptions, Retire, StreamError};
use sdr_sdk::reliability::PacketView;
use sdr_sdk::types::{Channel, ChunkIndex, Nanos, PacketOffset};

/// The queue pair's payload, and that of the receive.
const MOST: u32 = 512;
const PAYLOAD: usize = 200;
const PER_CHUNK: u32 = 5;
/// The receive takes 24 data packets, the last of them short; extra packets begin with chunk 5.
const POSTED: usize = 24 * PAYLOAD - 7;
const FIRST_EXTRA: u32 = 25;
const EXTRA: u32 = 7;
/// The message has 21 packets.
const LEN: usize = 20 * PAYLOAD + 3;
const TIME: Nanos = Nanos::from_secs(1);

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 241) as u8 ^ (i >> 8) as u8 ^ seed as u8).collect()
}

fn filled<N: Net>(pair: &QpPair<N>, seed: usize, len: usize) -> SendBuf {
    let mut buf = pair.contexts[0].register(len).unwrap();
    buf.copy_from_slice(&bytes(seed, len));
    buf.freeze()
}

/// Both ends act on what was called, and on what comes of it.
fn run<N: Net>(pair: &mut QpPair<N>) {
    (0..2).for_each(|end| pair.touch(end));
    pair.run_until(pair.now() + TIME);
}

fn back(retire: &mut Retire) -> Vec<u8> {
    retire.try_take().expect("retired").expect("in time").to_vec()
}

fn message_with_extra_packets<N: Net>(mut pair: QpPair<N>, [(send, _), (_, recv)]: [Halves; 2]) {
    let extra = pair.contexts[1].register(EXTRA as usize * PAYLOAD).unwrap();
    let options = RecvOptions { per_chunk: PER_CHUNK, payload: Some(PAYLOAD as u32) };
    let buf = pair.contexts[1].register(POSTED).unwrap();
    let handle = recv.recv_with(buf, Some(extra), options).unwrap();
    // Beside it, a receive of the usual kind.
    let usual = recv.recv(pair.contexts[1].register(POSTED).unwrap(), PER_CHUNK).unwrap();
    assert_eq!(
        (handle.payload(), handle.shape().packets(), handle.shape().chunks()),
        (PAYLOAD as u32, 24, 5)
    );
    assert_eq!((handle.first_extra(), handle.extra_packets()), (FIRST_EXTRA, EXTRA));
    assert_eq!(handle.data_slice().map(|s| s.len()), Some(POSTED));
    assert_eq!(handle.extra_slice().map(|s| s.len()), Some(EXTRA as usize * PAYLOAD));
    assert_eq!((usual.payload(), usual.extra_packets(), usual.extra_slice().is_none()), (MOST, 0, true));
    run(&mut pair);

    let grant = send.next_grant().unwrap();
    assert_eq!((grant.payload, grant.extra, grant.first_extra()), (PAYLOAD as u32, EXTRA, FIRST_EXTRA));
    let stream = send.stream_start(LEN as u64, None).unwrap();
    let (data, behind) = (filled(&pair, 1, LEN), filled(&pair, 2, (EXTRA as usize + 1) * PAYLOAD));
    let extend = |first, buf: &SendBuf, ch| stream.extend(PacketOffset(first), buf, Channel(ch));
    // Behind the message, between data and extra, short, over the end of the extra packets, behind them.
    for (first, len) in
        [(21, 1), (24, PAYLOAD), (20, PAYLOAD), (25, PAYLOAD - 1), (31, 2 * PAYLOAD), (32, PAYLOAD)]
    {
        let e = extend(first, &behind.slice(0, len), 0);
        assert!(matches!(e, Err(StreamError::Range { .. })), "{len} bytes of packet {first}: {e:?}");
    }
    assert!(
        matches!(extend(25, &behind, 0), Err(StreamError::Range { left, .. }) if left == 7 * PAYLOAD as u64)
    );
    // Extra packets on a channel of their own, one of them not at all.
    extend(25, &behind.slice(0, 6 * PAYLOAD), 1).unwrap();
    extend(0, &data, 0).unwrap();
    stream.end().ok().unwrap();
    let sent = send.send(filled(&pair, 3, LEN), None).unwrap();
    assert_eq!(sent.seq(), usual.seq());
    run(&mut pair);

    // The message is shorter than its receive: the last chunk of data cannot become whole.
    assert_eq!((handle.bitmap().count(), Bitmap::is_full(handle.bitmap())), (4, false));
    let view: &dyn PacketView = &handle;
    assert_eq!(view.packets(ChunkIndex(4)), 0b1);
    assert!(view.chunk(ChunkIndex(5)) && !view.chunk(ChunkIndex(6)));
    assert_eq!(view.packets(ChunkIndex(6)), 0b1);
    assert_eq!(view.complete_until(ChunkIndex(5), ChunkIndex(7)), ChunkIndex(6));
    let mut chunk = [0; PER_CHUNK as usize * PAYLOAD];
    assert_eq!(handle.copy_chunk(ChunkIndex(3), &mut chunk), Some(1000));
    assert_eq!(chunk[..], bytes(1, LEN)[3000..4000]);
    assert_eq!(handle.copy_chunk(ChunkIndex(5), &mut chunk), None, "no data");

    let mut retire = handle.complete();
    assert!(retire.take_extra().is_none(), "both come back together");
    let mut usual = usual.complete();
    run(&mut pair);
    let got = back(&mut retire);
    assert!(got[..LEN] == bytes(1, LEN)[..] && got[LEN..].iter().all(|b| *b == 0));
    let got = retire.take_extra().unwrap();
    assert!(got[..6 * PAYLOAD] == bytes(2, 6 * PAYLOAD)[..] && got[6 * PAYLOAD..].iter().all(|b| *b == 0));
    assert!(retire.take_extra().is_none() && retire.try_take().is_none());
    assert!(back(&mut usual)[..LEN] == bytes(3, LEN)[..] && usual.take_extra().is_none());
}

fn settings() -> (ContextConfig, QpConfig) {
    (ContextConfig::default(), QpConfig::default().payload(MOST))
}

#[test]
fn over_the_simulated_fabric() {
    let sim = SimConfig { channels: 2, ..SimConfig::default() };
    let (context, qp) = settings();
    let (pair, halves) = QpPair::new(sim, context, &qp).unwrap();
    message_with_extra_packets(pair, halves);
}

#[test]
fn over_a_link_in_memory() {
    let (context, qp) = settings();
    let (pair, halves, _endpoints) = QpPair::memory(&MemoryConfig::default(), context, &qp).unwrap();
    message_with_extra_packets(pair, halves);
}
