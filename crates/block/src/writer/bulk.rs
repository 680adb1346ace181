//! Bulk writer: chunks come in order of arrival, series follow at the end, with label pairs by number of a
//! dictionary that many blocks share. For imports, where series are known but not in order.
//!
//! Invariants: the invariants of `writer`; series ascend by labels, which is checked as they are written.
//! Memory: the dictionary, 4 bytes per label pair of every series, 16 bytes per distinct pair.

use chronolith_format::block::index::{ChunkMeta, IndexWriter, TableEntry};
use chronolith_format::block::meta::BlockMeta;
use chronolith_format::block::tombstones::{Interval, Tombstones};

use super::postings::PostingsBuilder;
use super::sink::FileSink;
use super::{BlockSource, BlockWriter, publish};
use crate::BlockError;
use crate::dictionary::{LabelDictionary, LabelRanks};
use crate::layout::INDEX_FILE;

const NONE: u32 = u32::MAX;

/// One series of a block.
#[derive(Debug, Clone, Copy)]
pub struct BulkSeries<'a> {
    /// Label pairs of the series, by name.
    pub pairs: &'a [u32],
    /// Chunks of the series, ascending, none overlapping another; at least one.
    pub chunks: &'a [ChunkMeta],
    /// Samples in them.
    pub sample_count: u64,
    /// Native histograms among them.
    pub histogram_count: u64,
    /// Deleted intervals.
    pub deleted: &'a [Interval],
}

/// Called with each series of a block.
pub type BulkVisit<'a> = dyn FnMut(&BulkSeries<'_>) -> Result<(), BlockError> + 'a;

impl BlockWriter {
    /// Adds a chunk of any series; returns its position, for [`BlockWriter::finish_bulk`]. A chunk that
    /// belongs to no series there is never read.
    ///
    /// # Errors
    /// [`BlockError`]; the block cannot be completed then.
    ///
    /// # Panics
    /// If the last time is before the first.
    pub fn put_chunk(
        &mut self,
        encoding: u8,
        (min_time, max_time): (i64, i64),
        bytes: &[u8],
    ) -> Result<ChunkMeta, BlockError> {
        assert!(min_time <= max_time, "a chunk ends after it starts");
        let chunk_ref = self.segments.add(encoding, bytes)?;
        Ok(ChunkMeta { min_time, max_time, chunk_ref })
    }

    /// Completes the block of all chunks put: `walk` calls its argument with every series that has any,
    /// ascending by labels. It is called twice and must visit the same series. `None` (and nothing on disk)
    /// if there is no series.
    ///
    /// # Errors
    /// As [`BlockWriter::finish`].
    ///
    /// # Panics
    /// If series do not ascend, or chunks of one do not follow one another.
    pub fn finish_bulk(
        mut self,
        source: BlockSource,
        dictionary: &LabelDictionary,
        ranks: &LabelRanks,
        walk: &mut dyn FnMut(&mut BulkVisit<'_>) -> Result<(), BlockError>,
    ) -> Result<Option<BlockMeta>, BlockError> {
        let mut used = UsedPairs::new(dictionary);
        walk(&mut |series| {
            let (Some(first), Some(last)) = (series.chunks.first(), series.chunks.last()) else {
                return Ok(());
            };
            self.first_time = self.first_time.min(first.min_time);
            self.last_time = self.last_time.max(last.max_time);
            self.stats.num_samples += series.sample_count;
            self.stats.num_histogram_samples += series.histogram_count;
            used.add(series);
            Ok(())
        })?;
        self.stats.num_float_samples = self.stats.num_samples - self.stats.num_histogram_samples;
        if used.series_count == 0 {
            return Ok(None);
        }
        let (first, last, range) = (self.first_time, self.last_time, source.range);
        if !range.contains(first) || !range.contains(last) {
            return Err(BlockError::OutsideRange { first, last, range });
        }
        (self.stats.num_series, self.stats.num_chunks) = (used.series_count, used.chunk_count);
        let (index, tombstones) = self.write_bulk_index(dictionary, ranks, &used, walk)?;
        self.stats.num_tombstones = tombstones.interval_count() as u64;
        let written = self.end(index, &tombstones)?;
        publish(vec![(written, source)]).pop().transpose()
    }

    fn write_bulk_index(
        &mut self,
        dictionary: &LabelDictionary,
        ranks: &LabelRanks,
        used: &UsedPairs,
        walk: &mut dyn FnMut(&mut BulkVisit<'_>) -> Result<(), BlockError>,
    ) -> Result<(FileSink, Tombstones), BlockError> {
        let path = self.dir.path.join(INDEX_FILE);
        let sink = FileSink::create(&self.dir.env, &path)?;
        let symbol_of = used.symbol_table(dictionary, ranks);
        let symbols = used.symbols(dictionary, ranks, &symbol_of);
        let mut writer = IndexWriter::begin(sink, symbols).map_err(BlockError::index(&path))?;
        let mut postings = used.postings();
        let mut tombstones = Tombstones::new();
        let mut last: Vec<u32> = Vec::new();
        walk(&mut |series| {
            if series.chunks.is_empty() {
                return Ok(());
            }
            let follows = series.chunks.is_sorted_by(|a, b| a.max_time < b.min_time);
            assert!(follows, "chunks must follow one another: {:?}", series.chunks);
            assert!(ascends(&last, series.pairs, ranks), "series must ascend by labels");
            last.clear();
            last.extend_from_slice(series.pairs);
            let pair_symbols = series.pairs.iter().map(|&pair| {
                let (name, value) = dictionary.strings_of(pair);
                (symbol_of[name as usize], symbol_of[value as usize])
            });
            let written = writer.series(pair_symbols, series.chunks).map_err(BlockError::index(&path))?;
            postings.add(written, series.pairs);
            for &interval in series.deleted {
                tombstones.add(u64::from(written), interval);
            }
            Ok(())
        })?;
        writer.end_series().map_err(BlockError::index(&path))?;
        let all_offset = writer.postings(postings.all()).map_err(BlockError::index(&path))?;
        let mut offsets = Vec::new();
        for &pair in ranks.by_pair.iter().filter(|&&pair| used.has(pair)) {
            offsets.push((pair, writer.postings(postings.refs(pair)).map_err(BlockError::index(&path))?));
        }
        let all = std::iter::once(TableEntry { name: "", value: "", offset: all_offset });
        let entries = offsets.iter().map(|&(pair, offset)| {
            let (name, value) = dictionary.texts(pair);
            TableEntry { name, value, offset }
        });
        let sink = writer.finish(all.chain(entries)).map_err(BlockError::index(&path))?;
        Ok((sink, tombstones))
    }
}

fn ascends(last: &[u32], next: &[u32], ranks: &LabelRanks) -> bool {
    let rank = |pair: &u32| ranks.of(*pair);
    // Comparing numbers is cheap: most series share their first pairs with the one before.
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    last.is_empty() || last.iter().skip(shared).map(rank).lt(next.iter().skip(shared).map(rank))
}

/// Label pairs of the dictionary that a block has, with the number of series of each.
struct UsedPairs {
    series_counts: Vec<u32>,
    series_count: u64,
    chunk_count: u64,
}

impl UsedPairs {
    fn new(dictionary: &LabelDictionary) -> UsedPairs {
        UsedPairs { series_counts: vec![0; dictionary.len()], series_count: 0, chunk_count: 0 }
    }

    fn add(&mut self, series: &BulkSeries<'_>) {
        self.series_count += 1;
        self.chunk_count += series.chunks.len() as u64;
        for &pair in series.pairs {
            self.series_counts[pair as usize] += 1;
        }
    }

    fn has(&self, pair: u32) -> bool {
        self.series_counts[pair as usize] > 0
    }

    /// Symbol of each string: its index among the strings of the block.
    fn symbol_table(&self, dictionary: &LabelDictionary, ranks: &LabelRanks) -> Vec<u32> {
        let mut symbol_of = vec![NONE; dictionary.string_count()];
        for pair in (0u32..).take(dictionary.len()).filter(|&pair| self.has(pair)) {
            let (name, value) = dictionary.strings_of(pair);
            (symbol_of[name as usize], symbol_of[value as usize]) = (0, 0);
        }
        // The empty string is the first: see `symbols`.
        let mut symbol = 1;
        for &string in ranks.by_text.iter().filter(|&&string| !dictionary.string(string).is_empty()) {
            let entry = &mut symbol_of[string as usize];
            if *entry != NONE {
                *entry = symbol;
                symbol += 1;
            }
        }
        symbol_of
    }

    /// Symbols of the block, ascending. Nothing refers to the empty string, but Prometheus has it (as key of
    /// "all series") among its symbols.
    fn symbols<'a>(
        &self,
        dictionary: &'a LabelDictionary,
        ranks: &'a LabelRanks,
        symbol_of: &'a [u32],
    ) -> impl Iterator<Item = &'a str> + Clone {
        let used = ranks.by_text.iter().filter(|&&string| symbol_of[string as usize] != NONE);
        let texts = used.map(|&string| dictionary.string(string)).filter(|text| !text.is_empty());
        std::iter::once("").chain(texts)
    }

    fn postings(&self) -> PostingsBuilder {
        PostingsBuilder::new(self.series_counts.iter().copied(), self.series_count)
    }
}
