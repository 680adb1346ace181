//! Flush plan: head windows that are due, and small ones that wait for others of their tenant and day.
//!
//! Invariants: a pure function of the windows and the time. A window is due `delay_ms` after its end, or
//! after its first sample if that came later; a large one of the past as soon as it rests (`resting`); a
//! small one at most [`WAIT_FACTOR`] times the delay, and on time once its day is over. Small windows of a
//! tenant and day go to one block, together with the first of them that is due. Waiting windows take at most
//! `waiting_bytes_max` of memory by estimate: beyond it the tenants with most of it are flushed.
//! Not here: flushing (`writer`), retries (`scheduler`).

use std::collections::BTreeMap;

use chronolith_head::{HeadStatistics, TextStats, TextWindow, WindowStat};
use chronolith_model::{StoreId, TimeRange};

use crate::window::BlockRanges;

/// Longest wait of a small window, in flush delays.
const WAIT_FACTOR: i64 = 24;
/// Estimate of a sample in a block: a float takes about 1.3 bytes when regular, and up to 9.
const SAMPLE_BYTES: u64 = 4;
/// Samples of a chunk in the head.
const CHUNK_SAMPLES: u64 = 120;
/// Memory of a sealed chunk in the head, whose bytes are in a file.
const CHUNK_HEAP_BYTES: u64 = 32;

/// Settings of a flush plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushRules {
    pub(super) now_ms: i64,
    pub(super) delay_ms: i64,
    /// A window with an estimate of fewer bytes is small; 0 = none is.
    pub(super) small_bytes: u64,
    /// Limit of the memory of all windows that wait beyond the delay.
    pub(super) waiting_bytes_max: u64,
}

/// Small windows that wait beyond the flush delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) window_count: u64,
    /// Estimate of their memory in the head.
    pub(super) heap_bytes: u64,
}

/// A flush of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DueFlush {
    /// Time at which the first of its windows was due.
    pub(super) due_ms: i64,
    /// Estimated size of the block.
    pub(super) bytes: u64,
}

/// Small windows of one tenant and day.
struct SmallWindows {
    day: TimeRange,
    /// From the first to the last of them.
    range: TimeRange,
    /// Time at which the first of them may wait no longer.
    due_ms: i64,
    bytes: u64,
    waiting: Waiting,
}

/// Flushes by tenant and range of the block.
pub(super) type FlushPlan = BTreeMap<(StoreId, TimeRange), DueFlush>;

/// Plans the flushes of all tenants, one tenant after the other.
pub(super) struct FlushPlanner {
    rules: FlushRules,
    due: FlushPlan,
    waiting: Vec<(StoreId, SmallWindows)>,
}

impl FlushPlanner {
    pub(super) fn new(rules: FlushRules) -> FlushPlanner {
        FlushPlanner { rules, due: FlushPlan::new(), waiting: Vec::new() }
    }

    /// Adds the windows of one tenant, ascending by time. Cost: one pass over them.
    pub(super) fn add_tenant(&mut self, series_count: u64, windows: &[WindowStat]) {
        let FlushRules { now_ms, delay_ms, small_bytes, .. } = self.rules;
        let mut small: Option<SmallWindows> = None;
        for window in windows {
            let ranges = BlockRanges::new(&window.tenant, now_ms);
            let due_ms = end_ms(window, window.range).max(window.first_arrival_ms).saturating_add(delay_ms);
            if now_ms < due_ms {
                continue;
            }
            let bytes = estimated_bytes(window);
            if !is_small(window, small_bytes) {
                self.add_due(&window.tenant, window.range, DueFlush { due_ms, bytes });
                continue;
            }
            let day = ranges.day_of(window.range);
            if let Some(complete) = small.take_if(|small| small.day != day) {
                self.add_small(&window.tenant, complete);
            }
            let group = small.get_or_insert(SmallWindows {
                day,
                range: window.range,
                due_ms: i64::MAX,
                bytes: 0,
                waiting: Waiting::default(),
            });
            group.range.end = window.range.end;
            group.due_ms = group.due_ms.min(last_flush_ms(window, day, delay_ms));
            group.bytes = group.bytes.saturating_add(bytes);
            group.waiting.window_count += 1;
            group.waiting.heap_bytes += heap_bytes(window, series_count);
        }
        if let (Some(complete), Some(window)) = (small, windows.first()) {
            self.add_small(&window.tenant, complete);
        }
        if let Some(window) = windows.first() {
            self.widen_old(&window.tenant);
        }
    }

    /// Adds a large window that receives no more samples. It gets a block of its own, as the other windows of
    /// its day may still be filled.
    pub(super) fn add_resting(&mut self, window: &WindowStat) {
        let flush = DueFlush { due_ms: self.rules.now_ms, bytes: estimated_bytes(window) };
        self.put_due(&window.tenant, window.range, flush);
    }

    /// Joins the flushes of many old ranges of a tenant.
    fn widen_old(&mut self, store: &StoreId) {
        let first = (store.clone(), TimeRange { start: i64::MIN, end: i64::MIN });
        let of_tenant = self.due.range(first..).map(|((other, range), _)| (other, *range));
        let all: Vec<TimeRange> =
            of_tenant.take_while(|(other, _)| *other == store).map(|(_, range)| range).collect();
        let ranges = BlockRanges::new(store, self.rules.now_ms);
        let width = ranges.width_of_old(&all);
        for range in all.into_iter().filter(|&range| ranges.widened(range, width) != range) {
            if let Some(flush) = self.due.remove(&(store.clone(), range)) {
                self.put_due(store, ranges.widened(range, width), flush);
            }
        }
    }

    /// Adds windows with texts, whether they have ended or not, once the texts of all tenants take three
    /// quarters of their memory: the oldest windows of the tenants with most texts, down to half of it.
    pub(super) fn add_texts(&mut self, statistics: &HeadStatistics) {
        let TextStats { bytes, bytes_max } = statistics.texts();
        if bytes > bytes_max / 4 * 3 {
            self.add_text_windows(statistics.text_windows(), bytes - bytes_max / 2);
        }
    }

    fn add_text_windows(&mut self, mut windows: Vec<TextWindow>, bytes: u64) {
        let mut of_tenant: BTreeMap<StoreId, u64> = BTreeMap::new();
        for window in &windows {
            *of_tenant.entry(window.tenant.clone()).or_default() += window.bytes;
        }
        let total = |window: &TextWindow| of_tenant.get(&window.tenant).copied().unwrap_or(0);
        windows.sort_by_key(|window| (std::cmp::Reverse(total(window)), window.range.start));
        let mut left = bytes;
        for TextWindow { tenant, range, bytes } in windows {
            if left == 0 {
                return;
            }
            left = left.saturating_sub(bytes);
            self.add_due(&tenant, range, DueFlush { due_ms: self.rules.now_ms, bytes });
        }
    }

    fn add_small(&mut self, store: &StoreId, group: SmallWindows) {
        if group.due_ms <= self.rules.now_ms {
            self.add_due(store, group.range, DueFlush { due_ms: group.due_ms, bytes: group.bytes });
        } else {
            self.waiting.push((store.clone(), group));
        }
    }

    /// Adds a flush; old windows of one day become one.
    fn add_due(&mut self, store: &StoreId, windows: TimeRange, flush: DueFlush) {
        self.put_due(store, BlockRanges::new(store, self.rules.now_ms).of(windows), flush);
    }

    fn put_due(&mut self, store: &StoreId, range: TimeRange, flush: DueFlush) {
        let known = self.due.entry((store.clone(), range)).or_insert(DueFlush { bytes: 0, ..flush });
        known.due_ms = known.due_ms.min(flush.due_ms);
        known.bytes = known.bytes.saturating_add(flush.bytes);
    }

    /// Returns the due flushes, and the sum of the windows that wait.
    pub(super) fn finish(mut self) -> (FlushPlan, Waiting) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let FlushRules { now_ms, waiting_bytes_max, .. } = self.rules;
        let mut total = Waiting::default();
        for (_, group) in &waiting {
            total.window_count += group.waiting.window_count;
            total.heap_bytes += group.waiting.heap_bytes;
        }
        if total.heap_bytes > waiting_bytes_max {
            // The fewest blocks for the memory; and down to half, so that the next search does not flush
            // again.
            waiting.sort_by_key(|(_, group)| std::cmp::Reverse(group.waiting.heap_bytes));
            for (tenant, group) in waiting {
                if total.heap_bytes <= waiting_bytes_max / 2 {
                    break;
                }
                total.window_count -= group.waiting.window_count;
                total.heap_bytes -= group.waiting.heap_bytes;
                self.add_due(&tenant, group.range, DueFlush { due_ms: now_ms, bytes: group.bytes });
            }
        }
        (self.due, total)
    }
}

/// Returns the ranges of blocks for all `windows` of one tenant, ascending by time: adjacent small windows of
/// a day share one.
pub(in crate::maintenance) fn block_ranges_of(
    windows: &[WindowStat],
    small_bytes: u64,
    now_ms: i64,
) -> Vec<TimeRange> {
    let mut ranges: Vec<TimeRange> = Vec::new();
    let mut last_small_day = None;
    let Some(of_tenant) = windows.first().map(|window| BlockRanges::new(&window.tenant, now_ms)) else {
        return ranges;
    };
    for window in windows {
        let day = of_tenant.day_of(window.range);
        let range = of_tenant.of(window.range);
        let is_small = is_small(window, small_bytes);
        match ranges.last_mut() {
            Some(last) if is_small && last_small_day == Some(day) => last.end = last.end.max(range.end),
            Some(last) if *last == range => {}
            _ => ranges.push(range),
        }
        last_small_day = is_small.then_some(day);
    }
    let width = of_tenant.width_of_old(&ranges);
    ranges.iter_mut().for_each(|range| *range = of_tenant.widened(*range, width));
    ranges.dedup();
    ranges
}

/// Returns the end of a range of the tenant of `window` in milliseconds.
pub(super) fn end_ms(window: &WindowStat, range: TimeRange) -> i64 {
    window.tenant.time_unit().to_ms_ceil(range.end)
}

fn is_small(window: &WindowStat, small_bytes: u64) -> bool {
    estimated_bytes(window) < small_bytes
}

/// Returns the estimated size of the block of `window`.
pub(super) fn estimated_bytes(window: &WindowStat) -> u64 {
    window.sample_count.saturating_mul(SAMPLE_BYTES)
}

/// Returns the time up to which a small window may wait.
fn last_flush_ms(window: &WindowStat, day: TimeRange, delay_ms: i64) -> i64 {
    let longest_ms = delay_ms.saturating_mul(WAIT_FACTOR);
    let window_end_ms = end_ms(window, window.range);
    let is_late = window.first_arrival_ms >= window_end_ms;
    if is_late {
        return window.first_arrival_ms.saturating_add(longest_ms);
    }
    // Once the day is over no other window comes to share its block.
    window_end_ms.saturating_add(longest_ms).min(end_ms(window, day).saturating_add(delay_ms))
}

fn heap_bytes(window: &WindowStat, series_count: u64) -> u64 {
    // Full chunks, and of each series one that is not.
    let chunk_count = window.sample_count / CHUNK_SAMPLES + window.sample_count.min(series_count);
    chunk_count.saturating_mul(CHUNK_HEAP_BYTES)
}

#[cfg(test)]
mod tests;
