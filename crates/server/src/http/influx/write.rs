//! Writes in line protocol: `POST /write` and `POST /api/v2/write`.
//!
//! Invariants: 204 means that every point is as durable as the sync mode promises; 400 names a cause of
//! points that are not stored while the others are; 5xx means that nothing is acknowledged. A request waits
//! for its permits before its body is parsed, so memory does not grow with the number of writers.
//! Not here: the line protocol (`ingest`), unpacking (`inflate`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use chronolith_ingest::line_protocol::{
    self, DecodeOptions, DroppedPoints, Precision, Refused, StoreRefused, conflict_text,
};
use chronolith_model::databases::{Database, RetentionPolicy};
use chronolith_model::{Reject, TenantId, WriteBatch, WriteOutcome};
use chronolith_tsdb::{Tsdb, WalError, WriteError};

use super::credentials::Caller;
use super::inflate::inflate;
use super::reply::InfluxError;
use crate::app::App;
use crate::http::body::{self, BodyBytes};
use crate::http::params::Params;
use crate::http::tenant::tenant_of;
use crate::http::write::WritePermits;

/// Bytes of memory per byte of a body: the body, and its columns.
const DECODED_FACTOR: u64 = 2;

/// Version of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    V1,
    V2,
}

/// A request whose parameters have been checked.
struct WriteRequest {
    tenant: TenantId,
    /// Store of the retention policy.
    target: TenantId,
    retention_ns: i64,
    precision: Precision,
    is_gzip: bool,
}

pub(super) async fn write(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    answer(&app, Api::V1, request).await
}

pub(super) async fn write_v2(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    answer(&app, Api::V2, request).await
}

async fn answer(app: &Arc<App>, api: Api, request: Request) -> Response<Body> {
    match receive(app, api, request).await {
        Ok(()) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Err(error) => error.into_response(),
    }
}

async fn receive(app: &Arc<App>, api: Api, request: Request) -> Result<(), InfluxError> {
    let (parts, request_body) = request.into_parts();
    let checked = check(app, api, parts.uri.query().unwrap_or(""), &parts.headers).await;
    let (store, request) = match checked {
        Ok(checked) => checked,
        Err(refused) => {
            body::discard(request_body).await;
            return Err(refused);
        }
    };
    let memory = app.admission.write_memory.of(&request.tenant, 0);
    let body = body::read(request_body, app.options.influx.body_bytes_max, &memory.budget).await?;
    let permits = WritePermits::acquire(app, &request.tenant).await?;
    let shared = app.clone();
    // The thread continues when the client disconnects: the append is completed, and the permits are held
    // until then.
    let done = tokio::task::spawn_blocking(move || store_body(&shared, &store, &request, body, permits));
    done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "line protocol write panicked");
        let message = "internal error: the write panicked, see the server's log";
        Err(InfluxError::new(StatusCode::INTERNAL_SERVER_ERROR, message))
    })
}

/// Checks everything that needs only parameters and headers.
async fn check(
    app: &Arc<App>,
    api: Api,
    query: &str,
    headers: &HeaderMap,
) -> Result<(Arc<Tsdb>, WriteRequest), InfluxError> {
    let mut params = Params::default();
    params.parse(query)?;
    let tenant = tenant_of(app.options.multitenancy, headers).map_err(crate::http::error::ApiError::from)?;
    let store = app.lifecycle.store()?.clone();
    let precision = params.get("precision").unwrap_or("");
    let precision = match api {
        Api::V1 => Precision::of_write(precision),
        Api::V2 => Precision::of_write_v2(precision),
    };
    let target = Target::of(api, &params)?;
    let catalog = store.databases();
    let database = catalog.of(&tenant).and_then(|own| own.database(&target.database));
    let Some(database) = database else {
        return Err(missing_database(app, &target.database));
    };
    Caller::of_request(app, &store, &tenant, headers, &params).await?.check_write(&target.database)?;
    let precision = precision.map_err(InfluxError::bad_request)?;
    check_consistency(params.get("consistency").unwrap_or(""))?;
    let policy = target.policy(database)?;
    let encoding = headers.get(header::CONTENT_ENCODING).map(|value| value.as_bytes());
    let request = WriteRequest {
        tenant,
        target: policy.store.clone(),
        retention_ns: policy.duration_ns,
        precision,
        is_gzip: encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case(b"gzip")),
    };
    Ok((store, request))
}

/// Database and retention policy that a request names.
struct Target {
    database: String,
    policy: String,
}

impl Target {
    fn of(api: Api, params: &Params) -> Result<Target, InfluxError> {
        match api {
            Api::V1 => {
                let database =
                    params.get("db").ok_or_else(|| InfluxError::bad_request("database is required"))?;
                Ok(Target {
                    database: database.to_owned(),
                    policy: params.get("rp").unwrap_or("").to_owned(),
                })
            }
            Api::V2 => {
                let bucket = params.get("bucket").unwrap_or("");
                let (database, policy) = bucket.split_once('/').unwrap_or((bucket, ""));
                if database.is_empty() {
                    let text = format!(
                        "bucket name {bucket:?} is missing a slash; not in \"database/retention-policy\" format"
                    );
                    return Err(InfluxError::new(StatusCode::NOT_FOUND, text));
                }
                Ok(Target { database: database.to_owned(), policy: policy.to_owned() })
            }
        }
    }

    fn policy<'a>(&self, database: &'a Database) -> Result<&'a RetentionPolicy, InfluxError> {
        database.policy(&self.policy).ok_or_else(|| {
            let name = if self.policy.is_empty() { &database.default_policy } else { &self.policy };
            // InfluxDB answers 500 here, and Telegraf knows the text.
            InfluxError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("retention policy not found: {name}"))
        })
    }
}

fn missing_database(app: &App, name: &str) -> InfluxError {
    if app.options.influx.prometheus_database.as_deref() == Some(name) {
        return InfluxError::new(StatusCode::FORBIDDEN, format!("database {name:?} is read only"));
    }
    InfluxError::new(StatusCode::NOT_FOUND, format!("database not found: {name:?}"))
}

/// There is one copy of the data, so all levels mean the same.
fn check_consistency(level: &str) -> Result<(), InfluxError> {
    match level.to_ascii_lowercase().as_str() {
        "" | "any" | "one" | "quorum" | "all" => Ok(()),
        _ => Err(InfluxError::bad_request("invalid consistency level")),
    }
}

/// Parses, appends, counts. Blocks the thread until the points are durable.
fn store_body(
    app: &App,
    store: &Tsdb,
    request: &WriteRequest,
    body: BodyBytes,
    permits: WritePermits,
) -> Result<(), InfluxError> {
    let WritePermits { write: _write, apply } = permits;
    let metrics = &app.metrics.write;
    metrics.bytes_compressed.add(body.bytes.len() as u64);
    let BodyBytes { bytes, mut held } = body;
    let bytes = match request.is_gzip {
        true => inflate(&bytes, app.options.write.decompressed_bytes_max, &mut held)?,
        false => bytes,
    };
    metrics.bytes_decompressed.add(bytes.len() as u64);
    let no_memory = |full| InfluxError::new(StatusCode::SERVICE_UNAVAILABLE, full);
    held.grow((bytes.len() as u64).saturating_mul(DECODED_FACTOR - 1)).map_err(no_memory)?;
    let now_ms = app.env.clock.now_ms();
    let options = DecodeOptions {
        line_bytes_max: app.options.influx.line_bytes_max,
        text_bytes_max: app.options.influx.text_bytes_max,
        ..DecodeOptions::new(request.precision, now_ms.saturating_mul(1_000_000))
    };
    let mut batch = app.influx.batches.take();
    let start_ns = app.env.clock.mono_ns();
    let refused = line_protocol::decode(bytes, &options, &mut batch);
    let decoded_ns = app.env.clock.mono_ns();
    metrics.decode.observe_ns(decoded_ns.saturating_sub(start_ns));
    app.metrics.line_protocol.count(&refused);
    let point_count = line_protocol::point_count(&batch);
    let earliest_ns = earliest_ns(request, now_ms);
    let old_count = points_before(&batch, earliest_ns);
    let applied = (!batch.times.is_empty()).then(|| store.apply(&request.target, &batch));
    // Waiting for the disk needs neither the batch nor a core.
    app.influx.batches.give(batch);
    drop((held, apply));
    let outcome = match applied {
        None => WriteOutcome::default(),
        Some(applied) => {
            let appended = applied.and_then(|applied| store.wait_durable(applied));
            metrics.append.observe_ns(app.env.clock.mono_ns().saturating_sub(decoded_ns));
            appended.map_err(|error| {
                metrics.failures.add(1);
                metrics.count_refused(&error);
                write_error(&error)
            })?
        }
    };
    metrics.count(&outcome);
    app.tenant_metrics.of(&request.tenant, now_ms).count(&outcome);
    match partial_write(&refused, &outcome, point_count, old_count) {
        None => Ok(()),
        Some(text) => Err(InfluxError::bad_request(text)),
    }
}

/// Words what was refused, as InfluxDB does; `None` if all points are stored.
fn partial_write(
    refused: &Refused,
    outcome: &WriteOutcome,
    point_count: u64,
    old_count: u64,
) -> Option<String> {
    let rejected = |kind: Reject| outcome.rejected[kind as usize];
    let conflict_count = rejected(Reject::FieldTypeConflict);
    let conflict = outcome.field_conflict.as_ref().map(|conflict| DroppedPoints {
        message: conflict_text(&conflict.field, &conflict.measurement, conflict.kind, conflict.existing),
        count: outcome.conflict_point_count,
    });
    let other_count = outcome.rejected_count() - conflict_count - rejected(Reject::TooOld);
    let first_other = outcome
        .first_rejects()
        .find(|(kind, ..)| !matches!(kind, Reject::FieldTypeConflict | Reject::TooOld));
    let series_limit = first_other.map(|(kind, ..)| DroppedPoints {
        message: match kind {
            Reject::SeriesLimit => "max-series-per-database limit exceeded".to_owned(),
            kind => kind.message().to_owned(),
        },
        count: other_count,
    });
    let store = StoreRefused { series_limit, conflict, beyond_retention_count: old_count };
    refused.answer(point_count, &store)
}

/// Earliest time that the retention policy keeps; `i64::MIN` if it keeps all.
fn earliest_ns(request: &WriteRequest, now_ms: i64) -> i64 {
    match request.retention_ns {
        0 => i64::MIN,
        retention_ns => now_ms.saturating_mul(1_000_000).saturating_sub(retention_ns),
    }
}

/// Number of points of a batch before a time.
fn points_before(batch: &WriteBatch, earliest_ns: i64) -> u64 {
    if earliest_ns == i64::MIN || batch.times.iter().all(|time| *time >= earliest_ns) {
        return 0;
    }
    if batch.rows.is_empty() {
        return batch.times.iter().filter(|time| **time < earliest_ns).count() as u64;
    }
    let old = batch.rows.iter().zip(&batch.times).filter(|(_, time)| **time < earliest_ns);
    let rows: Vec<u32> = old.map(|(row, _)| *row).collect();
    rows.chunk_by(|a, b| a == b).count() as u64
}

fn write_error(error: &WriteError) -> InfluxError {
    let status = match error {
        // What can never fit must not be sent again.
        WriteError::NeverFits { .. } | WriteError::BurstExceeded { .. } => StatusCode::BAD_REQUEST,
        WriteError::Wal(WalError::Poisoned(_)) | WriteError::Metadata(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    InfluxError::new(status, error)
}
