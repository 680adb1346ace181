//! An answer that is compressed while it is printed: each block is compressed by other threads as soon as it
//! is printed, so a large answer is never in memory as plain text.
//!
//! Invariants: the response begins when all is printed, so that an error is a status, never a cut answer;
//! printing waits while [`COMPRESSION_BLOCKS_AHEAD_MAX`] blocks are in flight; the memory of plain and
//! compressed bytes counts in the query.
//! Not here: printing (`printer`), responses of one block (`compress`).

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use chronolith_model::{QueryError, ReadContext};
use tokio::time::Instant;

use super::accept::Coding;
use super::blocks::PackedBody;
use super::encoder::{Encoder, PackError, Receiver};
use crate::http::error::{ApiError, ErrorKind};
use crate::limits::{ANSWER_TIMEOUT, COMPRESSION_BLOCK_BYTES, COMPRESSION_BLOCKS_AHEAD_MAX};
use crate::web::Web;

/// Coding of the answer to a request.
#[derive(Clone)]
pub(in crate::http) struct Packing {
    web: Arc<Web>,
    coding: Coding,
}

impl Packing {
    /// `coding` is [`Coding::Identity`] if the answer is not to be compressed while it is printed.
    pub(in crate::http) fn new(web: &Arc<Web>, coding: Coding) -> Packing {
        Packing { web: web.clone(), coding }
    }

    /// An answer that is compressed, if its client wants that.
    pub(in crate::http) fn answer(&self) -> Option<PackedAnswer> {
        let token = self.coding.token()?;
        Some(PackedAnswer {
            packing: self.clone(),
            token,
            encoder: None,
            done: VecDeque::new(),
            in_flight: VecDeque::new(),
        })
    }
}

/// The blocks of an answer.
pub(in crate::http) struct PackedAnswer {
    packing: Packing,
    token: &'static str,
    /// `None` before the first block.
    encoder: Option<Encoder>,
    done: VecDeque<Bytes>,
    in_flight: VecDeque<Receiver>,
}

impl PackedAnswer {
    /// Returns true if the response is to be sent by [`PackedAnswer::into_response`].
    pub(in crate::http) fn has_blocks(&self) -> bool {
        self.encoder.is_some()
    }

    /// Starts the compression of `bytes`, and waits while too many blocks are in flight.
    /// # Errors
    /// The memory of the query is used up; [`QueryError::Timeout`] on a thread that must not wait.
    pub(in crate::http) fn push(&mut self, bytes: Bytes, ctx: &ReadContext) -> Result<(), ApiError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // A short rest goes with the last block.
            let is_last = rest.len() < 2 * COMPRESSION_BLOCK_BYTES;
            let block = rest.split_to(if is_last { rest.len() } else { COMPRESSION_BLOCK_BYTES });
            while self.in_flight.len() >= COMPRESSION_BLOCKS_AHEAD_MAX {
                ctx.begin_wait()?;
                self.take_first()?;
                ctx.check()?;
            }
            let in_flight_count = self.in_flight.len();
            let receiver = self.encoder()?.start(vec![block], in_flight_count, Some(ctx.budget.clone()));
            self.in_flight.push_back(receiver);
        }
        Ok(())
    }

    fn encoder(&mut self) -> Result<&mut Encoder, ApiError> {
        match &mut self.encoder {
            Some(encoder) => Ok(encoder),
            none => {
                let encoder = Encoder::new(self.packing.web.clone(), self.packing.coding);
                Ok(none.insert(encoder.map_err(|error| failed(&error))?))
            }
        }
    }

    /// Waits for the first block in flight.
    fn take_first(&mut self) -> Result<(), ApiError> {
        let (Some(first), Some(encoder)) = (self.in_flight.pop_front(), &mut self.encoder) else {
            return Ok(());
        };
        let packed = match first.blocking_recv() {
            Ok(Ok(packed)) => packed,
            Ok(Err(PackError::Memory(full))) => return Err(QueryError::from(full).into()),
            Ok(Err(PackError::Library(error))) => return Err(failed(&error)),
            Err(_) => return Err(failed(&io::Error::other("a thread panicked, see the server's log"))),
        };
        self.done.push_back(encoder.take(packed));
        Ok(())
    }

    /// The response, `last` included.
    pub(in crate::http) fn into_response(self, last: Bytes) -> Response<Body> {
        let PackedAnswer { token, encoder, done, mut in_flight, .. } = self;
        let Some(mut encoder) = encoder else { return Response::new(Body::from(last)) };
        if !last.is_empty() {
            in_flight.push_back(encoder.start(vec![last], in_flight.len(), None));
        }
        // Timers are the runtime's own business; nothing that is stored depends on them.
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let body = Body::new(PackedBody::from_blocks(encoder, done, in_flight, deadline));
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(token));
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        response
    }
}

fn failed(error: &io::Error) -> ApiError {
    ApiError::new(ErrorKind::Internal, format_args!("compressing the response: {error}"))
}
