//! Start, stop, kill, second process: what an operator does to the binary.

use crate::harness::{SeriesToSend, Server, encode_request, now_ms, temp_dir};

const NO_SCRAPE: [&str; 2] = ["--self-scrape", "off"];

fn counter(value: f64, time_ms: i64) -> Vec<(i64, f64)> {
    vec![(time_ms, value)]
}

#[test]
fn samples_survive_a_kill_and_a_graceful_stop() {
    let dir = temp_dir();
    let now = now_ms();
    let labels = [("__name__", "kept"), ("a", "b")];
    let mut server = Server::start(dir.path(), &NO_SCRAPE);
    let samples = counter(1.0, now - 2000);
    assert_eq!(server.write(&[SeriesToSend { labels: &labels, samples: &samples }]).status, 204);
    server.kill();

    let mut server = Server::start(dir.path(), &NO_SCRAPE);
    let samples = counter(2.0, now - 1000);
    assert_eq!(server.write(&[SeriesToSend { labels: &labels, samples: &samples }]).status, 204);
    assert_eq!(server.stop(), Some(0), "SIGTERM ends with exit code 0");

    let server = Server::start(dir.path(), &NO_SCRAPE);
    let at = now as f64 / 1000.0;
    assert_eq!(server.query_value("sum_over_time(kept[1m])", at), Some(3.0));
    assert_eq!(server.query_value("count_over_time(kept[1m])", at), Some(2.0));
}

/// Readiness was never withdrawn before the listener closed, and every signal after the first was ignored.
#[test]
fn a_stop_first_withdraws_readiness_and_a_second_signal_ends_it_without_loss() {
    let dir = temp_dir();
    let now = now_ms();
    let flags = ["--self-scrape", "off", "--shutdown-delay", "20s"];
    let mut server = Server::start(dir.path(), &flags);
    server.signal();
    let unready = || server.request("GET", "/-/ready", &[], b"");
    while unready().status == 200 {
        std::thread::yield_now();
    }
    assert!(unready().text().contains("shutting down"), "{}", unready().text());
    let samples = counter(1.0, now);
    let written = server.write(&[SeriesToSend { labels: &[("__name__", "kept")], samples: &samples }]);
    assert_eq!(written.status, 204, "requests are still answered: {}", written.text());
    // Signals that come with the first one do not count.
    while server.child.try_wait().expect("a state").is_none() {
        server.signal();
        std::thread::yield_now();
    }
    let code = server.child.wait().expect("wait").code();
    assert_eq!(code, Some(1), "cut short: a stop that waits for the delay ends with 0");

    let server = Server::start(dir.path(), &NO_SCRAPE);
    assert_eq!(server.query_value("kept", now as f64 / 1000.0), Some(1.0));
}

#[test]
fn a_second_process_cannot_use_the_directory() {
    let dir = temp_dir();
    let _first = Server::start(dir.path(), &NO_SCRAPE);
    let mut second = Server::launch(dir.path(), &NO_SCRAPE);
    let code = second.child.wait().expect("wait").code();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut second.child.stderr.take().expect("stderr"), &mut said).expect("text");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another process"), "says why: {said}");
}

#[test]
fn good_samples_beside_bad_ones_are_stored_and_the_first_bad_one_is_named() {
    let dir = temp_dir();
    let server = Server::start(dir.path(), &NO_SCRAPE);
    let now = now_ms();
    let good = counter(5.0, now);
    let bad = [("a", "no name")];
    let answer = server.write(&[
        SeriesToSend { labels: &[("__name__", "good")], samples: &good },
        SeriesToSend { labels: &bad, samples: &good },
    ]);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("no name") && answer.text().contains("metric name"), "{}", answer.text());
    assert_eq!(server.query_value("good", now as f64 / 1000.0), Some(5.0));
}

#[test]
fn tenants_never_see_each_other() {
    let dir = temp_dir();
    let server = Server::start(dir.path(), &["--multitenancy", "--self-scrape", "off"]);
    let now = now_ms();
    for (tenant, value) in [("a", 1.0), ("b", 2.0)] {
        let samples = counter(value, now);
        let series = [SeriesToSend { labels: &[("__name__", "same")], samples: &samples }];
        let body = encode_request(&series);
        let id = format!("X-Scope-OrgID: {tenant}");
        let headers = ["Content-Type: application/x-protobuf", "Content-Encoding: snappy", &*id];
        assert_eq!(server.request("POST", "/api/v1/push", &headers, &body).status, 204);
    }
    let path = format!("/api/v1/query?query=same&time={}", now as f64 / 1000.0);
    for (tenant, value) in [("a", "\"1\""), ("b", "\"2\"")] {
        let text = server.request("GET", &path, &[&format!("X-Scope-OrgID: {tenant}")], b"").text();
        assert!(text.contains(value) && text.matches("__name__").count() == 1, "{tenant}: {text}");
    }
    assert_eq!(server.request("GET", &path, &[], b"").status, 401);
    for bad in ["../a", "a/b", "..", ""] {
        let status = server.request("GET", &path, &[&format!("X-Scope-OrgID: {bad}")], b"").status;
        assert!(status == 400 || status == 401, "{bad:?}: {status}");
    }
}
