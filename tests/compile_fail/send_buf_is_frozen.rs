//! What may be on its way is not written: its clones share the memory.

use sdr_sdk::SendBuf;

fn write(buf: &mut SendBuf) {
    buf[0] = 1;
}

fn main() {}
