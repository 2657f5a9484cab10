//! Link models and virtual time.
