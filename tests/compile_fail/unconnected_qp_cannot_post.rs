//! Before `connect` there is nobody to send to or to receive from.

use sdr_sdk::qp::UnconnectedQp;
use sdr_sdk::{RecvBuf, SendBuf};

fn post_before_connect(qp: &UnconnectedQp, send: SendBuf, recv: RecvBuf) {
    let _ = qp.send(send, None);
    let _ = qp.recv(recv, 16);
}

fn main() {}
