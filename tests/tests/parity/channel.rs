//! One channel of four is dead: what it would have carried is lost until the others carry it.

use super::{SimBed, hybrid};
use netem::sim::{Direction, Frame, FrameKind, Granularity, Verdict};
use sdr_sdk::ImmLayout;
use sdr_sdk::context::QpConfig;
use sdr_sdk::types::{Channel, Nanos};
use sdr_tests::bed::config_of;

const LEN: usize = 64 << 20;

/// Time of one 64 MiB message, in seconds.
fn time(channels: u8, dead: bool) -> f64 {
    let mut c = config_of("rtt=25ms,rate=1Gbit,seed=1", hybrid());
    c.sim.channels = channels;
    c.sim.max_payload = 4_096;
    c.connection.rate = Some(950_000_000);
    c.connection.per_chunk = 16;
    c.qp = QpConfig::default().layout(ImmLayout::L8_22_2);
    let mut bed = SimBed::new(c);
    if dead {
        bed.pair.qps.net.tap(Direction::A_TO_B, Granularity::Run, |f: &Frame<'_>| match f.kind {
            FrameKind::Data { channel: Channel(3), .. } => Verdict::Drop,
            _ => Verdict::Pass,
        });
    }
    bed.recv(1, LEN);
    bed.pass(Nanos::from_millis(100));
    bed.send(0, LEN);
    bed.complete(Nanos::from_secs(30)).as_secs_f64()
}

#[test]
fn one_of_four_dead_costs_at_most_half_more_than_three() {
    let (three, dead) = (time(3, false), time(4, true));
    println!("three channels {three:.3} s, one of four dead {dead:.3} s");
    assert!(dead <= 1.5 * three, "{dead} s, with three channels {three} s");
}
