//! The InfluxDB API through the router: writes, their errors, PromQL over the written points.

mod access;
mod continuous;
mod limits;
mod prometheus;
mod refused;
mod types;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use chronolith_model::TenantId;
use chronolith_model::databases::{CatalogChange, HOUR_NS, PolicyOptions, Privilege};
use chronolith_service::influx::password;

use crate::http::tests::{Answer, Fixture, NOW_MS};

fn change(server: &Fixture, change: CatalogChange) {
    let store = server.web.service.lifecycle.store().expect("open");
    store.databases().change(&TenantId::anonymous(), &change).expect("is applied");
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
    let server = Fixture::with(|options| options.service.influx.auth_enabled = true).open();
    change(&server, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    let user = |name: &str, is_admin| CatalogChange::CreateUser {
        name: name.to_owned(),
        password_hash: password::hash("secret", &server.web.service.env.rng),
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

async fn run(server: &Fixture, statement: &str) -> Answer {
    let text = percent_encoding::utf8_percent_encode(statement, percent_encoding::NON_ALPHANUMERIC);
    post(server, &format!("/query?db=db&q={text}"), "").await
}

#[track_caller]
fn check_results(answer: &Answer, want: &str) {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.text.trim_end(), format!("{{\"results\":[{want}]}}"));
}

#[tokio::test]
async fn databases_and_policies_are_made_and_listed() {
    let server = Fixture::ready();
    check_results(&run(&server, "CREATE DATABASE db").await, r#"{"statement_id":0}"#);
    let databases =
        r#"{"statement_id":0,"series":[{"name":"databases","columns":["name"],"values":[["db"]]}]}"#;
    check_results(&run(&server, "SHOW DATABASES").await, databases);
    let create = "CREATE RETENTION POLICY week ON db DURATION 7d REPLICATION 1 DEFAULT";
    check_results(&run(&server, create).await, r#"{"statement_id":0}"#);
    let policies = concat!(
        r#"{"statement_id":0,"series":[{"columns":["name","duration","shardGroupDuration","replicaN","default"],"#,
        r#""values":[["autogen","0s","168h0m0s",1,false],["week","168h0m0s","24h0m0s",1,true]]}]}"#
    );
    check_results(&run(&server, "SHOW RETENTION POLICIES ON db").await, policies);
    let missing = r#"{"statement_id":0,"error":"database not found: nope"}"#;
    check_results(&run(&server, "SHOW RETENTION POLICIES ON nope").await, missing);
    let several =
        r#"{"statement_id":0,"error":"database not found: x"},{"statement_id":1,"error":"not executed"}"#;
    let text = "SHOW RETENTION POLICIES ON x; SHOW DATABASES; SHOW DATABASES";
    check_results(&run(&server, text).await, several);
    check_results(&run(&server, "DROP DATABASE db").await, r#"{"statement_id":0}"#);
    let none = r#"{"statement_id":0,"series":[{"name":"databases","columns":["name"]}]}"#;
    check_results(&run(&server, "SHOW DATABASES").await, none);
}

#[tokio::test]
async fn asynchronous_statements_run_after_the_answer() {
    let server = with_database();
    assert_eq!(post(&server, "/write?db=db", "m v=1 1\nm v=2 2").await.status, StatusCode::NO_CONTENT);
    let path = "/query?db=db&async=true&q=SELECT%20v%20INTO%20later%20FROM%20m";
    let answer = post(&server, path, "").await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NO_CONTENT, ""));
    let count = |answer: Answer| answer.json()["results"][0]["series"][0]["values"][0][1].as_i64();
    while count(run(&server, "SELECT count(v) FROM later").await) != Some(2) {
        tokio::task::yield_now().await;
    }
    // Text that is no statement is refused at once.
    let parse = "error parsing query: found EOF, expected identifier, string, number, bool at line 1, char 8";
    check_error(&post(&server, "/query?db=db&async=true&q=SELECT", "").await, 400, parse);
}

#[tokio::test]
async fn schema_is_listed() {
    let server = with_database();
    let body = "cpu,host=a,zone=z usage=1,count=3i\ncpu,host=b usage=2\nmem,host=a free=1u,note=\"x\",ok=t";
    assert_eq!(post(&server, "/write?db=db", body).await.status, StatusCode::NO_CONTENT);
    let list = |name: &str, columns: &str, values: &str| {
        let name = if name.is_empty() { String::new() } else { format!("\"name\":\"{name}\",") };
        format!("{{\"statement_id\":0,\"series\":[{{{name}\"columns\":{columns},\"values\":{values}}}]}}")
    };
    let measurements = list("measurements", r#"["name"]"#, r#"[["cpu"],["mem"]]"#);
    check_results(&run(&server, "SHOW MEASUREMENTS").await, &measurements);
    let some = list("measurements", r#"["name"]"#, r#"[["mem"]]"#);
    check_results(&run(&server, "SHOW MEASUREMENTS WITH MEASUREMENT =~ /^m/").await, &some);
    let keys = list("cpu", r#"["tagKey"]"#, r#"[["host"],["zone"]]"#);
    check_results(&run(&server, "SHOW TAG KEYS FROM cpu").await, &keys);
    let values = list("cpu", r#"["key","value"]"#, r#"[["host","a"],["host","b"]]"#);
    check_results(&run(&server, "SHOW TAG VALUES FROM cpu WITH KEY = host").await, &values);
    let fields = list(
        "mem",
        r#"["fieldKey","fieldType"]"#,
        r#"[["free","unsigned"],["note","string"],["ok","boolean"]]"#,
    );
    check_results(&run(&server, "SHOW FIELD KEYS FROM mem").await, &fields);
    let series = list("", r#"["key"]"#, r#"[["cpu,host=a,zone=z"],["cpu,host=b"],["mem,host=a"]]"#);
    check_results(&run(&server, "SHOW SERIES").await, &series);
    let where_tag = list("", r#"["key"]"#, r#"[["cpu,host=b"]]"#);
    check_results(&run(&server, "SHOW SERIES FROM cpu WHERE host = 'b' OR host = 'c'").await, &where_tag);
    let cardinality = list("", r#"["cardinality estimation"]"#, "[[3]]");
    check_results(&run(&server, "SHOW SERIES CARDINALITY").await, &cardinality);
}

#[tokio::test]
async fn series_and_measurements_are_dropped() {
    let server = with_database();
    let body = "cpu,host=a v=1\ncpu,host=b v=2\nmem v=1";
    assert_eq!(post(&server, "/write?db=db", body).await.status, StatusCode::NO_CONTENT);
    check_results(&run(&server, "DROP SERIES FROM cpu WHERE host = 'a'").await, r#"{"statement_id":0}"#);
    assert_eq!(values(&server, "cpu_v").await.len(), 1);
    check_results(&run(&server, "DROP MEASUREMENT mem").await, r#"{"statement_id":0}"#);
    assert_eq!(values(&server, "mem_v").await, []);
    let fields = "fields not supported in WHERE clause during deletion";
    let answer = run(&server, "DELETE FROM cpu WHERE v > 1").await;
    check_results(&answer, &format!(r#"{{"statement_id":0,"error":"{fields}"}}"#));
}

#[tokio::test]
async fn writing_statements_by_get_are_noted_and_foreign_ones_refused() {
    let server = Fixture::ready();
    let path = "/query?q=CREATE%20DATABASE%20db";
    let answer = server.get(path).await;
    let text =
        "deprecated use of 'CREATE DATABASE db' in a read only context, please use a POST request instead";
    let messages = format!(r#"{{"statement_id":0,"messages":[{{"level":"warning","text":"{text}"}}]}}"#);
    check_results(&answer, &messages);
    for (name, value) in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        let request = Request::get(path).header("host", "localhost:9595").header(name, value);
        let answer = server.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{name}");
    }
    check_error(&server.get("/query").await, 400, "missing required parameter \"q\"");
    let parse = "error parsing query: found EOF, expected identifier, string, number, bool at line 1, char 8";
    check_error(&server.get("/query?q=SELECT").await, 400, parse);
}
