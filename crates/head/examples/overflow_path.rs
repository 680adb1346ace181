//! A fixed number of appends for a CPU simulator: samples of known series, or of series beyond a limit.
//!
//! `overflow_path known|folded floats|histograms BATCHES`: 500 series get one sample per batch.
//! Instructions per sample are the difference of two runs with different numbers of batches, divided by their
//! samples: `valgrind --tool=callgrind target/debug/examples/overflow_path folded floats 40`.
//!
//! Invariant: clock, disk and seeds are fake, so that each run executes the same instructions.

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_head::{Head, HeadOptions, ReplayProgress};
use chronolith_model::histogram::{Buckets, Span};
use chronolith_model::{Histogram, IntHistogram, Labels, OverflowPolicy, StoreId, TenantLimits, WriteBatch};

const SERIES_COUNT: usize = 500;
const BUCKET_COUNT: u64 = 20;
const STEP_MS: i64 = 15_000;
const START_MS: i64 = 1_699_999_200_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [series, values, batches] = &args[..] else {
        eprintln!("usage: overflow_path known|folded floats|histograms BATCHES");
        std::process::exit(2);
    };
    let batch_count: i64 = batches.parse().expect("a number of batches");
    let (env, _clock, _disk) = Env::fake(START_MS, 1);
    let options =
        HeadOptions { wal_segment_bytes: 16 << 20, free_bytes_min: 0, ..HeadOptions::new("/data".into()) };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    let mut limits = TenantLimits::default();
    if series == "folded" {
        limits.series_max = 0;
        limits.ingestion.overflow = OverflowPolicy::Fold;
    }
    for round in 0..batch_count {
        let batch = batch_of(values == "histograms", round);
        let now_ms = START_MS + round * STEP_MS;
        let appended = head.append(&StoreId::anonymous(), &limits, now_ms, &batch).expect("appended");
        assert_eq!(appended.0.rejected_count(), 0, "all samples are stored or folded");
        head.wait(appended.1).expect("durable");
    }
    println!("{} samples", batch_count * SERIES_COUNT as i64);
}

fn batch_of(of_histograms: bool, round: i64) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    let time = START_MS + round * STEP_MS;
    for idx in 0..SERIES_COUNT {
        let metric = format!("http_requests_{}_total", idx % 20);
        let instance = format!("host-{idx:05}");
        let labels = Labels::from_pairs([("__name__", &*metric), ("instance", &*instance), ("job", "api")]);
        if of_histograms {
            batch.push_histograms(&labels, &[(time, histogram(round as u64 * (idx as u64 % 7 + 1)))]);
        } else {
            batch.push_labels(&labels, &[(time, (round * (idx as i64 + 1)) as f64)]);
        }
    }
    batch
}

/// Returns a histogram whose counts grow with `value`.
fn histogram(value: u64) -> Arc<Histogram> {
    let counts: Vec<u64> = (1..=BUCKET_COUNT).map(|idx| value * idx / 4).collect();
    Arc::new(Histogram::Int(IntHistogram {
        schema: 3,
        zero_threshold: 2f64.powi(-128),
        count: counts.iter().sum(),
        sum: value as f64 * 1.5,
        positive: Buckets { spans: vec![Span { offset: -4, length: BUCKET_COUNT as u32 }], counts },
        ..IntHistogram::default()
    }))
}
