//! Developer entry.
fn main() {}
