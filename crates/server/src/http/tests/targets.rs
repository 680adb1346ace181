//! Endpoints of 3.16 about targets, the server's own metrics and costs of queries. The kit `prom-api`
//! compares them with Prometheus.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use serde_json::json;

use super::{Answer, Fixture, NOW_S};
use crate::version::BuildInfo;

fn fixture(query_cost: bool) -> Fixture {
    let fixture = Fixture::with(|options| options.service.features.query_cost = query_cost).open();
    fixture.store_series(
        "anonymous",
        0,
        &[&[("__name__", "x"), ("i", "1")], &[("__name__", "x"), ("i", "2")]],
    );
    fixture
}

async fn post(fixture: &Fixture, path: &str, form: &str) -> Answer {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    fixture.send(request.body(Body::from(form.to_owned())).unwrap()).await
}

#[tokio::test]
async fn no_pool_is_found() {
    let fixture = Fixture::ready();
    for (path, want) in [
        ("scrape_pools/config", "no scrapePool parameter provided"),
        ("scrape_pools/config?scrapePool=", "no scrapePool parameter provided"),
        (
            "scrape_pools/config?scrapePool=a%22b",
            r#"error retrieving scrape config: scrape pool "a\"b" not found"#,
        ),
        ("targets/relabel_steps?labels=%7B%7D", "no scrapePool parameter provided"),
        ("targets/relabel_steps?scrapePool=x", "no labels parameter provided"),
        (
            "targets/relabel_steps?scrapePool=x&labels=%5B",
            "error parsing labels: unexpected end of JSON input",
        ),
        (
            "targets/relabel_steps?scrapePool=x&labels=%7B%22a%22:%22b%22%7D",
            r#"error retrieving scrape config: scrape pool "x" not found"#,
        ),
    ] {
        let answer = fixture.get(&format!("/api/v1/{path}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        let want = json!({ "status": "error", "errorType": "bad_data", "error": want });
        assert_eq!(answer.json(), want, "{path}");
    }
}

/// Covers a regression: endpoints of the server asked for a tenant, though they have nothing of one.
#[tokio::test]
async fn endpoints_of_the_server_need_no_tenant() {
    let fixture = Fixture::with(|options| options.service.multitenancy = true).open();
    for (path, want) in [
        ("openapi.yaml", StatusCode::OK),
        ("status/self_metrics?metric_name_pattern=x", StatusCode::OK),
        ("scrape_pools/config?scrapePool=x", StatusCode::BAD_REQUEST),
        ("targets/relabel_steps?scrapePool=x&labels=null", StatusCode::BAD_REQUEST),
        ("labels", StatusCode::UNAUTHORIZED),
    ] {
        let answer = fixture.get(&format!("/api/v1/{path}")).await;
        assert_eq!(answer.status, want, "{path}: {}", answer.text);
    }
}

/// Covers a regression: three places named a version alone.
#[tokio::test]
async fn the_commit_is_in_buildinfo_and_metrics() {
    let build =
        BuildInfo { revision: "0123abcd", branch: "main", date: "20261128-08:55:01", features: &["png"] };
    let fixture = Fixture::with(|options| options.web.build = build);
    let info = fixture.get("/api/v1/status/buildinfo").await.json();
    for (field, want) in [("revision", "0123abcd"), ("branch", "main"), ("buildDate", "20261128-08:55:01")] {
        assert_eq!(info["data"][field], want);
    }
    assert_eq!(info["data"]["features"], json!(["png"]));
    assert_eq!(fixture.get("/version").await.json(), info["data"]);
    let metrics = fixture.get("/metrics").await.text;
    let labels = r#"revision="0123abcd",branch="main",build_date="20261128-08:55:01"} 1"#;
    let line = metrics.lines().find(|line| line.starts_with("chronolith_build_info{version="));
    assert!(line.is_some_and(|line| line.ends_with(labels)), "{line:?}");
    assert_eq!(info["data"]["application"], "Chronolith");
    let unknown = Fixture::starting().get("/api/v1/status/buildinfo").await.json();
    assert_eq!([&unknown["data"]["revision"], &unknown["data"]["buildDate"]], ["unknown", "unknown"]);
}

#[tokio::test]
async fn own_metrics_are_selected_by_name() {
    let fixture = Fixture::ready();
    let get =
        async |pattern: &str| fixture.get(&format!("/api/v1/status/self_metrics{pattern}")).await.json();
    let all = get("").await;
    let families = all["data"].as_array().unwrap();
    assert!(families.len() > 50, "{}", families.len());
    assert!(families.is_sorted_by_key(|family| family["name"].as_str().unwrap()));
    let one = get("?metric_name_pattern=chronolith_build_.*").await;
    assert_eq!(one["data"][0]["name"], "chronolith_build_info");
    assert_eq!(one["data"][0]["metric"][0]["gauge"], json!({ "value": 1 }));
    assert_eq!(one["data"].as_array().unwrap().len(), 1);
    assert_eq!(get("?metric_name_pattern=build_info").await["data"], json!([]));
    let why = "invalid metric_name_pattern: error parsing regexp: missing closing ): `^(?:()$`";
    assert_eq!(get("?metric_name_pattern=(").await["error"], why);
}

#[tokio::test]
async fn costs_are_estimated_if_the_feature_is_on() {
    let off = fixture(false);
    for path in ["/api/v1/query_cost?query=x", "/api/v1/query_range_cost?query=x"] {
        let answer = off.get(path).await;
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NOT_FOUND, "404 page not found\n"));
        assert_eq!(off.get("/api/v1/features").await.json()["data"]["api"]["query_cost"], false);
    }
    let on = fixture(true);
    assert_eq!(on.get("/api/v1/features").await.json()["data"]["api"]["query_cost"], true);
    let want =
        json!({ "status": "success", "data": { "estimate": { "seriesTouched": 2, "samplesRead": 2 } } });
    let form = format!("query=x&time={NOW_S}&limit=1&cost=true&max_series=1");
    assert_eq!(on.get(&format!("/api/v1/query_cost?{form}")).await.json(), want);
    assert_eq!(post(&on, "/api/v1/query_cost", &form).await.json(), want);
    let steps = format!("query=x&start={}&end={NOW_S}&step=10", NOW_S - 30);
    let range = post(&on, "/api/v1/query_range_cost", &steps).await.json();
    assert_eq!(range["data"]["estimate"], json!({ "seriesTouched": 2, "samplesRead": 8 }));
}

#[tokio::test]
async fn parameters_of_costs_are_checked_as_those_of_queries() {
    let fixture = fixture(true);
    for (parameter, want) in [
        ("limit=-1", "invalid parameter \"limit\": limit must be non-negative"),
        ("cost=maybe", "invalid parameter \"cost\": must be a boolean"),
        ("timeout=0", "invalid parameter \"timeout\": timeout must be positive, got 0s"),
        ("max_series=x", "error parsing max_series: strconv.ParseUint: parsing \"x\": invalid syntax"),
        ("max_series=-1", "error parsing max_series: strconv.ParseUint: parsing \"-1\": invalid syntax"),
        ("max_series=%2B1", "error parsing max_series: strconv.ParseUint: parsing \"+1\": invalid syntax"),
        (
            "max_samples_read=99999999999999999999",
            "error parsing max_samples_read: strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
        ),
        ("max_query_duration=x", "error parsing max_query_duration: cannot parse \"x\" to a valid duration"),
        ("max_query_duration=-5", "error parsing max_query_duration: must not be negative, got -5s"),
        ("max_query_duration=1h", "requested max_query_duration of 1h0m0s exceeds the server limit of 2m0s"),
        ("query=(", "invalid parameter \"query\": 1:2: parse error: unclosed left parenthesis"),
    ] {
        let answer = fixture.get(&format!("/api/v1/query_cost?{parameter}&query=x")).await;
        let want = json!({ "status": "error", "errorType": "bad_data", "error": want });
        assert_eq!((answer.status, answer.json()), (StatusCode::BAD_REQUEST, want), "{parameter}");
    }
}

/// Covers the texts that Grafana compares: it offers to edit rules where `ruler_config_api` is "true".
#[tokio::test]
async fn buildinfo_describes_a_mimir_on_request() {
    let info = async |server: Fixture| server.get("/api/v1/status/buildinfo").await.json()["data"].clone();
    let mimir = Fixture::with(|options| options.web.mimir_buildinfo = true).open();
    let data = info(mimir).await;
    assert_eq!(data["application"], "Grafana Mimir");
    let want = serde_json::json!({
        "ruler_config_api": "true", "alertmanager_config_api": "false",
        "query_sharding": "false", "federated_rules": "false"
    });
    assert_eq!(data["features"], want);
    assert!(data["chronolithFeatures"].is_array() && data["version"] == "3.16.0", "{data}");
    for change in [
        |options: &mut crate::ServerOptions| options.web.rules_api = false,
        |options: &mut crate::ServerOptions| options.service.is_read_only = true,
    ] {
        let server = Fixture::with(|options| {
            options.web.mimir_buildinfo = true;
            change(options);
        });
        assert_eq!(info(server.open()).await["features"]["ruler_config_api"], "false");
    }
}
