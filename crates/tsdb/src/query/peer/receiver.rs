//! Answer of a node, received and checked item by item.
//!
//! Invariants: the header has the form that was asked for; an answer without its end is an error; warnings
//! become warnings of the query.

use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_format::select::{AnswerDecoder, AnswerForm, AnswerItem, AnswerWarnings, SeriesEntry};
use chronolith_model::{QueryError, ReadContext};

use super::stale::StaleCalls;
use super::transport::PeerStream;
use crate::query::peer_failure::{answer_error, error_of, unavailable};

/// Answer that arrives.
pub(super) struct AnswerReceiver {
    node: Arc<str>,
    stream: Box<dyn PeerStream>,
    decoder: AnswerDecoder,
    form: AnswerForm,
    received_bytes: u64,
    /// Memory of the decoder.
    memory: Reservation,
    stale: Arc<StaleCalls>,
    ctx: ReadContext,
}

impl AnswerReceiver {
    /// Receiver of the answer of `node` in `form`.
    ///
    /// # Errors
    /// [`QueryError::Memory`].
    pub(super) fn new(
        node: &str,
        stream: Box<dyn PeerStream>,
        form: AnswerForm,
        ctx: &ReadContext,
    ) -> Result<AnswerReceiver, QueryError> {
        let memory = ctx.budget.reserve(0)?;
        let decoder = AnswerDecoder::default();
        let ctx = ctx.clone();
        let stale = Arc::default();
        Ok(AnswerReceiver { node: node.into(), stream, decoder, form, received_bytes: 0, memory, stale, ctx })
    }

    /// The same with a place for a refusal of the catalogue's number.
    pub(super) fn with_stale_calls(self, stale: Arc<StaleCalls>) -> AnswerReceiver {
        AnswerReceiver { stale, ..self }
    }

    /// Name of the node.
    pub(super) fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Context of the read.
    pub(super) fn ctx(&self) -> &ReadContext {
        &self.ctx
    }

    /// Returns true after the end of the answer.
    pub(super) fn is_ended(&self) -> bool {
        self.decoder.is_ended()
    }

    /// Reserves `bytes` until the receiver is dropped.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<(), QueryError> {
        Ok(self.memory.grow(bytes as u64)?)
    }

    /// Returns the error for an answer that differs from the call.
    pub(super) fn damage(&self, what: &str) -> QueryError {
        QueryError::Corrupt { path: format!("answer of node {}", self.node), what: what.to_owned() }
    }

    /// Reads the next entry of a frame of series; `None` at its end.
    pub(super) fn next_entry(
        &mut self,
        payload: &[u8],
        offset: &mut usize,
    ) -> Result<Option<SeriesEntry>, QueryError> {
        self.decoder.next_entry(payload, offset).map_err(|error| answer_error(&self.node, &error))
    }

    /// Waits for the next item with series, a list or an estimate; `None` after the end.
    pub(super) fn next_item(&mut self) -> Result<Option<AnswerItem>, QueryError> {
        loop {
            self.ctx.check_source()?;
            let item = self.decoder.next_item().map_err(|error| answer_error(&self.node, &error))?;
            match item {
                None => self.receive()?,
                Some(AnswerItem::Header(header)) if header.form == self.form => {}
                Some(AnswerItem::Header(_)) => {
                    return Err(self.damage("another form than asked for"));
                }
                Some(AnswerItem::Warnings(warnings)) => self.warn(warnings)?,
                Some(AnswerItem::Failed(failure)) => return Err(error_of(&self.node, failure)),
                Some(AnswerItem::End(_)) => return Ok(None),
                Some(item) => return Ok(Some(item)),
            }
        }
    }

    /// Waits for further bytes of the answer.
    fn receive(&mut self) -> Result<(), QueryError> {
        let received = self.stream.next_bytes(&self.ctx).map_err(|error| match error {
            QueryError::Unavailable { what } if self.stream.is_stale() => {
                self.stale.note(format!("node {}: {what}", self.node));
                // No error of a source: a partial result would have a gap.
                QueryError::Canceled
            }
            QueryError::Unavailable { what } => unavailable(&self.node, &what),
            other => other,
        })?;
        let Some(bytes) = received else {
            let what = format!("the answer ends after {} bytes without its end", self.received_bytes);
            return Err(unavailable(&self.node, &what));
        };
        self.received_bytes = self.received_bytes.saturating_add(bytes.len() as u64);
        self.decoder.push(&bytes);
        let missing = (self.decoder.heap_bytes() as u64).saturating_sub(self.memory.bytes());
        Ok(self.memory.grow(missing)?)
    }

    fn warn(&self, warnings: AnswerWarnings) -> Result<(), QueryError> {
        let AnswerWarnings { is_partial, texts } = warnings;
        if is_partial {
            let part = format!("node {}", self.node);
            return self.ctx.warn_partial(&part, QueryError::Unavailable { what: texts.join("; ") });
        }
        texts.into_iter().for_each(|text| self.ctx.warn(format!("node {}: {text}", self.node)));
        Ok(())
    }
}
