//! Start timestamps of the few series whose senders set them: a step function of time per series, next to its
//! samples.
//!
//! Invariants: for each timestamp that a sample of the series has, the function returns the start that was
//! last recorded for that sample, whatever the arrival order and the chunk; a series without start timestamps
//! has no entry, and pays nothing for them. Functions are those of `format::chunk::starts`; all but their newest
//! runs are kept encoded.
//! Not here: the WAL (`write`), the samples themselves (the rest of `stripe`).

mod step_function;

#[cfg(test)]
mod tests;

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::starts::StartRun;
use chronolith_model::TimeRange;

use crate::memory_part::MemoryPart;
pub(crate) use step_function::StartTimestamps;

/// Runs of one series at which further samples with start timestamps are refused: three days of one per
/// second, a few bytes each.
pub(crate) const START_RUNS_MAX: usize = 1 << 18;

/// Start timestamps of the series of a stripe.
#[derive(Default)]
pub(super) struct Starts {
    by_series: HashMap<u32, Box<StartTimestamps>>,
}

impl Starts {
    pub(super) fn memory(&self) -> MemoryPart {
        let by_series: usize =
            self.by_series.values().map(|starts| size_of::<StartTimestamps>() + starts.heap_bytes()).sum();
        let table = self.by_series.capacity() * size_of::<(u32, Box<StartTimestamps>)>();
        MemoryPart::new("start_times", (by_series + table) as u64, self.by_series.len() as u64)
    }

    /// Returns true if no series has start timestamps.
    pub(super) fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }

    pub(super) fn get(&self, id: u32) -> Option<&StartTimestamps> {
        // Most stripes have none, and skip the hash.
        if self.by_series.is_empty() { None } else { self.by_series.get(&id).map(|starts| &**starts) }
    }

    pub(super) fn remove(&mut self, id: u32) {
        if self.by_series.remove(&id).is_some() && self.by_series.is_empty() {
            // Frees all memory after a peak.
            *self = Starts::default();
        }
    }

    /// Returns the runs that may affect samples in `range`; empty if no start is known.
    pub(super) fn copy(&self, id: u32, range: TimeRange) -> Vec<StartRun> {
        let mut out = Vec::new();
        if let Some(starts) = self.get(id) {
            starts.copy(range, &mut out);
        }
        if out.iter().all(|run| run.start_ms == 0) { Vec::new() } else { out }
    }

    /// Sets the start timestamp of the sample at `time` of series `id`, whose newest sample is at `newest`;
    /// 0 = unknown.
    pub(super) fn set(&mut self, id: u32, time: i64, start_ms: i64, newest: Option<i64>) {
        let starts = self.by_series.entry(id).or_insert_with(|| {
            // The starts of earlier samples are unknown.
            let newest = newest.filter(|&newest| newest > time);
            Box::new(StartTimestamps::new(newest.unwrap_or(i64::MIN)))
        });
        starts.set(time, start_ms);
    }

    /// Ends the start timestamps of the series for which `is_hit` returns true at their newest sample, which
    /// `newest_of` returns.
    pub(super) fn forget_later(
        &mut self,
        mut is_hit: impl FnMut(u32) -> bool,
        newest_of: impl Fn(u32) -> Option<i64>,
    ) {
        for (&id, starts) in &mut self.by_series {
            if is_hit(id) {
                starts.forget_after(newest_of(id).unwrap_or(i64::MIN));
            }
        }
    }

    /// Restores the start timestamps of a series, whose newest sample is at `newest`.
    pub(super) fn restore(&mut self, id: u32, runs: &[StartRun], newest: Option<i64>) {
        let restored = StartTimestamps::restored(runs, newest.unwrap_or(i64::MIN));
        self.by_series.insert(id, Box::new(restored));
    }

    /// Drops start timestamps before `oldest`, that of the oldest sample of the series.
    pub(super) fn trim(&mut self, id: u32, oldest: Option<i64>) {
        let (Some(oldest), Some(starts)) = (oldest, self.by_series.get_mut(&id)) else {
            return self.remove(id);
        };
        if !starts.trim(oldest) {
            self.remove(id);
        }
    }
}
