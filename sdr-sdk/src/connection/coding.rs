//! Parity of one message: computed before it leaves, and used for what is missing when it has arrived.
//!
//! Both are done in steps, so that a poll stays short. The memory is that of the message and a block of [`Scratch`]
//! (`super::scratch`); all of it is reached by raw pointers.

use crate::ec::{Code, Coder, DecodeJob, DecodePlan, EcError, EncodeJob, Readable, Writable};
use crate::memory::{RawSlice, SendBuf};
use crate::reliability::{RangeSet, Shortage, Stripes};
use crate::{ec, reliability::MessageSpec};
use std::ops::Range;

/// Bytes of data that one step reads, about.
const STEP: usize = 1 << 20;

/// The protected part of a message, as the codes see it.
#[derive(Clone, Copy, Debug)]
struct Protected {
    code: Code,
    stripes: Stripes,
    layout: ec::Stripes,
    /// Where it begins in the message.
    offset: usize,
}

impl Protected {
    fn new(m: &MessageSpec, stripes: Stripes, code: Code) -> Result<Self, EcError> {
        let offset = stripes.start as usize * m.payload as usize;
        let bytes = m.bytes as usize - offset;
        let layout = ec::Stripes::new(bytes, m.payload as usize, stripes.k as usize, stripes.depth as usize)?;
        Ok(Self { code, stripes, layout, offset })
    }

    fn of(&self, message: RawSlice) -> RawSlice {
        message.slice(self.offset, self.layout.bytes())
    }
}

/// The sender's parity.
pub(super) struct Parity {
    protected: Protected,
    memory: SendBuf,
    /// Parity packets that are computed.
    ready: RangeSet,
    /// Stripes whose unasked rows are computed; those before were done in order.
    ahead: u32,
}

impl Parity {
    /// `memory` has room for all rows.
    pub(super) fn new(
        m: &MessageSpec,
        stripes: Stripes,
        code: Code,
        memory: SendBuf,
    ) -> Result<Self, EcError> {
        let protected = Protected::new(m, stripes, code)?;
        Ok(Self { protected, memory, ready: RangeSet::new(), ahead: 0 })
    }

    /// Bytes that [`new`](Self::new) wants.
    pub(super) fn bytes(m: &MessageSpec, stripes: &Stripes) -> usize {
        stripes.parity_packets() as usize * m.payload as usize
    }

    /// The bytes of parity packets, computed where they are not.
    pub(super) fn packets(
        &mut self,
        coder: &dyn Coder,
        message: &SendBuf,
        r: Range<u32>,
    ) -> Result<SendBuf, EcError> {
        let s = self.protected.stripes;
        let mut at = r.start;
        while at < r.end {
            let (stripe, row) = s.of_parity(at);
            let end = r.end.min(at + s.depth - stripe.column);
            // The first time a stripe is needed, all rows of it that will be sent.
            let rows = if row < s.sent { 0..s.sent } else { row..row + 1 };
            let columns = stripe.column..stripe.column + (end - at);
            self.complete(coder, message, stripe.group, columns, rows)?;
            at = end;
        }
        let payload = self.protected.layout.payload();
        Ok(self.memory.slice(r.start as usize * payload, r.len() * payload))
    }

    /// Computes some of what will be sent unasked; false when all of it is.
    pub(super) fn ahead(&mut self, coder: &dyn Coder, message: &SendBuf) -> Result<bool, EcError> {
        let s = self.protected.stripes;
        if self.ahead >= s.count() || s.sent == 0 {
            return Ok(false);
        }
        let (group, column) = (self.ahead / s.depth, self.ahead % s.depth);
        let stripe = s.k as usize * self.protected.layout.payload();
        let columns = column..s.depth.min(column + (STEP / stripe).max(1) as u32);
        self.ahead += columns.len() as u32;
        self.complete(coder, message, group, columns, 0..s.sent)?;
        Ok(true)
    }

    /// Computes `rows`, which are computed together, of those stripes of which they are not ready: what is may be on its way,
    /// and is never written again.
    fn complete(
        &mut self,
        coder: &dyn Coder,
        message: &SendBuf,
        group: u32,
        columns: Range<u32>,
        rows: Range<u32>,
    ) -> Result<(), EcError> {
        let first = self.protected.stripes.parity(reliability_stripe(group, columns.start), rows.start);
        let end = first + columns.len() as u32;
        let mut at = first;
        while at < end {
            at = match self.ready.next_from(at) {
                Some(r) if r.start <= at => r.end.min(end),
                next => {
                    let to = next.map_or(end, |r| r.start.min(end));
                    let columns = columns.start + (at - first)..columns.start + (to - first);
                    self.encode(coder, message, group, columns, rows.clone())?;
                    to
                }
            };
        }
        Ok(())
    }

    fn encode(
        &mut self,
        coder: &dyn Coder,
        message: &SendBuf,
        group: u32,
        columns: Range<u32>,
        rows: Range<u32>,
    ) -> Result<(), EcError> {
        let p = &self.protected;
        // SAFETY: the buffers keep both ranges mapped. The message is frozen. Of the parity nothing is written twice (it
        // is `ready` then), so nothing that was posted is written, and the block is lent to this message alone.
        let (data, parity) =
            unsafe { (Readable::new(p.of(message.raw())), Writable::new(self.memory.raw())) };
        coder.encode(&EncodeJob {
            code: p.code,
            layout: p.layout,
            group: group as usize,
            stripes: columns.start as usize..columns.end as usize,
            rows: rows.start as usize..rows.end as usize,
            allocated: p.stripes.rows as usize,
            data,
            parity,
        })?;
        for row in rows {
            let first = p.stripes.parity(reliability_stripe(group, columns.start), row);
            self.ready.insert(first..first + columns.len() as u32);
        }
        Ok(())
    }
}

fn reliability_stripe(group: u32, column: u32) -> crate::reliability::Stripe {
    crate::reliability::Stripe { group, column }
}

/// The receiver's work when what is missing follows from what arrived.
pub(super) struct Solving {
    protected: Protected,
    left: Vec<Shortage>,
}

impl Solving {
    pub(super) fn new(
        m: &MessageSpec,
        stripes: Stripes,
        code: Code,
        left: Vec<Shortage>,
    ) -> Result<Self, EcError> {
        Ok(Self { protected: Protected::new(m, stripes, code)?, left })
    }

    /// Computes some of what is missing; true when all of it is there.
    ///
    /// # Safety
    /// `message` and `parity` are the memory of the receive, armed, and what the shortages say of them holds.
    pub(super) unsafe fn step(
        &mut self,
        coder: &dyn Coder,
        message: RawSlice,
        parity: RawSlice,
    ) -> Result<bool, EcError> {
        let p = &self.protected;
        let mut budget = STEP;
        while budget > 0
            && let Some(lack) = self.left.last()
        {
            let plan = DecodePlan::new(p.code, p.layout.k(), &lack.missing, &lack.parity)?;
            let column = lack.stripe.column as usize;
            // SAFETY: the receive is armed, so both ranges are mapped; what is read has arrived, and packets that
            // arrive again carry the same bytes, as do those that arrive where this writes.
            let (data, parity) = unsafe { (Writable::new(p.of(message)), Readable::new(parity)) };
            coder.decode(&DecodeJob {
                plan: &plan,
                layout: p.layout,
                group: lack.stripe.group as usize,
                stripes: column..column + 1,
                allocated: p.stripes.rows as usize,
                parity,
                data,
            })?;
            budget = budget.saturating_sub(p.layout.k() * p.layout.payload() * lack.missing.len());
            self.left.pop();
        }
        Ok(self.left.is_empty())
    }
}

#[cfg(test)]
mod tests;
