//! Remote write 1.0: `POST /api/v1/write` (and `/api/v1/push`).
//!
//! Holds: 204 means that every sample is as durable as the sync mode promises; 400 names the first sample
//! that is not stored while the others are; 5xx means that nothing is acknowledged.
//! Not here: protobuf and snappy (`ingest`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use chronolith_base::ByteReader;
use chronolith_ingest::remote_write::{self, DecodeError};
use chronolith_model::{TenantId, WriteBatch, WriteOutcome};
use chronolith_tsdb::{Tsdb, WriteError};

use super::body::{self, BodyBytes};
use super::error::{ApiError, ErrorKind, text};
use crate::app::App;
use crate::limits::WRITE_QUEUE_WAIT;
use crate::tenant::tenant_of;

/// Samples stored, as remote write 2.0 names it; harmless to senders of 1.0.
const SAMPLES_WRITTEN_HEADER: &str = "x-prometheus-remote-write-samples-written";
/// Memory of a decoded batch, in decompressed bytes: the bytes themselves and the columns.
const DECODED_FACTOR: u64 = 2;

pub(super) async fn write(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    match receive(&app, request).await {
        Ok(outcome) => answer(&outcome),
        Err(refused) => refused.into_text(),
    }
}

async fn receive(app: &Arc<App>, request: Request) -> Result<WriteOutcome, ApiError> {
    let (parts, request_body) = request.into_parts();
    let (tenant, store) = match admit(app, &parts.headers) {
        Ok(admitted) => admitted,
        Err(refused) => {
            body::discard(request_body).await;
            return Err(refused);
        }
    };
    let options = &app.options.write;
    let mut body = body::read(request_body, options.compressed_bytes_max, &app.write_budget).await?;
    let decompressed =
        decompressed_bytes(&body.bytes).filter(|n| *n <= options.decompressed_bytes_max as u64);
    let no_memory = |full| ApiError::new(ErrorKind::Unavailable, full);
    body.held.grow(decompressed.unwrap_or(0).saturating_mul(DECODED_FACTOR)).map_err(no_memory)?;
    app.metrics.write.bytes_compressed.add(body.bytes.len() as u64);
    app.metrics.write.bytes_decompressed.add(decompressed.unwrap_or(0));
    let place = app.write_gate.enter(WRITE_QUEUE_WAIT).await?;
    let shared = app.clone();
    // The thread goes on when the client leaves: what is half done is finished, and the place is kept till then.
    let done = tokio::task::spawn_blocking(move || {
        let _place = place;
        store_body(&shared, &store, &tenant, body)
    });
    match done.await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "a write ended in a panic");
            let message = "the write failed because of a bug in the server";
            Err(ApiError::new(ErrorKind::Internal, message))
        }
    }
}

/// What can be said before the body is read.
fn admit(app: &App, headers: &HeaderMap) -> Result<(TenantId, Arc<Tsdb>), ApiError> {
    check_headers(headers).map_err(|why| ApiError::new(ErrorKind::UnsupportedMedia, why))?;
    let tenant = tenant_of(app.options.multitenancy, headers)?;
    Ok((tenant, app.store()?.clone()))
}

/// Decodes, appends, counts. Blocks the thread until the batch is durable.
fn store_body(app: &App, store: &Tsdb, tenant: &TenantId, body: BodyBytes) -> Result<WriteOutcome, ApiError> {
    let mut batch = app.batches.take();
    let result = decode_and_append(app, store, tenant, &body, &mut batch);
    app.batches.give(batch);
    result
}

fn decode_and_append(
    app: &App,
    store: &Tsdb,
    tenant: &TenantId,
    body: &BodyBytes,
    batch: &mut WriteBatch,
) -> Result<WriteOutcome, ApiError> {
    let (metrics, clock) = (&app.metrics.write, &app.env.clock);
    let start_ns = clock.mono_ns();
    let decoded = remote_write::decode(&body.bytes, app.options.write.decompressed_bytes_max, batch);
    let decoded_ns = clock.mono_ns();
    metrics.decode.observe_ns(decoded_ns.saturating_sub(start_ns));
    decoded.map_err(decode_error)?;
    let appended = store.append(tenant, batch);
    metrics.append.observe_ns(clock.mono_ns().saturating_sub(decoded_ns));
    match appended {
        Ok(outcome) => {
            metrics.count(&outcome);
            Ok(outcome)
        }
        Err(error) => {
            metrics.failures.add(1);
            Err(write_error(&error))
        }
    }
}

fn decode_error(error: DecodeError) -> ApiError {
    let kind = match error {
        DecodeError::TooLarge { .. } => ErrorKind::TooLarge,
        _ => ErrorKind::BadRequest,
    };
    ApiError::new(kind, error)
}

fn write_error(error: &WriteError) -> ApiError {
    let kind = match error {
        WriteError::DiskFull | WriteError::Closed => ErrorKind::Unavailable,
        WriteError::Poisoned(_) => ErrorKind::Internal,
    };
    ApiError::new(kind, error)
}

/// What a snappy block claims to unpack to.
fn decompressed_bytes(body: &[u8]) -> Option<u64> {
    ByteReader::new(body).uvarint("decompressed length").ok()
}

fn answer(outcome: &WriteOutcome) -> Response<Body> {
    let rejected = outcome.rejected_count();
    let mut response = match &outcome.first_reject {
        Some((kind, series, time_ms)) if rejected > 0 => {
            let total = rejected + outcome.accepted_count;
            let why = kind.message();
            let message = format!(
                "{rejected} of {total} samples rejected: first: {why}: series {series} time {time_ms}"
            );
            text(StatusCode::BAD_REQUEST, &message)
        }
        _ => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
    };
    response.headers_mut().insert(SAMPLES_WRITTEN_HEADER, HeaderValue::from(outcome.accepted_count));
    response
}

/// Absent headers are taken for the only format there is; others must name it.
fn check_headers(headers: &HeaderMap) -> Result<(), String> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
        && !encoding.is_empty()
        && !encoding.as_bytes().eq_ignore_ascii_case(b"snappy")
    {
        return Err(format!("Content-Encoding {encoding:?} is not supported: send snappy"));
    }
    let Some(kind) = headers.get(header::CONTENT_TYPE).filter(|kind| !kind.is_empty()) else {
        return Ok(());
    };
    let accepted = "application/x-protobuf (proto=prometheus.WriteRequest), remote write 1.0";
    let text = kind.to_str().map_err(|_| format!("Content-Type is not text: send {accepted}"))?;
    let mut parts = text.split(';').map(str::trim);
    if !parts.next().unwrap_or("").eq_ignore_ascii_case("application/x-protobuf") {
        return Err(format!("Content-Type {text:?} is not supported: send {accepted}"));
    }
    match parts.find_map(|part| part.strip_prefix("proto=")).map(|proto| proto.trim_matches('"')) {
        None | Some("prometheus.WriteRequest") => Ok(()),
        Some(proto) => Err(format!("protobuf message {proto:?} is not supported: send {accepted}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pairs: &[(header::HeaderName, &'static str)], want: Option<&str>) {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(name.clone(), HeaderValue::from_static(value));
        }
        match (check_headers(&headers), want) {
            (Ok(()), None) => {}
            (Err(found), Some(part)) => assert!(found.contains(part), "{found}"),
            (found, want) => panic!("{found:?} instead of {want:?}"),
        }
    }

    #[test]
    fn only_remote_write_one_is_taken() {
        let (kind, encoding) = (header::CONTENT_TYPE, header::CONTENT_ENCODING);
        check(&[], None);
        check(&[(kind.clone(), "application/x-protobuf"), (encoding.clone(), "snappy")], None);
        check(&[(kind.clone(), "application/x-protobuf; proto=prometheus.WriteRequest")], None);
        check(&[(kind.clone(), "application/x-protobuf; proto=\"prometheus.WriteRequest\"")], None);
        check(&[(kind.clone(), "application/x-protobuf; charset=utf-8")], None);
        check(&[(kind.clone(), ""), (encoding.clone(), "")], None);
        check(&[(encoding, "gzip")], Some("gzip"));
        check(&[(kind.clone(), "text/plain")], Some("application/x-protobuf"));
        check(&[(kind.clone(), "application/x-protobuf;proto=foo.Bar")], Some("foo.Bar"));
        let v2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
        check(&[(kind, v2)], Some("prometheus.WriteRequest"));
    }
}
