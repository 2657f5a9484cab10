//! The context: a software NIC over UDP, the engine behind it, and the driver that makes its progress.

use crate::handle::{Out, free, get, get_or_default, lock, text};
use crate::status::{Stop, boundary, sdr_result};
use sdr_sdk::connection::ConnectionDriver;
use sdr_sdk::context::{Context, ContextConfig};
use sdr_sdk::driver::{Clock, Driver};
use sdr_sdk::engine::host::HostEngine;
use sdr_sdk::fabric::soft::{Endpoint, SoftFabric, UdpLink};
use sdr_sdk::types::Nanos;
use std::ffi::c_char;
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// Channels of a context that asks for none.
const CHANNELS: u8 = 4;

/// How long a waiting thread sleeps while another one makes the progress.
const NAP: Duration = Duration::from_micros(50);

/// What a context is to be. A zeroed structure asks for the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sdr_context_attr {
    /// Address and port to be found at, such as `192.0.2.1:7000` or `[::1]:0`; port 0 lets the system choose. NULL for a
    /// NIC that only dials.
    pub listen: *const c_char,
    /// Used only where `listen` is NULL: a server that will be dialled, for the family of addresses. NULL means IPv4.
    pub peer: *const c_char,
    /// Channels: packets are sprayed over them, each a flow of its own where the NIC dials. 0 means 4; 255 at most.
    pub channels: u32,
    /// No packet is on its way for longer than this, in nanoseconds. 0 means one second.
    pub packet_lifetime_ns: u64,
}

impl Default for sdr_context_attr {
    fn default() -> Self {
        Self { listen: ptr::null(), peer: ptr::null(), channels: 0, packet_lifetime_ns: 0 }
    }
}

/// A NIC in software and what belongs to it: memory, queue pairs, connections.
pub struct sdr_context {
    pub(crate) shared: Arc<Shared>,
}

/// What every handle of a context holds a count of.
pub(crate) struct Shared {
    // Before the context: connections end first.
    driver: Mutex<Driver>,
    /// Connections on their way to the driver: whoever makes them does not wait for a thread that polls.
    incoming: Mutex<Vec<ConnectionDriver>>,
    pub(crate) context: Context,
    pub(crate) endpoint: Endpoint,
    pub(crate) clock: Clock,
}

impl Shared {
    fn open(link: UdpLink, channels: u8, config: ContextConfig) -> Result<Arc<Self>, Stop> {
        let (fabric, endpoint) = SoftFabric::new(link);
        let engine = HostEngine::new(channels);
        let context = Context::open(Box::new(fabric), Box::new(engine), config).map_err(Stop::error)?;
        let clock = Clock::start();
        let driver = Mutex::new(Driver::new(context.clone(), clock));
        Ok(Arc::new(Self { driver, incoming: Mutex::default(), context, endpoint, clock }))
    }

    pub(crate) fn add(&self, connection: ConnectionDriver) {
        lock(&self.incoming).push(connection);
    }

    fn take_incoming(&self, driver: &mut Driver) {
        for connection in lock(&self.incoming).drain(..) {
            driver.add(connection);
        }
    }

    /// One pass, unless another thread is at it.
    fn poll(&self) {
        let mut driver = match self.driver.try_lock() {
            Ok(driver) => driver,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.take_incoming(&mut driver);
        driver.turn();
    }

    /// Makes progress, or lets another thread make it, until `done` gives something or the time is over.
    #[expect(clippy::disallowed_methods, reason = "a program's thread that waits for another")]
    pub(crate) fn wait<R>(&self, timeout: Nanos, mut done: impl FnMut() -> Option<R>) -> Option<R> {
        let deadline = self.clock.now() + timeout;
        loop {
            let mut driver = match self.driver.try_lock() {
                Ok(driver) => driver,
                Err(TryLockError::Poisoned(e)) => e.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    let result = done();
                    if result.is_some() || self.clock.now() >= deadline {
                        return result;
                    }
                    std::thread::sleep(NAP);
                    continue;
                }
            };
            return driver.run(deadline, |driver| {
                self.take_incoming(driver);
                done()
            });
        }
    }
}

pub(crate) fn address(text: &str, what: &str) -> Result<SocketAddr, Stop> {
    text.parse().map_err(|_| {
        Stop::error(format_args!("{what} is \"{text}\"; give an address and a port, such as 192.0.2.1:7000"))
    })
}

/// Opens a software NIC over UDP and a context on it.
///
/// `attr` may be NULL: a NIC that dials, with defaults.
///
/// # Safety
/// `attr` is NULL or points to an attribute structure whose strings are NULL or NUL-terminated. `context` is NULL (an
/// error) or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_context_create(
    attr: *const sdr_context_attr,
    context: *mut *mut sdr_context,
) -> sdr_result {
    boundary("sdr_context_create", || {
        // SAFETY: the caller promises this for `attr` and `context`.
        let (attr, out) = unsafe { (get_or_default(attr), Out::new(context, "context")?) };
        let channels = match u8::try_from(attr.channels) {
            Ok(0) => CHANNELS,
            Ok(n) => n,
            Err(_) => {
                return Err(Stop::error(format_args!("channels is {}, at most 255", attr.channels)));
            }
        };
        let link = if !attr.listen.is_null() {
            // SAFETY: the caller promises a NUL-terminated string.
            let at = address(unsafe { text(attr.listen, "listen") }?, "listen")?;
            UdpLink::listen(at, channels)
        } else {
            let peer = if attr.peer.is_null() {
                SocketAddr::from(([0, 0, 0, 0], 0))
            } else {
                // SAFETY: as above.
                address(unsafe { text(attr.peer, "peer") }?, "peer")?
            };
            UdpLink::dial(peer, channels)
        };
        let mut config = ContextConfig::default();
        if attr.packet_lifetime_ns != 0 {
            config = config.packet_lifetime(Nanos(attr.packet_lifetime_ns));
        }
        let shared = Shared::open(link.map_err(Stop::error)?, channels, config)?;
        out.put_handle(sdr_context { shared });
        Ok(())
    })
}

/// Closes the context; connections that were destroyed but still wind up are cut off. NULL is allowed.
///
/// Answers `SDR_RETRY`, and destroys nothing, while memory, a queue pair, a connection or any other handle of it exists.
///
/// # Safety
/// `context` is NULL or a handle that nobody uses any more; after success it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_context_destroy(context: *mut sdr_context) -> sdr_result {
    boundary("sdr_context_destroy", || {
        // SAFETY: the caller promises a handle or NULL.
        let Some(handle) = (unsafe { context.as_ref() }) else { return Ok(()) };
        if Arc::strong_count(&handle.shared) > 1 {
            return Err(Stop::Retry("handles of this context exist; destroy them first"));
        }
        // SAFETY: a handle that nobody uses any more.
        unsafe { free(context) };
        Ok(())
    })
}

/// Makes progress: takes what has come in, sends what is due, moves connections on. It does not wait.
///
/// Posts only record what is wanted; this call, and the waiting ones, act on it. Call it all the time while anything is
/// under way, and every few milliseconds while nothing is, or peers believe that this side is gone. With another thread
/// inside, it returns at once: that one makes the progress.
///
/// # Safety
/// `context` is NULL (an error) or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_poll(context: *mut sdr_context) -> sdr_result {
    boundary("sdr_poll", || {
        // SAFETY: the caller promises a handle or NULL.
        unsafe { get(context, "context") }?.shared.poll();
        Ok(())
    })
}

/// Where clients find this context, as text: what `sdr_dial` at the other side takes.
///
/// Writes at most `size` bytes, the terminating NUL included; 64 are enough. Fails when `size` is too small.
///
/// # Safety
/// `context` is NULL (an error) or a handle; `text` is NULL (an error) or valid for writes of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_context_address(
    context: *const sdr_context,
    text: *mut c_char,
    size: usize,
) -> sdr_result {
    boundary("sdr_context_address", || {
        // SAFETY: the caller promises a handle or NULL, and a place.
        let (context, _) = unsafe { (get(context, "context")?, Out::new(text, "text")?) };
        let address = context.shared.endpoint.local_addr().to_string();
        if address.len() >= size {
            let need = address.len() + 1;
            return Err(Stop::error(format_args!("text has {size} bytes, {need} are needed")));
        }
        // SAFETY: `text` is valid for `size` bytes, more than the address has; its NUL follows.
        unsafe {
            ptr::copy_nonoverlapping(address.as_ptr(), text.cast(), address.len());
            text.add(address.len()).write(0);
        }
        Ok(())
    })
}
