//! Remote write 1.0 and 2.0: `POST /api/v1/write` (and `/api/v1/push`).
//!
//! Invariants: 204 means that every sample is as durable as the sync mode promises; 400 names the first
//! sample that is not stored while the others are, 429 on a gateway the first one of a new series of a full
//! tenant; other 429 and 5xx mean that nothing is stored or acknowledged.
//! Answers to 2.0 say how many samples, histograms and exemplars are stored.
//! Not here: protobuf and snappy (`ingest`), negotiation (`write::message`).

pub(crate) mod admit;
mod message;
mod sender;
mod written;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, StatusCode, header};
use chronolith_base::{ByteReader, MemoryBudget, Reservation};
use chronolith_cluster::gateway::Acknowledged;
use chronolith_ingest::remote_write::v2::{self, SeriesNaming};
use chronolith_ingest::remote_write::{self, DecodeError, Refused};
use chronolith_model::{Reject, WriteBatch, WriteOutcome};
use chronolith_service::access::Identity;
use chronolith_service::admission::{Permit, WRITE_DECODED_FACTOR};
use chronolith_service::write::destination::Destination;
use chronolith_service::write::{OnePiece, StoreFailure, TargetStore, WriteFailure, WriteTarget, Writing};
use chronolith_tsdb::{WalError, WriteError, Writer};
use tokio::time::Duration;

use self::admit::{BodyLimits, WritePermits};
use self::message::{Message, message_of};
use self::sender::Sender;
use self::written::Written;
use super::body::{self, BodyBytes};
use super::error::{ApiError, ErrorKind, text};
use super::offsets;
use super::request::RequestInfo;
use super::sender::identity_of;
use crate::limits::HEAD_FULL_RETRY_AFTER_SECONDS;
use crate::web::Web;

/// Counts of stored samples, histograms and exemplars, in answers to remote write 2.0.
const SAMPLES_WRITTEN_HEADER: &str = "x-prometheus-remote-write-samples-written";
const HISTOGRAMS_WRITTEN_HEADER: &str = "x-prometheus-remote-write-histograms-written";
const EXEMPLARS_WRITTEN_HEADER: &str = "x-prometheus-remote-write-exemplars-written";

pub(super) async fn write(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let sender = Sender::of(&request);
    match receive(&web, request).await {
        Ok((message, written)) => {
            sender.note_rejects(&web, &written);
            answer(message, &written)
        }
        Err(refused) => {
            sender.note_refusal(&web, &refused.error, refused.limit);
            refused.error.into_text()
        }
    }
}

/// A request of which nothing is stored.
struct NotWritten {
    error: ApiError,
    /// Reason in metrics if a limit refused it.
    limit: Option<&'static str>,
}

impl From<ApiError> for NotWritten {
    fn from(error: ApiError) -> NotWritten {
        NotWritten { error, limit: None }
    }
}

async fn receive(web: &Arc<Web>, request: Request) -> Result<(Message, Written), NotWritten> {
    let (parts, request_body) = request.into_parts();
    let (message, identity, destination) = match check(web, &parts) {
        Ok(admitted) => admitted,
        Err(refused) => {
            body::discard(request_body).await;
            return Err(refused.into());
        }
    };
    let options = &web.service.options.write;
    let memory = web.service.admission.write_memory.of(identity.tenant(), 0);
    let limits = BodyLimits {
        bytes_max: options.compressed_bytes_max,
        budget: &memory.budget,
        memory_wait: Duration::ZERO,
    };
    let admitted = admit::admit(web, &identity, request_body, limits).await;
    let (mut body, permits) = admitted.map_err(ApiError::from)?;
    let decompressed =
        decompressed_bytes(&body.bytes).filter(|n| *n <= options.decompressed_bytes_max as u64);
    web.service.writes.metrics.bytes_compressed.add(body.bytes.len() as u64);
    web.service.writes.metrics.bytes_decompressed.add(decompressed.unwrap_or(0));
    // Only here: a request in the queue needs no more memory than its bytes as sent.
    let no_memory = |full| ApiError::new(ErrorKind::Unavailable, full);
    body.held.grow(decompressed.unwrap_or(0).saturating_mul(WRITE_DECODED_FACTOR)).map_err(no_memory)?;
    let shared = web.clone();
    let request_id = RequestInfo::of(&parts.extensions).id;
    // The thread continues when the client disconnects: the append is completed, and the permits are held
    // until then.
    let done = tokio::task::spawn_blocking(move || {
        let WritePermits { write: _write, apply } = permits;
        let target = WriteTarget { identity: &identity, store: TargetStore::Default, writer: Writer::Client };
        let writing = shared.service.writes.begin(&destination, target).of_request(&request_id);
        store_body(&shared, writing, message, body, &memory.budget, apply)
    });
    match done.await {
        Ok(result) => result.map(|written| (message, written)),
        Err(error) => {
            tracing::error!(%error, "remote write panicked");
            let message = "internal error: the write panicked, see the server's log";
            Err(ApiError::new(ErrorKind::Internal, message).into())
        }
    }
}

/// Checks that need only the headers.
fn check(web: &Web, parts: &Parts) -> Result<(Message, Identity, Destination), ApiError> {
    let message =
        message_of(&parts.headers).map_err(|why| ApiError::new(ErrorKind::UnsupportedMedia, why))?;
    let identity = identity_of(&parts.extensions)?;
    Ok((message, identity, web.service.lifecycle.destination()?))
}

/// Decodes, appends, counts. Blocks the thread until the batch is durable.
fn store_body(
    web: &Web,
    mut writing: Writing<'_>,
    message: Message,
    mut body: BodyBytes,
    memory: &MemoryBudget,
    apply: Permit,
) -> Result<Written, NotWritten> {
    let mut histograms_held = memory.reserve(0).map_err(|full| decode_error(full.into()))?;
    let mut refused = Refused::default();
    let mut decoder = OnePiece::new(|batch: &mut WriteBatch| {
        refused = decode(web, message, &mut body, &mut histograms_held, batch)?;
        Ok(())
    });
    let applied = writing.apply(&web.service.writes.pools.remote_write, &mut decoder);
    // Waiting for the disk needs no core.
    drop((body, histograms_held));
    let _uncommitted = apply.into_uncommitted(writing.wal_bytes());
    applied.map_err(|failure| match failure {
        WriteFailure::Decode(error) => NotWritten { error, limit: None },
        WriteFailure::Store(failure) => failure.into(),
    })?;
    let goes_to_log = writing.goes_to_log();
    let Acknowledged { outcome, offsets } = writing.wait(|outcome| add_refused(outcome, &refused))?;
    web.service.writes.metrics.metadata_rejected.add(refused.metadata_count);
    let is_full = goes_to_log && outcome.rejected[Reject::SeriesLimit as usize] > 0;
    Ok(Written { message, outcome, refused, offsets, is_full })
}

impl From<StoreFailure> for NotWritten {
    fn from(failure: StoreFailure) -> NotWritten {
        match &failure {
            StoreFailure::Batch { error, limit } => NotWritten { error: write_error(error), limit: *limit },
            StoreFailure::Catalog(error) => ApiError::new(ErrorKind::Internal, error).into(),
            StoreFailure::Labels(error) => ApiError::new(ErrorKind::TooLarge, error).into(),
            StoreFailure::Log(error) => ApiError::from(error).into(),
        }
    }
}

fn decode(
    web: &Web,
    message: Message,
    body: &mut BodyBytes,
    histograms_held: &mut Reservation,
    batch: &mut WriteBatch,
) -> Result<Refused, ApiError> {
    let bytes_max = web.service.options.write.decompressed_bytes_max;
    let decoded = match message {
        Message::V1 => remote_write::decode(&body.bytes, bytes_max, histograms_held, batch),
        Message::V2 => {
            let naming = match web.service.options.features.type_and_unit_labels {
                true => SeriesNaming::TypeAndUnit,
                false => SeriesNaming::AsSent,
            };
            v2::decode(&body.bytes, bytes_max, &mut body.held, histograms_held, naming, batch)
        }
    };
    decoded.map_err(decode_error)
}

/// Adds samples that could not be decoded.
fn add_refused(outcome: &mut WriteOutcome, refused: &Refused) {
    let refused_count = refused.sample_count + refused.histogram_count;
    outcome.rejected[Reject::BadReference as usize] += refused_count;
    outcome.rejected[Reject::HistogramInvalid as usize] += refused.invalid_histogram_count;
    outcome.exemplars_rejected.add_all(&refused.exemplars);
}

fn decode_error(error: DecodeError) -> ApiError {
    let kind = match error {
        DecodeError::TooLarge { .. } => ErrorKind::TooLarge,
        DecodeError::NoMemory(_) => ErrorKind::Unavailable,
        _ => ErrorKind::BadRequest,
    };
    ApiError::new(kind, error)
}

fn write_error(error: &WriteError) -> ApiError {
    let kind = match error {
        WriteError::NoFileDescriptor
        | WriteError::TenantDeleted { .. }
        | WriteError::Wal(WalError::DiskFull | WalError::NoFileDescriptor | WalError::Closed) => {
            ErrorKind::Unavailable
        }
        WriteError::HeadFull { .. } | WriteError::TenantFull { .. } => {
            ErrorKind::TooManyRequests { retry_after_s: HEAD_FULL_RETRY_AFTER_SECONDS }
        }
        WriteError::RateLimited { retry_after_ms, .. }
        | WriteError::BytesRateLimited { retry_after_ms, .. } => {
            let seconds = u32::try_from(retry_after_ms.div_ceil(1000)).unwrap_or(u32::MAX);
            ErrorKind::TooManyRequests { retry_after_s: seconds.max(1) }
        }
        // A batch that can never fit must not be sent again.
        WriteError::NeverFits { .. }
        | WriteError::NeverFitsShare { .. }
        | WriteError::BurstExceeded { .. }
        | WriteError::BytesBurstExceeded { .. } => ErrorKind::BadRequest,
        WriteError::Wal(WalError::Poisoned(_)) | WriteError::Metadata(_) | WriteError::Marker(_) => {
            ErrorKind::Internal
        }
    };
    ApiError::new(kind, error)
}

/// Size that the start of a snappy block claims.
fn decompressed_bytes(body: &[u8]) -> Option<u64> {
    ByteReader::new(body).uvarint("decompressed length").ok()
}

fn answer(message: Message, written: &Written) -> Response<Body> {
    let mut response = match written.fault() {
        // Owners count again every few seconds, and series leave.
        Some(fault) if written.is_full => {
            let mut response = text(StatusCode::TOO_MANY_REQUESTS, &fault);
            let seconds = HeaderValue::from(HEAD_FULL_RETRY_AFTER_SECONDS);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
            response
        }
        Some(fault) => text(StatusCode::BAD_REQUEST, &fault),
        None => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
    };
    // A sender of 1.0 that met these headers would take the answer for one to 2.0.
    if message == Message::V2 {
        let outcome = &written.outcome;
        let headers = response.headers_mut();
        let float_count = outcome.accepted_count - outcome.histograms_accepted;
        headers.insert(SAMPLES_WRITTEN_HEADER, HeaderValue::from(float_count));
        headers.insert(HISTOGRAMS_WRITTEN_HEADER, HeaderValue::from(outcome.histograms_accepted));
        headers.insert(EXEMPLARS_WRITTEN_HEADER, HeaderValue::from(outcome.exemplars_accepted));
    }
    offsets::set(&written.offsets, &mut response);
    response
}

#[cfg(test)]
mod tests;
