//! Samples per step, counted as in Prometheus's query statistics.
//!
//! Invariants: `total` counts a sample in every window that sees it; `read` counts it once, in the first
//! window that does. Work that is done once for all steps (`@`) counts fully in each of them, and as read in
//! the first. Samples that a subquery reads count in every step whose window contains their evaluation, and
//! as read in the first such step; samples of evaluations outside of all windows do not count.
//! Not here: native histograms, which Prometheus counts by size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

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
    /// Subqueries: their steps, and the windows that take them.
    subqueries: Mutex<Vec<(Grid, Windows)>>,
}

/// Relation of the steps of a selector to the steps of the query.
enum StepRelation {
    Same,
    /// Computed once for all.
    Once,
    /// Steps of a subquery, which these windows take.
    Inner(Windows),
    /// Computed once for all steps of a subquery.
    InnerOnce(Grid),
    /// Steps of an unknown subquery; nothing is counted.
    Unknown,
}

impl StepTally {
    pub(super) fn new(grid: Grid) -> StepTally {
        let zeros = || (0..grid.count).map(|_| AtomicU64::new(0)).collect();
        StepTally { grid, total: zeros(), read: zeros(), subqueries: Mutex::default() }
    }

    pub(super) fn note_subquery(&self, inner: Grid, windows: Windows) {
        self.subqueries.lock().unwrap_or_else(PoisonError::into_inner).push((inner, windows));
    }

    pub(super) fn report(&self) -> StepSamples {
        let list = |counts: &[AtomicU64]| {
            self.grid.times().zip(counts).map(|(time, count)| (time, count.load(Ordering::Relaxed))).collect()
        };
        StepSamples { total: list(&self.total), read: list(&self.read) }
    }

    pub(super) fn add_values(&self, grid: Grid, values: &[f64]) {
        let relation = self.relation(grid);
        for (step, _) in values.iter().enumerate().filter(|(_, value)| !is_absent(**value)) {
            self.add_total_by(&relation, grid, step, 1);
            self.add_read_by(&relation, grid, step, 1);
        }
    }

    pub(super) fn add_windows(&self, windows: &Windows, times: &[i64]) {
        let relation = self.relation(windows.grid);
        for step in windows.populated_steps(times) {
            let count = count_in(times, windows.start(step), windows.end(step));
            self.add_total_by(&relation, windows.grid, step, count);
        }
    }

    pub(super) fn add_read(&self, windows: &Windows, times: &[i64]) {
        let relation = self.relation(windows.grid);
        let mut seen_until = i64::MIN;
        for step in windows.populated_steps(times) {
            let end = windows.end(step);
            let count = count_in(times, windows.start(step).max(seen_until), end);
            self.add_read_by(&relation, windows.grid, step, count);
            seen_until = end;
        }
    }

    fn relation(&self, grid: Grid) -> StepRelation {
        let root = self.grid;
        let is_same = |other: Grid| {
            (grid.start_ms, grid.count, grid.step_ms) == (other.start_ms, other.count, other.step_ms)
        };
        if is_same(root) {
            return StepRelation::Same;
        }
        let subqueries = self.subqueries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, windows)) = subqueries.iter().find(|(inner, _)| is_same(*inner)) {
            StepRelation::Inner(*windows)
        } else if grid.count == 1 && grid.start_ms == root.start_ms {
            StepRelation::Once
        } else {
            let once =
                subqueries.iter().find(|(inner, _)| grid.count == 1 && grid.start_ms == inner.start_ms);
            once.map_or(StepRelation::Unknown, |(inner, _)| StepRelation::InnerOnce(*inner))
        }
    }

    fn add_total_by(&self, relation: &StepRelation, grid: Grid, step: usize, count: u64) {
        match relation {
            _ if count == 0 => {}
            StepRelation::Same => add(&self.total, step, count),
            StepRelation::Once => {
                for step in 0..self.total.len() {
                    add(&self.total, step, count);
                }
            }
            StepRelation::Inner(windows) => {
                let time_ms = grid.time(step);
                let outer = self.relation(windows.grid);
                for step in steps_that_see(windows, time_ms) {
                    self.add_total_by(&outer, windows.grid, step, count);
                }
            }
            StepRelation::InnerOnce(inner) => {
                let outer = self.relation(*inner);
                for step in 0..inner.count {
                    self.add_total_by(&outer, *inner, step, count);
                }
            }
            StepRelation::Unknown => {}
        }
    }

    fn add_read_at(&self, grid: Grid, step: usize, count: u64) {
        self.add_read_by(&self.relation(grid), grid, step, count);
    }

    fn add_read_by(&self, relation: &StepRelation, grid: Grid, step: usize, count: u64) {
        match relation {
            _ if count == 0 => {}
            StepRelation::Same => add(&self.read, step, count),
            StepRelation::Once => add(&self.read, 0, count),
            StepRelation::Inner(windows) => {
                if let Some(outer) = steps_that_see(windows, grid.time(step)).next() {
                    self.add_read_at(windows.grid, outer, count);
                }
            }
            StepRelation::InnerOnce(inner) => self.add_read_at(*inner, 0, count),
            StepRelation::Unknown => {}
        }
    }
}

/// Steps whose windows contain `time_ms`.
fn steps_that_see(windows: &Windows, time_ms: i64) -> impl Iterator<Item = usize> + '_ {
    let sees = move |step: &usize| (windows.start(*step) < time_ms) & (time_ms <= windows.end(*step));
    windows.steps_with(time_ms).filter(sees)
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
