//! LRU pool of open blocks: opens on demand, closes the least recently used idle ones.
//!
//! Invariant: open blocks and blocks that were removed while a query reads them count alike, until their last
//! reader is dropped (`OpenPermit`). Idle blocks stay open up to the idle part of the budget;
//! beyond the whole budget opening fails at once: two queries that wait for each other's blocks would wait
//! for ever. A file descriptor is open only while a file is mapped or copied: as
//! many at once as threads open blocks.
//! Not here: the list of blocks (`tsdb`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_model::QueryError;
use parking_lot::Mutex;

use crate::layout::block_dir;
use crate::open::OpenOptions;
use crate::open_counts::OpenCounts;
use crate::{Block, BlockEntry, BlockError};

/// Files of at most this size are copied into memory instead of mapped.
const COPY_BYTES_MAX: u64 = 64 << 10;
/// Idle blocks may take this part of the maps and bytes.
const IDLE_MAPS_PART: u64 = 2;
const IDLE_BYTES_PART: u64 = 4;
/// After a search for idle blocks that found none, the next one comes when this many more blocks are open.
const SEARCH_AGAIN_AFTER: usize = 64;

/// Limits of all open blocks together.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    /// Memory maps of all open blocks.
    pub maps_max: u64,
    /// Bytes on the heap of all open blocks: copied files and index headers.
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

/// Counters and sizes of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Blocks that are open.
    pub open_blocks: u64,
    /// Memory maps of open blocks.
    pub maps: u64,
    /// Bytes of the mapped files.
    pub mapped_bytes: u64,
    /// Bytes of open blocks on the heap.
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

/// Open blocks, at most as many as the budgets of maps, descriptors and bytes allow.
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

    /// Returns the block of `entry` below `parent_dir`; it stays open as long as the caller keeps it. Opening
    /// verifies `meta.json`, tombstones and the index but for series and postings, which are verified when
    /// read, as chunks are. Cost: a lock if it is open, else as [`Block::open`].
    ///
    /// # Errors
    /// [`BlockError`]; [`BlockError::TooManyOpen`] if the blocks that are being read leave no room.
    pub fn open(&self, parent_dir: &Path, entry: &Arc<BlockEntry>) -> Result<Arc<Block>, BlockError> {
        if let Some(block) = self.opened(entry) {
            return Ok(block);
        }
        let _opening = entry.lock_opening();
        // Another thread may have opened it meanwhile.
        if let Some(block) = self.opened(entry) {
            return Ok(block);
        }
        let dir = block_dir(parent_dir, entry.ulid());
        let opened = self.make_room(&dir).and_then(|()| self.open_files(&dir, entry));
        match opened {
            Ok(block) => {
                self.opens.fetch_add(1, Ordering::Relaxed);
                entry.note_verified(true);
                entry.set_last_use(self.next_use());
                entry.set_opened(block.clone());
                self.open.lock().entries.push(entry.clone());
                self.close_idle(false);
                Ok(block)
            }
            Err(error) => {
                self.open_failures.fetch_add(1, Ordering::Relaxed);
                if error.is_damage() {
                    entry.note_verified(false);
                }
                Err(error)
            }
        }
    }

    /// Returns the block of `entry` without keeping it open in the pool if it was closed: for verification,
    /// which leaves others open. Verifies what opening verifies. An entry whose block cannot be opened, for
    /// whatever reason but a lack of descriptors, maps or memory, counts as damaged.
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
            entry.note_verified(opened.is_ok());
        }
        opened
    }

    /// Closes the block of `entry`, which was removed or will be opened under another entry. Readers keep
    /// their files.
    pub fn close(&self, entry: &BlockEntry) {
        // The pool's list drops the entry at its next search for idle blocks.
        entry.close();
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let open = self.counts.sizes();
        PoolStats {
            open_blocks: open.blocks,
            maps: open.maps,
            mapped_bytes: open.mapped_bytes,
            bytes: open.heap_bytes,
            opens: load(&self.opens),
            open_failures: load(&self.open_failures),
            refusals: load(&self.refusals),
            evictions: load(&self.evictions),
        }
    }

    /// Memory of the regex caches of all open blocks.
    #[must_use]
    pub fn regex_cache_bytes(&self) -> u64 {
        let open: Vec<_> = self.open.lock().entries.clone();
        let of_entry = |entry: &Arc<BlockEntry>| entry.opened().map(|block| block.regex_cache_bytes());
        open.iter().filter_map(of_entry).sum::<usize>() as u64
    }

    fn opened(&self, entry: &BlockEntry) -> Option<Arc<Block>> {
        let block = entry.opened()?;
        entry.set_last_use(self.next_use());
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
            let open = self.counts.sizes();
            open.maps >= self.limits.maps_max || open.heap_bytes >= self.limits.bytes_max
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

    /// Closes the least recently used idle blocks until the idle budget holds with an eighth to
    /// spare, so that the search is paid once for many opens; all of them if `all`.
    fn close_idle(&self, all: bool) {
        let (maps_max, bytes_max) =
            (self.limits.maps_max / IDLE_MAPS_PART, self.limits.bytes_max / IDLE_BYTES_PART);
        let fits = |part: u64| {
            let open = self.counts.sizes();
            open.maps <= maps_max - maps_max / 8 * part && open.heap_bytes <= bytes_max - bytes_max / 8 * part
        };
        if fits(0) && !all {
            return;
        }
        let mut open = self.open.lock();
        if !all && open.entries.len() < open.search_at {
            return;
        }
        let mut idle: Vec<_> = open.entries.iter().filter(|entry| entry.is_idle()).cloned().collect();
        idle.sort_by_cached_key(|entry| entry.last_use());
        let mut closed_count = 0u64;
        for entry in idle {
            if !all && fits(1) {
                break;
            }
            // A query may have begun to read it since the search.
            closed_count += u64::from(entry.close_if_idle());
        }
        self.evictions.fetch_add(closed_count, Ordering::Relaxed);
        open.entries.retain(|entry| entry.opened().is_some());
        let open_count = open.entries.len();
        open.search_at = if fits(0) { 0 } else { open_count + SEARCH_AGAIN_AFTER.max(open_count / 8) };
    }
}

/// The answer to a query that needs a block which cannot be opened.
#[must_use]
pub fn open_error(error: BlockError) -> QueryError {
    let path = |path: &Path| path.display().to_string();
    match error {
        BlockError::Io { path: at, error } => QueryError::Io { path: path(&at), error },
        BlockError::Source(error) => error,
        BlockError::TooManyOpen { maps_max, .. } => {
            let what =
                "needs more open blocks at once than the limits allow (open-block-maps, open-block-memory)";
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
        other @ (BlockError::OutsideRange { .. } | BlockError::Sidecar { .. }) => {
            QueryError::Corrupt { path: String::new(), what: other.to_string() }
        }
    }
}

#[cfg(test)]
mod tests;
