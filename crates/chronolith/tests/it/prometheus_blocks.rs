//! Blocks that Prometheus wrote answer queries here as they do there, and promtool reads ours.
#![expect(clippy::disallowed_methods, reason = "starts Debian's prometheus on real files")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{SeriesToSend, Server, free_port, now_ms, percent, temp_dir};

/// Start of the data, aligned to two hours.
const START_S: i64 = 1_700_006_400;
const STEP_S: i64 = 15;
const SAMPLE_COUNT: i64 = 1000;

/// Queries whose meaning is the same in Prometheus 2.42 and 3: none touches a sample exactly at a range's
/// start.
const QUERIES: [&str; 22] = [
    "c_total",
    "rate(c_total[5m])",
    "increase(c_total{job=\"a\"}[1h])",
    "irate(c_total[2m])",
    "sum by (job) (rate(c_total[5m]))",
    "avg without (i) (g)",
    "g > 3",
    "g - on(i, job) group_right c_total * 0",
    "max_over_time(g[10m]) - min_over_time(g[10m])",
    "quantile_over_time(0.9, g[30m])",
    "stddev_over_time(g[20m])",
    "deriv(g[10m])",
    "predict_linear(g[10m], 600)",
    "topk(2, g)",
    "quantile(0.5, g)",
    "count_values(\"v\", round(g))",
    "histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))",
    "label_replace(g, \"x\", \"$1-y\", \"i\", \"(.*)\")",
    "c_total offset 7m",
    "max_over_time(rate(c_total[5m])[20m:1m])",
    "absent(nothing{a=\"b\"})",
    "{__name__=~\"c_.*|g\", i=~\"[12]\"} and on(i) g",
];

fn open_metrics() -> String {
    let mut text = String::new();
    let mut seed = 1u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / f64::from(1u32 << 31)
    };
    let mut series = |head: &str, mut next: Box<dyn FnMut(f64) -> f64>, out: &mut String| {
        for k in 0..SAMPLE_COUNT {
            let value = next(random());
            // A second off the grid, so that no sample lies at the start of a range or a subquery's step.
            out.push_str(&format!("{head} {value} {}\n", START_S + 1 + k * STEP_S));
        }
    };
    text.push_str("# TYPE c counter\n");
    for (job, i) in [("a", 0), ("a", 1), ("b", 2), ("ü", 3)] {
        let mut sum = 0.0;
        let reset = move |r: f64| {
            sum = if r > 0.995 { 0.0 } else { sum + (r * 10.0).floor() };
            sum
        };
        series(&format!("c_total{{job=\"{job}\",i=\"{i}\"}}"), Box::new(reset), &mut text);
    }
    text.push_str("# TYPE g gauge\n");
    for i in 0..4 {
        let walk = move |r: f64| ((r * 1000.0).round() / 100.0) - f64::from(i);
        series(&format!("g{{job=\"a\",i=\"{i}\"}}"), Box::new(walk), &mut text);
    }
    text.push_str("# TYPE h histogram\n");
    for (place, le) in ["0.1", "1.0", "+Inf"].into_iter().enumerate() {
        let mut sum = 0.0;
        let grow = move |_: f64| {
            sum += (place + 1) as f64;
            sum
        };
        series(&format!("h_bucket{{le=\"{le}\"}}"), Box::new(grow), &mut text);
    }
    text.push_str("# EOF\n");
    text
}

pub(crate) struct Prometheus {
    child: Child,
    pub(crate) port: u16,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Prometheus on the blocks in `prom` below `dir`.
pub(crate) fn start_prometheus(dir: &Path, flags: &[&str]) -> Prometheus {
    let port = free_port();
    let config = dir.join("prometheus.yml");
    std::fs::write(&config, "global: {scrape_interval: 1h}\n").expect("config");
    let child = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("prom").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus starts");
    Prometheus { child, port }
}

/// Waits until a Prometheus on `port` has opened its blocks.
pub(crate) fn wait_for_port(port: u16) {
    let end = Instant::now() + Duration::from_secs(30);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "prometheus does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
}

pub(crate) fn ask(port: u16, path: &str) -> serde_json::Value {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connect");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").expect("request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answer");
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let mut answer: serde_json::Value =
        serde_json::from_str(body).unwrap_or_else(|e| panic!("{path}: {e}: {text}"));
    assert_eq!(answer["status"], "success", "{path}: {answer}");
    answer["data"]["result"].take()
}

/// Series by their labels, each with its values.
fn by_labels(result: &serde_json::Value) -> Vec<(String, Vec<(f64, f64)>)> {
    let number = |v: &serde_json::Value| match v.as_str() {
        Some("+Inf") => f64::INFINITY,
        Some("-Inf") => f64::NEG_INFINITY,
        Some(text) => text.parse().unwrap_or(f64::NAN),
        None => v.as_f64().unwrap_or(f64::NAN),
    };
    let pair = |p: &serde_json::Value| (number(&p[0]), number(&p[1]));
    let one = |series: &serde_json::Value| {
        let values = match series["values"].as_array() {
            Some(values) => values.iter().map(pair).collect(),
            None => vec![pair(&series["value"])],
        };
        (series["metric"].to_string(), values)
    };
    let mut all: Vec<_> = result.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(one).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

pub(crate) fn assert_equal(query: &str, ours: &serde_json::Value, theirs: &serde_json::Value) {
    let (ours, theirs) = (by_labels(ours), by_labels(theirs));
    assert_eq!(
        ours.iter().map(|s| &s.0).collect::<Vec<_>>(),
        theirs.iter().map(|s| &s.0).collect::<Vec<_>>(),
        "{query}"
    );
    for ((labels, a), (_, b)) in ours.iter().zip(&theirs) {
        assert_eq!(a.len(), b.len(), "{query} {labels}");
        for (x, y) in a.iter().zip(b) {
            let close = x.1 == y.1
                || (x.1.is_nan() && y.1.is_nan())
                || (x.1 - y.1).abs() <= 1e-9 * y.1.abs().max(1e-9);
            assert!(x.0 == y.0 && close, "{query} {labels}: {x:?} here, {y:?} there");
        }
    }
}

#[test]
fn blocks_of_prometheus_answer_as_there() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("NOT RUN: promtool and prometheus are missing (apt-get install prometheus)");
        return;
    }
    let dir = temp_dir();
    let text = dir.path().join("in.om");
    std::fs::write(&text, open_metrics()).expect("text");
    let prom = dir.path().join("prom");
    let made = Command::new("promtool")
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .arg(&text)
        .arg(&prom)
        .output()
        .expect("promtool");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let tenant = dir.path().join("ours/tenants/anonymous");
    std::fs::create_dir_all(tenant.parent().expect("parent")).expect("directory");
    let copied = Command::new("cp").arg("-r").arg(&prom).arg(&tenant).status().expect("cp");
    assert!(copied.success());

    let theirs = start_prometheus(dir.path(), &[]);
    let ours = Server::start(&dir.path().join("ours"), &["--self-scrape", "off"]);
    wait_for_port(theirs.port);
    let (from, to) = (START_S + 3600 + 7, START_S + 12_000 + 7);
    for query in QUERIES {
        let instant = format!("/api/v1/query?query={}&time={}", percent(query), START_S + 9_007);
        assert_equal(query, &ask(ours.port, &instant), &ask(theirs.port, &instant));
        let range = format!("/api/v1/query_range?query={}&start={from}&end={to}&step=60", percent(query));
        assert_equal(query, &ask(ours.port, &range), &ask(theirs.port, &range));
    }
    let selector = percent("{__name__=~\".+\"}");
    let all = format!("/api/v1/query?query={selector}%5B5h%5D&time={}", START_S + SAMPLE_COUNT * STEP_S + 2);
    assert_equal("every sample", &ask(ours.port, &all), &ask(theirs.port, &all));
}

pub(crate) fn promtool(args: &[&str], dir: &Path) -> String {
    let out = Command::new("promtool").args(args).arg(dir).output().expect("promtool");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn promtool_dumps_what_was_sent() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("NOT RUN: promtool is missing (apt-get install prometheus)");
        return;
    }
    let dir = temp_dir();
    let flags = ["--self-scrape", "off", "--block-encoding", "prometheus", "--flush-delay"];
    let with_delay = |delay| -> Vec<&str> { flags.iter().copied().chain([delay]).collect() };
    // The window stays in memory until all of it is sent, however busy the machine is.
    let mut server = Server::start(dir.path(), &with_delay("24h"));
    let window_ms = 7_200_000;
    let start = now_ms() / window_ms * window_ms - 3 * window_ms;
    let mut want = Vec::new();
    let mut sent: Vec<(String, Vec<(i64, f64)>)> = Vec::new();
    for i in 0..40i64 {
        // Odd series come back to front: out-of-order samples must lie in the block in order.
        let mut samples: Vec<_> =
            (0..300).map(|k| (start + k * 15_000 + i, (i * 1000 + k * k) as f64 / 8.0)).collect();
        let name = format!("sent_{i:02}");
        want.extend(samples.iter().map(|(t, v)| format!("{{__name__=\"{name}\", dc=\"ü\"}} {v} {t}")));
        if i % 2 == 1 {
            samples.reverse();
        }
        sent.push((name, samples));
    }
    for start in (0..300).step_by(70) {
        let labels: Vec<_> = sent.iter().map(|(name, _)| [("__name__", &**name), ("dc", "ü")]).collect();
        let parts = sent.iter().map(|(_, samples)| &samples[start..300.min(start + 70)]);
        let series = labels.iter().zip(parts).map(|(labels, samples)| SeriesToSend { labels, samples });
        assert_eq!(server.write(&series.collect::<Vec<_>>()).status, 204);
    }
    assert_eq!(server.stop(), Some(0));
    let mut server = Server::start(dir.path(), &with_delay("0s"));
    server.wait_for_block();
    assert_eq!(server.stop(), Some(0));
    let blocks = dir.path().join("tenants/anonymous");
    // promtool opens a whole Prometheus directory, which has a log.
    std::fs::create_dir_all(blocks.join("wal")).expect("directory");
    assert_eq!(promtool(&["tsdb", "list"], &blocks).lines().count(), 2, "a head line and one block");
    let analysis = promtool(&["tsdb", "analyze"], &blocks);
    assert!(analysis.contains("Series: 40"), "{analysis}");
    let dump = promtool(&["tsdb", "dump"], &blocks);
    let mut got: Vec<_> = dump.lines().map(str::to_owned).collect();
    got.sort();
    want.sort();
    assert_eq!(got, want);
}
