//! Walks over the table of routes: every row against the router and against each layer that is made from it.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_model::TenantId;
use chronolith_service::access::{Principal, Scope, Scopes, Tenants};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use super::table;
use crate::http::access::Access;
use crate::http::router_with;
use crate::http::routing::table::is_below_mimir_prefix;
use crate::http::routing::{Effect, ErrorForm, Operation, Route, Shows, Tag};
use crate::http::tests::audit::{AUDIT_FILE, lines as audit_lines, wait_for_lines};
use crate::http::tests::{Answer as Sent, Fixture, NOW_MS};

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"];
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const HOST: &str = "127.0.0.1:9595";

/// A server with everything switched on that a row may need.
fn server() -> Fixture {
    Fixture::with(|options| {
        options.web.admin_api = true;
        options.web.lifecycle = true;
        options.service.features.query_cost = true;
    })
    .open()
}

/// A path of a request for a path of a row: `x` for each parameter.
fn concrete(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header(header::HOST, HOST);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).expect("a request")
}

/// All paths of all rows with their operations.
fn operations() -> impl Iterator<Item = (Tag, &'static Route, &'static str, &'static Operation)> {
    table().rows().flat_map(|(tag, route)| {
        let of_path =
            move |path: &&'static str| route.operations().map(move |one| (tag, route, *path, one)).collect();
        route.paths.iter().map(of_path).collect::<Vec<Vec<_>>>().concat()
    })
}

/// The router of a server where one principal sends all requests. It is made once: that takes longer than a
/// request.
fn router_of(server: &Fixture, principal: Principal) -> Router {
    router_with(server.web.clone(), &Access::of(principal))
}

async fn send(router: &Router, request: Request<Body>) -> Sent {
    let (parts, body) = router.clone().oneshot(request).await.expect("infallible").into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Sent { status: parts.status, headers: parts.headers, text }
}

#[tokio::test]
async fn every_row_has_a_handler_for_its_methods_and_405_for_others() {
    let server = server();
    let router = router_of(&server, Principal::unrestricted());
    for (_, route) in table().rows() {
        for path in route.paths {
            for method in METHODS {
                let answer = send(&router, request(method, &concrete(path), &[])).await;
                let is_own = route.operation(&method.parse::<Method>().expect("a method")).is_some();
                assert_eq!(answer.status == StatusCode::METHOD_NOT_ALLOWED, !is_own, "{method} {path}");
                let may_miss = path.contains('{');
                assert!(may_miss || !answer.text.starts_with("404 page not found"), "{method} {path}");
                if !is_own {
                    let own: BTreeSet<&str> = route.methods().chain(["OPTIONS"]).collect();
                    let head = own.contains("GET").then_some("HEAD");
                    let own: BTreeSet<&str> = own.into_iter().chain(head).collect();
                    let want = own.into_iter().collect::<Vec<_>>().join(", ");
                    assert_eq!(answer.headers[header::ALLOW], want, "{method} {path}");
                }
            }
        }
    }
    // Paths with a parameter answer 404 by themselves, so metrics prove that their rows were found.
    let metrics = server.get("/metrics").await.text;
    for path in table().rows().flat_map(|(_, route)| route.paths) {
        assert!(metrics.contains(&format!("{{route=\"{path}\"")), "{path} in the metrics");
    }
}

/// Covers a regression: the list of paths whose POST only reads had not grown with the routers, so that a
/// page of another origin got 403 for a search and a picture, but not for a query.
#[tokio::test]
async fn pages_of_other_origins_are_refused_where_something_changes() {
    let router = router_of(&server(), Principal::unrestricted());
    let foreign = [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")];
    for (_, _, path, operation) in operations() {
        for method in operation.methods.names() {
            let answer = send(&router, request(method, &concrete(path), &foreign)).await;
            let is_refused =
                answer.status == StatusCode::FORBIDDEN && answer.text.contains("cross-origin request");
            let is_change = matches!(operation.effect, Effect::Changes | Effect::Controls);
            assert_eq!(is_refused, is_change, "{method} {path}: {}", answer.text);
            assert!(!is_change || *method != "GET", "{path}: GET is never refused, so it must not change");
        }
    }
    // A method that a row lacks counts as its POST.
    for (method, path, want) in [
        ("DELETE", "/api/v1/query", StatusCode::METHOD_NOT_ALLOWED),
        ("PUT", "/render", StatusCode::METHOD_NOT_ALLOWED),
        ("DELETE", "/api/v1/write", StatusCode::FORBIDDEN),
        ("POST", "/api/v1/rules", StatusCode::FORBIDDEN),
        ("DELETE", "/nothing", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(send(&router, request(method, path, &foreign)).await.status, want, "{method} {path}");
    }
}

#[tokio::test]
async fn rows_of_prometheus_answer_below_the_prefix() {
    let router = router_of(&server(), Principal::unrestricted());
    for (_, _, path, operation) in operations() {
        for method in operation.methods.names() {
            let path = concrete(path);
            let prefixed = send(&router, request(method, &format!("/prometheus{path}"), &[])).await;
            if is_below_mimir_prefix(&path) {
                let plain = send(&router, request(method, &path, &[])).await;
                assert_eq!(prefixed.status, plain.status, "{method} {path}");
            } else {
                let want =
                    [StatusCode::NOT_FOUND, StatusCode::MOVED_PERMANENTLY, StatusCode::TEMPORARY_REDIRECT];
                assert!(want.contains(&prefixed.status), "{method} {path}: {}", prefixed.status);
            }
        }
    }
}

#[tokio::test]
async fn a_principal_reaches_the_rows_of_its_scopes_alone() {
    let server = server();
    for given in Scope::ALL {
        let principal = Principal::new("probe", Tenants::All, Scopes::of([given]));
        let router = router_of(&server, principal);
        let mut allowed_count = 0;
        for (tag, route, path, operation) in operations() {
            for method in operation.methods.names() {
                let answer = send(&router, request(method, &concrete(path), &[])).await;
                let is_allowed = operation.scope == given || operation.scope == Scope::Public;
                let text = format!("may not do this: scope {} is missing", operation.scope.name());
                let is_denied = answer.status == StatusCode::FORBIDDEN && answer.text.contains(&text);
                assert_eq!(is_denied, !is_allowed, "{method} {path} with {}: {}", given.name(), answer.text);
                if is_denied {
                    check_form(&answer, route.error_form(tag));
                }
                allowed_count += usize::from(operation.scope == given);
            }
        }
        assert!(allowed_count > 0, "no row needs {}", given.name());
    }
}

/// Checks that a refusal has the form of the route's other errors.
#[track_caller]
fn check_form(answer: &Sent, form: ErrorForm) {
    let json: Option<Value> = serde_json::from_str(&answer.text).ok();
    match form {
        ErrorForm::Api => assert_eq!(json.expect("JSON")["errorType"], "forbidden"),
        ErrorForm::Influx => {
            assert!(json.expect("JSON")["error"].is_string());
            assert!(answer.headers.contains_key("x-influxdb-error"));
        }
        ErrorForm::Text => assert!(json.is_none() && answer.text.ends_with('\n'), "{}", answer.text),
    }
}

#[tokio::test]
async fn a_principal_names_its_tenants_alone() {
    let server = Fixture::with(|options| {
        options.service.multitenancy = true;
        options.web.admin_api = true;
        options.web.lifecycle = true;
    })
    .open();
    let tenants = Tenants::Only([TenantId::new("a").expect("valid")].into());
    let router = router_of(&server, Principal::new("probe", tenants, Scopes::all()));
    for (_, _, path, operation) in operations() {
        for method in operation.methods.names() {
            for (tenant, is_own) in [("a", true), ("b", false), ("A", false)] {
                let headers = [("x-scope-orgid", tenant)];
                let answer = send(&router, request(method, &concrete(path), &headers)).await;
                // Own tenants are not enough for the whole server.
                let is_whole = operation.shows == Shows::WholeServer && operation.scope != Scope::Public;
                let is_denied = answer.text.contains(&format!("may not name tenant \"{tenant}\""))
                    || answer.text.contains(&format!("may not name tenant \\\"{tenant}\\\""))
                    || is_whole && answer.text.contains("may not ask for this: it is about the whole server");
                let want = (is_whole || !is_own) && operation.scope != Scope::Public && *method != "HEAD";
                assert_eq!(is_denied, want, "{method} {path} as {tenant}: {}", answer.text);
                assert!(!is_denied || answer.status == StatusCode::FORBIDDEN, "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn the_openapi_description_has_every_row() {
    let answer = server().get("/api/v1/openapi.yaml").await;
    let document: Value = serde_saphyr::from_str(&answer.text).expect("YAML");
    let methods = |item: &Value| {
        let names = item.as_object().expect("operations").keys();
        names.map(|method| method.to_ascii_uppercase()).collect::<BTreeSet<String>>()
    };
    let paths = document["paths"].as_object().expect("paths").iter();
    let described: BTreeMap<String, _> = paths.map(|(path, item)| (path.clone(), methods(item))).collect();
    let mut want: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (_, _, path, operation) in operations() {
        // A parameter for the rest of a path has no star there.
        let methods = operation.methods.names().iter().map(|name| (*name).to_owned());
        want.entry(path.replace("{*", "{")).or_default().extend(methods);
    }
    assert_eq!(described, want);
}

/// Checks what `/api/v1/features` derives from the table.
#[tokio::test]
async fn features_that_are_routes_are_in_the_table() {
    let features = server().get("/api/v1/features").await.json();
    for (feature, path) in [
        ("remote_write_receiver", "/api/v1/write"),
        ("otlp_write_receiver", "/api/v1/otlp/v1/metrics"),
        ("search", "/api/v1/search/metric_names"),
        ("openapi_3.1", "/api/v1/openapi.yaml"),
        ("openapi_3.2", "/api/v1/openapi.yaml"),
    ] {
        let has_path = table().rows().any(|(_, route)| route.paths.contains(&path));
        assert_eq!(features["data"]["api"][feature], has_path, "{feature}");
    }
}

/// Path, media type and body of requests that change something, by the path of their row.
const CHANGES: &[(&str, &str, &str, &str)] = &[
    ("/api/v1/carbon", "/api/v1/carbon", "text/plain", "a 1 1700000000\n"),
    ("/metrics/delete", "/metrics/delete", FORM, "query=a"),
    ("/tags/delSeries", "/tags/delSeries", FORM, "path=a"),
    ("/tags/delByQuery", "/tags/delByQuery", FORM, "expr=name=a&execute=true"),
    (
        "/metaTags/upsert",
        "/metaTags/upsert",
        JSON,
        r#"{"metaTags": ["a=b"], "expressions": ["name=a"], "propagate": true}"#,
    ),
    ("/metaTags/swap", "/metaTags/swap", JSON, r#"{"records": []}"#),
    ("/events", "/events", JSON, r#"{"what": "a", "tags": ["b"], "data": "c"}"#),
    ("/write", "/write?db=a", "text/plain", "m v=1"),
    ("/api/v2/write", "/api/v2/write?bucket=a", "text/plain", "m v=1"),
    ("/query", "/query", FORM, "q=CREATE+DATABASE+a"),
    (
        "/metrics",
        "/metrics",
        JSON,
        r#"[{"name": "a", "interval": 10, "value": 1, "time": 1700000000, "unit": "", "mtype": "gauge"}]"#,
    ),
    ("/api/v1/admin/tsdb/delete_series", "/api/v1/admin/tsdb/delete_series", FORM, "match[]=up"),
    ("/api/v1/admin/tsdb/clean_tombstones", "/api/v1/admin/tsdb/clean_tombstones", FORM, ""),
    ("/api/v1/admin/tsdb/snapshot", "/api/v1/admin/tsdb/snapshot", FORM, ""),
    ("/api/v1/admin/tsdb/compaction", "/api/v1/admin/tsdb/compaction", FORM, "paused=true"),
    (
        "/api/v1/admin/rules/backfill",
        "/api/v1/admin/rules/backfill?start=1699990000&end=1699999000",
        YAML,
        "groups: [{name: x, rules: [{record: a, expr: b}]}]",
    ),
    (DELETES[0], "/api/v1/admin/tenants/x", FORM, ""),
    ("/config/v1/rules/{namespace}", "/config/v1/rules/x", YAML, "{name: x, rules: [{record: a, expr: b}]}"),
    (DELETES[1], "/config/v1/rules/x/x", YAML, ""),
    ("/compactor/delete_tenant", "/compactor/delete_tenant", FORM, ""),
];

/// Paths of the rows whose change is a DELETE alone.
const DELETES: [&str; 2] = ["/api/v1/admin/tenants/{id}", "/config/v1/rules/{namespace}/{group}"];

/// Rows of remote write, whose body is none of text.
const REMOTE_WRITES: [(&str, &str); 2] =
    [("/api/v1/write", "/api/v1/write"), ("/api/v1/prom/write", "/api/v1/prom/write?db=a")];

fn change(path: &str) -> Request<Body> {
    if let Some((_, uri)) = REMOTE_WRITES.iter().find(|(row, _)| *row == path) {
        let mut encoder = RequestEncoder::new();
        encoder.push_series([("__name__", "up")], &[(NOW_MS, 1.0)]);
        let request = Request::post(*uri).header(header::CONTENT_TYPE, "application/x-protobuf");
        let request = request.header(header::CONTENT_ENCODING, "snappy");
        return request.body(Body::from(encoder.compressed())).expect("a request");
    }
    let found = CHANGES.iter().find(|(row, ..)| *row == path);
    let (_, uri, kind, body) =
        found.unwrap_or_else(|| panic!("no request for {path}, which changes something"));
    let method = if DELETES.contains(&path) { Method::DELETE } else { Method::POST };
    let request = Request::builder().method(method).uri(*uri).header(header::CONTENT_TYPE, *kind);
    request.body(Body::from(*body)).expect("a request")
}

/// Paths that read what a store has and a bucket has not: events, rules of tags, lists of carbon's series,
/// counters of writes, deletions of tenants.
const READS_OF_THE_STORE: [&str; 11] = [
    "/api/v1/admin/tenants/{id}",
    "/api/v1/graphite/series",
    "/compactor/delete_tenant_status",
    "/debug/vars",
    "/events",
    "/events/",
    "/events/get_data",
    "/events/{id}",
    "/events/{id}/",
    "/metaTags",
    "/metaTags/",
];

#[tokio::test]
async fn a_read_only_server_refuses_the_rows_that_change_something() {
    check_read_only(&Fixture::read_only(), &READS_OF_THE_STORE).await;
    check_read_only(&Fixture::read_only_store(), &[]).await;
}

/// Checks that rows that change something get 405, and of the others `refused_reads` alone.
async fn check_read_only(server: &Fixture, want_refused: &[&'static str]) {
    let router = router_of(server, Principal::unrestricted());
    let mut refused_reads: BTreeSet<&str> = BTreeSet::new();
    let mut changed_paths: BTreeSet<&str> = BTreeSet::new();
    for (_, route, path, operation) in operations() {
        if operation.effect == Effect::Changes {
            let answer = send(&router, change(route.paths[0])).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{path}: {}", answer.text);
            assert!(answer.text.contains("--read-only"), "{path}: {}", answer.text);
            changed_paths.insert(route.paths[0]);
        } else {
            for method in operation.methods.names() {
                let answer = send(&router, request(method, &concrete(path), &[])).await;
                if answer.status == StatusCode::METHOD_NOT_ALLOWED {
                    refused_reads.insert(path);
                }
            }
        }
    }
    // The list is on purpose not made from the table: a row that changes something and is marked as reading
    // would be open to pages of other origins.
    let listed = CHANGES.iter().map(|(path, ..)| *path).chain(REMOTE_WRITES.map(|(path, _)| path));
    assert_eq!(changed_paths, listed.collect(), "rows with the effect `Changes`");
    let want_refused: BTreeSet<&str> = want_refused.iter().copied().collect();
    assert_eq!(refused_reads, want_refused, "reads that need a store of their own");
}

/// Does not ask the table for audited rows: a row that changes something must have lines, whatever its scope.
#[tokio::test]
async fn every_row_that_changes_something_but_samples_is_in_the_audit_log() {
    let server = Fixture::with(|options| {
        options.web.admin_api = true;
        options.web.lifecycle = true;
        options.service.audit.file = Some(AUDIT_FILE.into());
    });
    let server = server.open();
    let router = router_of(&server, Principal::unrestricted());
    let mut audited_count = 0;
    for (_, _, path, operation) in operations() {
        let changes = matches!(operation.effect, Effect::Changes | Effect::Controls);
        let is_audited = changes && operation.scope != Scope::WriteMetrics;
        for method in operation.methods.names() {
            let before = audit_lines(&server).len();
            let mut sent = match operation.effect {
                Effect::Changes => change(route_of(path).paths[0]),
                _ => request(method, &concrete(path), &[]),
            };
            *sent.method_mut() = method.parse().expect("a method");
            let action = format!("{method} {}", sent.uri().path());
            let status = send(&router, sent).await.status;
            if !is_audited {
                assert_eq!(audit_lines(&server).len(), before, "{action}");
                continue;
            }
            audited_count += 1;
            let lines = wait_for_lines(&server, before + 2).await;
            let results: Vec<_> = lines[before..].iter().map(|line| &line["result"]).collect();
            let end = if status.is_success() { "done" } else { "failed" };
            assert_eq!(results, ["begin", end], "{action}: {status}");
            for line in &lines[before..] {
                assert_eq!(line["action"], action.as_str());
                assert_eq!(line["principal"], "anyone");
            }
        }
    }
    assert!(audited_count >= 16, "{audited_count}");
}

fn route_of(path: &str) -> &'static Route {
    table().rows().find(|(_, route)| route.paths.contains(&path)).expect("a row").1
}
