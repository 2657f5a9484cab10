//! `sdr info`: what this host has, and why something is missing. Everything is tried or looked up, nothing is assumed.

use crate::args::bench::InfoArgs;
use crate::{Answer, CommandError, schemes};
use netem::units::ByteSize;
use sdr_sdk::driver::Clock;
use sdr_sdk::fabric::soft::socket::{Outcome, UdpSocket};
use sdr_sdk::fabric::soft::wire::HEADER;
use sdr_sdk::types::Nanos;
use serde::Serialize;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Field names are an interface: scripts read them.
#[derive(Serialize)]
struct Document {
    version: &'static str,
    schemes: Vec<&'static str>,
    encryption: &'static str,
    cores: usize,
    memory_available_bytes: Option<u64>,
    cpu: Vec<Feature>,
    udp: Udp,
    rdma: Rdma,
    gpu: Gpu,
}

#[derive(Serialize)]
struct Feature {
    name: &'static str,
    present: bool,
}

#[derive(Serialize)]
struct Udp {
    /// Batches are cut into datagrams by the kernel.
    gso: bool,
    /// Batches arrive joined.
    gro: bool,
    recv_buffer_bytes: usize,
    send_buffer_bytes: usize,
    why: Option<String>,
}

#[derive(Serialize)]
struct Rdma {
    devices: Vec<String>,
    libibverbs: Option<String>,
    why: Option<String>,
}

#[derive(Serialize)]
struct Gpu {
    driver: Option<String>,
    devices: usize,
    libcuda: Option<String>,
    why: Option<String>,
}

/// Runs it.
pub fn run(args: &InfoArgs) -> Result<Answer, CommandError> {
    let document = Document {
        version: env!("CARGO_PKG_VERSION"),
        schemes: schemes::ALL.to_vec(),
        encryption: "none",
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_available_bytes: crate::usage::available_bytes(),
        cpu: cpu(),
        udp: udp(),
        rdma: rdma(),
        gpu: gpu(),
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&document).expect("numbers and texts") + "\n",
        false => list(&document),
    };
    Ok(Answer { text, ..Answer::default() })
}

#[cfg(target_arch = "x86_64")]
fn cpu() -> Vec<Feature> {
    macro_rules! features {
        ($($name:tt),*) => {
            vec![$(Feature { name: $name, present: std::is_x86_feature_detected!($name) }),*]
        };
    }
    features!("sse4.2", "pclmulqdq", "avx2", "gfni", "vpclmulqdq", "avx512f", "avx512bw", "avx512vl")
}

#[cfg(target_arch = "aarch64")]
fn cpu() -> Vec<Feature> {
    macro_rules! features {
        ($($name:tt),*) => {
            vec![$(Feature { name: $name, present: std::arch::is_aarch64_feature_detected!($name) }),*]
        };
    }
    features!("neon", "crc", "pmull", "sve")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu() -> Vec<Feature> {
    Vec::new()
}

/// Payload of the datagrams that are tried, and how many go as one.
const TRIED: usize = 1_024;
const BATCH: usize = 8;

/// Sends a batch to itself.
fn udp() -> Udp {
    let none = |why: String| Udp {
        gso: false,
        gro: false,
        recv_buffer_bytes: 0,
        send_buffer_bytes: 0,
        why: Some(why),
    };
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let sockets = UdpSocket::bind(any).and_then(|a| Ok((a, UdpSocket::bind(any)?)));
    let (mut from, mut to) = match sockets {
        Ok(sockets) => sockets,
        Err(e) => return none(format!("no UDP socket on loopback: {e}")),
    };
    let Ok(at) = to.local_addr() else { return none("no address on loopback".to_owned()) };
    let headers = [[0; HEADER]; BATCH];
    let sent = from.send_run(at, &headers, &[0; TRIED * BATCH], TRIED);
    let (mut arrived, mut calls) = (0, 0);
    let (clock, patience) = (Clock::start(), Nanos::from_millis(200));
    while arrived < BATCH && clock.now() < patience {
        let before = arrived;
        let _ = to.recv(&mut |_, _| arrived += 1);
        calls += usize::from(arrived > before);
    }
    let granted = to.granted();
    let gso = from.gso();
    let gro = arrived == BATCH && calls == 1 && gso;
    let why = match sent {
        Ok(Outcome::Sent(BATCH)) if gso && arrived == BATCH => None,
        Ok(Outcome::Sent(BATCH)) if arrived == BATCH => {
            Some("the kernel refused a batch (UDP_SEGMENT)".to_owned())
        }
        Ok(outcome) => Some(format!("a batch of {BATCH} on loopback: {outcome:?}, {arrived} arrived")),
        Err(e) => Some(format!("a batch on loopback: {e}")),
    };
    Udp { gso, gro, recv_buffer_bytes: granted.recv, send_buffer_bytes: granted.send, why }
}

fn rdma() -> Rdma {
    let mut devices = names("/sys/class/infiniband");
    devices.sort();
    let libibverbs = library("libibverbs.so.1");
    let why = match (devices.is_empty(), &libibverbs) {
        (true, None) => {
            Some("no device in /sys/class/infiniband, and libibverbs.so.1 is not installed (rdma-core)")
        }
        (true, Some(_)) => {
            Some("no device in /sys/class/infiniband: no RDMA card, or its kernel module is not loaded")
        }
        (false, None) => Some("libibverbs.so.1 is not installed (rdma-core)"),
        (false, Some(_)) => None,
    };
    Rdma { devices, libibverbs, why: why.map(str::to_owned) }
}

fn gpu() -> Gpu {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let driver = version.and_then(|text| text.lines().next().map(|line| line.trim().to_owned()));
    let devices = names("/proc/driver/nvidia/gpus").len();
    let libcuda = library("libcuda.so.1");
    let why = match (&driver, devices, &libcuda) {
        (None, ..) => Some("no NVIDIA driver is loaded: /proc/driver/nvidia is missing"),
        (Some(_), 0, _) => Some("the NVIDIA driver is loaded and finds no GPU"),
        (Some(_), _, None) => Some("libcuda.so.1 is not installed"),
        _ => None,
    };
    Gpu { driver, devices, libcuda, why: why.map(str::to_owned) }
}

/// Names in a directory; none when it is missing.
fn names(path: &str) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// Where the dynamic linker would find a library: its variable, then the usual places.
fn library(name: &str) -> Option<String> {
    let given = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let usual = ["/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from);
    let usual = usual.iter().flat_map(|dir| [dir.join(&triple), with(dir, "64"), dir.clone()]);
    let extra = ["/usr/local/nvidia/lib64", "/usr/local/cuda/compat", "/usr/lib/wsl/lib"].map(PathBuf::from);
    let found = std::env::split_paths(&given)
        .chain(usual)
        .chain(extra)
        .map(|dir| dir.join(name))
        .find(|p| p.exists());
    found.map(|p| p.display().to_string())
}

fn with(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn list(d: &Document) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| _ = writeln!(text, "{name:<14}: {value}");
    let yes = |b: bool| if b { "yes" } else { "no" };
    let reason = |why: &Option<String>| why.as_ref().map(|w| format!(" ({w})")).unwrap_or_default();
    line("Version", format!("sdr {}", d.version));
    line("Schemes", d.schemes.join(", "));
    line("Encryption", d.encryption.to_owned());
    let memory = d
        .memory_available_bytes
        .map(|n| format!(", {:.1} GiB of memory available", n as f64 / f64::from(1 << 30)));
    line("Cores", format!("{}{}", d.cores, memory.unwrap_or_default()));
    let of = |present: bool| {
        let names: Vec<_> = d.cpu.iter().filter(|f| f.present == present).map(|f| f.name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    line("CPU has", of(true));
    line("CPU lacks", of(false));
    line("UDP batches", format!("GSO {}, GRO {}{}", yes(d.udp.gso), yes(d.udp.gro), reason(&d.udp.why)));
    let (recv, send) = (ByteSize(d.udp.recv_buffer_bytes as u64), ByteSize(d.udp.send_buffer_bytes as u64));
    line(
        "UDP buffers",
        format!("receive {recv}, send {send}, as the kernel counts (net.core.rmem_max, wmem_max)"),
    );
    let none = || "none".to_owned();
    let devices = if d.rdma.devices.is_empty() { none() } else { d.rdma.devices.join(", ") };
    line("RDMA devices", format!("{devices}{}", reason(&d.rdma.why)));
    line("libibverbs", d.rdma.libibverbs.clone().unwrap_or_else(none));
    line("GPUs", format!("{}{}", d.gpu.devices, reason(&d.gpu.why)));
    line("GPU driver", d.gpu.driver.clone().unwrap_or_else(none));
    line("libcuda", d.gpu.libcuda.clone().unwrap_or_else(none));
    text
}
