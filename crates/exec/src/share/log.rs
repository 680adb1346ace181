//! Series of a shared part of a query, kept for readers that come later.
//!
//! Holds: a log that grows too large forgets all it has, and readers compute what they miss by themselves.
//! Not here: who reads what (`share`), what becomes of a query that needs the memory for something else (`engine`).

use std::collections::VecDeque;

use chronolith_base::Reservation;

use crate::column::StepSeries;
use crate::execution::Execution;

/// Memory of one log; beyond, a part is computed again instead.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// And the share of the query's memory that it may use: one of so many parts.
const LOG_BUDGET_PARTS: u64 = 4;

/// The series from `first` on.
pub(super) struct Log<'q> {
    execution: &'q Execution<'q>,
    series: VecDeque<StepSeries>,
    /// Place of the first of them among all that were computed.
    first: usize,
    is_given_up: bool,
    memory: Option<Reservation>,
    samples: u64,
}

/// What a log had for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The series, now in the reader's hands.
    Series,
    /// Nothing: it was given up.
    Lost,
}

/// Whether others read a series after this reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Somebody may.
    Others,
    /// Nobody does: it can be moved out.
    Nobody,
}

impl<'q> Log<'q> {
    /// Empty.
    pub(super) fn new(execution: &'q Execution<'q>) -> Log<'q> {
        Log { execution, series: VecDeque::new(), first: 0, is_given_up: false, memory: None, samples: 0 }
    }

    /// Appends series number `idx`, or gives all up.
    pub(super) fn push(&mut self, idx: usize, series: &StepSeries) {
        if self.is_given_up {
            return;
        }
        if self.series.is_empty() {
            self.first = idx;
        }
        debug_assert_eq!(self.first + self.series.len(), idx, "series are kept without gaps");
        if self.take_room(series) {
            self.series.push_back(series.clone());
        } else {
            self.give_up();
        }
    }

    fn take_room(&mut self, series: &StepSeries) -> bool {
        let (bytes, samples) = (series.heap_bytes(), series.sample_count());
        let budget = &self.execution.ctx.budget;
        let bytes_max = LOG_BYTES_MAX.min(budget.limit_bytes() / LOG_BUDGET_PARTS);
        let held = self.memory.as_ref().map_or(0, Reservation::bytes);
        if held.saturating_add(bytes) > bytes_max || !self.execution.try_hold_samples(samples) {
            return false;
        }
        self.samples += samples;
        match &mut self.memory {
            Some(memory) => memory.grow(bytes).is_ok(),
            None => {
                self.memory = budget.reserve(bytes).ok();
                self.memory.is_some()
            }
        }
    }

    /// Puts series number `idx` into `out`.
    pub(super) fn read(&mut self, idx: usize, after: After, out: &mut StepSeries) -> Found {
        let Some(at) = idx.checked_sub(self.first) else { return Found::Lost };
        if at == 0 && after == After::Nobody {
            let Some(series) = self.pop() else { return Found::Lost };
            *out = series;
        } else {
            let Some(series) = self.series.get(at) else { return Found::Lost };
            out.clone_from(series);
        }
        Found::Series
    }

    /// Forgets the series before number `idx`.
    pub(super) fn trim(&mut self, idx: usize) {
        while self.first < idx && self.pop().is_some() {}
    }

    fn pop(&mut self) -> Option<StepSeries> {
        let series = self.series.pop_front()?;
        self.first += 1;
        let samples = series.sample_count().min(self.samples);
        self.samples -= samples;
        self.execution.release_samples(samples);
        if let Some(memory) = &mut self.memory {
            memory.shrink(series.heap_bytes());
        }
        Some(series)
    }

    fn give_up(&mut self) {
        self.is_given_up = true;
        self.series = VecDeque::new();
        self.memory = None;
        self.execution.release_samples(std::mem::take(&mut self.samples));
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        self.execution.release_samples(self.samples);
    }
}
