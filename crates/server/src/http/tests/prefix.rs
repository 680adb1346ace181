//! Mimir's prefix `/prometheus` before Prometheus's API, and the prefix of all routes.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};

use super::{Fixture, NOW_S, access};
use crate::options::{ExternalUrl, RoutePrefix, ServerOptions};

#[tokio::test]
async fn paths_of_the_api_answer_below_the_prefix() {
    let fixture = Fixture::with(|options| options.web.admin_api = true).open();
    fixture.store_series("anonymous", 0, &[&[("__name__", "x"), ("i", "1")]]);
    let query = format!("query=x&time={NOW_S}");
    for path in [
        format!("/api/v1/query?{query}"),
        format!("/api/v1/query_range?query=x&start={NOW_S}&end={NOW_S}&step=1"),
        "/api/v1/series?match[]=x".to_owned(),
        "/api/v1/labels".to_owned(),
        "/api/v1/label/i/values".to_owned(),
        "/api/v1/label/__name__/values?match[]=x".to_owned(),
        "/api/v1/metadata".to_owned(),
        "/api/v1/rules".to_owned(),
        "/api/v1/alerts".to_owned(),
        "/api/v1/query_exemplars?query=x".to_owned(),
        "/api/v1/format_query?query=x%2B1".to_owned(),
        "/api/v1/status/buildinfo".to_owned(),
        "/api/v1/status/config".to_owned(),
        "/api/v1/search/metric_names?search[]=x".to_owned(),
        // Refused alike.
        "/api/v1/query?query=(".to_owned(),
        "/api/v1/write".to_owned(),
        "/api/v1/nothing".to_owned(),
    ] {
        let plain = fixture.get(&path).await;
        let prefixed = fixture.get(&format!("/prometheus{path}")).await;
        assert_eq!(prefixed.status, plain.status, "{path}");
        assert_eq!(
            prefixed.headers.get(header::CONTENT_TYPE),
            plain.headers.get(header::CONTENT_TYPE),
            "{path}"
        );
        assert_eq!(prefixed.headers.get(header::ALLOW), plain.headers.get(header::ALLOW), "{path}");
        assert_eq!(prefixed.text, plain.text, "{path}");
    }
    let deleted = Request::post("/prometheus/api/v1/admin/tsdb/delete_series?match[]=x").body(Body::empty());
    assert_eq!(fixture.send(deleted.unwrap()).await.status, StatusCode::NO_CONTENT);
    let series = fixture.get("/prometheus/api/v1/series?match[]=x").await;
    assert_eq!(series.text, r#"{"status":"success","data":[]}"#);
}

#[tokio::test]
async fn only_the_api_has_the_prefix() {
    let fixture = Fixture::ready();
    for path in [
        "/prometheus",
        "/prometheus/graph",
        "/prometheus/federate",
        "/prometheus/metrics",
        "/prometheus/-/ready",
        "/prometheus/api/v2/query",
        "/prometheus/prometheus/api/v1/labels",
        "/prometheusapi/v1/labels",
        "/Prometheus/api/v1/labels",
        "/x/prometheus/api/v1/labels",
    ] {
        assert_eq!(fixture.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn redirects_stay_below_the_prefix() {
    let fixture = Fixture::ready();
    for (path, want) in [
        ("/prometheus/api/v1/labels/", "/prometheus/api/v1/labels"),
        ("/prometheus/api/v1//labels?limit=1", "/prometheus/api/v1/labels?limit=1"),
        ("/prometheus//api/v1/labels", "/prometheus/api/v1/labels"),
    ] {
        let answer = fixture.get(path).await;
        assert_eq!(answer.status, StatusCode::MOVED_PERMANENTLY, "{path}");
        assert_eq!(answer.headers[header::LOCATION], want, "{path}");
    }
}

/// Checks labels of routes: a client that chooses paths must not create labels.
#[tokio::test]
async fn metrics_have_the_name_of_the_route() {
    let fixture = Fixture::ready();
    for path in ["/prometheus/api/v1/label/a/values", "/prometheus/api/v1/label/b/values", "/prometheus/x"] {
        fixture.get(path).await;
    }
    let metrics = fixture.get("/metrics").await.text;
    assert!(!metrics.contains("prometheus/"), "{metrics}");
    let line = metrics.lines().find(|line| {
        line.starts_with(
            "chronolith_http_request_duration_seconds_count{route=\"/api/v1/label/{name}/values\"",
        )
    });
    assert!(line.is_some_and(|line| line.ends_with(" 2")), "{line:?}");
}

/// Checks that a page of another origin cannot use the prefix to change something.
#[tokio::test]
async fn other_origins_are_refused_below_the_prefix() {
    let fixture = Fixture::with(|options| options.web.admin_api = true).open();
    let request = Request::post("/prometheus/api/v1/admin/tsdb/delete_series?match[]=x")
        .header(header::ORIGIN, "http://evil.example")
        .header(header::HOST, "127.0.0.1:9595");
    let answer = fixture.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

/// A server whose routes are below `/a/b`.
fn below_prefix(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    Fixture::with(|options| {
        options.web.route_prefix = Some(RoutePrefix::parse("/a/b/").unwrap());
        change(options);
    })
    .open()
}

#[tokio::test]
async fn all_routes_are_below_the_prefix_of_routes() {
    let server = below_prefix(|_| {});
    server.store_series("anonymous", 0, &[&[("__name__", "x"), ("i", "1")]]);
    for path in [
        "/a/b/",
        "/a/b/graph",
        "/a/b/-/healthy",
        "/a/b/metrics",
        "/a/b/api/v1/query?query=1",
        "/a/b/prometheus/api/v1/query?query=1",
        "/a/b/render?target=a",
        "/a/b/ping",
    ] {
        let answer = server.get(path).await;
        assert!(answer.status.is_success(), "{path}: {} {}", answer.status, answer.text);
    }
    for path in ["/", "/a/b", "/?x=1"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status, &answer.headers["location"]),
            (StatusCode::FOUND, &"/a/b/".parse().unwrap())
        );
    }
    for path in
        ["/a", "/a/bc", "/api/v1/query?query=1", "/-/healthy", "/prometheus/api/v1/labels", "//a/b/metrics"]
    {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(answer.text.contains("paths of this server begin with /a/b/"), "{path}: {}", answer.text);
    }
    for (path, want) in [
        ("/a/b//api/v1/labels", "/a/b/api/v1/labels"),
        ("/a/b/metrics/", "/a/b/metrics"),
        ("/a/b/prometheus/api/v1/../v1/labels", "/a/b/prometheus/api/v1/labels"),
    ] {
        assert_eq!(server.get(path).await.headers["location"], want, "{path}");
    }
    let description = server.get("/a/b/api/v1/openapi.yaml").await;
    let document: serde_json::Value = serde_saphyr::from_str(&description.text).unwrap();
    assert_eq!(document["servers"][0]["url"], "/a/b");
}

/// Covers the order of the layers: the prefix is no way around the check of access.
#[tokio::test]
async fn a_prefix_of_routes_opens_nothing() {
    let server = access::guarded_with(&[access::entry("reader", "  scopes: [read]\n")], |options| {
        options.web.external_url = Some(ExternalUrl::parse("https://m.example/a/b").unwrap());
    });
    for (path, want) in [
        ("/a/b/api/v1/query?query=1", StatusCode::UNAUTHORIZED),
        ("/a/b/metrics", StatusCode::UNAUTHORIZED),
        ("/a/b/-/healthy", StatusCode::OK),
        ("/api/v1/query?query=1", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(server.get(path).await.status, want, "{path}");
    }
}
