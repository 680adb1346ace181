//! Native histograms in our blocks, read by Prometheus's library, promtool and a running Prometheus; and
//! those that the library wrote, read by us. Samples, hints and chunk headers are those that its own head
//! makes of the same input.
#![expect(clippy::disallowed_methods, reason = "starts Go's compiler and Debian's prometheus on real files")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use chronolith_base::Env;
use chronolith_block::Block;
use chronolith_model::histogram::{Count, HistogramOf};
use chronolith_model::{
    Columns, Histogram, Labels, MatchOp, Matcher, Queryable, ReadContext, Selector, TimeRange,
};

use crate::harness::{Server, now_ms, percent, temp_dir};
use crate::prometheus_blocks::{ask, assert_equal, promtool, start_prometheus, wait_for_port};

const WINDOW_MS: i64 = 7_200_000;
/// Questions over series that Prometheus 2.42 knows, which has no custom bounds, and interpolates and
/// extrapolates to zero in its own way.
const QUERIES: [&str; 4] = [
    "histogram_count(counter)",
    "histogram_sum(floats)",
    "histogram_sum(rate(wide[10m]))",
    "histogram_count(sum(rate(counter[5m])) + sum(rate(wide[5m])))",
];
/// Series whose histograms are compared as they are.
const WHOLE: [&str; 6] = ["counter", "floats", "wide", "narrow_gauge", "grows", "float_gauge"];

/// The program in `tools/histogram-blocks`, built; `None` without Go or Prometheus's library.
fn build_tool(dir: &Path) -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/histogram-blocks");
    let go = |args: &[&str]| Command::new("go").args(args).current_dir(&tools).output();
    match go(&["list", "-deps", "."]) {
        Err(_) => {
            eprintln!("NOT RUN: go is missing");
            return None;
        }
        Ok(listed) if !listed.status.success() => {
            eprintln!("NOT RUN: Go's modules are missing: {}", String::from_utf8_lossy(&listed.stderr));
            return None;
        }
        Ok(_) => {}
    }
    let tool = dir.join("histogram-blocks");
    let built = go(&["build", "-o", tool.to_str().expect("text"), "."]).expect("go");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(tool)
}

fn run(program: &Path, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("starts");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

fn text_of<C: Count>(kind: char, one: &HistogramOf<C>, count_text: impl Fn(C) -> String) -> String {
    if one.is_stale() {
        return "stale".to_owned();
    }
    let bounds: Vec<String> =
        one.custom_values.iter().map(|bound| format!("{:016x}", bound.to_bits())).collect();
    let mut out = format!(
        "{kind} {} {:016x} {:016x} [{}] {} {}",
        one.schema,
        one.zero_threshold.to_bits(),
        one.sum.to_bits(),
        bounds.join(" "),
        count_text(one.count),
        count_text(one.zero_count),
    );
    for (sign, side) in [('+', &one.positive), ('-', &one.negative)] {
        for (idx, count) in side.walk().filter(|(_, count)| *count != C::default()) {
            write!(out, " {sign}{idx}:{}", count_text(count)).expect("memory takes text");
        }
    }
    out
}

fn sample_text(columns: &Columns, at: usize) -> String {
    let Some(histogram) = columns.histogram_at(at) else {
        return format!("0\tv {:016x}", columns.values[at].to_bits());
    };
    let text = match &**histogram {
        Histogram::Int(one) => text_of('i', one, |count| count.to_string()),
        Histogram::Float(one) => text_of('f', one, |count| format!("{:016x}", count.to_bits())),
    };
    format!("{}\t{text}", histogram.reset_hint() as u8)
}

/// As the tool dumps them, block after block.
fn our_dump(dir: &Path) -> Vec<String> {
    let env = Env::real();
    let any = [Matcher::new("__name__", MatchOp::Regex, ".+").expect("a pattern")];
    let selector = Selector { matchers: &any, range: TimeRange::ALL };
    let mut out = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        if !entry.path().join("meta.json").exists() {
            continue;
        }
        let block = Block::open(&env, &entry.path()).expect("opens");
        let ctx = ReadContext::unlimited(env.clock.clone());
        let mut batches = block.select(&selector, &ctx).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        for one in &series {
            let mut columns = Columns::default();
            one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
            let labels = go_labels(&one.labels);
            let line = |at: usize| format!("{labels}\t{}\t{}", columns.times[at], sample_text(&columns, at));
            out.extend((0..columns.len()).map(line));
        }
    }
    out.sort();
    out
}

fn go_labels(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Writes what the tool sends through the head, a restart in between, into two blocks; gives their directory.
fn write_blocks(tool: &Path, dir: &Path, start: &str) -> PathBuf {
    // A window that is cut while samples come in would end chunks where it was cut; small ones would share a
    // block.
    let no_wait = ["--flush-small-window", "0"];
    let flags =
        [&no_wait[..], &["--self-scrape", "off", "--block-encoding", "prometheus", "--flush-delay"]].concat();
    let mut server = Server::start(dir, &[&flags[..], &["24h"]].concat());
    run(tool, &["send", &format!("http://127.0.0.1:{}/api/v1/write", server.port), start]);
    server.kill();
    let mut server = Server::start(dir, &[&flags[..], &["0s"]].concat());
    let blocks = server.wait_for_blocks(2);
    assert_eq!(server.stop(), Some(0));
    blocks
}

#[test]
fn histograms_in_blocks_are_those_of_the_library() {
    let dir = temp_dir();
    let Some(tool) = build_tool(dir.path()) else { return };
    let start = now_ms() / WINDOW_MS * WINDOW_MS - 3 * WINDOW_MS;
    let at = |name: &str| dir.path().join(name);
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let own = at("own");
    run(&tool, &["own", &text(&own), &start.to_string()]);

    let blocks = write_blocks(&tool, &at("ours"), &start.to_string());
    let compared = run(&tool, &["compare", &text(&blocks), &text(&own)]);
    assert!(compared.contains(" samples equal"), "{compared}");

    let exported = at("exported");
    let export = ["export", "blocks", "--data-dir", &text(&at("ours")), "--out", &text(&exported)];
    run(Path::new(env!("CARGO_BIN_EXE_chronolith")), &export);
    let compared = run(&tool, &["samples", &text(&exported), &text(&own)]);
    assert!(compared.contains(" samples equal"), "{compared}");

    // The other way: what the library wrote.
    let dump = run(&tool, &["dump", &text(&own)]);
    let mut want: Vec<String> = dump.lines().map(str::to_owned).collect();
    want.sort();
    let got = our_dump(&own);
    let differs = got.iter().zip(&want).find(|(got, want)| got != want);
    assert_eq!(differs, None, "samples of the library's blocks");
    assert_eq!(got.len(), want.len());
    assert!(want.len() > 15_000, "{} samples", want.len());
    ask_prometheus(dir.path(), &blocks, start);
}

/// Requires that promtool and a Prometheus on our blocks answer as we do.
fn ask_prometheus(dir: &Path, blocks: &Path, start: i64) {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("NOT RUN: promtool and prometheus are missing (apt-get install prometheus)");
        return;
    }
    let prom = dir.join("prom");
    let copied = Command::new("cp").arg("-r").arg(blocks).arg(&prom).status().expect("cp");
    assert!(copied.success());
    std::fs::create_dir_all(prom.join("wal")).expect("directory");
    assert_eq!(promtool(&["tsdb", "list"], &prom).lines().count(), 3, "a head line and two blocks");
    let analysis = promtool(&["tsdb", "analyze"], &prom);
    assert!(analysis.contains("Series: 25"), "{analysis}");

    let theirs = start_prometheus(dir, &["--enable-feature=native-histograms"]);
    let ours = Server::start(&dir.join("ours"), &["--self-scrape", "off"]);
    wait_for_port(theirs.port);
    // Half a step off the samples, so that none lies at the border of a range.
    let (from, to) = (start as f64 / 1000.0 + 1807.0, start as f64 / 1000.0 + 10_000.0);
    for query in QUERIES {
        let range = format!("/api/v1/query_range?query={}&start={from}&end={to}&step=60", percent(query));
        let (ours, theirs) = (ask(ours.port, &range), ask(theirs.port, &range));
        assert!(theirs.as_array().is_some_and(|series| !series.is_empty()), "{query} gives something");
        assert_equal(query, &ours, &theirs);
    }
    for name in WHOLE {
        let range = format!("/api/v1/query_range?query={name}&start={from}&end={to}&step=60");
        let histograms = |port| ask(port, &range)[0]["histograms"].take();
        let (ours, theirs) = (histograms(ours.port), histograms(theirs.port));
        assert!(theirs.as_array().is_some_and(|samples| samples.len() > 100), "{name}");
        assert_eq!(ours, theirs, "{name}");
    }
}
