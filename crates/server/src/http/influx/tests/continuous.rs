//! Continuous queries: due windows, windows that late points touch, restarts.

use std::sync::Arc;

use super::*;
use crate::app::App;
use crate::http::influx::continuous;

/// End of the last whole minute, in seconds.
const MINUTE_S: i64 = NOW_MS / 1000 / 60 * 60;

fn pass(server: &Fixture) {
    let store = server.app.lifecycle.store().expect("open").clone();
    continuous::run(&server.app, &store);
}

fn runs(server: &Fixture) -> u64 {
    server.app.metrics.background.continuous_runs.as_f64() as u64
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

/// The points that the query wrote counted as late points of its source, so that it ran every second.
#[tokio::test]
async fn a_query_does_not_run_for_its_own_points() {
    let server = with_database();
    check_results(&run(&server, CREATE).await, r#"{"statement_id":0}"#);
    write_at(&server, MINUTE_S - 30, 1).await;
    (0..5).for_each(|_| pass(&server));
    assert_eq!(runs(&server), 2, "once, and once more for points that came meanwhile");
    write_at(&server, MINUTE_S - 30, 4).await;
    (0..5).for_each(|_| pass(&server));
    assert_eq!(runs(&server), 4);
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 4)]);
}

/// A query that failed for an infinite value would never come to its next window.
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
    assert_eq!(server.app.metrics.background.continuous_failures.as_f64(), 0.0);
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
    let (env, options) = (server.app.env.clone(), server.app.options.clone());
    let store = server.app.lifecycle.store().expect("open").clone();
    store.close().expect("closes");
    drop((store, server));
    let server = Fixture { app: Arc::new(App::new(env, options, None)) }.open();
    let shown = run(&server, "SHOW CONTINUOUS QUERIES").await;
    assert!(shown.text.contains("SELECT sum(v) INTO db.autogen.sums"), "{}", shown.text);
    pass(&server);
    assert_eq!(runs(&server), 0, "its last window was computed before the restart");
    write_at(&server, MINUTE_S - 20, 2).await;
    pass(&server);
    check_sums(&sums(&server).await, &[(MINUTE_S - 60, 3)]);
}
