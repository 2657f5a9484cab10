//! A posted buffer is the context's: packets write to it.

use sdr_sdk::RecvBuf;
use sdr_sdk::qp::RecvQp;

fn read_while_posted(qp: &RecvQp, buf: RecvBuf) -> u8 {
    let _handle = qp.recv(buf, 16);
    buf[0]
}

fn main() {}
