//! Metrics of queries and of the result cache.

use chronolith_model::query::FetchLimit;

use super::definition::Metric;
use crate::counter::{Counter, Seconds};

/// Counters of queries.
#[derive(Default)]
pub struct QueryMetrics {
    /// Instant queries.
    pub instant: Seconds,
    /// Range queries.
    pub range: Seconds,
    /// Requests with InfluxQL statements.
    pub influxql: Seconds,
    /// Samples read.
    pub samples: Counter,
    /// Answers that lack a part of the source.
    pub partial: Counter,
    /// Reads cut by `query.max-lookback`.
    pub moved_starts: Counter,
    /// Queries that exceeded a limit, by its number.
    pub fetch_limits: [Counter; FetchLimit::ALL.len()],
    /// Queries that failed for another reason than the next two.
    pub failed: Counter,
    /// Queries whose client left, or that were killed.
    pub canceled: Counter,
    /// Queries that reached their deadline.
    pub timed_out: Counter,
}

/// Declarations.
pub static QUERY: &[Metric<QueryMetrics>] = &[
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

/// Counts of the result cache.
pub struct CacheCounts {
    /// Queries whose steps were all cached.
    pub hits: u64,
    /// Queries of which some steps were cached.
    pub partial_hits: u64,
    /// Queries without a cached step.
    pub misses: u64,
    /// Results that made room for others.
    pub evictions: u64,
    /// Results at hand.
    pub entries: usize,
    /// Memory of the cached results.
    pub bytes: u64,
}

/// Declarations of the result cache.
pub static QUERY_CACHE: &[Metric<CacheCounts>] = &[
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
