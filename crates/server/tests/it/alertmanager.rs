//! Notifications to real Alertmanagers (`kits/alertmanager`): plain, with TLS and basic auth, hanging, down.
#![expect(
    clippy::disallowed_methods,
    reason = "processes with files of their own, and the time of a request"
)]

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chronolith_base::{Clock as _, Env, SystemClock};
use chronolith_model::Labels;
use chronolith_rules::notifier::{Alert, AlertEnd};
use chronolith_server::{Server, ServerOptions};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;

/// Longer than anything takes, so that a hang fails instead of hanging the run.
const WAIT: Duration = Duration::from_secs(30);

/// A running Alertmanager.
struct Alertmanager {
    process: Child,
    url: String,
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("listens").local_addr().expect("an address")
}

impl Alertmanager {
    fn start(dir: &Path, address: SocketAddr, web_config: Option<&Path>) -> Alertmanager {
        let data = dir.join(address.port().to_string());
        std::fs::create_dir_all(&data).expect("a directory");
        let config = data.join("am.yml");
        let text =
            "route: {receiver: none, group_by: [alertname], group_wait: 1s}\nreceivers: [{name: none}]\n";
        std::fs::write(&config, text).expect("written");
        let binary = std::env::var("ALERTMANAGER").expect("the path of a binary in ALERTMANAGER");
        let mut command = Command::new(binary);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.path={}", data.display()));
        command.arg(format!("--web.listen-address={address}"));
        command.arg("--cluster.listen-address=");
        if let Some(file) = web_config {
            command.arg(format!("--web.config.file={}", file.display()));
        }
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        let scheme = if web_config.is_some() { "https" } else { "http" };
        let started = Alertmanager { process, url: format!("{scheme}://{address}") };
        wait("the Alertmanager answers", || started.get("status").is_some());
        started
    }

    /// The JSON of a path of the API.
    fn get(&self, path: &str) -> Option<Value> {
        let url = format!("{}/api/v2/{path}", self.url);
        let output = Command::new("curl").args(["-sfk", "-u", "alice:secret", &url]).output().expect("curl");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Names of the alerts that fire, ascending.
    fn firing(&self) -> Vec<String> {
        let alerts = self.get("alerts?active=true").unwrap_or_default();
        let names = alerts.as_array().into_iter().flatten();
        let mut names: Vec<String> =
            names.filter_map(|alert| Some(alert["labels"]["alertname"].as_str()?.to_owned())).collect();
        names.sort();
        names
    }
}

#[track_caller]
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < WAIT, "{what}: not within {WAIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn alert(name: &str, instance: &str, end: AlertEnd) -> Arc<Alert> {
    Arc::new(Alert {
        labels: Labels::from_pairs([("alertname", name), ("instance", instance)]),
        annotations: Labels::from_pairs([("summary", "<b>&\u{2028}é")]),
        starts_at_ms: SystemClock::new().now_ms() - 60_000,
        end,
        generator_url: "http://c:9595/graph?g0.expr=up&g0.tab=1".to_owned(),
    })
}

/// Writes a web configuration with TLS and the user alice, whose password is "secret".
fn put_web_config(dir: &Path) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("signed").pem();
    let hash = bcrypt::hash_with_salt("secret", 4, *b"0123456789abcdef").expect("hashed");
    let hash = hash.format_for_version(bcrypt::Version::TwoY);
    std::fs::write(dir.join("am.crt"), certificate).expect("written");
    std::fs::write(dir.join("am.key"), key.serialize_pem()).expect("written");
    let text = format!(
        "tls_server_config: {{cert_file: am.crt, key_file: am.key}}\nbasic_auth_users: {{alice: {hash}}}\n"
    );
    std::fs::write(dir.join("web.yml"), text).expect("written");
    std::fs::write(dir.join("password"), "secret\n").expect("written");
}

fn start_server(dir: &Path, config: &str) -> Server {
    std::fs::write(dir.join("alerting.yml"), config).expect("written");
    let mut options = ServerOptions::new(dir.join("data"));
    options.listen = "127.0.0.1:0".to_owned();
    options.self_scrape_interval_ms = 0;
    options.notifier.config_file = Some(dir.join("alerting.yml"));
    let server = Server::start(Env::real(), options, None).expect("starts");
    server.wait_ready().expect("opens");
    server
}

/// Alerts got lost where one Alertmanager of several was down for minutes.
#[test]
#[ignore = "needs the path of an Alertmanager: kits/alertmanager/run.sh"]
fn real_alertmanagers_get_each_alert_in_time() {
    let dir = tempfile::tempdir().expect("a directory");
    put_web_config(dir.path());
    let plain = Alertmanager::start(dir.path(), free_address(), None);
    let encrypted = Alertmanager::start(dir.path(), free_address(), Some(&dir.path().join("web.yml")));
    // Connections are accepted by the kernel, and nothing answers.
    let hanging = TcpListener::bind("127.0.0.1:0").expect("listens");
    let down = free_address();
    let target = |url: &str| url.split_once("://").expect("a URL").1.to_owned();
    let config = format!(
        "alerting:\n  alertmanagers:\n  - static_configs: [{{targets: ['{}', '{}', '{down}']}}]\n  - scheme: https\n    \
         tls_config: {{ca_file: am.crt}}\n    basic_auth: {{username: alice, password_file: password}}\n    \
         static_configs: [{{targets: ['{}']}}]\n",
        target(&plain.url),
        hanging.local_addr().expect("an address"),
        target(&encrypted.url)
    );
    let server = start_server(dir.path(), &config);
    let until = AlertEnd::ValidUntilMs(SystemClock::new().now_ms() + 3_600_000);
    let alerts = [alert("Down", "a", until), alert("Down", "b", until), alert("Slow", "a", until)];
    let started = Instant::now();
    server.send_alerts(&alerts);
    wait("all alerts fire", || plain.firing() == ["Down", "Down", "Slow"]);
    let delay = started.elapsed();
    println!("delay of the healthy one beside one that hangs and one that is down: {delay:?}");
    assert!(delay < Duration::from_secs(1), "{delay:?}");
    wait("TLS and basic auth", || encrypted.firing() == ["Down", "Down", "Slow"]);
    wait("two groups", || {
        let groups = plain.get("alerts/groups").unwrap_or_default();
        let mut sizes: Vec<usize> = groups
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|group| Some(group["alerts"].as_array()?.len()))
            .collect();
        sizes.sort_unstable();
        sizes == [1, 2]
    });
    let shown = plain.get("alerts").expect("alerts");
    assert_eq!(shown[0]["annotations"]["summary"], "<b>&\u{2028}é");
    let resolved =
        Alert { end: AlertEnd::ResolvedAtMs(SystemClock::new().now_ms()), ..Alert::clone(&alerts[2]) };
    server.send_alerts(&[Arc::new(resolved)]);
    wait("one is resolved", || plain.firing() == ["Down", "Down"] && encrypted.firing() == ["Down", "Down"]);

    let down_seconds = std::env::var("DOWN_SECONDS").map_or(10, |text| text.parse().expect("seconds"));
    let started = Instant::now();
    let mut count = 3;
    while started.elapsed() < Duration::from_secs(down_seconds) {
        server.send_alerts(&[alert("Late", &count.to_string(), until)]);
        count += 1;
        std::thread::sleep(Duration::from_secs(1));
    }
    let late = Alertmanager::start(dir.path(), down, None);
    let started = Instant::now();
    // All but the alert that has been resolved.
    wait("the one that was down has all alerts", || late.firing().len() == count - 1);
    println!(
        "alerts of the one that was down for {down_seconds} s: {} after {:?}",
        count - 1,
        started.elapsed()
    );
    let started = Instant::now();
    server.stop().expect("stops");
    println!("stop with one that hangs: {:?}", started.elapsed());
}
