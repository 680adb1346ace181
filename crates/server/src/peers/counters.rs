//! Counters of calls to other nodes.

use chronolith_service::counter::Counter;
use chronolith_service::metrics::definition::Metric;

/// Counters of calls to other nodes.
#[derive(Default)]
pub(crate) struct PeerCounters {
    /// Answers that were received to their end.
    pub(super) complete: Counter,
    /// Calls without an answer to its end.
    pub(super) failed: Counter,
    /// Calls that were also sent to another owner, since the first one was slow.
    pub(super) hedges: Counter,
    /// Answers of these other owners that came first.
    pub(super) hedge_wins: Counter,
    pub(super) received_bytes: Counter,
}

pub(crate) static PEER_CALLS: &[Metric<PeerCounters>] = &[
    Metric::counters(
        "chronolith_owner_calls_total",
        &["result"],
        "Selects that were sent to owners of partitions, by result; those of queries that ended before are in none.",
        |calls, samples| {
            samples.push(&["complete"], calls.complete.as_f64());
            samples.push(&["failed"], calls.failed.as_f64());
        },
    ),
    Metric::counter(
        "chronolith_owner_hedges_total",
        "Selects that were also sent to another owner, since the first one was slower than its p99.",
        |calls| calls.hedges.as_f64(),
    ),
    Metric::counter(
        "chronolith_owner_hedge_wins_total",
        "Answers of these other owners that came first.",
        |calls| calls.hedge_wins.as_f64(),
    ),
    Metric::counter("chronolith_owner_received_bytes_total", "Bytes of answers of owners.", |calls| {
        calls.received_bytes.as_f64()
    }),
];
