//! A completed receive has no bitmap any more: the slot may belong to another message.

use sdr_sdk::qp::RecvHandle;

fn look_after_complete(handle: RecvHandle) -> bool {
    let _retire = handle.complete();
    handle.bitmap().is_full()
}

fn main() {}
