//! Criterion benches; see `bitmap.rs` and `ec.rs`.
