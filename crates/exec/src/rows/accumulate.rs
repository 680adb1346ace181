//! Windowed aggregation: one state per window, folded from runs of decoded samples, merged over members.
//!
//! The samples of a member ascend, so those of a window are a run of its columns: a kernel folds a whole run
//! in one loop over slices, and the window is found once per run. Accumulators of parts of a group merge in
//! the order of its members, so a result does not depend on the number of threads.
//! Invariants: windows ascend; each has at least one sample.
//! Not here: fill, order of the plan.

pub(crate) mod moments;
pub(crate) mod pick;
pub(crate) mod pool;

use std::any::Any;

use chronolith_model::query::{ColumnType, TypedValues};
use std::sync::Arc;

use super::bounds::WindowBounds;
use super::column::RowColumn;
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

/// Samples of a member: those of the argument of a call, and other variables at their times.
pub(crate) struct Samples<'s> {
    pub(crate) times: &'s [i64],
    pub(crate) values: &'s TypedValues,
    pub(crate) aux: &'s [RowColumn],
}

/// Aggregation of the samples of a group, per window.
pub(crate) trait Accumulator: Send {
    /// Adds the samples of a member.
    fn fold(&mut self, bounds: &WindowBounds, samples: &Samples<'_>);

    /// Adds what has been folded from members after those of this one.
    fn merge(&mut self, later: Box<dyn Accumulator>);

    /// Returns the results, ascending by window.
    fn finish(self: Box<Self>, bounds: &WindowBounds, aux_types: &[ColumnType]) -> Points;

    /// Itself, for [`Accumulator::merge`] of the same kernel.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;

    /// Bytes on the heap, for budgets.
    fn heap_bytes(&self) -> usize;
}

/// Type of the values of a column.
pub(crate) trait Element: Clone + PartialOrd + Default + Send + Sync + 'static {
    fn slice(values: &TypedValues) -> Option<&[Self]>;
    fn wrap(values: Vec<Self>) -> TypedValues;

    /// Returns true if the value is the first one instead of `other` at the same time.
    fn is_first_before(&self, other: &Self) -> bool {
        if Self::IS_BOOLEAN { self < other } else { self > other }
    }

    /// Of booleans the lesser one is first.
    const IS_BOOLEAN: bool = false;
}

macro_rules! element {
    ($type:ty, $variant:ident, $is_boolean:expr) => {
        impl Element for $type {
            const IS_BOOLEAN: bool = $is_boolean;

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
element!(f64, Floats, false);
element!(i64, Integers, false);
element!(u64, Unsigned, false);
element!(bool, Booleans, true);
element!(Arc<[u8]>, Texts, false);

/// Other variables of a point, as far as a plan has any.
pub(crate) trait AuxValues: Clone + Send + 'static {
    fn of_row(aux: &[RowColumn], row: usize) -> Self;
    fn push_to(&self, aux: &mut [RowColumn]);
}

impl AuxValues for () {
    fn of_row(_aux: &[RowColumn], _row: usize) {}
    fn push_to(&self, _aux: &mut [RowColumn]) {}
}

impl AuxValues for Box<[Option<Literal>]> {
    fn of_row(aux: &[RowColumn], row: usize) -> Box<[Option<Literal>]> {
        aux.iter().map(|column| column.get(row)).collect()
    }

    fn push_to(&self, aux: &mut [RowColumn]) {
        aux.iter_mut().zip(&**self).for_each(|(column, value)| column.push(value.as_ref()));
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
    /// Bytes that a state keeps per sample.
    fn bytes_per_sample(&self) -> usize {
        0
    }
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
    sample_count: usize,
}

impl<T: Element, K: Kernel<T>> Windowed<T, K> {
    pub(crate) fn boxed(kernel: K) -> Box<dyn Accumulator> {
        let starts = Vec::new();
        let states = Vec::new();
        Box::new(Windowed::<T, K> { kernel, starts, states, sample_count: 0 })
    }

    /// Adds windows that lie between those that are known.
    fn insert(&mut self, added: Vec<(i64, K::State)>) {
        if added.is_empty() {
            return;
        }
        let mut known = std::mem::take(&mut self.starts).into_iter().zip(std::mem::take(&mut self.states));
        let mut added = added.into_iter();
        let mut a = known.next();
        let mut b = added.next();
        loop {
            let takes_known = match (&a, &b) {
                (None, None) => return,
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
    }
}

impl<T: Element, K: Kernel<T>> Accumulator for Windowed<T, K> {
    fn fold(&mut self, bounds: &WindowBounds, samples: &Samples<'_>) {
        let Some(values) = T::slice(samples.values) else { return };
        let times = samples.times;
        self.sample_count += times.len();
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
                self.kernel.fold(&mut self.states[at], &run);
            } else {
                let mut state = K::State::default();
                self.kernel.fold(&mut state, &run);
                if at == self.starts.len() && added.is_empty() {
                    self.starts.push(window.start);
                    self.states.push(state);
                } else {
                    added.push((window.start, state));
                }
            }
            first += length;
        }
        self.insert(added);
    }

    fn merge(&mut self, later: Box<dyn Accumulator>) {
        let Ok(later) = later.into_any().downcast::<Windowed<T, K>>() else { return };
        self.sample_count += later.sample_count;
        let mut added = Vec::new();
        let mut at = 0;
        for (start, state) in later.starts.into_iter().zip(later.states) {
            while self.starts.get(at).is_some_and(|known| *known < start) {
                at += 1;
            }
            if self.starts.get(at) == Some(&start) {
                self.kernel.merge(&mut self.states[at], state);
            } else {
                added.push((start, state));
            }
        }
        self.insert(added);
    }

    fn finish(self: Box<Self>, bounds: &WindowBounds, aux_types: &[ColumnType]) -> Points {
        let count = self.starts.len();
        let mut out = Emitted {
            times: Vec::with_capacity(count),
            values: Vec::with_capacity(count),
            present: None,
            aux: aux_types.iter().map(|column_type| RowColumn::new(*column_type)).collect(),
        };
        for (start, state) in self.starts.into_iter().zip(self.states) {
            self.kernel.emit(state, bounds.shown_start(start), &mut out);
        }
        let values = RowColumn { values: K::Out::wrap(out.values), present: out.present };
        Points { times: out.times, values, aux: out.aux }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn heap_bytes(&self) -> usize {
        let states = self.states.capacity() * size_of::<K::State>() + self.starts.capacity() * 8;
        states + self.sample_count * self.kernel.bytes_per_sample()
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
