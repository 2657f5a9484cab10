//! From an address to a connected queue pair, and from a client to one: the steps of both sides in order.
//!
//! No clock and no waiting: [`Dialing::poll`] is called between polls of the context until it has a result.

#![forbid(unsafe_code)]

use super::{DialError, DialId, Endpoint, Incoming};
use crate::context::{Context, OpenError, QpConfig};
use crate::qp::{self, RecvQp, SendQp, UnconnectedQp};
use std::net::SocketAddr;

/// Why there is no connected queue pair.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The handshake failed.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No queue pair could be made for it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The peer's queue pair does not fit.
    #[error(transparent)]
    Mismatch(#[from] qp::ConnectError),
}

enum Stage {
    Probing,
    Waiting(UnconnectedQp),
    Over,
}

/// A connection attempt. Dropping it gives it up.
pub struct Dialing {
    endpoint: Endpoint,
    context: Context,
    config: QpConfig,
    id: DialId,
    stage: Stage,
}

impl Endpoint {
    /// Starts to connect a queue pair of `context`, which is open on this NIC, to the server at `to`. Where `config` names
    /// no payload size, the largest that passes is used; where it does, that is the largest tried.
    ///
    /// # Errors
    /// Too many attempts at once.
    pub fn connect(
        &self,
        context: &Context,
        to: SocketAddr,
        config: QpConfig,
    ) -> Result<Dialing, ConnectError> {
        let id = self.dial(to)?;
        let (endpoint, context) = (self.clone(), context.clone());
        Ok(Dialing { endpoint, context, config, id, stage: Stage::Probing })
    }

    /// Makes a queue pair of the shape that the client asks for, connects it and tells him; or refuses him, telling him
    /// the same reason.
    ///
    /// # Errors
    /// What was wrong with his wishes.
    pub fn accept(&self, context: &Context, client: &Incoming) -> Result<(SendQp, RecvQp), ConnectError> {
        let result = self.try_accept(context, client);
        if let Err(e) = &result {
            self.refuse(client, &e.to_string());
        }
        result
    }

    fn try_accept(&self, context: &Context, client: &Incoming) -> Result<(SendQp, RecvQp), ConnectError> {
        let theirs = &client.info;
        let config = QpConfig::default()
            .layout(theirs.spec.layout)
            .channels(theirs.spec.channels)
            .payload(theirs.spec.payload)
            .slots(theirs.spec.slots, theirs.spec.generations)
            .user_immediate(theirs.spec.user_immediate)
            .first(theirs.recv_first, theirs.send_first);
        let qp = context.create_qp(&config)?;
        let info = qp.info().clone();
        let halves = qp.connect(theirs)?;
        self.grant(client, &info);
        Ok(halves)
    }
}

impl Dialing {
    /// The connected halves or the reason why there are none, once; None while it is under way.
    pub fn poll(&mut self) -> Option<Result<(SendQp, RecvQp), ConnectError>> {
        let result = self.advance()?;
        self.stage = Stage::Over;
        Some(result)
    }

    fn advance(&mut self) -> Option<Result<(SendQp, RecvQp), ConnectError>> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Probing => {
                let Some(probed) = self.endpoint.payload(self.id) else {
                    self.stage = Stage::Probing;
                    return None;
                };
                let payload = match probed {
                    Ok(p) => {
                        if self.config.payload == 0 {
                            p
                        } else {
                            p.min(self.config.payload)
                        }
                    }
                    Err(e) => return Some(Err(e.into())),
                };
                let qp = match self.context.create_qp(&self.config.payload(payload)) {
                    Ok(qp) => qp,
                    Err(e) => return Some(Err(e.into())),
                };
                self.endpoint.hello(self.id, qp.info());
                self.stage = Stage::Waiting(qp);
                None
            }
            Stage::Waiting(qp) => match self.endpoint.result(self.id) {
                None => {
                    self.stage = Stage::Waiting(qp);
                    None
                }
                Some(Ok(info)) => Some(qp.connect(&info).map_err(Into::into)),
                Some(Err(e)) => Some(Err(e.into())),
            },
            Stage::Over => None,
        }
    }
}

impl Drop for Dialing {
    fn drop(&mut self) {
        self.endpoint.cancel(self.id);
    }
}
