//! Blocks written and read: against a model, against Prometheus's files and tools, damaged, interrupted.

mod damage;
mod dense;
mod golden;
mod patterns;
pub(crate) mod promtool;
mod round_trip;
mod shapes;
mod starts;

#[path = "../../format/testdata/golden/text.rs"]
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_format::block::meta::BlockMeta;
use chronolith_format::chunk::xor;
use chronolith_model::{Columns, Labels, Matcher, QueryError, Queryable, ReadContext, Selector, TimeRange};

use crate::{Block, BlockSource, BlockWriter};

pub(crate) const DIR: &str = "/blocks";
pub(crate) const WINDOW: TimeRange = TimeRange { start: 1_600_000_000_000, end: 1_600_007_200_000 };

/// Samples with the bits of their values.
pub(crate) type Bits = BTreeMap<Labels, Vec<(i64, u64)>>;

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied())
}

pub(crate) fn bits_of(series: &text::Series) -> Bits {
    // A NaN of a text has Prometheus's bits, not Rust's.
    let bits = |v: f64| if v.is_nan() { chronolith_model::sample::NORMAL_NAN_BITS } else { v.to_bits() };
    let one = |samples: &[(i64, f64)]| samples.iter().map(|&(t, v)| (t, bits(v))).collect();
    series.iter().map(|(labels, samples)| (labels.clone(), one(samples))).collect()
}

/// Several series with several chunks.
pub(crate) fn some_series(series_count: i64, sample_count: i64) -> Bits {
    let one = |i: i64| {
        let labels =
            labels(&[("__name__", "m"), ("i", &format!("{i:03}")), ("even", ["", "yes"][(i & 1) as usize])]);
        let sample = |s: i64| (WINDOW.start + s * 1000 + i, ((s * i) as f64 * 0.1).to_bits());
        (labels, (0..sample_count).map(sample).collect())
    };
    (0..series_count).map(one).collect()
}

pub(crate) fn add_all(mut writer: BlockWriter, series: &Bits) -> BlockWriter {
    for (labels, samples) in series {
        let times: Vec<i64> = samples.iter().map(|s| s.0).collect();
        let values: Vec<f64> = samples.iter().map(|s| f64::from_bits(s.1)).collect();
        writer.add(labels, &xor::encode(&times, &values)).unwrap();
    }
    writer
}

pub(crate) fn write(env: &Env, dir: &Path, series: &Bits, range: TimeRange) -> Option<BlockMeta> {
    add_all(BlockWriter::create(env, dir).unwrap(), series).finish(BlockSource::head(range)).unwrap()
}

pub(crate) fn block_dir(meta: &BlockMeta) -> PathBuf {
    Path::new(DIR).join(meta.ulid.to_string())
}

/// A block in memory with these series.
pub(crate) fn fake_block(series: &Bits) -> (Env, PathBuf) {
    let (env, _, _) = Env::fake(WINDOW.end, 7);
    let meta = write(&env, Path::new(DIR), series, WINDOW).unwrap();
    (env, block_dir(&meta))
}

pub(crate) fn context(env: &Env) -> ReadContext {
    ReadContext::unlimited(env.clock.clone())
}

pub(crate) fn read_selected(
    env: &Env,
    block: &Block,
    matchers: &[Matcher],
    range: TimeRange,
) -> Result<Bits, QueryError> {
    let mut batches = block.select(&Selector { matchers, range }, &context(env))?;
    let mut found = Vec::new();
    while batches.next_batch(&mut found)? {}
    let mut out = Bits::new();
    let mut last: Option<Labels> = None;
    for series in found {
        assert!(last.as_ref().is_none_or(|last| *last < series.labels), "series ascend");
        last = Some(series.labels.clone());
        let mut columns = Columns::default();
        series.samples.read(range, &mut columns)?;
        assert!(columns.times.is_sorted_by(|a, b| a < b), "samples ascend");
        assert!(columns.len() <= series.samples.sample_count_hint(), "the hint is an upper bound");
        let samples: Vec<_> =
            columns.times.into_iter().zip(columns.values.iter().map(|v| v.to_bits())).collect();
        if !samples.is_empty() {
            out.insert(series.labels, samples);
        }
    }
    Ok(out)
}

pub(crate) fn read_all(env: &Env, block: &Block) -> Result<Bits, QueryError> {
    read_selected(env, block, &[], TimeRange::ALL)
}
