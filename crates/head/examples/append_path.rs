//! A fixed number of appends for a CPU simulator: `cargo xtask ci --only append-path` counts its
//! instructions.
//!
//! `append_path WRITERS BATCHES`: each of WRITERS writers has 500 series and appends BATCHES batches of one
//! sample per series. All run on one thread in turn and commit together, since the order of threads is
//! random.
//!
//! Invariant: clock, disk and seeds are fake, so that each run executes the same instructions. A second run
//! with more batches separates the cost of appends from the cost of startup.

use chronolith_base::Env;
use chronolith_head::{Head, HeadOptions, ReplayProgress};
use chronolith_model::{LabelsBuilder, StoreId, TenantLimits, WriteBatch};

const SERIES_PER_WRITER: usize = 500;
const STEP_MS: i64 = 15_000;
/// Start of a window: all batches lie within it.
const START_MS: i64 = 1_699_999_200_000;
const SEED: u64 = 1;
/// Above the bytes of all frames: creating a segment costs more than a few appends.
const SEGMENT_BYTES: u64 = 16 << 20;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |idx: usize| args.get(idx).and_then(|arg| arg.parse::<usize>().ok());
    let (Some(writer_count), Some(batch_count)) = (number(0), number(1)) else {
        eprintln!("usage: append_path WRITERS BATCHES");
        std::process::exit(2);
    };
    let (env, _clock, _disk) = Env::fake(START_MS, SEED);
    let options = HeadOptions {
        wal_segment_bytes: SEGMENT_BYTES,
        free_bytes_min: 0,
        ..HeadOptions::new("/data".into())
    };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).expect("opens");
    let mut batches: Vec<WriteBatch> = (0..writer_count).map(series_of).collect();
    let sample_count: usize = (0..batch_count).map(|round| append_round(&head, &mut batches, round)).sum();
    println!("{sample_count} samples");
}

fn series_of(writer: usize) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    let mut labels = LabelsBuilder::new();
    for idx in writer * SERIES_PER_WRITER..(writer + 1) * SERIES_PER_WRITER {
        labels.clear();
        labels.push("__name__", &format!("http_requests_{}_total", idx % 20));
        labels.push("cluster", "eu-1");
        labels.push("instance", &format!("host-{:05}", idx / 20));
        labels.push("job", "api");
        batch.push_labels(&labels.finish(), &[(START_MS, 0.0)]);
    }
    batch
}

/// Appends one batch per writer, all committed together; returns the number of samples.
fn append_round(head: &Head, batches: &mut [WriteBatch], round: usize) -> usize {
    let (tenant, limits) = (StoreId::anonymous(), TenantLimits::default());
    let now_ms = START_MS + round as i64 * STEP_MS;
    let mut positions = Vec::with_capacity(batches.len());
    for batch in batches.iter_mut() {
        batch.times.fill(now_ms);
        for (idx, value) in batch.values.iter_mut().enumerate() {
            // Half integer counters, half gauges with two decimals.
            *value = if idx % 2 == 0 {
                (round * (idx + 1)) as f64
            } else {
                (round * 37 + idx) as f64 % 100.0 / 4.0
            };
        }
        let (outcome, position) = head.append(&tenant, &limits, now_ms, batch).expect("appended");
        assert_eq!(outcome.rejected_count(), 0, "all samples are in order");
        positions.push(position);
    }
    for position in positions {
        head.wait(position).expect("durable");
    }
    batches.iter().map(|batch| batch.values.len()).sum()
}
