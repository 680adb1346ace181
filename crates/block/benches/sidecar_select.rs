//! Time of a selection by sidecar and by index, from the same files of a local directory.
//!
//! `cargo bench -p chronolith-block --bench sidecar_select`. `cargo test` runs one round over few series.
//!
//! The block has container metrics: 100 names, 1000 pods, 8 labels, 2 chunks per series. A measurement opens
//! nothing: it selects, reads all chunks of the series into memory, and drops them; no sample is decoded.
//! Times are the best of several rounds of wall clock on one thread, files in the page cache.

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_block::source::{RangedFiles, RangedMeter, RangedStats};
use chronolith_block::{Block, BlockSource, BlockWriter, SidecarBlock, write_sidecar};
use chronolith_model::{
    BlockEncoding, Labels, MatchOp, Matcher, Queryable, ReadContext, Selector, TimeRange,
};

/// Size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    metric_count: u32,
    pod_count: u32,
    round_count: usize,
}

const MEASURED: Size = Size { metric_count: 100, pod_count: 1000, round_count: 15 };
const TESTED: Size = Size { metric_count: 4, pod_count: 30, round_count: 1 };
const START_MS: i64 = 1_699_920_000_000;
const SAMPLES_PER_SERIES: i64 = 240;
/// Largest gap in bytes between ranges that are read together.
const GAP_BYTES: u64 = 4096;

fn series(metric: u32, pod: u32) -> Labels {
    let hash = pod.wrapping_mul(0x9e37_79b9);
    let texts = [
        ("__name__", format!("container_metric_{metric:03}_total")),
        ("cluster", "prod-eu-1".to_owned()),
        ("container", format!("app-{}", pod / 10)),
        ("instance", format!("10.0.{}.{}:10250", pod / 200, pod % 200)),
        ("job", "kubelet".to_owned()),
        ("namespace", format!("team-{}", pod / 100)),
        ("node", format!("node-{:03}", hash % 100)),
        ("pod", format!("app-{}-{hash:08x}", pod / 10)),
    ];
    Labels::from_pairs(texts.iter().map(|(name, value)| (*name, value.as_str())))
}

fn write_block(env: &Env, dir: &std::path::Path, size: Size) -> Arc<Block> {
    let range = TimeRange::new(START_MS, START_MS + SAMPLES_PER_SERIES * 30_000);
    let mut all: Vec<Labels> = (0..size.metric_count)
        .flat_map(|metric| (0..size.pod_count).map(move |pod| series(metric, pod)))
        .collect();
    all.sort_unstable();
    let writer = BlockWriter::create(env, dir).expect("creates");
    let mut writer = writer.with_encoding(BlockEncoding::Prometheus);
    for (n, labels) in (0i64..).zip(&all) {
        let times: Vec<i64> = (0..SAMPLES_PER_SERIES).map(|i| START_MS + i * 30_000 + (i * n) % 97).collect();
        let values: Vec<f64> = (0..SAMPLES_PER_SERIES).map(|i| (i * (i + n % 89)) as f64).collect();
        writer.add_samples(labels, &times, &values).expect("writes");
    }
    let meta = writer.finish(BlockSource::head(range)).expect("writes").expect("has series");
    Block::open(env, &dir.join(meta.ulid.to_string())).expect("opens")
}

fn select(env: &Env, block: &dyn Queryable, matchers: &[Matcher]) -> usize {
    let ctx = ReadContext::unlimited(env.clock.clone());
    let selector = Selector { matchers, range: TimeRange::ALL };
    let mut batches = block.select(&selector, &ctx).expect("selects");
    let mut found = Vec::new();
    let mut count = 0;
    while batches.next_batch(&mut found).expect("reads") {
        count += found.len();
        found.clear();
    }
    count + found.len()
}

/// Best time in ns, number of series, and what one selection read.
fn measure(
    env: &Env,
    block: &dyn Queryable,
    meter: Option<&RangedMeter>,
    matchers: &[Matcher],
    rounds: usize,
) -> (u64, usize, RangedStats) {
    // The parts that stay in memory are read by the first one.
    let mut count = select(env, block, matchers);
    let stats = || meter.map_or_else(RangedStats::default, RangedMeter::stats);
    let mut best_ns = u64::MAX;
    let mut read = RangedStats::default();
    for _ in 0..rounds {
        let before = stats();
        let start_ns = env.clock.mono_ns();
        count = select(env, block, matchers);
        best_ns = best_ns.min(env.clock.mono_ns() - start_ns);
        let after = stats();
        read = RangedStats {
            waves: after.waves - before.waves,
            rounds: after.rounds - before.rounds,
            requests: after.requests - before.requests,
            bytes: after.bytes - before.bytes,
        };
    }
    (best_ns, count, read)
}

fn main() {
    // `cargo bench` passes `--bench`; under `cargo test` one small round is enough.
    let size = if std::env::args().any(|arg| arg == "--bench") { MEASURED } else { TESTED };
    let env = Env::real();
    let dir = tempfile::tempdir().expect("creates a directory");
    let mapped = write_block(&env, dir.path(), size);
    let sidecar_path = dir.path().join("sidecar");
    let mut bytes = Vec::new();
    let start_ns = env.clock.mono_ns();
    let summary = write_sidecar(&env, &mapped, |part| bytes.extend_from_slice(part)).expect("writes");
    let write_ms = (env.clock.mono_ns() - start_ns) / 1_000_000;
    println!("sidecar: {} bytes, head {} bytes, written in {write_ms} ms", summary.len, summary.head_len);
    env.disk.create(&sidecar_path).and_then(|file| file.write_at(&bytes, 0)).expect("writes");

    let files = RangedFiles::open(&env, mapped.dir(), GAP_BYTES).expect("opens");
    let index_meter = files.meter();
    let index = Block::open_source(&env, mapped.dir(), Box::new(files)).expect("opens");
    let files = RangedFiles::open(&env, mapped.dir(), GAP_BYTES).expect("opens");
    let (files, head) = files.with_sidecar(&env, &sidecar_path).expect("opens");
    let sidecar_meter = files.meter();
    let sidecar = SidecarBlock::new(head, mapped.range(), Box::new(files));
    println!("memory: index header {} bytes, sidecar {} bytes", index.heap_bytes(), sidecar.heap_bytes());

    let name = || Matcher::equal("__name__", "container_metric_002_total");
    let regex = |name: &str, text: &str| Matcher::new(name, MatchOp::Regex, text).expect("is a regex");
    let pod = series(0, 7).get("pod").unwrap_or_default().to_owned();
    let selections = [
        vec![name()],
        vec![name(), Matcher::equal("namespace", "team-0")],
        vec![name(), regex("pod", "app-1.*")],
        vec![Matcher::equal("pod", &pod)],
        vec![Matcher::equal("namespace", "team-0")],
        vec![regex("pod", "app-1.*")],
        vec![],
    ];
    println!("| selection | series | path | us | ns per series | rounds | requests | bytes |");
    println!("|---|---|---|---|---|---|---|---|");
    for matchers in &selections {
        let paths: [(&str, &dyn Queryable, Option<&RangedMeter>); 3] = [
            ("index, mapped", &*mapped, None),
            ("index, ranges", &*index, Some(&index_meter)),
            ("sidecar", &sidecar, Some(&sidecar_meter)),
        ];
        let mut counts = Vec::new();
        for (path, block, meter) in paths {
            let (ns, count, read) = measure(&env, block, meter, matchers, size.round_count);
            counts.push(count);
            let RangedStats { rounds, requests, bytes, .. } = read;
            let us = ns / 1000;
            let of_series = ns / (count as u64).max(1);
            println!(
                "| {matchers:?} | {count} | {path} | {us} | {of_series} | {rounds} | {requests} | {bytes} |"
            );
        }
        assert!(counts.windows(2).all(|pair| pair[0] == pair[1]), "{matchers:?}: {counts:?} series");
    }
}
