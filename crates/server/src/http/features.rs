//! `/api/v1/features`: the features that this server supports, under the names of Prometheus's feature
//! registry.
//!
//! Invariants: no name is our own; a feature of Prometheus that this server lacks is false, or absent where
//! the list depends on how Prometheus was built (service discovery, templates); a feature that is a route is
//! true if the table of routes has it.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use chronolith_promql::functions;
use serde_json::{Map, Value, json};

use super::routing::table::Table;
use super::status::success;
use crate::web::Web;

/// Keywords that need no switch.
const KEYWORDS: [&str; 9] =
    ["bool", "by", "group_left", "group_right", "ignoring", "offset", "on", "without", "subqueries"];
/// Operators and aggregations that need no switch.
const OPERATORS: [&str; 33] = [
    "!=",
    "!~",
    "%",
    "*",
    "+",
    "-",
    "/",
    "<",
    "</",
    "<=",
    "==",
    "=~",
    ">",
    ">/",
    ">=",
    "@",
    "^",
    "and",
    "atan2",
    "or",
    "unless",
    "avg",
    "bottomk",
    "count",
    "count_values",
    "group",
    "max",
    "min",
    "quantile",
    "stddev",
    "stdvar",
    "sum",
    "topk",
];
/// Aggregations that `promql-experimental-functions` enables.
const EXPERIMENTAL_AGGREGATIONS: [&str; 2] = ["limit_ratio", "limitk"];

pub(super) async fn features(
    State(web): State<Arc<Web>>,
    Extension(table): Extension<&'static Table>,
) -> Response<Body> {
    let options = &web.options;
    let on = web.service.options.features;
    success(&json!({
        "api": {
            "admin": options.web.admin_api,
            "exclude_alerts": true,
            "label_values_match": true,
            "lifecycle": options.web.lifecycle,
            "openapi_3.1": table.has("/api/v1/openapi.yaml"),
            "openapi_3.2": table.has("/api/v1/openapi.yaml"),
            "otlp_write_receiver": table.has("/api/v1/otlp/v1/metrics"),
            "query_cost": on.query_cost,
            "query_stats": true,
            "query_warnings": true,
            "remote_write_receiver": table.has("/api/v1/write"),
            "search": table.has("/api/v1/search/metric_names"),
            "time_range_labels": true,
            "time_range_series": true,
        },
        "otlp_receiver": { "delta_conversion": false, "native_delta_ingestion": false },
        "prometheus": { "agent_mode": false, "auto_reload_config": false, "server_mode": true },
        "promql": promql(&web),
        "promql_functions": functions::all()
            .iter()
            .map(|function| (function.name.to_owned(), !function.experimental || on.experimental_functions))
            .collect::<Value>(),
        "promql_operators": OPERATORS
            .iter()
            .map(|name| (*name, true))
            .chain(EXPERIMENTAL_AGGREGATIONS.map(|name| (name, on.experimental_functions)))
            .collect::<Value>(),
        "rules": { "concurrent_rule_eval": true, "keep_firing_for": true, "query_offset": true },
        "scrape": {
            "extra_scrape_metrics": false,
            "openmetrics2": false,
            "start_timestamp_zero_ingestion": false,
            "type_and_unit_labels": false,
        },
        "service_discovery_providers": {},
        "templating_functions": {},
        "tsdb": {
            "delayed_compaction": false,
            "exemplar_storage": options.service.tsdb.exemplar_count_max > 0,
            "histograms_st_encoding": true,
            "isolation": false,
            "native_histograms": true,
            "st_storage": true,
            "use_uncached_io": false,
            "xor2_encoding": true,
        },
        "ui": { "ui_v2": false, "ui_v3": false },
    }))
}

fn promql(web: &Web) -> Map<String, Value> {
    let on = web.service.options.features;
    let switched = [
        ("anchored", true),
        ("smoothed", true),
        ("fill", on.binop_fill_modifiers),
        ("fill_left", on.binop_fill_modifiers),
        ("fill_right", on.binop_fill_modifiers),
        ("delayed_name_removal", on.delayed_name_removal),
        ("type_and_unit_labels", on.type_and_unit_labels),
        ("at_modifier", true),
        ("duration_expr", true),
        ("negative_offset", true),
        ("per_query_lookback_delta", true),
        ("per_step_stats", true),
        ("unquoted_utf8_names", on.unquoted_utf8_names),
    ];
    let switched = switched.map(|(name, is_on)| (name.to_owned(), Value::from(is_on)));
    KEYWORDS.map(|name| (name.to_owned(), Value::from(true))).into_iter().chain(switched).collect()
}
