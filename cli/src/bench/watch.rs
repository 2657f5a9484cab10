//! What a running benchmark shows: a bar on stderr when that is a terminal, and what passed in each interval.

use super::side::{Progress, Side};
use indicatif::{ProgressBar, ProgressStyle};
use sdr_sdk::types::Nanos;
use serde::Serialize;

/// What passed between two instants.
#[derive(Clone, Serialize)]
pub struct Interval {
    pub start_s: f64,
    pub end_s: f64,
    pub messages: u64,
    pub bytes: u64,
    pub goodput_gbps: f64,
    /// Packets that were sent again, of messages that ended in the interval.
    pub retransmitted: u64,
    pub failed_messages: u64,
}

/// How often the bar is drawn anew.
const REDRAW: Nanos = Nanos::from_millis(100);

/// Looks on.
pub struct Watch {
    bar: ProgressBar,
    every: Option<Nanos>,
    began: Option<Nanos>,
    drawn: Nanos,
    /// Where the interval began, and what had passed until then.
    since: (Nanos, Progress),
    pub intervals: Vec<Interval>,
}

impl Watch {
    /// Of a run with this many messages, or without a number; intervals of `every`.
    pub fn new(messages: Option<u64>, every: Option<Nanos>) -> Self {
        let (bar, template) = match messages {
            Some(n) => (ProgressBar::new(n), "{bar:40} {pos}/{len} messages, {msg}, {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {pos} messages, {msg}, {elapsed}"),
        };
        let bar = bar.with_style(ProgressStyle::with_template(template).expect("a valid template"));
        Self { bar, every, ..Self::silent() }
    }

    /// Shows and records nothing.
    pub fn silent() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            every: None,
            began: None,
            drawn: Nanos::ZERO,
            since: (Nanos::ZERO, Progress::default()),
            intervals: Vec::new(),
        }
    }

    /// Measuring begins.
    pub fn begin(&mut self, now: Nanos) {
        self.began = Some(now);
        self.since.0 = now;
    }

    /// Looks, when it is time to.
    pub fn turn(&mut self, now: Nanos, side: &Side) {
        let Some(began) = self.began else { return self.warm_up(now, side) };
        if now.since(self.drawn) >= REDRAW && !self.bar.is_hidden() {
            self.drawn = now;
            let so_far = side.so_far();
            let bits = (so_far.messages * side.shared.run.size * 8) as f64;
            self.bar.set_message(format!("{:.2} Gb/s", bits / now.since(began).0.max(1) as f64));
            self.bar.set_position(so_far.messages);
        }
        if self.every.is_some_and(|every| now.since(self.since.0) >= every) {
            self.close(now, side);
        }
    }

    /// A message of the warm-up may take long by itself: what has left is what moves.
    fn warm_up(&mut self, now: Nanos, side: &Side) {
        if now.since(self.drawn) >= REDRAW && !self.bar.is_hidden() {
            self.drawn = now;
            let (done, packets) = side.warm_up();
            let all = side.shared.run.warmup * side.flows.len() as u64;
            self.bar.set_message(format!("warm-up: {done} of {all}, {packets} packets so far"));
            self.bar.tick();
        }
    }

    /// It is over at `now`.
    pub fn end(&mut self, now: Nanos, side: &Side) {
        self.bar.finish_and_clear();
        if self.every.is_some() && self.began.is_some() && side.so_far().messages > self.since.1.messages {
            self.close(now, side);
        }
    }

    fn close(&mut self, now: Nanos, side: &Side) {
        let (began, (since, before)) = (self.began.unwrap_or(now), self.since);
        let so_far = side.so_far();
        let messages = so_far.messages - before.messages;
        let bytes = messages * side.shared.run.size;
        let interval = Interval {
            start_s: since.since(began).as_secs_f64(),
            end_s: now.since(began).as_secs_f64(),
            messages,
            bytes,
            goodput_gbps: bytes as f64 * 8.0 / now.since(since).0.max(1) as f64,
            retransmitted: so_far.repairs - before.repairs,
            failed_messages: so_far.failed - before.failed,
        };
        if !self.bar.is_hidden() {
            let Interval { start_s, end_s, messages, goodput_gbps, .. } = interval;
            self.bar
                .println(format!("{start_s:.1}-{end_s:.1} s: {messages} messages, {goodput_gbps:.3} Gb/s"));
        }
        self.intervals.push(interval);
        self.since = (now, so_far);
    }
}
