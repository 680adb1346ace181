//! Records of single requests for the operator: ids, log of refused samples, query log, metrics by tenant;
//! and records that tenants must not see of each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use chronolith_base::{Env, ManualClock};
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_model::{TenantId, TenantLimits};
use chronolith_tsdb::LimitsTable;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};

use super::{Answer, Fixture, NOW_MS, NOW_S, Pairs, check_error};
use crate::http::request::RemoteAddress;
use crate::options::ServerOptions;
use crate::web::Web;

const UP: Pairs<'_> = &[("__name__", "up")];

/// Lines of the log as `name=value` pairs.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().target()));
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

impl Lines {
    /// Takes the lines with `part`.
    fn take(&self, part: &str) -> Vec<String> {
        let lines = std::mem::take(&mut *self.0.lock());
        lines.into_iter().filter(|line| line.contains(part)).collect()
    }
}

/// A server whose clock can be moved.
fn server(change: impl FnOnce(&mut ServerOptions)) -> (Fixture, Arc<ManualClock>) {
    let (env, clock, _disk) = Env::fake(NOW_MS, 1);
    env.disk.create_dir_all(std::path::Path::new("/log")).unwrap();
    let mut options = ServerOptions::new("/data".into());
    change(&mut options);
    let fixture = Fixture::new(Arc::new(Web::new(env, options, None)));
    fixture.web.service.queries.log.open(&*fixture.web.service.env.disk).unwrap();
    (fixture.open(), clock)
}

/// A write from 10.0.0.7 with an id of its own.
fn write_request(tenant: Option<&str>, samples: &[(i64, f64)]) -> Request<Body> {
    let mut encoder = RequestEncoder::new();
    encoder.push_series(UP.iter().copied(), samples);
    let mut request = Request::post("/api/v1/write")
        .header("content-type", "application/x-protobuf")
        .header("content-encoding", "snappy")
        .header("x-request-id", "id-7");
    if let Some(tenant) = tenant {
        request = request.header("x-scope-orgid", tenant);
    }
    let remote: SocketAddr = "10.0.0.7:4711".parse().unwrap();
    request.extension(RemoteAddress(remote)).body(Body::from(encoder.compressed())).unwrap()
}

/// Covers a regression: refused samples left no line in the log: only their sender knew why.
#[tokio::test]
async fn refused_samples_leave_one_line_per_reason_tenant_and_ten_seconds() {
    let (server, clock) = server(|options| options.service.multitenancy = true);
    let lines = Lines::default();
    // With a single subscriber in the process, `tracing` asks the subscriber of whatever thread comes first
    // to a line of code whether the line is wanted; other tests have none.
    let _second = tracing::Dispatch::new(Lines::default());
    let _log = tracing::subscriber::set_default(lines.clone());
    let far = NOW_MS + 86_400_000;
    server.send(write_request(Some("a"), &[(NOW_MS, 1.0)])).await;
    assert_eq!(lines.take("rejected"), Vec::<String>::new());
    server.send(write_request(Some("a"), &[(far, 1.0), (far + 1, 1.0), (NOW_MS, 2.0)])).await;
    let found = lines.take("samples rejected");
    assert_eq!(found.len(), 2, "one line per reason: {found:?}");
    let line = found.iter().find(|line| line.contains("out_of_bounds")).expect("a line");
    for part in [
        "tenant=\"a\"",
        "remote=\"10.0.0.7:4711\"",
        "request_id=\"id-7\"",
        "count=2",
        "suppressed=0",
        &format!("time_ms={far}"),
        "series=\"up\"",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    server.send(write_request(Some("a"), &[(far, 1.0)])).await;
    assert!(lines.take("samples rejected").is_empty(), "within ten seconds");
    server.send(write_request(Some("b"), &[(far, 1.0)])).await;
    assert_eq!(lines.take("samples rejected").len(), 1, "another tenant");
    clock.advance(Duration::from_secs(10));
    server.send(write_request(Some("a"), &[(far, 1.0)])).await;
    let found = lines.take("samples rejected");
    assert!(found.len() == 1 && found[0].contains("suppressed=1"), "{found:?}");
    server.send(write_request(None, &[(NOW_MS, 1.0)])).await;
    assert_eq!(lines.take("remote write refused").len(), 1, "a request without a tenant");
}

#[tokio::test]
async fn answers_carry_the_id_of_their_request() {
    let server = Fixture::ready();
    let id = |answer: &Answer| answer.headers.get("x-request-id").map(|id| id.to_str().unwrap().to_owned());
    let sent = Request::get("/api/v1/query?query=1").header("x-request-id", "abc").body(Body::empty());
    assert_eq!(id(&server.send(sent.unwrap()).await).as_deref(), Some("abc"));
    let trace = Request::get("/api/v1/query?query=(")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .body(Body::empty());
    let answer = server.send(trace.unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), id(&answer).as_deref()),
        (400, Some("0af7651916cd43dd8448eb211c80319c"))
    );
    assert_eq!(id(&server.get("/api/v1/query?query=(").await).map(|id| id.len()), Some(16));
    assert_eq!(id(&server.get("/api/v1/query?query=1").await), None);
}

#[tokio::test]
async fn the_query_log_has_the_fields_of_prometheus() {
    let (server, _clock) = server(|options| options.service.query.log_file = Some("/log/q".into()));
    let path = std::path::Path::new("/log/q");
    let disk = server.web.service.env.disk.clone();
    let read = |path| String::from_utf8(disk.read(path).unwrap()).unwrap();
    server.get(&format!("/api/v1/query_range?query=sum(up)&start={NOW_S}&end={NOW_S}&step=15")).await;
    server.get("/api/v1/query?query=sum(").await;
    let text = read(path);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "what cannot be parsed is no query: {text}");
    let line = &lines[0];
    assert_eq!((line["level"].as_str(), line["msg"].as_str()), (Some("INFO"), Some("promql query logged")));
    assert_eq!(line["params"]["query"], "sum(up)");
    assert_eq!(line["params"]["start"], "2023-11-14T22:13:20.000Z");
    assert_eq!(line["params"]["step"], 15);
    assert_eq!(line["httpRequest"]["path"], "/api/v1/query_range");
    assert_eq!(line["httpRequest"]["method"], "GET");
    assert!(line["stats"]["timings"]["evalTotalTime"].is_number());
    assert!(line["stats"]["samples"]["peakSamples"].is_number());
    // Rotated: the old file has the lines of before, the new one those after the reload.
    let old = std::path::Path::new("/log/q.1");
    disk.rename(path, old).unwrap();
    server.get("/api/v1/query?query=1").await;
    crate::http::reload_now(&server.web).unwrap();
    server.get("/api/v1/query?query=2").await;
    assert_eq!((read(old).lines().count(), read(path).lines().count()), (2, 1));
}

#[tokio::test]
async fn metrics_by_tenant_are_bounded() {
    let (server, _clock) = server(|options| {
        options.service.multitenancy = true;
        options.service.tenant_metrics_max = 2;
        options.service.tsdb.limits.default.ingestion.metric_series_max = 7;
    });
    for tenant in ["a", "b", "c", "d"] {
        server.send(write_request(Some(tenant), &[(NOW_MS, 1.0), (NOW_MS + 86_400_000, 1.0)])).await;
        let query = Request::get("/api/v1/query?query=up").header("x-scope-orgid", tenant);
        server.send(query.body(Body::empty()).unwrap()).await;
    }
    let text = server.get("/metrics").await.text;
    for line in [
        "chronolith_tenant_samples_accepted_total{tenant=\"a\"} 1",
        "chronolith_tenant_samples_accepted_total{tenant=\"__overflow__\"} 2",
        "chronolith_tenant_samples_rejected_total{tenant=\"b\",reason=\"out_of_bounds\"} 1",
        "chronolith_tenant_queries_total{tenant=\"__overflow__\"} 2",
        "chronolith_tenant_head_series{tenant=\"a\"} 1",
        "chronolith_tenant_limit{tenant=\"a\",limit=\"series\"} 5e+07",
        "chronolith_tenant_used{tenant=\"a\",limit=\"series\"} 1",
        "chronolith_tenant_limit{tenant=\"b\",limit=\"metric_series\"} 7",
        "chronolith_tenant_used{tenant=\"b\",limit=\"metric_series\"} 1",
        "chronolith_tenant_head_series{tenant=\"__overflow__\"} 2",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("tenant=\"c\""));
}

#[tokio::test]
async fn permits_and_memory_of_a_tenant_follow_the_weight_of_a_reload() {
    let (server, _clock) = server(|options| {
        options.service.multitenancy = true;
        options.service.write.concurrency = 64;
        options.service.query.memory_total_bytes_max = 4000;
        options.service.query.memory_bytes_max = 100;
    });
    let tenant = TenantId::new("a").unwrap();
    server.send(write_request(Some("a"), &[(NOW_MS, 1.0)])).await;
    for (weight, writes, memory) in [(10, 16, 1000), (20, 32, 2000), (5, 8, 500), (100, 64, 4000)] {
        let limits = TenantLimits { weight, ..TenantLimits::default() };
        let mut table = LimitsTable::from(TenantLimits::default());
        table.by_tenant.insert(tenant.clone(), limits);
        server.web.service.set_limits(table);
        let text = server.get("/metrics").await.text;
        for line in [
            format!("chronolith_tenant_weight{{tenant=\"a\"}} {weight}\n"),
            format!("chronolith_tenant_limit{{tenant=\"a\",limit=\"writes\"}} {writes}\n"),
            "chronolith_tenant_waiting{tenant=\"a\",class=\"write\"} 0\n".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        let memory_of = &server.web.service.admission.query_memory;
        let limit = memory_of.use_of(&tenant, 0).limit_bytes.unwrap_or(memory_of.total.limit_bytes());
        assert_eq!(limit, memory, "weight {weight}");
        let other = memory_of.use_of(&TenantId::new("b").unwrap(), 0).limit_bytes;
        assert_eq!(other, Some(1000), "the others keep their part");
    }
}

/// Covers a regression: the first of two tenant headers won.
#[tokio::test]
async fn two_tenant_headers_are_refused() {
    let (server, _clock) = server(|options| options.service.multitenancy = true);
    let request =
        Request::get("/api/v1/query?query=up").header("x-scope-orgid", "a").header("x-scope-orgid", "b");
    let answer = server.send(request.body(Body::empty()).unwrap()).await;
    check_error(&answer, 400, "bad_data", "more than one X-Scope-OrgID header");
}

/// Covers a regression: the parameters of rules were not looked at, and Prometheus refuses wrong ones.
#[tokio::test]
async fn parameters_of_rules_are_checked_as_in_prometheus() {
    let server = Fixture::ready();
    for (query, want) in [
        (
            "exclude_alerts=x",
            r#"invalid parameter "exclude_alerts": error converting exclude_alerts: strconv.ParseBool: parsing "x": invalid syntax"#,
        ),
        ("group_limit=-1", r#"invalid parameter "group_limit": group_limit needs to be greater than 0"#),
        (
            "group_limit=x",
            r#"invalid parameter "group_limit": group_limit needs to be a valid number: strconv.ParseInt: parsing "x": invalid syntax"#,
        ),
        (
            "group_next_token=x",
            r#"invalid parameter "group_next_token": group_limit needs to be present in order to paginate over the groups"#,
        ),
        (
            "group_limit=1&group_next_token=x",
            r#"invalid parameter "group_next_token": invalid group_next_token 'x'. were rule groups changed?"#,
        ),
        ("type=x", r#"invalid parameter "type": not supported value "x""#),
        ("match[]={", "1:2: parse error: unexpected end of input inside braces"),
    ] {
        check_error(&server.get(&format!("/api/v1/rules?{query}")).await, 400, "bad_data", want);
    }
    let good = server.get("/api/v1/rules?exclude_alerts=TRUE&group_limit=3&match[]=up").await;
    assert_eq!(good.status.as_u16(), 200);
}

/// Keys were invented; clients look for Prometheus's.
#[tokio::test]
async fn features_have_the_keys_of_prometheus() {
    let server = Fixture::ready();
    let features = server.get("/api/v1/features").await.json()["data"].clone();
    let keys = |part: &str| -> Vec<String> { features[part].as_object().unwrap().keys().cloned().collect() };
    let promql = [
        "anchored",
        "at_modifier",
        "bool",
        "by",
        "delayed_name_removal",
        "duration_expr",
        "fill",
        "fill_left",
        "fill_right",
        "group_left",
        "group_right",
        "ignoring",
        "negative_offset",
        "offset",
        "on",
        "per_query_lookback_delta",
        "per_step_stats",
        "smoothed",
        "subqueries",
        "type_and_unit_labels",
        "unquoted_utf8_names",
        "without",
    ];
    assert_eq!(keys("promql"), promql);
    let api = [
        "admin",
        "exclude_alerts",
        "label_values_match",
        "lifecycle",
        "openapi_3.1",
        "openapi_3.2",
        "otlp_write_receiver",
        "query_cost",
        "query_stats",
        "query_warnings",
        "remote_write_receiver",
        "search",
        "time_range_labels",
        "time_range_series",
    ];
    assert_eq!(keys("api"), api);
    assert_eq!(features["promql_functions"]["rate"], true);
    assert_eq!(features["promql_functions"]["info"], false);
    assert_eq!(features["promql_operators"]["limitk"], false);
    assert_eq!(keys("promql_operators").len(), 35);
}

/// Covers a regression: `lifecycle` was true on servers that refuse `/-/reload` with 403.
#[tokio::test]
async fn features_follow_the_switches_of_the_apis() {
    for is_on in [false, true] {
        let server = Fixture::with(|options| {
            options.web.lifecycle = is_on;
            options.web.admin_api = is_on;
        });
        let api = server.get("/api/v1/features").await.json()["data"]["api"].clone();
        assert_eq!((&api["lifecycle"], &api["admin"]), (&is_on.into(), &is_on.into()));
    }
}
