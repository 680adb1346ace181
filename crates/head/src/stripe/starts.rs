//! Start times of the few series whose senders say them: a step function of time a series, beside its samples.
//!
//! Holds: of each time that a sample of the series has, the function says what was said of that sample last, whatever the
//! order in which samples came and whatever chunk they are in; a series whose senders say nothing has no track, and its
//! path none of this. Functions are those of `format::starts`; all but their newest runs are kept coded.
//! Not here: the log (`append`), which samples there are (the rest of `stripe`).

mod track;

#[cfg(test)]
mod tests;

use chronolith_base::hash::HashMap;
use chronolith_format::starts::StartRun;
use chronolith_model::TimeRange;

use super::{Hot, NONE, Stripe};
use crate::memory::MemoryPart;
pub(crate) use track::StartTrack;

/// Runs of one series at which further samples with start times are refused: three days of one a second, a few bytes each.
pub(crate) const START_RUNS_MAX: usize = 1 << 18;

/// The tracks of a stripe.
#[derive(Default)]
pub(super) struct Starts {
    tracks: HashMap<u32, Box<StartTrack>>,
}

impl Starts {
    pub(super) fn memory(&self) -> MemoryPart {
        let tracks: usize =
            self.tracks.values().map(|track| size_of::<StartTrack>() + track.heap_bytes()).sum();
        let table = self.tracks.capacity() * size_of::<(u32, Box<StartTrack>)>();
        MemoryPart::new("start_times", (tracks + table) as u64, self.tracks.len() as u64)
    }

    fn get(&self, id: u32) -> Option<&StartTrack> {
        // Most stripes have none, and need no hash to know.
        if self.tracks.is_empty() { None } else { self.tracks.get(&id).map(|track| &**track) }
    }

    pub(super) fn remove(&mut self, id: u32) {
        if self.tracks.remove(&id).is_some() && self.tracks.is_empty() {
            // After a peak nothing is kept of it.
            *self = Starts::default();
        }
    }
}

impl Stripe {
    /// Whether any series here has start times.
    pub(crate) fn has_starts(&self) -> bool {
        !self.starts.tracks.is_empty()
    }

    /// The start times of a series, if it has some.
    pub(crate) fn starts_of(&self, id: u32) -> Option<&StartTrack> {
        self.starts.get(id)
    }

    /// What of the start times of a series may concern samples in `range`; empty if nothing is known of any.
    pub(crate) fn copy_starts(&self, id: u32, range: TimeRange) -> Vec<StartRun> {
        let mut out = Vec::new();
        if let Some(track) = self.starts.get(id) {
            track.copy(range, &mut out);
        }
        if out.iter().all(|run| run.start_ms == 0) { Vec::new() } else { out }
    }

    /// Says when the counter of the sample at `time` of series `id` began, 0 if nobody knows; the series is there.
    pub(crate) fn set_start(&mut self, id: u32, time: i64, start_ms: i64) {
        if let Some(track) = self.starts.tracks.get_mut(&id) {
            return track.set(time, start_ms);
        }
        // Nothing is known of the samples that are there.
        let newest = self.newest_time(id).filter(|&newest| newest > time);
        let mut track = StartTrack::new(newest.unwrap_or(i64::MIN));
        track.set(time, start_ms);
        self.starts.tracks.insert(id, Box::new(track));
    }

    /// Ends the start times of the series for which `is_hit` holds with their newest sample: starts of later ones were
    /// lost, and those of earlier ones would be wrong for them.
    pub(crate) fn forget_later_starts(&mut self, mut is_hit: impl FnMut(u32) -> bool) {
        let ids: Vec<u32> = self.starts.tracks.keys().copied().filter(|&id| is_hit(id)).collect();
        for id in ids {
            let newest = self.newest_time(id).unwrap_or(i64::MIN);
            if let Some(track) = self.starts.tracks.get_mut(&id) {
                track.forget_after(newest);
            }
        }
    }

    /// Restores the start times of a series, whose chunks are restored before.
    pub(crate) fn restore_starts(&mut self, id: u32, runs: &[StartRun]) {
        let newest = self.newest_time(id).unwrap_or(i64::MIN);
        self.starts.tracks.insert(id, Box::new(StartTrack::restored(runs, newest)));
    }

    /// Forgets start times of samples that have left the series.
    pub(crate) fn trim_starts(&mut self, id: u32) {
        if self.starts.get(id).is_none() {
            return;
        }
        let Some(oldest) = self.oldest_time(id) else { return self.starts.remove(id) };
        if let Some(track) = self.starts.tracks.get_mut(&id)
            && !track.trim(oldest)
        {
            self.starts.remove(id);
        }
    }

    /// Time of the oldest sample of a series.
    fn oldest_time(&self, id: u32) -> Option<i64> {
        let hot = self.hot(id)?;
        let floats = |hot: &Hot| {
            let open = (!hot.open.is_none()).then_some(hot.open_min);
            let late = (hot.late != NONE).then(|| self.late.times(hot.late).min()).flatten();
            let sealed = self.nodes.list(hot.sealed).map(|node| node.min_time).min();
            [open, late, sealed].into_iter().flatten().min()
        };
        let histograms = self.histograms_of(id).and_then(|track| {
            let open = track.open.as_ref().map(|open| open.times().0);
            let late = track.late.first_key_value().map(|(&time, _)| time);
            let sealed = track.sealed.iter().next().map(|node| node.min_time);
            [open, late, sealed].into_iter().flatten().min()
        });
        [floats(hot), histograms].into_iter().flatten().min()
    }
}
