//! Criterion benches; see `bitmap.rs`.
