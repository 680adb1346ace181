//! Each route of the OpenAPI document over HTTP/1.1 and HTTP/2: the same requests are refused.

use std::cell::RefCell;

use serde_json::Value;

use super::client::{Connection, Reply};
use super::{Fixture, basic, tls_section, users_section};

/// Users of the requests besides alice: one has expired, one has another tenant. The password of each is
/// "secret".
const ACCESS: &str = "principals:
- {name: expired, user: expired, password_bcrypt: HASH, scopes: [read, write, admin], expires: 2001-01-01T00:00:00Z}
- {name: elsewhere, user: elsewhere, password_bcrypt: HASH, scopes: [read, write, admin], tenants: [elsewhere]}
";

/// Open routes besides pages: health, versions, descriptions of the API and of functions.
const OPEN: [&str; 9] = [
    "/-/",
    "/ping",
    "/health",
    "/version",
    "/api/v1/openapi.yaml",
    "/api/v1/status/buildinfo",
    "/api/v1/features",
    "/status",
    "/functions",
];

/// Path and method of each operation of the document, with `x` for parameters of a path.
fn operations(document: &str) -> Vec<(String, String)> {
    let document: Value = serde_saphyr::from_str(document).expect("YAML");
    let of_path = |(path, item): (&String, &Value)| {
        let part = |part: &str| if part.starts_with('{') { "x".to_owned() } else { part.to_owned() };
        let path = path.split('/').map(part).collect::<Vec<_>>().join("/");
        let methods = item.as_object().expect("operations").keys();
        methods.map(|method| (path.clone(), method.to_uppercase())).collect::<Vec<_>>()
    };
    document["paths"].as_object().expect("paths").iter().flat_map(of_path).collect()
}

fn connect(fixture: &Fixture, alpn: &str) -> Connection {
    fixture.clients.block_on(fixture.client().with_alpn(&[alpn]).connect()).expect("connects")
}

struct Walk {
    fixture: Fixture,
    http1: RefCell<Connection>,
    http2: RefCell<Connection>,
}

impl Walk {
    fn start() -> Walk {
        let hash = users_section().rsplit(' ').next().expect("a hash").trim().to_owned();
        let fixture = Fixture::start_with(
            &format!("{}{}", tls_section(""), users_section()),
            Some(&ACCESS.replace("HASH", &hash)),
        );
        let http1 = RefCell::new(connect(&fixture, "http/1.1"));
        let http2 = RefCell::new(connect(&fixture, "h2"));
        Walk { fixture, http1, http2 }
    }

    /// Sends a request by both versions, which must be answered alike.
    fn send(&self, method: &str, path: &str, login: Option<&str>) -> Reply {
        let headers: Vec<_> = login.map(|login| ("authorization", basic(login))).into_iter().collect();
        let send = |kept: &RefCell<Connection>, alpn: &str| {
            let send = |kept: &Connection| self.fixture.clients.block_on(kept.send(method, path, &headers));
            let reply = send(&kept.borrow());
            reply.unwrap_or_else(|_| {
                // The server closes a connection after some errors.
                kept.replace(connect(&self.fixture, alpn));
                send(&kept.borrow()).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
            })
        };
        let old = send(&self.http1, "http/1.1");
        let new = send(&self.http2, "h2");
        assert_eq!((old.is_http2, new.is_http2), (false, true));
        assert_eq!(old.status, new.status, "{method} {path} as {login:?}: {} / {}", old.text, new.text);
        new
    }
}

/// The check of access is bound to handlers, not to a version of HTTP; a second router for HTTP/2 would be a
/// second table.
#[test]
fn each_route_refuses_by_http2_what_it_refuses_by_http1() {
    let walk = Walk::start();
    let document = walk.send("GET", "/api/v1/openapi.yaml", Some("alice:secret"));
    assert_eq!(document.status, 200, "{}", document.text);
    let operations = operations(&document.text);
    assert!(operations.len() > 100, "{} operations", operations.len());
    let mut open = Vec::new();
    for (path, method) in &operations {
        let head = (method == "GET").then_some("HEAD");
        for method in std::iter::once(method.as_str()).chain(head) {
            let reply = walk.send(method, path, None);
            if reply.status != 401 {
                // Pages of the web interface hold no data.
                let kind = reply.headers.get("content-type").map(|kind| kind.as_bytes().to_vec());
                let is_page = kind.unwrap_or_default().starts_with(b"text/html");
                if reply.status < 300 && !is_page {
                    open.push(path.clone());
                }
                continue;
            }
            assert!(reply.headers.contains_key("www-authenticate"), "{method} {path}");
            for (login, want) in [("alice:wrong", 401), ("expired:secret", 401), ("elsewhere:secret", 403)] {
                let status = walk.send(method, path, Some(login)).status;
                assert_eq!(status, want, "{method} {path} as {login}");
            }
        }
        for method in ["OPTIONS", "TRACE", "PATCH"] {
            let reply = walk.send(method, path, None);
            let is_preflight = method == "OPTIONS" && reply.status < 300 && reply.text.is_empty();
            assert!(reply.status >= 400 || is_preflight, "{method} {path}: {}", reply.status);
        }
    }
    open.dedup();
    let is_open = |path: &String| OPEN.iter().any(|prefix| path.starts_with(prefix));
    let unexpected: Vec<_> = open.iter().filter(|path| !is_open(path)).collect();
    assert!(unexpected.is_empty(), "open without a login: {unexpected:?}");
}

#[test]
fn unclean_paths_reach_no_handler_without_a_login() {
    let walk = Walk::start();
    for path in [
        "/api/v1/query",
        "/metrics",
        "/api/v1/status/config",
        "/write",
        "/render",
        "/api/v1/admin/tsdb/snapshot",
    ] {
        let first = format!("%{:02x}", path.as_bytes()[1]);
        let encoded = format!("/{first}{}", &path[2..]);
        for unclean in [
            format!("/{path}"),
            format!("{path}/"),
            format!("/-/healthy/..{path}"),
            format!("/-/healthy/%2e%2e{path}"),
            format!("/.{path}"),
            format!("{path};/-/healthy"),
            format!("{path}%00"),
            path.to_uppercase(),
            encoded,
        ] {
            for method in ["GET", "POST", "PUT", "HEAD"] {
                let reply = walk.send(method, &unclean, None);
                assert!(reply.status >= 300, "{method} {unclean}: {}", reply.status);
                assert!(
                    !reply.text.contains("resultType") && !reply.text.contains("chronolith_"),
                    "{unclean}"
                );
            }
        }
    }
}
