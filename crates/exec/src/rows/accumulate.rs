//! Windowed aggregation: one state per window, folded from runs of decoded samples, merged over members.
//!
//! The samples of a member ascend, so a window is a run of its columns: a kernel folds a whole run in one
//! loop over slices, and the window is found once per run. Accumulators of parts of a group merge in the
//! order of its members, so a result does not depend on the number of threads.
//! Invariants: windows ascend; each has at least one sample. Memory is reserved before it is allocated, also
//! for states that keep samples.
//! Not here: fill, order of the plan.

pub(crate) mod extreme;
pub(crate) mod moments;
pub(crate) mod pick;
pub(crate) mod pool;

use std::any::Any;
use std::marker::PhantomData;

use chronolith_model::query::{ColumnType, TypedValues};
use std::sync::Arc;

use super::allowance::{ALLOCATION_BYTES, Allowance, TEXT_BYTES, row_bytes};
use super::bounds::WindowBounds;
use super::column::RowColumn;
use super::error::RowError;
use super::plan::Literal;

/// Result of a call for a group.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Points {
    pub(crate) times: Vec<i64>,
    pub(crate) values: RowColumn,
    /// Other variables of the selected points.
    pub(crate) aux: Vec<RowColumn>,
}

impl Points {
    pub(crate) fn new(column_type: ColumnType, aux_types: &[ColumnType]) -> Points {
        let aux = aux_types.iter().map(|column_type| RowColumn::new(*column_type)).collect();
        Points { times: Vec::new(), values: RowColumn::new(column_type), aux }
    }

    /// The points `rows`, in that order.
    pub(crate) fn gather(&self, rows: &[u32]) -> Points {
        Points {
            times: rows.iter().map(|row| self.times[*row as usize]).collect(),
            values: self.values.gather(rows),
            aux: self.aux.iter().map(|column| column.gather(rows)).collect(),
        }
    }

    /// Points `from` to `to`.
    pub(crate) fn range(&self, from: usize, to: usize) -> Points {
        Points {
            times: self.times[from..to].to_vec(),
            values: self.values.range(from, to),
            aux: self.aux.iter().map(|column| column.range(from, to)).collect(),
        }
    }

    /// Without the points that have no value.
    pub(crate) fn without_nulls(self) -> Points {
        if self.values.present.is_none() {
            return self;
        }
        let kept: Vec<u32> =
            (0..self.times.len() as u32).filter(|row| self.values.is_present(*row as usize)).collect();
        self.gather(&kept)
    }

    /// Bytes on the heap, for budgets.
    pub(crate) fn heap_bytes(&self) -> usize {
        let aux = self.aux.iter().map(RowColumn::heap_bytes).sum::<usize>();
        self.times.len() * size_of::<i64>() + self.values.heap_bytes() + aux
    }
}

/// Samples of a member: the argument of a call, and other variables at its times.
pub(crate) struct Samples<'s> {
    pub(crate) times: &'s [i64],
    pub(crate) values: &'s TypedValues,
    pub(crate) aux: &'s [RowColumn],
}

/// Aggregation of the samples of a group, per window.
pub(crate) trait Accumulator: Send {
    /// Adds the samples of a member.
    fn fold(
        &mut self,
        bounds: &WindowBounds,
        samples: &Samples<'_>,
        memory: &mut Allowance,
    ) -> Result<(), RowError>;

    /// Adds the result of a part whose members come after the members of this part.
    fn merge(&mut self, later: Box<dyn Accumulator>, memory: &mut Allowance) -> Result<(), RowError>;

    /// Returns the results, ascending by window. The memory of the states is not given back.
    fn finish(
        self: Box<Self>,
        bounds: &WindowBounds,
        aux_types: &[ColumnType],
        memory: &mut Allowance,
    ) -> Result<Points, RowError>;

    /// Itself, for [`Accumulator::merge`] of the same kernel.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// Type of the values of a column.
pub(crate) trait Element: Clone + PartialOrd + Default + Send + Sync + 'static {
    fn slice(values: &TypedValues) -> Option<&[Self]>;
    fn wrap(values: Vec<Self>) -> TypedValues;

    /// Returns true if the value is the first one instead of `other` at the same time.
    fn is_first_before(&self, other: &Self) -> bool {
        if Self::IS_BOOLEAN { self < other } else { self > other }
    }

    /// True if the first of two values at one time is the lesser one, as for booleans.
    const IS_BOOLEAN: bool = false;
    /// Type of the column.
    const COLUMN_TYPE: ColumnType;

    /// Bytes of the value outside of the column.
    fn heap_bytes(&self) -> usize {
        0
    }
}

macro_rules! element {
    ($type:ty, $variant:ident, $column_type:ident $(, $own:item)*) => {
        impl Element for $type {
            $($own)*
            const COLUMN_TYPE: ColumnType = ColumnType::$column_type;

            fn slice(values: &TypedValues) -> Option<&[$type]> {
                match values {
                    TypedValues::$variant(values) => Some(values),
                    _ => None,
                }
            }

            fn wrap(values: Vec<$type>) -> TypedValues {
                TypedValues::$variant(values)
            }
        }
    };
}
element!(f64, Floats, Float);
element!(i64, Integers, Integer);
element!(u64, Unsigned, Unsigned);
element!(bool, Booleans, Boolean, const IS_BOOLEAN: bool = true;);
element!(
    Arc<[u8]>,
    Texts,
    Text,
    fn heap_bytes(&self) -> usize {
        self.len() + TEXT_BYTES
    }
);

/// Values of other variables at a point, if a plan has any.
pub(crate) trait AuxValues: Clone + Send + 'static {
    fn of_row(aux: &[RowColumn], row: usize) -> Self;
    fn push_to(&self, aux: &mut [RowColumn]);

    /// Bytes that the values of a row allocate; texts are shared.
    fn allocated_bytes(_aux: &[RowColumn]) -> usize {
        0
    }

    /// Bytes of the values outside of the sample that is kept, texts included.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl AuxValues for () {
    fn of_row(_aux: &[RowColumn], _row: usize) {}
    fn push_to(&self, _aux: &mut [RowColumn]) {}
}

fn literal_bytes(value: Option<&Literal>) -> usize {
    match value {
        Some(Literal::Text(text)) => size_of::<Option<Literal>>() + text.len() + TEXT_BYTES,
        _ => size_of::<Option<Literal>>(),
    }
}

impl AuxValues for Box<[Option<Literal>]> {
    fn of_row(aux: &[RowColumn], row: usize) -> Box<[Option<Literal>]> {
        aux.iter().map(|column| column.get(row)).collect()
    }

    fn push_to(&self, aux: &mut [RowColumn]) {
        aux.iter_mut().zip(&**self).for_each(|(column, value)| column.push(value.as_ref()));
    }

    fn allocated_bytes(aux: &[RowColumn]) -> usize {
        ALLOCATION_BYTES + aux.len() * size_of::<Option<Literal>>()
    }

    fn heap_bytes(&self) -> usize {
        ALLOCATION_BYTES + self.iter().map(|value| literal_bytes(value.as_ref())).sum::<usize>()
    }
}

/// Samples of one window.
pub(crate) struct Run<'r, T> {
    pub(crate) times: &'r [i64],
    pub(crate) values: &'r [T],
    /// Columns of the whole member: row 0 of the run is row `first` of them.
    pub(crate) aux: &'r [RowColumn],
    pub(crate) first: usize,
}

/// Function of the samples of a window.
pub(crate) trait Kernel<T: Element>: Send + 'static {
    type State: Default + Send + 'static;
    type Out: Element;

    /// Adds a run, which is not empty.
    fn fold(&self, state: &mut Self::State, run: &Run<'_, T>);
    /// Adds a state of later members.
    fn merge(&self, state: &mut Self::State, later: Self::State);
    /// Appends the results of a window.
    fn emit(&self, state: Self::State, window: i64, out: &mut Emitted<Self::Out>);

    /// Bytes that a state allocates, at most, when it takes a run.
    fn fold_bytes(&self, _state: &Self::State, _run: &Run<'_, T>) -> usize {
        0
    }

    /// Bytes that a state allocates, at most, when it takes another one.
    fn merge_bytes(&self, _state: &Self::State, _later: &Self::State) -> usize {
        0
    }

    /// Bytes of a state on the heap.
    fn heap_bytes(&self, _state: &Self::State) -> usize {
        0
    }

    /// Results of a window at most.
    fn result_count(&self, _state: &Self::State) -> usize {
        1
    }

    /// Bytes that `emit` needs while it runs.
    fn emit_bytes(&self, _state: &Self::State) -> usize {
        0
    }
}

/// Bytes that a vector allocates when `added` items are pushed to it: the next power of two at most, while
/// the old items are still there.
fn growth_bytes<I>(items: &Vec<I>, added: usize) -> usize {
    let count = items.len() + added;
    if count <= items.capacity() {
        return 0;
    }
    count.max(2 * items.capacity()).max(4) * size_of::<I>() + ALLOCATION_BYTES
}

/// Bytes that a vector has allocated.
fn vector_bytes<I>(items: &Vec<I>) -> usize {
    if items.capacity() == 0 { 0 } else { items.capacity() * size_of::<I>() + ALLOCATION_BYTES }
}

/// Results of a kernel.
pub(crate) struct Emitted<O> {
    times: Vec<i64>,
    values: Vec<O>,
    present: Option<Vec<bool>>,
    pub(crate) aux: Vec<RowColumn>,
}

impl<O: Element> Emitted<O> {
    /// Appends a result; `None` is null.
    pub(crate) fn push(&mut self, time: i64, value: Option<O>) {
        self.times.push(time);
        if let Some(present) = &mut self.present {
            present.push(value.is_some());
        } else if value.is_none() {
            let mut present = vec![true; self.values.len()];
            present.push(false);
            self.present = Some(present);
        }
        self.values.push(value.unwrap_or_default());
    }
}

/// States of the windows of a group.
pub(crate) struct Windowed<T: Element, K: Kernel<T>> {
    kernel: K,
    starts: Vec<i64>,
    states: Vec<K::State>,
    _element: PhantomData<fn() -> T>,
}

/// Windows that a vector of them grows by at least.
const WINDOWS_GROWTH_MIN: usize = 4;

impl<T: Element, K: Kernel<T>> Windowed<T, K> {
    /// Bytes of a window, its state on the heap not included.
    const WINDOW_BYTES: usize = size_of::<i64>() + size_of::<K::State>();

    pub(crate) fn boxed(kernel: K) -> Box<dyn Accumulator> {
        let starts = Vec::new();
        let states = Vec::new();
        Box::new(Windowed::<T, K> { kernel, starts, states, _element: PhantomData })
    }

    /// Appends a window.
    fn push(&mut self, start: i64, state: K::State, memory: &mut Allowance) -> Result<(), RowError> {
        let count = self.starts.len();
        if count == self.starts.capacity() || count == self.states.capacity() {
            let more = count.max(WINDOWS_GROWTH_MIN);
            // The old vectors stay until they are copied.
            memory.take((count + more) * Self::WINDOW_BYTES)?;
            self.starts.reserve_exact(more);
            self.states.reserve_exact(more);
            memory.give_back(count * Self::WINDOW_BYTES);
        }
        self.starts.push(start);
        self.states.push(state);
        Ok(())
    }

    /// Adds a run to a state.
    fn fold_run(
        kernel: &K,
        state: &mut K::State,
        run: &Run<'_, T>,
        memory: &mut Allowance,
    ) -> Result<(), RowError> {
        let bytes = kernel.fold_bytes(state, run);
        if bytes == 0 {
            kernel.fold(state, run);
            return Ok(());
        }
        let before = kernel.heap_bytes(state);
        memory.take(bytes)?;
        kernel.fold(state, run);
        let after = kernel.heap_bytes(state);
        let taken = before + bytes;
        if after > taken {
            // Texts of the samples, which the state shares, stay as long as it.
            return memory.take(after - taken);
        }
        memory.give_back(taken - after);
        Ok(())
    }

    /// Adds windows that lie between those that are known.
    fn insert(&mut self, added: Vec<(i64, K::State)>, memory: &mut Allowance) -> Result<(), RowError> {
        if added.is_empty() {
            return Ok(());
        }
        let old_bytes = (self.starts.len() + added.len()) * Self::WINDOW_BYTES;
        memory.take(old_bytes)?;
        let count = self.starts.len() + added.len();
        let known_starts = std::mem::replace(&mut self.starts, Vec::with_capacity(count));
        let known_states = std::mem::replace(&mut self.states, Vec::with_capacity(count));
        let mut known = known_starts.into_iter().zip(known_states);
        let mut added = added.into_iter();
        let mut a = known.next();
        let mut b = added.next();
        loop {
            let takes_known = match (&a, &b) {
                (None, None) => break,
                (Some((start, _)), Some((other, _))) => start < other,
                (a, _) => a.is_some(),
            };
            let (side, rest): (_, &mut dyn Iterator<Item = (i64, K::State)>) =
                if takes_known { (&mut a, &mut known) } else { (&mut b, &mut added) };
            if let Some((start, state)) = std::mem::replace(side, rest.next()) {
                self.starts.push(start);
                self.states.push(state);
            }
        }
        memory.give_back(old_bytes);
        Ok(())
    }
}

/// Appends a window to those that are added later.
fn push_added<S>(
    added: &mut Vec<(i64, S)>,
    start: i64,
    state: S,
    memory: &mut Allowance,
) -> Result<(), RowError> {
    let count = added.len();
    if count == added.capacity() {
        let more = count.max(WINDOWS_GROWTH_MIN);
        memory.take((count + more) * size_of::<(i64, S)>())?;
        added.reserve_exact(more);
        memory.give_back(count * size_of::<(i64, S)>());
    }
    added.push((start, state));
    Ok(())
}

impl<T: Element, K: Kernel<T>> Accumulator for Windowed<T, K> {
    fn fold(
        &mut self,
        bounds: &WindowBounds,
        samples: &Samples<'_>,
        memory: &mut Allowance,
    ) -> Result<(), RowError> {
        let Some(values) = T::slice(samples.values) else { return Ok(()) };
        let times = samples.times;
        let fixed_width = bounds.fixed_width();
        let mut added = Vec::new();
        let mut first = 0;
        let mut at = 0;
        let mut window = TimeRangeCursor { start: 0, end: i64::MIN };
        while first < times.len() {
            // The next window is most often the one directly after.
            match fixed_width {
                Some(width) if window.end > i64::MIN && times[first] - window.end < width => {
                    window = TimeRangeCursor { start: window.end, end: window.end.saturating_add(width) };
                }
                _ => {
                    let found = bounds.window_of(times[first]);
                    window = TimeRangeCursor { start: found.start, end: found.end };
                }
            }
            let length = run_length(&times[first..], window.end);
            let run = Run {
                times: &times[first..first + length],
                values: &values[first..first + length],
                aux: samples.aux,
                first,
            };
            while self.starts.get(at).is_some_and(|start| *start < window.start) {
                at += 1;
            }
            if self.starts.get(at) == Some(&window.start) {
                Self::fold_run(&self.kernel, &mut self.states[at], &run, memory)?;
            } else {
                let mut state = K::State::default();
                Self::fold_run(&self.kernel, &mut state, &run, memory)?;
                if at == self.starts.len() && added.is_empty() {
                    self.push(window.start, state, memory)?;
                } else {
                    push_added(&mut added, window.start, state, memory)?;
                }
            }
            first += length;
        }
        self.insert(added, memory)
    }

    fn merge(&mut self, later: Box<dyn Accumulator>, memory: &mut Allowance) -> Result<(), RowError> {
        let Ok(later) = later.into_any().downcast::<Windowed<T, K>>() else { return Ok(()) };
        let mut added = Vec::new();
        let mut at = 0;
        for (start, state) in later.starts.into_iter().zip(later.states) {
            while self.starts.get(at).is_some_and(|known| *known < start) {
                at += 1;
            }
            if self.starts.get(at) == Some(&start) {
                let known = &mut self.states[at];
                memory.take(self.kernel.merge_bytes(known, &state))?;
                self.kernel.merge(known, state);
            } else {
                push_added(&mut added, start, state, memory)?;
            }
        }
        self.insert(added, memory)
    }

    fn finish(
        self: Box<Self>,
        bounds: &WindowBounds,
        aux_types: &[ColumnType],
        memory: &mut Allowance,
    ) -> Result<Points, RowError> {
        let count: usize = self.states.iter().map(|state| self.kernel.result_count(state)).sum();
        // Columns of other variables grow as they are pushed to.
        let aux_bytes: usize = aux_types.iter().map(|column_type| 3 * row_bytes(*column_type)).sum();
        let row = size_of::<i64>() + row_bytes(K::Out::COLUMN_TYPE) + aux_bytes;
        memory.take(count.saturating_mul(row))?;
        let emit_bytes = self.states.iter().map(|state| self.kernel.emit_bytes(state)).max().unwrap_or(0);
        memory.take(emit_bytes)?;
        let mut out = Emitted {
            times: Vec::with_capacity(count),
            values: Vec::with_capacity(count),
            present: None,
            aux: aux_types.iter().map(|column_type| RowColumn::new(*column_type)).collect(),
        };
        for (start, state) in self.starts.into_iter().zip(self.states) {
            self.kernel.emit(state, bounds.shown_start(start), &mut out);
        }
        memory.give_back(emit_bytes);
        let values = RowColumn { values: K::Out::wrap(out.values), present: out.present };
        Ok(Points { times: out.times, values, aux: out.aux })
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[derive(Clone, Copy)]
struct TimeRangeCursor {
    start: i64,
    end: i64,
}

/// Number of leading times before `end`; at least 1. Windows are short against series, so a linear search
/// comes first.
fn run_length(times: &[i64], end: i64) -> usize {
    const LINEAR_MAX: usize = 32;
    let near = times.iter().take(LINEAR_MAX).position(|time| *time >= end);
    let length = near.unwrap_or_else(|| times.partition_point(|time| *time < end));
    length.max(1)
}
