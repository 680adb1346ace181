//! Shared subplans: equal parts of a query, or of queries that are evaluated together, are computed once, and
//! all readers get the series.
//!
//! Invariants: every reader sees the same series in the same order, and emits the annotations at its own
//! positions, as if it had computed them. Aggregations over a shared subplan are sinks: the first that is
//! pulled drives the subplan, and each series goes to all sinks at once, so nothing is buffered for them.
//! Other readers read a [`SeriesBuffer`]; if it grows too large, all readers end with [`Error::BufferFull`].
//! A subplan belongs to the execution of its first reader, which pays for it; a sink of another execution
//! that fails, ends that execution alone.
//! Not here: finding equal subplans (`plan::sharing`), the second try without sharing of a query that ran out
//! of memory, which is the language's.

mod buffer;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::annotation::AnnotationSet;
use crate::column::StepSeries;
use crate::error::Error;
use crate::execution::Execution;
use crate::operator::{BoxOperator, SeriesOperator, Traced};
use crate::position::Position;
use crate::trace::{Node, NodeHandle};
use buffer::{After, SeriesBuffer};
use chronolith_base::hash::HashMap;

/// Progress of a reader that needs nothing more.
const DONE: usize = usize::MAX;

/// Map from positions of the first reader to positions of another reader.
pub type PositionMap = HashMap<Position, Position>;

/// One use of a shared subplan.
pub struct SharedUse<'q> {
    /// The subplan.
    pub part: Rc<SharedPart<'q>>,
    /// Execution of the query of this use.
    pub execution: &'q Execution<'q>,
    /// Map from positions of the first use to positions of this use; `None` for the first use.
    pub positions: Option<PositionMap>,
    /// Node of the report, unless it is the first use.
    pub node: Option<NodeHandle<'q>>,
}

/// Takes series as they are computed.
pub type SeriesSink<'q> = Box<dyn FnMut(&StepSeries) -> Result<(), Error> + 'q>;

/// A sink and the annotations at its positions.
struct SinkUse<'q> {
    sink: SeriesSink<'q>,
    execution: &'q Execution<'q>,
    positions: Option<PositionMap>,
    set: AnnotationSet,
    node: Option<NodeHandle<'q>>,
    /// Error of the sink while another execution pulled the series.
    failure: Option<Error>,
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
    /// Annotations after the last series.
    end_notes: AnnotationSet,
    sinks: Vec<SinkUse<'q>>,
    /// Series that each reader has read.
    readers: Vec<usize>,
    /// Readers that are still to be built.
    awaited: usize,
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
            end_notes: AnnotationSet::default(),
            sinks: Vec::new(),
            readers: Vec::new(),
            awaited: uses,
        });
        Rc::new(SharedPart { execution, build_annotations, node, id, state })
    }

    /// Number of the part in reports, for its second and later uses.
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

    /// Closes the list of readers: no further ones will be added.
    pub fn seal(&self) {
        let mut state = self.state.borrow_mut();
        state.awaited = 0;
        state.trim();
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
    /// Errors of the subplan and of all sinks.
    pub fn fill(&self, sink: usize) -> Result<(), Error> {
        let Some(execution) = self.state.borrow().sinks.get(sink).map(|used| used.execution) else {
            return Ok(());
        };
        let mut series = StepSeries::default();
        while self.advance(execution, None, &mut series)? {}
        if let Some(used) = self.state.borrow_mut().sinks.get_mut(sink) {
            if let Some(failure) = used.failure.take() {
                return Err(failure);
            }
            execution.annotations.append(std::mem::take(&mut used.set));
        }
        Ok(())
    }

    /// Computes the next series for all readers, for a use of `execution`; `reader` gets it in `out`.
    fn advance(
        &self,
        execution: &Execution<'q>,
        reader: Option<&SharedReader<'q>>,
        out: &mut StepSeries,
    ) -> Result<bool, Error> {
        // Operators of the subplan check the context of the first reader.
        if !std::ptr::eq(execution, self.execution) {
            execution.ctx.check()?;
        }
        let Some(mut inner) = self.state.borrow_mut().inner.take() else {
            let state = self.state.borrow();
            return match &state.end {
                Some(Ok(())) => {
                    emit(&state.end_notes, reader);
                    Ok(false)
                }
                Some(Err(error)) => Err(error.duplicate()),
                None => unreachable!("no subplan contains itself"),
            };
        };
        let before = self.execution.annotations.start_new();
        let any = inner.next(out);
        let set = self.execution.annotations.restore(before);
        let state = &mut *self.state.borrow_mut();
        let any = any.and_then(|any| {
            emit(&set, reader);
            feed(state, any.then_some(&*out), &set, execution)?;
            if any {
                state.keep(out, set, reader.map(|reader| reader.id))?;
            } else {
                state.end_notes = set;
            }
            Ok(any)
        });
        match &any {
            Ok(true) => state.inner = Some(inner),
            Ok(false) => state.end = Some(Ok(())),
            Err(error) => state.end = Some(Err(error.duplicate())),
        }
        any
    }
}

/// Emits annotations at the positions of a reader.
fn emit(set: &AnnotationSet, reader: Option<&SharedReader<'_>>) {
    if let Some(reader) = reader.filter(|_| !set.is_empty()) {
        reader.execution.annotations.append(moved(set, reader.positions.as_ref()));
    }
}

/// Feeds a series, and the annotations before it, to all sinks. Only a sink of `execution`, which pulls the
/// series, ends it with its error.
fn feed<'q>(
    state: &mut State<'q>,
    series: Option<&StepSeries>,
    set: &AnnotationSet,
    execution: &Execution<'q>,
) -> Result<(), Error> {
    // Floats cause no annotations.
    let is_silent = set.is_empty() && !series.is_some_and(StepSeries::has_histograms);
    for used in state.sinks.iter_mut().filter(|used| used.failure.is_none()) {
        let annotations = &used.execution.annotations;
        let before = (!is_silent).then(|| annotations.restore(std::mem::take(&mut used.set)));
        if !is_silent {
            annotations.append(moved(set, used.positions.as_ref()));
        }
        let taken = series.map_or(Ok(()), |series| (used.sink)(series));
        if let Some(before) = before {
            used.set = annotations.restore(before);
        }
        match taken {
            Err(error) if std::ptr::eq(used.execution, execution) => return Err(error),
            Err(error) => used.failure = Some(error),
            Ok(()) => {}
        }
        if let (Some(_), Some(node)) = (series, &used.node) {
            node.count_yielded();
        }
    }
    Ok(())
}

impl<'q> SharedUse<'q> {
    /// Adds a sink to the subplan and returns its number.
    pub fn add_sink(self, sink: SeriesSink<'q>) -> usize {
        let SharedUse { part, execution, positions, node } = self;
        let mut state = part.state.borrow_mut();
        state.awaited = state.awaited.saturating_sub(1);
        let set = AnnotationSet::default();
        state.sinks.push(SinkUse { sink, execution, positions, set, node, failure: None });
        state.sinks.len() - 1
    }
}

impl State<'_> {
    /// Counts a series, and keeps it with the annotations before it if another reader than `reader` may read
    /// it.
    fn keep(&mut self, series: &StepSeries, set: AnnotationSet, reader: Option<usize>) -> Result<(), Error> {
        self.count += 1;
        if self.is_wanted(self.count - 1, reader) {
            self.buffer.push(self.count - 1, series, set)?;
        }
        Ok(())
    }

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

/// A reader that pulls series one by one.
pub struct SharedReader<'q> {
    part: Rc<SharedPart<'q>>,
    execution: &'q Execution<'q>,
    id: usize,
    positions: Option<PositionMap>,
    /// Series so far; [`DONE`] at the end.
    count: usize,
}

impl<'q> SharedReader<'q> {
    /// At the first series.
    pub fn boxed(SharedUse { part, execution, positions, node }: SharedUse<'q>) -> BoxOperator<'q> {
        let id = part.add_reader();
        Traced::boxed(Box::new(SharedReader { part, execution, id, positions, count: 0 }), node)
    }

    /// Reads the next series from the buffer.
    fn read_buffer(&self, out: &mut StepSeries) -> Result<(), Error> {
        let mut state = self.part.state.borrow_mut();
        let wanted = state.is_wanted(self.count, Some(self.id));
        let set = state.buffer.read(self.count, if wanted { After::Others } else { After::None }, out)?;
        emit(&set, Some(self));
        Ok(())
    }

    /// Records that the reader needs nothing before series number `count`.
    fn set_count(&mut self, count: usize) {
        self.count = count;
        let mut state = self.part.state.borrow_mut();
        if let Some(at) = state.readers.get_mut(self.id) {
            *at = count;
        }
        if count == DONE {
            state.trim();
        }
    }
}

impl SeriesOperator for SharedReader<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if self.count == DONE {
            return Ok(false);
        }
        self.execution.ctx.check()?;
        let is_buffered = self.count < self.part.state.borrow().count;
        let any = if is_buffered {
            self.read_buffer(out)?;
            true
        } else {
            self.part.advance(self.execution, Some(self), out)?
        };
        self.set_count(if any { self.count + 1 } else { DONE });
        Ok(any)
    }
}

impl Drop for SharedReader<'_> {
    fn drop(&mut self) {
        self.set_count(DONE);
    }
}
