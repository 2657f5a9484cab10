//! What a run costs. `cargo test --release -p netem speed -- --ignored --nocapture`

use super::*;

/// Nanoseconds a call of `f`, the best of seven rounds.
#[expect(clippy::disallowed_methods, reason = "a measurement of the real clock")]
fn best(mut f: impl FnMut()) -> f64 {
    const CALLS: u32 = 200_000;
    let mut round = || {
        let start = std::time::Instant::now();
        (0..CALLS).for_each(|_| f());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..7).map(|_| round()).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_run_from_post_to_completion() {
    for (path, batch) in [
        ("", 1),
        ("rtt=25ms,rate=400Gbit", 1),
        ("rtt=25ms,rate=400Gbit", 16),
        ("rtt=25ms,rate=400Gbit,loss=1e-3", 16),
        ("rtt=25ms,rate=400Gbit,loss=1e-3,burst=4", 16),
    ] {
        let mut rig = Rig::new(SimConfig { payload_copy: false, ..config(path) });
        let spec = QueueSpec { payload: 4096, ..SPEC };
        (rig.qa, rig.qb) = connect_as(&spec, &mut rig.a, &mut rig.b);
        let len = 64 * 4096;
        let (src, dst) = (Memory::new(&mut rig.a, &vec![0; len]), Memory::new(&mut rig.b, &vec![0; len]));
        rig.arm(0, dst.all);
        let runs = vec![WriteRun { packets: 64, ..run(rig.qa, 0, 0, src.all) }; batch];
        let (mut now, mut out, mut packets) = (Nanos(0), Vec::new(), 0u64);
        let cost = best(|| {
            rig.a.post(now, CH, &runs);
            // 16 runs take 84 us at 400 Gbit/s.
            now += Nanos(100_000);
            rig.a.poll(now, CH, &mut |_: Event<'_>| {});
            rig.b.poll(now, CH, &mut |_: Event<'_>| {});
            out.clear();
            rig.b.take_completions(CH, &mut out);
            packets += out.iter().map(|run| u64::from(run.packets)).sum::<u64>();
        });
        assert!(packets > 0);
        println!("{:>45}, {batch:>2} runs a call: {:.0} ns a run of 64 packets", path, cost / batch as f64);
    }
}
