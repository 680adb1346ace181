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

use super::{NONE, SeriesState, Stripe};
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

    fn get(&self, id: u32) -> Option<&StartTimestamps> {
        // Most stripes have none, and skip the hash.
        if self.by_series.is_empty() { None } else { self.by_series.get(&id).map(|starts| &**starts) }
    }

    pub(super) fn remove(&mut self, id: u32) {
        if self.by_series.remove(&id).is_some() && self.by_series.is_empty() {
            // Frees all memory after a peak.
            *self = Starts::default();
        }
    }
}

impl Stripe {
    /// Returns true if any series of the stripe has start timestamps.
    pub(crate) fn has_starts(&self) -> bool {
        !self.starts.by_series.is_empty()
    }

    /// Returns the start timestamps of a series, if it has some.
    pub(crate) fn starts_of(&self, id: u32) -> Option<&StartTimestamps> {
        self.starts.get(id)
    }

    /// Returns the runs that may affect samples in `range`; empty if no start is known.
    pub(crate) fn copy_starts(&self, id: u32, range: TimeRange) -> Vec<StartRun> {
        let mut out = Vec::new();
        if let Some(starts) = self.starts.get(id) {
            starts.copy(range, &mut out);
        }
        if out.iter().all(|run| run.start_ms == 0) { Vec::new() } else { out }
    }

    /// Sets the start timestamp of the sample at `time` of the existing series `id`; 0 = unknown.
    pub(crate) fn set_start(&mut self, id: u32, time: i64, start_ms: i64) {
        if let Some(starts) = self.starts.by_series.get_mut(&id) {
            return starts.set(time, start_ms);
        }
        // The starts of earlier samples are unknown.
        let newest = self.newest_time(id).filter(|&newest| newest > time);
        let mut starts = StartTimestamps::new(newest.unwrap_or(i64::MIN));
        starts.set(time, start_ms);
        self.starts.by_series.insert(id, Box::new(starts));
    }

    /// Ends the start timestamps of the series for which `is_hit` returns true at their newest sample: starts
    /// of later ones were lost, and those of earlier ones would be wrong for them.
    pub(crate) fn forget_later_starts(&mut self, mut is_hit: impl FnMut(u32) -> bool) {
        let ids: Vec<u32> = self.starts.by_series.keys().copied().filter(|&id| is_hit(id)).collect();
        for id in ids {
            let newest = self.newest_time(id).unwrap_or(i64::MIN);
            if let Some(starts) = self.starts.by_series.get_mut(&id) {
                starts.forget_after(newest);
            }
        }
    }

    /// Restores the start timestamps of a series, whose chunks are restored already.
    pub(crate) fn restore_starts(&mut self, id: u32, runs: &[StartRun]) {
        let newest = self.newest_time(id).unwrap_or(i64::MIN);
        self.starts.by_series.insert(id, Box::new(StartTimestamps::restored(runs, newest)));
    }

    /// Drops start timestamps of samples that have left the series.
    pub(crate) fn trim_starts(&mut self, id: u32) {
        if self.starts.get(id).is_none() {
            return;
        }
        let Some(oldest) = self.oldest_time(id) else { return self.starts.remove(id) };
        if let Some(starts) = self.starts.by_series.get_mut(&id)
            && !starts.trim(oldest)
        {
            self.starts.remove(id);
        }
    }

    /// Returns the timestamp of the oldest sample of a series.
    fn oldest_time(&self, id: u32) -> Option<i64> {
        let series = self.series(id)?;
        let floats = |series: &SeriesState| {
            let open = (!series.open.is_none()).then_some(series.open_min);
            let ooo = (series.ooo != NONE).then(|| self.ooo.times(series.ooo).min()).flatten();
            let sealed = self.sealed_chunks.list(series.sealed).map(|node| node.min_time).min();
            [open, ooo, sealed].into_iter().flatten().min()
        };
        let histograms = self.histograms_of(id).and_then(|starts| {
            let open = starts.open.as_ref().map(|open| open.times().0);
            let ooo = starts.ooo.first_key_value().map(|(&time, _)| time);
            let sealed = starts.sealed.iter().next().map(|node| node.min_time);
            [open, ooo, sealed].into_iter().flatten().min()
        });
        [floats(series), histograms].into_iter().flatten().min()
    }
}
