//! Cost of reading one block by kind of query.
//!
//! `cargo run --release -p chronolith-block --example read_cost -- [CASE] [COUNT] [DIR]` writes a block of
//! 20,000 series (10 metrics, 200 pods, 10 paths) with two hours of samples every 15 s to a temporary
//! directory, and prints microseconds of each case (`all`), or runs one case COUNT times (for `valgrind
//! --tool=callgrind`). With DIR it reads that block instead of writing one.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use chronolith_base::{Clock, Env, SystemClock};
use chronolith_block::{Block, BlockSource, BlockWriter};
use chronolith_model::{Columns, Labels, MatchOp, Matcher, Queryable, ReadContext, Selector, TimeRange};

const RANGE: TimeRange = TimeRange { start: 1_600_000_000_000, end: 1_600_007_200_000 };
const CASES: [&str; 8] =
    ["open", "select_one", "select_metric", "select_regex", "select_all", "read_metric", "values", "names"];

fn write(env: &Env, dir: &Path) -> PathBuf {
    let mut writer = BlockWriter::create(env, dir).expect("is created");
    let times: Vec<i64> = (0..480).map(|i| RANGE.start + i * 15_000).collect();
    for metric in 0..10 {
        for path in 0..10 {
            for pod in 0..200 {
                let metric = format!("http_requests_{metric}_total");
                let (path, pod) = (format!("/api/v1/resource/{path}"), format!("pod-{pod:03}"));
                let labels = Labels::from_pairs([
                    ("__name__", metric.as_str()),
                    ("cluster", "prod"),
                    ("job", "api-server"),
                    ("path", path.as_str()),
                    ("pod", pod.as_str()),
                    ("region", "eu-west-1"),
                ]);
                let values: Vec<f64> = (0..480).map(|i| f64::from(i * 7 % 113)).collect();
                writer.add_samples(&labels, &times, &values).expect("is written");
            }
        }
    }
    let meta = writer.finish(BlockSource::head(RANGE)).expect("is finished").expect("has series");
    dir.join(meta.ulid.to_string())
}

fn matchers(case: &str) -> Vec<Matcher> {
    let metric = Matcher::equal("__name__", "http_requests_3_total");
    match case {
        "select_one" => {
            vec![metric, Matcher::equal("path", "/api/v1/resource/4"), Matcher::equal("pod", "pod-077")]
        }
        "select_regex" => {
            vec![metric, Matcher::new("pod", MatchOp::Regex, ".*7").expect("compiles")]
        }
        "select_all" => Vec::new(),
        _ => vec![metric],
    }
}

/// Runs one case; returns a number that depends on the answer.
fn run(env: &Env, dir: &Path, block: &Block, case: &str) -> usize {
    let ctx = ReadContext::unlimited(env.clock.clone());
    let matchers = matchers(case);
    let selector = Selector { matchers: &matchers, range: RANGE };
    match case {
        "open" => Block::open(env, dir).expect("opens").heap_bytes(),
        "values" => block.label_values("pod", &selector, 0, &ctx).expect("reads").len(),
        "names" => block.label_names(&selector, 0, &ctx).expect("reads").len(),
        _ => {
            let (mut found, mut columns) = (Vec::new(), Columns::default());
            let mut batches = block.select(&selector, &ctx).expect("selects");
            while batches.next_batch(&mut found).expect("reads") {}
            if case == "read_metric" {
                for series in &found {
                    columns.clear();
                    series.samples.read(RANGE, &mut columns).expect("reads");
                    black_box(columns.len());
                }
            }
            found.len()
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (case, count) = (args.next(), args.next().and_then(|text| text.parse().ok()).unwrap_or(1_usize));
    let env = Env::real();
    let parent = std::env::temp_dir().join(format!("read-cost-{}", std::process::id()));
    let given = args.next().map(PathBuf::from);
    let dir = given.clone().unwrap_or_else(|| write(&env, &parent));
    let block = Block::open(&env, &dir).expect("opens");
    if let Some(case) = case.filter(|case| CASES.contains(&case.as_str())) {
        for _ in 0..count {
            black_box(run(&env, &dir, &block, &case));
        }
    } else {
        let clock = SystemClock::new();
        for case in CASES {
            let mut best_ns = u64::MAX;
            for _ in 0..30 {
                let started_ns = clock.mono_ns();
                black_box(run(&env, &dir, &block, case));
                best_ns = best_ns.min(clock.mono_ns() - started_ns);
            }
            println!("{case}: {:.1} us", best_ns as f64 / 1000.0);
        }
    }
    drop(block);
    if given.is_none() {
        env.disk.remove_dir_all(&parent).expect("is removed");
    }
}
