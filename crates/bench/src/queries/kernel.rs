//! Benchmark `rate-kernel`: `sum(rate(x[5m]))` over dense chunks in memory, on one core, in samples per
//! second.
//!
//! Invariants: the engine is the server's, from plan to result; only index and files are left out. Decoding
//! alone is measured as well; the difference is the cost of windows and sums.
//! Not here: the encodings (`format`).

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use chronolith_base::SystemClock;
use chronolith_format::chunk::dense::{self, DenseScratch};
use chronolith_model::query::{Opened, Read, Source, VecBatches};
use chronolith_model::{
    Columns, Labels, LabelsBuilder, QueryError, ReadContext, SampleSource, SeriesRead, TimeRange,
};
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{Engine, EngineOptions, Query, Value};

use super::corpus::STEP_MS;
use crate::driver::{Benchmark, Run};
use crate::latency::{median, timed};
use crate::report::Table;
use crate::traffic::mix;

/// Samples of one chunk.
const CHUNK_SAMPLES: usize = 1024;
const START_MS: i64 = 1_700_000_000_000 / STEP_MS * STEP_MS;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of series.
    #[arg(long, default_value_t = 2000)]
    series: usize,
    /// Samples per series, 15 s apart.
    #[arg(long, default_value_t = 5760)]
    samples: usize,
    /// Seconds between steps.
    #[arg(long, default_value_t = 60)]
    step: i64,
    /// Number of timed runs.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Query to compute.
    #[arg(long, default_value = "sum(rate(x[5m]))")]
    query: String,
}

/// A chunk and the times it holds.
struct Chunk {
    bytes: Vec<u8>,
    first_ms: i64,
    last_ms: i64,
    count: usize,
}

#[derive(Clone)]
struct Chunks(Arc<Vec<Chunk>>);

struct DenseSource {
    series: Vec<(Labels, Chunks)>,
}

impl SampleSource for Chunks {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        for chunk in self.0.iter().filter(|chunk| range.overlaps_inclusive(chunk.first_ms, chunk.last_ms)) {
            dense::decode(&chunk.bytes, range, out).map_err(|error| QueryError::Corrupt {
                path: "memory".to_owned(),
                what: error.to_string(),
            })?;
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.iter().map(|chunk| chunk.count).sum()
    }
}

impl Source for DenseSource {
    /// Queries over it ask for all its series.
    fn open(&self, _: Read, _: &ReadContext) -> Result<Opened, QueryError> {
        let read = |(labels, chunks): &(Labels, Chunks)| SeriesRead {
            labels: labels.clone(),
            samples: Box::new(chunks.clone()),
        };
        Ok(Opened::Series(Box::new(VecBatches::new(self.series.iter().map(read).collect()))))
    }
}

impl DenseSource {
    fn new(options: &Options) -> DenseSource {
        let mut scratch = DenseScratch::default();
        let mut series: Vec<(Labels, Chunks)> = (0..options.series)
            .map(|idx| (labels(idx), chunks(idx, options.samples, &mut scratch)))
            .collect();
        series.sort_by(|a, b| a.0.cmp(&b.0));
        DenseSource { series }
    }

    fn bytes(&self) -> usize {
        self.series.iter().flat_map(|(_, chunks)| chunks.0.iter()).map(|chunk| chunk.bytes.len()).sum()
    }
}

fn labels(idx: usize) -> Labels {
    let mut labels = LabelsBuilder::new();
    labels.push("__name__", "x");
    labels.push("instance", &format!("10.0.{}.{}:9100", idx / 250, idx % 250));
    labels.finish()
}

/// A counter that rises by a few units a step.
fn chunks(idx: usize, samples: usize, scratch: &mut DenseScratch) -> Chunks {
    let times: Vec<i64> = (0..samples as i64).map(|k| START_MS + k * STEP_MS).collect();
    let mut value = 0;
    let values: Vec<f64> = (0..samples)
        .map(|k| {
            value += mix((idx as u64) << 32 | k as u64) % 50;
            value as f64
        })
        .collect();
    let chunk = |(times, values): (&[i64], &[f64])| {
        let mut bytes = Vec::new();
        dense::encode(times, values, scratch, &mut bytes);
        Chunk { bytes, first_ms: times[0], last_ms: times[times.len() - 1], count: times.len() }
    };
    Chunks(Arc::new(times.chunks(CHUNK_SAMPLES).zip(values.chunks(CHUNK_SAMPLES)).map(chunk).collect()))
}

impl Benchmark for Options {
    fn measure(&self, run: &mut Run) -> Result<()> {
        ensure!(self.series > 0 && self.samples > 1 && self.rounds > 0, "all counts must be above 0");
        let source = DenseSource::new(self);
        let sample_count = (self.series * self.samples) as f64;
        let bytes = source.bytes() as f64 / sample_count;
        run.note(format!(
            "{} series, {} samples each, {bytes:.2} bytes per sample",
            self.series, self.samples
        ));
        let mut table = Table::new("one core, in memory", ["M samples/s/core", "ns per sample"]);
        let mut row = |what: &str, list_ms: &[f64]| {
            let seconds = median(list_ms) / 1e3;
            table.mixed_row(what, [(1, sample_count / seconds / 1e6), (2, seconds * 1e9 / sample_count)]);
        };
        row("decode alone", &self.decode(&source)?);
        row(&self.query, &self.evaluate(&source)?);
        run.table(table);
        Ok(())
    }
}

impl Options {
    /// Decodes all chunks; returns the milliseconds of each round.
    fn decode(&self, source: &DenseSource) -> Result<Vec<f64>> {
        let mut list_ms = Vec::new();
        for _ in 0..self.rounds {
            timed(&mut list_ms, || -> Result<()> {
                let mut columns = Columns::default();
                for (_, chunks) in &source.series {
                    columns.clear();
                    chunks.read(TimeRange::ALL, &mut columns)?;
                    ensure!(columns.len() == self.samples, "{} samples were read", columns.len());
                }
                Ok(())
            })?;
        }
        Ok(list_ms)
    }

    /// Evaluates the query; returns the milliseconds of each round.
    fn evaluate(&self, source: &DenseSource) -> Result<Vec<f64>> {
        let expr = parse_expr(&self.query, ParserOptions::default())?;
        let query = Query {
            text: &self.query,
            expr: &expr,
            start_ms: START_MS + 300_000,
            end_ms: START_MS + (self.samples as i64 - 1) * STEP_MS,
            step_ms: self.step * 1000,
            lookback_ms: None,
        };
        let engine = Engine::new(EngineOptions { threads: 1, ..EngineOptions::default() });
        let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
        let mut list_ms = Vec::new();
        for _ in 0..self.rounds {
            let result = timed(&mut list_ms, || engine.run(source, &query, &ctx)).context("the query")?;
            let Value::Matrix(series) = result.value else { anyhow::bail!("not a matrix") };
            ensure!(!series.is_empty() && result.samples_read > 0, "an empty result");
        }
        Ok(list_ms)
    }
}
