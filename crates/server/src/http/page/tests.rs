//! Addresses, headers and files of the web interface.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::{FILES, FOREVER, POLICY, is_page_request};
use crate::http::router;
use crate::http::tests::Fixture;

const PAGES: [&str; 17] = [
    "/",
    "/graph",
    "/query",
    "/explore",
    "/cardinality",
    "/tsdb-status",
    "/storage",
    "/cluster",
    "/queries",
    "/tenants",
    "/rejects",
    "/plan",
    "/alerts",
    "/rules",
    "/settings",
    "/config",
    "/flags",
];

fn get(address: &str, headers: &[(&str, &str)]) -> Request {
    let request = Request::builder().uri(address);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).expect("a request")
}

#[tokio::test]
async fn pages_have_one_document_and_the_policy() {
    let server = Fixture::ready();
    for path in PAGES {
        let request = get(path, &[("accept", "text/html,*/*;q=0.8")]);
        let answer = router(server.web.clone()).oneshot(request).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_SECURITY_POLICY], POLICY, "{path}");
        assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-cache", "{path}");
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(bytes, FILES.page(), "{path}");
    }
}

#[tokio::test]
async fn files_of_the_page_are_immutable_and_those_of_other_builds_absent() {
    let server = Fixture::ready();
    let mut addresses = FILES.page().split(['"']).filter(|part| part.starts_with("ui/"));
    let script = addresses.clone().find(|address| address.ends_with(".js")).expect("a script");
    assert!(addresses.all(|address| address.contains(FILES.hash())));
    // Files that are stored as gzip cost nothing; a client that prefers zstd gets them as any other response.
    for (encoding, coding) in [
        ("", None),
        ("gzip", Some("gzip")),
        ("br, gzip;q=0.5", Some("gzip")),
        ("gzip, deflate, br, zstd", Some("gzip")),
        ("gzip;q=0.5, zstd", Some("zstd")),
        ("zstd", Some("zstd")),
        ("gzip;q=0", None),
        ("identity", None),
    ] {
        let request = get(&format!("/{script}"), &[("accept-encoding", encoding)]);
        let answer = router(server.web.clone()).oneshot(request).await.expect("an answer");
        let headers = answer.headers();
        assert_eq!(answer.status(), StatusCode::OK, "{script}");
        assert_eq!(headers[header::CACHE_CONTROL], FOREVER);
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY);
        assert_eq!(headers[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        let found = headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().expect("text"));
        assert_eq!(found, coding, "{encoding}");
        assert_eq!(headers[header::VARY], "accept-encoding");
    }
    let other = script.replace(FILES.hash(), "0123456789abcdef");
    for address in [format!("/{other}"), format!("/ui/{}/absent.js", FILES.hash()), "/ui/x".to_owned()] {
        assert_eq!(server.get(&address).await.status, StatusCode::NOT_FOUND, "{address}");
    }
}

/// InfluxDB's clients and links to Prometheus's query page share `/query`.
#[test]
fn query_is_a_page_for_browsers_and_links_of_prometheus() {
    let html = [("accept", "text/html")];
    for (address, headers, want) in [
        ("/query?g0.expr=up&g0.tab=1", &[][..], true),
        ("/query", &html, true),
        ("/query?tenant=a", &html, true),
        ("/query", &[], false),
        ("/query?q=SHOW+DATABASES", &html, false),
        ("/query?db=d&g0.expr=up", &html, false),
        ("/query?pretty=true", &[("accept", "application/json")], false),
    ] {
        assert_eq!(is_page_request(&get(address, headers)), want, "{address} {headers:?}");
    }
    let post = Request::post("/query?g0.expr=up").header("accept", "text/html").body(Body::empty());
    assert!(!is_page_request(&post.expect("a request")));
}
