//! A block that is known, whether it is open or not: its catalogue record and a slot for the open block.
//!
//! Holds: the slot is filled and emptied by [`crate::BlockPool`] only; a block that was handed out stays
//! usable after the slot was emptied and after its files were removed.
//! Not here: which blocks a tenant has (`tsdb`), when a block is closed (`pool`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_format::block::catalogue::{BlockRecord, ImmutableBytes};
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_format::block::tombstones::Tombstones;
use chronolith_model::TimeRange;
use parking_lot::Mutex;

use crate::block::{check_name, is_segment_name, read_meta, tombstones_missing};
use crate::{Block, BlockError, CHUNKS_DIR, INDEX_FILE, META_FILE, TOMBSTONES_FILE, precedence};

/// A block that is known, open or not.
pub struct BlockEntry {
    record: BlockRecord,
    pub(crate) opened: Mutex<Option<Arc<Block>>>,
    /// Held while the block is opened, so that two queries do not open it twice.
    pub(crate) opening: Mutex<()>,
    /// Ascends with each use of any block.
    pub(crate) last_use: AtomicU64,
    /// Opening it failed, the last time.
    pub(crate) is_unreadable: AtomicBool,
    /// Damage that opening does not find: in series, postings or chunks, or a file of another size.
    has_damaged_contents: AtomicBool,
    /// Opened, or tried to, since the start.
    pub(crate) is_verified: AtomicBool,
    /// All of it was read, or tried to, since the start.
    are_contents_verified: AtomicBool,
}

impl BlockEntry {
    /// An entry of a block that is not open.
    #[must_use]
    pub fn new(record: BlockRecord) -> Arc<BlockEntry> {
        Arc::new(BlockEntry {
            record,
            opened: Mutex::default(),
            opening: Mutex::default(),
            last_use: AtomicU64::new(0),
            is_unreadable: AtomicBool::new(false),
            has_damaged_contents: AtomicBool::new(false),
            is_verified: AtomicBool::new(false),
            are_contents_verified: AtomicBool::new(false),
        })
    }

    /// What is known of it.
    #[must_use]
    pub fn record(&self) -> &BlockRecord {
        &self.record
    }

    /// Name.
    #[must_use]
    pub fn ulid(&self) -> Ulid {
        self.record.ulid
    }

    /// Time that it covers.
    #[must_use]
    pub fn range(&self) -> TimeRange {
        TimeRange::new(self.record.min_time, self.record.max_time)
    }

    /// Bytes on disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.record.size_bytes
    }

    /// As [`precedence`] of its `meta.json`.
    #[must_use]
    pub fn precedence(&self) -> (Ulid, Ulid) {
        (self.record.oldest_source, self.record.ulid)
    }

    /// Returns true if it could not be read when it was opened last, or damage was found in its contents.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_unreadable.load(Ordering::Relaxed) || self.has_damaged_contents.load(Ordering::Relaxed)
    }

    /// Notes damage that opening does not find.
    pub fn note_damaged_contents(&self) {
        self.has_damaged_contents.store(true, Ordering::Relaxed);
    }

    /// Notes that all of it was verified, or cannot be.
    pub fn note_verified_contents(&self) {
        self.are_contents_verified.store(true, Ordering::Relaxed);
    }

    /// Returns true if all of it was verified since the start.
    #[must_use]
    pub fn are_contents_verified(&self) -> bool {
        self.are_contents_verified.load(Ordering::Relaxed)
    }

    /// Returns true if it was opened, or that failed, since the start.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.is_verified.load(Ordering::Relaxed)
    }
}

impl Block {
    /// What a catalogue keeps of it.
    #[must_use]
    pub fn record(&self) -> BlockRecord {
        let bytes = Some(self.immutable_bytes());
        record_of(self.meta(), self.size_bytes(), bytes, self.tombstone_count() as u64)
    }
}

/// Sizes of the files of a block, of which none was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSizes {
    /// `None` if there is none; the same for the others.
    meta: Option<u64>,
    index: Option<u64>,
    tombstones: Option<u64>,
    /// Of all segments.
    chunks: u64,
}

impl FileSizes {
    /// Of the block in `dir`. Cost: two directories listed.
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

    /// Returns true if no file that may change, `meta.json` or the tombstones, has another size than when `record`
    /// was made.
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

/// What `meta.json` and the sizes of the files in `dir` say of a block, for a block that no catalogue names or
/// whose record is out of date, and whose directory has the name `ulid`. Of the other files only tombstones are read. Also gives its whole `meta.json`.
///
/// # Errors
/// [`BlockError`] if `meta.json` or the tombstones cannot be read, or a file cannot be found.
pub fn read_record(env: &Env, dir: &Path, ulid: Ulid) -> Result<(BlockRecord, BlockMeta), BlockError> {
    let (meta, _) = read_meta(env, dir)?;
    check_name(dir, ulid, &meta)?;
    let (path, mut tombstone_count) = (dir.join(TOMBSTONES_FILE), 0);
    if env.disk.exists(&path) {
        let bytes = env.disk.read(&path).map_err(BlockError::io(&path))?;
        let tombstones = Tombstones::decode(&bytes).map_err(BlockError::corrupt(&path))?;
        tombstone_count = tombstones.interval_count() as u64;
    } else if meta.stats.num_tombstones > 0 {
        return Err(tombstones_missing(path, &meta));
    }
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

fn record_of(
    meta: &BlockMeta,
    size_bytes: u64,
    immutable_bytes: Option<ImmutableBytes>,
    tombstone_count: u64,
) -> BlockRecord {
    // A block is younger than its parents; files that say otherwise must not make blocks hide each other.
    let parents = meta.compaction.parents.iter().map(|parent| parent.ulid).filter(|ulid| *ulid < meta.ulid);
    BlockRecord {
        ulid: meta.ulid,
        oldest_source: precedence(meta).0,
        min_time: meta.min_time,
        max_time: meta.max_time,
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

/// Where the block `ulid` of the directory `parent_dir` lies.
#[must_use]
pub fn block_dir(parent_dir: &Path, ulid: Ulid) -> PathBuf {
    parent_dir.join(ulid.to_string())
}
