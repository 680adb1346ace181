//! Start times of the samples that wait in order: of the few series that have some, runs beside their packed samples.
//!
//! Holds: runs ascend, since the samples do. Memory: 16 bytes for each change of a start time among waiting samples.

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::starts::{StartRun, fill};
use chronolith_model::Columns;

/// See the module.
#[derive(Default)]
pub(super) struct OpenStarts {
    by_series: HashMap<u32, Vec<StartRun>>,
}

impl OpenStarts {
    /// Whether no series has start times.
    pub(super) fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }

    /// Says when the counter of the newest sample of a series began, 0 if nobody knows.
    pub(super) fn note(&mut self, series: u32, time: i64, start_ms: i64) {
        if start_ms == 0 && (self.by_series.is_empty() || !self.by_series.contains_key(&series)) {
            return;
        }
        let runs = self.by_series.entry(series).or_default();
        if runs.last().map_or(0, |run| run.start_ms) != start_ms {
            runs.push(StartRun { time, start_ms });
        }
    }

    /// Gives the waiting samples of a series, which leave, their start times.
    pub(super) fn drain(&mut self, series: u32, columns: &mut Columns) {
        let Some(runs) = self.by_series.get_mut(&series) else { return };
        fill(runs, 0, columns);
        // The newest one goes on.
        runs.drain(..runs.len().saturating_sub(1));
    }
}
