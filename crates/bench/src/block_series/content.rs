//! The published block: 1000 series of 5760 random doubles each, one day after another.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use chronolith_base::{Env, Rng};
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_format::block::chunks::chunk_len;
use chronolith_model::{BlockEncoding, Labels, LabelsBuilder, TimeRange};
use xxhash_rust::xxh64::xxh64;

use super::shape::{Shape, TENANT, VARIANT_COUNT};

const SERIES_COUNT: u64 = 1000;
const SAMPLE_COUNT: u64 = 5760;
const STEP_MS: i64 = 15_000;
const SERIES_MS: i64 = 86_400_000;
const SUFFIX: &str = "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd";
const CHUNK_SAMPLES: u64 = 120;
const SEGMENT_HEADER_BYTES: usize = 8;

/// Expected result of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) series_count: u64,
    pub(super) chunk_bytes: u64,
    /// Labels of the first series.
    pub(super) first: Option<Labels>,
}

/// The series of the block with the bytes of their chunks.
pub(super) struct Content {
    chunk_bytes: Vec<u64>,
    expected: Vec<(Shape, Vec<Expected>)>,
}

impl Content {
    /// Writes the block to the directory of the tenant below `dir`.
    pub(super) fn write(env: &Env, dir: &Path, encoding: BlockEncoding) -> Result<Content> {
        let tenant_dir = dir.join(TENANT);
        std::fs::create_dir_all(&tenant_dir)?;
        let mut writer = BlockWriter::create(env, &tenant_dir)?.with_encoding(encoding);
        let rng = Rng::from_seed(13);
        for series in 0..SERIES_COUNT {
            let start = series as i64 * SERIES_MS;
            let times: Vec<i64> = (0..SAMPLE_COUNT as i64).map(|idx| start + idx * STEP_MS).collect();
            let values: Vec<f64> = times.iter().map(|_| uniform(&rng)).collect();
            for (times, values) in
                times.chunks(CHUNK_SAMPLES as usize).zip(values.chunks(CHUNK_SAMPLES as usize))
            {
                writer.push_floats(times, values, &[])?;
            }
            writer.end_series(&labels(series))?;
        }
        let range = TimeRange::new(0, SERIES_COUNT as i64 * SERIES_MS);
        let meta = writer.finish(BlockSource::head(range))?.context("the block has no samples")?;
        let stats = &meta.stats;
        let chunk_count = SERIES_COUNT * SAMPLE_COUNT / CHUNK_SAMPLES;
        ensure!(stats.num_series == SERIES_COUNT && stats.num_chunks == chunk_count, "block has {stats:?}");
        let chunk_bytes = chunk_bytes_of_series(&tenant_dir.join(meta.ulid.to_string()))?;
        let expected = [Shape::Unsharded, Shape::Sharded].map(|shape| (shape, expected(shape, &chunk_bytes)));
        Ok(Content { chunk_bytes, expected: expected.into() })
    }

    pub(super) fn chunks_bytes(&self) -> u64 {
        self.chunk_bytes.iter().sum()
    }

    /// Returns the expected result of operation `idx`.
    pub(super) fn expected(&self, shape: Shape, idx: u64) -> Result<&Expected> {
        let of_shape = self.expected.iter().find(|(found, _)| *found == shape);
        let found = of_shape.and_then(|(_, all)| all.get((idx % VARIANT_COUNT) as usize));
        found.context("no such operation")
    }
}

/// Uniform in [0, 1) with 53 bits.
fn uniform(rng: &Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn value(series: u64) -> String {
    format!("{:07}{SUFFIX}", series * SAMPLE_COUNT)
}

fn labels(series: u64) -> Labels {
    let mut builder = LabelsBuilder::default();
    builder.push("foo", "bar");
    builder.push("i", &value(series));
    builder.finish()
}

fn shard_of(labels: &Labels) -> u64 {
    let mut bytes = Vec::new();
    for (name, value) in labels.iter() {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0xff);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0xff);
    }
    xxh64(&bytes, 0) % VARIANT_COUNT
}

fn expected(shape: Shape, chunk_bytes: &[u64]) -> Vec<Expected> {
    let of_variant = |variant: u64| {
        let mut expected = Expected::default();
        for (series, bytes) in (0u64..).zip(chunk_bytes) {
            let is_selected = match shape {
                Shape::Unsharded => value(series).contains(&variant.to_string()),
                Shape::Sharded => shard_of(&labels(series)) == variant,
            };
            if is_selected {
                expected.series_count += 1;
                expected.chunk_bytes += bytes;
                expected.first.get_or_insert_with(|| labels(series));
            }
        }
        expected
    };
    (0..VARIANT_COUNT).map(of_variant).collect()
}

/// Bytes of the chunks of each series, lengths and checksums included, from the segments.
fn chunk_bytes_of_series(dir: &Path) -> Result<Vec<u64>> {
    let mut lens = Vec::new();
    for number in 1.. {
        let Ok(segment) = std::fs::read(dir.join(format!("chunks/{number:06}"))) else { break };
        let mut at = SEGMENT_HEADER_BYTES;
        while at < segment.len() {
            let len = chunk_len(&segment[at..]).context("a chunk is cut")?;
            lens.push(len);
            at += len as usize;
        }
    }
    let per_series = (SAMPLE_COUNT / CHUNK_SAMPLES) as usize;
    let sums: Vec<u64> = lens.chunks(per_series).map(|chunks| chunks.iter().sum()).collect();
    ensure!(sums.len() as u64 == SERIES_COUNT, "chunks of {} series", sums.len());
    Ok(sums)
}
