//! What metadata costs that every request repeats, as those of remote write 2.0 do: `Tsdb::append` of batches that differ
//! only in that. On disks in memory, without syncs.
//! `cargo run --release -p chronolith-tsdb --example metadata_speed -- [series] [metrics] [rounds]`

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::{Labels, MetadataEntry, MetricKind, TenantId, WriteBatch};
use chronolith_tsdb::{SyncMode, Tsdb, TsdbOptions};

const START_MS: i64 = 1_795_132_800_000;

fn main() {
    let args: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let number = |at: usize, or: usize| args.get(at).copied().unwrap_or(or);
    let (series_count, metric_count, round_count) = (number(0, 10_000), number(1, 1000), number(2, 200));
    let (env, _, _) = Env::fake(START_MS, 1);
    let options = TsdbOptions { sync: SyncMode::Os, ..TsdbOptions::new("/store".into()) };
    let tsdb = Tsdb::open(env, options, Arc::default()).expect("opens");
    let (clock, tenant) = (Env::real().clock, TenantId::anonymous());
    let metric = |idx: usize| format!("service_component_{:04}_total", idx % metric_count);
    let labels: Vec<Labels> = (0..series_count)
        .map(|idx| Labels::from_pairs([("__name__", &*metric(idx)), ("instance", &idx.to_string())]))
        .collect();
    let metadata: Vec<MetadataEntry> = (0..metric_count)
        .map(|idx| MetadataEntry {
            metric: metric(idx),
            kind: MetricKind::Counter,
            help: format!("How often number {idx} did what it does, as counted by itself since its start."),
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
        tsdb.append(&tenant, &batch).expect("stored");
        // The first rounds make series.
        if round >= 2 {
            spent_ns[with_metadata] += clock.mono_ns() - start_ns;
        }
    }
    let sample_count = (series_count * (round_count / 2).saturating_sub(1).max(1)) as f64;
    let per_sample = spent_ns.map(|ns| ns as f64 / sample_count);
    let per_entry = (per_sample[1] - per_sample[0]) * series_count as f64 / metric_count as f64;
    println!("without {:.1} ns/sample, with {:.1}: {per_entry:.0} ns an entry", per_sample[0], per_sample[1]);
}
