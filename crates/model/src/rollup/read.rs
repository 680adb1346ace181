//! Answer of a source to a read of roll-ups: windows, and ranges whose samples have to be read.

use super::archive::RollupArchive;
use super::facts::RollupFacts;
use super::methods::RollupMethods;
use super::windows::RolledWindows;
use crate::TimeRange;

/// Windows of a range that are known, and the rest of the range.
///
/// Each window of the range is either among the windows, or in one of the raw ranges as a whole, or empty.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RollupRead {
    /// Known windows.
    pub windows: RolledWindows,
    /// Ranges to be computed from samples; in any order until [`RollupRead::merged`].
    pub raw: Vec<TimeRange>,
    /// Properties of the samples of the windows.
    pub facts: RollupFacts,
}

impl RollupRead {
    /// Nothing, for values of `methods`.
    #[must_use]
    pub fn new(methods: RollupMethods) -> RollupRead {
        RollupRead { windows: RolledWindows::new(methods), ..RollupRead::default() }
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.windows.clear();
        self.raw.clear();
        self.facts = RollupFacts::OF_NONE;
    }

    /// Adds the windows that have a part of `part`, within `range`, to the raw ranges.
    pub fn add_raw(&mut self, archive: &RollupArchive, part: TimeRange, range: TimeRange) {
        let cut = TimeRange::new(part.start.max(range.start), part.end.min(range.end));
        if cut.start < cut.end {
            self.raw.push(archive.widened(cut));
        }
    }

    /// Joins the answers of several sources of one series. A window that several of them may have samples of
    /// is raw.
    #[must_use]
    pub fn merged(archive: &RollupArchive, mut reads: Vec<RollupRead>) -> RollupRead {
        if let [one] = reads.as_mut_slice()
            && one.raw.is_empty()
        {
            return std::mem::take(one);
        }
        reads.sort_by_key(|read| read.windows.starts().first().copied());
        let last_of = |read: &RollupRead| read.windows.starts().last().copied();
        let with_windows: Vec<&RollupRead> = reads.iter().filter(|read| !read.windows.is_empty()).collect();
        let is_disjoint =
            with_windows.windows(2).all(|pair| last_of(pair[0]) < pair[1].windows.starts().first().copied());
        let facts = reads.iter().fold(RollupFacts::OF_NONE, |facts, read| facts.and(read.facts));
        let merged = match is_disjoint {
            true => merged_disjoint(archive, &reads),
            false => RollupRead::merged_overlapping(archive, &reads),
        };
        RollupRead { facts, ..merged }
    }

    /// As [`RollupRead::merged`], window by window.
    fn merged_overlapping(archive: &RollupArchive, reads: &[RollupRead]) -> RollupRead {
        let mut raw: Vec<TimeRange> = reads.iter().flat_map(|read| read.raw.iter().copied()).collect();
        let mut order: Vec<(i64, usize, usize)> = Vec::new();
        for (at, read) in reads.iter().enumerate() {
            order.extend(read.windows.starts().iter().enumerate().map(|(idx, start)| (*start, at, idx)));
        }
        if !order.is_sorted() {
            order.sort_unstable();
        }
        let repeated = order.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        raw.extend(repeated.map(|pair| TimeRange::new(pair[0].0, pair[0].0 + archive.span_ms())));
        let mut out = RollupRead { raw: TimeRange::joined(raw), ..RollupRead::new(archive.methods) };
        let mut left = out.raw.iter().peekable();
        let mut run: Option<(usize, usize, usize)> = None;
        for (start, at, idx) in order {
            while left.next_if(|range| range.end <= start).is_some() {}
            if left.peek().is_some_and(|range| range.contains(start)) {
                continue;
            }
            run = match run {
                Some((of, first, end)) if of == at && end == idx => Some((of, first, idx + 1)),
                done => {
                    put_run(reads, done, &mut out.windows);
                    Some((at, idx, idx + 1))
                }
            };
        }
        put_run(reads, run, &mut out.windows);
        out
    }
}

/// Joins answers whose windows are one after the other.
fn merged_disjoint(archive: &RollupArchive, reads: &[RollupRead]) -> RollupRead {
    let raw = TimeRange::joined(reads.iter().flat_map(|read| read.raw.iter().copied()).collect());
    let mut out = RollupRead { raw, ..RollupRead::new(archive.methods) };
    out.windows.reserve(reads.iter().map(|read| read.windows.len()).sum());
    for RollupRead { windows, .. } in reads {
        let mut first = 0;
        for range in &out.raw {
            let end = windows.starts().partition_point(|start| *start < range.start);
            out.windows.extend_from(windows, first..end.max(first));
            first = first.max(windows.starts().partition_point(|start| *start < range.end));
        }
        out.windows.extend_from(windows, first..windows.len());
    }
    out
}

fn put_run(reads: &[RollupRead], run: Option<(usize, usize, usize)>, out: &mut RolledWindows) {
    if let Some((at, first, end)) = run
        && let Some(read) = reads.get(at)
    {
        out.extend_from(&read.windows, first..end);
    }
}
