//! Reliable messages: a connection over a queue pair, and transfers on it.

use crate::context::Shared;
use crate::handle::{Out, free, get, get_or_default, lock};
use crate::qp::sdr_qp;
use crate::recv::sdr_recv_wr;
use crate::send::{immediate, sdr_send_wr};
use crate::status::{Outcome, Stop, boundary, sdr_result};
use sdr_sdk::connection::{Connection, ConnectionConfig, RecvResult, SendResult, Transfer};
use sdr_sdk::types::Nanos;
use std::sync::{Arc, Mutex};

/// What a connection is to be. A zeroed structure asks for the defaults.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct sdr_connection_attr {
    /// Injection rate in bits of payload a second. 0 means as fast as the NIC takes packets.
    pub rate_bits: u64,
    /// A message without progress for so long fails, in nanoseconds. 0 means 10 s.
    pub progress_timeout_ns: u64,
    /// A send for which the peer posts no receive for so long fails, in nanoseconds. 0 means 30 s.
    pub receive_timeout_ns: u64,
    /// After it is closed, what was accepted may take this long, in nanoseconds. 0 means 3 s.
    pub linger_ns: u64,
    /// Packets a chunk of its receives, 1 to 64. 0 means 16.
    pub packets_per_chunk: u32,
}

impl sdr_connection_attr {
    fn config(&self) -> Result<ConnectionConfig, Stop> {
        let mut config = ConnectionConfig::default();
        if self.rate_bits != 0 {
            config = config.rate(self.rate_bits);
        }
        if self.progress_timeout_ns != 0 {
            config = config.progress_deadline(Nanos(self.progress_timeout_ns));
        }
        if self.receive_timeout_ns != 0 {
            config = config.grant_deadline(Nanos(self.receive_timeout_ns));
        }
        if self.linger_ns != 0 {
            config = config.linger(Nanos(self.linger_ns));
        }
        match self.packets_per_chunk {
            0 => Ok(config),
            n @ 1..=64 => Ok(config.per_chunk(n)),
            n => Err(Stop::error(format_args!("packets_per_chunk is {n}; give 1 to 64, or 0"))),
        }
    }
}

/// Reliable messages to and from one peer.
pub struct sdr_connection {
    connection: Connection,
    shared: Arc<Shared>,
}

/// A message that was transferred whole.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sdr_completion {
    /// Number of the message in its direction, from 0.
    pub message: u64,
    /// Its length in bytes; it stands at the beginning of the receive.
    pub length: u64,
    /// Sends: packets that were sent, repairs included. Receives: 0.
    pub packets: u64,
    /// Sends: packets that were sent again. Receives: 0.
    pub repairs: u64,
    /// Receives: not 0 when the sender gave an immediate. Sends: 0.
    pub has_imm: u32,
    /// Receives: that immediate. Otherwise 0.
    pub imm_value: u32,
}

/// A send or receive of a connection.
pub struct sdr_transfer {
    state: Mutex<State>,
    shared: Arc<Shared>,
}

enum State {
    Sending(Transfer<SendResult>),
    Receiving(Transfer<RecvResult>),
    Over(Result<sdr_completion, String>),
}

impl State {
    /// The result, once there is one.
    fn result(&mut self) -> Option<&Result<sdr_completion, String>> {
        let over = match self {
            Self::Sending(transfer) => {
                transfer.try_take()?.map_err(|e| e.to_string()).map(|d| sdr_completion {
                    message: d.seq.0,
                    length: d.bytes,
                    packets: d.packets,
                    repairs: d.repairs,
                    has_imm: 0,
                    imm_value: 0,
                })
            }
            // The buffer goes: the memory is the program's again.
            Self::Receiving(transfer) => {
                transfer.try_take()?.map_err(|e| e.why.to_string()).map(|r| sdr_completion {
                    message: r.seq.0,
                    length: r.len as u64,
                    packets: 0,
                    repairs: 0,
                    has_imm: r.user.is_some().into(),
                    imm_value: r.user.unwrap_or_default(),
                })
            }
            Self::Over(_) => return self.known(),
        };
        *self = Self::Over(over);
        self.known()
    }

    fn known(&self) -> Option<&Result<sdr_completion, String>> {
        match self {
            Self::Over(result) => Some(result),
            _ => None,
        }
    }
}

impl sdr_transfer {
    fn result(&self) -> Option<Result<sdr_completion, String>> {
        lock(&self.state).result().cloned()
    }
}

/// Makes a connection of a connected queue pair. `attr` may be NULL.
///
/// After success the connection has the queue pair, and `qp` is gone; otherwise `qp` is as before. `SDR_RETRY` while
/// handles of its sends and receives exist. Both sides make one, before anything was sent or received.
///
/// ```c
/// sdr_connection *connection;
/// sdr_transfer *transfer;
/// sdr_completion done;
/// sdr_send_wr wr = {.mr = mr, .local_addr = bytes, .length = length};
/// r = sdr_connection_create(qp, NULL, &connection);
/// r = sdr_message_send(connection, &wr, &transfer);
/// r = sdr_transfer_wait(transfer, 5000000000u, &done);
/// sdr_transfer_free(transfer);
/// ```
///
/// # Safety
/// `qp` is NULL (an error) or a handle that nobody else uses; after success it is gone. `attr` is NULL or points to
/// attributes. `connection` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_connection_create(
    qp: *mut sdr_qp,
    attr: *const sdr_connection_attr,
    connection: *mut *mut sdr_connection,
) -> sdr_result {
    boundary("sdr_connection_create", || {
        // SAFETY: the caller promises a handle, attributes and a place; or NULL.
        let (handle, attr, out) =
            unsafe { (get(qp, "qp")?, get_or_default(attr), Out::new(connection, "connection")?) };
        let config = attr.config()?;
        let (send, recv) = handle.take_halves()?;
        let shared = handle.inner.shared.clone();
        let (connection, driver) = Connection::new(send, recv, config);
        shared.add(driver);
        out.put_handle(sdr_connection { connection, shared });
        // SAFETY: a handle that nobody else uses.
        unsafe { free(qp) };
        Ok(())
    })
}

/// Stops taking messages and tells the peer when those that were accepted are over, or have lingered for too long.
///
/// `SDR_RETRY` until that is done: go on polling. Without it, the peer of a connection that is destroyed right away may
/// have to find out by silence.
///
/// # Safety
/// `connection` is NULL (an error) or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_connection_close(connection: *mut sdr_connection) -> sdr_result {
    boundary("sdr_connection_close", || {
        // SAFETY: the caller promises a handle or NULL.
        let connection = &unsafe { get(connection, "connection") }?.connection;
        connection.close();
        if connection.ended() { Ok(()) } else { Err(Stop::Retry("messages are under way")) }
    })
}

/// Frees a connection's handle, and closes it as `sdr_connection_close` does: it winds up while the context is polled, and
/// is cut off when the context is destroyed. NULL is allowed.
///
/// # Safety
/// `connection` is NULL or a handle that nobody uses any more; afterwards it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_connection_destroy(connection: *mut sdr_connection) -> sdr_result {
    boundary("sdr_connection_destroy", || {
        if !connection.is_null() {
            // SAFETY: the caller promises a handle that nobody uses any more.
            unsafe { free(connection) };
        }
        Ok(())
    })
}

fn start(out: Out<*mut sdr_transfer>, connection: &sdr_connection, state: State) -> Outcome {
    out.put_handle(sdr_transfer { state: Mutex::new(state), shared: connection.shared.clone() });
    Ok(())
}

/// Sends a message into the peer's next `sdr_message_recv`; the transfer ends when the peer has every byte.
///
/// The peer may be slower: messages wait here for their receives. An immediate goes with a message of any length.
///
/// # Safety
/// `connection` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an
/// error) or a handle; the bytes are not written until the transfer has ended, or the memory was given back. `transfer` is
/// NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_message_send(
    connection: *mut sdr_connection,
    wr: *const sdr_send_wr,
    transfer: *mut *mut sdr_transfer,
) -> sdr_result {
    boundary("sdr_message_send", || {
        // SAFETY: the caller promises a handle, a request and a place; or NULL.
        let (connection, wr, out) =
            unsafe { (get(connection, "connection")?, get(wr, "wr")?, Out::new(transfer, "transfer")?) };
        // SAFETY: the caller promises a handle or NULL.
        let buf = unsafe { get(wr.mr, "wr->mr") }?.to_send(wr.local_addr, wr.length)?;
        let imm = immediate(wr.opcode, wr.imm_value)?;
        start(out, connection, State::Sending(connection.connection.send(buf, imm)))
    })
}

/// Receives the peer's next message. The transfer ends when all of it is there and nothing writes the memory any more.
///
/// `wr->packets_per_chunk` is not used.
///
/// # Safety
/// `connection` is NULL (an error) or a handle. `wr` is NULL (an error) or points to a request whose `mr` is NULL (an
/// error) or a handle; the bytes are neither read nor written nor posted again until the transfer has ended well, or the
/// memory was given back. `transfer` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_message_recv(
    connection: *mut sdr_connection,
    wr: *const sdr_recv_wr,
    transfer: *mut *mut sdr_transfer,
) -> sdr_result {
    boundary("sdr_message_recv", || {
        // SAFETY: the caller promises a handle, a request and a place; or NULL.
        let (connection, wr, out) =
            unsafe { (get(connection, "connection")?, get(wr, "wr")?, Out::new(transfer, "transfer")?) };
        // SAFETY: the caller promises a handle or NULL, and to leave the bytes alone.
        let buf = unsafe { get(wr.mr, "wr->mr")?.to_recv(wr.address, wr.max_length) }?;
        start(out, connection, State::Receiving(connection.connection.recv(buf)))
    })
}

fn answer(result: Option<Result<sdr_completion, String>>, completion: *mut sdr_completion) -> Outcome {
    let done = result.ok_or(Stop::Retry("the transfer is under way"))?.map_err(Stop::error)?;
    if !completion.is_null() {
        // SAFETY: the callers were promised a place.
        unsafe { completion.write(done) };
    }
    Ok(())
}

/// Whether a transfer is over: `SDR_SUCCESS` when it ended well, `SDR_ERROR` when it failed, `SDR_RETRY` before. The answer
/// stays the same. `completion` may be NULL; it is written with `SDR_SUCCESS`.
///
/// # Safety
/// `transfer` is NULL (an error) or a handle, `completion` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_transfer_poll(
    transfer: *mut sdr_transfer,
    completion: *mut sdr_completion,
) -> sdr_result {
    boundary("sdr_transfer_poll", || {
        // SAFETY: the caller promises a handle or NULL.
        let transfer = unsafe { get(transfer, "transfer") }?;
        answer(transfer.result(), completion)
    })
}

/// As `sdr_transfer_poll`, but makes progress on the transfer's context, and rests when there is none to make, for at most
/// `timeout_ns` nanoseconds; then it is `SDR_RETRY`. With two contexts in one thread only this one moves.
///
/// # Safety
/// `transfer` is NULL (an error) or a handle, `completion` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_transfer_wait(
    transfer: *mut sdr_transfer,
    timeout_ns: u64,
    completion: *mut sdr_completion,
) -> sdr_result {
    boundary("sdr_transfer_wait", || {
        // SAFETY: the caller promises a handle or NULL.
        let transfer = unsafe { get(transfer, "transfer") }?;
        answer(transfer.shared.wait(Nanos(timeout_ns), || transfer.result()), completion)
    })
}

/// Frees a transfer. NULL is allowed.
///
/// One that is under way is cancelled: its message is not delivered, the peer's half of it fails, the messages after it
/// are not affected. Its memory may be in use for a while longer; `sdr_mr_dereg` knows.
///
/// # Safety
/// `transfer` is NULL or a handle that nobody uses any more; afterwards it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_transfer_free(transfer: *mut sdr_transfer) -> sdr_result {
    boundary("sdr_transfer_free", || {
        if !transfer.is_null() {
            // SAFETY: the caller promises a handle that nobody uses any more.
            unsafe { free(transfer) };
        }
        Ok(())
    })
}
