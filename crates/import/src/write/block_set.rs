//! Open block writers, one per time range: chunks are written as they fill, indices at the end.
//!
//! Invariants: a chunk lies within one range; no block is visible before `finish`; ULIDs ascend in the order
//! in which blocks were begun, so that the first value wins: at equal timestamps the sample in the block
//! begun first is read.
//! Not here: grouping of samples into chunks (`collect`), their encoding (`chunk_encoder`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_block::{BlockError, BlockSource, BlockWriter, BulkSeries, LabelDictionary, LabelRanks};
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::meta::Ulid;
use chronolith_format::block::tombstones::Interval;
use chronolith_model::query::SampleKind;
use chronolith_model::{BlockEncoding, Columns, TimeRange};

use super::chunk_encoder::ChunkEncoder;

/// Position of a series that is left out of a block.
pub(crate) const NO_POSITION: u32 = u32::MAX;
/// Range of a recent block.
const WINDOW_MS: i64 = 2 * 3_600_000;
/// Range of a block of samples whose day ended long ago.
const OLD_WINDOW_MS: i64 = 24 * 3_600_000;
/// Open writers; samples of further ranges are buffered like out-of-order ones.
const RANGES_OPEN_MAX: usize = 64;

/// A written chunk and its series.
struct ChunkEntry {
    series: u32,
    count: u16,
    kind: SampleKind,
    meta: ChunkMeta,
}

impl ChunkEntry {
    fn histogram_count(&self) -> u64 {
        if self.kind == SampleKind::Histogram { u64::from(self.count) } else { 0 }
    }
}

struct OpenBlock {
    range: TimeRange,
    writer: BlockWriter,
    entries: Vec<ChunkEntry>,
}

/// Series of a block with their labels and their order by labels.
pub(crate) struct LabelOrder<'a> {
    pub(crate) dictionary: &'a LabelDictionary,
    pub(crate) ranks: &'a LabelRanks,
    /// Position of each series by labels, or [`NO_POSITION`].
    pub(crate) positions: &'a [u32],
    /// Label pairs of a series, by name.
    pub(crate) pairs_of: &'a dyn Fn(u32) -> &'a [u32],
    /// Deleted intervals of a series.
    pub(crate) deleted: &'a dyn Fn(u32) -> Vec<Interval>,
}

/// Blocks that are complete and durable.
#[derive(Debug, Default)]
pub(crate) struct FinishedBlocks {
    pub(super) ulids: Vec<Ulid>,
    pub(crate) sample_count: u64,
    /// Samples that are histograms.
    pub(crate) histogram_count: u64,
    /// Samples of series that were left out.
    pub(crate) dropped_count: u64,
}

/// Blocks that are being written.
pub(crate) struct BlockSet {
    env: Env,
    blocks_dir: PathBuf,
    now_ms: i64,
    /// By start of their range.
    open: BTreeMap<i64, OpenBlock>,
    encoder: ChunkEncoder,
    /// Newest ULID of the directory, open blocks included.
    newest: Option<Ulid>,
}

impl BlockSet {
    /// `newest` is the newest ULID in `blocks_dir`.
    pub(crate) fn new(
        env: &Env,
        blocks_dir: &Path,
        encoding: BlockEncoding,
        newest: Option<Ulid>,
    ) -> BlockSet {
        BlockSet {
            env: env.clone(),
            blocks_dir: blocks_dir.to_owned(),
            now_ms: env.clock.now_ms(),
            open: BTreeMap::new(),
            encoder: ChunkEncoder::new(encoding),
            newest,
        }
    }

    /// Samples of a full float chunk.
    pub(crate) fn chunk_samples(&self) -> u16 {
        self.encoder.chunk_samples()
    }

    /// Range of the block that holds `time`: two hours, or the day if that ended long ago, as a flush chooses
    /// it.
    pub(crate) fn range_of(&self, time: i64) -> TimeRange {
        let day = TimeRange::window_of(time, OLD_WINDOW_MS);
        if day.end <= self.now_ms.saturating_sub(OLD_WINDOW_MS) {
            day
        } else {
            TimeRange::window_of(time, WINDOW_MS)
        }
    }

    /// Returns true if the block of `range` is open or may be begun.
    pub(crate) fn has_room(&self, range: TimeRange) -> bool {
        self.open.contains_key(&range.start) || self.open.len() < RANGES_OPEN_MAX
    }

    /// Begins the block of `range` unless it is open.
    pub(crate) fn begin(&mut self, range: TimeRange) -> Result<(), BlockError> {
        if !self.open.contains_key(&range.start) {
            let writer = BlockWriter::create_after(&self.env, &self.blocks_dir, self.newest)?;
            self.newest = Some(writer.ulid());
            self.open.insert(range.start, OpenBlock { range, writer, entries: Vec::new() });
        }
        Ok(())
    }

    /// Writes samples of one series, all in `range`, as chunks.
    pub(crate) fn append(
        &mut self,
        series: u32,
        range: TimeRange,
        samples: &Columns,
    ) -> Result<(), BlockError> {
        self.begin(range)?;
        let Some(block) = self.open.get_mut(&range.start) else { return Ok(()) };
        self.encoder.encode(samples, &mut |chunk| {
            let meta = block.writer.put_chunk(chunk.encoding, chunk.times, chunk.bytes)?;
            block.entries.push(ChunkEntry { series, count: chunk.count, kind: chunk.kind, meta });
            Ok(())
        })
    }

    /// ULIDs of the blocks that [`BlockSet::finish`] will complete. Empty ones will not appear.
    pub(crate) fn ulids(&self) -> Vec<Ulid> {
        self.open.values().map(|block| block.writer.ulid()).collect()
    }

    /// Returns an empty set whose ULIDs follow the ULIDs of this set.
    pub(crate) fn empty_successor(&self) -> BlockSet {
        BlockSet::new(&self.env, &self.blocks_dir, self.encoder.encoding(), self.newest)
    }

    /// Continues with ULIDs after the ULIDs of `successor`.
    pub(crate) fn continue_after(&mut self, successor: &BlockSet) {
        self.newest = successor.newest;
    }

    /// Completes all blocks with the series of `order`.
    pub(crate) fn finish(&mut self, order: &LabelOrder<'_>) -> Result<FinishedBlocks, BlockError> {
        let mut finished = FinishedBlocks::default();
        while let Some((_, OpenBlock { range, writer, mut entries })) = self.open.pop_first() {
            let position = |entry: &ChunkEntry| order.positions[entry.series as usize];
            entries.retain(|entry| {
                let is_kept = position(entry) != NO_POSITION;
                finished.dropped_count += u64::from(entry.count) * u64::from(!is_kept);
                is_kept
            });
            entries.sort_by_key(|entry| (position(entry), entry.meta.min_time));
            let mut chunks = Vec::new();
            let written = writer.finish_bulk(
                BlockSource::head(range),
                order.dictionary,
                order.ranks,
                &mut |visit| {
                    for of_series in entries.chunk_by(|a, b| a.series == b.series) {
                        let Some(first) = of_series.first() else { continue };
                        chunks.clear();
                        chunks.extend(of_series.iter().map(|entry| entry.meta));
                        visit(&BulkSeries {
                            pairs: (order.pairs_of)(first.series),
                            chunks: &chunks,
                            sample_count: of_series.iter().map(|entry| u64::from(entry.count)).sum(),
                            histogram_count: of_series.iter().map(ChunkEntry::histogram_count).sum(),
                            deleted: &(order.deleted)(first.series),
                        })?;
                    }
                    Ok(())
                },
            )?;
            if let Some(meta) = written {
                finished.sample_count += meta.stats.num_samples;
                finished.histogram_count += meta.stats.num_histogram_samples;
                finished.ulids.push(meta.ulid);
            }
        }
        Ok(finished)
    }
}
