//! Bodies with points: admitted as remote write is, decoded piece by piece, durable together.
//!
//! Invariants: a request waits for a permit before its body is read, and for memory before it is decoded.
//! Not here: the protocols (`ingest::carbon`), the append (`crate::carbon`).

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header;
use chronolith_cluster::gateway::LogOffsets;
use chronolith_ingest::carbon::{INPUT_BYTES_MAX, decode_metrics};
use chronolith_service::access::Identity;
use chronolith_service::activity::rejects::WriteSender;
use chronolith_service::limits::WRITE_QUEUE_WAIT;
use chronolith_service::write::destination::{Applied, Destination};
use tokio::time::Instant;

use crate::http::body::{self, BodyBytes};
use crate::http::error::{ApiError, ErrorKind};
use crate::http::inflate::{InflateError, claimed_bytes, inflate};
use crate::http::request::RequestInfo;
use crate::http::sender::identity_of;
use crate::http::write::admit::{self, BodyLimits, WritePermits};
use crate::web::Web;
use chronolith_service::carbon::append::{
    Appended, PointTarget, Rejected, append_lines, append_points, wait_durable,
};

/// Bytes of columns and wire keys per byte of a body, at most: a point of four bytes has a series, a time and
/// a value.
const DECODED_FACTOR: u64 = 9;

/// Form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Lines,
    Metrics,
}

/// A body to store.
struct WriteRequest {
    form: Form,
    identity: Identity,
    is_gzip: bool,
    /// As examples of refused points name it.
    sender: WriteSender,
}

/// Stores the points of a request; returns their offsets in the replicated log, if they went there.
pub(super) async fn receive(web: &Arc<Web>, form: Form, request: Request) -> Result<LogOffsets, ApiError> {
    let (parts, request_body) = request.into_parts();
    let checked = identity_of(&parts.extensions)
        .map_err(ApiError::from)
        .and_then(|identity| Ok((identity, web.service.lifecycle.destination()?)));
    let (identity, destination) = match checked {
        Ok(checked) => checked,
        Err(refused) => {
            body::discard(request_body).await;
            return Err(refused);
        }
    };
    let encoding = parts.headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes());
    let is_gzip = encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case(b"gzip"));
    // Timers are the runtime's own business; nothing that is stored depends on them.
    let deadline = Instant::now() + WRITE_QUEUE_WAIT;
    let memory = web.service.admission.write_memory.of(identity.tenant(), 0);
    let bytes_max = web.service.options.write.compressed_bytes_max;
    let limits = BodyLimits { bytes_max, budget: &memory.budget, memory_wait: WRITE_QUEUE_WAIT };
    let (mut body, permits) = admit::admit(web, &identity, request_body, limits).await?;
    let unpacked_bytes = match is_gzip {
        true => claimed_bytes(&body.bytes, web.service.options.write.decompressed_bytes_max) as u64,
        false => 0,
    };
    let piece_bytes = (body.bytes.len() as u64).max(unpacked_bytes).min(INPUT_BYTES_MAX as u64);
    let more = unpacked_bytes + piece_bytes * DECODED_FACTOR;
    body::grow_waiting(&mut body.held, more, deadline)
        .await
        .map_err(|full| ApiError::new(ErrorKind::Unavailable, full))?;
    let shared = web.clone();
    let sender = RequestInfo::of(&parts.extensions).write_sender(&parts.headers);
    let request = WriteRequest { form, identity, is_gzip, sender };
    // The thread continues when the client disconnects: the append is completed.
    let done =
        tokio::task::spawn_blocking(move || store_body(&shared, &destination, &request, body, permits));
    done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "write of carbon points panicked");
        let message = "internal error: the write panicked, see the server's log";
        Err(ApiError::new(ErrorKind::Internal, message))
    })
}

/// Decodes, appends, counts. Blocks the thread until the points are durable.
fn store_body(
    web: &Web,
    store: &Destination,
    request: &WriteRequest,
    body: BodyBytes,
    permits: WritePermits,
) -> Result<LogOffsets, ApiError> {
    let WritePermits { write: _write, apply } = permits;
    let metrics = &web.service.writes.metrics;
    metrics.bytes_compressed.add(body.bytes.len() as u64);
    let BodyBytes { bytes, mut held } = body;
    let bytes = match request.is_gzip {
        true => {
            let bytes_max = web.service.options.write.decompressed_bytes_max;
            let claimed = claimed_bytes(&bytes, bytes_max);
            inflate(&bytes, bytes_max, claimed, &mut held)?
        }
        false => bytes,
    };
    metrics.bytes_decompressed.add(bytes.len() as u64);
    let input = web.service.carbon.of_http();
    let to = PointTarget { input, identity: &request.identity, prefix: "", sender: &request.sender };
    let (stored, outcome) = match request.form {
        Form::Lines => {
            let (appended, outcome) =
                append_lines(&web.service.writes, &web.service.carbon, store, to, &bytes);
            (appended, outcome.map_err(|error| unavailable(error.text)))
        }
        Form::Metrics => append_metrics(web, store, to, &bytes),
    };
    drop(held);
    let _uncommitted = apply.into_uncommitted(stored.applied.as_ref().map_or(0, Applied::wal_bytes));
    // Points that were appended before a failure are visible, and durable before the answer.
    let rejected = match stored.applied {
        Some(applied) => wait_durable(&web.service.writes, store, to, applied).map_err(unavailable)?,
        None => Rejected::default(),
    };
    outcome?;
    match stored.refused {
        None if rejected.point_count == 0 => Ok(rejected.offsets),
        None => {
            let Rejected { point_count, message, .. } = rejected;
            Err(ApiError::bad_request(format!("{point_count} points refused, {message}")))
        }
        Some((count, newest)) => {
            let count = count + rejected.point_count;
            Err(ApiError::bad_request(format!("{count} points refused, {newest}")))
        }
    }
}

fn append_metrics(
    web: &Web,
    store: &Destination,
    to: PointTarget<'_>,
    bytes: &[u8],
) -> (Appended, Result<(), ApiError>) {
    let mut failure = None;
    match append_points(&web.service.writes, &web.service.carbon, store, to, |points| {
        failure = decode_metrics(bytes, points).err()
    }) {
        Ok(appended) => (appended, failure.map_or(Ok(()), |error| Err(ApiError::bad_request(error)))),
        Err(error) => (Appended::default(), Err(unavailable(error.text))),
    }
}

fn unavailable(error: String) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, error)
}

impl From<InflateError> for ApiError {
    fn from(error: InflateError) -> ApiError {
        match error {
            InflateError::Memory => {
                ApiError::new(ErrorKind::Unavailable, "no memory for the unpacked body, try again")
            }
            InflateError::TooLarge => {
                ApiError::new(ErrorKind::TooLarge, "the unpacked body is larger than allowed")
            }
            InflateError::Cut => ApiError::bad_request("gzip: unexpected end of the body"),
            InflateError::Invalid(what) => ApiError::bad_request(format!("gzip: {what}")),
        }
    }
}
