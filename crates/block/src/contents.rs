//! Contents of an open block: index header, tombstones and meta in memory, everything else read from its
//! source.
//!
//! Invariant: postings, series and chunks are verified when they are read, not when the block is opened.
//! Not here: opening (`open`), the waves of a query (`select`).

use std::path::Path;
use std::sync::Arc;

use chronolith_base::{DecodeError, MemoryBudget};
use chronolith_format::block::index::{ChunkMeta, IndexHeader};
use chronolith_format::block::meta::BlockMeta;
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_model::index::RegexCache;
use chronolith_model::{QueryError, TimeRange};

use crate::error::query_error;
use crate::own_times::OwnTimes;
use crate::rollup::{RollupVerification, Rollups};
use crate::shard::HashCache;
use crate::source::{BlockFile, BlockFiles, ByteSource, RangeBytes, Wave};
use crate::waves::{ChunkWave, SeriesWave};

/// Bounds of the length that a chunk is taken to have: twice the average, so that most are not longer.
const CHUNK_BYTES_ESTIMATE_MIN: u64 = 128;
const CHUNK_BYTES_ESTIMATE_MAX: u64 = 64 << 10;
/// Bounds of the length that a series entry is taken to have: a quarter more than the average. Most have ten
/// labels of two symbols and a few chunks.
const SERIES_BYTES_ESTIMATE_MIN: u64 = 512;
const SERIES_BYTES_ESTIMATE_MAX: u64 = 16 << 10;

/// Contents of an open block.
pub(crate) struct BlockContents {
    meta: BlockMeta,
    header: IndexHeader,
    tombstones: Tombstones,
    source: Box<dyn ByteSource>,
    regex_cache: RegexCache,
    chunk_bytes_estimate: u64,
    series_bytes_estimate: u64,
    hashes: HashCache,
    own_times: OwnTimes,
    rollups: Option<Arc<Rollups>>,
}

impl BlockContents {
    pub(crate) fn new(
        meta: BlockMeta,
        header: IndexHeader,
        tombstones: Tombstones,
        source: Box<dyn ByteSource>,
        regex_cache: RegexCache,
    ) -> BlockContents {
        let average = source.files().chunks_bytes() / meta.stats.num_chunks.max(1);
        let chunk_bytes_estimate = (2 * average).clamp(CHUNK_BYTES_ESTIMATE_MIN, CHUNK_BYTES_ESTIMATE_MAX);
        let entries = header.toc().section(header.toc().series, header.file_len());
        let average = entries.end.saturating_sub(entries.start) / meta.stats.num_series.max(1);
        let series_bytes_estimate =
            (average + average / 4).clamp(SERIES_BYTES_ESTIMATE_MIN, SERIES_BYTES_ESTIMATE_MAX);
        let hashes = HashCache::default();
        let own_times = OwnTimes::default();
        BlockContents {
            meta,
            header,
            tombstones,
            source,
            regex_cache,
            chunk_bytes_estimate,
            series_bytes_estimate,
            hashes,
            own_times,
            rollups: None,
        }
    }

    /// The same contents with roll-ups.
    pub(crate) fn with_rollups(self, rollups: Option<Arc<Rollups>>) -> BlockContents {
        BlockContents { rollups, ..self }
    }

    /// Roll-ups, if there are any.
    pub(crate) fn rollups(&self) -> Option<&Arc<Rollups>> {
        self.rollups.as_ref()
    }

    pub(crate) fn rollup_verification(&self) -> RollupVerification {
        RollupVerification::new(self.rollups.clone())
    }

    pub(crate) fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    pub(crate) fn header(&self) -> &IndexHeader {
        &self.header
    }

    pub(crate) fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    /// Deleted intervals of a series.
    pub(crate) fn deleted(&self, series_ref: u32) -> &[Interval] {
        self.tombstones.get(u64::from(series_ref))
    }

    pub(crate) fn regex_cache(&self) -> &RegexCache {
        &self.regex_cache
    }

    /// Hashes of the labels of its series.
    pub(crate) fn hashes(&self) -> &HashCache {
        &self.hashes
    }

    pub(crate) fn files(&self) -> &BlockFiles {
        self.source.files()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.source.files().dir()
    }

    pub(crate) fn range(&self) -> TimeRange {
        self.meta.range()
    }

    /// Returns true if readers hold files of the block open.
    pub(crate) fn has_readers(&self) -> bool {
        self.source.has_readers()
            || self.rollups.as_ref().is_some_and(|rollups| Arc::strong_count(rollups) > 1)
    }

    /// Bytes that the chunks of one wave should have at most, if that matters.
    pub(crate) fn wave_bytes_max(&self) -> Option<u64> {
        self.source.wave_bytes_max()
    }

    /// Bytes that a chunk is taken to have if no chunk of its series follows it.
    pub(crate) fn chunk_bytes_estimate(&self) -> u64 {
        self.chunk_bytes_estimate
    }

    /// The wave of the entries of the series `refs`.
    pub(crate) fn series_wave<'a>(&'a self, refs: &'a [u32]) -> SeriesWave<'a> {
        SeriesWave { header: &self.header, refs, entry_bytes_estimate: self.series_bytes_estimate }
    }

    /// Reads the items of `wave`.
    pub(crate) fn read(&self, wave: &dyn Wave, budget: &MemoryBudget) -> Result<RangeBytes, QueryError> {
        self.source.read(wave, budget)
    }

    /// The wave of the chunks of `series`.
    pub(crate) fn chunk_wave<'a, S: AsRef<[ChunkMeta]>>(&'a self, series: &'a [S]) -> ChunkWave<'a, S> {
        let chunk_bytes_estimate = self.chunk_bytes_estimate;
        ChunkWave { series, chunk_bytes_estimate, own_times: Some(&self.own_times) }
    }

    /// The answer to a query that needs a damaged part of the index.
    #[cold]
    pub(crate) fn index_error(&self, error: &DecodeError) -> QueryError {
        query_error(&self.files().path(BlockFile::Index), error)
    }

    /// The answer to a query that needs a series whose entry contradicts itself or others.
    #[cold]
    pub(crate) fn series_error(&self, series_ref: u32, what: &str) -> QueryError {
        let path = self.files().path(BlockFile::Index).display().to_string();
        let offset = self.header.series_offset(series_ref);
        QueryError::Corrupt { path, what: format!("series at offset {offset} {what}") }
    }
}
