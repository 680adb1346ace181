//! Many tenants with logins of their own: no answer to one of them has a byte of another one, whatever the
//! request. A campaign has 1,000: `CHRONOLITH_ACCESS_TENANTS=1000`.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use chronolith_ingest::remote_write::encode::RequestEncoder;

use super::access::{Random, concrete, count_of, entry, guarded, reads, send};
use super::{Answer, Fixture, NOW_MS};
use crate::http::remote_read::tests::series_for;
use crate::http::routes::table;
use crate::http::routing::Route;

const TENANT_COUNT: usize = 40;
/// Requests of random tenants, beyond one of each route for some of them.
const REQUEST_COUNT: usize = 1_500;

/// Text that each name and value of a tenant has, and nothing else in any answer.
fn mark(tenant: usize) -> String {
    format!("zq{tenant:04}qz")
}

/// The tenant whose mark begins at `text`.
fn marked(text: &str) -> Option<usize> {
    text.get(2..6)?.parse().ok().filter(|_| text.get(6..8) == Some("qz"))
}

/// Checks an answer to a request that has the mark `named` of another tenant itself, or none.
#[track_caller]
fn check(tenant: usize, request: &str, named: &str, answer: &Answer) {
    let texts = [answer.text.clone(), format!("{:?}", answer.headers)];
    for text in texts.map(|text| if named.is_empty() { text } else { text.replace(named, "") }) {
        let others = text.match_indices("zq").filter_map(|(at, _)| marked(&text[at..]));
        let leak = others.into_iter().find(|found| *found != tenant);
        assert_eq!(leak, None, "tenant {tenant}, {request}: {} {text}", answer.status);
    }
}

async fn post(server: &Fixture, tenant: usize, path: &str, kind: &str, body: Vec<u8>) -> Answer {
    let mut request = Request::post(path)
        .header(header::AUTHORIZATION, format!("Bearer {}", mark(tenant)))
        .header(header::CONTENT_TYPE, kind);
    if kind == "application/x-protobuf" {
        request = request.header(header::CONTENT_ENCODING, "snappy");
    }
    let answer = server.send(request.body(Body::from(body)).expect("a request")).await;
    check(tenant, path, "", &answer);
    answer
}

/// Writes samples of every protocol, and some that are refused.
async fn fill(server: &Fixture, tenant: usize) {
    let mark = mark(tenant);
    let mut encoder = RequestEncoder::new();
    let labels = [("__name__", "up"), ("env", mark.as_str())];
    encoder.push_series(labels, &[(NOW_MS - 60_000, 1.0), (NOW_MS, 2.0)]);
    let named = format!("{mark}_total");
    let labels = [("__name__", named.as_str()), ("env", "prod"), (mark.as_str(), "x")];
    encoder.push_series(labels, &[(NOW_MS, 3.0)]);
    let answer = post(server, tenant, "/api/v1/write", "application/x-protobuf", encoder.compressed()).await;
    assert!(answer.status.is_success(), "{}", answer.text);
    let create = format!("q=CREATE DATABASE db%3B CREATE DATABASE {mark}").into_bytes();
    let answer = post(server, tenant, "/query", "application/x-www-form-urlencoded", create).await;
    assert!(!answer.text.contains("error"), "{}", answer.text);
    let time_s = NOW_MS / 1000;
    let lines =
        format!("load,env={mark} v=1 {time_s}000000000\n{mark},env=prod {mark}=2 {time_s}000000000\n");
    let answer = post(server, tenant, "/write?db=db", "text/plain", lines.into_bytes()).await;
    assert!(answer.status.is_success(), "{}", answer.text);
    let points = format!("load;env={mark} 1 {time_s}\nservers.{mark}.cpu 2 {time_s}\n");
    post(server, tenant, "/api/v1/carbon", "text/plain", points.into_bytes()).await;
    // A conflict of values and one of types: both are in the list of rejects, with their series.
    let mut conflict = RequestEncoder::new();
    conflict.push_series([("__name__", "up"), ("env", mark.as_str())], &[(NOW_MS, 9.0)]);
    post(server, tenant, "/api/v1/write", "application/x-protobuf", conflict.compressed()).await;
    let lines = format!("load,env={mark} v=\"text\" {time_s}000000000\n").into_bytes();
    post(server, tenant, "/write?db=db", "text/plain", lines).await;
    let event = format!("{{\"what\":\"{mark}\",\"tags\":\"{mark}\",\"when\":{time_s}}}").into_bytes();
    post(server, tenant, "/events", "application/json", event).await;
}

/// Reads of each language, of lists and status, and requests that are errors.
fn paths(tenant: usize) -> Vec<String> {
    let mark = mark(tenant);
    let time = NOW_MS / 1000;
    let mut paths = reads();
    paths.extend([
        format!("/api/v1/query?query={mark}_total&time={time}"),
        format!("/api/v1/query?query=sum({mark}_total&time={time}"),
        format!("/api/v1/query?query={{__name__=~\".%2B\"}}&time={time}&stats=all"),
        format!("/query?db={mark}&q=SELECT+*+FROM+x"),
        format!("/query?db=db&q=SELECT+FROM+{mark}"),
        "/query?q=SHOW+DATABASES".to_owned(),
        "/query?q=SHOW+QUERIES".to_owned(),
        "/query?q=SHOW+CONTINUOUS+QUERIES".to_owned(),
        "/query?q=SHOW+USERS".to_owned(),
        "/query?q=SHOW+STATS".to_owned(),
        "/query?q=SHOW+DIAGNOSTICS".to_owned(),
        "/query?q=SHOW+SHARDS".to_owned(),
        format!("/render?target={mark}.*&target=(&format=json"),
        "/render?target=**&format=json".to_owned(),
        "/events/get_data".to_owned(),
        "/api/v1/metadata".to_owned(),
        format!("/api/v1/query_exemplars?query=up&start=0&end={time}"),
        "/api/v1/status/rejects".to_owned(),
        "/api/v1/status/top_queries".to_owned(),
        "/api/v1/status/blocks".to_owned(),
        "/api/v1/status/metric_usage".to_owned(),
        "/api/v1/status/active_queries".to_owned(),
    ]);
    paths
}

#[tokio::test]
async fn no_answer_has_a_byte_of_another_tenant() {
    let tenant_count = count_of("CHRONOLITH_ACCESS_TENANTS", TENANT_COUNT);
    let request_count = REQUEST_COUNT.max(4 * tenant_count);
    let entries: Vec<String> = (0..tenant_count)
        .map(|tenant| {
            let mark = mark(tenant);
            entry(&mark, &format!("  tenants: [{mark}]\n  scopes: [read, write, rules, admin]\n"))
        })
        .collect();
    let server = guarded(true, &entries);
    for tenant in 0..tenant_count {
        fill(&server, tenant).await;
    }
    let mut random = Random(20_261_129);
    let mut seen = 0;
    for _ in 0..request_count {
        let tenant = random.below(tenant_count);
        let all = paths(tenant);
        let path = &all[random.below(all.len())];
        let authorization = format!("Bearer {}", mark(tenant));
        let mut headers = vec![("authorization", authorization.as_str())];
        let other = mark(random.below(tenant_count));
        let names_other = random.below(8) == 0;
        if names_other {
            headers.push(("x-scope-orgid", &other));
        }
        let answer = send(&server, "GET", path, &headers).await;
        if random.below(8) == 0 {
            let series = series_for(&server, &mark(tenant)).await;
            assert_eq!(series.len(), 12, "six series in two forms: {series:?}");
            let foreign = series.iter().find(|line| !line.contains(&mark(tenant)));
            assert_eq!(foreign, None, "tenant {tenant}: remote read");
        }
        check(tenant, path, if names_other { &other } else { "" }, &answer);
        seen += usize::from(answer.text.contains(&mark(tenant)));
        assert!(answer.status != StatusCode::INTERNAL_SERVER_ERROR, "{path}: {}", answer.text);
    }
    assert!(seen > request_count / 4, "only {seen} answers have something of their tenant");
    for tenant in [0, 417, tenant_count - 1] {
        let authorization = format!("Bearer {}", mark(tenant));
        let operations = |route: &'static Route| {
            route.paths.iter().flat_map(|path| route.operations().map(move |operation| (*path, operation)))
        };
        for (path, operation) in table().rows().flat_map(|(_, route)| operations(route)) {
            let mut request = concrete(path);
            write!(request, "?query=up&match[]=up&db=db&q=SHOW+SERIES&target=**").expect("memory takes text");
            for method in operation.methods.names() {
                let answer = send(&server, method, &request, &[("authorization", &authorization)]).await;
                check(tenant, &format!("{method} {path}"), "", &answer);
            }
        }
    }
}
