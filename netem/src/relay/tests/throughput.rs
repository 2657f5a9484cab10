//! What the relay carries, and what that costs: `cargo test --release -p netem throughput -- --ignored --nocapture`.

use super::*;

/// Seconds that the calling thread has run, and has waited for a core.
fn thread_times() -> [f64; 2] {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut times = stat.split(' ').map(|ns| ns.parse::<f64>().map_or(f64::NAN, |ns| ns / 1e9));
    std::array::from_fn(|_| times.next().unwrap_or(f64::NAN))
}

/// Offers `offered` bit/s for two seconds in datagrams of `size`, joined by the sender or one by one.
fn measure(size: usize, offered: f64, joined: bool) -> String {
    let server = socket("127.0.0.1:0");
    let path = "rtt=10ms".parse().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut relay = Relay::bind(listen, server.local_addr().unwrap(), path).unwrap();
    let (address, monitor) = (relay.local_addr(), relay.monitor());
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let relaying = thread::spawn(move || {
        let before = thread_times();
        relay.run(&flag).unwrap();
        let after = thread_times();
        (relay.stats().forward, after[0] - before[0], after[1] - before[1])
    });
    let flag = Arc::clone(&stop);
    let receiving = thread::spawn(move || {
        let mut receiver = Receiver::new();
        while !flag.load(Ordering::Relaxed) {
            if receiver.recv(&server).is_err() {
                thread::sleep(Duration::from_micros(500));
            }
        }
    });
    let client = socket("127.0.0.1:0");
    client.connect(address).unwrap();
    let (mut out, mut stats) = (Sender::new(), DirectionStats::default());
    let batch = (60_000 / size).clamp(1, 43);
    let frames = vec![vec![1; size]; batch];
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        let due = Duration::from_secs_f64(stats.bytes_out as f64 * 8.0 / offered);
        let early = due.saturating_sub(begin.elapsed());
        if early > Duration::from_micros(100) {
            thread::sleep(early);
        }
        if joined {
            out.send(&client, &frames, None, &mut stats);
        } else {
            frames.iter().for_each(|f| out.send(&client, std::slice::from_ref(f), None, &mut stats));
        }
    }
    let elapsed = begin.elapsed().as_secs_f64();
    let carried = monitor.stats().forward.bytes_out as f64 * 8.0 / elapsed / 1e9;
    thread::sleep(Duration::from_millis(50));
    stop.store(true, Ordering::Relaxed);
    receiving.join().unwrap();
    let (forward, cpu, waited) = relaying.join().unwrap();
    let how = if joined { "joined" } else { "single" };
    format!(
        "{size:>5} B {how}: offered {:.2} Gbit/s, carried {carried:.2}, dropped before the relay {}; relay {:.0} % of a \
         core, {:.2} us a datagram, waited for a core {:.0} %",
        stats.bytes_out as f64 * 8.0 / elapsed / 1e9,
        forward.receive_drops,
        100.0 * cpu / elapsed,
        1e6 * cpu / forward.datagrams_in as f64,
        100.0 * waited / elapsed,
    )
}

#[test]
#[ignore = "prints figures of the machine"]
fn throughput() {
    for (size, joined) in [(1400, false), (1400, true), (8192, false), (8192, true)] {
        for offered in [1e9, 1e11] {
            println!("{}", measure(size, offered, joined));
        }
    }
}

#[test]
#[ignore = "prints figures of the machine"]
fn accuracy() {
    let relay = Running::start("rtt=10ms");
    let client = relay.client();
    let mut late: Vec<f64> = (0..400)
        .map(|_| {
            let sent = Instant::now();
            client.send(&[7; 100]).unwrap();
            relay.server.recv(&mut [0; 200]).unwrap();
            sent.elapsed().as_secs_f64() * 1e6 - 5_000.0
        })
        .collect();
    late.sort_by(f64::total_cmp);
    println!(
        "beyond 5 ms one way: p1 {:.0} us, p50 {:.0}, p90 {:.0}, p99 {:.0}",
        late[4], late[200], late[360], late[396]
    );
}
