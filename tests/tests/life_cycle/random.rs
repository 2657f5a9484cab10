//! Many random schedules.
//!
//! `SDR_SCHEDULES` sets how many each property runs, `SDR_SEED` the seed of the first; the n-th has that seed plus n, so
//! that a failing one is run again by its own seed and a count of one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::coverage::{Coverage, Seen};
use crate::plan::Plan;
use crate::rig::Check;
use crate::schedule::run;

/// From here on every kind of event is insisted on.
const ENOUGH: u64 = 1_000;

fn setting(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number"))
}

/// Runs a plan; a panic is a failure like any other.
fn attempt(plan: &Plan, log: Option<&mut Vec<String>>) -> Check<Coverage> {
    let text = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(s) => *s,
        Err(p) => p.downcast_ref::<&str>().copied().unwrap_or("a panic").to_owned(),
    };
    catch_unwind(AssertUnwindSafe(|| run(plan, log))).unwrap_or_else(|p| Err(text(p)))
}

/// A simpler plan that fails too, as far as one is found.
fn shrink(mut plan: Plan) -> Plan {
    while let Some(simpler) = plan.simpler().into_iter().find(|p| attempt(p, None).is_err()) {
        plan = simpler;
    }
    plan
}

fn report(test: &str, seed: u64, plan: Plan, why: &str) -> String {
    let plan = shrink(plan);
    let mut log = Vec::new();
    let small = attempt(&plan, Some(&mut log)).err().unwrap_or_default();
    let last = &log[log.len().saturating_sub(80)..];
    format!(
        "{why}\n\nagain: SDR_SEED={seed} SDR_SCHEDULES=1 cargo test -p sdr-tests --test life_cycle {test}\n\n\
         smaller: {plan:#?}\n{}\n{small}",
        last.join("\n")
    )
}

fn schedules(test: &str, default: u64, exact: bool, forge: bool) -> Coverage {
    let (base, count) = (setting("SDR_SEED", 1), setting("SDR_SCHEDULES", default));
    let next = AtomicU64::new(0);
    let failed = Mutex::new(None::<(u64, String)>);
    let total = Mutex::new(Coverage::default());
    let work = || {
        let mut seen = Coverage::default();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= count {
                break;
            }
            let seed = base.wrapping_add(n);
            match attempt(&Plan::new(seed, exact, forge), None) {
                Ok(one) => seen.merge(&one),
                Err(why) => {
                    next.store(count, Ordering::Relaxed);
                    failed.lock().expect("no panic under it").get_or_insert((seed, why));
                }
            }
        }
        total.lock().expect("no panic under it").merge(&seen);
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(work);
        }
    });
    if let Some((seed, why)) = failed.into_inner().expect("no panic under it") {
        panic!("{}", report(test, seed, Plan::new(seed, exact, forge), &why));
    }
    let total = total.into_inner().expect("no panic under it");
    println!("{test}: {count} schedules from seed {base}");
    for what in Coverage::ALL {
        println!("{:>10}  {what:?}", total.of(what));
    }
    if count >= ENOUGH {
        for what in Coverage::ALL {
            let never = match what {
                Seen::WrapByCount => !exact,
                Seen::Forged | Seen::ForgedHit => !forge,
                _ => false,
            };
            assert!(never || total.of(what) > count / 200, "{what:?} came {} times", total.of(what));
            assert!(!never || total.of(what) == 0, "{what:?} cannot be, and came {} times", total.of(what));
        }
    }
    total
}

#[test]
fn no_packet_touches_another_buffer_where_slots_drain_by_age() {
    schedules("no_packet_touches_another_buffer_where_slots_drain_by_age", 5_000, false, false);
}

#[test]
fn no_packet_touches_another_buffer_where_slots_drain_by_count() {
    schedules("no_packet_touches_another_buffer_where_slots_drain_by_count", 5_000, true, false);
}

#[test]
fn no_forged_packet_touches_a_buffer_that_it_does_not_name() {
    schedules("no_forged_packet_touches_a_buffer_that_it_does_not_name", 2_000, false, true);
}
