//! Samples per step, counted as in Prometheus's query statistics.
//!
//! Invariants: `total` counts a sample in every window that sees it; `read` counts it once, in the first
//! window that does. Work that is done once for all steps (`@`) counts fully in each of them, and as read in
//! the first. Samples that a function takes from a subquery count as its windows see them; those that the
//! subquery reads count as read in the step that first sees their evaluation.
//! Not here: native histograms, which Prometheus counts by size.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::column::is_absent;
use crate::grid::{Grid, Windows};

/// Samples of every step of a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepSamples {
    /// `(time in ms, samples seen by windows)`, one per step.
    pub total: Vec<(i64, u64)>,
    /// `(time in ms, samples read)`, one per step.
    pub read: Vec<(i64, u64)>,
}

pub(super) struct StepTally {
    grid: Grid,
    total: Vec<AtomicU64>,
    read: Vec<AtomicU64>,
}

/// Relation of the steps of a selector to those of the query.
enum StepRelation {
    Same,
    /// Computed once for all.
    Once,
    /// Steps of a subquery.
    Inner,
}

impl StepTally {
    pub(super) fn new(grid: Grid) -> StepTally {
        let zeros = || (0..grid.count).map(|_| AtomicU64::new(0)).collect();
        StepTally { grid, total: zeros(), read: zeros() }
    }

    pub(super) fn report(&self) -> StepSamples {
        let list = |counts: &[AtomicU64]| {
            self.grid.times().zip(counts).map(|(time, count)| (time, count.load(Ordering::Relaxed))).collect()
        };
        StepSamples { total: list(&self.total), read: list(&self.read) }
    }

    pub(super) fn add_values(&self, grid: Grid, values: &[f64]) {
        for (step, _) in values.iter().enumerate().filter(|(_, value)| !is_absent(**value)) {
            self.add_total(grid, step, 1);
            self.add_read_at(grid, step, 1);
        }
    }

    pub(super) fn add_windows(&self, windows: &Windows, times: &[i64]) {
        for step in 0..windows.grid.count {
            let count = count_in(times, windows.start(step), windows.end(step));
            self.add_total(windows.grid, step, count);
        }
    }

    pub(super) fn add_read(&self, windows: &Windows, times: &[i64]) {
        let mut seen_until = i64::MIN;
        for step in 0..windows.grid.count {
            let end = windows.end(step);
            self.add_read_at(windows.grid, step, count_in(times, windows.start(step).max(seen_until), end));
            seen_until = end;
        }
    }

    fn relation(&self, grid: Grid) -> StepRelation {
        let root = self.grid;
        if (grid.start_ms, grid.count, grid.step_ms) == (root.start_ms, root.count, root.step_ms) {
            StepRelation::Same
        } else if grid.count == 1 && grid.start_ms == root.start_ms {
            StepRelation::Once
        } else {
            StepRelation::Inner
        }
    }

    fn add_total(&self, grid: Grid, step: usize, count: u64) {
        match self.relation(grid) {
            StepRelation::Same => add(&self.total, step, count),
            StepRelation::Once => {
                for step in 0..self.total.len() {
                    add(&self.total, step, count);
                }
            }
            StepRelation::Inner => {}
        }
    }

    fn add_read_at(&self, grid: Grid, step: usize, count: u64) {
        match self.relation(grid) {
            StepRelation::Same => add(&self.read, step, count),
            StepRelation::Once => add(&self.read, 0, count),
            StepRelation::Inner => {
                let after_start_ms = grid.time(step).saturating_sub(self.grid.start_ms).max(0);
                let outer = after_start_ms.saturating_add(self.grid.step_ms - 1) / self.grid.step_ms;
                let last = self.grid.count - 1;
                add(&self.read, usize::try_from(outer).map_or(last, |outer| outer.min(last)), count);
            }
        }
    }
}

fn add(counts: &[AtomicU64], step: usize, count: u64) {
    if let Some(at) = counts.get(step) {
        at.fetch_add(count, Ordering::Relaxed);
    }
}

/// Number of the ascending `times` lie in `(start, end]`.
fn count_in(times: &[i64], start: i64, end: i64) -> u64 {
    let from = times.partition_point(|&time| time <= start);
    times.partition_point(|&time| time <= end).saturating_sub(from) as u64
}
