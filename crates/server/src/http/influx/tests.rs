//! The InfluxDB API through the router: writes, their errors, PromQL over what was written.

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use chronolith_model::TenantId;
use chronolith_model::databases::{CatalogChange, HOUR_NS, PolicyOptions, Privilege};

use super::password;
use crate::http::tests::{Answer, Fixture, NOW_MS};

fn change(server: &Fixture, change: CatalogChange) {
    let store = server.app.lifecycle.store().expect("open");
    store.change_databases(&TenantId::anonymous(), &change).expect("is applied");
}

fn with_database() -> Fixture {
    let server = Fixture::ready();
    change(&server, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    server
}

async fn post(server: &Fixture, path: &str, body: &str) -> Answer {
    server.send(Request::post(path).body(Body::from(body.to_owned())).unwrap()).await
}

#[track_caller]
fn check_error(answer: &Answer, status: u16, message: &str) {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
    assert_eq!(answer.json()["error"], message);
    let in_header: String = message.chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
    assert_eq!(answer.headers["x-influxdb-error"], in_header);
    assert_eq!(answer.headers["content-type"], "application/json");
}

async fn values(server: &Fixture, query: &str) -> Vec<(String, String)> {
    let answer = server.get(&format!("/api/v1/query?time={}&query={query}", NOW_MS / 1000)).await;
    let json = answer.json();
    let of_series = |series: &serde_json::Value| {
        (series["metric"].to_string(), series["value"][1].as_str().unwrap_or("").to_owned())
    };
    json["data"]["result"].as_array().expect("a vector").iter().map(of_series).collect()
}

#[tokio::test]
async fn what_was_written_is_read_by_promql() {
    let server = with_database();
    let body =
        format!("cpu,host=a usage=1.5,count=3i,up=true,state=\"on\" {NOW_MS}000000\ncpu,host=b usage=2");
    let answer = post(&server, "/write?db=db", &body).await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NO_CONTENT, ""));
    assert_eq!(answer.headers["x-influxdb-version"], "1.8.10");
    assert_eq!(answer.headers["x-influxdb-build"], "OSS");
    assert!(answer.headers.contains_key("request-id"));
    let labels = |name: &str, host: &str| {
        format!(r#"{{"__name__":"{name}","db":"db","host":"{host}","rp":"autogen"}}"#)
    };
    let want = [(labels("cpu_usage", "a"), "1.5"), (labels("cpu_usage", "b"), "2")];
    let want = want.map(|(labels, value)| (labels, value.to_owned()));
    assert_eq!(values(&server, "cpu_usage").await, want);
    assert_eq!(values(&server, "cpu_usage%7Bdb=%22db%22%7D").await, want);
    assert_eq!(values(&server, "cpu_usage%7Bdb=%22other%22%7D").await, []);
    assert_eq!(values(&server, "cpu_count").await, [(labels("cpu_count", "a"), "3".to_owned())]);
    assert_eq!(
        values(&server, "%7B__name__=~%22cpu_u.%22%7D").await,
        [(labels("cpu_up", "a"), "1".to_owned())]
    );
    assert_eq!(values(&server, "cpu_state").await, []);
    let names = server.get("/api/v1/label/__name__/values").await;
    assert_eq!(names.json()["data"].to_string(), r#"["cpu_count","cpu_up","cpu_usage"]"#);
    let labels = server.get("/api/v1/labels").await;
    assert_eq!(labels.json()["data"].to_string(), r#"["__name__","db","host","rp"]"#);
}

#[tokio::test]
async fn refused_writes_have_the_texts_of_influxdb() {
    let server = with_database();
    check_error(&post(&server, "/write", "m v=1").await, 400, "database is required");
    check_error(&post(&server, "/write?db=nope", "m v=1").await, 404, "database not found: \"nope\"");
    check_error(&post(&server, "/write?db=db&rp=x", "m v=1").await, 500, "retention policy not found: x");
    let precision = "invalid precision \"us\" (use n, u, ms, s, m or h)";
    check_error(&post(&server, "/write?db=db&precision=us", "m v=1").await, 400, precision);
    let consistency = "invalid consistency level";
    check_error(&post(&server, "/write?db=db&consistency=two", "m v=1").await, 400, consistency);
    let bucket = "bucket name \"\" is missing a slash; not in \"database/retention-policy\" format";
    check_error(&post(&server, "/api/v2/write", "m v=1").await, 404, bucket);
    let unparsable = "unable to parse 'm': missing fields\nunable to parse 'x y': invalid field format";
    check_error(&post(&server, "/write?db=db", "m\nx y").await, 400, unparsable);
    let partial = "partial write: unable to parse 'bad': missing fields dropped=0";
    check_error(&post(&server, "/write?db=db", "m v=1\nbad").await, 400, partial);
    assert_eq!(values(&server, "m_v").await.len(), 1, "the good line is stored");
    for good in ["", "# comment", "\n\n"] {
        assert_eq!(post(&server, "/write?db=db", good).await.status, StatusCode::NO_CONTENT);
    }
    let v2 = post(&server, "/api/v2/write?bucket=db/autogen&org=x&precision=us", "m v=3").await;
    assert_eq!(v2.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn points_beyond_the_retention_policy_are_dropped() {
    let server = with_database();
    let options = PolicyOptions { duration_ns: Some(HOUR_NS), ..PolicyOptions::default() };
    let (database, name) = ("db".to_owned(), "hour".to_owned());
    change(&server, CatalogChange::CreatePolicy { database, name, options, is_default: true });
    let body = format!("m a=1,b=2 1000\nm a=1 {NOW_MS}000000");
    let beyond = "partial write: points beyond retention policy dropped=1";
    check_error(&post(&server, "/write?db=db", &body).await, 400, beyond);
    assert_eq!(values(&server, "m_a").await.len(), 1);
}

#[tokio::test]
async fn users_need_the_privilege_to_write() {
    let server = Fixture::with(|options| options.influx.auth_enabled = true).open();
    change(&server, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    let user = |name: &str, is_admin| CatalogChange::CreateUser {
        name: name.to_owned(),
        password_hash: password::hash("secret", &server.app.env.rng),
        is_admin,
    };
    let needs_user = "user is required to write to database \"db\"";
    check_error(&post(&server, "/write?db=db", "m v=1").await, 403, needs_user);
    change(&server, user("admin", true));
    change(&server, user("reader", false));
    let unparsable = "unable to parse authentication credentials";
    let answer = post(&server, "/write?db=db", "m v=1").await;
    check_error(&answer, 401, unparsable);
    assert_eq!(answer.headers[header::WWW_AUTHENTICATE], "Basic realm=\"InfluxDB\"");
    check_error(&post(&server, "/write?db=db&u=admin&p=wrong", "m v=1").await, 401, "authorization failed");
    let forbidden = "\"reader\" user is not authorized to write to database \"db\"";
    check_error(&post(&server, "/write?db=db&u=reader&p=secret", "m v=1").await, 403, forbidden);
    let privilege = Some(Privilege::Write);
    change(
        &server,
        CatalogChange::SetPrivilege { user: "reader".to_owned(), database: "db".to_owned(), privilege },
    );
    for user in ["reader", "admin"] {
        let answer = post(&server, &format!("/write?db=db&u={user}&p=secret"), "m v=1").await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    }
}

#[tokio::test]
async fn ping_and_health_answer_without_a_database() {
    let server = Fixture::ready();
    assert_eq!(server.get("/ping").await.status, StatusCode::NO_CONTENT);
    assert_eq!(server.get("/ping?verbose=true").await.text, r#"{"version":"1.8.10"}"#);
    assert_eq!(server.get("/status").await.status, StatusCode::NO_CONTENT);
    let health = server.get("/health").await;
    assert_eq!((health.status, health.json()["status"].as_str()), (StatusCode::OK, Some("pass")));
    assert_eq!(Fixture::starting().get("/health").await.status, StatusCode::SERVICE_UNAVAILABLE);
}
