//! Start timestamps of open chunks: a column of runs per chunk, for the few series whose senders set them.
//!
//! Invariants: a column belongs to the open chunk of its series, of words or of histograms, and leaves with
//! it; the times of its runs are times of samples of the chunk; a chunk without start timestamps has no
//! column.
//! Not here: sealed chunks, whose bytes begin with their runs (`format::chunk::kinds`), and out-of-order
//! samples, which have their own (`ooo_log`).

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::starts::{StartRun, start_at};

use crate::memory_part::MemoryPart;

/// Start timestamps of the open chunks of a stripe.
#[derive(Default)]
pub(super) struct OpenStarts {
    by_series: HashMap<u32, Vec<StartRun>>,
}

impl OpenStarts {
    pub(super) fn memory(&self) -> MemoryPart {
        let runs: usize = self.by_series.values().map(Vec::capacity).sum();
        let table = self.by_series.capacity() * size_of::<(u32, Vec<StartRun>)>();
        let bytes = runs * size_of::<StartRun>() + table;
        MemoryPart::new("start_times", bytes as u64, self.by_series.len() as u64)
    }

    /// Returns true if no open chunk has start timestamps.
    pub(super) fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }

    /// Returns the runs of the open chunk of a series; empty if it has none.
    pub(super) fn of(&self, id: u32) -> &[StartRun] {
        // Most stripes have none, and skip the hash.
        if self.by_series.is_empty() { &[] } else { self.by_series.get(&id).map_or(&[], Vec::as_slice) }
    }

    /// Returns the start timestamp of the sample at `time` in the open chunk of a series; 0 = unknown.
    pub(super) fn at(&self, id: u32, time: i64) -> i64 {
        start_at(self.of(id), time)
    }

    /// Sets the start timestamp of the sample at `time`, which is newer than the others of its chunk.
    pub(super) fn push(&mut self, id: u32, time: i64, start_ms: i64) {
        if start_ms == 0 && self.of(id).is_empty() {
            return;
        }
        let runs = self.by_series.entry(id).or_insert_with(|| Vec::with_capacity(1));
        if runs.last().is_none_or(|run| run.start_ms != start_ms) {
            runs.push(StartRun { time, start_ms });
        }
    }

    /// Sets the start timestamp of the newest sample of the chunk, which is at `time`.
    pub(super) fn replace_last(&mut self, id: u32, time: i64, start_ms: i64) {
        let runs = self.by_series.get_mut(&id);
        if let Some(runs) = runs.filter(|runs| runs.last().is_some_and(|run| run.time == time)) {
            runs.pop();
            if runs.is_empty() {
                self.take(id);
            }
        }
        self.push(id, time, start_ms);
    }

    /// Removes and returns the runs of the open chunk of a series.
    pub(super) fn take(&mut self, id: u32) -> Vec<StartRun> {
        if self.by_series.is_empty() {
            return Vec::new();
        }
        let runs = self.by_series.remove(&id).unwrap_or_default();
        if self.by_series.is_empty() {
            // Frees all memory after a peak.
            self.by_series = HashMap::default();
        }
        runs
    }

    /// Sets the runs of the open chunk of a series.
    pub(super) fn restore(&mut self, id: u32, runs: &[StartRun]) {
        if runs.iter().any(|run| run.start_ms != 0) {
            self.by_series.insert(id, runs.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(starts: &OpenStarts) -> Vec<(i64, i64)> {
        starts.of(1).iter().map(|run| (run.time, run.start_ms)).collect()
    }

    #[test]
    fn runs_change_where_start_timestamps_do() {
        let mut starts = OpenStarts::default();
        for (time, start_ms) in [(10, 0), (20, 5), (30, 5), (40, 0), (50, 0)] {
            starts.push(1, time, start_ms);
        }
        assert_eq!(runs(&starts), [(20, 5), (40, 0)]);
        assert_eq!([10, 20, 39, 40, 99].map(|time| starts.at(1, time)), [0, 5, 5, 0, 0]);
        assert_eq!((starts.at(2, 20), starts.is_empty()), (0, false));
        starts.replace_last(1, 50, 7);
        assert_eq!(runs(&starts), [(20, 5), (40, 0), (50, 7)]);
        starts.replace_last(1, 50, 0);
        assert_eq!(runs(&starts), [(20, 5), (40, 0)]);
    }

    #[test]
    fn a_column_without_a_start_timestamp_is_none() {
        let mut starts = OpenStarts::default();
        starts.push(1, 10, 5);
        starts.replace_last(1, 10, 0);
        assert!(starts.is_empty() && starts.memory().bytes == 0);
        starts.restore(1, &[StartRun { time: 3, start_ms: 0 }]);
        assert!(starts.is_empty());
        starts.push(1, 10, 5);
        assert_eq!(starts.take(1), [StartRun { time: 10, start_ms: 5 }]);
        assert!(starts.is_empty() && starts.take(1).is_empty());
    }
}
