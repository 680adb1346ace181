//! Tables of metrics against the metrics that a server gathers, and docs/reference/metrics.md.
#![expect(clippy::disallowed_methods, reason = "the page is in the repository, not below a data directory")]

use chronolith_service::metrics::definition::Definition;
use chronolith_service::metrics::{Family, unit_of};
use std::collections::{BTreeMap, BTreeSet};

use super::gather::{definitions, gather};
use crate::http::tests::cluster::{Process, query_node, rule_process};
use crate::http::tests::{Fixture, NOW_MS};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");

const HEAD: &str = "\
# Metrics

`GET /metrics` answers in Prometheus's text format, or in OpenMetrics if the client accepts it. The server also stores its metrics as
series every `self-scrape`, with `job=\"chronolith\"` and its address as `instance`, so that they can be queried without a Prometheus.

A counter starts at 0 with the process. A histogram has the usual `_bucket`, `_sum` and `_count`.

This page is made from the tables in `crates/server/src/metrics` and `crates/tsdb`; a test compares them
(`UPDATE_REFERENCE=1 cargo test -p chronolith-server reference` writes it).

| metric | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
";

/// Families of a server that replays, of one that has stored a sample and answered a query, and of processes
/// with roles.
async fn gathered() -> Vec<Family> {
    let starting = Fixture::starting();
    let mut families = gather(&starting.web);
    let server = starting.open();
    server.write(&[(&[("__name__", "up")], &[(NOW_MS, 1.0)])]).await;
    server.get("/api/v1/query?query=up").await;
    families.extend(gather(&server.web));
    let reader = Fixture::read_only();
    reader.get("/api/v1/query?query=up").await;
    families.extend(gather(&reader.web));
    let encrypted = Fixture::with(|options| {
        options.service.write.carbon.tls_file = Some("/etc/carbon.yml".into());
    });
    families.extend(gather(&encrypted.web));
    let process = Process::started("gateway,owner").await;
    process.observed().await;
    families.extend(gather(&process.server.web));
    families.extend(gather(&query_node().await.web));
    families.extend(gather(&rule_process().await.server.web));
    families
}

/// Returns true for metrics of the files of `/proc` and the size of the disk, which are not there in tests,
/// and for the time of the oldest open deletion of a cluster, which is there while one is open.
fn is_of_the_system(name: &str) -> bool {
    let others = [
        "chronolith_memory_unaccounted_bytes",
        "chronolith_disk_free_bytes",
        "chronolith_owner_oldest_open_deletion_timestamp_seconds",
    ];
    name.starts_with("process_") || others.contains(&name)
}

#[tokio::test]
async fn every_metric_is_declared_once_and_gathered() {
    let defined = definitions();
    let by_name: BTreeMap<&str, &Definition> = defined.iter().map(|one| (one.name, one)).collect();
    assert_eq!(by_name.len(), defined.len(), "each stands in one table");
    let families = gathered().await;
    let names: BTreeSet<&str> = families.iter().map(|family| family.name.as_str()).collect();
    let missing: Vec<&&str> =
        by_name.keys().filter(|name| !names.contains(**name) && !is_of_the_system(name)).collect();
    assert!(missing.is_empty(), "not gathered: {missing:?}");
    for family in &families {
        let labels = by_name.get(family.name.as_str()).map_or(&[][..], |one| one.labels);
        for sample in &family.samples {
            let found: Vec<&str> = sample.labels.iter().map(|(name, _)| *name).collect();
            let found: Vec<&str> = found.into_iter().filter(|name| *name != "le").collect();
            assert_eq!(found, labels, "{}", family.name);
        }
    }
}

fn page(families: &[Family]) -> String {
    let defined = definitions();
    let own = families.iter().filter(|family| defined.iter().all(|one| one.name != family.name));
    let own = own.map(|family| (family.name.as_str(), family.kind, &[][..], family.help));
    let all = defined.iter().map(|one| (one.name, one.kind, one.labels, one.help)).chain(own);
    let rows: BTreeMap<&str, String> = all
        .map(|(name, kind, labels, help)| {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let (kind, unit, labels) = (kind.as_str(), unit_of(name), labels.join(", "));
            (name, format!("| `{name}` | {kind} | {unit} | {labels} | {help} |\n"))
        })
        .collect();
    HEAD.chars().chain(rows.values().flat_map(|row| row.chars())).collect()
}

#[tokio::test]
async fn the_reference_lists_every_metric() {
    let want = page(&gathered().await);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(PAGE, &want).expect("docs/reference is there");
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(found == want, "docs/reference/metrics.md is not what the tables say: see its head");
}
