//! `connect` uses the queue pair up, also when it fails.

use sdr_sdk::qp::{QpInfo, UnconnectedQp};

fn connect_twice(qp: UnconnectedQp, first: &QpInfo, second: &QpInfo) {
    let _halves = qp.connect(first);
    let _more = qp.connect(second);
}

fn main() {}
