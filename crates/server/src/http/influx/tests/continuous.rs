//! Continuous queries: due windows, windows that late points touch, restarts.

use std::sync::Arc;

use super::*;
use crate::web::Web;
use chronolith_service::evaluation::influxql::continuous;

/// End of the last whole minute, in seconds.
const MINUTE_S: i64 = NOW_MS / 1000 / 60 * 60;

fn pass(server: &Fixture) {
    let store = server.web.service.lifecycle.store().expect("open").clone();
    continuous::run(&server.web.service, &store);
}

fn runs(server: &Fixture) -> u64 {
    server.web.service.influx.continuous_runs.as_f64() as u64
}

async fn write_at(server: &Fixture, time_s: i64, value: u32) {
    let answer = post(server, "/write?db=db&precision=s", &format!("m v={value} {time_s}")).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
}

#[track_caller]
fn check_sums(answer: &Answer, want: &[(i64, u32)]) {
    let values: Vec<String> = want.iter().map(|(time_s, sum)| format!("[{time_s},{sum}]")).collect();
    let series = format!(r#"{{"name":"sums","columns":["time","sum"],"values":[{}]}}"#, values.join(","));
    check_results(answer, &format!(r#"{{"statement_id":0,"series":[{series}]}}"#));
}

async fn sums(server: &Fixture) -> Answer {
    post(server, "/query?db=db&epoch=s&q=SELECT%20sum%20FROM%20sums", "").await
}

const CREATE: &str =
    "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT sum(v) INTO sums FROM m GROUP BY time(1m) END";

#[tokio::test]
async fn late_points_compute_their_windows_again() {
    let server = with_database();
    check_results(&run(&server, CREATE).await, r#"{"statement_id":0}"#);
    write_at(&server, MINUTE_S - 30, 1).await;
    pass(&server);
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 1)]);
    write_at(&server, MINUTE_S - 20, 2).await;
    write_at(&server, MINUTE_S - 150, 5).await;
    pass(&server);
    check_sums(&sums(&server).await, &[(MINUTE_S - 180, 5), (MINUTE_S - 60, 3)]);
}

/// Covers a regression: the points that the query wrote counted as late points of its source, so that it ran
/// every second.
#[tokio::test]
async fn a_query_does_not_run_for_its_own_points() {
    let server = with_database();
    check_results(&run(&server, CREATE).await, r#"{"statement_id":0}"#);
    write_at(&server, MINUTE_S - 30, 1).await;
    (0..5).for_each(|_| pass(&server));
    assert_eq!(runs(&server), 1);
    write_at(&server, MINUTE_S - 30, 4).await;
    (0..5).for_each(|_| pass(&server));
    assert_eq!(runs(&server), 2);
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 4)]);
}

/// Covers a regression: two queries that wrote to the store that they read started each other every second,
/// without an end: each took the points of the other for late points of its source. Points of a continuous
/// query are no reason to run another one, unless it reads their measurement.
#[tokio::test]
async fn queries_of_one_store_do_not_start_each_other() {
    let server = with_database();
    let froms = ["m", "m", "m,m2", "/^m$/", "(SELECT max(v) AS v FROM m GROUP BY time(10s))", "m2"];
    for (idx, from) in froms.iter().enumerate() {
        let create = format!(
            "CREATE CONTINUOUS QUERY q{idx} ON db BEGIN SELECT max(v) INTO r{idx} FROM {from} GROUP BY time(1m), * END"
        );
        check_results(&run(&server, &create).await, r#"{"statement_id":0}"#);
    }
    write_at(&server, MINUTE_S - 30, 1).await;
    (0..10).for_each(|_| pass(&server));
    assert_eq!(runs(&server), 6, "each window once");
    write_at(&server, MINUTE_S - 20 * 3600, 7).await;
    (0..10).for_each(|_| pass(&server));
    assert_eq!(runs(&server), 12, "once more each for the late point");
}

/// Checks that a query that reads the results of another one computes them again after it, and that queries
/// that read each other's results come to an end.
#[tokio::test]
async fn late_points_pass_through_a_chain_of_queries_that_ends() {
    let server = with_database();
    let chain = [
        ("c0", "sum(v) AS v", "sums2", "sums1"),
        ("c1", "sum(v) AS v", "sums1", "m"),
        ("c2", "sum(v) AS sum", "sums", "sums2"),
        ("d0", "max(v) AS v", "ping", "pong"),
        ("d1", "max(v) AS v", "pong", "ping"),
    ];
    for (name, field, to, from) in chain {
        let create = format!(
            "CREATE CONTINUOUS QUERY {name} ON db BEGIN SELECT {field} INTO {to} FROM {from} GROUP BY time(1m) END"
        );
        check_results(&run(&server, &create).await, r#"{"statement_id":0}"#);
    }
    write_at(&server, MINUTE_S - 30, 1).await;
    (0..10).for_each(|_| pass(&server));
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 1)]);
    write_at(&server, MINUTE_S - 150, 5).await;
    (0..10).for_each(|_| pass(&server));
    check_sums(&sums(&server).await, &[(MINUTE_S - 180, 5), (MINUTE_S - 60, 1)]);
    let answer = post(&server, "/write?db=db&precision=s", &format!("ping v=3 {}", MINUTE_S - 30)).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    (0..20).for_each(|_| pass(&server));
    let before = runs(&server);
    (0..20).for_each(|_| pass(&server));
    assert_eq!(runs(&server), before, "no run without new points");
}

/// Covers a regression: a time in the condition of a continuous query stayed in force: a window was computed
/// from the points of its last seconds, and its right result was overwritten. The windows take the place of
/// such times.
#[tokio::test]
async fn windows_take_the_place_of_times_in_the_condition() {
    let conditions = [
        "WHERE time > now() - 5s",
        "WHERE time > now() - 5s AND time < now()",
        "WHERE now() - 5s < time",
        "WHERE v > 0 AND time > now() - 5s",
        "WHERE time > now() - 5s AND v > 0",
        "WHERE (time > now() - 5s) AND (v > 0)",
        "WHERE time >= '2000-01-01T00:00:00Z' AND time < '2000-01-02T00:00:00Z'",
        "WHERE time > now() + 1h",
        "WHERE time = 0",
        "WHERE TIME > now() - 1u",
        "WHERE v > 0 AND (time > now() - 5s AND v < 100)",
        "WHERE v > 0 AND v < 100",
        "",
    ];
    for condition in conditions {
        let server = with_database();
        let create = format!(
            "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT sum(v) INTO sums FROM m {condition} GROUP BY time(1m) END"
        );
        check_results(&run(&server, &create).await, r#"{"statement_id":0}"#);
        for second in [58, 40, 20, 3] {
            write_at(&server, MINUTE_S - second, 1).await;
        }
        (0..3).for_each(|_| pass(&server));
        let got = sums(&server).await;
        assert!(got.text.contains(&format!("[{},4]", MINUTE_S - 60)), "{condition}: {}", got.text);
    }
}

/// Covers a regression: a run over several windows, for late points, wrote rows for the windows between them:
/// 0 for counts and `fill(0)`, the value before for `fill(previous)`. InfluxDB computes one window at a time,
/// which has no row without points; RESAMPLE FOR asks for several.
#[tokio::test]
async fn windows_without_points_have_no_rows_however_many_are_computed_at_once() {
    let cases = [
        ("", "count(v) AS sum", "", false),
        ("", "count(v) AS sum", "fill(0)", false),
        ("", "count(v) AS sum", "fill(previous)", false),
        ("", "count(v) AS sum", "fill(linear)", false),
        ("", "count(v) AS sum", "fill(none)", false),
        ("", "count(v) AS sum", "fill(7)", false),
        ("RESAMPLE EVERY 1m", "count(v) AS sum", "fill(0)", false),
        ("RESAMPLE FOR 1m", "count(v) AS sum", "fill(0)", false),
        ("RESAMPLE FOR 5m", "count(v) AS sum", "fill(none)", false),
        ("RESAMPLE FOR 5m", "count(v) AS sum", "fill(0)", true),
        ("RESAMPLE EVERY 1m FOR 5m", "count(v) AS sum", "", false),
        ("RESAMPLE EVERY 1m FOR 5m", "count(v) AS sum", "fill(0)", true),
    ];
    for (resample, field, fill, has_zero) in cases {
        let server = with_database();
        let create = format!(
            "CREATE CONTINUOUS QUERY q ON db {resample} BEGIN SELECT {field} INTO sums FROM m GROUP BY time(1m) {fill} END"
        );
        check_results(&run(&server, &create).await, r#"{"statement_id":0}"#);
        write_at(&server, MINUTE_S - 30, 1).await;
        pass(&server);
        write_at(&server, MINUTE_S - 150, 5).await;
        pass(&server);
        let got = sums(&server).await.text;
        let row = |seconds: i64, count: u32| format!("[{},{count}]", MINUTE_S - seconds);
        assert!(got.contains(&row(180, 1)) && got.contains(&row(60, 1)), "{resample} {fill}: {got}");
        assert_eq!(got.contains(&format!("[{},", MINUTE_S - 120)), has_zero, "{resample} {fill}: {got}");
    }
}

/// Covers infinite values: a query that failed for one would never come to its next window.
#[tokio::test]
async fn rows_with_an_infinite_value_are_left_out() {
    let server = with_database();
    let create = "CREATE CONTINUOUS QUERY q ON db BEGIN SELECT ln(sum(v)) + 2 AS sum, max(v) AS max INTO sums FROM m \
         GROUP BY time(1m) END";
    check_results(&run(&server, create).await, r#"{"statement_id":0}"#);
    write_at(&server, MINUTE_S - 30, 1).await;
    pass(&server);
    write_at(&server, MINUTE_S - 90, 0).await;
    pass(&server);
    assert_eq!(server.web.service.influx.continuous_failures.as_f64(), 0.0);
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 2)]);
    let written = run(&server, "SELECT count(max) FROM sums").await;
    assert!(written.text.contains(r#""values":[["1970-01-01T00:00:00Z",1]]"#), "{}", written.text);
}

#[tokio::test]
async fn queries_and_their_last_runs_survive_a_restart() {
    let server = with_database();
    check_results(&run(&server, CREATE).await, r#"{"statement_id":0}"#);
    write_at(&server, MINUTE_S - 30, 1).await;
    pass(&server);
    let (env, options) = (server.web.service.env.clone(), server.web.options.clone());
    let store = server.web.service.lifecycle.store().expect("open").clone();
    store.close().expect("closes");
    drop((store, server));
    let server = Fixture::new(Arc::new(Web::new(env, options, None))).open();
    let shown = run(&server, "SHOW CONTINUOUS QUERIES").await;
    assert!(shown.text.contains("SELECT sum(v) INTO db.autogen.sums"), "{}", shown.text);
    pass(&server);
    assert_eq!(runs(&server), 0, "its last window was computed before the restart");
    write_at(&server, MINUTE_S - 20, 2).await;
    pass(&server);
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 3)]);
}

#[tokio::test]
async fn without_a_permit_a_query_stays_due() {
    let server = with_database();
    check_results(&run(&server, CREATE).await, r#"{"statement_id":0}"#);
    write_at(&server, MINUTE_S - 30, 1).await;
    let class = &server.web.service.admission.continuous;
    let tenant = TenantId::anonymous();
    let held: Vec<_> = std::iter::from_fn(|| class.try_acquire(&tenant, 0)).collect();
    pass(&server);
    assert_eq!((runs(&server), class.queue.waiting()), (0, 0));
    drop(held);
    pass(&server);
    assert_eq!((runs(&server), class.queue.running()), (1, 0));
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 1)]);
}

#[tokio::test]
async fn a_run_is_limited_and_listed_as_other_queries_are() {
    let server = Fixture::with(|options| options.service.influx.select_bucket_max = 1).open();
    change(&server, CatalogChange::CreateDatabase { name: "db".to_owned(), policy: None });
    let create = "CREATE CONTINUOUS QUERY q ON db RESAMPLE FOR 10m BEGIN SELECT sum(v) INTO sums FROM m \
         GROUP BY time(1m) END";
    check_results(&run(&server, create).await, r#"{"statement_id":0}"#);
    write_at(&server, MINUTE_S - 30, 1).await;
    pass(&server);
    assert_eq!(server.web.service.influx.continuous_failures.as_f64(), 1.0, "ten windows of one");
    let top = server.get("/api/v1/status/top_queries?sort=count").await;
    assert!(top.text.contains("INTO db.autogen.sums FROM"), "{}", top.text);
    assert!(server.web.service.queries.active.list(None).is_empty(), "it has ended");
    let shown = run(&server, "SHOW QUERIES").await;
    assert!(!shown.text.contains("INTO"), "{}", shown.text);
}
