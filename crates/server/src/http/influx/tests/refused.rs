//! Tests of statements and endpoints that are refused, with the answers of InfluxDB 1.8.

use super::*;

#[tokio::test]
async fn refused_statements_name_what_to_do() {
    let server = with_database();
    let subscriptions = "subscriptions are not supported; send to both with Telegraf";
    let create = "CREATE SUBSCRIPTION s ON db.autogen DESTINATIONS ALL 'udp://h:9090'";
    check_results(&run(&server, create).await, &format!(r#"{{"statement_id":0,"error":"{subscriptions}"}}"#));
    let none = run(&server, "SHOW SUBSCRIPTIONS").await;
    check_results(&none, r#"{"statement_id":0}"#);
    let shard = run(&server, "DROP SHARD 1").await;
    assert_eq!(shard.status, StatusCode::OK);
    let error = shard.json()["results"][0]["error"].as_str().map(str::to_owned);
    assert!(error.is_some_and(|error| error.contains("DROP SHARD")), "{}", shard.text);
    let sql = run(&server, "UPDATE m SET v = 1").await;
    assert_eq!(sql.status, StatusCode::BAD_REQUEST);
    assert!(sql.text.contains("error parsing query: found UPDATE, expected SELECT"), "{}", sql.text);
}

/// Covers a regression: without a database the error named the missing database: InfluxDB refuses the
/// condition first.
#[tokio::test]
async fn a_time_that_a_list_cannot_have_is_refused_before_the_database_is_needed() {
    let server = Fixture::ready();
    for list in ["SHOW MEASUREMENTS", "SHOW TAG KEY EXACT CARDINALITY"] {
        let path = format!("/query?q={} WHERE time %3E 0", list).replace(' ', "%20");
        let want = format!(r#"{{"statement_id":0,"error":"{list} doesn't support time in WHERE clause"}}"#);
        check_results(&post(&server, &path, "").await, &want);
    }
}

#[tokio::test]
async fn flux_is_disabled() {
    let server = with_database();
    let answer = post(&server, "/api/v2/query?org=x", "from(bucket: \"db\")").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert!(answer.text.starts_with("Flux query service disabled. "), "{}", answer.text);
}

#[tokio::test]
async fn values_and_names_that_cannot_be_stored_are_refused() {
    let server = with_database();
    for value in ["NaN", "nan", "inf", "-Inf", "+Inf"] {
        let answer = post(&server, "/write?db=db", &format!("m v={value}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{value}");
        assert!(answer.text.contains("unable to parse 'm v="), "{}", answer.text);
    }
    for tag in ["__name__", "__field__", "__kind__", "time"] {
        let text = format!(
            "partial write: invalid tag key: input tag \"{tag}\" on measurement \"m\" is invalid dropped=1"
        );
        check_error(&post(&server, "/write?db=db", &format!("m,{tag}=x v=1\nm v=1")).await, 400, &text);
    }
    let bytes = Request::post("/write?db=db").body(Body::from(b"m\xff v=1".to_vec())).unwrap();
    let answer = server.send(bytes).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text.contains("invalid UTF-8: byte 0xff at offset 1"), "{}", answer.text);
}

#[tokio::test]
async fn a_database_over_other_protocols_is_read_only() {
    let server =
        Fixture::with(|options| options.service.influx.prometheus_database = Some("prom".to_owned())).open();
    change(&server, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    let own = server.write(&[(&[("__name__", "up"), ("job", "a")], &[(NOW_MS, 1.0)])]).await;
    assert_eq!(own.status, StatusCode::NO_CONTENT);
    let text = "database \"prom\" is read only";
    check_error(&post(&server, "/write?db=prom", "m v=1").await, 403, text);
    let into = run(&server, "SELECT value INTO prom.autogen.x FROM prom..up").await;
    let error = into.json()["results"][0]["error"].as_str().map(str::to_owned);
    assert!(error.is_some_and(|error| error.contains("read only")), "{}", into.text);
    let read = post(&server, "/query?db=prom&epoch=ms&q=SELECT%20value%20FROM%20up", "").await;
    assert!(read.text.contains(&format!("[{NOW_MS},1]")), "{}", read.text);
}
