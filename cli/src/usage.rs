//! What this process has used: processor time and memory.

use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads, in seconds.
pub fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Largest resident size so far in bytes; zero where the system does not tell.
pub fn peak_rss_bytes() -> u64 {
    kib_line("/proc/self/status", "VmHWM:")
}

/// Memory that can be had without swapping, in bytes; none where the system does not tell.
pub fn available_bytes() -> Option<u64> {
    Some(kib_line("/proc/meminfo", "MemAvailable:")).filter(|n| *n > 0)
}

/// A line such as `VmHWM:  1234 kB`, in bytes.
fn kib_line(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}
