//! The router without sockets: parameters, errors, envelopes, formats.
//! Uses a store in memory; a fake clock stands at [`NOW_MS`].

pub(crate) mod access;
mod activity;
mod admin;
pub(crate) mod audit;
pub(crate) mod cluster;
mod durations;
mod fake_owner;
mod health;
mod limits;
mod metrics;
mod observe;
pub(crate) mod partial;
mod prefix;
mod queries;
mod query_limits;
mod read_only;
mod search;
mod sources;
mod targets;
mod tenant_deletion;
mod tenants_apart;
mod tsdb_status;

use std::sync::{Arc, LazyLock, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use chronolith_base::Env;
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_model::{Labels, StoreId, TenantId, WriteBatch};
use chronolith_tsdb::{BucketOptions, BucketSources, ReplayProgress, SourcePart, Tsdb};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

pub(crate) use self::fake_owner::FakeOwner;
use super::router;
use crate::options::{ServerOptions, ShownSetting};
use crate::web::Web;

pub(crate) const NOW_MS: i64 = 1_700_000_000_000;
pub(in crate::http) const NOW_S: i64 = NOW_MS / 1000;

/// Labels as they are written down in a test.
pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
}

pub(crate) struct Fixture {
    pub(crate) web: Arc<Web>,
    /// Made for the first request: it takes as long as a hundred of them.
    router: OnceLock<Router>,
}

fn shown_setting(name: &str, value: &str) -> ShownSetting {
    ShownSetting {
        name: name.to_owned(),
        value: value.to_owned(),
        default: Some(value.to_owned()),
        origin: "flag".to_owned(),
    }
}

impl Fixture {
    pub(crate) fn new(web: Arc<Web>) -> Fixture {
        Fixture { web, router: OnceLock::new() }
    }

    pub(crate) fn starting() -> Fixture {
        Fixture::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
        let (env, _clock, _disk) = Env::fake(NOW_MS, 1);
        Fixture::with_env(env, change)
    }

    pub(crate) fn with_env(env: Env, change: impl FnOnce(&mut ServerOptions)) -> Fixture {
        let mut options = ServerOptions::new("/data".into());
        options.shown.push(shown_setting("http", "127.0.0.1:9595"));
        change(&mut options);
        Fixture::new(Arc::new(Web::new(env, options, None)))
    }

    pub(crate) fn ready() -> Fixture {
        Fixture::starting().open()
    }

    /// A server over an empty bucket.
    pub(crate) fn read_only() -> Fixture {
        static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));
        let fixture = Fixture::with(|options| options.web.admin_api = true);
        let bucket = BucketOptions { is_read_only: true, ..BucketOptions::new("memory://") };
        let sources =
            BucketSources::open(&bucket, &fixture.web.service.env, RUNTIME.handle()).expect("valid");
        let sources = Arc::new(sources);
        fixture.web.service.set_bucket(sources.clone());
        fixture.web.service.lifecycle.set_sources(sources);
        fixture
    }

    /// A server with a data directory that refuses changes.
    pub(crate) fn read_only_store() -> Fixture {
        let fixture = Fixture::with(|options| {
            options.web.admin_api = true;
            options.service.is_read_only = true;
        });
        fixture.open()
    }

    pub(crate) fn open(self) -> Fixture {
        self.open_with(Vec::new())
    }

    /// Opens a store next to other sources.
    pub(crate) fn open_with(self, others: Vec<SourcePart>) -> Fixture {
        let options = self.web.service.options.tsdb_options();
        let progress = Arc::new(ReplayProgress::default());
        let store = Tsdb::open(self.web.service.env.clone(), options, progress).expect("opens");
        self.web.service.set_store(store, others);
        self
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let router = self.router.get_or_init(|| router(self.web.clone()));
        let response = router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    /// As [`Fixture::send`] for an answer that is no text: its status, and its bytes or why it broke off.
    pub(in crate::http) async fn send_for_bytes(
        &self,
        request: Request<Body>,
    ) -> (u16, Result<Vec<u8>, String>) {
        let router = self.router.get_or_init(|| router(self.web.clone()));
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await;
        (status, body.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string()))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// As [`Fixture::get`] for a tenant.
    pub(in crate::http) async fn get_as(&self, tenant: &str, path: &str) -> Answer {
        let request = Request::get(path).header("X-Scope-OrgID", tenant);
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// Stores one sample of each series for a tenant, at [`NOW_MS`] plus `offset_ms`.
    pub(in crate::http) fn store_series(&self, tenant: &str, offset_ms: i64, series: &[Pairs<'_>]) {
        let mut batch = WriteBatch::from_labels();
        for labels in series {
            let labels = Labels::from_pairs(labels.iter().copied());
            batch.push_labels(&labels, &[(NOW_MS + offset_ms, 1.0)]);
        }
        let tenant = StoreId::from(TenantId::new(tenant).expect("valid"));
        let stored =
            self.web.service.lifecycle.opened().expect("open").append(&tenant, &batch).expect("stored");
        assert_eq!(stored.first_reject, None);
    }

    /// Flushes all windows that have ended to blocks.
    async fn flush(&self) {
        let store = self.web.service.lifecycle.store().expect("open").clone();
        let flushed =
            tokio::task::spawn_blocking(move || store.maintenance().flush_closed(NOW_MS + 24 * 3_600_000));
        flushed.await.expect("no panic").expect("flushes");
    }

    pub(crate) async fn post_form(&self, path: &str, form: &str) -> Answer {
        let kind = "application/x-www-form-urlencoded";
        let request =
            Request::post(path).header(header::CONTENT_TYPE, kind).body(Body::from(form.to_owned()));
        self.send(request.unwrap()).await
    }

    pub(crate) async fn write(&self, series: &[(Pairs<'_>, &[(i64, f64)])]) -> Answer {
        let mut encoder = RequestEncoder::new();
        for (labels, samples) in series {
            encoder.push_series(labels.iter().copied(), samples);
        }
        let request = Request::post("/api/v1/write")
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::CONTENT_ENCODING, "snappy")
            .body(Body::from(encoder.compressed()));
        self.send(request.unwrap()).await
    }
}

#[track_caller]
fn check_error(answer: &Answer, status: u16, kind: &str, message: &str) {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
    let json = answer.json();
    assert_eq!(
        (json["status"].as_str(), json["errorType"].as_str()),
        (Some("error"), Some(kind)),
        "{}",
        answer.text
    );
    let found = json["error"].as_str().unwrap();
    assert_eq!(found, message);
}

#[tokio::test]
async fn refusals_have_the_texts_of_prometheus() {
    let server = Fixture::ready();
    let cases = [
        (
            "/api/v1/query?query=1&time=yesterday",
            r#"invalid parameter "time": invalid time value for 'time': cannot parse "yesterday" to a valid timestamp"#,
        ),
        (
            "/api/v1/query_range?query=1&end=1&step=1",
            r#"invalid parameter "start": cannot parse "" to a valid timestamp"#,
        ),
        (
            "/api/v1/query_range?query=1&start=0&step=1",
            r#"invalid parameter "end": cannot parse "" to a valid timestamp"#,
        ),
        (
            "/api/v1/query_range?query=1&start=2&end=1&step=1",
            r#"invalid parameter "end": end timestamp must not be before start time"#,
        ),
        (
            "/api/v1/query_range?query=1&start=1&end=2",
            r#"invalid parameter "step": cannot parse "" to a valid duration"#,
        ),
        (
            "/api/v1/query_range?query=1&start=1&end=2&step=0",
            r#"invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer"#,
        ),
        (
            "/api/v1/query_range?query=1&start=1&end=2&step=0.000000001",
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
        ),
        ("/api/v1/series", "no match[] parameter provided"),
        (
            "/api/v1/query?query=sum(",
            r#"invalid parameter "query": 1:5: parse error: unclosed left parenthesis"#,
        ),
    ];
    for (path, message) in cases {
        check_error(&server.get(path).await, 400, "bad_data", message);
    }
}

/// Requests with several faults, and the text that Prometheus answers.
const REFUSALS: &[(&str, &str)] = &[
    (
        "/api/v1/query_range?query=sum(&limit=x&start=",
        r#"invalid parameter "limit": strconv.Atoi: parsing "x": invalid syntax"#,
    ),
    (
        "/api/v1/query?query=sum(&timeout=x&lookback_delta=y",
        r#"invalid parameter "timeout": cannot parse "x" to a valid duration"#,
    ),
    (
        "/api/v1/query?query=sum(&lookback_delta=y",
        r#"error parsing lookback delta duration: cannot parse "y" to a valid duration"#,
    ),
    (
        "/api/v1/query_range?query=sum(&start=0&end=1&step=1",
        r#"invalid parameter "query": 1:5: parse error: unclosed left parenthesis"#,
    ),
    ("/api/v1/query_exemplars?query=sum(", "1:5: parse error: unclosed left parenthesis"),
    ("/api/v1/series?limit=x", "no match[] parameter provided"),
    ("/api/v1/series?match[]=%zz", r#"error parsing form values: invalid URL escape "%zz""#),
    ("/api/v1/labels?match[]=%7B%7D", "match[] must contain at least one non-empty matcher"),
    ("/api/v1/label/job/values?match[]=up%7B", "1:4: parse error: unexpected end of input inside braces"),
    (
        "/api/v1/series?match[]=up%7B&end=x",
        r#"invalid parameter "end": invalid time value for 'end': cannot parse "x" to a valid timestamp"#,
    ),
    (
        "/api/v1/series?match[]=rate(up[5m])",
        r#"invalid parameter "match[]": 1:5: parse error: unexpected "(""#,
    ),
    ("/api/v1/labels?match[]=up%20offset%205m", "1:4: parse error: unexpected <offset>"),
    ("/api/v1/label/job/values?match[]=%7B%7D&match[]=1", r#"1:1: parse error: unexpected number "1""#),
    (
        "/api/v1/targets/metadata?match_target=rate(up[5m])",
        r#"invalid parameter "match_target": 1:5: parse error: unexpected "(""#,
    ),
    (
        "/api/v1/query_range?query=1&start=0&end=1&step=NaN",
        r#"invalid parameter "step": cannot parse "NaN" to a valid duration. It overflows int64"#,
    ),
    (
        "/api/v1/query?query=1&timeout=9223372036.854776",
        r#"invalid parameter "timeout": cannot parse "9223372036.854776" to a valid duration. It overflows int64"#,
    ),
    (
        "/api/v1/query?query=1&lookback_delta=1e10",
        r#"error parsing lookback delta duration: cannot parse "1e10" to a valid duration. It overflows int64"#,
    ),
    ("/api/v1/metadata?limit=x", "limit must be a number"),
    ("/api/v1/metadata?limit_per_metric=x", "limit_per_metric must be a number"),
    ("/api/v1/targets/metadata?limit=x", "limit must be a number"),
    (
        "/api/v1/targets/metadata?match_target=%7B",
        "invalid parameter \"match_target\": 1:2: parse error: unexpected end of input inside braces",
    ),
    ("/api/v1/status/tsdb?limit=0", "limit must be a positive number"),
    ("/api/v1/status/tsdb?limit=10001", "limit must not exceed 10000"),
    ("/api/v1/rules?type=x", r#"invalid parameter "type": not supported value "x""#),
    (
        "/api/v1/query_range?query=1&start=0&end=11001&step=1",
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)",
    ),
    (
        "/api/v1/series?match[]=%7B%7D",
        r#"invalid parameter "match[]": match[] must contain at least one non-empty matcher"#,
    ),
    ("/api/v1/query?query=sum(", r#"invalid parameter "query": 1:5: parse error: unclosed left parenthesis"#),
    ("/api/v1/labels?limit=-1", r#"invalid parameter "limit": limit must be non-negative"#),
];

#[tokio::test]
async fn refusals_name_the_fault_that_prometheus_sees_first() {
    let server = Fixture::ready();
    for (path, message) in REFUSALS {
        check_error(&server.get(path).await, 400, "bad_data", message);
    }
}

#[tokio::test]
async fn what_prometheus_lets_pass_passes() {
    let server = Fixture::ready();
    for path in [
        "/api/v1/labels?%zz",
        "/api/v1/query?query=1&x=%zz&y=1;2",
        "/api/v1/query?query=1&lookback_delta=-5",
        "/api/v1/query_range?query=1&start=1&end=1&step=0.0001",
        "/api/v1/metadata?limit=-1&limit_per_metric=-1",
        "/api/v1/rules?type=Alert",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        assert!(answer.text.starts_with(r#"{"status":"success","data":"#), "{path}: {}", answer.text);
    }
    let no_selector = server.get("/api/v1/query_exemplars?query=1").await;
    assert_eq!((no_selector.status, no_selector.text.as_str()), (StatusCode::NO_CONTENT, ""));
}

#[tokio::test]
async fn a_timeout_that_is_not_positive_is_refused() {
    let server = Fixture::ready();
    for (timeout, shown) in [("0", "0s"), ("-1", "-1s"), ("0s", "0s")] {
        let text = format!(r#"invalid parameter "timeout": timeout must be positive, got {shown}"#);
        for path in ["query?query=1", "query?query=(", "query_range?query=1&start=1&end=2&step=1"] {
            let answer = server.get(&format!("/api/v1/{path}&timeout={timeout}")).await;
            check_error(&answer, 400, "bad_data", &text);
        }
    }
}

#[tokio::test]
async fn forms_are_known_by_their_type() {
    let server = Fixture::ready();
    let send = async |kind: &'static str| {
        let request = Request::post("/api/v1/query").header(header::CONTENT_TYPE, kind);
        server.send(request.body(Body::from("query=1")).unwrap()).await.status.as_u16()
    };
    assert_eq!(send("application/x-www-form-urlencoded").await, 200);
    assert_eq!(send("Application/X-WWW-Form-Urlencoded; charset=utf-8").await, 200);
    assert_eq!(send("application/x-www-form-urlencodedX").await, 400);
    assert_eq!(send("application/json").await, 400);
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there() {
    let server = Fixture::ready();
    for path in ["/nope", "/api/v1/nope", "/api/v1/label/a/b/values", "/api/v1/label/a"] {
        let answer = server.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (404, "404 page not found\n"), "{path}");
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
    let answer = server.send(Request::post("/api/v1/wirte").body(Body::from("x")).unwrap()).await;
    let want = "404 page not found: did you mean /api/v1/write?\n";
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (404, want));
    for (path, allow) in [
        ("/api/v1/query", "GET, HEAD, OPTIONS, POST"),
        ("/api/v1/label/a/values", "GET, HEAD, OPTIONS, POST"),
        ("/-/healthy", "GET, HEAD, OPTIONS"),
        ("/-/reload", "OPTIONS, POST, PUT"),
        ("/federate", "GET, HEAD, OPTIONS, POST"),
    ] {
        let answer = server.send(Request::delete(path).body(Body::empty()).unwrap()).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (405, "Method Not Allowed\n"), "{path}");
        assert_eq!(answer.headers[header::ALLOW], allow, "{path}");
    }
    let options = server.send(Request::options("/federate").body(Body::empty()).unwrap()).await;
    assert_eq!(
        (options.status.as_u16(), &options.headers[header::ALLOW]),
        (200, &"GET, HEAD, OPTIONS, POST".parse().unwrap())
    );
}

#[tokio::test]
async fn unclean_paths_lead_to_clean_ones() {
    let server = Fixture::ready();
    for (path, location) in [
        ("//api/v1/query?query=1", "/api/v1/query?query=1"),
        ("/api/v1//query", "/api/v1/query"),
        ("/api/v1/query/?query=1", "/api/v1/query?query=1"),
        ("/api/v1/../v1/labels", "/api/v1/labels"),
        ("//other.example/x", "/other.example/x"),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status.as_u16(), 301, "{path}");
        assert_eq!(answer.headers[header::LOCATION], location, "{path}");
        let form = server.post_form(path, "query=1").await;
        assert_eq!(form.status.as_u16(), 307, "a form keeps its body: {path}");
    }
    assert_eq!(server.get("//\\other.example/").await.status.as_u16(), 404);
}

#[tokio::test]
async fn federation_refuses_in_plain_text() {
    let server = Fixture::ready();
    for (path, message) in [
        ("/federate?match[]=up%7B", "1:4: parse error: unexpected end of input inside braces\n"),
        ("/federate?match[]=%zz", "error parsing form values: invalid URL escape \"%zz\"\n"),
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (400, message), "{path}");
        assert_eq!(answer.headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn steps_at_the_limit_are_allowed() {
    let answer = Fixture::ready().get("/api/v1/query_range?query=1&start=0&end=11000&step=1").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
}

#[tokio::test]
async fn what_is_written_can_be_queried() {
    let server = Fixture::ready();
    let labels: &[(&str, &str)] = &[("__name__", "m"), ("host", "a")];
    let other: &[(&str, &str)] = &[("__name__", "m"), ("host", "b"), ("dot.ted", "z")];
    let samples: &[(i64, f64)] = &[(NOW_MS - 30_000, 1.5), (NOW_MS - 15_000, 1e21)];
    let written = server.write(&[(labels, samples), (other, &samples[..1])]).await;
    assert_eq!(written.status, StatusCode::NO_CONTENT, "{}", written.text);

    let vector = server.get("/api/v1/query?query=m").await;
    assert_eq!(
        vector.text,
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"__name__":"m","dot.ted":"z","host":"b"}},"value":[{NOW_S},"1.5"]}},{{"metric":{{"__name__":"m","host":"a"}},"value":[{NOW_S},"1e+21"]}}]}}}}"#
        )
    );
    let form =
        format!("query=m%7Bhost%3D%22a%22%7D&start={}&end={NOW_S}&step=15&limit=1&stats=all", NOW_S - 30);
    let matrix = server.post_form("/api/v1/query_range", &form).await.json();
    let values = &matrix["data"]["result"][0]["values"];
    assert_eq!(
        values.to_string(),
        format!(r#"[[{},"1.5"],[{},"1e+21"],[{NOW_S},"1e+21"]]"#, NOW_S - 30, NOW_S - 15)
    );
    assert!(matrix["data"]["stats"]["samples"]["totalQueryableSamples"].is_u64());

    let names = server.get("/api/v1/labels").await.json();
    assert_eq!(names["data"].to_string(), r#"["__name__","dot.ted","host"]"#);
    let values = server.get("/api/v1/label/U__dot_2e_ted/values").await.json();
    assert_eq!(values["data"].to_string(), r#"["z"]"#);
    let cut = server.get("/api/v1/label/host/values?limit=1").await.json();
    assert_eq!(cut["data"].to_string(), r#"["a"]"#);
    assert_eq!(cut["warnings"].to_string(), r#"["results truncated due to limit"]"#);
    let series = server.post_form("/api/v1/series", "match[]=m&match[]=%7Bhost%3D%22a%22%7D").await.json();
    assert_eq!(series["data"].as_array().map(Vec::len), Some(2), "each series once: {series}");

    let federated = server.get("/federate?match[]=m").await.text;
    let line = format!("m{{host=\"a\",instance=\"\"}} 1e+21 {}\n", NOW_MS - 15_000);
    assert!(federated.starts_with("# TYPE m untyped\n") && federated.contains(&line), "{federated}");
}

#[tokio::test]
async fn rejected_samples_are_counted_and_the_first_is_named() {
    let server = Fixture::ready();
    let good: &[(&str, &str)] = &[("__name__", "good")];
    let bad: &[(&str, &str)] = &[("a", "b")];
    let answer = server.write(&[(good, &[(NOW_MS, 1.0)]), (bad, &[(NOW_MS, 1.0)])]).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(
        answer.text.starts_with("1 of 2 samples rejected: first: series has no metric name"),
        "{}",
        answer.text
    );
    let metrics = server.get("/metrics").await.text;
    assert!(
        metrics.contains("chronolith_write_samples_rejected_total{reason=\"no_metric_name\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("chronolith_write_samples_accepted_total 1\n"));
}

#[tokio::test]
async fn bodies_that_are_no_remote_write() {
    let server = Fixture::with(|options| options.service.write.compressed_bytes_max = 1000).open();
    let send = async |kind: &'static str, encoding: &'static str, body: Vec<u8>| {
        let request = Request::post("/api/v1/push").header(header::CONTENT_TYPE, kind);
        let request = request.header(header::CONTENT_ENCODING, encoding).body(Body::from(body));
        server.send(request.unwrap()).await.status.as_u16()
    };
    let protobuf = "application/x-protobuf";
    assert_eq!(send(protobuf, "snappy", b"garbage".to_vec()).await, 400);
    assert_eq!(send(protobuf, "gzip", Vec::new()).await, 415);
    assert_eq!(send("text/plain", "snappy", Vec::new()).await, 415);
    assert_eq!(send(protobuf, "snappy", vec![0; 1001]).await, 413);
    assert_eq!(server.get("/api/v1/write").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn while_starting_only_what_needs_no_store_answers() {
    let server = Fixture::starting();
    for path in ["/", "/-/healthy", "/metrics", "/api/v1/status/walreplay", "/api/v1/status/buildinfo"] {
        assert_eq!(server.get(path).await.status, StatusCode::OK, "{path}");
    }
    let ready = server.get("/-/ready").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(ready.text.starts_with("Service Unavailable"), "{}", ready.text);
    for path in ["/api/v1/query?query=1", "/api/v1/labels", "/api/v1/status/tsdb"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["errorType"].as_str()),
            (503, Some("unavailable")),
            "{path}"
        );
        assert!(answer.headers.contains_key(header::RETRY_AFTER));
    }
    assert_eq!(server.write(&[]).await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn tenants_come_from_the_header() {
    let server = Fixture::with(|options| options.service.multitenancy = true).open();
    let answer = server.get("/api/v1/query?query=1").await;
    check_error(&answer, 401, "bad_data", "no org id");
    let with =
        |id: &str| Request::get("/api/v1/labels").header("X-Scope-OrgID", id).body(Body::empty()).unwrap();
    assert_eq!(server.send(with("../x")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(server.send(with("team-a")).await.status, StatusCode::OK);
    // The store of a database has no tenant's name.
    let text = "invalid X-Scope-OrgID: tenant id must not be \".\" or \"..\" or start with \"__\"";
    check_error(&server.send(with("__ns-0000000000000000")).await, 400, "bad_data", text);
}

#[tokio::test]
async fn long_answers_are_compressed_when_asked() {
    let server = Fixture::ready();
    let request =
        Request::get("/metrics").header(header::ACCEPT_ENCODING, "gzip").body(Body::empty()).unwrap();
    assert_eq!(server.send(request).await.headers[header::CONTENT_ENCODING], "gzip");
    let request =
        Request::get("/-/healthy").header(header::ACCEPT_ENCODING, "gzip").body(Body::empty()).unwrap();
    assert!(!server.send(request).await.headers.contains_key(header::CONTENT_ENCODING));
}

#[tokio::test]
async fn lists_that_grafana_asks_for_are_there() {
    let server = Fixture::ready();
    for (path, pointer) in [
        ("/api/v1/rules", "/data/groups"),
        ("/api/v1/alerts", "/data/alerts"),
        ("/api/v1/targets", "/data/activeTargets"),
        ("/api/v1/status/tsdb", "/data/seriesCountByMetricName"),
        ("/api/v1/query_exemplars?query=m", "/data"),
    ] {
        let json = server.get(path).await.json();
        assert!(json.pointer(pointer).is_some_and(Value::is_array), "{path}: {json}");
    }
    let flags = server.get("/api/v1/status/flags").await.json();
    assert_eq!(flags["data"]["http"], "127.0.0.1:9595");
    let settings = server.get("/api/v1/status/settings").await.json();
    let http = serde_json::json!({
        "name": "http", "value": "127.0.0.1:9595", "default": "127.0.0.1:9595", "origin": "flag"
    });
    assert_eq!(settings["data"], serde_json::json!([http]));
    assert_eq!(server.get("/api/v1/metadata").await.json()["data"], serde_json::json!({}));
    let openmetrics =
        Request::get("/metrics").header(header::ACCEPT, "application/openmetrics-text").body(Body::empty());
    assert!(server.send(openmetrics.unwrap()).await.text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_reload_changes_limits_and_a_bad_file_changes_nothing() {
    let (env, _clock, _disk) = Env::fake(NOW_MS, 1);
    let good = std::sync::atomic::AtomicBool::new(true);
    let reload = move || {
        if !good.swap(false, std::sync::atomic::Ordering::Relaxed) {
            return Err("line 3 makes no sense".to_owned());
        }
        let limits = chronolith_model::TenantLimits { retention_ms: 86_400_000, ..Default::default() };
        Ok(crate::Reloaded {
            limits: limits.into(),
            shown: vec![shown_setting("retention", "1d")],
            config_yaml: String::new(),
        })
    };
    let mut options = ServerOptions::new("/data".into());
    options.web.lifecycle = true;
    let web = Arc::new(Web::new(env, options, Some(Arc::new(reload))));
    // The first reload comes before the store is open; its limits hold once it is.
    let server = Fixture::new(web);
    assert_eq!(
        server.send(Request::post("/-/reload").body(Body::empty()).unwrap()).await.status,
        StatusCode::OK
    );
    let server = server.open();
    assert_eq!(
        server.web.service.lifecycle.store().unwrap().settings().limits().default.retention_ms,
        86_400_000
    );
    let refused = server.send(Request::post("/-/reload").body(Body::empty()).unwrap()).await;
    assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(refused.text.contains("line 3"), "{}", refused.text);
    assert_eq!(
        server.web.service.lifecycle.store().unwrap().settings().limits().default.retention_ms,
        86_400_000
    );
    assert_eq!(server.get("/api/v1/status/flags").await.json()["data"]["retention"], "1d");
    let runtime = server.get("/api/v1/status/runtimeinfo").await.json();
    assert_eq!(
        (&runtime["data"]["storageRetention"], &runtime["data"]["reloadConfigSuccess"]),
        (&"1d".into(), &false.into())
    );
    assert_eq!(server.get("/-/reload").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn memory_is_told_by_part_and_the_parts_are_metrics() {
    let starting = Fixture::starting();
    assert_eq!(
        starting.get("/api/v1/status/memory").await.json()["data"]["parts"]["head"],
        serde_json::json!({})
    );
    let server = Fixture::ready();
    let written = server.write(&[(&[("__name__", "m")], &[(NOW_MS, 1.0)])]).await;
    assert_eq!(written.status, StatusCode::NO_CONTENT, "{}", written.text);
    let data = server.get("/api/v1/status/memory").await.json()["data"].clone();
    let (mut sum, mut names) = (0, Vec::new());
    for group in ["head", "store", "server"] {
        for (name, part) in data["parts"][group].as_object().expect("parts by name") {
            sum += part["bytes"].as_u64().expect("bytes");
            names.push(name.clone());
        }
    }
    assert_eq!(data["accountedBytes"], sum);
    assert_eq!(data["parts"]["head"]["hot_records"]["count"], 1);
    assert!(data["parts"]["head"]["hot_records"]["bytes"].as_u64() >= Some(64));
    assert_eq!(data["tenants"][0]["series"], 1);
    let metrics = server.get("/metrics").await.text;
    for name in names {
        assert!(metrics.contains(&format!("chronolith_memory_bytes{{part=\"{name}\"}} ")), "{name}");
    }
}

#[tokio::test]
async fn hostile_parameters_are_refused() {
    let server = Fixture::ready();
    let spaces = "+".repeat(1 << 20);
    for form in [
        format!("query={spaces}"),
        "query=".to_owned(),
        String::new(),
        format!("query={}", "(".repeat(20_000)),
    ] {
        let answer = server.post_form("/api/v1/query", &form).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{:.80}", answer.text);
    }
    for path in ["/api/v1/label/%ff/values", "/api/v1/query?query=%zz", "/api/v1/query?query=1&timeout=-3s"] {
        assert_eq!(server.get(path).await.status, StatusCode::BAD_REQUEST, "{path}");
    }
    let form = "a=1&".repeat(2_000_000);
    assert_eq!(server.post_form("/api/v1/query", &form).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn long_answers_hold_memory_until_each_part_is_taken() {
    let server = Fixture::ready();
    let value = "v".repeat(1000);
    let ids: Vec<String> = (0..400).map(|id| format!("{id:03}")).collect();
    let samples: &[(i64, f64)] = &[(NOW_MS, 1.0)];
    let labels: Vec<[(&str, &str); 3]> =
        ids.iter().map(|id| [("__name__", "m"), ("id", id), ("long", value.as_str())]).collect();
    let series: Vec<(Pairs<'_>, &[(i64, f64)])> = labels.iter().map(|pairs| (&pairs[..], samples)).collect();
    assert_eq!(server.write(&series).await.status, StatusCode::NO_CONTENT);
    let used = || server.web.service.admission.query_memory.total.used_bytes();
    let request = Request::get("/api/v1/query?query=m").body(Body::empty()).unwrap();
    let mut body = router(server.web.clone()).oneshot(request).await.unwrap().into_body();
    let total = axum::body::HttpBody::size_hint(&body).exact().expect("a known length");
    assert!(total > 400_000 && used() >= total, "{total} bytes, {} held", used());
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend_from_slice(&frame.unwrap().into_data().unwrap());
        assert!(used() <= total - text.len() as u64 + 200_000, "{} held at {}", used(), text.len());
    }
    assert_eq!((text.len() as u64, used()), (total, 0));
    let json: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["data"]["result"].as_array().map(Vec::len), Some(400));
}
