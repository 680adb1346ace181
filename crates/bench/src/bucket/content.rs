//! Blocks of the benchmark: a day of a million series, a year of ten series, a month to scan.
//!
//! Invariant: the metrics that queries read have a sample every 15 s; the others are there for the size of
//! the index and have one per hour.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use chronolith_base::Env;
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_model::{Labels, LabelsBuilder, TimeRange};

use crate::traffic::mix;

pub(super) const DAY_MS: i64 = 86_400_000;
pub(super) const STEP_MS: i64 = 15_000;
const SPARSE_STEP_MS: i64 = 3_600_000;
/// Series of a metric.
const METRIC_SERIES: u64 = 1000;
/// Samples of a chunk, as the writer of compacted blocks has them.
const CHUNK_SAMPLES: usize = 4096;

/// Series of a block: `metrics` metrics of 1000 series; the `dense` first series of the metric in the middle
/// have all samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) metrics: u64,
    pub(super) dense: u64,
}

/// Name of the metric with all samples.
pub(super) fn dense_metric(shape: Shape) -> String {
    metric(shape.metrics / 2)
}

fn metric(number: u64) -> String {
    format!("bench_metric_{number:04}_total")
}

/// Writes a block with samples in `range` to `parent`; returns its directory.
pub(super) fn write_block(env: &Env, parent: &Path, range: TimeRange, shape: Shape) -> Result<PathBuf> {
    std::fs::create_dir_all(parent)?;
    let mut writer = BlockWriter::create(env, parent)?;
    let mut samples = Samples::default();
    for number in 0..shape.metrics {
        for series in 0..METRIC_SERIES {
            let is_dense = number == shape.metrics / 2 && series < shape.dense;
            if number == shape.metrics / 2 && !is_dense {
                continue;
            }
            let step_ms = if is_dense { STEP_MS } else { SPARSE_STEP_MS };
            samples.fill(range, step_ms, number * METRIC_SERIES + series);
            let chunks = samples.times.chunks(CHUNK_SAMPLES).zip(samples.values.chunks(CHUNK_SAMPLES));
            for (times, values) in chunks {
                writer.push_floats(times, values, &[])?;
            }
            writer.end_series(&labels(number, series))?;
        }
    }
    let meta = writer.finish(BlockSource::head(range))?.context("the block has no samples")?;
    Ok(parent.join(meta.ulid.to_string()))
}

fn labels(number: u64, series: u64) -> Labels {
    let mut builder = LabelsBuilder::default();
    builder.push("__name__", &metric(number));
    builder.push("instance", &format!("host-{series:04}.eu-central-1.example.net:9100"));
    builder.push("job", "node");
    builder.push("zone", ["a", "b", "c"][(series % 3) as usize]);
    builder.finish()
}

/// Samples of one series: a counter that grows by whole numbers.
#[derive(Default)]
struct Samples {
    times: Vec<i64>,
    values: Vec<f64>,
}

impl Samples {
    fn fill(&mut self, range: TimeRange, step_ms: i64, seed: u64) {
        self.times.clear();
        self.values.clear();
        let mut value = (mix(seed) % 1_000_000) as f64;
        let mut time = range.start;
        while time < range.end {
            value += (mix(seed ^ (time as u64)) % 512) as f64;
            self.times.push(time);
            self.values.push(value);
            time += step_ms;
        }
    }
}
