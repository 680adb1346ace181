//! Access control with an access file: logins, scopes, tenants, series that a principal sees, added labels.

use std::path::Path;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use chronolith_ingest::remote_write::encode::RequestEncoder;
use chronolith_model::Matcher;
use chronolith_promql::parser::parse_metric_selector;
use chronolith_service::access::Scope;
use chronolith_service::access::directory::hash_of_token;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::Value;
use tower::ServiceExt as _;

use super::{Answer, Fixture, NOW_MS, Pairs};
use crate::http::remote_read::tests::series_for;
use crate::http::router;
use crate::http::routes::table;
use crate::options::ServerOptions;

const ACCESS_FILE: &str = "/config/access.yml";

/// An entry of an access file with a token of the same name.
pub(in crate::http) fn entry(name: &str, rest: &str) -> String {
    let hash: String = hash_of_token(name).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("- name: {name}\n  token_sha256: {hash}\n{rest}")
}

pub(super) fn write_file(server: &Fixture, entries: &[String]) {
    let text = format!("principals:\n{}", entries.concat());
    let disk = &server.web.service.env.disk;
    disk.create_dir_all(Path::new("/config")).expect("created");
    let file = disk.create(Path::new(ACCESS_FILE)).expect("created");
    file.write_at(text.as_bytes(), 0).expect("written");
}

/// A server with an access file, open.
pub(in crate::http) fn guarded(multitenancy: bool, entries: &[String]) -> Fixture {
    guarded_with(entries, |options| options.service.multitenancy = multitenancy)
}

/// The same with other options.
pub(in crate::http) fn guarded_with(entries: &[String], change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    let server = Fixture::with(|options| {
        options.service.access.file = Some(ACCESS_FILE.into());
        options.web.admin_api = true;
        options.web.lifecycle = true;
        change(options);
    });
    write_file(&server, entries);
    server.web.service.access.read(&server.web.service.env).expect("a valid file");
    server.open()
}

pub(in crate::http) async fn send(
    server: &Fixture,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let path = path.replace('{', "%7B").replace('}', "%7D").replace('"', "%22").replace('|', "%7C");
    let request = Request::builder().method(method).uri(path);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    server.send(request.body(Body::empty()).expect("a request")).await
}

/// A GET with a token.
async fn get(server: &Fixture, token: &str, path: &str) -> Answer {
    send(server, "GET", path, &[("authorization", &format!("Bearer {token}"))]).await
}

/// A path of a request for a path of a row: `x` for each parameter.
pub(super) fn concrete(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn each_route_needs_a_login_with_its_scope() {
    let mut entries: Vec<String> = Scope::ALL
        .into_iter()
        .filter(|scope| *scope != Scope::Public)
        .map(|scope| entry(scope.name(), &format!("  scopes: ['{}']\n", scope.name())))
        .collect();
    let all = "  scopes: [read, write, rules, admin]\n";
    entries.push(entry("expired", &format!("{all}  expires: 2000-01-01T00:00:00Z\n")));
    entries.push(entry("stranger", &format!("{all}  tenants: [elsewhere]\n")));
    let server = guarded(false, &entries);
    let router = router(server.web.clone());
    let mut refused_count = 0;
    for (_, route) in table().rows() {
        for (path, operation) in
            route.paths.iter().flat_map(|path| route.operations().map(move |operation| (path, operation)))
        {
            let heads = operation.methods.names().contains(&"GET").then_some("HEAD");
            for method in operation.methods.names().iter().copied().chain(heads) {
                for (credentials, want) in [
                    ("", StatusCode::UNAUTHORIZED),
                    ("Bearer wrong", StatusCode::UNAUTHORIZED),
                    ("Bearer expired", StatusCode::UNAUTHORIZED),
                    ("Digest x", StatusCode::UNAUTHORIZED),
                    ("Bearer stranger", StatusCode::FORBIDDEN),
                ] {
                    let request = Request::builder().method(method).uri(concrete(path));
                    let request = match credentials {
                        "" => request,
                        credentials => request.header(header::AUTHORIZATION, credentials),
                    };
                    let request = request.body(Body::empty()).expect("a request");
                    let answer = router.clone().oneshot(request).await.expect("infallible");
                    let is_refused = answer.status() == want;
                    let is_public = operation.scope == Scope::Public;
                    assert!(
                        is_public || is_refused,
                        "{method} {path} as {credentials:?}: {}, not {want}",
                        answer.status()
                    );
                    let is_login = answer.status() == StatusCode::UNAUTHORIZED;
                    assert_eq!(is_login && !is_public, answer.headers().contains_key("www-authenticate"));
                    assert!(!(is_public && is_login), "{method} {path} is for everybody");
                    refused_count += usize::from(is_refused);
                }
                for given in Scope::ALL.into_iter().filter(|scope| *scope != Scope::Public) {
                    let request = Request::builder().method(method).uri(concrete(path));
                    let request = request.header(header::AUTHORIZATION, format!("Bearer {}", given.name()));
                    let request = request.body(Body::empty()).expect("a request");
                    let answer = router.clone().oneshot(request).await.expect("infallible");
                    // The name of the scope is one of a group as well.
                    let of_group = [Scope::DeleteMetrics, Scope::ReadStatus].contains(&operation.scope);
                    let is_given = operation.scope == given
                        || operation.scope == Scope::Public
                        || given == Scope::Admin && of_group;
                    let is_denied = answer.status() == StatusCode::FORBIDDEN;
                    // A refusal of the handler itself has the same status.
                    assert!(
                        is_given || is_denied,
                        "{method} {path} with {}: {}",
                        given.name(),
                        answer.status()
                    );
                    assert_ne!(
                        answer.status(),
                        StatusCode::UNAUTHORIZED,
                        "{method} {path} with {}",
                        given.name()
                    );
                }
            }
        }
    }
    assert!(refused_count > 500, "{refused_count} refusals");
}

#[tokio::test]
async fn methods_and_paths_outside_of_the_table_open_nothing() {
    let server = guarded(false, &[entry("reader", "  scopes: [read]\n")]);
    for (method, path) in [
        ("GET", "//api/v1/query?query=1"),
        ("GET", "/api/v1/../v1/query?query=1"),
        ("GET", "/prometheus/api/v1/query?query=1"),
        ("GET", "/api/v1/query/?query=1"),
        ("GET", "/%61pi/v1/query?query=1"),
        ("DELETE", "/api/v1/query"),
        ("PATCH", "/api/v1/write"),
        ("OPTIONS", "/api/v1/query"),
        ("TRACE", "/api/v1/status/config"),
    ] {
        let answer = send(&server, method, path, &[]).await;
        assert!(!answer.status.is_success() || method == "OPTIONS", "{method} {path}: {}", answer.text);
        assert!(!answer.text.contains("resultType"), "{method} {path}: {}", answer.text);
    }
}

#[tokio::test]
async fn credentials_have_the_forms_of_the_clients() {
    let server = guarded(false, &[entry("secret", "  scopes: [read, write]\n")]);
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for (authorization, path, want) in [
        ("Bearer secret".to_owned(), "/api/v1/labels", 200),
        ("bearer  secret".to_owned(), "/api/v1/labels", 200),
        ("Token secret".to_owned(), "/api/v1/labels", 200),
        ("Token user:secret".to_owned(), "/query?q=SHOW+DATABASES", 200),
        (basic("user:secret"), "/api/v1/labels", 200),
        (basic(":secret"), "/render?target=a&format=json", 200),
        (basic("secret:"), "/api/v1/labels", 401),
        (basic("secret"), "/api/v1/labels", 401),
        ("Basic !!!".to_owned(), "/api/v1/labels", 401),
        ("secret".to_owned(), "/api/v1/labels", 401),
        ("Bearer".to_owned(), "/api/v1/labels", 401),
    ] {
        let answer = send(&server, "GET", path, &[("authorization", &authorization)]).await;
        assert_eq!(answer.status.as_u16(), want, "{authorization} {path}: {}", answer.text);
    }
    // InfluxDB's clients send user and password in the URL; no other route takes them from there.
    assert_eq!(server.get("/query?q=SHOW+DATABASES&u=any&p=secret").await.status, StatusCode::OK);
    assert_eq!(server.get("/query?q=SHOW+DATABASES&u=any&p=wrong").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(server.get("/api/v1/labels?u=any&p=secret").await.status, StatusCode::UNAUTHORIZED);
    let twice = [("authorization", "Bearer secret"), ("authorization", "Bearer secret")];
    assert_eq!(send(&server, "GET", "/api/v1/labels", &twice).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_user_logs_in_with_a_password() {
    let hash = bcrypt::hash("secret", 4).expect("hashing");
    let user = format!("- name: agent\n  user: prom\n  password_bcrypt: {hash}\n  scopes: [read]\n");
    let server = guarded(false, &[user]);
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for (authorization, want) in [
        (basic("prom:secret"), 200),
        (basic("prom:secret"), 200),
        (basic("prom:Secret"), 401),
        (basic("other:secret"), 401),
        ("Token prom:secret".to_owned(), 200),
        ("Bearer secret".to_owned(), 401),
    ] {
        let answer = send(&server, "GET", "/api/v1/labels", &[("authorization", &authorization)]).await;
        assert_eq!(answer.status.as_u16(), want, "{authorization}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_tenant_is_one_of_the_principals() {
    let server = guarded(
        true,
        &[
            entry("one", "  tenants: a\n  scopes: [read]\n"),
            entry("two", "  tenants: [a, b]\n  scopes: [read]\n"),
            entry("all", "  tenants: '*'\n  scopes: [read]\n"),
        ],
    );
    for tenant in ["a", "b", "c"] {
        server.store_series(tenant, 0, &[&[("__name__", "up"), ("of", tenant)]]);
    }
    for (token, header, want) in [
        ("one", "", Ok(&["a"][..])),
        ("one", "a", Ok(&["a"])),
        ("one", "b", Err(403)),
        ("one", "a|b", Err(403)),
        ("two", "", Err(401)),
        ("two", "b", Ok(&["b"])),
        ("two", "b|a", Ok(&["a", "b"])),
        ("two", "a|a", Ok(&["a"])),
        ("two", "a|c", Err(403)),
        ("all", "c", Ok(&["c"])),
        ("all", "", Err(401)),
        ("all", "a|b|c", Ok(&["a", "b", "c"])),
        ("all", "a||c", Err(400)),
    ] {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str()), ("x-scope-orgid", header)];
        let headers = if header.is_empty() { &headers[..1] } else { &headers[..] };
        let path = format!("/api/v1/label/of/values?time={}", NOW_MS / 1000);
        let answer = send(&server, "GET", &path, headers).await;
        match want {
            Err(status) => assert_eq!(answer.status.as_u16(), status, "{token} {header}: {}", answer.text),
            Ok(want) => assert_eq!(answer.json()["data"], Value::from(want), "{token} {header}"),
        }
    }
}

#[tokio::test]
async fn several_tenants_are_one_source_with_a_label() {
    let server = guarded(true, &[entry("all", "  tenants: '*'\n  scopes: [read]\n")]);
    server.store_series("a", 0, &[&[("__name__", "up"), ("x", "1")], &[("A", "z"), ("__name__", "up")]]);
    server.store_series("b", 0, &[&[("__name__", "up"), ("x", "1"), ("__tenant_id__", "a")]]);
    let read = async |path: &str| {
        let headers = [("authorization", "Bearer all"), ("x-scope-orgid", "a|b")];
        send(&server, "GET", path, &headers).await
    };
    let time = NOW_MS / 1000;
    let data = read(&format!("/api/v1/query?query=up&time={time}")).await.json();
    let metrics: Vec<&Value> =
        data["data"]["result"].as_array().expect("a vector").iter().map(|one| &one["metric"]).collect();
    let want = [
        serde_json::json!({"A": "z", "__name__": "up", "__tenant_id__": "a"}),
        serde_json::json!({"__name__": "up", "__tenant_id__": "a", "x": "1"}),
        serde_json::json!({"__name__": "up", "__tenant_id__": "b", "original___tenant_id__": "a", "x": "1"}),
    ];
    assert_eq!(metrics, want.iter().collect::<Vec<_>>());
    let sum = read(&format!("/api/v1/query?query=sum+by+(__tenant_id__)(up)&time={time}")).await.json();
    assert_eq!(sum["data"]["result"].as_array().expect("a vector").len(), 2, "{sum}");
    for (path, want) in [
        ("/api/v1/label/__tenant_id__/values", &["a", "b"][..]),
        ("/api/v1/label/__tenant_id__/values?match[]=up{__tenant_id__=~\"b\"}", &["b"]),
        ("/api/v1/label/__tenant_id__/values?match[]=up{__tenant_id__=\"c\"}", &[]),
        ("/api/v1/label/original___tenant_id__/values", &["a"]),
        ("/api/v1/labels?match[]=up{x=\"1\"}", &["__name__", "__tenant_id__", "original___tenant_id__", "x"]),
        ("/api/v1/labels?match[]=up{A=\"z\"}", &["A", "__name__", "__tenant_id__"]),
    ] {
        assert_eq!(read(path).await.json()["data"], Value::from(want), "{path}");
    }
    // Writes and reads of one tenant refuse the header.
    for path in ["/render?target=a&format=json", "/query?q=SHOW+DATABASES", "/api/v1/status/tsdb"] {
        let answer = read(path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}: {}", answer.text);
        assert!(answer.text.contains("multiple org IDs present"), "{path}: {}", answer.text);
    }
}

/// Series of the test of filters: name, team, environment; empty labels are absent.
const SERIES: [Pairs<'_>; 7] = [
    &[("__name__", "up"), ("env", "prod"), ("team", "a")],
    &[("__name__", "up"), ("env", "dev"), ("team", "b")],
    &[("__name__", "up"), ("team", "a")],
    &[("__name__", "load"), ("env", "dev"), ("team", "a")],
    &[("__name__", "load"), ("env", "prod")],
    &[("__name__", "requests_total"), ("env", "prod"), ("team", "b")],
    &[("__name__", "requests_total"), ("env", "dev"), ("team", "c")],
];

fn selects(filter: &[Matcher], pairs: Pairs<'_>) -> bool {
    let value = |name: &str| pairs.iter().find(|(found, _)| *found == name).map_or("", |(_, value)| value);
    filter.iter().all(|matcher| matcher.matches(value(&matcher.name)))
}

async fn post(server: &Fixture, path: &str, kind: &str, body: Vec<u8>) {
    let request = Request::post(path)
        .header(header::AUTHORIZATION, "Bearer writer")
        .header(header::CONTENT_TYPE, kind)
        .body(Body::from(body))
        .expect("a request");
    let answer = server.send(request).await;
    assert!(answer.status.is_success(), "{path}: {} {}", answer.status, answer.text);
}

/// Writes the series for which `is_held` is true by remote write, line protocol and carbon.
async fn fill(server: &Fixture, is_held: impl Fn(Pairs<'_>) -> bool) {
    let held: Vec<Pairs<'_>> = SERIES.into_iter().filter(|pairs| is_held(pairs)).collect();
    let mut encoder = RequestEncoder::new();
    let mut lines = String::new();
    let mut points = String::new();
    let time_s = NOW_MS / 1000;
    for (idx, pairs) in SERIES.iter().enumerate().filter(|(_, pairs)| is_held(pairs)) {
        encoder.push_series(pairs.iter().copied(), &[(NOW_MS - 60_000, idx as f64), (NOW_MS, 2.0)]);
        let tags: Vec<String> = pairs[1..].iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push_str(&format!("{},{} v={idx} {time_s}000000000\n", pairs[0].1, tags.join(",")));
        points.push_str(&format!("{};{} {idx} {time_s}\n", pairs[0].1, tags.join(";")));
    }
    assert!(held.len() <= SERIES.len());
    let request = Request::post("/api/v1/write")
        .header(header::AUTHORIZATION, "Bearer writer")
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .header(header::CONTENT_ENCODING, "snappy")
        .body(Body::from(encoder.compressed()));
    assert!(server.send(request.expect("a request")).await.status.is_success());
    post(server, "/query", "application/x-www-form-urlencoded", b"q=CREATE DATABASE db".to_vec()).await;
    post(server, "/write?db=db", "text/plain", lines.into_bytes()).await;
    post(server, "/api/v1/carbon", "text/plain", points.into_bytes()).await;
}

/// Reads of all languages.
pub(super) fn reads() -> Vec<String> {
    let time = NOW_MS / 1000;
    let window = format!("start={}&end={time}&step=30", time - 120);
    [
        format!("/api/v1/query?query={{__name__=~\".%2B\"}}&time={time}"),
        format!("/api/v1/query?query=count+by+(__name__)({{__name__=~\".%2B\"}})&time={time}"),
        format!("/api/v1/query?query=count(up)&time={time}"),
        format!("/api/v1/query?query=absent(up{{team=\"b\"}})&time={time}"),
        format!("/api/v1/query_range?query=sum+by+(env)(up)&{window}"),
        format!("/api/v1/query_range?query=sum+by+(env)(up)&{window}"),
        format!("/api/v1/query_range?query=load&{window}"),
        "/api/v1/series?match[]={__name__=~\".%2B\"}".to_owned(),
        "/api/v1/series?match[]=up{team!=\"a\"}".to_owned(),
        "/api/v1/labels".to_owned(),
        "/api/v1/labels?match[]=load".to_owned(),
        "/api/v1/label/__name__/values".to_owned(),
        "/api/v1/label/team/values".to_owned(),
        "/api/v1/label/env/values?match[]=up".to_owned(),
        "/api/v1/label/env/values?limit=1".to_owned(),
        "/api/v1/search/metric_names?search[]=a".to_owned(),
        "/api/v1/search/label_names?search[]=e".to_owned(),
        "/api/v1/search/label_values?label=team&search[]=".to_owned(),
        "/federate?match[]={__name__=~\".%2B\"}".to_owned(),
        "/api/v1/status/tsdb?limit=20&match[]={__name__=~\".%2B\"}".to_owned(),
        "/query?db=db&q=SELECT+*+FROM+/.*/".to_owned(),
        "/query?db=db&q=SELECT+count(v)+FROM+/.*/+GROUP+BY+team".to_owned(),
        "/query?db=db&q=SHOW+SERIES".to_owned(),
        "/query?db=db&q=SHOW+MEASUREMENTS".to_owned(),
        "/query?db=db&q=SHOW+TAG+KEYS".to_owned(),
        "/query?db=db&q=SHOW+TAG+VALUES+WITH+KEY+%3D+team".to_owned(),
        "/query?db=db&q=SHOW+FIELD+KEYS".to_owned(),
        "/query?db=db&q=SHOW+SERIES+EXACT+CARDINALITY".to_owned(),
        "/query?db=db&q=SHOW+MEASUREMENT+EXACT+CARDINALITY".to_owned(),
        "/query?db=db&q=SHOW+SERIES+CARDINALITY".to_owned(),
        format!("/render?target=seriesByTag('team!%3Dx')&format=json&from={}&until={time}", time - 300),
        format!("/render?target=seriesByTag('name%3D~.*')&format=json&from={}&until={time}", time - 300),
        "/metrics/find?query=*".to_owned(),
        "/metrics/index.json".to_owned(),
        "/tags".to_owned(),
        "/tags/team".to_owned(),
        "/tags/findSeries?expr=team!%3Dx".to_owned(),
        "/tags/autoComplete/tags".to_owned(),
        "/tags/autoComplete/values?tag=env".to_owned(),
        "/api/v1/graphite/series".to_owned(),
    ]
    .into_iter()
    .collect()
}

/// Small random numbers from a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn filter(&mut self) -> String {
        const OPERATORS: [&str; 4] = ["=", "!=", "=~", "!~"];
        const LABELS: [(&str, [&str; 5]); 2] =
            [("team", ["a", "b", "", "a|c", ".+"]), ("env", ["prod", "dev", "", "p.*", "dev|"])];
        let matchers: Vec<String> = (0..=self.below(2))
            .map(|_| {
                let (name, values) = LABELS[self.below(2)];
                format!("{name}{}\"{}\"", OPERATORS[self.below(4)], values[self.below(5)])
            })
            .collect();
        format!("{{{}}}", matchers.join(","))
    }
}

/// Sets of matchers; a campaign has 200.
const SET_COUNT: usize = 25;

/// Number that the variable `name` of the environment has, for campaigns; else `usual`.
pub(super) fn count_of(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Compares the answers to a principal with matchers with answers of a server that has these series alone.
#[tokio::test]
async fn a_filtered_principal_sees_a_server_with_its_series_alone() {
    let mut random = Random(20_261_128);
    let mut hidden_count = 0;
    let mut read_count = 0;
    let all = {
        let writer = entry("writer", "  scopes: [read, write, admin]\n");
        let server = guarded(false, &[writer]);
        fill(&server, |_| true).await;
        server
    };
    for _ in 0..count_of("CHRONOLITH_ACCESS_SETS", SET_COUNT) {
        let filter = random.filter();
        let matchers = parse_metric_selector(&filter).expect("a selector");
        hidden_count += SERIES.iter().filter(|pairs| !selects(&matchers, pairs)).count();
        write_file(
            &all,
            &[
                entry("writer", "  scopes: [read, write, admin]\n"),
                entry("reader", &format!("  scopes: [read]\n  matchers: '{filter}'\n")),
            ],
        );
        all.web.service.access.read(&all.web.service.env).expect("a valid file");
        let own = guarded(
            false,
            &[
                entry("writer", "  scopes: [read, write, admin]\n"),
                entry("reader", "  scopes: [read, admin]\n"),
            ],
        );
        fill(&own, |pairs| selects(&matchers, pairs)).await;
        for path in reads() {
            let found = get(&all, "reader", &path).await;
            let want = get(&own, "reader", &path).await;
            let mut found_text = found.text.clone();
            let mut want_text = want.text.clone();
            if path.starts_with("/api/v1/status/tsdb") {
                // Counts of chunks and times of the head are about all series, and left out.
                for text in [&mut found_text, &mut want_text] {
                    let mut json: Value = serde_json::from_str(text).expect("JSON");
                    for key in ["chunkCount", "minTime", "maxTime"] {
                        json["data"]["headStats"][key] = Value::Null;
                    }
                    *text = json["data"]["headStats"]["numSeries"].to_string()
                        + &json["data"]["seriesCountByMetricName"].to_string();
                }
            }
            assert_eq!(found_text, want_text, "{filter}: {path}");
            assert_eq!(found.status, want.status, "{filter}: {path}");
        }
        let read = series_for(&all, "reader").await;
        assert_eq!(read, series_for(&own, "reader").await, "{filter}: remote read");
        read_count += read.len();
        for path in ["/api/v1/status/top_queries", "/events", "/api/v1/status/rejects"] {
            let answer = get(&all, "reader", path).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {}", answer.text);
        }
    }
    assert!(hidden_count > 50, "{hidden_count} hidden series");
    assert!(read_count > 50, "{read_count} series by remote read");
}

#[tokio::test]
async fn samples_get_the_labels_of_their_sender() {
    let server = guarded(
        false,
        &[
            entry("eu", "  scopes: [write]\n  labels: {cluster: eu}\n"),
            entry("us", "  scopes: [write]\n  labels: {cluster: us}\n"),
            entry("admin", "  scopes: [read, write, admin]\n"),
        ],
    );
    let write = async |token: &str, pairs: Pairs<'_>| {
        let mut encoder = RequestEncoder::new();
        encoder.push_series(pairs.iter().copied(), &[(NOW_MS, 1.0)]);
        let request = Request::post("/api/v1/write")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::CONTENT_ENCODING, "snappy")
            .body(Body::from(encoder.compressed()));
        let answer = server.send(request.expect("a request")).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    };
    for _ in 0..2 {
        write("eu", &[("__name__", "up")]).await;
        write("us", &[("__name__", "up")]).await;
        write("us", &[("__name__", "up"), ("cluster", "eu")]).await;
        write("admin", &[("__name__", "up"), ("cluster", "own")]).await;
    }
    let answer = get(&server, "admin", "/api/v1/label/cluster/values").await;
    assert_eq!(answer.json()["data"], Value::from(&["eu", "own", "us"][..]));
    let count = get(&server, "admin", &format!("/api/v1/query?query=count(up)&time={}", NOW_MS / 1000)).await;
    assert_eq!(count.json()["data"]["result"][0]["value"][1], "3");
}

#[tokio::test]
async fn a_changed_file_counts_at_once_and_a_broken_one_does_not() {
    let server = guarded(false, &[entry("old", "  scopes: [read]\n")]);
    let control = &server.web.service.access;
    let env = &server.web.service.env;
    assert_eq!(get(&server, "old", "/api/v1/labels").await.status, StatusCode::OK);
    write_file(&server, &[entry("new", "  scopes: [reed]\n")]);
    let error = control.read(env).expect_err("a broken file");
    assert!(error.contains(ACCESS_FILE) && error.contains("\"reed\""), "{error}");
    assert_eq!(control.read(env), Ok(false), "it is reported once");
    assert_eq!(get(&server, "old", "/api/v1/labels").await.status, StatusCode::OK);
    let metrics = "chronolith_access_file_last_read_successful 0";
    write_file(&server, &[entry("old", "  scopes: [metrics]\n")]);
    assert!(!get(&server, "old", "/metrics").await.text.contains(metrics), "not allowed yet");
    assert_eq!(control.read(env), Ok(true));
    let shown = get(&server, "old", "/metrics").await.text;
    assert!(shown.contains("chronolith_access_file_last_read_successful 1"), "{shown}");
    assert_eq!(get(&server, "old", "/api/v1/labels").await.status, StatusCode::FORBIDDEN);
    assert_eq!(get(&server, "new", "/api/v1/labels").await.status, StatusCode::UNAUTHORIZED);
}

/// Checks that the reason of a refusal stays in the log and in metrics.
#[tokio::test]
async fn a_jwt_logs_in_as_token_or_password_and_a_refused_one_gets_no_reason() {
    let server = guarded(false, &[entry("old", "  scopes: [read]\n")]);
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
    let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
    let point = URL_SAFE_NO_PAD.encode(key.public_key());
    let keys = format!(r#"{{"keys":[{{"kty":"OKP","kid":"a","crv":"Ed25519","x":"{point}"}}]}}"#);
    let env = &server.web.service.env;
    env.disk.write_atomic(Path::new("/config/keys.json"), keys.as_bytes()).expect("written");
    let principal = "- name: ops\n  jwt: {issuer: i, claims: {sub: ops}}\n  scopes: [read, metrics]\n";
    let issuer = "jwt:\n- {issuer: i, audience: a, jwks_file: keys.json}\n";
    write_file(&server, &[principal.to_owned(), issuer.to_owned()]);
    assert_eq!(server.web.service.access.read(env), Ok(true));
    let token = |expires_s: i64| {
        let claims = format!(r#"{{"iss":"i","aud":"a","sub":"ops","exp":{expires_s}}}"#);
        let parts = [r#"{"alg":"EdDSA","kid":"a"}"#, &claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let signed = parts.join(".");
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    };
    let valid = token(NOW_MS / 1000 + 60);
    let expired = token(NOW_MS / 1000 - 60);
    let basic = |token: &str| format!("Basic {}", STANDARD.encode(format!("any:{token}")));
    for (token, want) in [(&valid, StatusCode::OK), (&expired, StatusCode::UNAUTHORIZED)] {
        for header in [format!("Bearer {token}"), format!("Token {token}"), basic(token)] {
            let answer = send(&server, "GET", "/api/v1/labels", &[("authorization", &header)]).await;
            assert_eq!(answer.status, want, "{header}: {}", answer.text);
            assert!(!answer.text.contains("JWT"), "{}", answer.text);
        }
    }
    let shown = get(&server, &valid, "/metrics").await.text;
    for line in [
        "chronolith_access_jwt_keys 1\n",
        "chronolith_access_jwt_keys_last_read_successful 1\n",
        "chronolith_access_jwt_refused_total{reason=\"expired\"} 3\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

/// Prometheus drops a write that is answered with 401, and repeats one after 503.
#[tokio::test]
async fn a_jwt_whose_keys_are_being_fetched_is_to_be_sent_again() {
    let issuer = "https://login.example.com";
    let entries = [
        entry("old", "  scopes: [metrics]\n"),
        format!("- name: ops\n  jwt: {{issuer: '{issuer}', claims: {{sub: ops}}}}\n  scopes: [read]\n"),
        format!("jwt:\n- {{issuer: '{issuer}', audience: a}}\n"),
    ];
    let server = guarded(false, &entries);
    let parts = [r#"{"alg":"EdDSA","kid":"a"}"#, &format!(r#"{{"iss":"{issuer}"}}"#), "x"];
    let token = parts.map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    let answer = get(&server, &token, "/api/v1/labels").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text);
    assert!(answer.text.contains("the keys of the token's issuer are being fetched"), "{}", answer.text);
    let control = &server.web.service.access;
    for due in control.begin_key_fetches(0) {
        due.finish(Err("connection refused".to_owned()));
    }
    server.web.take_fetched_keys();
    let shown = get(&server, "old", "/metrics").await.text;
    for line in [
        "chronolith_access_refused_total{reason=\"keys_pending\"} 1\n",
        "chronolith_access_jwt_key_fetches_total{result=\"failure\"} 1\n",
        "chronolith_access_jwt_keys_last_fetch_successful{issuer=\"https://login.example.com\"} 0\n",
        "chronolith_access_jwt_keys_last_fetch_success_timestamp_seconds{issuer=\"https://login.example.com\"} 0\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

/// Statements of one request need scopes of their own: the route asks for reading alone.
#[tokio::test]
async fn each_statement_of_influxql_needs_its_scope() {
    let server = guarded(
        false,
        &[
            entry("reader", "  scopes: [read]\n"),
            entry("writer", "  scopes: [read, write]\n"),
            entry("cleaner", "  scopes: [read, 'metrics:delete']\n"),
            entry("admin", "  scopes: [read, admin]\n"),
            entry("some", "  scopes: [read, write, admin]\n  matchers: '{team=\"a\"}'\n"),
        ],
    );
    let run = async |token: &str, statement: &str| {
        let body = format!("db=db&q={}", statement.replace(' ', "+").replace('=', "%3D").replace(';', "%3B"));
        let request = Request::builder()
            .method(Method::POST)
            .uri("/query")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        server.send(request.body(Body::from(body)).expect("a request")).await
    };
    for (statement, allowed) in [
        ("CREATE DATABASE db", &["admin"][..]),
        ("SELECT * FROM m", &["reader", "writer", "cleaner", "admin", "some"]),
        ("SHOW SERIES", &["reader", "writer", "cleaner", "admin", "some"]),
        ("SELECT * INTO n FROM m", &["writer"]),
        ("EXPLAIN ANALYZE SELECT * INTO n FROM m", &["writer"]),
        ("DELETE FROM m", &["cleaner", "admin"]),
        ("DROP SERIES FROM m", &["cleaner", "admin"]),
        ("SHOW USERS", &["admin"]),
        ("SHOW QUERIES", &["admin"]),
        ("SHOW CONTINUOUS QUERIES", &["admin"]),
        ("KILL QUERY 1", &["admin"]),
        ("SHOW SERIES; DROP DATABASE db", &["admin"]),
    ] {
        for token in ["reader", "writer", "cleaner", "admin", "some"] {
            let answer = run(token, statement).await;
            let is_denied = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(!is_denied, allowed.contains(&token), "{token}: {statement}: {}", answer.text);
            assert!(!is_denied || answer.text.contains("error authorizing query"), "{}", answer.text);
        }
    }
}

/// Covers the browser's own dialog, which came up before the page could ask for a token.
#[tokio::test]
async fn scripts_of_pages_are_not_asked_for_basic_credentials() {
    let server = guarded(false, &[entry("reader", "  scopes: [read]\n")]);
    for (header, want) in [
        ("accept", "Basic realm=\"chronolith\", Bearer"),
        ("x-requested-with", "Bearer realm=\"chronolith\""),
    ] {
        let answer = send(&server, "GET", "/api/v1/query?query=1", &[(header, "XMLHttpRequest")]).await;
        assert_eq!(
            (answer.status, &answer.headers["www-authenticate"]),
            (StatusCode::UNAUTHORIZED, &want.parse().unwrap())
        );
    }
}

/// Sends a statement with `login` in the header `Authorization`.
async fn statement(server: &Fixture, login: &str, statement: &str) -> Answer {
    let path = format!("/query?db=a&q={}", statement.replace(' ', "%20").replace('\'', "%27"));
    send(server, "POST", &path, &[("authorization", login)]).await
}

async fn write_line(server: &Fixture, login: &str, database: &str) -> Answer {
    let request = Request::post(format!("/write?db={database}")).header("authorization", login);
    server.send(request.body(Body::from("m v=1")).expect("a request")).await
}

#[tokio::test]
async fn privileges_on_databases_limit_a_principal_to_them() {
    let all = "  scopes: [read, write, admin]\n";
    let entries = [
        entry("boss", all),
        entry("writer", &format!("{all}  databases: {{a: write}}\n")),
        entry("counters", "  scopes: [metrics]\n  databases: {a: read}\n"),
        entry("reader", "  scopes: [read]\n  databases: {a: all, b: read}\n"),
    ];
    let server = guarded(false, &entries);
    for name in ["a", "b"] {
        let made = statement(&server, "Bearer boss", &format!("CREATE DATABASE {name}")).await;
        assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    }
    for (login, database, want) in [
        ("Bearer writer", "a", StatusCode::NO_CONTENT),
        ("Bearer writer", "b", StatusCode::FORBIDDEN),
        // Privileges give no scope.
        ("Bearer reader", "a", StatusCode::FORBIDDEN),
        ("Bearer boss", "b", StatusCode::NO_CONTENT),
    ] {
        let answer = write_line(&server, login, database).await;
        assert_eq!(answer.status, want, "{login} {database}: {}", answer.text);
    }
    for (login, text, want) in [
        ("Bearer reader", "SELECT v FROM m", true),
        ("Bearer reader", "SELECT v FROM b..m", true),
        ("Bearer writer", "SELECT v FROM m", false),
        ("Bearer writer", "DROP DATABASE a", false),
        ("Bearer writer", "CREATE USER u WITH PASSWORD 'p'", false),
    ] {
        let answer = statement(&server, login, text).await;
        assert_eq!(answer.status == StatusCode::OK, want, "{login} {text}: {}", answer.text);
    }
    for path in [
        "/api/v1/query?query=1",
        "/metrics",
        "/render?target=a",
        "/api/v1/status/tsdb",
        "/api/v1/series?match[]=up",
    ] {
        let answer = get(&server, "writer", path).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.text.contains("has privileges on databases"), "{path}: {}", answer.text);
    }
    for path in ["/debug/vars", "/metrics"] {
        assert_eq!(get(&server, "counters", path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn users_of_influxdb_log_in_next_to_principals() {
    let entries = [entry("boss", "  scopes: [read, write, admin]\n")];
    let server = guarded_with(&entries, |options| options.service.influx.auth_enabled = true);
    for text in [
        "CREATE DATABASE a",
        "CREATE DATABASE b",
        "CREATE USER telegraf WITH PASSWORD 'secret'",
        "GRANT WRITE ON a TO telegraf",
        "CREATE USER root WITH PASSWORD 'toor' WITH ALL PRIVILEGES",
    ] {
        let made = statement(&server, "Bearer boss", text).await;
        assert_eq!(
            (made.status, made.text.contains("error")),
            (StatusCode::OK, false),
            "{text}: {}",
            made.text
        );
    }
    for (login, database, want) in [
        ("Token telegraf:secret", "a", StatusCode::NO_CONTENT),
        ("Token telegraf:secret", "b", StatusCode::FORBIDDEN),
        ("Token telegraf:wrong", "a", StatusCode::UNAUTHORIZED),
        ("Token nobody:secret", "a", StatusCode::UNAUTHORIZED),
        ("Token root:toor", "b", StatusCode::NO_CONTENT),
    ] {
        for _ in 0..2 {
            let answer = write_line(&server, login, database).await;
            assert_eq!(answer.status, want, "{login} {database}: {}", answer.text);
        }
    }
    let denied = statement(&server, "Token telegraf:secret", "SELECT v FROM m").await;
    assert_eq!(denied.status, StatusCode::FORBIDDEN);
    assert!(denied.text.contains("telegraf") && denied.text.contains("authorized"), "{}", denied.text);
    let query = "/api/v1/query?query=1&u=telegraf&p=secret";
    for (path, login, want) in [
        ("/api/v1/query?query=1", "Token telegraf:secret", StatusCode::FORBIDDEN),
        ("/api/v1/query?query=1", "Token root:toor", StatusCode::OK),
        // Parameters are credentials of InfluxDB's API alone.
        (query, "", StatusCode::UNAUTHORIZED),
        ("/query?db=a&u=root&p=toor&q=SHOW%20USERS", "", StatusCode::OK),
        ("/query?db=a&u=telegraf&p=secret&q=SHOW%20USERS", "", StatusCode::FORBIDDEN),
    ] {
        let headers = [("authorization", login)];
        let headers = if login.is_empty() { &headers[..0] } else { &headers[..] };
        let answer = send(&server, "GET", path, headers).await;
        assert_eq!(answer.status, want, "{path} as {login}: {}", answer.text);
    }
    // A changed password counts at once.
    let changed = statement(&server, "Bearer boss", "SET PASSWORD FOR telegraf = 'next'").await;
    assert_eq!(changed.status, StatusCode::OK);
    assert_eq!(write_line(&server, "Token telegraf:secret", "a").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(write_line(&server, "Token telegraf:next", "a").await.status, StatusCode::NO_CONTENT);
}

/// A token as Chronograf and scripts for InfluxDB 1.8 sign it with the shared secret.
fn signed_token(secret: &str, claims: &str) -> String {
    let signed =
        [r#"{"alg":"HS256","typ":"JWT"}"#, claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("Bearer {signed}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

#[tokio::test]
async fn signed_tokens_of_influxdb_log_in_next_to_principals() {
    let issuer = "jwt:\n- {issuer: 'https://login.example.com', audience: a}\n".to_owned();
    let entries = [entry("boss", "  scopes: [read, write, admin]\n"), issuer];
    let server = guarded_with(&entries, |options| {
        options.service.influx.auth_enabled = true;
        options.service.influx.shared_secret = "s3cr3t".to_owned();
    });
    for text in [
        "CREATE DATABASE a",
        "CREATE DATABASE b",
        "CREATE USER telegraf WITH PASSWORD 'secret'",
        "GRANT WRITE ON a TO telegraf",
        "CREATE USER root WITH PASSWORD 'toor' WITH ALL PRIVILEGES",
    ] {
        let made = statement(&server, "Bearer boss", text).await;
        assert_eq!(made.status, StatusCode::OK, "{text}: {}", made.text);
    }
    let now_s = NOW_MS / 1000;
    let of = |user: &str| signed_token("s3cr3t", &format!(r#"{{"username":"{user}","exp":{}}}"#, now_s + 60));
    let expired = signed_token("s3cr3t", &format!(r#"{{"username":"root","exp":{now_s}}}"#));
    let forged = signed_token("other", &format!(r#"{{"username":"root","exp":{}}}"#, now_s + 60));
    for (login, database, want) in [
        (&of("telegraf"), "a", StatusCode::NO_CONTENT),
        (&of("telegraf"), "b", StatusCode::FORBIDDEN),
        (&of("root"), "b", StatusCode::NO_CONTENT),
        (&of("nobody"), "a", StatusCode::UNAUTHORIZED),
        (&expired, "a", StatusCode::UNAUTHORIZED),
        (&forged, "a", StatusCode::UNAUTHORIZED),
    ] {
        let answer = write_line(&server, login, database).await;
        assert_eq!(answer.status, want, "{login} {database}: {}", answer.text);
    }
    // As with its password: an administrator has all APIs, others InfluxDB's alone.
    for (login, want) in [(&of("root"), StatusCode::OK), (&of("telegraf"), StatusCode::FORBIDDEN)] {
        let answer = send(&server, "GET", "/api/v1/labels", &[("authorization", login)]).await;
        assert_eq!(answer.status, want, "{}", answer.text);
    }
    let dropped = statement(&server, "Bearer boss", "DROP USER root").await;
    assert_eq!(dropped.status, StatusCode::OK);
    assert_eq!(write_line(&server, &of("root"), "b").await.status, StatusCode::UNAUTHORIZED);
}

// Without a secret, every client could sign with the empty one.
#[tokio::test]
async fn a_token_signed_with_no_secret_is_no_login() {
    let entries = [entry("boss", "  scopes: [read, write, admin]\n")];
    let claims = format!(r#"{{"username":"root","exp":{}}}"#, NOW_MS / 1000 + 60);
    for (auth_enabled, secret, signed_by) in [(true, "", ""), (false, "s3cr3t", "s3cr3t")] {
        let server = guarded_with(&entries, |options| {
            options.service.influx.auth_enabled = auth_enabled;
            options.service.influx.shared_secret = secret.to_owned();
        });
        for text in ["CREATE DATABASE a", "CREATE USER root WITH PASSWORD 'toor' WITH ALL PRIVILEGES"] {
            assert_eq!(statement(&server, "Bearer boss", text).await.status, StatusCode::OK, "{text}");
        }
        let answer = write_line(&server, &signed_token(signed_by, &claims), "a").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{}", answer.text);
    }
}
