//! Metrics of queries and of the result cache.

use chronolith_model::query::FetchLimit;

use super::counter::{Counter, Seconds};
use super::definition::Metric;
use crate::http::query::range_cache::CacheCounts;

#[derive(Default)]
pub(crate) struct QueryMetrics {
    pub(crate) instant: Seconds,
    pub(crate) range: Seconds,
    pub(crate) influxql: Seconds,
    pub(crate) samples: Counter,
    pub(crate) partial: Counter,
    pub(crate) moved_starts: Counter,
    /// Queries that exceeded a limit, by its number.
    pub(crate) fetch_limits: [Counter; FetchLimit::ALL.len()],
    pub(crate) failed: Counter,
    pub(crate) canceled: Counter,
    pub(crate) timed_out: Counter,
}

pub(super) static QUERY: &[Metric<QueryMetrics>] = &[
    Metric::histograms(
        "chronolith_query_duration_seconds",
        &["kind"],
        "Time to evaluate a query and encode its response.",
        |query, samples| {
            samples.push_histogram(&["instant"], &query.instant);
            samples.push_histogram(&["range"], &query.range);
            samples.push_histogram(&["influxql"], &query.influxql);
        },
    ),
    Metric::counter("chronolith_query_samples_total", "Samples read by queries.", |query| {
        query.samples.as_f64()
    }),
    Metric::counter(
        "chronolith_query_partial_responses_total",
        "Reads with partial_response=true whose result lacks a part of the source, named in a warning.",
        |query| query.partial.as_f64(),
    ),
    Metric::counter(
        "chronolith_query_moved_starts_total",
        "Reads that asked for samples older than query.max-lookback, which they did not see.",
        |query| query.moved_starts.as_f64(),
    ),
    Metric::counters(
        "chronolith_query_fetch_limit_failures_total",
        &["limit"],
        "Queries that failed because they exceeded a limit of what they read from blocks in the bucket.",
        |query, samples| {
            for limit in FetchLimit::ALL {
                samples.push(&[limit.setting()], query.fetch_limits[limit as usize].as_f64());
            }
        },
    ),
    Metric::counters(
        "chronolith_query_failures_total",
        &["end"],
        "Queries that failed, by reason.",
        |query, samples| {
            samples.push(&["failed"], query.failed.as_f64());
            samples.push(&["canceled"], query.canceled.as_f64());
            samples.push(&["timeout"], query.timed_out.as_f64());
        },
    ),
];

pub(super) static QUERY_CACHE: &[Metric<CacheCounts>] = &[
    Metric::counters(
        "chronolith_query_cache_requests_total",
        &["found"],
        "Range queries by what the result cache had of them.",
        |cache, samples| {
            samples.push(&["hit"], cache.hits as f64);
            samples.push(&["partial"], cache.partial_hits as f64);
            samples.push(&["miss"], cache.misses as f64);
        },
    ),
    Metric::gauge("chronolith_query_cache_bytes", "Memory of the result cache.", |cache| cache.bytes as f64),
    Metric::gauge("chronolith_query_cache_entries", "Entries of the result cache.", |cache| {
        cache.entries as f64
    }),
    Metric::counter("chronolith_query_cache_evictions_total", "Results evicted for others.", |cache| {
        cache.evictions as f64
    }),
];
