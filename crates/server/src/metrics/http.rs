//! Metrics of requests and connections.
//! Invariants: labels are bounded, since routes and codes are ours to name.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_service::counter::{Counter, Seconds};
use chronolith_service::metrics::definition::Metric;
use parking_lot::Mutex;

/// Route and status code.
type RouteKey = (String, u16);

/// Requests of one route that ended with one code.
#[derive(Default)]
struct RouteStat {
    duration: Seconds,
    answer_bytes: Counter,
}

#[derive(Default)]
pub(crate) struct HttpMetrics {
    routes: Mutex<BTreeMap<RouteKey, Arc<RouteStat>>>,
    pub(crate) connections_accepted: Counter,
    pub(crate) connections_evicted: Counter,
    pub(crate) accept_failures: Counter,
}

pub(crate) static HTTP: &[Metric<HttpMetrics>] = &[
    Metric::histograms(
        "chronolith_http_request_duration_seconds",
        &["route", "code"],
        "Time from the headers of a request to those of its response, by route and code.",
        |http, samples| {
            for ((route, code), stat) in http.routes() {
                samples.push_histogram(&[&route, &code.to_string()], &stat.duration);
            }
        },
    ),
    Metric::counters(
        "chronolith_http_response_bytes_total",
        &["route", "code"],
        "Bytes of responses whose length is known before they are sent, by route and code.",
        |http, samples| {
            for ((route, code), stat) in http.routes() {
                samples.push(&[&route, &code.to_string()], stat.answer_bytes.as_f64());
            }
        },
    ),
    Metric::counter("chronolith_http_connections_accepted_total", "Connections accepted.", |http| {
        http.connections_accepted.as_f64()
    }),
    Metric::counter(
        "chronolith_http_connections_evicted_total",
        "Idle connections closed to make room.",
        |http| http.connections_evicted.as_f64(),
    ),
    Metric::counter(
        "chronolith_http_accept_failures_total",
        "Connections that could not be accepted.",
        |http| http.accept_failures.as_f64(),
    ),
];

impl HttpMetrics {
    /// Counts one request.
    pub(crate) fn count_request(&self, route: &str, code: u16, duration_ns: u64, answer_bytes: u64) {
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

    fn routes(&self) -> Vec<(RouteKey, Arc<RouteStat>)> {
        self.routes.lock().iter().map(|(key, stat)| (key.clone(), stat.clone())).collect()
    }
}
