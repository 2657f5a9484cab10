//! `sdr`.
fn main() {}
