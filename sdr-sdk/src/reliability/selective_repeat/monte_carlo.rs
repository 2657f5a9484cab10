//! The mean completion time against the closed form of the model: both ends in a loop without a fabric.

use super::super::{Arrived, Conditions, Loss, Outcome, PacketView, Say, SchemeReceiver, SchemeSender, View};
use super::{Receiver, SelectiveRepeat, Sender};
use crate::bitmap::Shape;
use crate::reliability::ChannelView;
use crate::types::{ChunkIndex, Nanos};
use std::collections::VecDeque;

/// splitmix64.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In (0, 1].
    pub(super) fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// Packets that pass before the next one is lost.
    fn until_loss(&mut self, p: f64) -> u64 {
        (self.unit().ln() / (-p).ln_1p()) as u64
    }
}

/// Packet bits in chunks of 64.
struct Words {
    packets: u32,
    words: Vec<u64>,
}

impl Words {
    fn fill(&mut self, mut first: u32, end: u32) {
        while first < end {
            let n = (64 - first % 64).min(end - first);
            self.words[first as usize / 64] |= (u64::MAX >> (64 - n)) << (first % 64);
            first += n;
        }
    }
}

impl PacketView for Words {
    fn shape(&self) -> Shape {
        Shape::new(self.packets, 64)
    }

    fn chunk(&self, c: ChunkIndex) -> bool {
        self.words[c.0 as usize] == u64::MAX >> (64 - (self.packets - c.0 * 64).min(64))
    }

    fn packets(&self, c: ChunkIndex) -> u64 {
        self.words[c.0 as usize]
    }
}

/// Time from the first packet's start to the acknowledgement, in seconds.
fn complete(m: u32, p: f64, c: &Conditions, random: &mut Random) -> f64 {
    let one_way = Nanos(c.rtt.0 / 2);
    let mut sender = Sender::new(SelectiveRepeat::default(), &super::tests::spec(m));
    let mut receiver = Receiver::default();
    let mut view = Words { packets: m, words: vec![0; m.div_ceil(64) as usize] };
    let mut arrived = Arrived::new(m);
    // (when all of it is there, first, end), in order of time: the path keeps order.
    let mut on_wire: VecDeque<(u64, u32, u32)> = VecDeque::new();
    let mut until_loss = random.until_loss(p);
    let (mut high, mut last_arrival) = (0, 0);
    // Of the receiver; its reports reach the sender after `one_way`.
    let mut report_at = one_way;
    let mut idle_at = Nanos::ZERO;
    loop {
        // A report on its way holds what was there `one_way` before it comes.
        let send_at = sender.wake_at(c).unwrap_or(Nanos::MAX).max(idle_at);
        if send_at < report_at + one_way {
            let run = sender.next(send_at, 64, c).expect("woken for a run");
            let start = send_at.0 * 1_000;
            let through = start + run.packets as u64 * c.packet_time_ps;
            idle_at = Nanos(through.div_ceil(1_000));
            let (mut first, end) = (run.first, run.first + run.packets);
            while first < end {
                let good = until_loss.min((end - first) as u64) as u32;
                if good > 0 {
                    let sent = start + (first + good - run.first) as u64 * c.packet_time_ps;
                    on_wire.push_back((sent + one_way.0 * 1_000, first, first + good));
                    until_loss -= good as u64;
                }
                first += good;
                if first < end {
                    first += 1;
                    until_loss = random.until_loss(p);
                }
            }
            continue;
        }
        while let Some(&(at, first, end)) = on_wire.front().filter(|w| w.0 <= report_at.0 * 1_000) {
            on_wire.pop_front();
            view.fill(first, end);
            high = high.max(end);
            last_arrival = at;
        }
        arrived.update(&view, high);
        arrived.recheck(&view, u32::MAX);
        let view_of_it = View { data: &arrived, parity: &Arrived::new(0) };
        if receiver.on_progress(report_at, &view_of_it, c) == Outcome::Whole {
            return last_arrival as f64 / 1e12 + one_way.as_secs_f64();
        }
        let Some(Say::Status(status)) = receiver.report(report_at, &view_of_it, c, 0) else {
            panic!("says nothing")
        };
        sender.on_status(report_at + one_way, &status, c);
        let to = status.to;
        receiver.reported(to);
        report_at += Nanos(c.rtt.0 / 4);
    }
}

/// Mean by simulation; the model's mean, exact and as it is usually abbreviated; in seconds.
fn means(m: u32, p: f64, samples: u32) -> (f64, f64, f64) {
    // Packets of 4 KiB at 400 Gbit/s over 3,750 km.
    let rtt = Nanos::from_millis(25);
    let c = Conditions {
        rtt,
        min_rtt: rtt,
        packet_time_ps: 81_920,
        spare_parity: true,
        room: u32::MAX,
        channels: ChannelView::new(1),
        loss: Loss::default(),
        unfinished: crate::reliability::Unfinished { messages: 1, bytes: 0 },
    };
    let mut random = Random(m as u64);
    let mean = (0..samples).map(|_| complete(m, p, &c, &mut random)).sum::<f64>() / samples as f64;

    let t = c.packet_time_ps as f64 / 1e12;
    let o = SelectiveRepeat::default().rto(rtt).as_secs_f64() + t;
    let lossless = rtt.as_secs_f64() + m as f64 * t;
    // Probability that each of `j` packets got through within n transmissions.
    let through = |n: i32, j: u32| (1.0 - p.powi(n)).powi(j as i32);
    let rounds: f64 = (1..12).map(|n| 1.0 - through(n, m)).sum();
    let spread: f64 =
        (1..12).flat_map(|n| (1..m).map(move |j| 1.0 - through(n + 1, j) * through(n, m - j))).sum();
    let exact = lossless + (o - (m - 1) as f64 * t) * rounds + t * spread;
    (mean, exact, lossless + o * rounds)
}

#[test]
fn mean_completion_is_the_models() {
    // 128 MiB, 32 MiB, and as few packets as one chunk.
    for (m, p) in [(32_768, 1e-5), (32_768, 1e-4), (8_192, 1e-5), (64, 1e-2)] {
        let (mean, exact, abbreviated) = means(m, p, 10_000);
        assert!((mean / exact - 1.0).abs() < 0.02, "{m} packets at {p}: mean {mean} s, model {exact} s");
        assert!((mean / abbreviated - 1.0).abs() < 0.05, "{m} packets at {p}: {mean} s, {abbreviated} s");
    }
}
