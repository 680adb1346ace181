//! Points of the members of a group: a series of a measurement, or rows of a subquery. Read as aligned
//! columns, or as the samples of one field.
//!
//! Invariants: times ascend; times of a subquery may repeat. Values are of the type of the variable over all
//! sources; what cannot be cast is left out.

use std::ops::Range;
use std::sync::Arc;

use chronolith_model::query::{ColumnType, SampleSource, TypedColumns, TypedValues};
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, Labels, TimeRange};

use super::allowance::{Allowance, TEXT_BYTES, row_bytes};
use super::column::{NULL_ROW, ResultSeries, RowColumn, cast_values};
use super::error::RowError;
use super::eval::{EvalInput, Place};
use super::execution::RowExecution;
use super::filter::{SeriesFilter, selected_rows};
use super::plan::{Literal, Variable};
use super::variables::Variables;

/// Members whose points are pooled.
pub(crate) struct Group {
    pub(crate) series: Arc<ResultSeries>,
    pub(crate) members: Vec<Member>,
}

/// Series of a measurement, or of the result of a subquery.
pub(crate) struct Member {
    pub(crate) tags: Labels,
    pub(crate) filter: SeriesFilter,
    pub(crate) source: PointSource,
    /// Range of the calls that read the member; `None`: all calls. A subquery has other rows for another
    /// range.
    pub(crate) calls: Option<TimeRange>,
}

/// Source of the points of a member; one entry per variable.
pub(crate) enum PointSource {
    /// Series of a field, one per kind.
    Series(Vec<Vec<Arc<dyn SampleSource>>>),
    /// Rows in memory.
    Rows(PointColumns),
}

/// Points as columns.
#[derive(Debug, Default)]
pub(crate) struct PointColumns {
    pub(crate) times: Vec<i64>,
    /// One per variable; `None` if it was not asked for, or is null.
    pub(crate) columns: Vec<Option<RowColumn>>,
}

impl PointColumns {
    /// Removes all rows but `rows`.
    pub(crate) fn keep(&mut self, rows: &[u32]) {
        self.times = rows.iter().map(|row| self.times[*row as usize]).collect();
        self.columns.iter_mut().flatten().for_each(|column| *column = column.gather(rows));
    }

    /// Rows with a time in `range`; times ascend.
    fn rows_in(&self, range: TimeRange) -> Range<u32> {
        let before = |end: i64| self.times.partition_point(|time| *time < end) as u32;
        before(range.start)..before(range.end)
    }

    /// Bytes on the heap, for budgets.
    pub(crate) fn heap_bytes(&self) -> usize {
        let columns = self.columns.iter().flatten().map(RowColumn::heap_bytes).sum::<usize>();
        self.times.len() * size_of::<i64>() + columns
    }
}

/// Variables to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'w> {
    /// A point has a value of one of them.
    pub(crate) drivers: &'w [usize],
    /// Indices of all variables to read: the drivers and the variables of the condition.
    pub(crate) all: &'w [usize],
    /// Rows of a subquery that are points.
    pub(crate) rows: RowNeed,
}

/// Rows of a subquery that are points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowNeed {
    /// All rows: a raw select.
    All,
    /// Rows with a value of a driver: calls.
    WithDriver,
}

/// Samples of a buffer that is kept from series to series, at most.
const BUFFER_SAMPLES_MAX: usize = 1 << 20;

/// Buffers that are reused from series to series.
#[derive(Default)]
pub(crate) struct ReadBuffers {
    floats: Columns,
}

impl ReadBuffers {
    /// Takes the memory of columns that are no longer needed.
    pub(crate) fn recycle(&mut self, columns: TypedColumns) {
        if let TypedValues::Floats(values) = columns.values
            && self.floats.values.capacity() < values.capacity()
            && values.capacity() <= BUFFER_SAMPLES_MAX
        {
            self.floats.times = columns.times;
            self.floats.values = values;
            self.floats.clear();
        }
    }
}

impl Member {
    /// Times to read for a range: rows of a subquery are points of it whatever their times: a window may
    /// begin before the range.
    pub(crate) fn read_range(&self, range: TimeRange) -> TimeRange {
        match &self.source {
            PointSource::Series(_) => range,
            PointSource::Rows(_) => TimeRange { start: i64::MIN, end: i64::MAX },
        }
    }

    /// Returns true if a call over `range` reads the member.
    pub(crate) fn is_read_by(&self, range: TimeRange) -> bool {
        self.calls.is_none_or(|calls| calls == range)
    }

    /// Returns true if the member has points of the variable.
    pub(crate) fn has(&self, variable: usize) -> bool {
        match &self.source {
            PointSource::Series(fields) => fields.get(variable).is_some_and(|field| !field.is_empty()),
            PointSource::Rows(rows) => rows.columns.get(variable).is_some_and(Option::is_some),
        }
    }

    /// Upper bound of the points of a variable.
    pub(crate) fn point_count_hint(&self, variable: usize) -> usize {
        match &self.source {
            PointSource::Series(fields) => fields
                .get(variable)
                .map_or(0, |field| field.iter().map(|source| source.sample_count_hint()).sum()),
            PointSource::Rows(rows) => rows.times.len(),
        }
    }

    /// First and last time of the points of a variable, if known without reading.
    pub(crate) fn time_bounds(&self, variable: usize) -> Option<(i64, i64)> {
        match &self.source {
            PointSource::Series(fields) => {
                let mut all: Option<(i64, i64)> = None;
                for source in fields.get(variable)? {
                    let (first, last) = source.time_bounds()?;
                    all = Some(all.map_or((first, last), |(a, b)| (a.min(first), b.max(last))));
                }
                all
            }
            PointSource::Rows(rows) => Some((*rows.times.first()?, *rows.times.last()?)),
        }
    }

    /// Returns true if points are used as they are read: no condition depends on fields.
    pub(crate) fn is_unfiltered(&self) -> bool {
        matches!(self.filter, SeriesFilter::All)
    }

    /// Reads the points of one variable; conditions are not applied. Their memory is taken from `memory`.
    pub(crate) fn read_variable(
        &self,
        variable: usize,
        variables: &Variables,
        range: TimeRange,
        buffers: &mut ReadBuffers,
        memory: &mut Allowance,
    ) -> Result<TypedColumns, RowError> {
        let column_type = variables.types[variable].unwrap_or_default();
        match &self.source {
            PointSource::Series(fields) => {
                let columns = read_field(&fields[variable], column_type, range, buffers)?;
                memory.take(samples_bytes(&columns))?;
                Ok(columns)
            }
            PointSource::Rows(rows) => {
                let mut out = TypedColumns::new(column_type);
                let Some(column) = &rows.columns[variable] else { return Ok(out) };
                let in_range = rows.rows_in(range);
                memory
                    .take(in_range.len() * (size_of::<u32>() + size_of::<i64>() + row_bytes(column_type)))?;
                let kept: Vec<u32> = in_range.filter(|row| column.is_present(*row as usize)).collect();
                out.times = kept.iter().map(|row| rows.times[*row as usize]).collect();
                out.values = column.gather(&kept).values;
                Ok(out)
            }
        }
    }

    /// Reads the points that have a value of one of the drivers and meet the condition. Their memory is taken
    /// from `memory`.
    pub(crate) fn read_points(
        &self,
        wanted: Wanted<'_>,
        variables: &Variables,
        range: TimeRange,
        execution: &RowExecution,
        buffers: &mut ReadBuffers,
        memory: &mut Allowance,
    ) -> Result<PointColumns, RowError> {
        let mut points = match &self.source {
            PointSource::Series(_) => {
                let points = self.align_series(wanted, variables, range, execution, buffers, memory)?;
                execution.count_points(points.times.len())?;
                points
            }
            PointSource::Rows(rows) => {
                let has_driver = |row: usize| {
                    if wanted.rows == RowNeed::All {
                        return true;
                    }
                    let columns = wanted.drivers.iter().filter_map(|idx| rows.columns[*idx].as_ref());
                    columns.into_iter().any(|column| column.is_present(row))
                };
                let in_range = rows.rows_in(range);
                let columns = rows.columns.iter().flatten();
                let row: usize = columns.map(|column| row_bytes(column.values.column_type())).sum();
                memory.take(in_range.len().saturating_mul(row + size_of::<u32>() + size_of::<i64>()))?;
                let kept: Vec<u32> = in_range.filter(|row| has_driver(*row as usize)).collect();
                PointColumns {
                    times: kept.iter().map(|row| rows.times[*row as usize]).collect(),
                    columns: rows
                        .columns
                        .iter()
                        .map(|column| column.as_ref().map(|column| column.gather(&kept)))
                        .collect(),
                }
            }
        };
        if let SeriesFilter::Rows(filter) = &self.filter {
            let count = points.times.len();
            let place = match &self.source {
                PointSource::Series(_) => Place::SeriesCondition,
                PointSource::Rows(_) => Place::RowCondition,
            };
            let input = EvalInput {
                variables,
                columns: &points.columns,
                calls: &[],
                row_count: count,
                place,
                number: None,
                execution,
            };
            let kept = selected_rows(filter, &input)?;
            if kept.len() < count {
                points.keep(&kept);
            }
        }
        Ok(points)
    }

    fn align_series(
        &self,
        wanted: Wanted<'_>,
        variables: &Variables,
        range: TimeRange,
        execution: &RowExecution,
        buffers: &mut ReadBuffers,
        memory: &mut Allowance,
    ) -> Result<PointColumns, RowError> {
        let count = variables.all.len();
        memory.take(count * (size_of::<Option<TypedColumns>>() + size_of::<Option<RowColumn>>()))?;
        let mut read: Vec<Option<TypedColumns>> = (0..count).map(|_| None).collect();
        for (number, idx) in wanted.all.iter().enumerate() {
            if number.is_multiple_of(VARIABLES_PER_CHECK) {
                execution.check()?;
            }
            if self.has(*idx) {
                read[*idx] = Some(self.read_variable(*idx, variables, range, buffers, memory)?);
            }
        }
        let times = union_of_times(wanted.drivers.iter().filter_map(|idx| read[*idx].as_ref()), memory)?;
        let mut columns: Vec<Option<RowColumn>> = (0..count).map(|_| None).collect();
        for (number, idx) in wanted.all.iter().enumerate() {
            if number.is_multiple_of(VARIABLES_PER_CHECK) {
                execution.check()?;
            }
            let bytes = row_bytes(variables.types[*idx].unwrap_or_default());
            memory.take(times.len().saturating_mul(bytes + size_of::<u32>()))?;
            columns[*idx] = match (&variables.all[*idx], read[*idx].take()) {
                (_, Some(samples)) => {
                    let samples_bytes = samples_bytes(&samples);
                    let column = align(samples, &times);
                    memory.give_back(samples_bytes);
                    memory.take(text_bytes(&column.values))?;
                    Some(column)
                }
                (Variable::Tag { name }, None) => {
                    let value = self.tags.get(name).map(|value| Literal::Text(value.as_bytes().into()));
                    value.map(|value| RowColumn::repeated(Some(&value), times.len()))
                }
                (Variable::Field { .. }, None) => None,
            };
            if columns[*idx].is_none()
                && let Some(column_type) = variables.types[*idx]
            {
                columns[*idx] = Some(RowColumn::nulls(column_type, times.len()));
            }
            memory.give_back(times.len() * size_of::<u32>());
        }
        Ok(PointColumns { times, columns })
    }
}

/// Variables between two checks of the deadline.
const VARIABLES_PER_CHECK: usize = 256;

/// Bytes of samples in memory.
fn samples_bytes(columns: &TypedColumns) -> usize {
    columns.times.len() * (size_of::<i64>() + row_bytes(columns.values.column_type()))
        + text_bytes(&columns.values)
}

/// Bytes of the texts of a column.
fn text_bytes(values: &TypedValues) -> usize {
    match values {
        TypedValues::Texts(texts) => texts.iter().map(|text| text.len() + TEXT_BYTES).sum(),
        _ => 0,
    }
}

/// Samples of the series of one field as one type.
fn read_field(
    field: &[Arc<dyn SampleSource>],
    column_type: ColumnType,
    range: TimeRange,
    buffers: &mut ReadBuffers,
) -> Result<TypedColumns, RowError> {
    let mut out = TypedColumns::new(column_type);
    for source in field {
        let found = source.column_type();
        if found == column_type && out.times.is_empty() {
            if column_type == ColumnType::Float {
                read_floats(&**source, range, buffers, &mut out)?;
            } else {
                source.read_typed(range, &mut out)?;
            }
            continue;
        }
        let mut samples = TypedColumns::new(found);
        source.read_typed(range, &mut samples)?;
        if let Some(values) = cast_values(&samples.values, column_type) {
            merge_samples(&mut out, TypedColumns { times: samples.times, values });
        }
    }
    Ok(out)
}

/// Reads floats without a copy of their own.
fn read_floats(
    source: &dyn SampleSource,
    range: TimeRange,
    buffers: &mut ReadBuffers,
    out: &mut TypedColumns,
) -> Result<(), RowError> {
    buffers.floats.clear();
    source.read(range, &mut buffers.floats)?;
    let columns = &mut buffers.floats;
    // `|` instead of a short circuit: one pass without branches.
    let any_stale = columns.values.iter().fold(false, |any, value| any | is_stale(*value));
    if any_stale || !columns.histograms.is_empty() {
        out.extend_cast(columns);
        return Ok(());
    }
    out.times = std::mem::take(&mut columns.times);
    out.values = TypedValues::Floats(std::mem::take(&mut columns.values));
    Ok(())
}

/// Merges samples of another kind of the same field; of equal times the first one stays.
fn merge_samples(out: &mut TypedColumns, more: TypedColumns) {
    if out.times.is_empty() {
        *out = more;
        return;
    }
    let first = std::mem::replace(out, TypedColumns::new(more.values.column_type()));
    let mut a = 0;
    let mut b = 0;
    while a < first.times.len() || b < more.times.len() {
        let takes_first = match (first.times.get(a), more.times.get(b)) {
            (Some(time), Some(other)) => time <= other,
            (first, _) => first.is_some(),
        };
        let (samples, at) = if takes_first { (&first, &mut a) } else { (&more, &mut b) };
        if out.times.last() != Some(&samples.times[*at]) {
            out.times.push(samples.times[*at]);
            out.values.push_from(&samples.values, *at);
        }
        *at += 1;
    }
}

/// Times of all samples, ascending, each once. They are sorted once, whatever the number of fields with times
/// of their own.
fn union_of_times<'t>(
    all: impl Iterator<Item = &'t TypedColumns>,
    memory: &mut Allowance,
) -> Result<Vec<i64>, RowError> {
    let mut times: Vec<i64> = Vec::new();
    let mut first: Option<&[i64]> = None;
    for samples in all {
        match first {
            Some(first) if *first == samples.times => {}
            _ => {
                // A vector that grows is copied to one of twice its size.
                memory.take(3 * samples.times.len() * size_of::<i64>())?;
                first.get_or_insert(&samples.times);
                times.extend_from_slice(&samples.times);
            }
        }
    }
    if !times.is_sorted_by(|a, b| a < b) {
        times.sort_unstable();
        times.dedup();
    }
    Ok(times)
}

/// Values of samples at `times`, null where there is none.
fn align(samples: TypedColumns, times: &[i64]) -> RowColumn {
    if samples.times == times {
        return RowColumn::of(samples.values);
    }
    let mut rows = Vec::with_capacity(times.len());
    let mut at = 0;
    for time in times {
        while samples.times.get(at).is_some_and(|sample| sample < time) {
            at += 1;
        }
        let is_hit = samples.times.get(at) == Some(time);
        rows.push(if is_hit { at as u32 } else { NULL_ROW });
    }
    RowColumn::of(samples.values).gather(&rows)
}
