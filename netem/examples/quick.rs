use netem::*; use std::sync::Arc; use sdr_sdk::reliability::SelectiveRepeat;
fn main() {
    let mut a = std::env::args().skip(1);
    let path: PathSpec = a.next().unwrap().parse().unwrap();
    let bytes: u64 = a.next().unwrap().parse::<netem::units::ByteSize>().unwrap().0;
    let n: u64 = a.next().unwrap().parse().unwrap();
    let t = Trial { path, scheme: Arc::new(SelectiveRepeat::default()), bytes, payload: 4096, per_chunk: 1 };
    let b = t.lower_bound().unwrap();
    let t0 = std::time::Instant::now();
    let s = t.run(n, 2, &|_| {}).unwrap();
    let el = t0.elapsed().as_secs_f64();
    let mut v: Vec<f64> = s.iter().map(|s| s.completion.0 as f64 / b.0 as f64).collect();
    v.sort_by(f64::total_cmp);
    let mut p = netem::trial::PacketCounts::default(); s.iter().for_each(|s| p.add(&s.packets));
    println!("mean {:.4} p50 {:.4} p99 {:.4} p999 {:.4} max {:.4}  {:.2} s {:.1} Mpps {:?}", v.iter().sum::<f64>() / n as f64, v[n as usize/2], v[(n*99/100) as usize], v[(n*999/1000) as usize], v[n as usize-1], el, p.sent as f64/el/1e6, p);
}
