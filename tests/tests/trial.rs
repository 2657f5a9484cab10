//! Trials: the same samples on any number of threads, and a clean end when they are stopped.

use netem::Trial;
use sdr_sdk::reliability::SelectiveRepeat;
use std::sync::Arc;

fn trial(spec: &str, bytes: u64) -> Trial {
    let path = spec.parse().expect("a path");
    Trial {
        path,
        scheme: Arc::new(SelectiveRepeat::default()),
        bytes,
        payload: 4096,
        per_chunk: 16,
        known_loss: None,
    }
}

#[test]
fn the_number_of_threads_changes_no_sample() {
    let trial = trial("rtt=1ms,rate=10Gbit,loss=1e-2,seed=3", 1 << 20);
    let one = trial.run(20, 1, &|_| true).expect("20 samples");
    assert_eq!(one, trial.run(20, 3, &|_| true).expect("20 samples"));
    assert_eq!(one[7], trial.sample(7).expect("sample 7"));
}

#[test]
fn a_stop_keeps_what_was_done() {
    let trial = trial("rtt=1ms,rate=10Gbit,loss=1e-2,seed=3", 1 << 20);
    let all = trial.run(10, 1, &|_| true).expect("10 samples");
    let some = trial.run(10, 1, &|done| done < 4).expect("some samples");
    assert_eq!(some, all[..4]);
}

#[test]
fn a_stop_ends_a_long_sample() {
    // Jitter makes every packet an event of its own, so that one sample asks many times.
    let trial = trial("rtt=1ms,rate=10Gbit,jitter=100us,loss=0.1", 16 << 20);
    assert_eq!(trial.run(1, 1, &|_| false).expect("a clean end"), []);
}
