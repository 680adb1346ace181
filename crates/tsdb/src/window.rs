//! Time ranges of head windows and of the blocks that they are flushed to.
//!
//! Invariants: windows are aligned to two hours, days to 24 hours since 1970.
//! Not here: the windows that a tenant has (`head`), when they are flushed (`maintenance::flush`).

use chronolith_model::TimeRange;

/// Width of a head window, which is the time range of a fresh block.
pub(crate) const WINDOW_MS: i64 = 2 * 3_600_000;
/// Old windows are flushed together to blocks of this width: backfilled months do not become thousands of
/// blocks.
pub(crate) const OLD_BLOCK_MS: i64 = 12 * WINDOW_MS;

/// Returns the range of the block that a window is flushed to: its own range, or its day if that ended more
/// than a day before `now_ms`.
pub(crate) fn block_range(window: TimeRange, now_ms: i64) -> TimeRange {
    let day = day_of(window);
    if day.end <= now_ms.saturating_sub(OLD_BLOCK_MS) { day } else { window }
}

/// Returns the day in which `window` starts.
pub(crate) fn day_of(window: TimeRange) -> TimeRange {
    TimeRange::window_of(window.start, OLD_BLOCK_MS)
}
