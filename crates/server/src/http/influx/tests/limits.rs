//! Limits of InfluxDB 1.8: each answers its text, and requests within the limit are stored or read.

use super::*;
use crate::options::ServerOptions;

fn limited(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    let server = Fixture::with(change).open();
    self::change(&server, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    server
}

#[tokio::test]
async fn series_beyond_the_limit_of_the_database_are_dropped() {
    let server = limited(|options| options.service.tsdb.limits.default.databases.series_max = 2);
    let text = "partial write: max-series-per-database limit exceeded: (2) dropped=1";
    check_error(&post(&server, "/write?db=db", "m,t=a v=1\nm,t=b v=1\nm,t=c v=1").await, 400, text);
    assert_eq!(post(&server, "/write?db=db", "m,t=a v=2").await.status, StatusCode::NO_CONTENT);
    assert_eq!(values(&server, "m_v").await.len(), 2);
    let own = server.write(&[(&[("__name__", "a"), ("x", "1")], &[(NOW_MS, 1.0)])]).await;
    assert_eq!(own.status, StatusCode::NO_CONTENT, "the limit is that of databases: {}", own.text);
}

#[tokio::test]
async fn values_of_a_tag_beyond_the_limit_are_dropped() {
    let server = limited(|options| options.service.tsdb.limits.default.databases.tag_values_max = 2);
    let body = "cpu,host=a,dc=1 v=1,w=1\ncpu,host=b,dc=1 v=1\ncpu,host=c,dc=1 v=1";
    let text = concat!(
        "partial write: max-values-per-tag limit exceeded (2/2): ",
        "measurement=\"cpu\" tag=\"host\" value=\"c\" dropped=1"
    );
    check_error(&post(&server, "/write?db=db", body).await, 400, text);
    let others = "mem,host=c v=1\ncpu,host=a,dc=2 v=1\ncpu,host=b z=1";
    let answer = post(&server, "/write?db=db", others).await;
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NO_CONTENT, ""));
    check_error(
        &post(&server, "/write?db=db", "cpu,dc=3 v=1").await,
        400,
        &text.replace("tag=\"host\" value=\"c\"", "tag=\"dc\" value=\"3\""),
    );
}

#[tokio::test]
async fn selects_beyond_their_limits_fail() {
    let error = |text: &str| format!(r#"{{"statement_id":0,"error":"{text}"}}"#);
    let body = "m,t=a v=1 1\nm,t=b v=2 2\nm,t=c v=3 3";
    let server = limited(|options| options.service.influx.select_series_max = 2);
    assert_eq!(post(&server, "/write?db=db", body).await.status, StatusCode::NO_CONTENT);
    check_results(&run(&server, "SELECT v FROM m").await, &error("max-select-series limit exceeded: (3/2)"));
    assert!(run(&server, "SELECT v FROM m WHERE t = 'a'").await.text.contains("values"));

    let server = limited(|options| options.service.influx.select_point_max = 2);
    assert_eq!(post(&server, "/write?db=db", body).await.status, StatusCode::NO_CONTENT);
    let answer = run(&server, "SELECT v FROM m").await;
    // The word is misspelled in 1.8.
    assert!(answer.text.contains("max-select-point limit exceeed: (3/2)"), "{}", answer.text);

    let server = limited(|options| options.service.influx.select_bucket_max = 10);
    assert_eq!(post(&server, "/write?db=db", body).await.status, StatusCode::NO_CONTENT);
    let buckets = "SELECT mean(v) FROM m WHERE time >= 0 AND time < 11s GROUP BY time(1s)";
    check_results(&run(&server, buckets).await, &error("max-select-buckets limit exceeded: (11/10)"));
}

#[tokio::test]
async fn rows_beyond_the_limit_are_cut_and_marked() {
    let server = limited(|options| options.service.influx.row_count_max = 2);
    let body = "m v=1 1\nm v=2 2\nm v=3 3";
    assert_eq!(post(&server, "/write?db=db", body).await.status, StatusCode::NO_CONTENT);
    let want = concat!(
        r#"{"statement_id":0,"series":[{"name":"m","columns":["time","v"],"values":[[1,1],[2,2]],"#,
        r#""partial":true}]}"#
    );
    let cut = post(&server, "/query?db=db&epoch=ns&q=SELECT%20v%20FROM%20m", "").await;
    check_results(&cut, want);
    let chunked = post(&server, "/query?db=db&epoch=ns&chunked=true&q=SELECT%20v%20FROM%20m", "").await;
    assert!(chunked.text.contains("[3,3]"), "{}", chunked.text);
}

#[tokio::test]
async fn queries_beyond_the_number_at_once_are_refused() {
    let server = limited(|options| options.service.influx.concurrent_query_max = 1);
    assert!(run(&server, "SHOW DATABASES").await.text.contains("databases"));
    let tenant = TenantId::anonymous();
    let held = server.web.service.influx.queries.enter(&tenant, "q", "db", 0, Default::default(), 1);
    let text = r#"{"statement_id":0,"error":"max-concurrent-queries limit exceeded(1, 1)"}"#;
    check_results(&run(&server, "SHOW DATABASES").await, text);
    drop(held);
    assert!(run(&server, "SHOW DATABASES").await.text.contains("databases"));
}

#[test]
fn the_shorter_timeout_holds() {
    let mut options = ServerOptions::new("/data".into()).service.influx;
    assert_eq!(options.query_timeout_ms(1000), 1000);
    options.query_timeout_ms = 10;
    assert_eq!(options.query_timeout_ms(1000), 10);
    assert_eq!(
        chronolith_service::evaluation::influxql::query_error(&chronolith_model::QueryError::Timeout),
        "query-timeout limit exceeded"
    );
    assert_eq!(
        chronolith_service::evaluation::influxql::query_error(&chronolith_model::QueryError::Canceled),
        "query interrupted"
    );
}

#[tokio::test]
async fn bodies_lines_and_texts_have_limits() {
    let server = limited(|options| {
        options.service.influx.body_bytes_max = 100;
        options.service.influx.line_bytes_max = 30;
        options.service.influx.text_bytes_max = 5;
        options.service.write.decompressed_bytes_max = 200;
    });
    let large = "m v=1\n".repeat(20);
    check_error(&post(&server, "/write?db=db", &large).await, 413, "Request Entity Too Large");
    let line = format!("m,t={} v=1", "a".repeat(30));
    let answer = post(&server, "/write?db=db", &format!("{line}\nm v=1")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text.contains("partial write: unable to parse"), "{}", answer.text);
    let text = "partial write: input field \"s\" on measurement \"m\" is too long, 6 > 5 dropped=1";
    check_error(&post(&server, "/write?db=db", "m s=\"123456\"\nm s=\"12345\"").await, 400, text);
}

/// Checks that writes wait for memory that others hold, and that a write that can never fit is refused at
/// once.
#[tokio::test]
async fn writes_wait_for_memory_and_are_never_told_to_stop() {
    let server = limited(|options| options.service.write.memory_bytes_max = 1 << 20);
    let body = "m v=1\n".repeat(100_000);
    check_error(&post(&server, "/write?db=db", &body).await, 413, "Request Entity Too Large");
    let budget = server.web.service.admission.write_memory.total.clone();
    let held = budget.reserve((1 << 20) - 10).expect("room");
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        drop(held);
    };
    let (answer, ()) = tokio::join!(post(&server, "/write?db=db", "m v=1"), release);
    assert_eq!((answer.status, answer.text.as_str()), (StatusCode::NO_CONTENT, ""));
    assert_eq!(budget.used_bytes(), 0);
}

/// Checks that a body of tiny fields is parsed in pieces, and acknowledged once for all.
#[tokio::test]
async fn a_body_of_many_pieces_is_stored_as_a_whole() {
    let server = with_database();
    let fields: Vec<String> = (0..20).map(|idx| format!("{}=1", char::from(b'a' + idx))).collect();
    let mut body = String::new();
    for time in 1..=3_000 {
        body.push_str(&format!("m {} {time}\n", fields.join(",")));
    }
    body.push_str("bad\nm a=1i 1\n");
    let conflict = concat!(
        "partial write: field type conflict: input field \"a\" on measurement \"m\" is type integer, ",
        "already exists as type float dropped=1"
    );
    check_error(&post(&server, "/write?db=db", &body).await, 400, conflict);
    let want =
        r#"{"statement_id":0,"series":[{"name":"m","columns":["time","a","t"],"values":[[0,3000,3000]]}]}"#;
    let counted = "/query?db=db&epoch=ns&q=SELECT%20count(a)%20AS%20a,count(t)%20AS%20t%20FROM%20m";
    check_results(&post(&server, counted, "").await, want);
}

/// Covers a regression: the memory of a plan was reserved per level as if each level had tables and names of
/// its own: 40 levels of 300 fields needed 14 MB of `query.memory`, and take less than 4.
#[tokio::test]
async fn nested_selects_of_wide_measurements_fit_a_small_memory() {
    let server = limited(|options| options.service.query.memory_bytes_max = 6 << 20);
    let names: Vec<String> = (100..400).map(|idx| format!("f{idx}")).collect();
    let fields: Vec<String> = names.iter().map(|name| format!("{name}=1")).collect();
    let line = format!("m,host=a {} 10", fields.join(","));
    assert_eq!(post(&server, "/write?db=db", &line).await.status, StatusCode::NO_CONTENT);
    let ones = vec!["1"; 300].join(",");
    let (columns, selected) = (names.join("\",\""), names.join(","));
    let with_tag = format!(r#"["time","{columns}","host"]"#);
    let fields_alone = format!(r#"["time","{columns}"]"#);
    for (levels, fields, clauses, header, values) in [
        (1, "*", "", &with_tag, format!(r#"{ones},"a""#)),
        (2, "*", "", &with_tag, format!(r#"{ones},"a""#)),
        (5, "*", "", &with_tag, format!(r#"{ones},"a""#)),
        (10, "*", " WHERE f100 = 1", &with_tag, format!(r#"{ones},"a""#)),
        (20, "*", " LIMIT 1", &with_tag, format!(r#"{ones},"a""#)),
        (40, "*", "", &with_tag, format!(r#"{ones},"a""#)),
        (40, "*::field", "", &fields_alone, ones.clone()),
        (40, "/^f/", "", &fields_alone, ones.clone()),
        (40, "*", " GROUP BY *", &fields_alone, ones.clone()),
        (40, "*", " ORDER BY time DESC", &with_tag, format!(r#"{ones},"a""#)),
        (5, selected.as_str(), "", &fields_alone, ones.clone()),
    ] {
        let below = format!("SELECT {fields} FROM (").repeat(levels - 1);
        let above = format!("){clauses}").repeat(levels - 1);
        let answer = run(&server, &format!("{below}SELECT {fields} FROM m{clauses}{above}")).await;
        let what = format!("{levels} levels of {}{clauses}", &fields[..fields.len().min(8)]);
        let start = &answer.text[..answer.text.len().min(400)];
        assert!(answer.text.contains(header.as_str()), "{what}: {start}");
        let row = format!("[[\"1970-01-01T00:00:00.00000001Z\",{values}]]");
        assert!(answer.text.contains(&row), "{what}: {start}");
    }
    let hostile = format!("{}SELECT * FROM m{}", "SELECT * FROM (".repeat(59), ")".repeat(59));
    let sevenfold = format!("SELECT * FROM {}", vec![format!("({hostile})"); 7].join(","));
    let answer = run(&server, &sevenfold).await;
    assert!(answer.text.contains("query memory limit of 6291456 bytes reached"), "{}", answer.text.len());
}
