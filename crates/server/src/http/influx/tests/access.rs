//! Tests of access: forms of credentials, the first administrator, pages of other origins, versions.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;

use super::*;
use crate::options::CorsOrigin;

const SECRET: &str = "of tokens";

fn with_users() -> Fixture {
    let server = Fixture::with(|options| {
        options.service.influx.auth_enabled = true;
        options.service.influx.shared_secret = SECRET.to_owned();
    });
    let server = server.open();
    change(&server, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    for (name, is_admin) in [("admin", true), ("reader", false)] {
        let password_hash = password::hash("se:cret", &server.web.service.env.rng);
        change(&server, CatalogChange::CreateUser { name: name.to_owned(), password_hash, is_admin });
    }
    let (user, database) = ("reader".to_owned(), "db".to_owned());
    change(&server, CatalogChange::SetPrivilege { user, database, privilege: Some(Privilege::Read) });
    server
}

async fn send(server: &Fixture, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = Request::builder().method(method).uri(path).header(header::HOST, "127.0.0.1:9595");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    server.send(request.body(Body::from("m v=1")).expect("a request")).await
}

fn token(claims: &str, secret: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let message = format!("{}.{}", encode(r#"{"alg":"HS256","typ":"JWT"}"#), encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes())))
}

#[tokio::test]
async fn all_forms_of_credentials_are_accepted() {
    let server = with_users();
    let expires_s = NOW_MS / 1000 + 60;
    let basic = format!("Basic {}", STANDARD.encode("admin:se:cret"));
    let jwt = token(&format!(r#"{{"username":"admin","exp":{expires_s}}}"#), SECRET);
    let bearer = format!("Bearer {jwt}");
    for path in ["/write?db=db", "/api/v2/write?bucket=db"] {
        for value in [basic.as_str(), "Token admin:se:cret", &bearer] {
            let answer = send(&server, "POST", path, &[("authorization", value)]).await;
            assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NO_CONTENT, ""), "{path} {value}");
        }
        let in_url = send(&server, "POST", &format!("{path}&u=admin&p=se:cret"), &[]).await;
        assert_eq!(in_url.status, StatusCode::NO_CONTENT);
    }
    let form = Request::post("/query").header("content-type", "application/x-www-form-urlencoded");
    let answer = server.send(form.body(Body::from("q=SHOW+DATABASES&u=admin&p=se:cret")).unwrap()).await;
    assert!(answer.text.contains(r#"[["db"]]"#), "{}", answer.text);
}

#[tokio::test]
async fn wrong_credentials_are_refused_with_a_challenge() {
    let server = with_users();
    let expired = format!("Bearer {}", token(r#"{"username":"admin","exp":1}"#, SECRET));
    let forged = format!("Bearer {}", token(r#"{"username":"admin","exp":99999999999}"#, "other"));
    let cases = [
        ("", "unable to parse authentication credentials"),
        ("Basic ???", "unable to parse authentication credentials"),
        ("Token admin:wrong", "authorization failed"),
        ("Token nobody:se:cret", "authorization failed"),
        ("Token :x", "username required"),
        (&expired, "Token is expired"),
        (&forged, "signature is invalid"),
    ];
    for (value, message) in cases {
        for path in ["/write?db=db", "/query?q=SHOW%20DATABASES", "/api/v2/write?bucket=db"] {
            let headers: &[(&str, &str)] = if value.is_empty() { &[] } else { &[("authorization", value)] };
            let answer = send(&server, "POST", path, headers).await;
            check_error(&answer, 401, message);
            assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Basic realm=\"InfluxDB\"");
        }
    }
    let without_secret = Fixture::with(|options| options.service.influx.auth_enabled = true).open();
    change(&without_secret, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    let password_hash = password::hash("x", &without_secret.web.service.env.rng);
    let admin = CatalogChange::CreateUser { name: "admin".to_owned(), password_hash, is_admin: true };
    change(&without_secret, admin);
    let answer = send(&without_secret, "POST", "/write?db=db", &[("authorization", &forged)]).await;
    check_error(&answer, 401, "bearer auth disabled");
}

#[tokio::test]
async fn privileges_decide_what_a_user_reads_and_writes() {
    let server = with_users();
    let reader = [("authorization", "Token reader:se:cret")];
    let forbidden = "\"reader\" user is not authorized to write to database \"db\"";
    check_error(&send(&server, "POST", "/write?db=db", &reader).await, 403, forbidden);
    let answer = send(&server, "POST", "/query?db=db&q=SELECT%20v%20FROM%20m", &reader).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    let answer = send(&server, "POST", "/query?q=CREATE%20DATABASE%20x", &reader).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.text.contains("error authorizing query: "), "{}", answer.text);
    let databases = send(&server, "GET", "/query?q=SHOW%20DATABASES", &reader).await;
    assert!(databases.text.contains(r#"[["db"]]"#), "{}", databases.text);
    for path in ["/ping", "/status", "/health", "/ping?verbose=1"] {
        assert!(send(&server, "GET", path, &[]).await.status.is_success(), "{path} needs no user");
    }
}

#[tokio::test]
async fn before_the_first_administrator_only_he_can_be_created() {
    let server = Fixture::with(|options| options.service.influx.auth_enabled = true).open();
    let first = "error authorizing query: create admin user first or disable authentication";
    check_error(&send(&server, "POST", "/query?q=SHOW%20DATABASES", &[]).await, 403, first);
    let plain = "/query?q=CREATE%20USER%20u%20WITH%20PASSWORD%20'x'";
    check_error(&send(&server, "POST", plain, &[]).await, 403, first);
    let admin = format!("{}%20WITH%20ALL%20PRIVILEGES", plain.replace("USER%20u", "USER%20admin"));
    check_results(&send(&server, "POST", &admin, &[]).await, r#"{"statement_id":0}"#);
    let unparsable = "unable to parse authentication credentials";
    check_error(&send(&server, "POST", "/query?q=SHOW%20DATABASES", &[]).await, 401, unparsable);
    let user = [("authorization", "Token admin:x")];
    assert_eq!(send(&server, "POST", "/query?q=SHOW%20USERS", &user).await.status, StatusCode::OK);
}

#[tokio::test]
async fn only_allowed_origins_change_something() {
    let origin = "http://grafana.example";
    let create = "/query?q=CREATE%20DATABASE%20db";
    let show = "/query?q=SHOW%20DATABASES";
    let server = Fixture::ready();
    for foreign in [("origin", origin), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        for (method, path) in [("GET", create), ("POST", create), ("POST", "/write?db=db")] {
            let answer = send(&server, method, path, &[foreign]).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path} {foreign:?}");
            assert!(answer.json()["error"].as_str().is_some_and(|text| text.contains("--web.cors.origin")));
        }
        let read = send(&server, "GET", show, &[foreign]).await;
        assert_eq!(read.status, StatusCode::OK, "a GET that reads is answered: {}", read.text);
        assert!(!read.headers.contains_key("access-control-allow-origin"), "and no page can read it");
        assert!(!read.text.contains("values"), "nothing was created");
    }
    let cors_origin = CorsOrigin::new("http://grafana\\.example").expect("a regex");
    let server = Fixture::with(|options| options.web.cors_origin = Some(cors_origin)).open();
    for method in ["GET", "POST"] {
        let answer = send(&server, method, create, &[("origin", origin)]).await;
        assert_eq!(answer.status, StatusCode::OK, "{method}: {}", answer.text);
        assert_eq!(answer.headers["access-control-allow-origin"], origin);
    }
    let preflight = send(&server, "OPTIONS", "/write", &[("origin", origin)]).await;
    assert_eq!(preflight.status, StatusCode::NO_CONTENT);
    assert_eq!(preflight.headers["access-control-allow-methods"], "GET, POST, OPTIONS");
    let evil = send(&server, "GET", create, &[("origin", "http://evil.example")]).await;
    assert_eq!(evil.status, StatusCode::FORBIDDEN);
    assert!(!evil.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn every_answer_names_version_and_request() {
    let server = Fixture::with(|options| options.service.influx.version = "1.7.11".to_owned()).open();
    for (method, path) in [
        ("GET", "/ping"),
        ("HEAD", "/ping"),
        ("GET", "/status"),
        ("GET", "/health"),
        ("POST", "/write"),
        ("GET", "/query"),
        ("POST", "/api/v2/write"),
        ("POST", "/api/v2/query"),
        ("GET", "/debug/vars"),
        ("POST", "/api/v1/prom/write"),
        ("POST", "/api/v1/prom/read"),
    ] {
        let answer = send(&server, method, path, &[]).await;
        assert_eq!(answer.headers["x-influxdb-version"], "1.7.11", "{method} {path}");
        assert_eq!(answer.headers["x-influxdb-build"], "OSS");
        assert_eq!(answer.headers["request-id"], answer.headers["x-request-id"]);
    }
    let verbose = server.get("/ping?verbose=1").await;
    assert_eq!((verbose.status, verbose.text.as_str()), (StatusCode::OK, r#"{"version":"1.7.11"}"#));
    assert_eq!(verbose.headers["content-type"], "application/json");
    let health = r#"{"checks":[],"message":"ready for queries and writes","name":"influxdb","status":"pass","version":"1.7.11"}"#;
    assert_eq!(server.get("/health").await.text, health);
    check_results(&run(&server, "CREATE DATABASE db").await, r#"{"statement_id":0}"#);
    let vars = server.get("/debug/vars").await;
    assert_eq!(vars.status, StatusCode::OK);
    assert_eq!(vars.json()["database:db"]["values"]["numSeries"], 0.0);
    assert_eq!(vars.json()["build"]["Version"], "1.7.11");
}
