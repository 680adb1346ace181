//! Cost of metadata that every request repeats, as in remote write 2.0: `Tsdb::append` of batches with and
//! without metadata, on a disk in memory, without syncs.
//!
//! `cargo bench -p chronolith-tsdb --bench metadata_speed -- [series] [metrics] [rounds]`. `cargo test` runs
//! a few small batches.

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::{Labels, MetadataEntry, MetricKind, StoreId, WriteBatch};
use chronolith_tsdb::{SyncMode, Tsdb, TsdbOptions};

const START_MS: i64 = 1_795_132_800_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` passes the flag, `cargo test` does not.
    let defaults = if args.iter().any(|arg| arg == "--bench") { [10_000, 1000, 200] } else { [50, 10, 6] };
    let numbers: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let number = |idx: usize| numbers.get(idx).copied().unwrap_or(defaults[idx]);
    measure(number(0), number(1), number(2));
}

fn measure(series_count: usize, metric_count: usize, round_count: usize) {
    let (env, _, _) = Env::fake(START_MS, 1);
    let options = TsdbOptions { sync: SyncMode::Os, ..TsdbOptions::new("/store".into()) };
    let tsdb = Tsdb::open(env, options, Arc::default()).expect("opens");
    let (clock, tenant) = (Env::real().clock, StoreId::anonymous());
    let metric = |idx: usize| format!("service_component_{:04}_total", idx % metric_count);
    let labels: Vec<Labels> = (0..series_count)
        .map(|idx| Labels::from_pairs([("__name__", &*metric(idx)), ("instance", &idx.to_string())]))
        .collect();
    let metadata: Vec<MetadataEntry> = (0..metric_count)
        .map(|idx| MetadataEntry {
            metric: metric(idx),
            kind: MetricKind::Counter,
            help: format!(
                "Number of operations of component {idx} since the start of its process, by itself."
            ),
            unit: String::new(),
        })
        .collect();
    let mut spent_ns = [0u64; 2];
    for round in 0..round_count {
        let with_metadata = round % 2;
        let mut batch = WriteBatch::from_labels();
        for labels in &labels {
            batch.push_labels(labels, &[(START_MS + round as i64, round as f64)]);
        }
        if with_metadata == 1 {
            batch.metadata.clone_from(&metadata);
        }
        let start_ns = clock.mono_ns();
        let outcome = tsdb.append(&tenant, &batch).expect("the batch is stored");
        assert_eq!(outcome.accepted_count, series_count as u64);
        // The first rounds create the series.
        if round >= 2 {
            spent_ns[with_metadata] += clock.mono_ns() - start_ns;
        }
    }
    let sample_count = (series_count * (round_count / 2).saturating_sub(1).max(1)) as f64;
    let per_sample = spent_ns.map(|ns| ns as f64 / sample_count);
    let per_entry = (per_sample[1] - per_sample[0]) * series_count as f64 / metric_count as f64;
    println!("without {:.1} ns/sample, with {:.1}: {per_entry:.0} ns/entry", per_sample[0], per_sample[1]);
}
