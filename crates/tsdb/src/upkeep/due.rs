//! Which windows of the head are flushed now, and which small ones wait for others of their tenant and day.
//!
//! Holds: a pure function of the windows and the time. A window waits `flush_delay_ms` after its end, or
//! after its first sample if that came later; a small one at most [`WAIT_FACTOR`] times that, and on time
//! until its day is over. Small windows of a tenant and day go to one block together, with the first of them
//! that may not wait any longer. Waiting windows take at most
//! `waiting_bytes_max` of memory by estimate: beyond it those of the tenants with most of it are flushed.
//! Not here: flushing (`upkeep`), windows whose last flush failed (`retry`).

use chronolith_head::WindowStat;
use chronolith_model::{TenantId, TimeRange};

use super::retry::TenantRange;
use super::{OLD_BLOCK_MS, block_range};

/// A small window waits at most so many times the flush delay.
const WAIT_FACTOR: i64 = 24;
/// Estimate of a sample in a block: a float takes about 1.3 bytes when regular, and up to 9.
const SAMPLE_BYTES: u64 = 4;
/// Samples of a chunk in the head.
const CHUNK_SAMPLES: u64 = 120;
/// Memory of a sealed chunk in the head, whose bytes are in a file.
const CHUNK_HEAP_BYTES: u64 = 32;

/// What decides when a window is flushed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushRules {
    pub(crate) now_ms: i64,
    pub(crate) delay_ms: i64,
    /// A window of fewer bytes, by estimate, is small; 0 = none is.
    pub(crate) small_bytes: u64,
    /// Memory of all windows that wait beyond the delay.
    pub(crate) waiting_bytes_max: u64,
}

/// Small windows that wait beyond the flush delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) window_count: u64,
    /// Memory of the head that they take, by estimate.
    pub(crate) heap_bytes: u64,
}

/// Small windows of one tenant and day.
struct SmallWindows {
    day: TimeRange,
    /// From the first to the last of them.
    range: TimeRange,
    must_go: bool,
    waiting: Waiting,
}

/// Collects what is due, tenant by tenant.
pub(crate) struct DueWindows {
    rules: FlushRules,
    due: Vec<TenantRange>,
    waiting: Vec<(TenantId, SmallWindows)>,
}

impl DueWindows {
    pub(crate) fn new(rules: FlushRules) -> DueWindows {
        DueWindows { rules, due: Vec::new(), waiting: Vec::new() }
    }

    /// Takes the windows of one tenant, by time.
    pub(crate) fn add_tenant(&mut self, series_count: u64, windows: &[WindowStat]) {
        let FlushRules { now_ms, delay_ms, small_bytes, .. } = self.rules;
        let mut small: Option<SmallWindows> = None;
        for window in windows {
            let counted_from = window.range.end.max(window.first_arrival_ms);
            if now_ms < counted_from.saturating_add(delay_ms) {
                continue;
            }
            if !is_small(window, small_bytes) {
                self.due.push((window.tenant.clone(), block_range(window.range, now_ms)));
                continue;
            }
            let day = day_of(window.range);
            if let Some(done) = small.take_if(|small| small.day != day) {
                self.put_small(&window.tenant, done);
            }
            let fresh =
                SmallWindows { day, range: window.range, must_go: false, waiting: Waiting::default() };
            let group = small.get_or_insert(fresh);
            group.range.end = window.range.end;
            group.must_go |= now_ms >= last_flush_ms(window, day, delay_ms);
            group.waiting.window_count += 1;
            group.waiting.heap_bytes += heap_bytes(window, series_count);
        }
        if let (Some(done), Some(window)) = (small, windows.first()) {
            self.put_small(&window.tenant, done);
        }
    }

    fn put_small(&mut self, tenant: &TenantId, group: SmallWindows) {
        if group.must_go {
            self.due.push((tenant.clone(), block_range(group.range, self.rules.now_ms)));
        } else {
            self.waiting.push((tenant.clone(), group));
        }
    }

    /// What is due, sorted, each once; and what waits.
    pub(crate) fn finish(self) -> (Vec<TenantRange>, Waiting) {
        let DueWindows { rules, mut due, mut waiting } = self;
        let mut total = Waiting::default();
        for (_, group) in &waiting {
            total.window_count += group.waiting.window_count;
            total.heap_bytes += group.waiting.heap_bytes;
        }
        if total.heap_bytes > rules.waiting_bytes_max {
            // The fewest blocks for the memory; and down to half, so that the next look does not flush again.
            waiting.sort_by_key(|(_, group)| std::cmp::Reverse(group.waiting.heap_bytes));
            for (tenant, group) in waiting {
                if total.heap_bytes <= rules.waiting_bytes_max / 2 {
                    break;
                }
                total.window_count -= group.waiting.window_count;
                total.heap_bytes -= group.waiting.heap_bytes;
                due.push((tenant, block_range(group.range, rules.now_ms)));
            }
        }
        due.sort();
        due.dedup();
        (due, total)
    }
}

/// The ranges of blocks for all of `windows` of one tenant, by time: neighbours of a day that are small go to
/// one.
pub(crate) fn ranges_of(windows: &[WindowStat], small_bytes: u64, now_ms: i64) -> Vec<TimeRange> {
    let mut ranges: Vec<TimeRange> = Vec::new();
    let mut last_small_day = None;
    for window in windows {
        let day = day_of(window.range);
        let range = block_range(window.range, now_ms);
        let is_small = is_small(window, small_bytes);
        match ranges.last_mut() {
            Some(last) if is_small && last_small_day == Some(day) => last.end = last.end.max(range.end),
            Some(last) if *last == range => {}
            _ => ranges.push(range),
        }
        last_small_day = is_small.then_some(day);
    }
    ranges
}

fn is_small(window: &WindowStat, small_bytes: u64) -> bool {
    window.sample_count.saturating_mul(SAMPLE_BYTES) < small_bytes
}

fn day_of(window: TimeRange) -> TimeRange {
    TimeRange::window_of(window.start, OLD_BLOCK_MS)
}

/// Until when a small window may wait.
fn last_flush_ms(window: &WindowStat, day: TimeRange, delay_ms: i64) -> i64 {
    let longest_ms = delay_ms.saturating_mul(WAIT_FACTOR);
    let is_late = window.first_arrival_ms >= window.range.end;
    if is_late {
        return window.first_arrival_ms.saturating_add(longest_ms);
    }
    // Once the day is over no other window comes to share its block.
    window.range.end.saturating_add(longest_ms).min(day.end.saturating_add(delay_ms))
}

fn heap_bytes(window: &WindowStat, series_count: u64) -> u64 {
    // Full chunks, and of each series one that is not.
    let chunk_count = window.sample_count / CHUNK_SAMPLES + window.sample_count.min(series_count);
    chunk_count.saturating_mul(CHUNK_HEAP_BYTES)
}

#[cfg(test)]
mod tests;
