//! Shared subplans: equal parts of a query are computed once, and all readers get the series.
//!
//! Invariants: every reader sees the same series in the same order, and emits the annotations at its own
//! positions, as if it had computed them. Aggregations over a shared subplan are sinks: the first that is
//! pulled drives the subplan, and each series goes to all sinks at once, so nothing is buffered for them.
//! Other readers read a [`SeriesBuffer`], and compute series that it has dropped.
//! Not here: which subplans are equal, and the second try of a query that runs out of memory, which are the
//! language's.

mod buffer;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::annotation::AnnotationSet;
use crate::column::StepSeries;
use crate::error::Error;
use crate::execution::Execution;
use crate::operator::{BoxOperator, SeriesOperator};
use crate::position::Position;
use crate::trace::{Node, NodeHandle};
use buffer::{After, Found, SeriesBuffer};
use chronolith_base::hash::HashMap;

/// Annotation sets kept for readers that come later; a reader that misses one computes by itself.
const NOTES_MAX: usize = 10_000;

/// Progress of a reader that needs nothing more.
const DONE: usize = usize::MAX;

/// From positions of the first reader to those of another one.
pub type PositionMap = HashMap<Position, Position>;

/// Takes series as they are computed.
pub trait SeriesSink {
    /// Takes one.
    ///
    /// # Errors
    /// Limits.
    fn take(&mut self, series: &StepSeries) -> Result<(), Error>;

    /// Drops all it took.
    fn clear(&mut self);
}

/// A sink and the annotations at its positions.
struct SinkUse<'q> {
    sink: Rc<RefCell<dyn SeriesSink + 'q>>,
    positions: Option<PositionMap>,
    set: AnnotationSet,
    notes_taken: usize,
    failure: Option<Error>,
    node: Option<NodeHandle<'q>>,
}

/// A subplan that has more than one reader.
pub struct SharedPart<'q> {
    execution: &'q Execution<'q>,
    /// Annotations of building it.
    build_annotations: AnnotationSet,
    /// The node in which it is computed, for reports.
    node: Option<Arc<Node>>,
    id: u32,
    state: RefCell<State<'q>>,
}

struct State<'q> {
    /// `None` while it runs, and after its end.
    inner: Option<BoxOperator<'q>>,
    end: Option<Result<(), Error>>,
    /// Series so far.
    count: usize,
    buffer: SeriesBuffer<'q>,
    notes: Notes,
    sinks: Vec<SinkUse<'q>>,
    /// Series that each reader has read.
    readers: Vec<usize>,
    /// Readers that are still to be built.
    awaited: usize,
}

/// Annotation sets with the number of the series that follows; positions are those of the first reader.
#[derive(Default)]
struct Notes {
    kept: VecDeque<(usize, Arc<AnnotationSet>)>,
    /// Number of sets before those that are kept.
    first: usize,
}

impl Notes {
    /// Number of all sets.
    fn count(&self) -> usize {
        self.first + self.kept.len()
    }

    fn push(&mut self, series_idx: usize, set: AnnotationSet) {
        let last = self.kept.back().map(|(_, last)| last);
        let same = last.filter(|last| ***last == set).cloned();
        self.kept.push_back((series_idx, same.unwrap_or_else(|| Arc::new(set))));
        if self.kept.len() > NOTES_MAX {
            self.kept.pop_front();
            self.first += 1;
        }
    }

    /// From number `at` on.
    fn since(&self, at: usize) -> impl Iterator<Item = &(usize, Arc<AnnotationSet>)> {
        self.kept.iter().skip(at.saturating_sub(self.first))
    }
}

impl<'q> SharedPart<'q> {
    /// A subplan that is built as `inner` for its first reader; `uses` readers are expected.
    pub fn new(
        execution: &'q Execution<'q>,
        inner: BoxOperator<'q>,
        build_annotations: AnnotationSet,
        id: u32,
        uses: usize,
        node: Option<Arc<Node>>,
    ) -> Rc<SharedPart<'q>> {
        let state = RefCell::new(State {
            inner: Some(inner),
            end: None,
            count: 0,
            buffer: SeriesBuffer::new(execution),
            notes: Notes::default(),
            sinks: Vec::new(),
            readers: Vec::new(),
            awaited: uses,
        });
        Rc::new(SharedPart { execution, build_annotations, node, id, state })
    }

    /// Its number in reports, for its second and later uses.
    pub fn marked(&self) -> u32 {
        if let Some(node) = &self.node {
            node.mark_shared(self.id);
        }
        self.id
    }

    /// Annotations of building it, at positions of the first reader.
    pub fn build_annotations(&self) -> &AnnotationSet {
        &self.build_annotations
    }

    /// Returns true if series have been read already, so that a sink would miss them.
    pub fn has_begun(&self) -> bool {
        let state = self.state.borrow();
        state.count > 0 || state.end.is_some()
    }

    /// No further readers will be added.
    pub fn seal(&self) {
        let mut state = self.state.borrow_mut();
        state.awaited = 0;
        state.trim();
    }

    /// Adds a sink and returns its number.
    pub fn add_sink(
        &self,
        sink: Rc<RefCell<dyn SeriesSink + 'q>>,
        positions: Option<PositionMap>,
        node: Option<NodeHandle<'q>>,
    ) -> usize {
        let mut state = self.state.borrow_mut();
        state.awaited = state.awaited.saturating_sub(1);
        let (set, notes_taken, failure) = (AnnotationSet::default(), 0, None);
        state.sinks.push(SinkUse { sink, positions, set, notes_taken, failure, node });
        state.sinks.len() - 1
    }

    fn add_reader(&self) -> usize {
        let mut state = self.state.borrow_mut();
        state.awaited = state.awaited.saturating_sub(1);
        state.readers.push(0);
        state.readers.len() - 1
    }

    /// Computes all series that are left, and emits the annotations of a sink.
    ///
    /// # Errors
    /// Errors of the subplan. `None` if the sink failed: it may succeed alone.
    pub fn fill(&self, sink: usize) -> Result<Option<()>, Error> {
        let mut series = StepSeries::default();
        while self.advance(None, &mut series)? {}
        let mut state = self.state.borrow_mut();
        let Some(used) = state.sinks.get_mut(sink) else { return Ok(None) };
        if used.failure.is_some() {
            return Ok(None);
        }
        let set = std::mem::take(&mut used.set);
        self.execution.annotations.append(set);
        Ok(Some(()))
    }

    /// Computes the next series for all readers; `reader` gets it in `out`.
    fn advance(&self, reader: Option<usize>, out: &mut StepSeries) -> Result<bool, Error> {
        let Some(mut inner) = self.state.borrow_mut().inner.take() else {
            return match &self.state.borrow().end {
                Some(Ok(())) => Ok(false),
                Some(Err(error)) => Err(error.duplicate()),
                None => unreachable!("no subplan contains itself"),
            };
        };
        let before = self.execution.annotations.start_new();
        let any = inner.next(out);
        let set = self.execution.annotations.restore(before);
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        if !set.is_empty() {
            state.notes.push(state.count, set);
        }
        match any {
            Ok(true) => {
                state.inner = Some(inner);
                let idx = state.count;
                state.count += 1;
                if state.is_wanted(idx, reader) {
                    state.buffer.push(idx, out);
                }
                self.feed(state, Some(out));
                Ok(true)
            }
            Ok(false) => {
                state.end = Some(Ok(()));
                self.feed(state, None);
                Ok(false)
            }
            Err(error) => {
                state.end = Some(Err(error.duplicate()));
                Err(error)
            }
        }
    }

    /// Feeds a series, and the annotations before it, to all sinks.
    fn feed(&self, state: &mut State<'q>, series: Option<&StepSeries>) {
        for used in state.sinks.iter_mut().filter(|used| used.failure.is_none()) {
            let notes_from = std::mem::replace(&mut used.notes_taken, state.notes.count());
            let silent = notes_from == used.notes_taken;
            let mixed = series.is_some_and(StepSeries::has_histograms);
            // Floats cause no annotations.
            let before =
                (mixed || !silent).then(|| self.execution.annotations.restore(std::mem::take(&mut used.set)));
            for (_, set) in state.notes.since(notes_from) {
                self.execution.annotations.append(moved(set, used.positions.as_ref()));
            }
            if let Some(series) = series {
                used.failure = used.sink.borrow_mut().take(series).err();
                if let Some(place) = &used.node {
                    place.count_yielded();
                }
            }
            if let Some(before) = before {
                used.set = self.execution.annotations.restore(before);
            }
            if used.failure.is_some() {
                used.sink.borrow_mut().clear();
            }
        }
    }
}

impl State<'_> {
    /// Returns true if another reader than `reader` may read series number `idx`.
    fn is_wanted(&self, idx: usize, reader: Option<usize>) -> bool {
        let wants = |(id, &at): (usize, &usize)| Some(id) != reader && at <= idx;
        self.awaited > 0 || self.readers.iter().enumerate().any(wants)
    }

    /// Drops series that no reader will read.
    fn trim(&mut self) {
        if self.awaited == 0 {
            let least = self.readers.iter().copied().min().unwrap_or(DONE);
            self.buffer.trim(least);
        }
    }
}

/// The annotations of the first reader, at the positions of another one.
#[must_use]
pub fn moved(set: &AnnotationSet, positions: Option<&PositionMap>) -> AnnotationSet {
    match positions {
        None => set.clone(),
        Some(positions) => set.moved(|span| positions.get(&span).copied().unwrap_or(span)),
    }
}

/// Builds the subplan for one reader alone.
pub type BuildAlone<'q> = Box<dyn Fn() -> Result<BoxOperator<'q>, Error> + 'q>;

/// A reader that pulls series one by one.
pub struct SharedReader<'q> {
    part: Rc<SharedPart<'q>>,
    id: usize,
    positions: Option<PositionMap>,
    build_alone: BuildAlone<'q>,
    alone: Option<BoxOperator<'q>>,
    /// Series so far.
    count: usize,
    notes_taken: usize,
}

impl<'q> SharedReader<'q> {
    /// At the first series.
    pub fn new(
        part: Rc<SharedPart<'q>>,
        positions: Option<PositionMap>,
        build_alone: BuildAlone<'q>,
    ) -> SharedReader<'q> {
        let id = part.add_reader();
        SharedReader { part, id, positions, build_alone, alone: None, count: 0, notes_taken: 0 }
    }

    /// Reads the next series from the buffer.
    fn read_buffer(&self, out: &mut StepSeries) -> Found {
        let mut state = self.part.state.borrow_mut();
        let wanted = state.is_wanted(self.count, Some(self.id));
        state.buffer.read(self.count, if wanted { After::Others } else { After::None }, out)
    }

    /// Computes the series by itself, from the one that is next.
    fn continue_alone(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        self.retire();
        // Annotations of building, and of the series before, are emitted already.
        let annotations = &self.part.execution.annotations;
        let before = annotations.start_new();
        let planned = (self.build_alone)();
        let mut skipped = Ok(true);
        let mut alone = match planned {
            Ok(alone) => alone,
            Err(error) => {
                annotations.restore(before);
                return Err(error);
            }
        };
        for _ in 0..self.count {
            skipped = alone.next(out);
            if !matches!(skipped, Ok(true)) {
                break;
            }
        }
        annotations.restore(before);
        if !skipped? {
            return Ok(false);
        }
        let alone = self.alone.insert(alone);
        alone.next(out)
    }

    fn emit(&mut self) {
        let state = self.part.state.borrow();
        for (at, set) in state.notes.since(self.notes_taken) {
            if *at > self.count {
                break;
            }
            self.notes_taken += 1;
            self.part.execution.annotations.append(moved(set, self.positions.as_ref()));
        }
    }

    /// The reader needs nothing more.
    fn retire(&mut self) {
        let mut state = self.part.state.borrow_mut();
        if let Some(at) = state.readers.get_mut(self.id) {
            *at = DONE;
        }
        state.trim();
    }
}

impl SeriesOperator for SharedReader<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if let Some(alone) = &mut self.alone {
            return alone.next(out);
        }
        self.part.execution.ctx.check()?;
        let (is_buffered, lacks_notes) = {
            let state = self.part.state.borrow();
            (self.count < state.count, self.notes_taken < state.notes.first)
        };
        let any = if is_buffered {
            match if lacks_notes { Found::Lost } else { self.read_buffer(out) } {
                Found::Lost => return self.continue_alone(out),
                Found::Series => true,
            }
        } else {
            self.part.advance(Some(self.id), out)?
        };
        self.emit();
        if !any {
            self.retire();
            return Ok(false);
        }
        self.count += 1;
        if let Some(at) = self.part.state.borrow_mut().readers.get_mut(self.id) {
            *at = self.count;
        }
        Ok(true)
    }
}

impl Drop for SharedReader<'_> {
    fn drop(&mut self) {
        self.retire();
    }
}
