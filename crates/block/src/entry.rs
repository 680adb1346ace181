//! A catalogued block, open or not: its record and a slot for the open block.
//!
//! Invariant: the slot is filled and emptied by [`crate::BlockPool`] only; a block that was returned stays
//! usable after the slot was emptied and after its files were removed.
//! Not here: the blocks of a tenant (`tsdb`), closing of blocks (`pool`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use chronolith_format::block::catalogue::BlockRecord;
use chronolith_format::block::meta::Ulid;
use chronolith_model::TimeRange;
use parking_lot::{Mutex, MutexGuard};

use crate::Block;

/// A catalogued block, open or not.
pub struct BlockEntry {
    record: BlockRecord,
    opened: Mutex<Option<Arc<Block>>>,
    /// Held while the block is opened, so that two queries do not open it twice.
    opening: Mutex<()>,
    /// Ascends with each use of any block.
    last_use: AtomicU64,
    /// The last attempt to open it failed.
    is_unreadable: AtomicBool,
    /// Damage that opening does not find: in series, postings or chunks, or a file of another size.
    has_damaged_contents: AtomicBool,
    /// An attempt to open it was made since the start.
    is_verified: AtomicBool,
    /// An attempt to read all of it was made since the start.
    are_contents_verified: AtomicBool,
    /// State of its roll-ups: not known, missing, there, damaged.
    rollups: AtomicU8,
}

const ROLLUPS_UNKNOWN: u8 = 0;
const ROLLUPS_MISSING: u8 = 1;
const ROLLUPS_THERE: u8 = 2;
const ROLLUPS_DAMAGED: u8 = 3;

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
            rollups: AtomicU8::new(ROLLUPS_UNKNOWN),
        })
    }

    /// Catalogue record of the block.
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

    /// As [`crate::precedence`] of its `meta.json`.
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

    /// Returns true if the block has roll-ups, or needs none; `None` if that was not noted.
    #[must_use]
    pub fn is_rolled_up(&self) -> Option<bool> {
        match self.rollups.load(Ordering::Relaxed) {
            ROLLUPS_UNKNOWN => None,
            state => Some(state != ROLLUPS_MISSING),
        }
    }

    /// Notes whether the block has roll-ups.
    pub fn note_rolled_up(&self, is_rolled_up: bool) {
        let state = if is_rolled_up { ROLLUPS_THERE } else { ROLLUPS_MISSING };
        self.rollups.store(state, Ordering::Relaxed);
    }

    /// Notes that a part of its roll-ups cannot be read, until they are written again.
    pub fn note_damaged_rollups(&self) {
        self.rollups.store(ROLLUPS_DAMAGED, Ordering::Relaxed);
    }

    /// Returns true if a part of its roll-ups was found that cannot be read: that was noted, or the open
    /// block has met it.
    #[must_use]
    pub fn has_damaged_rollups(&self) -> bool {
        self.rollups.load(Ordering::Relaxed) == ROLLUPS_DAMAGED
            || self.opened().is_some_and(|block| block.has_damaged_rollups())
    }

    /// Returns the block if it is open.
    pub(crate) fn opened(&self) -> Option<Arc<Block>> {
        self.opened.lock().clone()
    }

    /// Returns true if the block is open and nothing but the slot uses it.
    pub(crate) fn is_idle(&self) -> bool {
        self.opened.lock().as_ref().is_some_and(is_unread)
    }

    /// Fills the slot.
    pub(crate) fn set_opened(&self, block: Arc<Block>) {
        *self.opened.lock() = Some(block);
    }

    /// Empties the slot; readers of the block keep it.
    pub(crate) fn close(&self) {
        // The lock ends before the files are closed.
        let block = self.opened.lock().take();
        drop(block);
    }

    /// Empties the slot if nothing else uses the block; returns true if it did.
    pub(crate) fn close_if_idle(&self) -> bool {
        let mut opened = self.opened.lock();
        let is_idle = opened.as_ref().is_some_and(is_unread);
        if is_idle {
            *opened = None;
        }
        is_idle
    }

    /// Waits for other threads that open the block.
    pub(crate) fn lock_opening(&self) -> MutexGuard<'_, ()> {
        self.opening.lock()
    }

    pub(crate) fn last_use(&self) -> u64 {
        self.last_use.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last_use(&self, number: u64) {
        self.last_use.store(number, Ordering::Relaxed);
    }

    /// Notes the result of an attempt to open the block.
    pub(crate) fn note_verified(&self, is_readable: bool) {
        self.is_verified.store(true, Ordering::Relaxed);
        self.is_unreadable.store(!is_readable, Ordering::Relaxed);
    }
}

/// Returns true if only the slot has the block: under its lock no other thread can get it.
fn is_unread(block: &Arc<Block>) -> bool {
    Arc::strong_count(block) == 1 && !block.has_readers()
}
