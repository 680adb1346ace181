//! The server's own counters: plain atomics, gathered into families when asked.
//! Holds: counting is one relaxed atomic add; labels are bounded (routes and codes are ours to name).
//! Not here: text formats (`metrics::exposition`), what is gathered (`metrics::gather`).

pub(crate) mod exposition;
pub(crate) mod gather;
pub(crate) mod process;
pub(crate) mod tenants;

pub(crate) use process::open_files_max;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_model::{Reject, WriteOutcome};
use chronolith_tsdb::WriteError;
use parking_lot::Mutex;

/// Upper bounds of durations, in seconds.
const SECONDS_BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0, 120.0];

/// Only goes up.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Durations by bound.
#[derive(Default)]
pub(crate) struct Seconds {
    counts: [AtomicU64; SECONDS_BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl Seconds {
    pub(crate) fn observe_ns(&self, ns: u64) {
        let seconds = ns as f64 / 1e9;
        let at = SECONDS_BOUNDS.partition_point(|bound| *bound < seconds);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// `(bound, count up to it)` for every bound and `+Inf`, and the sum in seconds.
    pub(crate) fn cumulative(&self) -> (Vec<(f64, u64)>, f64) {
        let mut total = 0;
        let bounds = SECONDS_BOUNDS.iter().copied().chain([f64::INFINITY]);
        let counted = bounds.zip(&self.counts).map(|(bound, count)| {
            total += count.load(Ordering::Relaxed);
            (bound, total)
        });
        (counted.collect(), self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9)
    }
}

/// Requests of one route that ended with one code.
#[derive(Default)]
pub(crate) struct RouteStat {
    pub(crate) duration: Seconds,
    pub(crate) answer_bytes: Counter,
}

/// Route and status code.
type RouteKey = (String, u16);

/// Counters of the whole server.
#[derive(Default)]
pub(crate) struct Metrics {
    routes: Mutex<BTreeMap<RouteKey, Arc<RouteStat>>>,
    pub(crate) write: WriteMetrics,
    pub(crate) query: QueryMetrics,
    pub(crate) remote_read: RemoteReadMetrics,
    pub(crate) federate: StreamMetrics,
    pub(crate) connection: ConnectionMetrics,
    pub(crate) scrape_failures: Counter,
    pub(crate) reload_failures: Counter,
    pub(crate) thread_panics: Counter,
}

/// Writes.
#[derive(Default)]
pub(crate) struct WriteMetrics {
    pub(crate) samples_accepted: Counter,
    pub(crate) samples_repeated: Counter,
    pub(crate) samples_rejected: [Counter; Reject::COUNT],
    pub(crate) series_created: Counter,
    pub(crate) exemplars_accepted: Counter,
    pub(crate) exemplars_late: Counter,
    pub(crate) start_times: Counter,
    pub(crate) bytes_compressed: Counter,
    pub(crate) bytes_decompressed: Counter,
    pub(crate) decode: Seconds,
    pub(crate) append: Seconds,
    pub(crate) failures: Counter,
    /// Requests that a limit refused, by [`REFUSED_REASONS`].
    pub(crate) requests_refused: [Counter; REFUSED_REASONS.len()],
}

/// Why a limit refuses a whole write request.
pub(crate) const REFUSED_REASONS: [&str; 4] =
    ["head_memory", "head_memory_never_fits", "ingestion_rate", "ingestion_burst"];

impl WriteMetrics {
    /// Counts a request that a limit refused.
    pub(crate) fn count_refused(&self, error: &WriteError) {
        let idx = match error {
            WriteError::HeadFull { .. } => 0,
            WriteError::NeverFits { .. } => 1,
            WriteError::RateLimited { .. } => 2,
            WriteError::BurstExceeded { .. } => 3,
            _ => return,
        };
        self.requests_refused[idx].add(1);
    }

    pub(crate) fn count(&self, outcome: &WriteOutcome) {
        self.samples_accepted.add(outcome.accepted_count);
        self.samples_repeated.add(outcome.repeated_count);
        self.series_created.add(outcome.series_created_count);
        self.exemplars_accepted.add(outcome.exemplars_accepted);
        self.exemplars_late.add(outcome.exemplars_late);
        for (counter, count) in self.samples_rejected.iter().zip(outcome.rejected) {
            counter.add(count);
        }
    }
}

/// Queries.
#[derive(Default)]
pub(crate) struct QueryMetrics {
    pub(crate) instant: Seconds,
    pub(crate) range: Seconds,
    pub(crate) samples: Counter,
    pub(crate) failed: Counter,
    pub(crate) canceled: Counter,
    pub(crate) timed_out: Counter,
}

/// Remote read.
#[derive(Default)]
pub(crate) struct RemoteReadMetrics {
    /// Requests answered with one message.
    pub(crate) messages: Counter,
    /// Bytes of these messages.
    pub(crate) message_bytes: Counter,
    /// Requests answered with frames.
    pub(crate) streams: Counter,
    pub(crate) stream: StreamMetrics,
    pub(crate) series: Counter,
    pub(crate) samples: Counter,
}

/// Streamed answers of one endpoint.
#[derive(Default)]
pub(crate) struct StreamMetrics {
    /// Streams that ended with an error after their first part, or that the client left.
    pub(crate) aborted: Counter,
    pub(crate) bytes: Counter,
}

/// Connections.
#[derive(Default)]
pub(crate) struct ConnectionMetrics {
    pub(crate) accepted: Counter,
    pub(crate) evicted: Counter,
    pub(crate) failed: Counter,
}

impl Metrics {
    /// Counts one request.
    pub(crate) fn request(&self, route: &str, code: u16, duration_ns: u64, answer_bytes: u64) {
        let stat = {
            let mut routes = self.routes.lock();
            match routes.get(&(route.to_owned(), code)) {
                Some(stat) => stat.clone(),
                None => routes.entry((route.to_owned(), code)).or_default().clone(),
            }
        };
        stat.duration.observe_ns(duration_ns);
        stat.answer_bytes.add(answer_bytes);
    }

    /// Requests so far, by route and code.
    pub(crate) fn routes(&self) -> Vec<(RouteKey, Arc<RouteStat>)> {
        self.routes.lock().iter().map(|(key, stat)| (key.clone(), stat.clone())).collect()
    }
}
