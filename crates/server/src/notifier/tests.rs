//! Notifications to listeners on loopback: healthy, hanging, down, hostile, with TLS; reloads and stops.
#![expect(clippy::disallowed_methods, reason = "files of a test, and the time that a request takes")]

mod fake;
mod reload;
mod tls;

use std::sync::atomic::Ordering;
use std::time::Instant;

use chronolith_rules::notifier::AlertEnd;

use super::*;
use crate::exposition::text::{self, TextFormat};
use fake::{Answer, Fake, WAIT};

/// A notifier with its files.
struct Fixture {
    notifier: Notifier,
    env: Env,
    dir: tempfile::TempDir,
}

impl Fixture {
    /// A notifier with this configuration, on the runtime of the test.
    fn start(config: &str) -> Fixture {
        let fixture = Fixture::stopped(config);
        fixture.notifier.start(Handle::current());
        assert_eq!(fixture.notifier.read(&fixture.env), Ok(true));
        fixture
    }

    fn stopped(config: &str) -> Fixture {
        let dir = tempfile::tempdir().expect("a directory");
        let env = Env::real();
        let options = NotifierOptions {
            config_file: Some(dir.path().join("alerting.yml")),
            external_labels: Labels::from_pairs([("replica", "a")]),
        };
        let fixture = Fixture { notifier: Notifier::new(options, env.clock.clone()), env, dir };
        fixture.put("alerting.yml", config);
        fixture
    }

    fn put(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).expect("written");
    }

    fn read(&self) -> Result<bool, String> {
        self.notifier.read(&self.env)
    }

    fn send(&self, names: &[&str]) {
        let alerts: Vec<Arc<Alert>> = names.iter().map(|name| alert(name)).collect();
        self.notifier.send(&alerts);
    }

    /// Waits until the alerts of a URL are sent, errors and dropped as `done` says.
    async fn wait_counts(&self, fake: &Fake, done: impl Fn(u64, u64, u64) -> bool) {
        let url = format!("://{}/", fake.address);
        let wait = async {
            loop {
                let senders = self.notifier.senders();
                let found = senders.iter().find(|(known, _)| known.contains(&url)).expect("its sender");
                let counts = found.1.first().expect("a sender").counts();
                if done(counts.sent, counts.errors, counts.dropped) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(WAIT, wait).await.expect("counts in time");
    }
}

fn alert(name: &str) -> Arc<Alert> {
    Arc::new(Alert {
        labels: Labels::from_pairs([("alertname", name)]),
        annotations: Labels::from_pairs([("summary", "s")]),
        starts_at_ms: 0,
        end: AlertEnd::ValidUntilMs(240_000),
        generator_url: "http://g".to_owned(),
    })
}

/// A configuration with a set per fake and further lines for each.
fn config(fakes: &[(&Fake, &str)]) -> String {
    let mut text = "alerting:\n  alertmanagers:\n".to_owned();
    for (fake, lines) in fakes {
        text.push_str(&format!("  - static_configs: [{{targets: ['{}']}}]\n", fake.address));
        lines.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

const OK: Answer = Answer::Status("200 OK", "");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_are_posted_with_path_login_and_headers() {
    let fake = Fake::start(OK).await;
    let lines = "path_prefix: /am\nbasic_auth: {username: user, password_file: password}\nhttp_headers: {X-Scope: \
                 {values: [a], secrets: [b]}}\nalert_relabel_configs: [{target_label: via, replacement: x}]";
    let fixture = Fixture::stopped(&config(&[(&fake, lines)]));
    fixture.put("password", "secret\n");
    fixture.notifier.start(Handle::current());
    assert_eq!(fixture.read(), Ok(true));
    fixture.send(&["up"]);
    let received = fake.wait_for(1).await;
    let head = received[0].head.to_ascii_lowercase();
    assert!(received[0].head.starts_with("POST /am/api/v2/alerts HTTP/1.1\r\n"), "{head}");
    for line in [
        "content-type: application/json",
        &format!("user-agent: chronolith/{}", crate::version::VERSION),
        &format!("host: {}", fake.address),
        "x-scope: a",
        "x-scope: b",
    ] {
        assert!(head.lines().any(|have| have == line), "{line}: {head}");
    }
    assert!(received[0].head.contains("Basic dXNlcjpzZWNyZXQ="), "user:secret");
    assert_eq!(
        received[0].body,
        "[{\"annotations\":{\"summary\":\"s\"},\"endsAt\":\"1970-01-01T00:04:00.000Z\",\"startsAt\":\"1970-01-01T00:00:\
         00.000Z\",\"generatorURL\":\"http://g\",\"labels\":{\"alertname\":\"up\",\"replica\":\"a\",\"via\":\"x\"}}]"
    );
    fixture.wait_counts(&fake, |sent, errors, dropped| (sent, errors, dropped) == (1, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_hangs_or_is_down_delays_no_other() {
    let healthy = Fake::start(OK).await;
    let hanging = Fake::start(Answer::Nothing).await;
    let down = std::net::TcpListener::bind("127.0.0.1:0").expect("listens").local_addr().expect("address");
    let mut text = config(&[(&hanging, ""), (&healthy, "")]);
    text.push_str(&format!("  - static_configs: [{{targets: ['{down}']}}]\n"));
    let fixture = Fixture::start(&text);
    for round in 1..=5 {
        let started = Instant::now();
        fixture.send(&[&format!("a{round}")]);
        healthy.wait_for(round).await;
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
    // An Alertmanager that was down gets everything once it is up.
    let late = Fake::listen(&down.to_string(), OK, None).await;
    late.wait_for(1).await;
    fixture.wait_counts(&late, |sent, _, dropped| (sent, dropped) == (5, 0)).await;
    assert_eq!(late.alert_count(), 5);
    assert_eq!(hanging.received().len(), 1, "its request goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_alerts_are_dropped_and_errors_are_tried_again() {
    let refusing = Fake::start(Answer::Status("400 Bad Request", "bad labels")).await;
    let broken = Fake::start(Answer::Status("503 Service Unavailable", "")).await;
    let fixture = Fixture::start(&config(&[(&refusing, ""), (&broken, "")]));
    fixture.send(&["a", "b"]);
    fixture.wait_counts(&refusing, |sent, errors, dropped| (sent, errors, dropped) == (0, 2, 2)).await;
    fixture.wait_counts(&broken, |_, errors, dropped| errors == 4 && dropped == 0).await;
    broken.set_answer(OK);
    fixture.wait_counts(&broken, |sent, _, dropped| (sent, dropped) == (2, 0)).await;
    assert_eq!(refusing.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_failures_and_not_followed() {
    let target = Fake::start(OK).await;
    let redirecting = Fake::start(Answer::Redirect(format!("http://{}/api/v2/alerts", target.address))).await;
    let fixture = Fixture::start(&config(&[(&redirecting, "")]));
    fixture.send(&["a"]);
    fixture.wait_counts(&redirecting, |sent, errors, dropped| (sent, errors, dropped) == (0, 1, 1)).await;
    assert_eq!(target.received().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_large_responses_are_bounded() {
    let slow_head = Fake::start(Answer::SlowHead).await;
    let slow_body = Fake::start(Answer::SlowBody).await;
    let large = Fake::start(Answer::Gigabyte).await;
    let headers = Fake::start(Answer::EndlessHeaders).await;
    let fakes = [(&slow_head, "timeout: 300ms"), (&slow_body, ""), (&large, ""), (&headers, "")];
    let fixture = Fixture::start(&config(&fakes));
    fixture.send(&["a"]);
    fixture.wait_counts(&slow_head, |sent, errors, _| sent == 0 && errors >= 2).await;
    // The status is the answer; its body is read for a second, and up to 64 KiB.
    fixture.wait_counts(&slow_body, |sent, _, _| sent == 1).await;
    fixture.wait_counts(&large, |sent, _, _| sent == 1).await;
    fixture.wait_counts(&headers, |sent, errors, _| sent == 0 && errors >= 1).await;
    // Socket buffers of loopback take some megabytes.
    let taken = large.sent_bytes.load(Ordering::Relaxed) + headers.sent_bytes.load(Ordering::Relaxed);
    assert!(taken < 64 << 20, "{taken} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_sends_what_waits_and_gives_up_what_hangs() {
    let slow = Fake::start(Answer::Status("503 Service Unavailable", "")).await;
    let hanging = Fake::start(Answer::Nothing).await;
    let fixture = Fixture::start(&config(&[(&slow, ""), (&hanging, "")]));
    fixture.send(&["a"]);
    fixture.wait_counts(&slow, |_, errors, _| errors >= 1).await;
    hanging.wait_for(1).await;
    fixture.send(&["b"]);
    slow.set_answer(OK);
    let started = Instant::now();
    fixture.notifier.stop(Duration::from_millis(500)).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    fixture.wait_counts(&slow, |sent, _, dropped| (sent, dropped) == (2, 0)).await;
    fixture.wait_counts(&hanging, |sent, _, dropped| (sent, dropped) == (0, 1)).await;
    fixture.send(&["late"]);
    assert_eq!(
        fixture.notifier.senders().values().flatten().map(|sender| sender.queue_len()).sum::<usize>(),
        0
    );
    fixture.notifier.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_the_names_of_prometheus() {
    let fake = Fake::start(OK).await;
    let fixture = Fixture::start(&config(&[(&fake, "")]));
    fixture.send(&["a"]);
    fixture.wait_counts(&fake, |sent, _, _| sent == 1).await;
    let mut families = Vec::new();
    chronolith_service::metrics::definition::collect(
        crate::metrics::notifier::NOTIFIER,
        &fixture.notifier,
        &mut families,
    );
    let mut out = Vec::new();
    text::write(&families, TextFormat::negotiate(""), &mut out);
    let text = String::from_utf8(out).expect("UTF-8");
    let url = format!("{{alertmanager=\"http://{}/api/v2/alerts\"}}", fake.address);
    for line in [
        format!("chronolith_notifications_sent_total{url} 1"),
        format!("chronolith_notifications_errors_total{url} 0"),
        format!("chronolith_notifications_dropped_total{url} 0"),
        format!("chronolith_notifications_queue_length{url} 0"),
        format!("chronolith_notifications_latency_seconds_count{url} 1"),
        "chronolith_notifications_queue_capacity 10000".to_owned(),
        "chronolith_notifications_alertmanagers_discovered 1".to_owned(),
        "chronolith_notifications_config_last_read_successful 1".to_owned(),
        "chronolith_notifications_target_files_failed 0".to_owned(),
    ] {
        assert!(text.lines().any(|have| have == line), "{line}\n{text}");
    }
}
