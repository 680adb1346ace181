//! Deletion of samples of a block: tombstones next to the index, the block's other files unchanged.
//!
//! Invariant: the tombstones on disk are either the old ones or old and new together; queries that read the
//! block meanwhile keep the tombstones that they opened. `meta.json` counts the intervals, so that a missing
//! file is not taken for a block without deletions; the tombstones are written first, and a process that ends
//! in between has not acknowledged the deletion.
//! Not here: the head, the choice of blocks, removing the samples from disk (`tsdb`, `compact`).

use std::sync::Arc;

use chronolith_base::{Env, MemoryBudget};
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_model::{Matcher, QueryError, TimeRange};

use crate::contents::BlockContents;
use crate::layout::{META_FILE, TOMBSTONES_FILE};
use crate::postings::select_refs;
use crate::series_reader::SeriesReader;
use crate::{Block, BlockError};

/// Deleted intervals of a block at most: the file is read into memory whole.
const INTERVAL_COUNT_MAX: usize = 50_000_000;

/// Error of a deletion; all samples are as they were.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The series cannot be found.
    #[error("{0}")]
    Read(#[from] QueryError),
    /// The tombstones cannot be written.
    #[error("{0}")]
    Write(#[from] BlockError),
}

/// A block some of whose samples have been deleted.
pub struct Deleted {
    /// The block without them.
    pub block: Arc<Block>,
    /// Series that lost samples, or whose deleted samples are deleted again.
    pub series_count: u64,
}

impl Block {
    /// Deletes the samples in `range` of the series that match any of `selectors`; `None` if there are none.
    /// Durable when it returns. At most one call per block at a time. Cost: the series that match, two
    /// small files, and opening the block again.
    ///
    /// # Errors
    /// [`DeleteError`].
    pub fn delete(
        &self,
        env: &Env,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<Option<Deleted>, DeleteError> {
        let contents = self.contents();
        if !range.overlaps(contents.range()) {
            return Ok(None);
        }
        let (tombstones, series_count) = self.tombstones_after(selectors, range)?;
        let path = contents.dir().join(TOMBSTONES_FILE);
        let is_counted = contents.meta().stats.num_tombstones == tombstones.interval_count() as u64;
        if tombstones == *contents.tombstones() && is_counted {
            if series_count > 0 {
                // A process that wrote them may have ended before their name was durable.
                env.disk.sync_dir(contents.dir()).map_err(BlockError::io(&path))?;
            }
            return Ok(None);
        }
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        env.disk.write_atomic(&path, &bytes).map_err(BlockError::io(&path))?;
        let mut meta = contents.meta().clone();
        meta.stats.num_tombstones = tombstones.interval_count() as u64;
        bytes.clear();
        meta.encode(&mut bytes);
        let path = contents.dir().join(META_FILE);
        env.disk.write_atomic(&path, &bytes).map_err(BlockError::io(&path))?;
        let block = Block::open(env, contents.dir())?;
        Ok(Some(Deleted { block, series_count }))
    }

    /// Returns the tombstones of the block after the deletion of the samples in `range` of the series that
    /// match any of `selectors`, and the number of these series. Changes nothing. Cost: the series that
    /// match.
    ///
    /// # Errors
    /// [`DeleteError`].
    pub fn tombstones_after(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<(Tombstones, u64), DeleteError> {
        let contents = self.contents();
        let mut tombstones = contents.tombstones().clone();
        let series_count = add_intervals(contents, selectors, range, &mut tombstones)?;
        if tombstones.interval_count() > INTERVAL_COUNT_MAX {
            let (what, limit) = ("number of deleted intervals", INTERVAL_COUNT_MAX as u64);
            let path = contents.dir().join(TOMBSTONES_FILE);
            return Err(BlockError::TooLarge { path, what, limit }.into());
        }
        Ok((tombstones, series_count))
    }
}

fn add_intervals(
    contents: &BlockContents,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
    tombstones: &mut Tombstones,
) -> Result<u64, QueryError> {
    let budget = MemoryBudget::new("deleting samples", u64::MAX);
    let mut refs = Vec::new();
    for matchers in selectors {
        refs.extend(select_refs(contents, matchers, &budget)?);
    }
    refs.sort_unstable();
    refs.dedup();
    let mut series = SeriesReader::new(refs);
    let mut series_count = 0;
    while let Some(series_ref) = series.next_ref(contents, &budget)? {
        let entry = series.decode(contents, series_ref).map_err(|e| contents.index_error(&e))?;
        let touched = entry.chunks.iter().filter(|c| range.overlaps_inclusive(c.min_time, c.max_time));
        let ends = touched.fold(None, |ends: Option<(i64, i64)>, chunk| {
            let (first, last) = ends.unwrap_or((chunk.min_time, chunk.max_time));
            Some((first.min(chunk.min_time), last.max(chunk.max_time)))
        });
        // Intervals end with the samples, so that repeated deletions of "everything" stay one interval.
        if let Some((first, last)) = ends {
            let interval = Interval { first: first.max(range.start), last: last.min(range.end - 1) };
            tombstones.add(u64::from(series_ref), interval);
            series_count += 1;
        }
    }
    Ok(series_count)
}
