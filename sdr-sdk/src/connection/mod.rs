//! A connection: reliable messages over queue pairs.

pub mod frames;
