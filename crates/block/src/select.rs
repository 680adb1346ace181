//! A block as `Queryable`: matchers to series, label names and values.
//!
//! Holds: series come in order of labels, which the index promises and the reader checks. Series are read
//! batch by batch; chunks are not touched before samples are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_format::block::index::{ChunkMeta, SeriesEntry};
use chronolith_format::block::tombstones::Interval;
use chronolith_model::index::{LabelIndex, search_values, select_refs};
use chronolith_model::query::{ReadEstimate, SERIES_PER_BATCH_MAX, VecBatches};
use chronolith_model::{
    Labels, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches, SeriesRead, TimeRange,
};

use crate::block::BlockFiles;
use crate::series::BlockSeries;
use crate::{Block, INDEX_FILE};

impl LabelIndex for BlockFiles {
    fn all(&self, out: &mut Vec<u32>) -> Result<(), QueryError> {
        out.extend(self.index.all_postings().map_err(|e| self.index_error(&e))?.iter());
        Ok(())
    }

    fn postings(&self, name: &str, value: &str, out: &mut Vec<u32>) -> Result<(), QueryError> {
        out.extend(self.index.postings(name, value).map_err(|e| self.index_error(&e))?.iter());
        Ok(())
    }

    fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        self.index.for_each_value(name, prefix, visit).map_err(|e| self.index_error(&e))
    }

    fn search(
        &self,
        matcher: &Matcher,
        prefix: &str,
        fits: &dyn Fn(&str) -> bool,
        out: &mut Vec<u32>,
    ) -> Result<(), QueryError> {
        let value_count = self.index.label_value_count(&matcher.name);
        self.searches.find(matcher, value_count, out, |out| search_values(self, matcher, prefix, fits, out))
    }
}

impl Queryable for Block {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        if !selector.range.overlaps(self.range()) {
            return Ok(Box::new(VecBatches::new(Vec::new())));
        }
        ctx.check()?;
        let refs = select_refs(self.files.as_ref(), selector.matchers)?;
        let reserved = ctx.budget.reserve(4 * refs.len() as u64)?;
        Ok(Box::new(BlockBatches {
            files: self.files.clone(),
            refs: refs.into_iter(),
            range: selector.range,
            ctx: ctx.clone(),
            last_labels: None,
            entry: SeriesEntry::new(),
            _reserved: reserved,
        }))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        if !selector.range.overlaps(self.range()) {
            return Ok(Vec::new());
        }
        let files = &self.files;
        if selector.matchers.is_empty() {
            return Ok(files.index.label_names().take(limit).map(str::to_owned).collect());
        }
        let mut names = BTreeSet::new();
        let mut entry = SeriesEntry::new();
        for series_ref in select_refs(files.as_ref(), selector.matchers)? {
            ctx.check()?;
            files.index.series(series_ref, &mut entry).map_err(|e| files.index_error(&e))?;
            for (name, _) in entry.pairs() {
                if !names.contains(name) {
                    names.insert(name.to_owned());
                }
            }
        }
        Ok(names.into_iter().take(limit).collect())
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        if name.is_empty() || !selector.range.overlaps(self.range()) {
            return Ok(Vec::new());
        }
        let files = &self.files;
        let mut values = Vec::new();
        if selector.matchers.is_empty() {
            files.for_each_value(name, "", &mut |value| {
                values.push(value.to_owned());
                values.len() < limit
            })?;
            return Ok(values);
        }
        let refs = select_refs(files.as_ref(), selector.matchers)?;
        if refs.len() < files.index.label_value_count(name) {
            return files.values_by_series(name, &refs, limit, ctx);
        }
        files.values_by_postings(name, &refs, limit, ctx)
    }
}

impl Block {
    /// About how many series fit, and how many samples they have in the range: as many as the average series, evenly
    /// over the block. Cost: postings.
    ///
    /// # Errors
    /// As [`Queryable::select`].
    pub fn estimate_read(&self, selector: &Selector<'_>) -> Result<ReadEstimate, QueryError> {
        let (whole, stats) = (self.range(), &self.meta().stats);
        let width_ms = |start: i64, end: i64| end.saturating_sub(start).max(0);
        let (start, end) = (selector.range.start.max(whole.start), selector.range.end.min(whole.end));
        let part = width_ms(start, end) as f64 / width_ms(whole.start, whole.end).max(1) as f64;
        if part <= 0.0 {
            return Ok(ReadEstimate::default());
        }
        let series = match selector.matchers {
            [] => stats.num_series,
            matchers => select_refs(self.files.as_ref(), matchers)?.len() as u64,
        };
        let of_series = series as f64 / stats.num_series.max(1) as f64;
        Ok(ReadEstimate { series, samples: (stats.num_samples as f64 * part * of_series) as u64 })
    }
}

impl BlockFiles {
    fn values_by_series(
        &self,
        name: &str,
        refs: &[u32],
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let mut values = BTreeSet::new();
        let mut entry = SeriesEntry::new();
        for &series_ref in refs {
            ctx.check()?;
            self.index.series(series_ref, &mut entry).map_err(|e| self.index_error(&e))?;
            if let Some((_, value)) = entry.pairs().find(|(n, _)| *n == name)
                && !values.contains(value)
            {
                values.insert(value.to_owned());
            }
        }
        Ok(values.into_iter().take(limit).collect())
    }

    fn values_by_postings(
        &self,
        name: &str,
        refs: &[u32],
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let mut values = Vec::new();
        let mut failed = None;
        self.for_each_value(name, "", &mut |value| {
            let found = ctx.check().and_then(|()| {
                let postings = self.index.postings(name, value).map_err(|e| self.index_error(&e))?;
                Ok(postings.iter().any(|series_ref| refs.binary_search(&series_ref).is_ok()))
            });
            match found {
                Ok(true) => values.push(value.to_owned()),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            failed.is_none() && values.len() < limit
        })?;
        failed.map_or(Ok(values), Err)
    }
}

/// Selected series of a block, read from the index batch by batch.
struct BlockBatches {
    files: Arc<BlockFiles>,
    refs: std::vec::IntoIter<u32>,
    range: TimeRange,
    ctx: ReadContext,
    last_labels: Option<Labels>,
    entry: SeriesEntry,
    _reserved: Reservation,
}

impl SeriesBatches for BlockBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        for _ in 0..SERIES_PER_BATCH_MAX {
            let Some(series_ref) = self.refs.next() else { return Ok(false) };
            match self.read(series_ref) {
                Ok(series) => out.extend(series),
                Err(error) => {
                    self.refs = Vec::new().into_iter();
                    return Err(error);
                }
            }
        }
        Ok(self.refs.len() > 0)
    }
}

impl BlockBatches {
    fn read(&mut self, series_ref: u32) -> Result<Option<SeriesRead>, QueryError> {
        self.ctx.check()?;
        let files = &self.files;
        files.index.series(series_ref, &mut self.entry).map_err(|e| files.index_error(&e))?;
        if has_repeated_chunk(&self.entry.chunks) {
            return Err(self.corrupt(series_ref, "names a chunk twice"));
        }
        let deleted = files.tombstones.get(u64::from(series_ref));
        let wanted =
            |c: &ChunkMeta| self.range.overlaps_inclusive(c.min_time, c.max_time) && !is_deleted(deleted, c);
        self.entry.chunks.retain(wanted);
        if self.entry.chunks.is_empty() {
            return Ok(None);
        }
        let chunks = &mut self.entry.chunks;
        if !chunks.is_sorted_by_key(|c| c.min_time) {
            chunks.sort_by_key(|c| c.min_time);
        }
        let chunks = Box::from(chunks.as_slice());
        let labels = self.entry.labels();
        if self.last_labels.as_ref().is_some_and(|last| *last >= labels) {
            return Err(self.corrupt(series_ref, "is out of order"));
        }
        self.last_labels = Some(labels.clone());
        let source = BlockSeries { files: files.clone(), chunks, deleted: Box::from(deleted) };
        Ok(Some(SeriesRead { labels, samples: Box::new(source) }))
    }

    #[cold]
    fn corrupt(&self, series_ref: u32, what: &str) -> QueryError {
        let path = self.files.dir.join(INDEX_FILE).display().to_string();
        let offset = self.files.index.series_offset(series_ref);
        QueryError::Corrupt { path, what: format!("series at offset {offset} {what}") }
    }
}

/// Whether an entry leads to the same bytes more than once: a forged one would make a short file decode to any
/// number of samples.
pub(crate) fn has_repeated_chunk(chunks: &[ChunkMeta]) -> bool {
    if chunks.is_sorted_by(|a, b| a.chunk_ref < b.chunk_ref) {
        return false;
    }
    let mut refs: Vec<_> = chunks.iter().map(|c| c.chunk_ref).collect();
    refs.sort_unstable();
    refs.windows(2).any(|w| matches!(w, [a, b] if a == b))
}

/// Whether all of a chunk is deleted.
pub(crate) fn is_deleted(deleted: &[Interval], chunk: &ChunkMeta) -> bool {
    deleted.iter().any(|d| d.first <= chunk.min_time && chunk.max_time <= d.last)
}
