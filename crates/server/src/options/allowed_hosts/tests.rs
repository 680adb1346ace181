//! Hosts by which a server may be addressed.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};

use super::AllowedHosts;
use crate::http::tests::Fixture;

#[track_caller]
fn check(list: &str, allowed: &[&str], refused: &[&str]) {
    let hosts = AllowedHosts::parse(list).expect(list);
    for host in allowed {
        assert!(hosts.allows(host), "{list} has {host}");
    }
    for host in refused {
        assert!(!hosts.allows(host), "{list} has not {host}");
    }
}

#[test]
fn names_have_any_case_and_a_dot_at_their_end() {
    let allowed =
        ["db.example.org", "DB.Example.ORG", "db.example.org.", "db.example.org:9595", "db.example.org:"];
    let refused = [
        "",
        "example.org",
        "x.db.example.org",
        "db.example.org.evil.example",
        "evildb.example.org",
        "db.example.org..",
        ".db.example.org",
        "db.example.org:x",
        "db.example.org:+80",
        "db.example.org:99999",
        "db.example.org@evil.example",
        "evil.example/db.example.org",
        "db.example.org, evil.example",
        " db.example.org",
        "db%2eexample.org",
        "127.0.0.1",
        "[::1]",
    ];
    check("db.example.org", &allowed, &refused);
    check("DB.EXAMPLE.ORG.", &allowed, &refused);
}

#[test]
fn ports_are_compared_if_they_are_given() {
    check("db:9595", &["db:9595", "DB.:9595"], &["db", "db:", "db:80", "db:959", "db:95950"]);
    check("db:80", &["db", "db:", "db:80"], &["db:8080"]);
    check("db", &["db", "db:1", "db:65535"], &["db:65536", "db:-1"]);
}

#[test]
fn wildcards_are_names_below() {
    let below = ["a.example.org", "a.b.example.org", "A.EXAMPLE.ORG.:1", "_x.example.org"];
    let refused = ["example.org", ".example.org", "aexample.org", "a.example.org.evil", "[::1]", "*"];
    check("*.example.org", &below, &refused);
    check("*.example.org:9595", &["a.example.org:9595"], &["a.example.org", "a.example.org:1"]);
}

#[test]
fn addresses_are_compared_by_value() {
    let allowed = ["[::1]", "[::1]:9595", "[0:0:0:0:0:0:0:1]", "[0000::0001]:80"];
    let refused =
        ["::1", "[::2]", "[::1", "::1]", "[::1]x", "[::1%25lo]", "[::ffff:0.0.0.1]", "1", "localhost"];
    check("[::1]", &allowed, &refused);
    check("::1", &allowed, &refused);
    check("[2001:DB8::a]:9595", &["[2001:db8:0::A]:9595"], &["[2001:db8::a]", "[2001:db8::a]:1"]);
    check(
        "127.0.0.1",
        &["127.0.0.1", "127.0.0.1:9595"],
        &["127.1", "2130706433", "127.0.0.2", "[::ffff:127.0.0.1]"],
    );
}

#[test]
fn lists_have_several_hosts() {
    check(
        "localhost, 127.0.0.1,[::1] , *.a.b",
        &["localhost:1", "127.0.0.1", "[::1]", "x.a.b"],
        &["a.b", "x"],
    );
}

#[test]
fn entries_that_are_no_hosts_are_named() {
    for text in [
        "",
        ",",
        "a,,b",
        "*",
        "*.",
        "a.*.b",
        "*a.b",
        "http://a",
        "a/b",
        "a b",
        "a:b",
        "a:0x1",
        "a:99999",
        "[::1",
        "[a]",
        "ä.example",
        "a..b",
        "*.[::1]",
        "*.*.a",
    ] {
        let error = AllowedHosts::parse(text).expect_err(text);
        assert!(error.starts_with("invalid host \""), "{error}");
    }
}

fn get(path: &str, hosts: &[&str]) -> Request {
    let request = hosts.iter().fold(Request::get(path), |request, host| request.header(header::HOST, *host));
    request.body(Body::empty()).expect("a request")
}

#[tokio::test]
async fn every_protocol_of_the_port_is_refused_alike() {
    let hosts = AllowedHosts::parse("db.example.org,localhost").expect("valid");
    let fixture = Fixture::with(|options| options.web.allowed_hosts = Some(hosts)).open();
    for path in [
        "/",
        "/graph",
        "/api/v1/query?query=1",
        "/api/v1/write",
        "/prometheus/api/v1/labels",
        "/federate?match[]=x",
        "/metrics",
        "/-/ready",
        "/query?q=SHOW+DATABASES",
        "/write?db=x",
        "/ping",
        "/render?target=a",
        "/metrics/find?query=*",
        "/events",
        "/nothing",
        "//api/v1/labels",
    ] {
        let refused = fixture.send(get(path, &["evil.example:9595"])).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        let why = "request to host \"evil.example:9595\" refused: it is not in --web.allowed-hosts";
        assert_eq!(refused.json()["error"], why, "{path}");
        let allowed = fixture.send(get(path, &["DB.example.org.:9595"])).await;
        assert_ne!(allowed.status, StatusCode::FORBIDDEN, "{path}");
    }
}

/// Checks requests that name their host several times, or not at all.
#[tokio::test]
async fn all_names_of_a_request_are_compared() {
    let hosts = AllowedHosts::parse("localhost").expect("valid");
    let fixture = Fixture::with(|options| options.web.allowed_hosts = Some(hosts)).open();
    for (target, hosts, want) in [
        ("/-/ready", &["localhost"][..], StatusCode::OK),
        ("/-/ready", &[], StatusCode::FORBIDDEN),
        ("/-/ready", &[""], StatusCode::FORBIDDEN),
        ("/-/ready", &["localhost", "evil.example"], StatusCode::FORBIDDEN),
        ("/-/ready", &["evil.example", "localhost"], StatusCode::FORBIDDEN),
        ("http://localhost/-/ready", &["localhost"], StatusCode::OK),
        ("http://localhost/-/ready", &["evil.example"], StatusCode::FORBIDDEN),
        ("http://evil.example/-/ready", &["localhost"], StatusCode::FORBIDDEN),
    ] {
        assert_eq!(fixture.send(get(target, hosts)).await.status, want, "{target} {hosts:?}");
    }
}

#[tokio::test]
async fn all_hosts_are_allowed_by_default() {
    let fixture = Fixture::ready();
    for hosts in [&["evil.example"][..], &["[::1]:80"], &[""], &[]] {
        assert_eq!(fixture.send(get("/-/ready", hosts)).await.status, StatusCode::OK, "{hosts:?}");
    }
}
