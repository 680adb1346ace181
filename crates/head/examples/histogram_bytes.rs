//! Memory of open native histograms: integer counters of a few dozen buckets, scraped every 15 s.
//! `cargo run --release -p chronolith-head --example histogram_bytes -- [series] [rounds]`

use std::sync::Arc;

use chronolith_base::{Env, Rng};
use chronolith_head::{Head, HeadOptions, ReplayProgress, SyncMode};
use chronolith_model::histogram::{Buckets, Span};
use chronolith_model::{Histogram, IntHistogram, Labels, StoreId, TenantLimits, WriteBatch};

const STEP_MS: i64 = 15_000;
const START_MS: i64 = 1_699_999_200_000;
const BUCKETS_MIN: u64 = 20;
const BUCKETS_MAX: u64 = 60;
const BATCH: usize = 500;

/// Counts of a series so far.
struct Counter {
    labels: Labels,
    counts: Vec<u64>,
}

impl Counter {
    fn new(idx: u64, rng: &Rng) -> Counter {
        let (instance, handler) = (format!("host-{}", idx / 50), format!("/api/{}", idx % 50));
        let name = ("__name__", "http_request_duration_seconds");
        let labels = Labels::from_pairs([name, ("instance", &*instance), ("handler", &*handler)]);
        let bucket_count = BUCKETS_MIN + rng.below(BUCKETS_MAX - BUCKETS_MIN + 1);
        Counter { labels, counts: vec![0; bucket_count as usize] }
    }

    /// Some requests, most of them in the middle buckets.
    fn scrape(&mut self, rng: &Rng) -> Histogram {
        let bucket_count = self.counts.len() as u64;
        for _ in 0..rng.below(60) {
            let idx = (rng.below(bucket_count) + rng.below(bucket_count)) / 2;
            self.counts[idx as usize] += 1;
        }
        let count: u64 = self.counts.iter().sum();
        let spans = vec![Span { offset: -20, length: self.counts.len() as u32 }];
        let positive = Buckets { spans, counts: self.counts.clone() };
        let (schema, zero_threshold, sum) = (3, 2f64.powi(-128), count as f64 * 0.037);
        Histogram::Int(IntHistogram {
            schema,
            zero_threshold,
            count,
            sum,
            positive,
            ..IntHistogram::default()
        })
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let (series_count, rounds) = (args.next().unwrap_or(10_000), args.next().unwrap_or(60));
    let dir = std::env::temp_dir().join(format!("histogram-bytes-{}", std::process::id()));
    let env = Env::real();
    let options = HeadOptions { sync: SyncMode::Os, ..HeadOptions::new(dir.clone()) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    let rng = Rng::from_seed(1);
    let mut counters: Vec<Counter> = (0..series_count).map(|idx| Counter::new(idx, &rng)).collect();
    let (tenant, limits) = (StoreId::anonymous(), TenantLimits::default());
    for round in 0..rounds {
        let time = START_MS + round.cast_signed() * STEP_MS;
        for part in counters.chunks_mut(BATCH) {
            let mut batch = WriteBatch::from_labels();
            for counter in part {
                let sample = (time, Arc::new(counter.scrape(&rng)));
                batch.push_histograms(&counter.labels, &[sample]);
            }
            let (outcome, position) = head.append(&tenant, &limits, time, &batch).expect("appended");
            assert_eq!(outcome.rejected_count(), 0);
            head.wait(position).expect("written");
        }
        if (round + 1) % 10 == 0 || round + 1 == rounds {
            let parts = head.statistics().memory();
            let bytes = |name: &str| parts.iter().find(|part| part.name == name).map_or(0, |part| part.bytes);
            let all: u64 = parts.iter().map(|part| part.bytes).sum();
            println!(
                "round {:3}: {} B per series in histograms, {} B in all parts",
                round + 1,
                bytes("histograms") / series_count,
                all / series_count
            );
        }
    }
    drop(head);
    env.disk.remove_dir_all(&dir).expect("removed");
}
