//! Blocks written and read: against a model, against Prometheus's files and tools, damaged, interrupted.

mod damage;
mod dense;
mod golden;
pub(crate) mod promtool;
mod ranged;
mod regexes;
mod round_trip;
mod shapes;
mod sidecars;
mod starts;

#[path = "../../format/testdata/golden/text.rs"]
mod text;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Env, MemoryBudget};
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::meta::BlockMeta;
use chronolith_format::chunk::xor;
use chronolith_model::{Columns, Labels, Matcher, QueryError, Queryable, ReadContext, Selector, TimeRange};

use crate::compact::Pace;
use crate::postings::all_refs;
use crate::series_reader::SeriesReader;
use crate::source::{RangeBytes, RangedFiles, RangedMeter};
use crate::{Block, BlockError, BlockSource, BlockWriter};

pub(crate) const DIR: &str = "/blocks";
pub(crate) const WINDOW: TimeRange = TimeRange { start: 1_600_000_000_000, end: 1_600_007_200_000 };

/// Samples with the bits of their values.
pub(crate) type Bits = BTreeMap<Labels, Vec<(i64, u64)>>;

/// Neither waits nor stops.
pub(crate) struct Unhurried;

impl Pace for Unhurried {
    fn spend(&self, _bytes: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

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

/// Largest gap in bytes between ranges of a block that tests read together.
const GAP_BYTES: u64 = 64;

/// Opens the block in `dir` so that ranges of its files are read.
pub(crate) fn open_ranged(env: &Env, dir: &Path) -> Result<(Arc<Block>, RangedMeter), BlockError> {
    let files = RangedFiles::open(env, dir, GAP_BYTES)?;
    let meter = files.meter();
    Ok((Block::open_source(env, dir, Box::new(files))?, meter))
}

/// Returns the answers of a mapped block; fails if the same block, read by range, answers otherwise.
fn same_answer<T: PartialEq + std::fmt::Debug>(
    env: &Env,
    block: &Block,
    ask: impl Fn(&dyn Queryable) -> Result<T, QueryError>,
) -> Result<T, QueryError> {
    let answer = ask(block as &dyn Queryable);
    match open_ranged(env, block.dir()) {
        Ok((ranged, _)) => {
            let found = ask(&*ranged).map_err(|error| error.to_string());
            match &answer {
                Ok(want) => assert_eq!(found.as_ref(), Ok(want), "read by range"),
                Err(want) => assert_eq!(found, Err(want.to_string()), "read by range"),
            }
        }
        Err(error) => assert!(Block::open(env, block.dir()).is_err(), "only by range: {error}"),
    }
    if let Ok(want) = &answer {
        for by_sidecar in sidecars::open_by_sidecar(env, block) {
            assert_eq!(ask(&by_sidecar).as_ref().map_err(ToString::to_string), Ok(want), "read by sidecar");
        }
    }
    answer
}

/// Label names, from a map and read by range.
pub(crate) fn label_names(
    env: &Env,
    block: &Block,
    selector: &Selector<'_>,
    limit: usize,
) -> Result<Vec<String>, QueryError> {
    same_answer(env, block, |block| block.label_names(selector, limit, &context(env)))
}

/// Label values, from a map and read by range.
pub(crate) fn label_values(
    env: &Env,
    block: &Block,
    name: &str,
    selector: &Selector<'_>,
    limit: usize,
) -> Result<Vec<String>, QueryError> {
    same_answer(env, block, |block| block.label_values(name, selector, limit, &context(env)))
}

/// Selected series with their samples, from a map and read by range.
pub(crate) fn read_selected(
    env: &Env,
    block: &Block,
    matchers: &[Matcher],
    range: TimeRange,
) -> Result<Bits, QueryError> {
    same_answer(env, block, |block| read_one_source(env, block, matchers, range))
}

pub(crate) fn read_one_source(
    env: &Env,
    block: &dyn Queryable,
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

/// All samples, from a map and read by range. A block without damage has a sidecar with its series.
pub(crate) fn read_all(env: &Env, block: &Block) -> Result<Bits, QueryError> {
    let found = read_selected(env, block, &[], TimeRange::ALL)?;
    // Some tests read a block whose files were removed.
    if env.disk.exists(block.dir()) && block.verify().is_empty() {
        sidecars::check_sidecar(env, block);
    }
    Ok(found)
}

/// A series as the index has it.
pub(crate) struct StoredSeries {
    pub(crate) series_ref: u32,
    pub(crate) labels: Labels,
    pub(crate) chunks: Vec<ChunkMeta>,
}

/// All series of the index.
pub(crate) fn stored_series(block: &Block) -> Vec<StoredSeries> {
    let (contents, budget) = (block.contents(), MemoryBudget::new("test", u64::MAX));
    let mut series = SeriesReader::new(all_refs(contents, &budget).unwrap());
    let mut out = Vec::new();
    while let Some(series_ref) = series.next_ref(contents, &budget).unwrap() {
        let entry = series.decode(contents, series_ref).unwrap();
        out.push(StoredSeries { series_ref, labels: entry.labels(), chunks: entry.chunks.clone() });
    }
    out
}

/// Bytes of a block's chunks.
pub(crate) fn chunk_bytes(block: &Block, chunks: &[ChunkMeta]) -> RangeBytes {
    let (contents, budget) = (block.contents(), MemoryBudget::new("test", u64::MAX));
    contents.read(&contents.chunk_wave(&[chunks]), &budget).unwrap()
}
