//! Hints for paths without a route: the route that a typo or a wrong base URL was meant to be, and the way in
//! for protocols that the server does not have.
//!
//! Invariants: a hint has only text of this file and paths of the table of routes, never the path of the
//! request.

use crate::http::routing::table::Table;

/// Longest path that is compared, in bytes; no route is longer.
const PATH_BYTES_MAX: usize = 256;
/// Edits between a typo and the route that it was meant to be.
const EDITS_MAX: usize = 2;
/// Shortest path that may be a typo: a short one has other short ones within two edits.
const TYPO_BYTES_MIN: usize = 7;

const OTLP: &str = "OTLP is not supported: an OpenTelemetry Collector with the exporter prometheusremotewrite can send to \
     /api/v1/write";
const TEXT_FORMAT: &str = "metrics in Prometheus's text format are not accepted: a Prometheus or an agent can scrape them \
     and send them to /api/v1/write";

/// Ends of paths of protocols that the server does not have.
const OTHER_PROTOCOLS: [(&str, &str); 4] = [
    ("/v1/metrics", OTLP),
    ("/v1/traces", "traces are not supported, only metrics"),
    ("/v1/logs", "logs are not supported, only metrics"),
    ("/api/v1/import/prometheus", TEXT_FORMAT),
];
/// Begin of paths of the Pushgateway.
const PUSHGATEWAY: &str = "/metrics/job/";

/// Returns what a client that asks for `path` may have meant.
pub(super) fn hint(table: &Table, path: &str) -> Option<String> {
    if path.len() > PATH_BYTES_MAX {
        return None;
    }
    if path.starts_with(PUSHGATEWAY) {
        return Some(TEXT_FORMAT.to_owned());
    }
    if let Some((_, text)) = OTHER_PROTOCOLS.iter().find(|(end, _)| path.ends_with(end)) {
        return Some((*text).to_owned());
    }
    nearest_route(table, path).map(|route| format!("did you mean {route}?"))
}

fn nearest_route(table: &Table, path: &str) -> Option<&'static str> {
    // A route that is switched off is not meant to be another one.
    if table.static_paths().any(|route| route == path) {
        return None;
    }
    let below_base = |route: &&str| route.starts_with("/api/") && path.ends_with(*route);
    if let Some(route) = table.static_paths().find(below_base) {
        return Some(route);
    }
    let depth = path.matches('/').count();
    let same_depth = table.static_paths().filter(|route| route.matches('/').count() == depth);
    let edits = same_depth.map(|route| (strsim::osa_distance(path, route), route));
    let (edit_count, route) = edits.min_by_key(|(count, _)| *count)?;
    (path.len() >= TYPO_BYTES_MIN && edit_count <= EDITS_MAX).then_some(route)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes;

    #[track_caller]
    fn check(path: &str, want: Option<&str>) {
        assert_eq!(hint(routes::table(), path).as_deref(), want, "{path}");
    }

    #[track_caller]
    fn check_route(path: &str, route: &str) {
        check(path, Some(&format!("did you mean {route}?")));
    }

    #[test]
    fn typos_name_the_nearest_route() {
        check_route("/api/v1/wirte", "/api/v1/write");
        check_route("/api/v1/writes", "/api/v1/write");
        check_route("/api/v1/qurey", "/api/v1/query");
        check_route("/api/v1/query-range", "/api/v1/query_range");
        check_route("/api/v1/serie", "/api/v1/series");
        check_route("/api/v2/writ", "/api/v2/write");
        check_route("/api/v1/status/tsdb/block", "/api/v1/status/tsdb/blocks");
        check_route("/metrics/fnd", "/metrics/find");
        check_route("/api/v1/raed", "/api/v1/read");
        check_route("/federat", "/federate");
    }

    #[test]
    fn wrong_base_urls_name_the_route_below_them() {
        check_route("/api/v1/api/v1/query", "/api/v1/query");
        check_route("/select/0/prometheus/api/v1/query_range", "/api/v1/query_range");
        check_route("/insert/0/prometheus/api/v1/write", "/api/v1/write");
        check_route("/graph/api/v1/labels", "/api/v1/labels");
        check_route("/mimir/api/v1/push", "/api/v1/push");
    }

    #[test]
    fn other_protocols_have_a_way_in() {
        for path in
            ["/v1/metrics", "/api/v1/otlp/v1/metrics", "/otlp/v1/metrics", "/opentelemetry/v1/metrics"]
        {
            check(path, Some(OTLP));
        }
        for path in ["/metrics/job/a", "/metrics/job/a/instance/b", "/api/v1/import/prometheus"] {
            check(path, Some(TEXT_FORMAT));
        }
        check("/otlp/v1/traces", Some("traces are not supported, only metrics"));
        check("/v1/logs", Some("logs are not supported, only metrics"));
    }

    #[test]
    fn other_paths_have_no_hint() {
        for path in [
            "/nope",
            "/api/v1/nope",
            "/api/v1/label/a",
            "/api/v1/label/a/b/values",
            "/favicon.ico",
            "/-/quit",
        ] {
            check(path, None);
        }
        // Routes that are switched off.
        check("/api/v1/query_cost", None);
        check(&format!("/{}/api/v1/query", "x".repeat(PATH_BYTES_MAX)), None);
    }
}
