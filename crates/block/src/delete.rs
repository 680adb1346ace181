//! Deletes samples of a block: tombstones beside the index, the block's other files untouched.
//!
//! Holds: the tombstones on disk are either the old ones or old and new together; whoever reads the block
//! meanwhile goes on with what it has opened. `meta.json` counts the intervals, so that a file that is gone
//! is not taken for a block without deletions; the tombstones are written first, and a process that ends in
//! between has not acknowledged the deletion.
//! Not here: the head, which blocks, when the bytes go (`tsdb`, `compact`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::block::index::SeriesEntry;
use chronolith_format::block::tombstones::{Interval, Tombstones};
use chronolith_model::index::select_refs;
use chronolith_model::{Matcher, QueryError, TimeRange};

use crate::block::BlockFiles;
use crate::{Block, BlockError, META_FILE, TOMBSTONES_FILE};

/// Deleted intervals of a block at most: the file is read into memory whole.
const INTERVAL_COUNT_MAX: usize = 50_000_000;

/// Why samples are not deleted; they are as they were.
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
    /// Deletes the samples in `range` of the series that fit any of `selectors`; `None` if there are none.
    /// Durable when it returns. Not to be called twice at once for one block. Cost: the series that fit, two
    /// small files, and opening the block anew.
    ///
    /// # Errors
    /// [`DeleteError`].
    pub fn delete(
        &self,
        env: &Env,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<Option<Deleted>, DeleteError> {
        let files = &self.files;
        if !range.overlaps(files.range()) {
            return Ok(None);
        }
        let mut tombstones = files.tombstones.clone();
        let series_count = add_intervals(files, selectors, range, &mut tombstones)?;
        let path = files.dir.join(TOMBSTONES_FILE);
        let is_counted = files.meta.stats.num_tombstones == tombstones.interval_count() as u64;
        if tombstones == files.tombstones && is_counted {
            if series_count > 0 {
                // A process that wrote them may have ended before their name was durable.
                env.disk.sync_dir(&files.dir).map_err(BlockError::io(&path))?;
            }
            return Ok(None);
        }
        if tombstones.interval_count() > INTERVAL_COUNT_MAX {
            let (what, limit) = ("number of deleted intervals", INTERVAL_COUNT_MAX as u64);
            return Err(BlockError::TooLarge { path, what, limit }.into());
        }
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        env.disk.write_atomic(&path, &bytes).map_err(BlockError::io(&path))?;
        let mut meta = files.meta.clone();
        meta.stats.num_tombstones = tombstones.interval_count() as u64;
        bytes.clear();
        meta.encode(&mut bytes);
        let path = files.dir.join(META_FILE);
        env.disk.write_atomic(&path, &bytes).map_err(BlockError::io(&path))?;
        let block = Block::open(env, &files.dir)?;
        Ok(Some(Deleted { block, series_count }))
    }

    /// Deleted intervals of all its series.
    #[must_use]
    pub fn tombstone_count(&self) -> usize {
        self.files.tombstones.interval_count()
    }
}

fn add_intervals(
    files: &BlockFiles,
    selectors: &[Vec<Matcher>],
    range: TimeRange,
    tombstones: &mut Tombstones,
) -> Result<u64, QueryError> {
    let mut refs = Vec::new();
    for matchers in selectors {
        refs.extend(select_refs(files, matchers)?);
    }
    refs.sort_unstable();
    refs.dedup();
    let mut entry = SeriesEntry::new();
    let mut series_count = 0;
    for series_ref in refs {
        files.index.series(series_ref, &mut entry).map_err(|e| files.index_error(&e))?;
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
