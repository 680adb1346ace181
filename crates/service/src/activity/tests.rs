//! Memory of all lists together, filled by clients that do their worst.

use super::entry::{MINUTE_COUNT, MINUTE_MS};
use super::metric_usage::MetricUsage;
use super::rejects::{Example, RefusedSamples, Rejects, WriteSender};
use super::top_queries::{FinishedQuery, QUERIES_PER_MINUTE_MAX, QueryLanguage, TopQueries};
use super::*;
use chronolith_model::TenantId;
use chronolith_model::tenant::TENANT_ID_BYTES_MAX;

const TENANT_COUNT: usize = 10_000;

/// Tenants with ids as long as they may be, as separate requests name them.
fn tenant(idx: usize) -> TenantId {
    TenantId::new(&format!("{idx:0>width$}", width = TENANT_ID_BYTES_MAX)).expect("valid")
}

#[test]
fn lists_of_ten_thousand_tenants_are_bounded_together() {
    let top_queries = TopQueries::default();
    let metric_usage = MetricUsage::default();
    let rejects = Rejects::default();
    let long = "q".repeat(100_000);
    for minute in 0..2 * MINUTE_COUNT {
        let now_ms = minute as i64 * MINUTE_MS;
        for idx in 0..2 * QUERIES_PER_MINUTE_MAX {
            let tenant = tenant((minute * 131 + idx) % TENANT_COUNT);
            let text = format!("{minute} {idx} {long}");
            let language = QueryLanguage::PromQl;
            let duration_ns = idx as u64;
            let (sample_count, is_error, ended_ms) = (1, false, now_ms);
            let query = FinishedQuery {
                tenant: &tenant,
                language,
                text: &text,
                duration_ns,
                sample_count,
                is_error,
                ended_ms,
            };
            top_queries.record(&query);
        }
    }
    let sender = WriteSender { listener: Some("l".repeat(1000)), ..WriteSender::default() };
    for idx in 0..TENANT_COUNT {
        let tenant = tenant(idx);
        let names: Vec<String> = (0..3).map(|number| format!("{number}_{}", "n".repeat(400))).collect();
        metric_usage.record(&tenant, names.iter().map(String::as_str), 0);
        for (second, reason) in [(0, "too_old"), (1, "too_old"), (2, "too_old"), (3, "series_limit")] {
            let refused = RefusedSamples { tenant: Some(&tenant), reason, count: 1 };
            rejects.record(&refused, second * 1000, || Example::new(&long, Some(0), &sender));
        }
    }
    let all = [top_queries.memory(), metric_usage.memory(), rejects.memory()];
    let bytes = all.map(|part| part.bytes);
    let most = [top_queries::BYTES_MAX, metric_usage::BYTES_MAX, rejects::BYTES_MAX];
    for (idx, (found, most)) in bytes.iter().zip(most).enumerate() {
        // Shared pairs of a reason may be above the limit; there are as many as reasons.
        assert!(*found <= most + 4096, "list {idx} has {found} bytes, more than {most}");
        assert!(*found > most / 4, "list {idx} has {found} bytes: the test does not fill it");
    }
    assert!(bytes.iter().sum::<u64>() <= ACTIVITY_BYTES_MAX, "{bytes:?}");
    assert!(rejects.examples_dropped_count() > 0 && metric_usage.evicted_count() > 0);
}
