//! Which blocks of a tenant are merged next.
//!
//! Holds: a pure function of what the blocks cover and weigh. The blocks chosen may be replaced by their merged block
//! without changing an answer: no other block that overlaps them stands between them in order of precedence.
//! Nothing that reaches beyond `closed_ms` is chosen. Every step leaves fewer blocks, or one with deleted samples less,
//! so planning comes to an end.
//! Not here: when a step is done, disk space (`compaction`).

use chronolith_format::meta::Ulid;
use chronolith_model::TimeRange;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};

use crate::store::WINDOW_MS;

/// Widths of aligned ranges that are merged to one block each: 2 h windows to 6 h, 24 h (what old windows are cut to), 3,
/// 9 and 27 days. Each is a multiple of the one before, so aligned ranges nest. About a factor of three as
/// Prometheus has it: a sample is written at most five times more.
const LEVELS_MS: [i64; 5] = [3 * WINDOW_MS, 12 * WINDOW_MS, 36 * WINDOW_MS, 108 * WINDOW_MS, 324 * WINDOW_MS];
/// A block is at most this part of the retention wide: what is kept beyond the retention is at most one block.
const RETENTION_PART: i64 = 10;
/// Blocks merged in one step: each has its files mapped and one series in memory.
const INPUT_COUNT_MAX: usize = 64;
/// Overlapping blocks of at most this size together are merged whatever their sizes.
const SMALL_BYTES: u64 = 8 << 20;
/// A larger block is merged with blocks that overlap it once they have this part of its size: one late sample an hour
/// must not rewrite a month every hour.
const REWRITE_PART: u64 = 8;

const _: () = {
    let mut i = 1;
    while i < LEVELS_MS.len() {
        assert!(LEVELS_MS[i] % LEVELS_MS[i - 1] == 0, "aligned ranges nest");
        i += 1;
    }
};

/// What planning knows of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) ulid: Ulid,
    /// As `chronolith_block::precedence` gives it.
    pub(crate) precedence: (Ulid, Ulid),
    pub(crate) range: TimeRange,
    pub(crate) size_bytes: u64,
    /// Enough of it is deleted to rewrite it alone.
    pub(crate) is_riddled: bool,
    /// It cannot be merged (a try was refused, or its `meta.json` says so).
    pub(crate) left_alone: bool,
}

/// Bounds of a plan.
#[derive(Debug, Clone)]
pub(crate) struct PlanBounds {
    /// Windows that end later are still being written.
    pub(crate) closed_ms: i64,
    /// Retention; 0 = none.
    pub(crate) retention_ms: i64,
    /// Bytes of all inputs of a step, which bounds those of its output.
    pub(crate) input_bytes_max: u64,
}

/// The blocks to be merged next, by precedence; `None` if all is as it should be. Overlapping blocks come first,
/// those with the most overlap before others; then the narrowest aligned range that holds several blocks, the
/// oldest before others; then single blocks of which much is deleted.
pub(crate) fn plan(blocks: &[Candidate], bounds: &PlanBounds) -> Option<Vec<Ulid>> {
    let mut by_start: Vec<&Candidate> = blocks.iter().filter(|b| !b.range.is_empty()).collect();
    by_start.sort_by_key(|b| (b.range.start, b.precedence));
    let chosen = overlapping(&by_start, bounds)
        .or_else(|| aligned(&by_start, bounds))
        .or_else(|| riddled(&by_start, bounds))?;
    Some(chosen.into_iter().map(|b| b.ulid).collect())
}

fn overlapping<'a>(by_start: &[&'a Candidate], bounds: &PlanBounds) -> Option<Vec<&'a Candidate>> {
    let mut best: Vec<&Candidate> = Vec::new();
    let mut rest = by_start;
    while let Some(first) = rest.first() {
        let mut end = first.range.end;
        let connected = rest.iter().take_while(|b| {
            let connects = b.range.start < end;
            end = end.max(if connects { b.range.end } else { end });
            connects
        });
        let (set, behind) = rest.split_at(connected.count().max(1));
        rest = behind;
        if set.len() > best.len().max(1) && end <= bounds.closed_ms {
            let mut set = set.to_vec();
            set.sort_by_key(|b| b.precedence);
            let run = longest_run(&set, bounds.input_bytes_max);
            if run.len() > best.len() {
                best = run.to_vec();
            }
        }
    }
    (!best.is_empty()).then_some(best)
}

/// The longest stretch of `set` (by precedence) that is worth merging; of equally long ones that with the fewest bytes.
fn longest_run<'s, 'a>(set: &'s [&'a Candidate], input_bytes_max: u64) -> &'s [&'a Candidate] {
    let mut best: (&[&Candidate], u64) = (&[], 0);
    for start in 0..set.len() {
        let (mut total, mut largest) = (0u64, 0u64);
        for (end, block) in set.iter().enumerate().skip(start).take(INPUT_COUNT_MAX) {
            total = total.saturating_add(block.size_bytes);
            largest = largest.max(block.size_bytes);
            if block.left_alone || total > input_bytes_max {
                break;
            }
            let worth = total <= SMALL_BYTES || largest / REWRITE_PART <= total - largest;
            let count = end + 1 - start;
            let better = count > best.0.len() || (count == best.0.len() && total < best.1);
            if count >= 2 && worth && better {
                best = (&set[start..=end], total);
            }
        }
    }
    best.0
}

fn aligned<'a>(by_start: &[&'a Candidate], bounds: &PlanBounds) -> Option<Vec<&'a Candidate>> {
    // The newest block waits for its neighbours, as its range is the last one that came.
    let newest_ms = by_start.last()?.range.start;
    let done_ms = bounds.closed_ms.min(newest_ms);
    let widest_ms = if bounds.retention_ms == 0 { i64::MAX } else { bounds.retention_ms / RETENTION_PART };
    LEVELS_MS.into_iter().take_while(|&width| width <= widest_ms).find_map(|width_ms| {
        let mut rest = by_start;
        while let Some(first) = rest.first() {
            let Some(range) = range_around(first.range, width_ms) else {
                rest = &rest[1..];
                continue;
            };
            let inside = rest.iter().take_while(|b| b.range.start < range.end).count();
            let (set, behind) = rest.split_at(inside.max(1));
            rest = behind;
            if range.end <= done_ms && is_whole(set, range, by_start) && fits(set, bounds.input_bytes_max) {
                let mut set = set.to_vec();
                set.sort_by_key(|b| b.precedence);
                return Some(set);
            }
        }
        None
    })
}

/// The first block that is rewritten without what is deleted.
fn riddled<'a>(by_start: &[&'a Candidate], bounds: &PlanBounds) -> Option<Vec<&'a Candidate>> {
    let is_due = |b: &&&Candidate| {
        b.is_riddled && b.range.end <= bounds.closed_ms && fits(&[b], bounds.input_bytes_max)
    };
    by_start.iter().find(is_due).map(|b| vec![*b])
}

/// The aligned range that holds all of `range`, if there is one.
fn range_around(range: TimeRange, width_ms: i64) -> Option<TimeRange> {
    if range.start < TIME_MIN_MS || range.end > TIME_MAX_MS {
        return None;
    }
    let around = TimeRange::window_of(range.start, width_ms);
    (range.end <= around.end).then_some(around)
}

/// Whether `set` is several blocks inside `range`, and no other reaches into it.
fn is_whole(set: &[&Candidate], range: TimeRange, all: &[&Candidate]) -> bool {
    let overlapping_count = all.iter().filter(|b| b.range.overlaps(range)).count();
    set.len() >= 2
        && overlapping_count == set.len()
        && set.iter().all(|b| range.start <= b.range.start && b.range.end <= range.end)
}

fn fits(set: &[&Candidate], input_bytes_max: u64) -> bool {
    let total = set.iter().fold(0u64, |sum, b| sum.saturating_add(b.size_bytes));
    set.len() <= INPUT_COUNT_MAX && total <= input_bytes_max && !set.iter().any(|b| b.left_alone)
}

#[cfg(test)]
mod tests;
