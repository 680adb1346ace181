//! Bytes that the chunks of a metric take in a block.
//!
//! Writers of blocks put chunks in the order of their series, and series are in the order of their labels.
//! So the chunks of a metric are one range of the segments if no label name of the block sorts before
//! [`METRIC_NAME`], and the first and the last of its series are its bounds. Otherwise each of its series is
//! a range.
//! Not here: bytes of the index, which metrics share (`Block::immutable_bytes`).

#[cfg(test)]
mod tests;

use chronolith_format::block::chunks::chunk_len;
use chronolith_format::block::index::ChunkMeta;
use chronolith_model::{METRIC_NAME, Matcher, QueryError, ReadContext};

use crate::Block;
use crate::contents::BlockContents;
use crate::label_queries::for_each_list;
use crate::postings::select_refs;
use crate::series_reader::SeriesReader;
use crate::source::BlockFile;

/// Called with the name of a metric and the bytes of its chunks.
pub type VisitMetricBytes<'a> = dyn FnMut(&str, u64) -> Result<(), QueryError> + 'a;

/// Returns the bytes of the chunks of all series with this metric name, deleted samples included; 0 if the
/// block has none. Cost: its postings list, the entries of two series and the head of one chunk; entries of
/// all its series if the block has label names that sort before `__name__`.
///
/// # Errors
/// [`QueryError::Corrupt`], errors of the source; as [`ReadContext::check`].
pub fn metric_bytes(block: &Block, name: &str, ctx: &ReadContext) -> Result<u64, QueryError> {
    let contents = block.contents();
    let refs = select_refs(contents, &[Matcher::equal(METRIC_NAME, name)], &ctx.budget)?;
    SegmentLayout::new(contents, ctx).bytes_of_series(refs.into_iter())
}

/// Calls `visit` with each metric name of the block, ascending, and the bytes of its chunks as
/// [`metric_bytes`], until it fails. Cost: [`metric_bytes`] of each.
///
/// # Errors
/// As [`metric_bytes`], and the errors of `visit`.
pub fn visit_metric_bytes(
    block: &Block,
    ctx: &ReadContext,
    visit: &mut VisitMetricBytes<'_>,
) -> Result<(), QueryError> {
    let contents = block.contents();
    let layout = SegmentLayout::new(contents, ctx);
    for_each_list(contents, METRIC_NAME, &ctx.budget, &mut |name, list| {
        let list = list.map_err(|e| contents.index_error(&e))?;
        visit(name, layout.bytes_of_series(list.iter())?)?;
        Ok(true)
    })
}

/// Segments of a block, and the order of chunks in them.
struct SegmentLayout<'a> {
    contents: &'a BlockContents,
    ctx: &'a ReadContext,
    /// Bytes before each segment.
    segment_starts: Vec<u64>,
    /// The series of a metric follow one another, and so do their chunks.
    is_by_metric: bool,
}

impl<'a> SegmentLayout<'a> {
    fn new(contents: &'a BlockContents, ctx: &'a ReadContext) -> SegmentLayout<'a> {
        let lens = contents.files().segment_lens().iter();
        let segment_starts = lens.scan(0, |end, len| Some(std::mem::replace(end, *end + len))).collect();
        let is_by_metric = contents.header().label_names().next().is_none_or(|name| name >= METRIC_NAME);
        SegmentLayout { contents, ctx, segment_starts, is_by_metric }
    }

    /// Bytes of the chunks of the series `refs`, which ascend and are all of a metric.
    fn bytes_of_series(&self, mut refs: impl Iterator<Item = u32>) -> Result<u64, QueryError> {
        if !self.is_by_metric {
            return refs.map(|one| self.range_bytes(one, one)).sum();
        }
        let Some(first) = refs.next() else { return Ok(0) };
        self.range_bytes(first, refs.last().unwrap_or(first))
    }

    /// Bytes from the first chunk of one series to the end of the last chunk of another.
    fn range_bytes(&self, first: u32, last: u32) -> Result<u64, QueryError> {
        self.ctx.check()?;
        let start = self.chunks(first)?.into_iter().min_by_key(|chunk| chunk.chunk_ref);
        let end = self.chunks(last)?.into_iter().max_by_key(|chunk| chunk.chunk_ref);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(self.contents.series_error(first, "has no chunks"));
        };
        let start = self.position(&start).ok_or_else(|| self.missing_chunk(first))?;
        let len = self.len(&end)?.ok_or_else(|| self.missing_chunk(last))?;
        let end = self.position(&end).ok_or_else(|| self.missing_chunk(last))?.saturating_add(len);
        let unordered = || self.contents.series_error(last, "has chunks before those of an earlier series");
        end.checked_sub(start).ok_or_else(unordered)
    }

    fn chunks(&self, series_ref: u32) -> Result<Vec<ChunkMeta>, QueryError> {
        let mut series = SeriesReader::new(vec![series_ref]);
        series.next_ref(self.contents, &self.ctx.budget)?;
        let entry = series.decode(self.contents, series_ref).map_err(|e| self.contents.index_error(&e))?;
        Ok(std::mem::take(&mut entry.chunks))
    }

    /// Bytes of all segments before the chunk; `None` if its segment does not exist.
    fn position(&self, chunk: &ChunkMeta) -> Option<u64> {
        let start = self.segment_starts.get(chunk.chunk_ref.segment_idx() as usize)?;
        Some(start + u64::from(chunk.chunk_ref.offset()))
    }

    /// Bytes of a chunk in its segment; `None` if it begins after the end of the segment.
    fn len(&self, chunk: &ChunkMeta) -> Result<Option<u64>, QueryError> {
        let wave = [[*chunk]];
        let bytes = self.contents.read(&self.contents.chunk_wave(&wave), &self.ctx.budget)?;
        let file = BlockFile::Segment(chunk.chunk_ref.segment_idx());
        Ok(chunk_len(bytes.at(file, u64::from(chunk.chunk_ref.offset()))))
    }

    #[cold]
    fn missing_chunk(&self, series_ref: u32) -> QueryError {
        self.contents.series_error(series_ref, "names a chunk outside of the segments")
    }
}
