//! What makes a schedule: who is how busy, and what the network does. A plan follows from its seed.

use netem::rng::{Random, derive_seed};
use netem::sim::Verdict;
use sdr_sdk::{Nanos, Seq};

use crate::rig::Shape;

/// What the network does to the frames of one kind, as probabilities.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    pub drop: f64,
    pub corrupt: f64,
    pub delay: f64,
    pub duplicate: f64,
    /// How much later than usual a frame or its copy comes.
    pub shortest: Nanos,
    pub longest: Nanos,
}

impl Trouble {
    pub fn verdict(&self, rng: &mut Random) -> Verdict {
        let mut x = rng.unit();
        for (p, what) in [(self.drop, 0), (self.corrupt, 1), (self.delay, 2), (self.duplicate, 3)] {
            if x < p {
                return match what {
                    0 => Verdict::Drop,
                    1 => Verdict::Corrupt,
                    2 => Verdict::Delay(self.later(rng)),
                    _ => Verdict::Duplicate(self.later(rng)),
                };
            }
            x -= p;
        }
        Verdict::Pass
    }

    /// Mostly of any order of magnitude, so that every stage of a message's life is met; sometimes the longest.
    fn later(&self, rng: &mut Random) -> Nanos {
        match rng.below(8) {
            0 => self.longest,
            1 => Nanos(rng.below(self.longest.0)),
            _ => log_uniform(rng, self.shortest, self.longest),
        }
    }
}

pub fn log_uniform(rng: &mut Random, from: Nanos, to: Nanos) -> Nanos {
    let from = from.0.clamp(1, to.0) as f64;
    Nanos((from * (to.0 as f64 / from).powf(rng.unit())) as u64)
}

/// Everything that makes a schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    pub shape: Shape,
    /// Messages before the calm.
    pub messages: usize,
    pub data: Trouble,
    pub control: Trouble,
    /// Probability a turn that a user completes an unfinished receive.
    pub early: f64,
    /// Probability a turn that a user does what can be done.
    pub eager: f64,
    /// Probability a turn that an end stops for up to two and a half L, but not for so long that the other takes it for
    /// dead.
    pub stop: f64,
    /// Probability a turn of a forged packet.
    pub forge: f64,
}

impl Plan {
    pub fn longest_stop(&self) -> Nanos {
        self.shape.lifetime.mul_div(5, 2).min(Nanos::from_millis(500))
    }

    pub fn new(seed: u64, exact: bool, forge: bool) -> Self {
        let mut rng = Random::new(derive_seed(seed, 0));
        let r = &mut rng;
        let (slots, generations) =
            [(2, 2), (4, 1), (1, 4), (2, 1), (1, 2), (4, 2), (2, 4), (1, 1)][r.below(8) as usize];
        // One generation is never drained by count.
        let (slots, generations) = if exact && generations == 1 { (2, 2) } else { (slots, generations) };
        let payload = [8, 16, 33, 64][r.below(4) as usize];
        let lifetime = Nanos::from_millis([5, 20, 100, 1_000][r.below(4) as usize]);
        let delay = log_uniform(r, Nanos::from_micros(1), Nanos::from_millis(1));
        let buffers = slots as usize + 1 + r.below(3) as usize;
        let buffers = (0..buffers).map(|_| r.below(12 * payload + 1) as usize).collect();
        let messages = (slots * generations) as usize * (1 + r.below(4) as usize) + r.below(4) as usize;
        let firsts = [0, 1, (1 << 32) - 3, u64::MAX - 1, u64::MAX - 9];
        let mut some = |most: f64| if r.below(3) == 0 { 0.0 } else { most * r.unit() };
        let trouble = |some: &mut dyn FnMut(f64) -> f64, longest| Trouble {
            drop: some(0.25),
            corrupt: some(0.1),
            delay: some(0.3),
            duplicate: some(0.3),
            shortest: delay,
            longest,
        };
        let data = trouble(&mut some, Nanos(lifetime.0 - delay.0 - 1));
        // Late datagrams raise the RTT, and L is at least four of it.
        let control = trouble(&mut some, lifetime.mul_div(1, 16));
        let (early, stop) = (some(0.015), some(0.01));
        let eager = 0.2 + 0.8 * r.unit();
        let disarm_delay =
            if r.below(2) == 0 { Nanos::ZERO } else { Nanos(r.below(lifetime.0.min(4_000_000))) };
        // A slow wire behind a short queue, so that runs wait at the sender; packets take 5 to 80 us.
        let post_limit = (r.below(4) == 0).then(|| 1 + r.below(6));
        let rate = post_limit.and_then(|_| (r.below(2) == 0).then(|| payload * 8 * (12_500 << r.below(5))));
        let shape = Shape {
            seed,
            slots,
            generations,
            channels: 1 + r.below(3) as u8,
            payload: payload as usize,
            exact,
            lifetime,
            delay,
            disarm_delay,
            post_limit,
            rate,
            first: Seq(firsts[r.below(5) as usize]),
            messages: messages + slots as usize,
            buffers,
        };
        Self { shape, messages, data, control, early, eager, stop, forge: if forge { 0.3 } else { 0.0 } }
    }

    /// The same schedule with less in it, for the search of a smaller one that fails.
    pub fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self) -> bool| {
            let mut plan = self.clone();
            if change(&mut plan) {
                all.push(plan);
            }
        };
        add(&|p| std::mem::replace(&mut p.messages, self.messages / 2) > 1);
        add(&|p| std::mem::replace(&mut p.messages, self.messages.saturating_sub(1)) > 1);
        let effects: [fn(&mut Self) -> &mut f64; 11] = [
            |p| &mut p.control.drop,
            |p| &mut p.control.corrupt,
            |p| &mut p.control.delay,
            |p| &mut p.control.duplicate,
            |p| &mut p.data.drop,
            |p| &mut p.data.corrupt,
            |p| &mut p.data.delay,
            |p| &mut p.data.duplicate,
            |p| &mut p.early,
            |p| &mut p.stop,
            |p| &mut p.forge,
        ];
        for effect in effects {
            add(&|p| std::mem::take(effect(p)) > 0.0);
        }
        add(&|p| std::mem::take(&mut p.shape.disarm_delay) > Nanos::ZERO);
        add(&|p| p.shape.rate.take().is_some());
        add(&|p| p.shape.rate.is_none() && p.shape.post_limit.take().is_some());
        add(&|p| std::mem::replace(&mut p.shape.channels, 1) > 1);
        all
    }
}
