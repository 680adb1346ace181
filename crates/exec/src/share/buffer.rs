//! Buffer of the series of a shared subplan, for readers that come later.
//!
//! Invariants: a buffer that grows too large drops all its series, and readers compute the missing ones
//! themselves.
//! Not here: readers (`share`).

use std::collections::VecDeque;

use chronolith_base::Reservation;

use crate::column::StepSeries;
use crate::execution::Execution;

/// Memory of one buffer; beyond, the subplan is computed again instead.
const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// A buffer may use this fraction of the query's memory: one of so many parts.
const BUFFER_BUDGET_PARTS: u64 = 4;

/// The series from number `first` on.
pub(super) struct SeriesBuffer<'q> {
    execution: &'q Execution<'q>,
    series: VecDeque<StepSeries>,
    /// Number of the first of them.
    first: usize,
    is_dropped: bool,
    memory: Option<Reservation>,
    samples: u64,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The series was read.
    Series,
    /// The buffer has dropped it.
    Lost,
}

/// Readers of a series after the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// There may be some.
    Others,
    /// None: the series can be moved out.
    None,
}

impl<'q> SeriesBuffer<'q> {
    /// Empty.
    pub(super) fn new(execution: &'q Execution<'q>) -> SeriesBuffer<'q> {
        SeriesBuffer {
            execution,
            series: VecDeque::new(),
            first: 0,
            is_dropped: false,
            memory: None,
            samples: 0,
        }
    }

    /// Appends series number `idx`, or drops all series if there is no memory for it.
    pub(super) fn push(&mut self, idx: usize, series: &StepSeries) {
        if self.is_dropped {
            return;
        }
        if self.series.is_empty() {
            self.first = idx;
        }
        debug_assert_eq!(self.first + self.series.len(), idx, "series are kept without gaps");
        if self.try_reserve(series) {
            self.series.push_back(series.clone());
        } else {
            self.drop_all();
        }
    }

    fn try_reserve(&mut self, series: &StepSeries) -> bool {
        let (bytes, samples) = (series.heap_bytes(), series.sample_count());
        let budget = &self.execution.ctx.budget;
        let bytes_max = BUFFER_BYTES_MAX.min(budget.limit_bytes() / BUFFER_BUDGET_PARTS);
        let reserved = self.memory.as_ref().map_or(0, Reservation::bytes);
        if reserved.saturating_add(bytes) > bytes_max || !self.execution.try_hold_samples(samples) {
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
        if at == 0 && after == After::None {
            let Some(series) = self.pop() else { return Found::Lost };
            *out = series;
        } else {
            let Some(series) = self.series.get(at) else { return Found::Lost };
            out.clone_from(series);
        }
        Found::Series
    }

    /// Drops the series before number `idx`.
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

    fn drop_all(&mut self) {
        self.is_dropped = true;
        self.series = VecDeque::new();
        self.memory = None;
        self.execution.release_samples(std::mem::take(&mut self.samples));
    }
}

impl Drop for SeriesBuffer<'_> {
    fn drop(&mut self) {
        self.execution.release_samples(self.samples);
    }
}
