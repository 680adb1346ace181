//! Operators over columns of another type than floats: functions of windows, and aggregations.
//!
//! Invariants: integers are never converted to floats, except for means. Texts and booleans have an order in
//! time and a number, no sum. A sum of integers wraps at 64 bits, as InfluxDB's does.
//! Not here: operators of floats and histograms, presence of values (`values` of a series of any type).

use std::cmp::Ordering;
use std::ops::Range;

use chronolith_base::hash::HashMap;
use chronolith_model::query::{ColumnType, SelectRequest, TypedColumns, TypedValues};
use chronolith_model::{Labels, Matcher, Selector};

use crate::column::{StepSeries, TypedSteps};
use crate::error::Error;
use crate::execution::{Execution, OperatorMemory};
use crate::grid::Windows;
use crate::grouping::Grouping;
use crate::operator::{Blocking, BoxOperator, SeriesOperator};
use crate::select::SelectedSeries;

/// Function of the samples of a window, or of the values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TypedFn {
    /// The earliest sample.
    First,
    /// The latest sample.
    Last,
    /// Number of samples.
    Count,
    /// Sum of the samples.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// Mean of the samples, as a float.
    Mean,
}

impl TypedFn {
    /// Name of the function in reports and hints.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TypedFn::First => "first",
            TypedFn::Last => "last",
            TypedFn::Count => "count",
            TypedFn::Sum => "sum",
            TypedFn::Min => "min",
            TypedFn::Max => "max",
            TypedFn::Mean => "mean",
        }
    }

    /// Type of its results for values of a type; `None` if it has none.
    #[must_use]
    pub fn result_type(self, of: ColumnType) -> Option<ColumnType> {
        let is_number = matches!(of, ColumnType::Float | ColumnType::Integer | ColumnType::Unsigned);
        match self {
            TypedFn::First | TypedFn::Last => Some(of),
            TypedFn::Count => Some(ColumnType::Integer),
            TypedFn::Mean => is_number.then_some(ColumnType::Float),
            TypedFn::Sum | TypedFn::Min | TypedFn::Max => is_number.then_some(of),
        }
    }

    /// Applies the function to the values of each range; ranges are not empty.
    fn apply(self, values: &TypedValues, ranges: &[Range<usize>]) -> TypedValues {
        match self {
            TypedFn::First => self.pick(values, ranges, |range| range.start),
            TypedFn::Last => self.pick(values, ranges, |range| range.end - 1),
            TypedFn::Count => TypedValues::Integers(ranges.iter().map(|range| range.len() as i64).collect()),
            _ => match values {
                TypedValues::Integers(values) => {
                    let mean = |values: &[i64]| {
                        values.iter().map(|value| i128::from(*value)).sum::<i128>() as f64
                            / values.len() as f64
                    };
                    self.of_numbers(values, ranges, TypedValues::Integers, Ord::cmp, i64::wrapping_add, mean)
                }
                TypedValues::Unsigned(values) => {
                    let mean = |values: &[u64]| {
                        values.iter().map(|value| u128::from(*value)).sum::<u128>() as f64
                            / values.len() as f64
                    };
                    self.of_numbers(values, ranges, TypedValues::Unsigned, Ord::cmp, u64::wrapping_add, mean)
                }
                TypedValues::Floats(values) => {
                    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
                    let add = |a: f64, b: f64| a + b;
                    self.of_numbers(values, ranges, TypedValues::Floats, f64::total_cmp, add, mean)
                }
                other => TypedValues::new(other.column_type()),
            },
        }
    }

    fn pick(
        self,
        values: &TypedValues,
        ranges: &[Range<usize>],
        idx: impl Fn(&Range<usize>) -> usize,
    ) -> TypedValues {
        let mut out = TypedValues::new(values.column_type());
        ranges.iter().for_each(|range| out.push_from(values, idx(range)));
        out
    }

    fn of_numbers<T: Copy>(
        self,
        values: &[T],
        ranges: &[Range<usize>],
        typed: impl Fn(Vec<T>) -> TypedValues,
        compare: impl Fn(&T, &T) -> Ordering,
        add: impl Fn(T, T) -> T,
        mean: impl Fn(&[T]) -> f64,
    ) -> TypedValues {
        let slices = ranges.iter().map(|range| &values[range.clone()]);
        let folded = |fold: &dyn Fn(T, T) -> T| {
            typed(slices.clone().filter_map(|slice| slice.iter().copied().reduce(fold)).collect())
        };
        match self {
            TypedFn::Mean => TypedValues::Floats(slices.map(mean).collect()),
            TypedFn::Min => folded(&|a, b| if compare(&b, &a).is_lt() { b } else { a }),
            TypedFn::Max => folded(&|a, b| if compare(&b, &a).is_gt() { b } else { a }),
            _ => folded(&add),
        }
    }
}

/// A selector of one type, and a function of the samples in each window.
pub struct TypedScan<'q> {
    execution: &'q Execution<'q>,
    windows: Windows,
    function: TypedFn,
    selected: SelectedSeries<'q>,
    column_type: ColumnType,
    memory: OperatorMemory<'q>,
}

impl<'q> TypedScan<'q> {
    /// Selects series of `column_type`; samples are read when series are pulled.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn new(
        execution: &'q Execution<'q>,
        matchers: &'q [Matcher],
        windows: Windows,
        column_type: ColumnType,
        function: TypedFn,
    ) -> Result<TypedScan<'q>, Error> {
        let selector = Selector { matchers, range: windows.read_range() };
        let request = SelectRequest {
            function: function.name().into(),
            step_ms: windows.hinted_step_ms(),
            range_ms: windows.width_ms,
            column_type,
            ..SelectRequest::new(&selector)
        };
        // Shared selections are read as floats.
        let batches = execution.source.open_series(request, execution.ctx)?;
        let selected = SelectedSeries::new(execution, batches);
        let memory = execution.operator_memory();
        Ok(TypedScan { execution, windows, function, selected, column_type, memory })
    }
}

impl SeriesOperator for TypedScan<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        while let Some(series) = self.selected.next().transpose()? {
            let mut columns = TypedColumns::new(self.column_type);
            series.samples.read_typed(self.windows.read_range(), &mut columns)?;
            self.execution.trace.count_read(columns.times.len() as u64);
            let bytes = columns.times.len() * size_of::<i64>() + columns.values.heap_bytes();
            self.memory.raise_to(columns.times.len() as u64, bytes as u64)?;
            let mut steps = Vec::new();
            let mut ranges = Vec::new();
            for step in 0..self.windows.grid.count {
                let after = |time: i64| columns.times.partition_point(|sample| *sample <= time);
                let range = after(self.windows.start(step))..after(self.windows.end(step));
                if !range.is_empty() {
                    steps.push(step as u32);
                    ranges.push(range);
                }
            }
            if !steps.is_empty() {
                let values = self.function.apply(&columns.values, &ranges);
                out.labels = series.labels;
                out.drop_name = false;
                out.set_typed(self.windows.grid.count, TypedSteps { steps, values });
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The values of one group: steps, and the values of each, in order of series.
struct Group {
    labels: Labels,
    steps: Vec<u32>,
    values: TypedValues,
}

/// Aggregates series of `column_type` per group; groups are in the order of their first series.
pub fn aggregate<'q>(
    execution: &'q Execution<'q>,
    mut inner: BoxOperator<'q>,
    function: TypedFn,
    grouping: Grouping<'q>,
    column_type: ColumnType,
    step_count: usize,
) -> BoxOperator<'q> {
    Blocking::boxed(execution, move |memory| {
        let (mut groups, mut numbers): (Vec<Group>, HashMap<Labels, usize>) = Default::default();
        let mut series = StepSeries::default();
        while inner.next(&mut series)? {
            let labels = grouping.of(&series.labels);
            let number = *numbers.entry(labels.clone()).or_insert_with(|| {
                let values = TypedValues::new(column_type);
                groups.push(Group { labels, steps: Vec::new(), values });
                groups.len() - 1
            });
            memory.grow(series.sample_count(), series.heap_bytes())?;
            if let (Some(typed), Some(group)) = (&series.typed, groups.get_mut(number)) {
                group.steps.extend_from_slice(&typed.steps);
                (0..typed.steps.len()).for_each(|idx| group.values.push_from(&typed.values, idx));
            }
        }
        Ok(groups.into_iter().map(|group| group.finish(function, step_count)).collect())
    })
}

impl Group {
    fn finish(self, function: TypedFn, step_count: usize) -> StepSeries {
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_by_key(|idx| self.steps[*idx]);
        let mut sorted = TypedValues::new(self.values.column_type());
        order.iter().for_each(|idx| sorted.push_from(&self.values, *idx));
        let mut steps = Vec::new();
        let mut ranges = Vec::new();
        let mut start = 0;
        for same_step in order.chunk_by(|a, b| self.steps[*a] == self.steps[*b]) {
            steps.push(self.steps[same_step[0]]);
            ranges.push(start..start + same_step.len());
            start += same_step.len();
        }
        let mut out = StepSeries { labels: self.labels, ..StepSeries::default() };
        out.set_typed(step_count, TypedSteps { steps, values: function.apply(&sorted, &ranges) });
        out
    }
}
