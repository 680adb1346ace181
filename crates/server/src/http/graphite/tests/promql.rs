//! PromQL over carbon's points with roll-ups: results of before, and what `explain=1` shows.

use serde_json::Value;

use super::*;

const LONG_SCHEMAS: &str = "[long]\npattern = ^long\\.\nretentions = 10s:1d,10m:30d\n";
const LONG_AGGREGATION: &str =
    "[long]\npattern = ^long\\.\naggregationMethod = avg,min,max,first,last,count\n";

/// Sums what the nodes of a tree say about roll-ups: windows, and the longest span.
fn rollups_of(node: &Value) -> (u64, u64) {
    let own = &node["rollups"];
    let number = |name: &str| own[name].as_u64().unwrap_or(0);
    let below = node["children"].as_array().into_iter().flatten().map(rollups_of);
    below.fold((number("windows"), number("spanMs")), |(windows, span), (more, other)| {
        (windows + more, span.max(other))
    })
}

#[tokio::test]
async fn long_ranges_read_rollups_and_have_the_same_results() {
    let server = with_rules();
    put(&server, "/rules/schemas.conf", LONG_SCHEMAS);
    put(&server, "/rules/aggregation.conf", LONG_AGGREGATION);
    server.web.service.read_rules().expect("valid");
    let mut lines = String::new();
    for (idx, time) in (1_699_900_000..1_700_000_000).step_by(10).enumerate() {
        // A counter with a reset, and a gauge of fractions.
        let counter = if idx < 4000 { idx * 3 } else { (idx - 4000) * 2 };
        let gauge = (idx * 7919 % 1000) as f64 / 8.0;
        lines.push_str(&format!("long.counter {counter} {time}\nlong.gauge {gauge} {time}\n"));
    }
    let answer = post(&server, "/api/v1/carbon", "identity", lines.into_bytes()).await;
    assert_eq!(answer.status.as_u16(), 204, "{}", answer.text);
    let queries = [
        "increase({__name__='long.counter'}[1d])",
        "rate({__name__='long.counter'}[6h])",
        "sum_over_time({__name__='long.counter'}[12h])",
        "avg_over_time({__name__='long.counter'}[12h] offset 1m)",
        "max_over_time({__name__='long.gauge'}[20h])",
        "min_over_time({__name__='long.gauge'}[20h])",
        "count_over_time({__name__='long.gauge'}[1d])",
        "last_over_time({__name__='long.gauge'}[1d])",
    ];
    let path = |query: &str, end: &str| {
        let query = query.replace(' ', "%20").replace('=', "%3D").replace('~', "%7E");
        format!("/api/v1/query?query={query}&time=1699999990{end}")
    };
    let mut before = Vec::new();
    for query in queries {
        before.push(server.get(&path(query, "")).await.json()["data"].clone());
    }
    let web = server.web.clone();
    let maintained = tokio::task::spawn_blocking(move || {
        let store = web.service.lifecycle.store().expect("open");
        store.maintenance().flush_closed(crate::http::tests::NOW_MS + 86_400_000).expect("flushes");
        (0..40).for_each(|_| store.maintenance().run());
    });
    maintained.await.expect("no panic");
    for (query, before) in queries.into_iter().zip(before) {
        let answer = server.get(&path(query, "&explain=1")).await.json();
        assert!(before["result"].as_array().is_some_and(|series| !series.is_empty()), "{query}: {before}");
        assert_eq!(answer["data"]["result"], before["result"], "{query}");
        let (windows, span_ms) = rollups_of(&answer["data"]["explain"]);
        assert!(windows >= 20 && span_ms == 600_000, "{query}: {windows} windows of {span_ms} ms: {answer}");
    }
    // Fractions have no exact sum.
    let answer = server.get(&path("sum_over_time({__name__='long.gauge'}[1d])", "&explain=1")).await.json();
    assert_eq!(rollups_of(&answer["data"]["explain"]), (0, 0));
}
