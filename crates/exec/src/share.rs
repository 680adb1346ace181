//! Parts of a query that occur more than once are computed once: their series go to every place where they are used.
//!
//! Holds: every use sees the same series in the same order, and says what there is to say about its own place, as if it
//! had computed them. Aggregations over a shared part take its series as they are computed (whoever asks first drives
//! all of them), so nothing is kept for them; other uses read a [`Log`], and compute by themselves what it has lost.
//! A query that ends at a limit of memory or samples is evaluated once more without sharing (`engine`).
//! Not here: which parts are equal (`plan::survey`).

mod log;

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
use chronolith_base::hash::HashMap;
use log::{After, Found, Log};

/// How often something is said about a shared part, as far as it is kept for uses that come later; one that comes too
/// late for a note computes by itself.
const NOTES_MAX: usize = 10_000;

/// A reader that needs nothing more.
const DONE: usize = usize::MAX;

/// Where a use stands: from positions of the first use to its own.
pub type PositionMap = HashMap<Position, Position>;

/// Takes series as they are computed.
pub trait SeriesSink {
    /// Takes one.
    ///
    /// # Errors
    /// Limits.
    fn take(&mut self, series: &StepSeries) -> Result<(), Error>;

    /// Forgets all it took.
    fn forget(&mut self);
}

/// A sink and what is said at its place.
struct SinkUse<'q> {
    sink: Rc<RefCell<dyn SeriesSink + 'q>>,
    positions: Option<PositionMap>,
    said: AnnotationSet,
    notes_taken: usize,
    failure: Option<Error>,
    node: Option<NodeHandle<'q>>,
}

/// A part of a query that is used more than once.
pub struct SharedPart<'q> {
    execution: &'q Execution<'q>,
    /// What was said when it was planned.
    annotations_of_plan: AnnotationSet,
    /// Where it is computed, for reports.
    node: Option<Arc<Node>>,
    id: u32,
    state: RefCell<State<'q>>,
}

struct State<'q> {
    /// `None` while it is at work, and after its end.
    inner: Option<BoxOperator<'q>>,
    end: Option<Result<(), Error>>,
    /// Series so far.
    count: usize,
    log: Log<'q>,
    notes: Notes,
    sinks: Vec<SinkUse<'q>>,
    /// How far each reader is.
    readers: Vec<usize>,
    /// Uses that are still to be planned.
    awaited: usize,
}

/// What was said, and before which series; positions are those of the first use.
#[derive(Default)]
struct Notes {
    kept: VecDeque<(usize, Arc<AnnotationSet>)>,
    /// How many came before those that are kept.
    first: usize,
}

impl Notes {
    /// How many there were.
    fn count(&self) -> usize {
        self.first + self.kept.len()
    }

    fn push(&mut self, series_idx: usize, said: AnnotationSet) {
        let last = self.kept.back().map(|(_, last)| last);
        let same = last.filter(|last| ***last == said).cloned();
        self.kept.push_back((series_idx, same.unwrap_or_else(|| Arc::new(said))));
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
    /// Its first use has been planned as `inner`, and `uses` are expected in all.
    pub fn new(
        execution: &'q Execution<'q>,
        inner: BoxOperator<'q>,
        annotations_of_plan: AnnotationSet,
        (id, uses): (u32, usize),
        node: Option<Arc<Node>>,
    ) -> Rc<SharedPart<'q>> {
        let state = RefCell::new(State {
            inner: Some(inner),
            end: None,
            count: 0,
            log: Log::new(execution),
            notes: Notes::default(),
            sinks: Vec::new(),
            readers: Vec::new(),
            awaited: uses,
        });
        Rc::new(SharedPart { execution, annotations_of_plan, node, id, state })
    }

    /// Its number in reports, for its second and later uses.
    pub fn marked(&self) -> u32 {
        if let Some(node) = &self.node {
            node.mark_shared(self.id);
        }
        self.id
    }

    /// What was said when it was planned, about positions of the first use.
    pub fn annotations_of_plan(&self) -> &AnnotationSet {
        &self.annotations_of_plan
    }

    /// Whether series have been taken already, so that a sink would miss them.
    pub fn has_begun(&self) -> bool {
        let state = self.state.borrow();
        state.count > 0 || state.end.is_some()
    }

    /// No further uses will come.
    pub fn seal(&self) {
        let mut state = self.state.borrow_mut();
        state.awaited = 0;
        state.trim();
    }

    /// Adds a use that takes series as they come; what it is called with later.
    pub fn add_sink(
        &self,
        sink: Rc<RefCell<dyn SeriesSink + 'q>>,
        positions: Option<PositionMap>,
        node: Option<NodeHandle<'q>>,
    ) -> usize {
        let mut state = self.state.borrow_mut();
        state.awaited = state.awaited.saturating_sub(1);
        let (said, notes_taken, failure) = (AnnotationSet::default(), 0, None);
        state.sinks.push(SinkUse { sink, positions, said, notes_taken, failure, node });
        state.sinks.len() - 1
    }

    fn add_reader(&self) -> usize {
        let mut state = self.state.borrow_mut();
        state.awaited = state.awaited.saturating_sub(1);
        state.readers.push(0);
        state.readers.len() - 1
    }

    /// Computes all that is left, and says what there is to say about the place of a sink.
    ///
    /// # Errors
    /// Those of the part. What went wrong in the sink, if `None` is the answer, may not go wrong where it is alone.
    pub fn fill(&self, sink: usize) -> Result<Option<()>, Error> {
        let mut series = StepSeries::default();
        while self.advance(None, &mut series)? {}
        let mut state = self.state.borrow_mut();
        let Some(used) = state.sinks.get_mut(sink) else { return Ok(None) };
        if used.failure.is_some() {
            return Ok(None);
        }
        let said = std::mem::take(&mut used.said);
        self.execution.annotations.append(said);
        Ok(Some(()))
    }

    /// Computes the next series, and gives it to all who want it; `reader` has it in `out`.
    fn advance(&self, reader: Option<usize>, out: &mut StepSeries) -> Result<bool, Error> {
        let Some(mut inner) = self.state.borrow_mut().inner.take() else {
            return match &self.state.borrow().end {
                Some(Ok(())) => Ok(false),
                Some(Err(error)) => Err(error.duplicate()),
                None => unreachable!("no part of a query stands within itself"),
            };
        };
        let before = self.execution.annotations.start_new();
        let any = inner.next(out);
        let said = self.execution.annotations.restore(before);
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        if !said.is_empty() {
            state.notes.push(state.count, said);
        }
        match any {
            Ok(true) => {
                state.inner = Some(inner);
                let idx = state.count;
                state.count += 1;
                if state.is_wanted(idx, reader) {
                    state.log.push(idx, out);
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

    /// Gives a series, and what was said before it, to all sinks.
    fn feed(&self, state: &mut State<'q>, series: Option<&StepSeries>) {
        for used in state.sinks.iter_mut().filter(|used| used.failure.is_none()) {
            let notes_from = std::mem::replace(&mut used.notes_taken, state.notes.count());
            let silent = notes_from == used.notes_taken;
            let mixed = series.is_some_and(StepSeries::has_histograms);
            // Of floats there is nothing to say.
            let before = (mixed || !silent)
                .then(|| self.execution.annotations.restore(std::mem::take(&mut used.said)));
            for (_, said) in state.notes.since(notes_from) {
                self.execution.annotations.append(moved(said, used.positions.as_ref()));
            }
            if let Some(series) = series {
                used.failure = used.sink.borrow_mut().take(series).err();
                if let Some(place) = &used.node {
                    place.count_yielded();
                }
            }
            if let Some(before) = before {
                used.said = self.execution.annotations.restore(before);
            }
            if used.failure.is_some() {
                used.sink.borrow_mut().forget();
            }
        }
    }
}

impl State<'_> {
    /// Whether anybody but `reader` may ask for series number `idx`.
    fn is_wanted(&self, idx: usize, reader: Option<usize>) -> bool {
        let wants = |(id, &at): (usize, &usize)| Some(id) != reader && at <= idx;
        self.awaited > 0 || self.readers.iter().enumerate().any(wants)
    }

    /// Series that no reader will ask for go.
    fn trim(&mut self) {
        if self.awaited == 0 {
            let least = self.readers.iter().copied().min().unwrap_or(DONE);
            self.log.trim(least);
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

/// Plans a use by itself, where what was shared is lost.
pub type BuildAlone<'q> = Box<dyn Fn() -> Result<BoxOperator<'q>, Error> + 'q>;

/// A use that reads series one by one.
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

    /// Reads what the log has of the next series.
    fn read_log(&self, out: &mut StepSeries) -> Found {
        let mut state = self.part.state.borrow_mut();
        let wanted = state.is_wanted(self.count, Some(self.id));
        state.log.read(self.count, if wanted { After::Others } else { After::Nobody }, out)
    }

    /// Computes the series by itself, from the one that is next.
    fn go_alone(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        self.retire();
        // What there is to say about the plan, and about the series before, has been said.
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

    fn say(&mut self) {
        let state = self.part.state.borrow();
        for (at, said) in state.notes.since(self.notes_taken) {
            if *at > self.count {
                break;
            }
            self.notes_taken += 1;
            self.part.execution.annotations.append(moved(said, self.positions.as_ref()));
        }
    }

    /// Nothing more is needed of the part.
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
        let (is_behind, lacks_notes) = {
            let state = self.part.state.borrow();
            (self.count < state.count, self.notes_taken < state.notes.first)
        };
        let any = if is_behind {
            match if lacks_notes { Found::Lost } else { self.read_log(out) } {
                Found::Lost => return self.go_alone(out),
                Found::Series => true,
            }
        } else {
            self.part.advance(Some(self.id), out)?
        };
        self.say();
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
