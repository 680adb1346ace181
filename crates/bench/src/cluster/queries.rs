//! Queries over recent data, asked to one server and to a query node over owners.
//!
//! Invariant: both are asked for the same texts and times, with gzip as clients do, and an answer counts only
//! if it has series. Not here: the load (`fleet`).

use anyhow::{Result, ensure};

use crate::http::{self, QueryConnection};
use crate::traffic::STEP_MS;

/// Times that each query is asked.
const RUNS: usize = 5;

/// Queries as dashboards have them, over all series, one service or one pod.
const QUERIES: [&str; 12] = [
    "sum by (namespace) (rate({__name__=~\"http_client_requests_.+_total\"}[2m]))",
    "sum by (container) (rate({cluster=\"bench-eu-1\",mode=~\"user.*\"}[2m]))",
    "max by (pod) (max_over_time({__name__=~\"container_memory_bytes_.+\",namespace=\"search-frontend\"}[1m]))",
    "avg by (namespace) ({__name__=~\"go_memstats_bytes_.+_current\"})",
    "topk(5, sum by (pod) ({__name__=~\"container_memory_bytes_.+_current\"}))",
    "count by (job) ({cluster=\"bench-eu-1\"})",
    "{__name__=~\"process_seconds_.+\",namespace=\"payments\",mode=~\"user.*\"}",
    "sum(count_over_time({cluster=\"bench-eu-1\",namespace=\"checkout\"}[2m]))",
    "quantile by (namespace) (0.9, {__name__=~\"http_server_seconds_.+_current\"})",
    "sum by (instance) (increase({__name__=~\"node_network_bytes_.+_total\",namespace=\"default\"}[2m]))",
    "stddev by (region) ({__name__=~\"node_disk_seconds_.+_current\"})",
    "sum without (id, pod, instance) (rate({__name__=~\"process_operations_.+_total\"}[2m]))",
];

/// Asks all queries over the last `steps` steps before `last_ms`.
pub(super) fn ask_all(port: u16, last_ms: i64, steps: usize) -> Result<()> {
    let mut connection = QueryConnection::open(port)?;
    let range = (last_ms - steps as i64 * STEP_MS, last_ms, STEP_MS / 1000);
    for _ in 0..RUNS {
        for text in QUERIES {
            let received = connection.fetch(&http::range_path(text, range))?;
            let body = received.text()?;
            ensure!(body.contains("\"values\""), "{text}: {body:.300}");
        }
    }
    Ok(())
}
