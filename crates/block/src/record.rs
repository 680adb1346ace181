//! Catalogue record of a block: from `meta.json` and the sizes of its files, without opening it.

use std::path::Path;

use chronolith_base::Env;
use chronolith_format::block::catalogue::{BlockRecord, ImmutableBytes};
use chronolith_format::block::meta::{BlockMeta, Ulid};

use crate::BlockError;
use crate::layout::{CHUNKS_DIR, INDEX_FILE, META_FILE, TOMBSTONES_FILE, is_segment_name};
use crate::open::{check_name, read_meta, read_tombstones};

/// Sizes of the files of a block, from directory listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSizes {
    /// `None` if the file is missing; the same for the others.
    meta: Option<u64>,
    index: Option<u64>,
    tombstones: Option<u64>,
    /// Sum over all segments.
    chunks: u64,
}

impl FileSizes {
    /// Reads the sizes for the block in `dir`. Cost: two directories listed.
    ///
    /// # Errors
    /// [`BlockError::Io`] if one of the directories cannot be listed.
    pub fn of(env: &Env, dir: &Path) -> Result<FileSizes, BlockError> {
        let files = env.disk.list(dir).map_err(BlockError::io(dir))?;
        let len =
            |name: &str| files.iter().find(|file| !file.is_dir && file.name == name).map(|file| file.len);
        let chunks_dir = dir.join(CHUNKS_DIR);
        let segments = env.disk.list(&chunks_dir).map_err(BlockError::io(&chunks_dir))?;
        let segments = segments.iter().filter(|file| !file.is_dir && is_segment_name(&file.name));
        Ok(FileSizes {
            meta: len(META_FILE),
            index: len(INDEX_FILE),
            tombstones: len(TOMBSTONES_FILE),
            chunks: segments.map(|file| file.len).sum(),
        })
    }

    fn total(&self) -> u64 {
        let rest = [self.meta, self.index, self.tombstones];
        self.chunks + rest.into_iter().flatten().sum::<u64>()
    }

    /// Returns true if no file that may change, `meta.json` or the tombstones, has another size than when
    /// `record` was made.
    #[must_use]
    pub fn has_mutable_bytes_of(&self, record: &BlockRecord) -> bool {
        let Some(ImmutableBytes { index, chunks }) = record.immutable_bytes else {
            return self.total() == record.size_bytes;
        };
        let found = self.meta.unwrap_or(0) + self.tombstones.unwrap_or(0);
        Some(found) == record.size_bytes.checked_sub(index.saturating_add(chunks))
    }

    /// Compares the files of the block in `dir` with its record.
    ///
    /// # Errors
    /// [`BlockError`] with the first file that is missing, or that never changes and has another size.
    pub fn compare(&self, dir: &Path, record: &BlockRecord) -> Result<(), BlockError> {
        for (name, len) in [(META_FILE, self.meta), (INDEX_FILE, self.index)] {
            if len.is_none() {
                return Err(BlockError::Io {
                    path: dir.join(name),
                    error: std::io::ErrorKind::NotFound.into(),
                });
            }
        }
        if record.tombstone_count > 0 && self.tombstones.is_none() {
            let (path, count) = (dir.join(TOMBSTONES_FILE), record.tombstone_count);
            return Err(BlockError::TombstonesMissing { path, count });
        }
        let Some(expected) = record.immutable_bytes else { return Ok(()) };
        let mismatch = |name: &str, expected: u64, found: u64| {
            let path = dir.join(name);
            BlockError::Mismatch { path, what: "bytes", expected: expected as i64, found: found as i64 }
        };
        let index = self.index.unwrap_or(0);
        if index != expected.index {
            return Err(mismatch(INDEX_FILE, expected.index, index));
        }
        if self.chunks != expected.chunks {
            return Err(mismatch(CHUNKS_DIR, expected.chunks, self.chunks));
        }
        Ok(())
    }
}

/// Makes the record of the block in `dir`, whose directory has the name `ulid`, from `meta.json` and the
/// sizes of its files: for a block without a catalogue record, or whose record is out of date. No other file
/// is read but the tombstones. Also returns its whole `meta.json`.
///
/// # Errors
/// [`BlockError`] if `meta.json` or the tombstones cannot be read, or a file cannot be found.
pub fn read_record(env: &Env, dir: &Path, ulid: Ulid) -> Result<(BlockRecord, BlockMeta), BlockError> {
    let (meta, _) = read_meta(env, dir)?;
    check_name(dir, ulid, &meta)?;
    let (tombstones, _) = read_tombstones(env, dir, &meta)?;
    let tombstone_count = tombstones.interval_count() as u64;
    let sizes = FileSizes::of(env, dir)?;
    let immutable_bytes = ImmutableBytes { index: sizes.index.unwrap_or(0), chunks: sizes.chunks };
    let record = record_of(&meta, sizes.total(), Some(immutable_bytes), tombstone_count);
    sizes.compare(dir, &record)?;
    Ok((record, meta))
}

/// The record of a block whose `meta.json` can be read while other files cannot: it covers time that cannot
/// be answered.
#[must_use]
pub fn damaged_record(env: &Env, dir: &Path, ulid: Ulid) -> Option<(BlockRecord, BlockMeta)> {
    let (meta, _) = read_meta(env, dir).ok()?;
    check_name(dir, ulid, &meta).ok()?;
    Some((record_of(&meta, 0, None, meta.stats.num_tombstones), meta))
}

pub(crate) fn record_of(
    meta: &BlockMeta,
    size_bytes: u64,
    immutable_bytes: Option<ImmutableBytes>,
    tombstone_count: u64,
) -> BlockRecord {
    // A block is younger than its parents; files that claim otherwise must not make blocks hide each other.
    let parents = meta.compaction.parents.iter().map(|parent| parent.ulid).filter(|ulid| *ulid < meta.ulid);
    BlockRecord {
        ulid: meta.ulid,
        oldest_source: precedence(meta).0,
        min_time: meta.range().start,
        max_time: meta.range().end,
        size_bytes,
        immutable_bytes,
        series_count: meta.stats.num_series,
        sample_count: Some(meta.stats.num_samples),
        tombstone_count,
        compaction_failed: meta.compaction.failed,
        split_set: meta.compaction.split_set,
        parents: parents.collect(),
    }
}

/// Sorts blocks by when their samples were written: of two blocks with the same timestamp of a series, the
/// one with the lower precedence wins. That is the oldest block from the head that went in, so a compacted
/// block has the precedence of its first input, provided that no overlapping block was between its inputs.
#[must_use]
pub fn precedence(meta: &BlockMeta) -> (Ulid, Ulid) {
    (meta.compaction.sources.iter().min().copied().unwrap_or(meta.ulid), meta.ulid)
}
