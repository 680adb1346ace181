//! Benchmark `memory`: resident memory an active series, with open chunks as full as in a server that has run
//! for long, and with series that come and go.
//!
//! Invariants: a fresh process over an empty directory for every figure; the number of samples is read back;
//! nothing is forced before memory is read (no flush, no collection of garbage).
//! Not here: series in step with each other (`remote-write` shows that peak).

mod report;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chronolith_base::{Clock, SystemClock};
use serde_json::Value;

use crate::driver::{Benchmark, Run};
use crate::fleet::{Content, Fleet, Shape};
use crate::http;
use crate::options::Servers;
use crate::proc::Memory;
use crate::server::{Kind, Server, Setup};
use crate::traffic::{self, POD_SERIES, STEP_MS};

/// Time for background work of a server before memory is read.
const SETTLE: Duration = Duration::from_secs(5);
/// Samples of a chunk, so series start with 1 to this many.
const FILL_STEPS: usize = 120;
/// Steps after the first samples: this many sample in all, but within these bounds.
const STEP_SAMPLES: usize = 60_000_000;
const STEPS_MIN: usize = 8;
const STEPS_MAX: usize = 120;
const STEPS_A_MINUTE: usize = 4;
/// Part of the series that is replaced each minute: one in this many.
const CHURN_PART: usize = 10;
const QUICK_SERIES: usize = 10_000;
const QUICK_MINUTES: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    only: Servers,
    /// Active series, one measurement each.
    #[arg(long, value_delimiter = ',', default_values_t = [100_000, 1_000_000, 5_000_000])]
    series: Vec<usize>,
    /// Other servers are measured with at most this many series.
    #[arg(long, default_value_t = 100_000)]
    peer_series: usize,
    /// The load whose values are noise is measured with at most this many series.
    #[arg(long, default_value_t = 1_000_000)]
    noisy_series: usize,
    /// Active series while series come and go; 0 leaves it out.
    #[arg(long, default_value_t = 100_000)]
    churn_series: usize,
    /// Minutes of samples in which a tenth of the series is replaced each minute.
    #[arg(long, default_value_t = 30)]
    churn_minutes: usize,
    /// Longest time of loading a server with its first samples, and as long again for the steps after them.
    #[arg(long, default_value_t = 240)]
    load_seconds: u64,
    /// Series of a request at most.
    #[arg(long, default_value_t = 5_000)]
    batch: usize,
    /// Connections, each with a thread and its own part of the series.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// At most 10 000 series and 2 minutes: shows that the benchmark works.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    kind: Kind,
    content: Content,
    series_count: usize,
    /// Minutes in which series are replaced; 0 = none are.
    churn_minutes: usize,
}

/// Figures of one case.
struct Measured {
    case: Case,
    loaded: Loaded,
    empty_bytes: u64,
    settled: Memory,
    /// Parts of the memory that the server reports: name and bytes; empty if it reports none.
    parts: Vec<(String, f64)>,
}

impl Benchmark for Options {
    fn servers(&self) -> Result<Vec<Kind>> {
        self.only.of(&Kind::ALL)
    }

    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.batch >= POD_SERIES && self.connections > 0, "batch must be at least {POD_SERIES}");
        let mut measured = Vec::new();
        for case in plan(self, &run.kinds()) {
            println!("{}", case.title());
            let setup = Setup::new(case.series_count);
            let done = run.measure_server(case.kind, setup, |server| measure(server, case, self));
            if let Some(one) = run.keep(&case.title(), done) {
                println!("  {:.0} bytes an active series", one.bytes_per_series());
                measured.push(one);
            }
        }
        report::add(self, &measured, run);
        Ok(())
    }
}

fn plan(options: &Options, kinds: &[Kind]) -> Vec<Case> {
    let capped = |count: usize| if options.quick { count.min(QUICK_SERIES) } else { count };
    let minutes =
        if options.quick { options.churn_minutes.min(QUICK_MINUTES) } else { options.churn_minutes };
    let mut sizes: Vec<usize> = options.series.iter().map(|count| capped(*count)).collect();
    sizes.dedup();
    let mut cases = Vec::new();
    for content in [Content::Mix, Content::Noisy] {
        for &series_count in &sizes {
            let peers = content == Content::Mix && series_count <= options.peer_series;
            let wanted = |kind: &&Kind| **kind == Kind::Chronolith || peers;
            if content == Content::Mix || series_count <= options.noisy_series {
                let case = |kind: &Kind| Case { kind: *kind, content, series_count, churn_minutes: 0 };
                cases.extend(kinds.iter().filter(wanted).map(case));
            }
        }
    }
    let series_count = capped(options.churn_series);
    if series_count > 0 && minutes > 0 {
        let content = Content::Mix;
        let case = |kind: &Kind| Case { kind: *kind, content, series_count, churn_minutes: minutes };
        cases.extend(kinds.iter().map(case));
    }
    cases
}

fn measure(server: &mut Server, case: Case, options: &Options) -> Result<Measured> {
    let empty_bytes = server.memory()?.now_bytes;
    let steps = if case.churn_minutes > 0 {
        case.churn_minutes * STEPS_A_MINUTE
    } else {
        (STEP_SAMPLES / case.series_count).clamp(STEPS_MIN, STEPS_MAX)
    };
    let batch_len = batch_len(case, options);
    let shape = Shape::up_to_now(case.series_count, batch_len, options.connections, case.content, steps);
    let mut fleet = Fleet::new(&shape);
    let limit = Duration::from_secs(options.load_seconds);
    fleet.fill(server.port, FILL_STEPS, limit)?;
    println!("  first samples are there");
    let loaded = if case.churn_minutes > 0 {
        churn(server, &mut fleet, case, limit)?
    } else {
        fleet.send(server.port, 0..steps, |watch| watch.wait(steps, limit).map(drop))?;
        Loaded {
            sample_count: fleet.acked_sample_count(),
            series_ever: case.series_count,
            steps_sent: fleet.steps_sent(),
        }
    };
    std::thread::sleep(SETTLE);
    server.check_alive()?;
    let settled = server.memory()?;
    let parts = memory_parts(server)?;
    server.make_visible()?;
    let range_s = (steps + FILL_STEPS + 10) as i64 * STEP_MS / 1000;
    let end_ms = shape.start_ms + (steps as i64 + 4) * STEP_MS;
    verify(server, &loaded, end_ms, range_s)?;
    Ok(Measured { case, loaded, empty_bytes, settled, parts })
}

/// Series of a request: few enough that requests start with every number of samples, or that a tenth can be
/// replaced.
fn batch_len(case: Case, options: &Options) -> usize {
    let part = case.series_count / options.connections;
    let batch_count = if case.churn_minutes > 0 { CHURN_PART } else { FILL_STEPS / options.connections };
    (part / batch_count.max(1)).clamp(1, options.batch)
}

/// Samples that were sent and acknowledged.
struct Loaded {
    sample_count: usize,
    /// All series that ever were.
    series_ever: usize,
    steps_sent: usize,
}

fn churn(server: &Server, fleet: &mut Fleet, case: Case, limit: Duration) -> Result<Loaded> {
    let started = SystemClock::new().now_ms();
    let mut gone_samples = 0;
    let mut next_idx = case.series_count;
    let mut steps_sent = 0;
    for minute in 0..case.churn_minutes {
        // Whole pods come and go; an index that starts a pod keeps their series together.
        next_idx = next_idx.next_multiple_of(POD_SERIES);
        let replaced = fleet.replace_oldest(CHURN_PART, next_idx);
        gone_samples += replaced.acked_sample_count;
        next_idx = replaced.next_idx;
        let end = (minute + 1) * STEPS_A_MINUTE;
        fleet.send(server.port, minute * STEPS_A_MINUTE..end, |watch| watch.wait(end, limit).map(drop))?;
        steps_sent = end;
        if SystemClock::new().now_ms() - started > i64::try_from(limit.as_millis())? {
            println!("  the time is over after {} minutes of samples", minute + 1);
            break;
        }
    }
    Ok(Loaded { sample_count: gone_samples + fleet.acked_sample_count(), series_ever: next_idx, steps_sent })
}

fn verify(server: &Server, loaded: &Loaded, end_ms: i64, range_s: i64) -> Result<()> {
    // Pod by pod is slow, all at once is too much for some: by the first letter of a label with eight values.
    let mut found = 0.0;
    for namespace in traffic::NAMESPACES {
        let matchers = format!("{{cluster=\"bench-eu-1\",namespace=\"{namespace}\"}}");
        let query = format!("sum(count_over_time({matchers}[{range_s}s])) or vector(0)");
        found += http::query_number(server.port, &query, end_ms)?;
    }
    let expected = loaded.sample_count as f64;
    ensure!(found == expected, "{expected} samples were acknowledged, {found} are there");
    Ok(())
}

/// Reads Chronolith's report about its memory: `/api/v1/status/memory`, or the metrics of the head in
/// versions without it.
fn memory_parts(server: &Server) -> Result<Vec<(String, f64)>> {
    let mut parts = Vec::new();
    if server.kind() != Kind::Chronolith {
        return Ok(parts);
    }
    let (status, body) = http::get(server.port, "/api/v1/status/memory")?;
    if status == 200 {
        let answer: Value = serde_json::from_str(&body).context("/api/v1/status/memory")?;
        numbers_of("", &answer["data"], &mut parts);
        return Ok(parts);
    }
    let (_, metrics) = http::get(server.port, "/metrics")?;
    for line in metrics.lines().filter(|line| line.starts_with("chronolith_head_")) {
        if let Some((name, number)) = line.split_once(' ').filter(|(name, _)| name.ends_with("_bytes")) {
            parts.push((name.to_owned(), number.parse()?));
        }
    }
    Ok(parts)
}

fn numbers_of(path: &str, value: &Value, out: &mut Vec<(String, f64)>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                numbers_of(&path, field, out);
            }
        }
        Value::Number(number) => out.extend(number.as_f64().map(|number| (path.to_owned(), number))),
        _ => {}
    }
}
