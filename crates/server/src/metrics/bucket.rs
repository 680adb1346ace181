//! Metrics of requests to the bucket, on a server that reads one.

use chronolith_service::metrics::definition::Metric;
use chronolith_tsdb::{Bucket, CacheSnapshot, MeterSnapshot};

/// Counters of the bucket at one moment.
pub(crate) struct BucketState {
    requests: MeterSnapshot,
    cache: CacheSnapshot,
    /// Blocks whose `meta.json` is damaged.
    damaged_meta_count: usize,
}

impl BucketState {
    pub(crate) fn read(bucket: &Bucket) -> BucketState {
        let damaged_meta_count = bucket.damaged_meta_count();
        BucketState { requests: bucket.requests(), cache: bucket.cache(), damaged_meta_count }
    }
}

pub(crate) static BUCKET: &[Metric<BucketState>] = &[
    Metric::counters(
        "chronolith_bucket_requests_total",
        &["operation", "outcome"],
        "Requests to the bucket by operation and outcome, retries and hedges included.",
        |state, samples| {
            for operation in &state.requests.operations {
                let used = operation.requests.iter().filter(|(_, count)| *count > 0);
                for (outcome, count) in used {
                    samples.push(&[operation.operation.as_str(), outcome.as_str()], *count as f64);
                }
            }
        },
    ),
    Metric::counters(
        "chronolith_bucket_received_bytes_total",
        &["operation"],
        "Bytes of bodies received from the bucket by operation.",
        |state, samples| {
            for operation in &state.requests.operations {
                samples.push(&[operation.operation.as_str()], operation.received_bytes as f64);
            }
        },
    ),
    Metric::counters(
        "chronolith_bucket_tenant_requests_total",
        &["tenant"],
        "Requests to the bucket by tenant; `other` sums those beyond the first thousands.",
        |state, samples| {
            for (tenant, counters) in &state.requests.tenants {
                samples.push(&[&tenant.to_string()], counters.requests as f64);
            }
            samples.push(&["other"], state.requests.other_tenants.requests as f64);
        },
    ),
    Metric::gauge(
        "chronolith_bucket_requests_in_flight",
        "Requests to the bucket without an answer yet.",
        |state| state.requests.in_flight as f64,
    ),
    Metric::counter(
        "chronolith_bucket_request_waits_total",
        "Requests to the bucket that waited because bucket.max-requests or the limit of their tenant was reached.",
        |state| state.requests.waits as f64,
    ),
    Metric::counter(
        "chronolith_bucket_retries_total",
        "Requests to the bucket that were sent again.",
        |state| state.requests.retries as f64,
    ),
    Metric::counter(
        "chronolith_bucket_retries_refused_total",
        "Failed requests that were not sent again: too many failed, or the deadline was too near.",
        |state| state.requests.retries_refused as f64,
    ),
    Metric::counter(
        "chronolith_bucket_hedges_total",
        "Reads that were slower than the recent p99 and were sent a second time.",
        |state| state.requests.hedges as f64,
    ),
    Metric::counter(
        "chronolith_bucket_hedge_wins_total",
        "Second reads that were answered first.",
        |state| state.requests.hedge_wins as f64,
    ),
    Metric::gauge("chronolith_bucket_headers", "Index headers of blocks in memory.", |state| {
        state.cache.header_count as f64
    }),
    Metric::gauge("chronolith_bucket_header_bytes", "Memory of index headers of blocks.", |state| {
        state.cache.header_bytes as f64
    }),
    Metric::gauge("chronolith_bucket_range_bytes", "Memory of cached ranges of blocks.", |state| {
        state.cache.range_bytes as f64
    }),
    Metric::counter(
        "chronolith_bucket_range_hits_total",
        "Cached ranges of blocks that a query used.",
        |state| state.cache.hits as f64,
    ),
    Metric::counter(
        "chronolith_bucket_range_misses_total",
        "Requests for ranges of blocks that were not cached.",
        |state| state.cache.misses as f64,
    ),
    Metric::counter(
        "chronolith_bucket_range_waits_total",
        "Waits of a query for a range that another query had requested.",
        |state| state.cache.waits as f64,
    ),
    Metric::counter(
        "chronolith_bucket_cache_evictions_total",
        "Ranges and index headers of blocks that were dropped because bucket.memory was full.",
        |state| state.cache.evictions as f64,
    ),
    Metric::counter(
        "chronolith_bucket_range_hit_bytes_total",
        "Bytes of cached ranges of blocks that a query used.",
        |state| state.cache.hit_bytes as f64,
    ),
    Metric::counter(
        "chronolith_bucket_damages_total",
        "Ranges of blocks that failed a checksum and were read once more from the bucket.",
        |state| state.cache.damages as f64,
    ),
    Metric::gauge(
        "chronolith_bucket_damaged_meta_blocks",
        "Blocks without a catalogue whose meta.json is damaged, so that queries of their tenant fail.",
        |state| state.damaged_meta_count as f64,
    ),
    Metric::gauge(
        "chronolith_bucket_in_flight_bytes",
        "Memory of requests for ranges of blocks without an answer yet.",
        |state| state.cache.in_flight_bytes as f64,
    ),
    Metric::counter(
        "chronolith_bucket_local_sidecars_total",
        "Sidecars of blocks of other programs that were made of their indexes and kept in the cache.",
        |state| state.cache.local_sidecars.built as f64,
    ),
    Metric::counter(
        "chronolith_bucket_local_sidecar_bytes_total",
        "Bytes of sidecars that were made of the indexes of blocks.",
        |state| state.cache.local_sidecars.built_bytes as f64,
    ),
    Metric::counter(
        "chronolith_bucket_local_sidecar_failures_total",
        "Sidecars that could not be made of the index of a block.",
        |state| state.cache.local_sidecars.failures as f64,
    ),
    Metric::counter(
        "chronolith_bucket_local_sidecar_losses_total",
        "Sidecars in the cache that were damaged or evicted in part, so that the block is read by its index.",
        |state| state.cache.local_sidecars.losses as f64,
    ),
    Metric::gauge(
        "chronolith_bucket_disk_cache_on",
        "1 if bucket.cache-dir is in use; 0 without one, or after an error of its disk.",
        |state| f64::from(u8::from(state.cache.disk.is_on)),
    ),
    Metric::gauge("chronolith_bucket_disk_cache_bytes", "Bytes of the files in bucket.cache-dir.", |state| {
        state.cache.disk.file_bytes as f64
    }),
    Metric::gauge("chronolith_bucket_disk_cache_entries", "Ranges of blocks in bucket.cache-dir.", |state| {
        state.cache.disk.entry_count as f64
    }),
    Metric::gauge(
        "chronolith_bucket_disk_cache_index_bytes",
        "Estimated memory of the index of bucket.cache-dir, which is not part of bucket.memory.",
        |state| state.cache.disk.index_bytes as f64,
    ),
    Metric::gauge(
        "chronolith_bucket_disk_cache_waiting_bytes",
        "Memory of ranges that wait to be written to bucket.cache-dir.",
        |state| state.cache.disk.waiting_bytes as f64,
    ),
    Metric::counter(
        "chronolith_bucket_disk_cache_hits_total",
        "Ranges of blocks that were read from bucket.cache-dir.",
        |state| state.cache.disk.hits as f64,
    ),
    Metric::counter(
        "chronolith_bucket_disk_cache_hit_bytes_total",
        "Bytes of ranges that were read from bucket.cache-dir.",
        |state| state.cache.disk.hit_bytes as f64,
    ),
    Metric::counter(
        "chronolith_bucket_disk_cache_misses_total",
        "Ranges of blocks that were neither in memory nor in bucket.cache-dir.",
        |state| state.cache.disk.misses as f64,
    ),
    Metric::counter(
        "chronolith_bucket_disk_cache_written_bytes_total",
        "Bytes of ranges that were written to bucket.cache-dir.",
        |state| state.cache.disk.written_bytes as f64,
    ),
    Metric::counter(
        "chronolith_bucket_disk_cache_dropped_writes_total",
        "Ranges that were not written to bucket.cache-dir because too many waited.",
        |state| state.cache.disk.dropped_writes as f64,
    ),
    Metric::counter(
        "chronolith_bucket_disk_cache_evictions_total",
        "Ranges that were dropped because bucket.cache-dir was full.",
        |state| state.cache.disk.evictions as f64,
    ),
    Metric::counter(
        "chronolith_bucket_disk_cache_damages_total",
        "Entries and segments of bucket.cache-dir that failed a checksum or were not complete.",
        |state| state.cache.disk.damages as f64,
    ),
];
