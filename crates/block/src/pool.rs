//! Pool of open blocks: opens on demand, closes the least recently used ones that nobody reads.
//!
//! Holds: open blocks and blocks that were removed while a query reads them count alike, until their last
//! reader is gone (`OpenPermit`). Blocks that nobody reads stay open up to the idle part of the budget;
//! beyond the whole budget an open is refused, never waited for, because two queries that wait for each
//! other's blocks would wait for ever. A file descriptor is open only while a file is mapped or copied: as
//! many at once as threads open blocks.
//! Not here: which blocks there are (`tsdb`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_model::QueryError;
use parking_lot::Mutex;

use crate::block::OpenOptions;
use crate::entry::block_dir;
use crate::{Block, BlockEntry, BlockError};

/// Files of at most this size are copied into memory instead of mapped.
const COPY_BYTES_MAX: u64 = 64 << 10;
/// Idle blocks may take this part of the maps and bytes.
const IDLE_MAPS_PART: u64 = 2;
const IDLE_BYTES_PART: u64 = 4;
/// After a search for idle blocks that found none, the next one comes when this many more blocks are open.
const SEARCH_AGAIN_AFTER: usize = 64;

/// What open blocks may take.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// Memory maps of all open blocks.
    pub maps_max: u64,
    /// Bytes on the heap of all open blocks: copied files, and what is kept of mapped indexes.
    pub bytes_max: u64,
    /// Files of at most this size are copied, not mapped.
    pub copy_bytes_max: u64,
}

impl Default for PoolLimits {
    /// An eighth of the maps that Linux grants a process (65,530), and 512 MiB.
    fn default() -> PoolLimits {
        PoolLimits { maps_max: 8192, bytes_max: 512 << 20, copy_bytes_max: COPY_BYTES_MAX }
    }
}

/// What all open blocks take, those of removed blocks included.
#[derive(Default)]
pub(crate) struct OpenCounts {
    blocks: AtomicU64,
    maps: AtomicU64,
    mapped_bytes: AtomicU64,
    bytes: AtomicU64,
}

/// The part of one open block, given back when it is closed.
pub(crate) struct OpenPermit {
    counts: Arc<OpenCounts>,
    maps: u64,
    mapped_bytes: u64,
    bytes: u64,
}

impl OpenPermit {
    pub(crate) fn new(counts: Arc<OpenCounts>, maps: u64, mapped_bytes: u64, bytes: u64) -> OpenPermit {
        counts.blocks.fetch_add(1, Ordering::Relaxed);
        counts.maps.fetch_add(maps, Ordering::Relaxed);
        counts.mapped_bytes.fetch_add(mapped_bytes, Ordering::Relaxed);
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        OpenPermit { counts, maps, mapped_bytes, bytes }
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        self.counts.blocks.fetch_sub(1, Ordering::Relaxed);
        self.counts.maps.fetch_sub(self.maps, Ordering::Relaxed);
        self.counts.mapped_bytes.fetch_sub(self.mapped_bytes, Ordering::Relaxed);
        self.counts.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Counters and sizes of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks that are open.
    pub open_blocks: u64,
    /// Their memory maps.
    pub maps: u64,
    /// Bytes of the mapped files.
    pub mapped_bytes: u64,
    /// Their bytes on the heap.
    pub bytes: u64,
    /// Opens since the start.
    pub opens: u64,
    /// Opens that failed since the start, damage and refusals included.
    pub open_failures: u64,
    /// Opens that the budget refused since the start.
    pub refusals: u64,
    /// Blocks closed to make room since the start.
    pub evictions: u64,
}

#[derive(Default)]
struct OpenEntries {
    entries: Vec<Arc<BlockEntry>>,
    /// No search for idle blocks before as many blocks are open.
    search_at: usize,
}

/// Pool of open blocks; see the module.
pub struct BlockPool {
    env: Env,
    limits: PoolLimits,
    counts: Arc<OpenCounts>,
    open: Mutex<OpenEntries>,
    uses: AtomicU64,
    opens: AtomicU64,
    open_failures: AtomicU64,
    refusals: AtomicU64,
    evictions: AtomicU64,
}

impl BlockPool {
    /// A pool without open blocks.
    #[must_use]
    pub fn new(env: &Env, limits: PoolLimits) -> BlockPool {
        BlockPool {
            env: env.clone(),
            limits,
            counts: Arc::default(),
            open: Mutex::default(),
            uses: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            open_failures: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The block of `entry` below `parent_dir`; it stays open as long as the caller has it. Opening verifies
    /// `meta.json`, tombstones and the index but for series and postings, which are verified when read, as
    /// chunks are. Cost: a lock if it is open, else as [`Block::open`].
    ///
    /// # Errors
    /// [`BlockError`]; [`BlockError::TooManyOpen`] if the blocks that are being read leave no room.
    pub fn open(&self, parent_dir: &Path, entry: &Arc<BlockEntry>) -> Result<Arc<Block>, BlockError> {
        if let Some(block) = self.opened(entry) {
            return Ok(block);
        }
        let _opening = entry.opening.lock();
        // Another thread may have opened it meanwhile.
        if let Some(block) = self.opened(entry) {
            return Ok(block);
        }
        let dir = block_dir(parent_dir, entry.ulid());
        let opened = self.make_room(&dir).and_then(|()| self.open_files(&dir, entry));
        match opened {
            Ok(block) => {
                self.opens.fetch_add(1, Ordering::Relaxed);
                entry.is_verified.store(true, Ordering::Relaxed);
                entry.is_unreadable.store(false, Ordering::Relaxed);
                entry.last_use.store(self.next_use(), Ordering::Relaxed);
                *entry.opened.lock() = Some(block.clone());
                self.open.lock().entries.push(entry.clone());
                self.close_idle(false);
                Ok(block)
            }
            Err(error) => {
                self.open_failures.fetch_add(1, Ordering::Relaxed);
                if error.is_damage() {
                    entry.is_verified.store(true, Ordering::Relaxed);
                    entry.is_unreadable.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    /// The block of `entry`, which is not kept open beyond the caller if it was closed: for verification, which
    /// leaves others open. Verifies what opening verifies. An entry whose block cannot be opened, for whatever reason
    /// but a lack of descriptors, maps or memory, counts as damaged.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn open_unpooled(
        &self,
        parent_dir: &Path,
        entry: &Arc<BlockEntry>,
    ) -> Result<Arc<Block>, BlockError> {
        if let Some(block) = self.opened(entry) {
            return Ok(block);
        }
        let dir = block_dir(parent_dir, entry.ulid());
        let opened = self.open_once(&dir, entry);
        if !opened.as_ref().is_err_and(BlockError::is_exhaustion) {
            entry.is_verified.store(true, Ordering::Relaxed);
            entry.is_unreadable.store(opened.is_err(), Ordering::Relaxed);
        }
        opened
    }

    /// Closes the block of `entry`, which is gone or will be opened under another entry; who reads it goes on.
    pub fn close(&self, entry: &BlockEntry) {
        // The pool's list lets go of the entry at its next search.
        let block = entry.opened.lock().take();
        drop(block);
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PoolStats {
            open_blocks: load(&self.counts.blocks),
            maps: load(&self.counts.maps),
            mapped_bytes: load(&self.counts.mapped_bytes),
            bytes: load(&self.counts.bytes),
            opens: load(&self.opens),
            open_failures: load(&self.open_failures),
            refusals: load(&self.refusals),
            evictions: load(&self.evictions),
        }
    }

    /// Bytes of what all open blocks remember of regex matchers.
    #[must_use]
    pub fn search_bytes(&self) -> u64 {
        let open: Vec<_> = self.open.lock().entries.clone();
        let of_entry =
            |entry: &Arc<BlockEntry>| entry.opened.lock().as_ref().map(|block| block.search_bytes());
        open.iter().filter_map(of_entry).sum::<usize>() as u64
    }

    fn opened(&self, entry: &BlockEntry) -> Option<Arc<Block>> {
        let block = entry.opened.lock().clone()?;
        entry.last_use.store(self.next_use(), Ordering::Relaxed);
        Some(block)
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn open_options(&self) -> OpenOptions {
        OpenOptions { copy_bytes_max: self.limits.copy_bytes_max, counts: Some(self.counts.clone()) }
    }

    /// The kernel's limit of maps or descriptors may be lower than the budget: idle blocks are closed and the
    /// open tried once more.
    fn open_files(&self, dir: &Path, entry: &BlockEntry) -> Result<Arc<Block>, BlockError> {
        match self.open_once(dir, entry) {
            Err(error) if error.is_exhaustion() => {
                self.close_idle(true);
                self.open_once(dir, entry)
            }
            opened => opened,
        }
    }

    fn open_once(&self, dir: &Path, entry: &BlockEntry) -> Result<Arc<Block>, BlockError> {
        let block = Block::open_with(&self.env, dir, &self.open_options())?;
        block.compare_meta(entry.record())?;
        Ok(block)
    }

    fn make_room(&self, dir: &Path) -> Result<(), BlockError> {
        let is_full = || {
            self.counts.maps.load(Ordering::Relaxed) >= self.limits.maps_max
                || self.counts.bytes.load(Ordering::Relaxed) >= self.limits.bytes_max
        };
        if !is_full() {
            return Ok(());
        }
        self.close_idle(true);
        if !is_full() {
            return Ok(());
        }
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let (path, limits) = (dir.to_owned(), self.limits);
        Err(BlockError::TooManyOpen { path, maps_max: limits.maps_max, bytes_max: limits.bytes_max })
    }

    /// Closes the least recently used blocks that nobody reads until the idle budget holds with an eighth to
    /// spare, so that the search is paid once for many opens; all of them if `all`.
    fn close_idle(&self, all: bool) {
        let (maps_max, bytes_max) =
            (self.limits.maps_max / IDLE_MAPS_PART, self.limits.bytes_max / IDLE_BYTES_PART);
        let fits = |part: u64| {
            self.counts.maps.load(Ordering::Relaxed) <= maps_max - maps_max / 8 * part
                && self.counts.bytes.load(Ordering::Relaxed) <= bytes_max - bytes_max / 8 * part
        };
        if fits(0) && !all {
            return;
        }
        let mut open = self.open.lock();
        if !all && open.entries.len() < open.search_at {
            return;
        }
        let mut idle: Vec<_> = open.entries.iter().filter(|entry| is_idle(entry)).cloned().collect();
        idle.sort_unstable_by_key(|entry| entry.last_use.load(Ordering::Relaxed));
        let mut closed_count = 0u64;
        for entry in idle {
            if !all && fits(1) {
                break;
            }
            let mut opened = entry.opened.lock();
            // A query may have taken it since the search.
            if opened.as_ref().is_some_and(is_unread) {
                *opened = None;
                closed_count += 1;
            }
        }
        self.evictions.fetch_add(closed_count, Ordering::Relaxed);
        open.entries.retain(|entry| entry.opened.lock().is_some());
        let open_count = open.entries.len();
        open.search_at = if fits(0) { 0 } else { open_count + SEARCH_AGAIN_AFTER.max(open_count / 8) };
    }
}

fn is_idle(entry: &BlockEntry) -> bool {
    entry.opened.lock().as_ref().is_some_and(is_unread)
}

/// Returns true if only the pool has the block: under the lock of its slot nobody else can get it.
fn is_unread(block: &Arc<Block>) -> bool {
    Arc::strong_count(block) == 1 && Arc::strong_count(&block.files) == 1
}

/// The answer to a query that needs a block which cannot be opened.
#[must_use]
pub fn open_error(error: BlockError) -> QueryError {
    let path = |path: &Path| path.display().to_string();
    match error {
        BlockError::Io { path: at, error } => QueryError::Io { path: path(&at), error },
        BlockError::TooManyOpen { maps_max, .. } => {
            let what = "reads more blocks at once than may be open (open-block-maps, open-block-memory)";
            QueryError::Limit { what, limit: maps_max }
        }
        BlockError::Corrupt { path: at, error } => {
            QueryError::Corrupt { path: path(&at), what: error.to_string() }
        }
        BlockError::Meta { path: at, error } => {
            QueryError::Corrupt { path: path(&at), what: error.to_string() }
        }
        BlockError::TombstonesMissing { path: at, .. } => {
            let what = "tombstones file is missing: deleted samples would come back".to_owned();
            QueryError::Corrupt { path: path(&at), what }
        }
        BlockError::SegmentMissing { path: at } => {
            QueryError::Corrupt { path: path(&at), what: "chunk segment is missing".to_owned() }
        }
        BlockError::Mismatch { ref path, .. } | BlockError::OtherBlock { ref path, .. } => {
            QueryError::Corrupt { path: path.display().to_string(), what: error.to_string() }
        }
        BlockError::TooLarge { path: at, what, .. } => {
            QueryError::Corrupt { path: path(&at), what: what.to_owned() }
        }
        other @ BlockError::OutsideRange { .. } => {
            QueryError::Corrupt { path: String::new(), what: other.to_string() }
        }
    }
}

#[cfg(test)]
mod tests;
