//! Buffer of the series of a shared subplan, for readers that come later.
//!
//! Invariants: a series is kept, with the annotations before it, until no reader wants it. A buffer that
//! would grow too large fails.
//! Not here: readers (`share`).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::annotation::AnnotationSet;
use crate::column::StepSeries;
use crate::error::Error;
use crate::execution::{Execution, OperatorMemory};

/// Memory of one buffer.
const BUFFER_BYTES_MAX: u64 = 256 << 20;
/// Fraction of the query's memory that a buffer may use: 1 / `BUFFER_BUDGET_PARTS`.
const BUFFER_BUDGET_PARTS: u64 = 4;

/// Different sets of annotations in one buffer.
const SETS_MAX: usize = 10_000;

/// The series from number `first` on.
pub(super) struct SeriesBuffer<'q> {
    series: VecDeque<(StepSeries, Arc<AnnotationSet>)>,
    /// Different sets of annotations in it.
    set_count: usize,
    /// Number of the first of them.
    first: usize,
    bytes: u64,
    bytes_max: u64,
    memory: OperatorMemory<'q>,
}

/// Readers of a series after the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// There may be some.
    Others,
    /// No reader follows: the series can be moved out.
    None,
}

impl<'q> SeriesBuffer<'q> {
    pub(super) fn new(execution: &'q Execution<'q>) -> SeriesBuffer<'q> {
        let bytes_max = BUFFER_BYTES_MAX.min(execution.ctx.budget.limit_bytes() / BUFFER_BUDGET_PARTS);
        let memory = execution.operator_memory();
        SeriesBuffer { series: VecDeque::new(), set_count: 0, first: 0, bytes: 0, bytes_max, memory }
    }

    /// Appends series number `idx` and the annotations before it.
    ///
    /// # Errors
    /// [`Error::BufferFull`] if it does not fit, and limits of the query.
    pub(super) fn push(&mut self, idx: usize, series: &StepSeries, set: AnnotationSet) -> Result<(), Error> {
        if self.series.is_empty() {
            self.first = idx;
        }
        debug_assert_eq!(self.first + self.series.len(), idx, "series are kept without gaps");
        let same = self.series.back().map(|(_, last)| last).filter(|last| ***last == set).cloned();
        self.set_count += usize::from(same.is_none());
        self.bytes += series.heap_bytes();
        if self.bytes > self.bytes_max || self.set_count > SETS_MAX {
            return Err(Error::BufferFull);
        }
        self.memory.grow(series.sample_count(), series.heap_bytes())?;
        self.series.push_back((series.clone(), same.unwrap_or_else(|| Arc::new(set))));
        Ok(())
    }

    /// Puts series number `idx` into `out` and returns the annotations before it.
    ///
    /// # Errors
    /// [`Error::BufferFull`].
    pub(super) fn read(
        &mut self,
        idx: usize,
        after: After,
        out: &mut StepSeries,
    ) -> Result<Arc<AnnotationSet>, Error> {
        let at = idx.checked_sub(self.first).ok_or(Error::BufferFull)?;
        if at == 0 && after == After::None {
            let (series, set) = self.pop().ok_or(Error::BufferFull)?;
            *out = series;
            return Ok(set);
        }
        let (series, set) = self.series.get(at).ok_or(Error::BufferFull)?;
        out.clone_from(series);
        Ok(set.clone())
    }

    /// Drops the series before number `idx`.
    pub(super) fn trim(&mut self, idx: usize) {
        while self.first < idx && self.pop().is_some() {}
    }

    fn pop(&mut self) -> Option<(StepSeries, Arc<AnnotationSet>)> {
        let popped = self.series.pop_front()?;
        self.first += 1;
        self.set_count -= usize::from(Arc::strong_count(&popped.1) == 1);
        self.bytes -= popped.0.heap_bytes();
        self.memory.shrink(popped.0.sample_count(), popped.0.heap_bytes());
        Some(popped)
    }
}
