//! `status/bucket`: blocks, cache, requests and uploads of the bucket. An endpoint of our own.
//!
//! Not here: the counters themselves (`tsdb`, `bucket`), their metrics (`metrics::bucket`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use chronolith_tsdb::{Bucket, CacheSnapshot, FolderSummary, MeterSnapshot, Outcome, TsdbStats};
use serde_json::{Value, json};

use super::dispatch;
use super::error::ApiError;
use super::status::success;
use crate::web::Web;

/// Folders of the answer, those with most bytes first.
const FOLDERS_MAX: usize = 50;

/// State of the bucket as the server knows it, without a request to the bucket; `data` is null without one.
pub(super) async fn bucket(State(web): State<Arc<Web>>) -> Result<Response<Body>, ApiError> {
    let value = dispatch::run_status(&web, |web| match web.service.bucket.get() {
        Some(sources) => bucket_value(web, sources.bucket()),
        None => Value::Null,
    });
    Ok(success(&value.await?))
}

fn bucket_value(web: &Web, bucket: &Bucket) -> Value {
    let requests = bucket.requests();
    let mut folders = bucket.folders();
    folders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.folder.cmp(&b.folder)));
    let stats = web.service.lifecycle.opened().map(|store| store.statistics().stats());
    json!({
        "url": bucket.url(),
        "readOnly": bucket.is_read_only(),
        // Folders that a query or an upload has read; the others are not known.
        "folderCount": folders.len(),
        "blocks": folders.iter().map(|folder| folder.block_count as u64).sum::<u64>(),
        "blockBytes": folders.iter().map(|folder| folder.bytes).sum::<u64>(),
        "folders": folders.iter().take(FOLDERS_MAX).map(folder_value).collect::<Vec<_>>(),
        "cache": cache_value(&bucket.cache(), bucket.memory_bytes_max()),
        "requests": requests_value(&requests),
        "uploads": stats.as_ref().map(uploads_value),
    })
}

fn folder_value(folder: &FolderSummary) -> Value {
    json!({
        "folder": folder.folder,
        "blocks": folder.block_count,
        "blockBytes": folder.bytes,
        "minTime": folder.range_ms.map(|range| range.start),
        "maxTime": folder.range_ms.map(|range| range.end),
        "leftOut": folder.left_out_count,
        "damaged": folder.damaged_count,
        "ageSeconds": folder.age.as_secs(),
    })
}

fn cache_value(cache: &CacheSnapshot, memory_bytes_max: u64) -> Value {
    let disk = &cache.disk;
    let on_disk = disk.is_on.then(|| {
        json!({
            "bytes": disk.file_bytes,
            "entries": disk.entry_count,
            "hits": disk.hits,
            "misses": disk.misses,
            "evictions": disk.evictions,
            "damages": disk.damages,
        })
    });
    json!({
        "budgetBytes": memory_bytes_max,
        "headerBytes": cache.header_bytes,
        "headers": cache.header_count,
        "rangeBytes": cache.range_bytes,
        "inFlightBytes": cache.in_flight_bytes,
        "hits": cache.hits,
        "misses": cache.misses,
        "evictions": cache.evictions,
        "damages": cache.damages,
        "disk": on_disk,
    })
}

fn requests_value(requests: &MeterSnapshot) -> Value {
    let operations = requests.operations.iter().map(|operation| {
        let count_of = |is_wanted: &dyn Fn(Outcome) -> bool| -> u64 {
            operation.requests.iter().filter(|(outcome, _)| is_wanted(*outcome)).map(|(_, count)| count).sum()
        };
        let all = count_of(&|_| true);
        let mean_ms = (all > 0).then(|| operation.latency.sum_ns as f64 / 1e6 / all as f64);
        json!({
            "operation": operation.operation.as_str(),
            "requests": all,
            "failed": count_of(&|outcome| !is_answer(outcome)),
            "sentBytes": operation.sent_bytes,
            "receivedBytes": operation.received_bytes,
            "meanMs": mean_ms,
        })
    });
    let estimates = &requests.estimates;
    json!({
        "inFlight": requests.in_flight,
        "waits": requests.waits,
        "retries": requests.retries,
        "hedges": requests.hedges,
        "firstByteMs": estimates.first_byte_ns.map(|ns| ns as f64 / 1e6),
        "bytesPerSecond": estimates.bytes_per_second,
        "operations": operations.collect::<Vec<_>>(),
    })
}

/// Returns true for an outcome that requests expect, such as a missing object in the search for the newest
/// snapshot.
fn is_answer(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Ok | Outcome::NotFound | Outcome::Exists)
}

fn uploads_value(stats: &TsdbStats) -> Value {
    let metric = |name: &str| stats.metric(name).unwrap_or(0.0);
    json!({
        "waitingBlocks": metric("bucket_upload_waiting_blocks"),
        "waitingBytes": metric("bucket_upload_waiting_bytes"),
        "failures": metric("bucket_upload_failures_total"),
        "uploadedBlocks": metric("bucket_uploaded_blocks_total"),
        "compactions": metric("bucket_compactions_total"),
        "removedBlocks": metric("bucket_removed_blocks_total"),
        "maintenanceFailures": metric("bucket_maintenance_failures_total"),
    })
}
