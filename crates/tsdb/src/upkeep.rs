//! Background work, one round at a time: due windows and idle series to blocks, retention, checkpoint, one
//! step of merging blocks.
//!
//! Holds: a block is complete and named before its samples leave the head; the WAL is freed only by a
//! checkpoint that no longer needs it. A failure is logged and counted, and tried again later; a window or
//! tenant that fails does not stop the others.
//! Not here: when a round runs (the server's upkeep thread calls `tick` every second).

mod clock_file;
mod clock_guard;
mod due;
mod flush;
mod idle;
mod retry;

use std::sync::atomic::Ordering;

use chronolith_block::BlockError;
use chronolith_head::{HeadError, WindowStat};
use chronolith_model::{TenantId, TimeRange};

use crate::compaction::CompactionRounds;
use crate::store::{Counters, Tsdb, WINDOW_MS};
use crate::tenant::TenantBlocks;
pub(crate) use clock_file::GuardedClock;
use due::{DueWindows, FlushRules, Waiting};
use retry::{Retries, TenantRange};

/// Due windows are looked for this often.
const FLUSH_LOOK_EVERY_MS: i64 = 10_000;
/// Retention is looked at this often.
const RETENTION_LOOK_EVERY_MS: i64 = 60_000;
/// After a failed round the next one waits this long.
const RETRY_AFTER_MS: i64 = 10_000;
/// Old windows are cut together to blocks of this width: backfilled months do not become thousands of blocks.
const OLD_BLOCK_MS: i64 = 12 * WINDOW_MS;

impl Counters {
    fn note_waiting(&self, waiting: Waiting) {
        self.waiting_windows.store(waiting.window_count, Ordering::Relaxed);
        self.waiting_bytes.store(waiting.heap_bytes, Ordering::Relaxed);
    }
}

/// When what is to be done next.
#[derive(Default)]
pub(crate) struct Upkeep {
    stopped: bool,
    flush_at_ms: i64,
    /// When the next generation of series ends; 0 = none has begun.
    age_at_ms: i64,
    retries: Retries,
    clock: GuardedClock,
    retention_at_ms: i64,
    compaction: CompactionRounds,
}

impl Upkeep {
    pub(crate) fn new(clock: GuardedClock) -> Upkeep {
        Upkeep { clock, ..Upkeep::default() }
    }

    pub(crate) fn clock(&self) -> &GuardedClock {
        &self.clock
    }

    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }
}

/// Why a window could not be cut to a block.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlushError {
    #[error("head: {0}")]
    Head(#[from] HeadError),
    #[error("block: {0}")]
    Block(#[from] BlockError),
    #[error("chunk of the head: {0}")]
    Chunk(#[from] chronolith_base::DecodeError),
    #[error("disk: {0}")]
    Io(#[from] std::io::Error),
}

impl Tsdb {
    /// One round of background work: due windows to blocks, retention, checkpoint, one merge of blocks.
    /// Failures are logged and counted; the next round tries again.
    pub fn tick(&self) {
        let mut upkeep = self.upkeep.lock();
        if upkeep.stopped {
            return;
        }
        let now_ms = self.env.clock.now_ms();
        self.watch_clock(&mut upkeep.clock, now_ms);
        if now_ms >= upkeep.flush_at_ms || upkeep.flush_at_ms > now_ms + RETRY_AFTER_MS {
            upkeep.flush_at_ms = now_ms + FLUSH_LOOK_EVERY_MS;
            if let Err(error) = self.flush_due(&mut upkeep.retries, now_ms) {
                self.count_upkeep_error();
                tracing::error!(%error, "a round of cutting windows to blocks failed; the next is in {RETRY_AFTER_MS} ms");
                upkeep.flush_at_ms = now_ms + RETRY_AFTER_MS;
            }
            self.forget_tenants();
        }
        self.cut_idle_due(&mut upkeep, now_ms);
        if now_ms >= upkeep.retention_at_ms || upkeep.retention_at_ms > now_ms + RETENTION_LOOK_EVERY_MS {
            upkeep.retention_at_ms = now_ms + RETENTION_LOOK_EVERY_MS;
            self.remove_expired(now_ms, upkeep.clock.time_ms());
        }
        self.count_metadata_error(self.metadata.write_order_due(now_ms));
        self.compact_due(&mut upkeep.compaction, now_ms);
        self.blocks.commit();
        self.blocks.scrub_some();
    }

    /// One round of the verification of all blocks after a start, as [`Tsdb::tick`] runs it every time;
    /// returns true once all are verified. Cost: 32 MiB read or 50 ms.
    pub fn verify_blocks(&self) -> bool {
        self.blocks.scrub_some()
    }

    /// Cuts every window that ends before `now_ms` to a block at once, due or not, and writes a checkpoint.
    /// For tools and tests; the server waits until windows are due.
    ///
    /// # Errors
    /// The text of what failed; nothing is lost then.
    pub fn flush_closed(&self, now_ms: i64) -> Result<(), String> {
        let mut upkeep = self.upkeep.lock();
        let closed = self.head.windows().list().into_iter().filter(|w| w.range.end <= now_ms);
        let (_, flushed) = self.flush_ranges(block_ranges(closed, now_ms), &mut upkeep.retries, now_ms);
        self.blocks.commit();
        flushed.map_err(|e| e.to_string())?;
        self.head.checkpointer().checkpoint().map(drop).map_err(|e| e.to_string())
    }

    fn flush_due(&self, retries: &mut Retries, now_ms: i64) -> Result<(), FlushError> {
        let rules = FlushRules {
            now_ms,
            delay_ms: self.options.flush_delay_ms,
            small_bytes: self.options.small_window_bytes,
            waiting_bytes_max: self.waiting_bytes_max(),
        };
        let mut due = DueWindows::new(rules);
        self.head.windows().visit(|series_count, windows| due.add_tenant(series_count, windows));
        let (mut ranges, waiting) = due.finish();
        self.counters.note_waiting(waiting);
        retries.keep_due(&mut ranges, now_ms);
        let (flushed_count, flushed) = self.flush_ranges(ranges, retries, now_ms);
        // Not the checkpoint's own bytes: a head whose state is larger than the limit would write it over and
        // over.
        if self.head.statistics().stats().wal_segment_bytes > self.options.wal_checkpoint_bytes {
            self.head.checkpointer().checkpoint()?;
        } else if flushed_count > 0 {
            self.head.checkpointer().checkpoint_newest()?;
        }
        flushed
    }

    /// Memory that waiting windows may take: less beside a small limit of the head, none when that is nearly
    /// reached.
    fn waiting_bytes_max(&self) -> u64 {
        match self.head.statistics().memory_used_and_limit() {
            (_, 0) => self.options.waiting_bytes_max,
            (used_bytes, limit_bytes) if used_bytes > limit_bytes / 4 * 3 => 0,
            (_, limit_bytes) => self.options.waiting_bytes_max.min(limit_bytes / 4),
        }
    }

    /// Removes blocks that are older than the retention at `trusted_ms`, which is `now_ms` unless the clock
    /// has jumped, then the oldest beyond the size limit.
    fn remove_expired(&self, now_ms: i64, trusted_ms: i64) {
        let limits = self.limits();
        let mut all = Vec::new();
        let tenants: Vec<_> = self.tenants.read().iter().map(|(t, b)| (t.clone(), b.clone())).collect();
        for (tenant, blocks) in &tenants {
            self.remove_doomed(tenant, blocks);
            all.extend(blocks.list().iter().map(|block| (tenant.clone(), blocks.clone(), block.clone())));
        }
        all.sort_by_key(|(_, _, block)| std::cmp::Reverse(block.range().end));
        let oldest_ms = |tenant: &TenantId, time_ms: i64| match limits.of(tenant).retention_ms {
            0 => i64::MIN,
            retention_ms => time_ms.saturating_sub(retention_ms),
        };
        let (mut kept_bytes, mut full, mut held_count) = (0u64, false, 0);
        let mut touched = Vec::new();
        for (tenant, blocks, block) in all {
            kept_bytes += block.size_bytes();
            let too_old = block.range().end <= oldest_ms(&tenant, trusted_ms);
            full |= self.options.retention_bytes > 0 && kept_bytes > self.options.retention_bytes;
            let too_much = full;
            if !too_old && !too_much {
                held_count += u64::from(block.range().end <= oldest_ms(&tenant, now_ms));
                continue;
            }
            kept_bytes -= block.size_bytes();
            let ulid = block.ulid();
            blocks.replace(&self.blocks, std::slice::from_ref(&block), Vec::new());
            self.changes.note_removed(&tenant, block.range().end);
            self.counters.retention_removed.fetch_add(1, Ordering::Relaxed);
            tracing::info!(%tenant, %ulid, too_old, too_much, "removing an expired block");
            // Behind blocks that it was merged from: without it a start would take them for whole.
            blocks.doom([blocks.block_dir(ulid)]);
            touched.push((tenant, blocks));
        }
        // One sync of the catalogue for all of them.
        for (tenant, blocks) in &touched {
            self.remove_doomed(tenant, blocks);
        }
        self.counters.held_blocks.store(held_count, Ordering::Relaxed);
    }

    /// Removes the files of blocks that left the list; those that cannot go are tried again at the next look.
    fn remove_doomed(&self, tenant: &TenantId, blocks: &TenantBlocks) {
        if let Err(error) = blocks.remove_doomed(&self.blocks) {
            self.count_upkeep_error();
            tracing::error!(%tenant, %error, "removing the files of a block failed; trying again later");
        }
    }
}

/// The ranges of the blocks that `windows` go to, sorted, each once.
fn block_ranges(windows: impl Iterator<Item = WindowStat>, now_ms: i64) -> Vec<TenantRange> {
    let mut ranges: Vec<_> = windows.map(|w| (w.tenant, block_range(w.range, now_ms))).collect();
    ranges.sort();
    ranges.dedup();
    ranges
}

/// The range of the block that a window goes to: its own, or the day around it when that day is long over.
pub(crate) fn block_range(window: TimeRange, now_ms: i64) -> TimeRange {
    let day = TimeRange::window_of(window.start, OLD_BLOCK_MS);
    if day.end <= now_ms.saturating_sub(OLD_BLOCK_MS) { day } else { window }
}
