//! Requests that pages of other origins may send, and the headers that allow them.

use super::*;
use crate::http::tests::{Answer, Fixture};
use crate::options::CorsOrigin;

const EVIL: &str = "http://evil.example";

async fn send(server: &Fixture, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "127.0.0.1:9595");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    server.send(request.body(Body::empty()).expect("a request")).await
}

fn with_origin(pattern: &str) -> Fixture {
    let cors_origin = CorsOrigin::new(pattern).expect("a pattern");
    Fixture::with(|options| {
        options.web.cors_origin = Some(cors_origin);
        options.web.lifecycle = true;
        options.web.admin_api = true;
    })
    .open()
}

/// Covers a regression: any page that a developer had open could write to the server on his machine, reload
/// it and, with the admin API on, delete.
#[tokio::test]
async fn a_page_of_another_origin_cannot_change_anything() {
    let server = Fixture::with(|options| {
        options.web.admin_api = true;
        options.web.lifecycle = true;
    })
    .open();
    let changes = [
        ("POST", "/api/v1/write"),
        ("POST", "/api/v1/push"),
        ("PUT", "/api/v1/admin/tsdb/delete_series?match[]=up"),
        ("POST", "/api/v1/admin/tsdb/snapshot"),
        ("POST", "/api/v1/status/active_queries/kill?id=1"),
        ("POST", "/-/reload"),
        ("DELETE", "/anything"),
    ];
    for (method, path) in changes {
        for foreign in [("origin", EVIL), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            let answer = send(&server, method, path, &[foreign]).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path} {foreign:?}: {}", answer.text);
            assert_eq!(answer.json()["errorType"], "forbidden");
        }
        let own: [&[(&str, &str)]; 4] = [
            &[],
            &[("origin", "http://127.0.0.1:9595")],
            &[("origin", "https://metrics.example"), ("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
        ];
        for headers in own {
            let answer = send(&server, method, path, headers).await;
            assert_ne!(answer.status, StatusCode::FORBIDDEN, "{method} {path} {headers:?}");
        }
    }
}

#[tokio::test]
async fn without_the_setting_no_page_of_another_origin_reads_an_answer() {
    let server = Fixture::ready();
    for (method, path) in [("GET", "/api/v1/query?query=1"), ("POST", "/api/v1/query?query=1")] {
        let answer = send(&server, method, path, &[("origin", EVIL)]).await;
        assert_eq!(answer.status, StatusCode::OK, "reading does no harm where nobody sees the answer");
        assert!(!answer.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    }
    let preflight = send(&server, "OPTIONS", "/api/v1/write", &[("origin", EVIL)]).await;
    assert_eq!(preflight.status, StatusCode::NO_CONTENT);
    assert!(!preflight.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
}

#[tokio::test]
async fn origins_that_match_may_use_the_api() {
    let server = with_origin(r"https?://(a|b)\.example");
    let allowed = [("origin", "https://a.example")];
    let answer = send(&server, "GET", "/api/v1/query?query=1", &allowed).await;
    assert_eq!(answer.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://a.example");
    let varies = answer.headers.get_all(header::VARY).iter().any(|value| value == "Origin");
    assert!(varies, "{:?}", answer.headers);
    let preflight = send(&server, "OPTIONS", "/api/v1/query", &allowed).await;
    assert_eq!(preflight.headers[header::ACCESS_CONTROL_ALLOW_METHODS], "GET, POST, OPTIONS");
    let reload = send(&server, "POST", "/-/reload", &allowed).await;
    assert_ne!(reload.status, StatusCode::FORBIDDEN);
    for other in [EVIL, "https://a.example.evil.example", "https://aXexample"] {
        let answer = send(&server, "GET", "/api/v1/query?query=1", &[("origin", other)]).await;
        assert!(!answer.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN), "{other}");
        let write = send(&server, "POST", "/api/v1/write", &[("origin", other)]).await;
        assert_eq!(write.status, StatusCode::FORBIDDEN, "{other}");
    }
}

#[tokio::test]
async fn any_origin_is_a_star_as_prometheus_has_it() {
    let server = with_origin(".*");
    let answer = send(&server, "GET", "/api/v1/query?query=1", &[("origin", EVIL)]).await;
    assert_eq!(answer.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    let none = send(&server, "GET", "/api/v1/query?query=1", &[]).await;
    assert!(!none.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
}

#[tokio::test]
async fn reload_is_off_unless_it_is_switched_on() {
    let server = Fixture::ready();
    for method in ["POST", "PUT"] {
        let answer = send(&server, method, "/-/reload", &[]).await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (StatusCode::FORBIDDEN, "Lifecycle API is not enabled."),
            "Prometheus's text"
        );
    }
}
