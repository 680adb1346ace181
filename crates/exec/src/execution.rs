//! One execution of a query: source, limits, annotations and counts that its operators share.
//! Invariants: samples and bytes of an [`OperatorMemory`] are released when it is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_base::{Reservation, SpareThreads};
use chronolith_model::query::SelectRequest;
use chronolith_model::{QueryError, Queryable, ReadContext, SeriesBatches};

use crate::annotation::{Annotations, EvaluationOrder};
use crate::column::StepSeries;
use crate::error::Error;
use crate::grid::Grid;
use crate::metric_name::NameRemoval;
use crate::selection::Selections;
use crate::trace::Trace;

/// Limits and switches of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Samples that may be held at a time.
    pub samples_max: u64,
    /// Threads that may be used, the calling one included.
    pub threads: usize,
    /// Time at which metric names are removed.
    pub name_removal: NameRemoval,
    /// True if equal subplans and selections are computed once.
    pub shares: bool,
}

/// Source, context and helpers of an execution.
#[derive(Clone, Copy)]
pub struct Environment<'q> {
    /// Source of series.
    pub source: &'q dyn Queryable,
    /// Deadline, cancellation, memory budget.
    pub ctx: &'q ReadContext,
    /// Counts of the query.
    pub trace: &'q Trace,
    /// Threads that may help.
    pub spare_threads: &'q SpareThreads,
}

/// State that all operators of one query share.
pub struct Execution<'q> {
    /// Source of series.
    pub source: &'q dyn Queryable,
    /// Deadline, cancellation, memory budget.
    pub ctx: &'q ReadContext,
    /// Counts of the query.
    pub trace: &'q Trace,
    /// Warnings and infos so far.
    pub annotations: Annotations<'q>,
    /// Limits and switches.
    pub settings: Settings,
    /// Steps of the query; `None` if it has none.
    pub grid: Option<Grid>,
    /// Selections that occur more than once; not set if there are none. Queries that are evaluated together
    /// have them in common.
    pub selections: OnceLock<Arc<Selections>>,
    pub(crate) spare_threads: &'q SpareThreads,
    samples_held: AtomicU64,
    samples_peak: AtomicU64,
}

impl<'q> Execution<'q> {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(
        environment: Environment<'q>,
        settings: Settings,
        grid: Option<Grid>,
        order: EvaluationOrder<'q>,
    ) -> Execution<'q> {
        let Environment { source, ctx, trace, spare_threads } = environment;
        Execution {
            source,
            ctx,
            trace,
            annotations: Annotations::new(order),
            settings,
            grid,
            selections: OnceLock::new(),
            spare_threads,
            samples_held: AtomicU64::new(0),
            samples_peak: AtomicU64::new(0),
        }
    }

    /// Returns true if metric names are removed at the end of the query.
    #[must_use]
    pub fn delays_names(&self) -> bool {
        self.settings.name_removal == NameRemoval::Delayed
    }

    /// Selects from the source, or joins an equal selection from which nothing has been read yet.
    ///
    /// # Errors
    /// As the source.
    pub fn select(&self, request: SelectRequest) -> Result<Box<dyn SeriesBatches>, QueryError> {
        match self.selections.get() {
            Some(selections) => selections.select(self.source, request, self.ctx),
            None => self.source.open_series(request, self.ctx),
        }
    }

    /// Removes the metric name, or marks the series for removal at the end.
    pub fn drop_name(&self, series: &mut StepSeries) {
        self.settings.name_removal.apply(series);
    }

    /// An operator's memory, empty.
    #[must_use]
    pub fn operator_memory(&'q self) -> OperatorMemory<'q> {
        OperatorMemory { execution: self, samples: 0, bytes: None }
    }

    /// Counts samples as held and returns true, unless they exceed the limit.
    pub(crate) fn try_hold_samples(&self, samples: u64) -> bool {
        let held = self.samples_held.fetch_add(samples, Ordering::Relaxed).saturating_add(samples);
        if held > self.settings.samples_max {
            self.release_samples(samples);
            return false;
        }
        self.samples_peak.fetch_max(held, Ordering::Relaxed);
        true
    }

    /// Counts samples as held no more.
    pub(crate) fn release_samples(&self, samples: u64) {
        self.samples_held.fetch_sub(samples, Ordering::Relaxed);
    }

    /// Most samples held at once.
    #[must_use]
    pub fn samples_peak(&self) -> u64 {
        self.samples_peak.load(Ordering::Relaxed)
    }
}

/// Samples and bytes that an operator holds.
pub struct OperatorMemory<'q> {
    execution: &'q Execution<'q>,
    samples: u64,
    bytes: Option<Reservation>,
}

impl OperatorMemory<'_> {
    /// Reserves `samples` more, which take `bytes` more.
    ///
    /// # Errors
    /// The query's limit of samples or of memory.
    pub fn grow(&mut self, samples: u64, bytes: u64) -> Result<(), Error> {
        // PERF: topk reserves the growth of its heaps per series, and full heaps do not grow: 197 of 245
        // reservations of `topk(10, ..)` over 200 series are of nothing, 146 instructions each.
        //   kits/instructions/compare.py
        if samples == 0 && bytes == 0 {
            return Ok(());
        }
        if !self.execution.try_hold_samples(samples) {
            return Err(Error::TooManySamples);
        }
        self.samples += samples;
        self.execution.trace.count_memory(bytes);
        match &mut self.bytes {
            Some(reserved) => reserved.grow(bytes),
            None => self.execution.ctx.budget.reserve(bytes).map(|reserved| self.bytes = Some(reserved)),
        }
        .map_err(|full| Error::Query(full.into()))
    }

    /// # Errors
    /// The query was canceled, or its time has ended.
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.execution.ctx.check()?)
    }

    /// Raises the reservation to `samples` and `bytes`, for buffers that are reused from series to series.
    ///
    /// # Errors
    /// As [`OperatorMemory::grow`].
    pub fn raise_to(&mut self, samples: u64, bytes: u64) -> Result<(), Error> {
        let bytes_held = self.bytes.as_ref().map_or(0, Reservation::bytes);
        if samples > self.samples || bytes > bytes_held {
            self.grow(samples.saturating_sub(self.samples), bytes.saturating_sub(bytes_held))?;
        }
        Ok(())
    }

    /// Gives `samples` and `bytes` back.
    pub fn shrink(&mut self, samples: u64, bytes: u64) {
        if samples == 0 && bytes == 0 {
            return;
        }
        let samples = samples.min(self.samples);
        self.samples -= samples;
        self.execution.release_samples(samples);
        if let Some(reserved) = &mut self.bytes {
            reserved.shrink(bytes);
        }
    }
}

impl Drop for OperatorMemory<'_> {
    fn drop(&mut self) {
        self.execution.release_samples(self.samples);
    }
}
