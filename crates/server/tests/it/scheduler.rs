//! The scheduler of a server on real sockets and files: rounds and continuous queries begin by themselves,
//! and a stop ends them so that the next start goes on.
#![expect(clippy::disallowed_methods, reason = "files of its own, and the time of a wait")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use chronolith_base::{Clock as _, Env, SystemClock};
use chronolith_server::{Server, ServerOptions};
use serde_json::Value;

/// Longer than anything takes, so that a hang fails instead of hanging the run.
const WAIT: Duration = Duration::from_secs(60);

const RULES: &str = "groups: [{name: g, interval: 1s, rules: [{record: r, expr: vector(1)}]}]";

fn start(dir: &Path) -> Server {
    let mut options = ServerOptions::new(dir.join("data"));
    options.listen = "127.0.0.1:0".to_owned();
    options.self_scrape_interval_ms = 0;
    options.service.rules.files = vec![dir.join("rules.yml")];
    let server = Server::start(Env::real(), options, None).expect("starts");
    server.wait_ready().expect("opens");
    server
}

/// Sends one request, of a version whose answers have no chunks; returns the body.
fn ask(address: SocketAddr, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(WAIT)).expect("timeout");
    let length = body.len();
    let close = "Host: x\r\nConnection: close";
    write!(stream, "{head} HTTP/1.0\r\n{close}\r\nContent-Length: {length}\r\n\r\n{body}").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a body")
}

/// Value of a metric without labels, or of its first series.
fn metric(address: SocketAddr, name: &str) -> f64 {
    let text = ask(address, "GET /metrics", "");
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

#[track_caller]
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < WAIT, "{what}: not within {WAIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Times of the samples of `r` of the last minutes, in seconds.
fn times_s(address: SocketAddr) -> Vec<i64> {
    let answer = ask(address, "GET /api/v1/query?query=r[10m]", "");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let values = answer["data"]["result"][0]["values"].as_array().cloned().unwrap_or_default();
    values.iter().map(|point| point[0].as_f64().expect("a time").floor() as i64).collect()
}

/// Covers a scheduler that does not start, a stop that loses the state of a round, and a round after the stop
/// that the next start would repeat with another value.
#[test]
fn rounds_and_continuous_queries_begin_by_themselves_and_go_on_after_a_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("rules.yml"), RULES).expect("written");
    let server = start(dir.path());
    let address = server.address();
    ask(address, "POST /query?q=CREATE%20DATABASE%20db", "");
    let create = "CREATE%20CONTINUOUS%20QUERY%20q%20ON%20db%20BEGIN%20SELECT%20sum(v)%20INTO%20sums%20FROM%20m\
                  %20GROUP%20BY%20time(1s)%20END";
    let created = ask(address, &format!("POST /query?db=db&q={create}"), "");
    assert_eq!(created.trim(), r#"{"results":[{"statement_id":0}]}"#);
    wait("rounds", || metric(address, "chronolith_rule_group_iterations_total") >= 2.0);
    wait("runs of the continuous query", || metric(address, "chronolith_continuous_query_runs_total") >= 2.0);
    server.stop().expect("stops");
    let stopped_s = SystemClock::new().now_ms() / 1000;
    let server = start(dir.path());
    let address = server.address();
    wait("rounds after the start", || times_s(address).last().is_some_and(|last_s| *last_s > stopped_s));
    let times = times_s(address);
    // Rounds that a busy machine misses while the server runs are no rounds of the outage.
    let after = times.partition_point(|time_s| *time_s <= stopped_s);
    assert!(after > 0 && times[after] - times[after - 1] == 1, "a round is missing: {times:?}");
    assert_eq!(metric(address, "chronolith_rule_rejected_samples_total"), 0.0);
    assert_eq!(metric(address, "chronolith_continuous_query_failures_total"), 0.0);
    server.stop().expect("stops");
}
