//! Shared selections: equal selections under different functions look series up once and decode their samples
//! once.
//!
//! Invariants: all readers of a selection get the same series; decoded samples are kept until the last reader
//! has them, within a bound, beyond which they are decoded again. A selection with one reader costs nothing
//! more. Matchers of equal selections are in the same order.
//! Not here: equal functions of equal selections (`share`), which selections occur more than once
//! (`plan::sharing`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronolith_base::hash::HashMap;
use chronolith_base::{MemoryBudget, Reservation};
use chronolith_model::query::{SERIES_PER_BATCH_MAX, SampleNeed, SelectRequest};
use chronolith_model::{
    Columns, Labels, Matcher, QueryError, Queryable, ReadContext, SampleSource, SeriesBatches, SeriesRead,
    TimeRange,
};

use crate::error::duplicate_query_error;

/// Memory of the decoded samples of one selection.
const KEPT_BYTES_MAX: u64 = 128 << 20;
/// Fraction of the query's memory that kept samples may use: 1 / `KEPT_BUDGET_PARTS`.
const KEPT_BUDGET_PARTS: u64 = 4;

/// Memory of a series that some reader has not taken, its labels excepted: its samples as the source keeps
/// them.
const SERIES_BYTES: usize = 512;

#[derive(PartialEq, Eq, Hash)]
struct SelectionKey {
    matchers: Vec<Matcher>,
    start_ms: i64,
    end_ms: i64,
    samples: SampleNeed,
}

/// Matchers that occur more than once with the same range of times, and these ranges.
pub type RepeatedSelections = HashMap<Vec<Matcher>, Vec<TimeRange>>;

/// The selections that occur more than once, of one query or of several that are evaluated together.
pub struct Selections {
    repeated: RepeatedSelections,
    open: Mutex<HashMap<SelectionKey, Arc<Selection>>>,
}

impl Selections {
    /// None is open yet.
    #[must_use]
    pub fn new(repeated: RepeatedSelections) -> Selections {
        Selections { repeated, open: Mutex::default() }
    }

    /// Forgets the series that are kept for readers, once there are no more of these.
    pub fn clear(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn is_repeated(&self, request: &SelectRequest) -> bool {
        self.repeated.get(&request.matchers).is_some_and(|ranges| ranges.contains(&request.range))
    }

    /// Selects from the source, or joins an equal selection from which nothing has been read yet. Selections
    /// that occur more than once are made with all labels and values, so that series are looked up once.
    pub(crate) fn select(
        &self,
        source: &dyn Queryable,
        request: SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        if !self.is_repeated(&request) {
            return source.open_series(request, ctx);
        }
        let SelectRequest { range, samples, step_ms, range_ms, .. } = request;
        let TimeRange { start, end } = range;
        let shared = SelectRequest { samples, step_ms, range_ms, ..SelectRequest::new(&request.selector()) };
        let key = SelectionKey { matchers: request.matchers, start_ms: start, end_ms: end, samples };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(selection) = open.get(&key).filter(|selection| selection.join()) {
            return Ok(Box::new(Reader { selection: selection.clone(), at: 0 }));
        }
        let batches = source.open_series(shared, ctx)?;
        let selection = Arc::new(Selection::new(&ctx.budget, batches, range));
        open.insert(key, selection.clone());
        Ok(Box::new(Reader { selection, at: 0 }))
    }
}

/// A selection and its readers.
struct Selection {
    state: Mutex<State>,
    range: TimeRange,
    cache: Arc<SampleCache>,
}

struct State {
    batches: Box<dyn SeriesBatches>,
    more: bool,
    failure: Option<QueryError>,
    readers: usize,
    /// Series that some reader has not taken, and how many have.
    series: VecDeque<(Arc<SharedSeries>, usize)>,
    /// Number of series before them.
    first: usize,
    has_begun: bool,
    /// Memory of these series. If there is none, the query is evaluated again without sharing.
    memory: Option<Reservation>,
}

impl Selection {
    fn new(budget: &MemoryBudget, batches: Box<dyn SeriesBatches>, range: TimeRange) -> Selection {
        let state = Mutex::new(State {
            batches,
            more: true,
            failure: None,
            readers: 1,
            series: VecDeque::new(),
            first: 0,
            has_begun: false,
            memory: budget.reserve(0).ok(),
        });
        let bytes_max = KEPT_BYTES_MAX.min(budget.limit_bytes() / KEPT_BUDGET_PARTS);
        let cache = Arc::new(SampleCache { memory: Mutex::new(budget.reserve(0).ok()), bytes_max });
        Selection { state, range, cache }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a reader; returns false if it would miss series.
    fn join(&self) -> bool {
        let mut state = self.lock();
        state.readers += usize::from(!state.has_begun);
        !state.has_begun
    }

    /// Reads a batch from the source: to `out` if there is one reader, else to the shared series.
    fn pull(&self, state: &mut State, out: &mut Vec<SeriesRead>) -> Result<(), QueryError> {
        if let Some(error) = &state.failure {
            return Err(duplicate_query_error(error));
        }
        if !state.more {
            return Ok(());
        }
        let first = out.len();
        match state.batches.next_batch(out) {
            Ok(more) => state.more = more,
            Err(error) => {
                state.failure = Some(duplicate_query_error(&error));
                return Err(error);
            }
        }
        if state.readers == 1 {
            state.first += out.len() - first;
            return Ok(());
        }
        let bytes = out.iter().skip(first).map(|series| series_bytes(&series.labels)).sum();
        if let Some(Err(full)) = state.memory.as_mut().map(|memory| memory.grow(bytes)) {
            // Readers of other queries would take the missing series for the end.
            state.failure = Some(QueryError::Memory(full));
            return Err(QueryError::Memory(full));
        }
        for series in out.drain(first..) {
            let shared = SharedSeries {
                labels: series.labels,
                samples: series.samples,
                range: self.range,
                kept: Mutex::new(None),
                reads_left: AtomicUsize::new(state.readers),
                cache: self.cache.clone(),
            };
            state.series.push_back((Arc::new(shared), 0));
        }
        Ok(())
    }
}

/// Reads a selection from its beginning.
struct Reader {
    selection: Arc<Selection>,
    at: usize,
}

impl SeriesBatches for Reader {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let selection = &self.selection;
        let mut guard = selection.lock();
        let state = &mut *guard;
        state.has_begun = true;
        if state.readers == 1 {
            selection.pull(state, out)?;
            return Ok(state.more);
        }
        if self.at == state.first + state.series.len() {
            selection.pull(state, out)?;
        }
        let readers = state.readers;
        let from = self.at - state.first;
        let to = state.series.len().min(from + SERIES_PER_BATCH_MAX);
        for (shared, taken) in state.series.range_mut(from..to) {
            out.push(shared.read());
            *taken += 1;
        }
        self.at += to - from;
        while state.series.front().is_some_and(|(_, taken)| *taken == readers) {
            let Some((shared, _)) = state.series.pop_front() else { break };
            state.first += 1;
            if let Some(memory) = &mut state.memory {
                memory.shrink(series_bytes(&shared.labels));
            }
        }
        Ok(state.more || self.at < state.first + state.series.len())
    }
}

/// Memory budget of decoded samples.
struct SampleCache {
    memory: Mutex<Option<Reservation>>,
    bytes_max: u64,
}

impl SampleCache {
    fn try_reserve(&self, bytes: u64) -> bool {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(memory) = memory.as_mut() else { return false };
        memory.bytes().saturating_add(bytes) <= self.bytes_max && memory.grow(bytes).is_ok()
    }

    fn release(&self, bytes: u64) {
        if let Some(memory) = self.memory.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            memory.shrink(bytes);
        }
    }
}

/// One series of a selection with several readers.
struct SharedSeries {
    labels: Labels,
    samples: Box<dyn SampleSource>,
    range: TimeRange,
    kept: Mutex<Option<Columns>>,
    reads_left: AtomicUsize,
    cache: Arc<SampleCache>,
}

impl SharedSeries {
    fn read(self: &Arc<Self>) -> SeriesRead {
        SeriesRead { labels: self.labels.clone(), samples: Box::new(SharedSamples(self.clone())) }
    }
}

impl Drop for SharedSeries {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.cache.release(columns_bytes(&kept));
        }
    }
}

struct SharedSamples(Arc<SharedSeries>);

impl SampleSource for SharedSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let series = &self.0;
        if range != series.range || !out.is_empty() {
            return series.samples.read(range, out);
        }
        let is_last = series.reads_left.fetch_sub(1, Ordering::Relaxed) <= 1;
        let mut kept = series.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *kept {
            Some(columns) if is_last => {
                series.cache.release(columns_bytes(columns));
                *out = std::mem::take(columns);
                *kept = None;
            }
            Some(columns) => copy(columns, out),
            None => {
                series.samples.read(range, out)?;
                if !is_last && series.cache.try_reserve(columns_bytes(out)) {
                    *kept = Some(out.clone());
                }
            }
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.samples.sample_count_hint()
    }

    fn chunk_count_hint(&self) -> usize {
        self.0.samples.chunk_count_hint()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        self.0.samples.time_bounds()
    }
}

fn series_bytes(labels: &Labels) -> u64 {
    (SERIES_BYTES + labels.heap_bytes()) as u64
}

/// Copies into memory that is used again.
fn copy(from: &Columns, out: &mut Columns) {
    out.times.extend_from_slice(&from.times);
    out.values.extend_from_slice(&from.values);
    out.histograms.extend_from_slice(&from.histograms);
    out.start_times.extend_from_slice(&from.start_times);
}

fn columns_bytes(columns: &Columns) -> u64 {
    let numbers = columns.times.len() + columns.values.len() + columns.start_times.len();
    (numbers * size_of::<i64>() + columns.histogram_bytes()) as u64
}
