//! Compaction plan: blocks of a tenant that are compacted next.
//!
//! Invariants: a pure function of the ranges and sizes of the blocks. The chosen blocks may be replaced by
//! their output without changing a query result: no other block that overlaps them is between them in order
//! of precedence. No block that ends after `closed_ms` is chosen. Every step leaves fewer blocks, or one
//! block with deletions less, so planning terminates.
//! Not here: the time of a step, disk space (`compaction`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use chronolith_format::block::meta::Ulid;
use chronolith_model::TimeRange;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};

use crate::window::WINDOW_MS;

/// Widths of aligned ranges that are compacted to one block each: 2 h windows to 6 h, 24 h (blocks of old
/// windows), 3, 9 and 27 days. Each is a multiple of the one before, so aligned ranges nest. A factor of
/// about three, as in Prometheus: a sample is rewritten at most five times.
const LEVELS_MS: [i64; 5] = [3 * WINDOW_MS, 12 * WINDOW_MS, 36 * WINDOW_MS, 108 * WINDOW_MS, 324 * WINDOW_MS];
/// A block is at most this part of the retention wide: at most one block is kept beyond the retention.
const RETENTION_PART: i64 = 10;
/// Inputs of one step: each is open and has one series in memory. Two sets that overlap may have more.
const INPUT_COUNT_MAX: usize = 64;
/// Overlapping blocks of at most this size together are compacted whatever their sizes.
const SMALL_BYTES: u64 = 8 << 20;
/// A larger block is compacted with blocks that overlap it once they have this part of its size: one
/// out-of-order sample per hour must not rewrite a month every hour.
const REWRITE_PART: u64 = 8;

const _: () = {
    let mut i = 1;
    while i < LEVELS_MS.len() {
        assert!(LEVELS_MS[i] % LEVELS_MS[i - 1] == 0, "aligned ranges nest");
        i += 1;
    }
};

/// The part of a block's record that planning needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) ulid: Ulid,
    pub(crate) precedence: (Ulid, Ulid),
    /// In milliseconds, rounded to whole ones around it.
    pub(crate) range: TimeRange,
    pub(crate) size_bytes: u64,
    /// Set of blocks, split by series, that it belongs to.
    pub(crate) split_set: Option<Ulid>,
    /// Enough of its series have deleted samples to rewrite it alone.
    pub(crate) has_many_deletions: bool,
    /// Compaction of it was refused, or `meta.json` marks it as failed.
    pub(crate) is_excluded: bool,
}

impl Candidate {
    /// A block that is not compacted, but may be between others in order of precedence.
    pub(crate) fn excluded(
        ulid: Ulid,
        precedence: (Ulid, Ulid),
        range: TimeRange,
        split_set: Option<Ulid>,
    ) -> Candidate {
        Candidate {
            ulid,
            precedence,
            range,
            size_bytes: 0,
            split_set,
            has_many_deletions: false,
            is_excluded: true,
        }
    }
}

/// Bounds of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanBounds {
    /// Windows that end later are still being written.
    pub(crate) closed_ms: i64,
    /// Retention; 0 = none.
    pub(crate) retention_ms: i64,
    /// Limit of all inputs of a step; two that overlap may be larger, as may one with deletions.
    pub(crate) input_bytes_max: u64,
}

/// Blocks that are planned as one: the blocks of a set that was split by series overlap in time on purpose.
struct Unit {
    ulids: Vec<Ulid>,
    /// Precedence of its oldest block.
    precedence: (Ulid, Ulid),
    range: TimeRange,
    size_bytes: u64,
    is_excluded: bool,
}

fn units_of(blocks: &[Candidate]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::with_capacity(blocks.len());
    let mut sets: BTreeMap<Ulid, usize> = BTreeMap::new();
    for block in blocks.iter().filter(|b| !b.range.is_empty()) {
        let place = block.split_set.map(|set| *sets.entry(set).or_insert(units.len()));
        match place.and_then(|place| units.get_mut(place)) {
            Some(unit) => {
                unit.ulids.push(block.ulid);
                unit.precedence = unit.precedence.min(block.precedence);
                let (start, end) =
                    (unit.range.start.min(block.range.start), unit.range.end.max(block.range.end));
                unit.range = TimeRange::new(start, end);
                unit.size_bytes = unit.size_bytes.saturating_add(block.size_bytes);
                unit.is_excluded |= block.is_excluded;
            }
            None => units.push(Unit {
                ulids: vec![block.ulid],
                precedence: block.precedence,
                range: block.range,
                size_bytes: block.size_bytes,
                is_excluded: block.is_excluded,
            }),
        }
    }
    units.sort_by_key(|unit| (unit.range.start, unit.precedence));
    units
}

/// Returns the steps to be taken next, at most `limit` without a common block, the blocks of each by
/// precedence. Overlapping blocks come first, the largest sets before others; then the narrowest aligned
/// ranges with several blocks, the oldest before others. Cost: sorts the blocks, then one pass per kind of
/// step.
pub(crate) fn plan(blocks: &[Candidate], bounds: &PlanBounds, limit: usize) -> Vec<Vec<Ulid>> {
    let units = units_of(blocks);
    let by_start: Vec<&Unit> = units.iter().collect();
    let mut steps = overlapping(&by_start, bounds, limit);
    if steps.is_empty() {
        steps = aligned(&by_start, bounds, limit);
    }
    let may_go = |unit: &&Unit| !unit.is_excluded && unit.range.end <= bounds.closed_ms;
    assert!(
        steps.iter().flatten().all(may_go),
        "only closed blocks are compacted, and none that is excluded"
    );
    let ascends = |units: &Vec<&Unit>| units.len() > 1 && units.is_sorted_by_key(|unit| unit.precedence);
    assert!(steps.iter().all(ascends), "a step joins several blocks, by precedence");
    assert!(steps.len() <= limit, "a plan is as long as its caller keeps");
    let ulids_of = |units: &Vec<&Unit>| units.iter().flat_map(|unit| unit.ulids.iter().copied()).collect();
    steps.iter().map(ulids_of).collect()
}

/// Returns the oldest block that is rewritten alone because of its deletions.
pub(crate) fn with_deletions(blocks: &[Candidate], bounds: &PlanBounds) -> Option<Ulid> {
    let is_due = |b: &&Candidate| b.has_many_deletions && b.range.end <= bounds.closed_ms && !b.is_excluded;
    blocks.iter().filter(is_due).min_by_key(|b| (b.range.start, b.precedence)).map(|b| b.ulid)
}

fn overlapping<'a>(by_start: &[&'a Unit], bounds: &PlanBounds, limit: usize) -> Vec<Vec<&'a Unit>> {
    let mut steps: Vec<Vec<&Unit>> = Vec::new();
    let mut rest = by_start;
    while let Some(first) = rest.first() {
        let mut end = first.range.end;
        let connected = rest.iter().take_while(|b| {
            let connects = b.range.start < end;
            end = end.max(if connects { b.range.end } else { end });
            connects
        });
        let (set, after) = rest.split_at(connected.count().max(1));
        rest = after;
        if set.len() >= 2 && end <= bounds.closed_ms {
            let mut set = set.to_vec();
            set.sort_by_key(|b| b.precedence);
            let run = longest_run(&set, bounds.input_bytes_max);
            if !run.is_empty() {
                steps.push(run.to_vec());
            }
        }
    }
    steps.sort_by_key(|step| Reverse(step.len()));
    steps.truncate(limit);
    steps
}

/// Returns the longest run of `set` (by precedence) that is worth compacting; of equally long ones that with
/// the fewest bytes.
fn longest_run<'s, 'a>(set: &'s [&'a Unit], input_bytes_max: u64) -> &'s [&'a Unit] {
    let mut best: (&[&Unit], u64) = (&[], 0);
    for start in 0..set.len() {
        let (mut total, mut largest, mut block_count) = (0u64, 0u64, 0);
        for (end, unit) in set.iter().enumerate().skip(start) {
            total = total.saturating_add(unit.size_bytes);
            largest = largest.max(unit.size_bytes);
            block_count += unit.ulids.len();
            let count = end + 1 - start;
            // Two that overlap are compacted whatever their sizes: else a large one would overlap others for
            // ever.
            if unit.is_excluded || count > 2 && (total > input_bytes_max || block_count > INPUT_COUNT_MAX) {
                break;
            }
            let is_worth_it = total <= SMALL_BYTES || largest / REWRITE_PART <= total - largest;
            let is_better = count > best.0.len() || (count == best.0.len() && total < best.1);
            if count >= 2 && is_worth_it && is_better {
                best = (&set[start..=end], total);
            }
        }
    }
    best.0
}

fn aligned<'a>(by_start: &[&'a Unit], bounds: &PlanBounds, limit: usize) -> Vec<Vec<&'a Unit>> {
    // The newest block waits for its neighbours, as its range is the last one that came.
    let Some(newest) = by_start.last() else { return Vec::new() };
    let done_ms = bounds.closed_ms.min(newest.range.start);
    let widest_ms = if bounds.retention_ms == 0 { i64::MAX } else { bounds.retention_ms / RETENTION_PART };
    for width_ms in LEVELS_MS.into_iter().take_while(|&width| width <= widest_ms) {
        let steps = aligned_in(by_start, width_ms, done_ms, bounds.input_bytes_max, limit);
        if !steps.is_empty() {
            return steps;
        }
    }
    Vec::new()
}

/// Returns steps that compact all of an aligned range of `width_ms`, the oldest first.
fn aligned_in<'a>(
    by_start: &[&'a Unit],
    width_ms: i64,
    done_ms: i64,
    input_bytes_max: u64,
    limit: usize,
) -> Vec<Vec<&'a Unit>> {
    let mut steps = Vec::new();
    let mut rest = by_start;
    // The latest end of all blocks before `rest`: none of them may overlap the range.
    let mut reached_ms = i64::MIN;
    while let Some(first) = rest.first().filter(|_| steps.len() < limit) {
        let range = range_around(first.range, width_ms);
        let inside = range.map_or(0, |range| rest.iter().take_while(|b| b.range.start < range.end).count());
        let (set, after) = rest.split_at(inside.max(1));
        let set_end = set.iter().map(|b| b.range.end).max().unwrap_or(i64::MIN);
        if let Some(range) = range
            && range.end <= done_ms
            && set.len() >= 2
            && reached_ms <= range.start
            && set_end <= range.end
            && fits(set, input_bytes_max)
        {
            let mut set = set.to_vec();
            set.sort_by_key(|b| b.precedence);
            steps.push(set);
        }
        (rest, reached_ms) = (after, reached_ms.max(set_end));
    }
    steps
}

/// Returns the aligned range around `range`, if one contains all of it.
fn range_around(range: TimeRange, width_ms: i64) -> Option<TimeRange> {
    if range.start < TIME_MIN_MS || range.end > TIME_MAX_MS {
        return None;
    }
    let around = TimeRange::window_of(range.start, width_ms);
    (range.end <= around.end).then_some(around)
}

fn fits(set: &[&Unit], input_bytes_max: u64) -> bool {
    let total = set.iter().fold(0u64, |sum, b| sum.saturating_add(b.size_bytes));
    let block_count: usize = set.iter().map(|b| b.ulids.len()).sum();
    block_count <= INPUT_COUNT_MAX && total <= input_bytes_max && !set.iter().any(|b| b.is_excluded)
}

#[cfg(test)]
mod tests;
