//! The conversation beside a run: JSON over a connection that always uses the same scheme.

use sdr_sdk::connection::{
    Connection, ConnectionConfig, ConnectionDriver, RecvResult, SendResult, Transfer, TransferError,
};
use sdr_sdk::context::{Context, QpConfig};
use sdr_sdk::memory::RecvBuf;
use sdr_sdk::qp::{Closed, RecvQp, SendQp};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One end of it. Dropping it closes the connection.
pub struct Talk {
    /// Who is at the other end.
    peer: &'static str,
    connection: Connection,
    context: Context,
    sends: Vec<Transfer<SendResult>>,
    recv: Option<Transfer<RecvResult>>,
}

impl Talk {
    /// What a queue pair for it looks like: small, because a server has one for every client.
    pub fn qp() -> QpConfig {
        QpConfig::default().channels(1).slots(8, 0)
    }

    /// With `peer` over a connected queue pair; messages to this side have at most `longest` bytes.
    pub fn new(
        peer: &'static str,
        context: &Context,
        halves: (SendQp, RecvQp),
        longest: usize,
    ) -> Result<(Self, ConnectionDriver), String> {
        let (connection, driver) = Connection::new(halves.0, halves.1, ConnectionConfig::default());
        let buf = context.register(longest).map_err(|e| e.to_string())?;
        let recv = Some(connection.recv(buf));
        Ok((Self { peer, connection, context: context.clone(), sends: Vec::new(), recv }, driver))
    }

    /// Says something.
    pub fn say(&mut self, message: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_vec(message).map_err(|e| e.to_string())?;
        let mut buf = self.context.register(text.len()).map_err(|e| e.to_string())?;
        buf.copy_from_slice(&text);
        self.sends.push(self.connection.send(buf.freeze(), None));
        Ok(())
    }

    /// What the other side said, if anything new.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        self.sends.retain_mut(|s| s.try_take().is_none());
        let Some(got) = self.recv.as_mut().and_then(Transfer::try_take) else { return Ok(None) };
        self.recv = None;
        let got = got.map_err(|e| self.lost(&e.why))?;
        let message = serde_json::from_slice(&got.buf[..got.len]);
        let message = message.map_err(|e| format!("the other side said what is not understood: {e}"))?;
        self.listen(got.buf);
        Ok(Some(message))
    }

    /// Why nothing more is heard.
    fn lost(&self, why: &TransferError) -> String {
        match why {
            TransferError::Lost { why: Closed::Peer(_), .. } => format!("{} stopped", self.peer),
            TransferError::Lost { why, .. } => format!("connection to {} lost: {why}", self.peer),
            other => other.to_string(),
        }
    }

    fn listen(&mut self, buf: RecvBuf) {
        self.recv = Some(self.connection.recv(buf));
    }

    /// Whether the other side has heard everything, or never will.
    pub fn heard(&mut self) -> bool {
        self.sends.retain_mut(|s| s.try_take().is_none());
        self.sends.is_empty() || self.connection.ended()
    }
}
