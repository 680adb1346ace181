//! A block that is known, whether it is open or not: its catalogue record and a slot for the open block.
//!
//! Holds: the slot is filled and emptied by [`crate::BlockPool`] only; a block that was handed out stays
//! usable after the slot was emptied and after its files were removed.
//! Not here: which blocks a tenant has (`tsdb`), when a block is closed (`pool`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_format::catalogue::BlockRecord;
use chronolith_format::meta::{BlockMeta, Ulid};
use chronolith_format::tombstones::Tombstones;
use chronolith_model::TimeRange;
use parking_lot::Mutex;

use crate::block::{read_meta, tombstones_missing};
use crate::{Block, BlockError, CHUNKS_DIR, INDEX_FILE, META_FILE, TOMBSTONES_FILE, precedence};

/// A block that is known, open or not.
pub struct BlockEntry {
    record: BlockRecord,
    pub(crate) opened: Mutex<Option<Arc<Block>>>,
    /// Held while the block is opened, so that two queries do not open it twice.
    pub(crate) opening: Mutex<()>,
    /// Ascends with each use of any block.
    pub(crate) last_use: AtomicU64,
    pub(crate) is_damaged: AtomicBool,
    /// Opened, or tried to, since the start.
    pub(crate) is_verified: AtomicBool,
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
            is_damaged: AtomicBool::new(false),
            is_verified: AtomicBool::new(false),
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

    /// Returns true if it could not be read when it was opened last.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
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
        record_of(self.meta(), self.size_bytes(), self.tombstone_count() as u64)
    }
}

/// What `meta.json` and the sizes of the files in `dir` say of a block, for a block that no catalogue names.
/// The block's other files are not read. Also gives its whole `meta.json`.
///
/// # Errors
/// [`BlockError`] if `meta.json` or the tombstones cannot be read, or a file cannot be found.
pub fn read_record(env: &Env, dir: &Path) -> Result<(BlockRecord, BlockMeta), BlockError> {
    let (meta, meta_bytes) = read_meta(env, dir)?;
    let mut size_bytes = meta_bytes;
    for path in [dir.to_owned(), dir.join(CHUNKS_DIR)] {
        let files = env.disk.list(&path).map_err(BlockError::io(&path))?;
        let is_counted = |name: &str| name != META_FILE;
        size_bytes += files.iter().filter(|file| is_counted(&file.name)).map(|file| file.len).sum::<u64>();
    }
    let (path, mut tombstone_count) = (dir.join(TOMBSTONES_FILE), 0);
    if env.disk.exists(&path) {
        let bytes = env.disk.read(&path).map_err(BlockError::io(&path))?;
        let tombstones = Tombstones::decode(&bytes).map_err(BlockError::corrupt(&path))?;
        tombstone_count = tombstones.interval_count() as u64;
    } else if meta.stats.num_tombstones > 0 {
        return Err(tombstones_missing(path, &meta));
    }
    let index_path = dir.join(INDEX_FILE);
    if !env.disk.exists(&index_path) {
        return Err(BlockError::Io { path: index_path, error: std::io::ErrorKind::NotFound.into() });
    }
    Ok((record_of(&meta, size_bytes, tombstone_count), meta))
}

/// The record of a block whose `meta.json` can be read while other files cannot: it covers time that cannot
/// be answered.
#[must_use]
pub fn damaged_record(env: &Env, dir: &Path) -> Option<(BlockRecord, BlockMeta)> {
    let (meta, _) = read_meta(env, dir).ok()?;
    Some((record_of(&meta, 0, meta.stats.num_tombstones), meta))
}

fn record_of(meta: &BlockMeta, size_bytes: u64, tombstone_count: u64) -> BlockRecord {
    // A block is younger than its parents; files that say otherwise must not make blocks hide each other.
    let parents = meta.compaction.parents.iter().map(|parent| parent.ulid).filter(|ulid| *ulid < meta.ulid);
    BlockRecord {
        ulid: meta.ulid,
        oldest_source: precedence(meta).0,
        min_time: meta.min_time,
        max_time: meta.max_time,
        size_bytes,
        series_count: meta.stats.num_series,
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
