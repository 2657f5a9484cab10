//! Queue pairs. Two ways to a connected one: `sdr_dial` and `sdr_accept` find each other over the NIC and agree on the
//! payload size; `sdr_qp_create`, `sdr_qp_info_get` and `sdr_qp_connect` leave the exchange to the program.

use crate::context::{Shared, address, sdr_context};
use crate::handle::{Out, free, get, get_or_default, lock, text};
use crate::status::{Stop, boundary, sdr_result};
use sdr_sdk::context::QpConfig;
use sdr_sdk::fabric::soft::Dialing;
use sdr_sdk::imm::ImmLayout;
use sdr_sdk::qp::{QpInfo, RecvQp, SendQp, UnconnectedQp};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

/// Layout of the immediate: 1,024 slots, 2^18 packets a message. The default.
pub const SDR_LAYOUT_10_18_4: u32 = 0;
/// Layout of the immediate: 256 slots, 2^22 packets a message.
pub const SDR_LAYOUT_8_22_2: u32 = 1;

/// What a queue pair is to be. A zeroed structure asks for the defaults. Both sides need the same.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct sdr_qp_attr {
    /// Payload bytes of a full packet. 0 means the largest that passes where the queue pair is dialled, and the largest of
    /// the NIC, whatever the path, where it is created.
    pub payload: u32,
    /// Channels to spray over. 0 means all of the context.
    pub channels: u32,
    /// Slots: receives that can be posted at once. A power of two; 0 means as many as the layout has.
    pub slots: u32,
    /// Generations: uses of a slot before late packets of an old one could be taken for new ones. A power of two; 0 means
    /// as many as the NIC has.
    pub generations: u32,
    /// `SDR_LAYOUT_10_18_4` or `SDR_LAYOUT_8_22_2`.
    pub layout: u32,
    /// Not 0: packets carry a user immediate, `SDR_OP_WRITE_WITH_IMM` works with `sdr_send_post`. Messages of a
    /// connection carry one in any case.
    pub user_immediate: u32,
}

impl sdr_qp_attr {
    fn config(&self) -> Result<QpConfig, Stop> {
        let layout = match self.layout {
            SDR_LAYOUT_10_18_4 => ImmLayout::L10_18_4,
            SDR_LAYOUT_8_22_2 => ImmLayout::L8_22_2,
            other => return Err(Stop::error(format_args!("layout is {other}; give one of SDR_LAYOUT_*"))),
        };
        let channels = u8::try_from(self.channels)
            .map_err(|_| Stop::error(format_args!("channels is {}, at most 255", self.channels)))?;
        Ok(QpConfig::default()
            .layout(layout)
            .channels(channels)
            .payload(self.payload)
            .slots(self.slots, self.generations)
            .user_immediate(self.user_immediate != 0))
    }
}

/// What a connected queue pair came to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sdr_qp_state {
    /// Largest message in bytes.
    pub max_message: u64,
    /// Smoothed round-trip time in nanoseconds; a guess until one was measured.
    pub rtt_ns: u64,
    /// Payload bytes of every packet but the last of a message.
    pub payload: u32,
    /// Channels it sprays over.
    pub channels: u32,
    /// Not 0: packets carry a user immediate.
    pub user_immediate: u32,
    /// Not 0: it no longer works, on whichever side it was closed.
    pub closed: u32,
}

/// A queue pair.
pub struct sdr_qp {
    pub(crate) inner: Arc<Inner>,
}

/// What handles of sends and receives hold a count of.
pub(crate) struct Inner {
    state: Mutex<State>,
    info: Vec<u8>,
    pub(crate) shared: Arc<Shared>,
}

enum State {
    Created(UnconnectedQp),
    Connected(SendQp, RecvQp),
    /// Connecting failed.
    Gone,
}

impl Inner {
    /// Runs `f` on both halves.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&SendQp, &RecvQp) -> Result<R, Stop>) -> Result<R, Stop> {
        match &*lock(&self.state) {
            State::Connected(send, recv) => f(send, recv),
            State::Created(_) => Err(Stop::text("the queue pair is not connected")),
            State::Gone => Err(Stop::text("connecting the queue pair failed; destroy it and create another")),
        }
    }
}

impl sdr_qp {
    fn connected(shared: Arc<Shared>, (send, recv): (SendQp, RecvQp)) -> Self {
        Self {
            inner: Arc::new(Inner { state: State::Connected(send, recv).into(), info: Vec::new(), shared }),
        }
    }

    /// The halves, for a connection; nothing of the queue pair is in use.
    pub(crate) fn take_halves(&self) -> Result<(SendQp, RecvQp), Stop> {
        if Arc::strong_count(&self.inner) > 1 {
            return Err(Stop::Retry("sends or receives of this queue pair exist; free them first"));
        }
        self.inner.with(|_, _| Ok(()))?;
        match std::mem::replace(&mut *lock(&self.inner.state), State::Gone) {
            State::Connected(send, recv) => Ok((send, recv)),
            _ => Err(Stop::text("the queue pair is in use by another call")),
        }
    }
}

/// Creates a queue pair. `attr` may be NULL.
///
/// Next, bring the bytes of `sdr_qp_info_get` to the peer by any means, and give the peer's to `sdr_qp_connect`. The NIC
/// must be reachable at the address that it is bound to: give `sdr_context_create` a full listen address.
///
/// # Safety
/// `context` is NULL (an error) or a handle, `attr` is NULL or points to attributes, `qp` is NULL (an error) or valid for
/// a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_create(
    context: *mut sdr_context,
    attr: *const sdr_qp_attr,
    qp: *mut *mut sdr_qp,
) -> sdr_result {
    boundary("sdr_qp_create", || {
        // SAFETY: the caller promises a handle or NULL, attributes or NULL, and a place.
        let (context, attr, out) =
            unsafe { (get(context, "context")?, get_or_default(attr), Out::new(qp, "qp")?) };
        let created = context.shared.context.create_qp(&attr.config()?).map_err(Stop::error)?;
        let info = created.info().to_bytes();
        let inner = Inner { state: State::Created(created).into(), info, shared: context.shared.clone() };
        out.put_handle(sdr_qp { inner: Arc::new(inner) });
        Ok(())
    })
}

/// Closes a queue pair for both sides. NULL is allowed.
///
/// Answers `SDR_RETRY` while a handle of one of its sends or receives exists.
///
/// # Safety
/// `qp` is NULL or a handle that nobody uses any more; after success it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_destroy(qp: *mut sdr_qp) -> sdr_result {
    boundary("sdr_qp_destroy", || {
        // SAFETY: the caller promises a handle or NULL.
        let Some(handle) = (unsafe { qp.as_ref() }) else { return Ok(()) };
        if Arc::strong_count(&handle.inner) > 1 {
            return Err(Stop::Retry("sends or receives of this queue pair exist; free them first"));
        }
        let told = handle.inner.with(|send, _| {
            send.close();
            send.flush(handle.inner.shared.clock.now());
            Ok(())
        });
        // Without a peer there is nobody to tell.
        let _ = told;
        // SAFETY: a handle that nobody uses any more.
        unsafe { free(qp) };
        Ok(())
    })
}

/// Bytes that `sdr_qp_info_get` writes.
///
/// # Safety
/// `qp` is NULL (an error) or a handle, `size` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_info_size_get(qp: *const sdr_qp, size: *mut usize) -> sdr_result {
    boundary("sdr_qp_info_size_get", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (qp, out) = unsafe { (get(qp, "qp")?, Out::new(size, "size")?) };
        out.put(qp.inner.exchanged()?.len());
        Ok(())
    })
}

/// What the peer needs for `sdr_qp_connect`: opaque bytes. Fails when `size` is less than `sdr_qp_info_size_get` says.
///
/// # Safety
/// `qp` is NULL (an error) or a handle, `info` is NULL (an error) or valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_info_get(qp: *const sdr_qp, info: *mut c_void, size: usize) -> sdr_result {
    boundary("sdr_qp_info_get", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (qp, _) = unsafe { (get(qp, "qp")?, Out::new(info, "info")?) };
        let bytes = qp.inner.exchanged()?;
        if size < bytes.len() {
            return Err(Stop::error(format_args!("info has {size} bytes, {} are needed", bytes.len())));
        }
        // SAFETY: `info` is valid for `size` bytes, at least as many as are written.
        unsafe { info.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    })
}

impl Inner {
    fn exchanged(&self) -> Result<&[u8], Stop> {
        match self.info.as_slice() {
            [] => Err(Stop::text("a dialled or accepted queue pair has nothing to exchange")),
            bytes => Ok(bytes),
        }
    }
}

/// Connects a queue pair to the peer's, whose `sdr_qp_info_get` wrote `info`.
///
/// Where both sides differ in an attribute it fails, `sdr_last_error` names the attribute, and the queue pair can only be
/// destroyed. Bytes that are no such information are refused without that.
///
/// # Safety
/// `qp` is NULL (an error) or a handle, `info` is NULL (an error) or points to `size` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_connect(qp: *mut sdr_qp, info: *const c_void, size: usize) -> sdr_result {
    boundary("sdr_qp_connect", || {
        // SAFETY: the caller promises a handle or NULL, and `size` bytes or NULL.
        let (qp, _) = unsafe { (get(qp, "qp")?, get(info.cast::<u8>(), "info")?) };
        if size > isize::MAX as usize {
            return Err(Stop::text("size is not the size of anything"));
        }
        // SAFETY: `size` readable bytes.
        let bytes = unsafe { std::slice::from_raw_parts(info.cast::<u8>(), size) };
        let peer = QpInfo::try_from(bytes).map_err(Stop::error)?;
        let mut state = lock(&qp.inner.state);
        match std::mem::replace(&mut *state, State::Gone) {
            State::Created(created) => {
                let (send, recv) = created.connect(&peer).map_err(Stop::error)?;
                *state = State::Connected(send, recv);
                Ok(())
            }
            other => {
                *state = other;
                Err(Stop::text("the queue pair was connected before"))
            }
        }
    })
}

/// What a connected queue pair came to.
///
/// # Safety
/// `qp` is NULL (an error) or a handle, `state` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_qp_query(qp: *const sdr_qp, state: *mut sdr_qp_state) -> sdr_result {
    boundary("sdr_qp_query", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (qp, out) = unsafe { (get(qp, "qp")?, Out::new(state, "state")?) };
        let state = qp.inner.with(|send, _| {
            Ok(sdr_qp_state {
                max_message: send.max_message(),
                rtt_ns: send.rtt().0,
                payload: send.payload(),
                channels: send.channels().into(),
                user_immediate: send.user_immediate().into(),
                closed: send.closed().is_some().into(),
            })
        })?;
        out.put(state);
        Ok(())
    })
}

/// A connection attempt.
pub struct sdr_dialing {
    dialing: Mutex<Dialing>,
    shared: Arc<Shared>,
}

/// Starts to connect to the context that listens at `peer`, such as "192.0.2.1:7000". `attr` may be NULL.
///
/// Then call `sdr_poll` and `sdr_dial_poll` in turns:
///
/// ```c
/// sdr_dialing *dialing;
/// sdr_qp *qp;
/// sdr_result r = sdr_dial(context, "192.0.2.1:7000", NULL, &dialing);
/// if (r != SDR_SUCCESS) ...
/// do {
///     sdr_poll(context);
///     r = sdr_dial_poll(dialing, &qp);
/// } while (r == SDR_RETRY);
/// sdr_dial_free(dialing);
/// ```
///
/// # Safety
/// `context` is NULL (an error) or a handle, `peer` is NULL (an error) or a NUL-terminated string, `attr` is NULL or
/// points to attributes, `dialing` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_dial(
    context: *mut sdr_context,
    peer: *const c_char,
    attr: *const sdr_qp_attr,
    dialing: *mut *mut sdr_dialing,
) -> sdr_result {
    boundary("sdr_dial", || {
        // SAFETY: the caller promises a handle, a string, attributes, a place; or NULL.
        let (context, peer, attr, out) = unsafe {
            (
                get(context, "context")?,
                text(peer, "peer")?,
                get_or_default(attr),
                Out::new(dialing, "dialing")?,
            )
        };
        let shared = &context.shared;
        let to = address(peer, "peer")?;
        let dialing = shared.endpoint.connect(&shared.context, to, attr.config()?).map_err(Stop::error)?;
        out.put_handle(sdr_dialing { dialing: Mutex::new(dialing), shared: shared.clone() });
        Ok(())
    })
}

/// The connected queue pair, once there is one; `SDR_RETRY` while there is none yet. It is given once.
///
/// Nobody there, or refused: `SDR_ERROR`, some seconds later or at once. Both are final.
///
/// # Safety
/// `dialing` is NULL (an error) or a handle, `qp` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_dial_poll(dialing: *mut sdr_dialing, qp: *mut *mut sdr_qp) -> sdr_result {
    boundary("sdr_dial_poll", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (dialing, out) = unsafe { (get(dialing, "dialing")?, Out::new(qp, "qp")?) };
        match lock(&dialing.dialing).poll() {
            Some(Ok(halves)) => {
                out.put_handle(sdr_qp::connected(dialing.shared.clone(), halves));
                Ok(())
            }
            Some(Err(e)) => Err(Stop::error(e)),
            None => Err(Stop::Retry("not connected yet")),
        }
    })
}

/// Frees a connection attempt; one under way is given up. NULL is allowed.
///
/// # Safety
/// `dialing` is NULL or a handle that nobody uses any more; afterwards it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_dial_free(dialing: *mut sdr_dialing) -> sdr_result {
    boundary("sdr_dial_free", || {
        if !dialing.is_null() {
            // SAFETY: the caller promises a handle that nobody uses any more.
            unsafe { free(dialing) };
        }
        Ok(())
    })
}

/// Takes a client that dials this context, with the attributes that it asks for; `SDR_RETRY` while there is none.
///
/// `SDR_ERROR` when its wishes cannot be met; it was told why, and the next call goes on with the next client.
///
/// # Safety
/// `context` is NULL (an error) or a handle, `qp` is NULL (an error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_accept(context: *mut sdr_context, qp: *mut *mut sdr_qp) -> sdr_result {
    boundary("sdr_accept", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (context, out) = unsafe { (get(context, "context")?, Out::new(qp, "qp")?) };
        let shared = &context.shared;
        let client = shared.endpoint.incoming().ok_or(Stop::Retry("nobody wants to connect"))?;
        let halves = shared.endpoint.accept(&shared.context, &client).map_err(Stop::error)?;
        out.put_handle(sdr_qp::connected(shared.clone(), halves));
        Ok(())
    })
}
