//! Contract out of storage: select series, then read their samples as columns.
//!
//! Invariants: series are sorted by labels and unique; samples ascend, one per timestamp; staleness markers
//! are samples. A [`SampleSource`] stays readable as long as it is held, regardless of flushes, compactions
//! and deletions.
//! Not here: lookback, staleness handling, evaluation (`promql`).

mod mixed;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::{BudgetExceeded, Clock, MemoryBudget, thread};

pub use mixed::{SampleKind, merged};

use crate::{Histogram, Labels, Matcher, TimeRange};

/// Series per batch.
pub const SERIES_PER_BATCH_MAX: usize = 1024;

/// Selection of series and of a time range.
#[derive(Debug, Clone)]
pub struct Selector<'a> {
    /// Series must be selected by all of them.
    pub matchers: &'a [Matcher],
    /// Only series that may have samples in it are returned; a source may return a few that have none.
    pub range: TimeRange,
}

/// Decoded samples of a series as columns; reused from series to series.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Columns {
    /// Milliseconds, ascending.
    pub times: Vec<i64>,
    /// One value per time; of a histogram its sum.
    pub values: Vec<f64>,
    /// Samples that are histograms: index into the other columns, ascending. Empty for a series of floats.
    pub histograms: Vec<(u32, Arc<Histogram>)>,
    /// Start timestamps in milliseconds; 0 if unknown. May be shorter than the other columns: the rest is
    /// unknown. Empty for a series without start timestamps.
    pub start_times: Vec<i64>,
}

impl Columns {
    /// Empties all columns, keeping their memory.
    pub fn clear(&mut self) {
        self.times.clear();
        self.values.clear();
        self.histograms.clear();
        self.start_times.clear();
    }

    /// Start timestamp of the sample at `idx`; 0 if unknown.
    #[must_use]
    pub fn start_time_at(&self, idx: usize) -> i64 {
        self.start_times.get(idx).copied().unwrap_or(0)
    }

    /// Sets the start timestamp of the last sample.
    pub fn set_start_time(&mut self, start_ms: i64) {
        let last = self.times.len().saturating_sub(1);
        self.start_times.resize(last, 0);
        self.start_times.push(start_ms);
    }

    /// Appends a sample.
    pub fn push(&mut self, time: i64, value: f64) {
        self.times.push(time);
        self.values.push(value);
    }

    /// Appends a sample that is a histogram.
    ///
    /// # Panics
    /// Beyond 4 G samples.
    pub fn push_histogram(&mut self, time: i64, histogram: Arc<Histogram>) {
        let idx = u32::try_from(self.times.len()).expect("columns are below 4 G samples");
        self.push(time, histogram.sum());
        self.histograms.push((idx, histogram));
    }

    /// The histogram at `idx`, if that sample is one. Cost: a binary search among the histograms.
    #[must_use]
    pub fn histogram_at(&self, idx: usize) -> Option<&Arc<Histogram>> {
        let idx = u32::try_from(idx).ok()?;
        let at = self.histograms.binary_search_by_key(&idx, |(idx, _)| *idx).ok()?;
        self.histograms.get(at).map(|(_, histogram)| histogram)
    }

    /// Appends sample `idx` of `other`, of either kind.
    ///
    /// # Panics
    /// If `other` has no such sample.
    pub fn push_from(&mut self, other: &Columns, idx: usize) {
        if other.histograms.is_empty() && other.start_times.is_empty() {
            self.push(other.times[idx], other.values[idx]);
            return;
        }
        match other.histogram_at(idx) {
            Some(histogram) => self.push_histogram(other.times[idx], histogram.clone()),
            None => self.push(other.times[idx], other.values[idx]),
        }
        let start_ms = other.start_time_at(idx);
        if start_ms != 0 {
            self.set_start_time(start_ms);
        }
    }

    /// Bytes of the histograms, for budgets; shared ones are counted in full.
    #[must_use]
    pub fn histogram_bytes(&self) -> usize {
        let bytes = |(_, histogram): &(u32, Arc<Histogram>)| histogram.memory_bytes() + 16;
        self.histograms.iter().map(bytes).sum()
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns true if there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }
}

/// Reason why a query stopped.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The client disconnected, or an operator canceled it.
    #[error("query was canceled")]
    Canceled,
    /// The deadline passed.
    #[error("query timed out")]
    Timeout,
    /// A memory budget is exhausted.
    #[error("query processing would load too much into memory: {0}")]
    Memory(#[from] BudgetExceeded),
    /// A count limit was reached.
    #[error("query {what}: limit {limit}")]
    Limit {
        /// Counted items.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Stored bytes are damaged.
    #[error("{path}: {what}")]
    Corrupt {
        /// File.
        path: String,
        /// Item, offset, expected and found.
        what: String,
    },
    /// A read failed.
    #[error("reading {path}: {error}")]
    Io {
        /// File.
        path: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
}

/// Context of a read: cancellation, deadline and memory budget.
#[derive(Clone)]
pub struct ReadContext {
    canceled: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    deadline_mono_ns: u64,
    /// Time of the next check for long work; `u64::MAX` = never.
    long_work_check_ns: Arc<AtomicU64>,
    /// Memory of this query.
    pub budget: MemoryBudget,
}

/// CPU time after which a read is long work, and its threads get a lower priority.
const LONG_WORK_CPU_NS: u64 = 10_000_000;

impl ReadContext {
    /// A context that ends at `deadline_mono_ns` of `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, deadline_mono_ns: u64, budget: MemoryBudget) -> ReadContext {
        let canceled = Arc::new(AtomicBool::new(false));
        let long_work_check_ns = Arc::new(AtomicU64::new(u64::MAX));
        ReadContext { canceled, clock, deadline_mono_ns, long_work_check_ns, budget }
    }

    /// Begins work that lowers the priority of its threads once it is long. Called on the thread that does
    /// the work; if its priority was lowered, the thread should end with the work.
    pub fn begin_long_work(&self) {
        thread::begin_work();
        self.long_work_check_ns.store(self.clock.mono_ns() + LONG_WORK_CPU_NS, Ordering::Relaxed);
    }

    /// No deadline, no limit: tools and tests.
    #[must_use]
    pub fn unlimited(clock: Arc<dyn Clock>) -> ReadContext {
        ReadContext::new(clock, u64::MAX, MemoryBudget::new("query", u64::MAX))
    }

    /// Cancels the query at its next check.
    pub fn cancel(&self) {
        self.canceled.store(true, Ordering::Relaxed);
    }

    /// The flag that [`ReadContext::cancel`] sets, for the task that watches the client.
    #[must_use]
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.canceled.clone()
    }

    /// Checks deadline and cancellation. Called at least once per series and once per few thousand samples.
    ///
    /// # Errors
    /// [`QueryError::Canceled`] or [`QueryError::Timeout`].
    pub fn check(&self) -> Result<(), QueryError> {
        if self.canceled.load(Ordering::Relaxed) {
            return Err(QueryError::Canceled);
        }
        if self.deadline_mono_ns == u64::MAX {
            return Ok(());
        }
        let now_ns = self.clock.mono_ns();
        if now_ns > self.deadline_mono_ns {
            return Err(QueryError::Timeout);
        }
        if now_ns > self.long_work_check_ns.load(Ordering::Relaxed) {
            self.lower_priority(now_ns);
        }
        Ok(())
    }

    /// Lowers the priority of this thread if its work is long, and otherwise schedules the next check.
    #[cold]
    fn lower_priority(&self, now_ns: u64) {
        if let Some(left_ns) = thread::lower_priority_of_long_work(LONG_WORK_CPU_NS) {
            self.long_work_check_ns.fetch_max(now_ns + left_ns, Ordering::Relaxed);
        }
    }
}

/// Samples of one series of one or several sources.
pub trait SampleSource: Send + Sync {
    /// Appends the samples in `range` to `out`: ascending, one per timestamp, later than what `out` holds.
    /// Decodes only chunks that overlap `range`.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] if a chunk fails its checksum; samples before it have been appended.
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError>;

    /// Upper bound of the samples that `read` returns for the selected range, from chunk headers.
    fn sample_count_hint(&self) -> usize;

    /// Estimate of the chunks that `read` decodes for the selected range, for reports; 0 if unknown.
    fn chunk_count_hint(&self) -> usize {
        0
    }

    /// Bounds (inclusive) of the times of all samples; `None` if they are unknown without reading. Sources
    /// with disjoint bounds are read one after the other instead of merged.
    fn time_bounds(&self) -> Option<(i64, i64)> {
        None
    }
}

/// One selected series.
pub struct SeriesRead {
    /// Its labels.
    pub labels: Labels,
    /// Its samples.
    pub samples: Box<dyn SampleSource>,
}

/// Selected series, batch by batch, sorted by labels over all batches.
pub trait SeriesBatches: Send {
    /// Appends at most [`SERIES_PER_BATCH_MAX`] series to `out`; false when there are no more.
    ///
    /// # Errors
    /// As the source; no batches follow then.
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError>;
}

/// Estimated cost of reading a selector. Neither count is intended to be below half of the actual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadEstimate {
    /// Selected series.
    pub series: u64,
    /// Their samples in the range.
    pub samples: u64,
}

/// Source of series for PromQL and other languages.
pub trait Queryable: Send + Sync {
    /// Returns the series that all matchers select and that may have samples in the range.
    ///
    /// # Errors
    /// As the source.
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError>;

    /// As [`Queryable::select`], for a reader that needs only the newest sample of each series in the range:
    /// the source may leave out older ones.
    ///
    /// # Errors
    /// As the source.
    fn select_newest(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select(selector, ctx)
    }

    /// As [`Queryable::select`], for `count` and `group`: a reader that groups the series by some of their
    /// labels and checks each for a sample that is not a staleness marker.
    ///
    /// A source may leave out the other labels, the values and the start times; several series then have the
    /// same labels, and the series of a group are in any order. If only the newest samples are needed, the
    /// groups are in the order of the first series of each, as `select` yields them, whose newest sample is
    /// not a staleness marker. Groups without such a series are last. If all samples are needed, the order
    /// of the groups is not defined.
    ///
    /// # Errors
    /// As the source.
    fn select_presence(
        &self,
        selector: &Selector<'_>,
        hints: &PresenceHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        match hints.samples {
            SampleNeed::All => self.select(selector, ctx),
            SampleNeed::Newest => self.select_newest(selector, ctx),
        }
    }

    /// Estimates [`Queryable::select`] and reading all of it, from postings and counts alone; without
    /// matchers, from counts alone. `None` if the source has no estimate.
    ///
    /// # Errors
    /// As the source.
    fn estimate(
        &self,
        _selector: &Selector<'_>,
        _ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        Ok(None)
    }

    /// Label names of the selected series, sorted and unique; at most `limit` (0 = all).
    ///
    /// # Errors
    /// As the source.
    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError>;

    /// Values of `name` of the selected series, sorted and unique; at most `limit` (0 = all).
    ///
    /// # Errors
    /// As the source.
    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError>;
}

/// Grouping of an aggregation (`by` or `without`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Projection<'a> {
    /// Label names, ascending.
    pub names: &'a [&'a str],
    /// True for `by`: `names` are the labels of the group; false for `without`.
    pub include: bool,
}

impl Projection<'_> {
    /// Returns true if the label is used.
    #[must_use]
    pub fn uses(&self, name: &str) -> bool {
        self.names.binary_search(&name).is_ok() == self.include
    }

    /// Returns true if no label is used: all series are one group.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.include && self.names.is_empty()
    }
}

/// Samples of a series that a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleNeed {
    /// All in the range.
    All,
    /// The newest in the range.
    Newest,
}

/// Needs of a reader of [`Queryable::select_presence`].
#[derive(Debug, Clone, Copy)]
pub struct PresenceHints<'a> {
    /// Samples of which time and staleness are read.
    pub samples: SampleNeed,
    /// Labels that are read.
    pub projection: Projection<'a>,
}

/// Batches of a vector of series, for sources that have all series in memory.
pub struct VecBatches {
    series: std::vec::IntoIter<SeriesRead>,
}

impl VecBatches {
    /// `series` must be sorted by labels.
    #[must_use]
    pub fn new(series: Vec<SeriesRead>) -> VecBatches {
        debug_assert!(series.is_sorted_by(|a, b| a.labels < b.labels), "series ascend, each once");
        VecBatches { series: series.into_iter() }
    }
}

impl SeriesBatches for VecBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        out.extend(self.series.by_ref().take(SERIES_PER_BATCH_MAX));
        Ok(self.series.len() > 0)
    }
}
