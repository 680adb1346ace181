//! Response that is encoded piece by piece within the memory budget of its query.
//! Not here: JSON of values (`json`), responses that are streamed while their query runs (`stream`).

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use chronolith_base::Reservation;
use chronolith_model::ReadContext;

use super::body;
use super::compress::{PackedAnswer, Packing};
use super::error::ApiError;
use crate::json;
use crate::limits::{ANSWER_PART_BYTES, COMPRESSION_BLOCK_BYTES};

/// Prometheus's warning about an answer that `limit` has cut.
pub(super) const TRUNCATED_WARNING: &str = "results truncated due to limit";

/// An answer as it is printed; its memory counts in the budget of the query until its client has taken it.
pub(super) struct Printer {
    pub(super) out: Vec<u8>,
    held: Reservation,
    parts: Vec<Bytes>,
    /// Takes the parts in place of `parts`.
    packed: Option<PackedAnswer>,
}

impl Printer {
    /// An empty answer.
    pub(super) fn new(ctx: &ReadContext) -> Result<Printer, ApiError> {
        let held = ctx.budget.reserve(0).map_err(chronolith_model::QueryError::from)?;
        Ok(Printer { out: Vec::new(), held, parts: Vec::new(), packed: None })
    }

    /// Opens a successful answer; its data follows.
    pub(super) fn open(ctx: &ReadContext) -> Result<Printer, ApiError> {
        let mut printer = Printer::new(ctx)?;
        json::open_success(&mut printer.out);
        Ok(printer)
    }

    /// As [`Printer::open`], for an answer that may be large: it is compressed while it is printed.
    pub(super) fn open_packed(ctx: &ReadContext, packing: &Packing) -> Result<Printer, ApiError> {
        let printer = Printer::open(ctx)?;
        Ok(Printer { packed: packing.answer(), ..printer })
    }

    /// Reserves memory for the printed bytes and notices the end of the query; to be called after each item.
    pub(super) fn settle(&mut self, ctx: &ReadContext) -> Result<(), ApiError> {
        let grown = (self.out.capacity() as u64).saturating_sub(self.held.bytes());
        if grown > 0 {
            self.held.grow(grown).map_err(chronolith_model::QueryError::from)?;
            ctx.check()?;
        }
        let part_bytes = if self.packed.is_some() { COMPRESSION_BLOCK_BYTES } else { ANSWER_PART_BYTES };
        if self.out.len() >= part_bytes {
            let held = ctx.budget.reserve(0).map_err(chronolith_model::QueryError::from)?;
            let next = Vec::with_capacity(part_bytes + part_bytes / 8);
            let part =
                body::held(std::mem::replace(&mut self.out, next), std::mem::replace(&mut self.held, held));
            match &mut self.packed {
                Some(packed) => packed.push(part, ctx)?,
                None => self.parts.push(part),
            }
        }
        Ok(())
    }

    /// Closes a successful answer.
    pub(super) fn close(
        mut self,
        ctx: &ReadContext,
        warnings: &[String],
        infos: &[String],
    ) -> Result<Printer, ApiError> {
        json::close_success(&mut self.out, warnings, infos);
        self.settle(ctx)?;
        Ok(self)
    }

    /// The answer as JSON.
    pub(super) fn into_json(self) -> Response<Body> {
        self.into_response("application/json")
    }

    /// The answer with another type.
    pub(super) fn into_response(self, content_type: &'static str) -> Response<Body> {
        let last = body::held(self.out, self.held);
        let mut response = match self.packed {
            Some(packed) if packed.has_blocks() => packed.into_response(last),
            _ => {
                let mut parts = self.parts;
                parts.push(last);
                Response::new(body::parts(parts))
            }
        };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}
