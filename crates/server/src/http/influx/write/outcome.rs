//! End of a write: the wait for the disk, counters, and the answer about points that are not stored.

use axum::http::StatusCode;
use chronolith_cluster::gateway::{Acknowledged, GatewayError, LogOffsets};
use chronolith_ingest::line_protocol::{
    DropReason, DroppedPoints, ParseReason, Refused, StoreRefused, conflict_text,
};
use chronolith_model::{Reject, WriteBatch, WriteOutcome};
use chronolith_service::activity::rejects::RejectOrigin;
use chronolith_service::write::{StoreFailure, WriteFailure, Writing};
use chronolith_tsdb::{WalError, WriteError};

use super::super::reply::InfluxError;
use super::request::WriteRequest;
use crate::http::error::ApiError;
use crate::web::Web;

/// Points of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Points that were handed to the store.
    pub(super) points: u64,
    /// Points older than the retention policy keeps.
    pub(super) too_old: u64,
}

/// Words a failed write, and records which limit refused it.
pub(super) fn not_written(
    web: &Web,
    request: &WriteRequest,
    failure: WriteFailure<InfluxError>,
) -> InfluxError {
    match failure {
        WriteFailure::Decode(error) => error,
        WriteFailure::Store(failure) => failed(web, request, &failure),
    }
}

fn failed(web: &Web, request: &WriteRequest, failure: &StoreFailure) -> InfluxError {
    if let Some(reason) = failure.limit() {
        web.service.writes.rejects.record_text(reason, 1, &failure.to_string(), origin(web, request));
    }
    match failure {
        StoreFailure::Batch { error, .. } => write_error(error),
        StoreFailure::Catalog(error) => InfluxError::new(StatusCode::INTERNAL_SERVER_ERROR, error),
        StoreFailure::Labels(error) => InfluxError::new(StatusCode::PAYLOAD_TOO_LARGE, error),
        StoreFailure::Log(error) => log_error(error),
    }
}

fn origin<'a>(web: &Web, request: &'a WriteRequest) -> RejectOrigin<'a> {
    web.service.writes.origin(&request.tenant, &request.sender)
}

/// Records refused lines and points with an example of each reason.
fn record_rejects(web: &Web, request: &WriteRequest, refused: &Refused, outcome: &WriteOutcome, fault: &str) {
    let rejects = &web.service.writes.rejects;
    let origin = origin(web, request);
    rejects.record_outcome(outcome, request.target.time_unit(), fault, origin);
    let unparsable = ParseReason::ALL.iter().map(|reason| reason.label()).zip(refused.unparsable);
    let first_line = refused.messages.lines().next().unwrap_or(fault);
    unparsable.for_each(|(reason, count)| rejects.record_text(reason, count, first_line, origin));
    let dropped = DropReason::ALL.iter().map(|reason| reason.label()).zip(refused.dropped);
    dropped.for_each(|(reason, count)| rejects.record_text(reason, count, fault, origin));
}

/// Waits until a request is durable, and answers it with its offsets in the replicated log, if it went there.
pub(super) fn answer(
    web: &Web,
    request: &WriteRequest,
    refused: &Refused,
    writing: Writing<'_>,
    counts: Counts,
) -> Result<LogOffsets, InfluxError> {
    let waited = writing.wait(|_| {}).map_err(|failure| failed(web, request, &failure));
    let Acknowledged { outcome, offsets } = waited?;
    match partial_write(web, request, refused, &outcome, counts) {
        None => Ok(offsets),
        Some(text) => {
            record_rejects(web, request, refused, &outcome, &text);
            Err(InfluxError::bad_request(text))
        }
    }
}

/// Describes the refused points in the words of InfluxDB; `None` if all points are stored.
fn partial_write(
    web: &Web,
    request: &WriteRequest,
    refused: &Refused,
    outcome: &WriteOutcome,
    counts: Counts,
) -> Option<String> {
    if outcome.has_refused_shard_group {
        return Some("field type conflict".to_owned());
    }
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
    let limits = web.service.lifecycle.opened().map(|store| store.settings().limits_of(&request.target));
    let limits = limits.unwrap_or_default();
    let series_limit = first_other.map(|(kind, ..)| DroppedPoints {
        message: match (kind, &outcome.full_tag) {
            (Reject::SeriesLimit, _) => {
                format!("max-series-per-database limit exceeded: ({})", limits.series_max)
            }
            (Reject::TagValueLimit, Some(full)) => format!(
                "max-values-per-tag limit exceeded ({}/{}): measurement={:?} tag={:?} value={:?}",
                full.value_count, limits.databases.tag_values_max, full.measurement, full.tag, full.value
            ),
            (kind, _) => outcome.message(*kind).into_owned(),
        },
        count: other_count,
    });
    let store = StoreRefused { series_limit, conflict, beyond_retention_count: counts.too_old };
    refused.answer(counts.points, &store)
}

/// Earliest time that the retention policy keeps; `i64::MIN` if it keeps all.
pub(super) fn earliest_ns(request: &WriteRequest, now_ms: i64) -> i64 {
    match request.retention_ns {
        0 => i64::MIN,
        retention_ns => now_ms.saturating_mul(1_000_000).saturating_sub(retention_ns),
    }
}

/// Number of points of a batch before a time.
pub(super) fn points_before(batch: &WriteBatch, earliest_ns: i64) -> u64 {
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

/// Words an error of the replicated log. Unlike other bodies that are too large, this one was read, and the
/// text has both sizes.
fn log_error(error: &GatewayError) -> InfluxError {
    InfluxError::new(ApiError::from(error).kind.status(), error)
}

fn write_error(error: &WriteError) -> InfluxError {
    let status = match error {
        // A batch that can never fit must not be sent again.
        WriteError::NeverFits { .. }
        | WriteError::NeverFitsShare { .. }
        | WriteError::BurstExceeded { .. }
        | WriteError::BytesBurstExceeded { .. } => StatusCode::BAD_REQUEST,
        WriteError::Wal(WalError::Poisoned(_)) | WriteError::Metadata(_) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    InfluxError::new(status, error)
}
