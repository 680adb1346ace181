//! Windows without points: null, none, previous, linear, a number.
//!
//! Invariants: points are in the order of the plan; a group without points has no windows.

use chronolith_model::query::TypedValues;

use super::accumulate::Points;
use super::allowance::row_bytes;
use super::bounds::WindowBounds;
use super::column::{NULL_ROW, RowColumn, float_to_integer, float_to_unsigned};
use super::error::RowError;
use super::finish::Finish;
use super::plan::{Fill, Literal, Order};

/// Bytes per window while windows are filled: starts, also merged with other times, and rows.
const WINDOW_BYTES: usize = 24;
/// Windows that are counted between two checks of the deadline.
const WINDOWS_PER_CHECK: usize = 4096;

/// Values of rows for which a call has no point, or a variable no value: a number, or the value of the row
/// before.
pub(crate) struct Defaults<'f> {
    fill: &'f Fill,
    /// Values of the row before, per column.
    last: Vec<Option<Literal>>,
}

impl<'f> Defaults<'f> {
    /// Continues after a row with the values `last`, one per column.
    pub(crate) fn after(fill: &'f Fill, last: Vec<Option<Literal>>) -> Defaults<'f> {
        Defaults { fill, last }
    }

    /// Values of the last row.
    pub(crate) fn into_last(self) -> Vec<Option<Literal>> {
        self.last
    }

    /// Fills rows of column `idx` of a row: those that `is_missing` selects.
    pub(crate) fn apply(&mut self, idx: usize, column: &mut RowColumn, is_missing: impl Fn(usize) -> bool) {
        if !matches!(self.fill, Fill::Number(_) | Fill::Previous) || column.is_empty() {
            return;
        }
        if self.last.len() <= idx {
            self.last.resize(idx + 1, None);
        }
        if column.present.is_some() {
            let mut filled = RowColumn::new(column.values.column_type());
            for row in 0..column.len() {
                let value = match self.fill {
                    _ if !is_missing(row) => column.get(row),
                    Fill::Number(value) => Some(value.clone()),
                    _ => self.last[idx].clone(),
                };
                filled.push(value.as_ref());
                self.last[idx] = value;
            }
            *column = filled;
        }
        self.last[idx] = column.get(column.len() - 1);
    }
}

/// Adds the windows without points. `count_is_zero` for counts, whose null is 0.
pub(crate) fn fill_windows(
    points: Points,
    fill: &Fill,
    bounds: &WindowBounds,
    order: Order,
    to: &mut Finish<'_>,
    count_is_zero: bool,
) -> Result<Points, RowError> {
    let (Some(first), Some(last)) = (points.times.first(), points.times.last()) else { return Ok(points) };
    let has_all = bounds.fixed_width().is_some() && bounds.count() == Some(points.times.len() as u64);
    if *fill == Fill::None || has_all {
        return Ok(points);
    }
    let least = (*first).min(*last);
    let greatest = (*first).max(*last);
    let count = count_starts(bounds, least, greatest, to)?;
    let row_count = count.saturating_add(points.times.len());
    let _temporary = to.execution.reserve(row_count.saturating_mul(WINDOW_BYTES))?;
    let columns = points.aux.iter().chain([&points.values]);
    let columns_bytes: usize = columns.map(|column| row_bytes(column.values.column_type())).sum();
    // A number is appended to a copy of the values.
    let _copy = to.execution.reserve(points.values.heap_bytes().saturating_mul(2))?;
    to.memory.take(row_count.saturating_mul(size_of::<i64>() + columns_bytes))?;
    let mut starts: Vec<i64> = Vec::with_capacity(count);
    starts.extend(bounds.starts(least, greatest));
    to.execution.check()?;
    if order == Order::Descending {
        starts.reverse();
    }
    let rows = rows_of_windows(&points.times, &mut starts, order);
    if !rows.contains(&NULL_ROW) {
        return Ok(points);
    }
    let zero = Literal::Integer(0);
    let value = match fill {
        Fill::Null if count_is_zero => Some(&zero),
        Fill::Number(value) => Some(value),
        _ => None,
    };
    let values = match fill {
        Fill::Linear => linear(&points, &starts, &rows, bounds),
        Fill::Previous => points.values.gather(&previous_rows(&rows)),
        _ => with_number(&points.values, &rows, value),
    };
    let aux = points.aux.iter().map(|column| column.gather(&rows)).collect();
    Ok(Points { times: starts, values, aux })
}

/// Number of the windows that [`WindowBounds::starts`] returns.
fn count_starts(
    bounds: &WindowBounds,
    least: i64,
    greatest: i64,
    to: &Finish<'_>,
) -> Result<usize, RowError> {
    if let Some(count) = bounds.fixed_count(least, greatest) {
        return Ok(usize::try_from(count).unwrap_or(usize::MAX));
    }
    let mut count = 0;
    for _ in bounds.starts(least, greatest) {
        if usize::is_multiple_of(count, WINDOWS_PER_CHECK) {
            to.execution.check()?;
            // A range of more windows than there is memory for ends here, not at its last window.
            drop(to.execution.reserve(count.saturating_mul(WINDOW_BYTES))?);
        }
        count += 1;
    }
    Ok(count)
}

/// Row of each window; windows of points outside of the known starts are added.
fn rows_of_windows(times: &[i64], starts: &mut Vec<i64>, order: Order) -> Vec<u32> {
    let is_before = |a: i64, b: i64| match order {
        Order::Ascending => a < b,
        Order::Descending => a > b,
    };
    let mut rows = Vec::with_capacity(starts.len() + times.len());
    let mut merged = Vec::with_capacity(starts.len() + times.len());
    let mut at = 0;
    for start in starts.iter() {
        while at < times.len() && is_before(times[at], *start) {
            merged.push(times[at]);
            rows.push(at as u32);
            at += 1;
        }
        let is_hit = times.get(at) == Some(start);
        merged.push(*start);
        rows.push(if is_hit { at as u32 } else { NULL_ROW });
        at += usize::from(is_hit);
    }
    merged.extend_from_slice(&times[at..]);
    rows.extend(at as u32..times.len() as u32);
    *starts = merged;
    rows
}

fn previous_rows(rows: &[u32]) -> Vec<u32> {
    let mut last = NULL_ROW;
    let row_or_last = |row: &u32| {
        last = if *row == NULL_ROW { last } else { *row };
        last
    };
    rows.iter().map(row_or_last).collect()
}

fn with_number(values: &RowColumn, rows: &[u32], value: Option<&Literal>) -> RowColumn {
    let Some(value) = value else { return values.gather(rows) };
    let mut one = RowColumn::new(values.values.column_type());
    one.push(Some(value));
    if !one.is_present(0) {
        // Texts and booleans are filled by their empty value.
        one.present = None;
    }
    let mut all = values.clone();
    let number_row = all.len() as u32;
    all.append(&one);
    let rows: Vec<u32> = rows.iter().map(|row| if *row == NULL_ROW { number_row } else { *row }).collect();
    all.gather(&rows)
}

/// Straight line through two values, in numbers of windows.
struct Line {
    slope: f64,
    /// Windows after the first value.
    distance: f64,
}

impl Line {
    /// The order of the operations decides the last digit; InfluxDB has the same order.
    fn value(&self, first: f64) -> f64 {
        self.slope * self.distance + first
    }
}

/// Interpolates numbers between the points before and after.
fn linear(points: &Points, starts: &[i64], rows: &[u32], bounds: &WindowBounds) -> RowColumn {
    let values = &points.values;
    let width = bounds.windows.as_ref().map_or(1, |windows| windows.width.max(1));
    let distance = |from: i64, to: i64| (to.div_euclid(width) - from.div_euclid(width)) as f64;
    let mut out = values.gather(rows);
    let mut before: Option<usize> = None;
    for (window, row) in rows.iter().enumerate() {
        if *row != NULL_ROW {
            before = Some(*row as usize);
            continue;
        }
        let Some(before) = before else { continue };
        let after = before + 1;
        if after >= points.times.len() || !values.is_present(before) || !values.is_present(after) {
            continue;
        }
        let windows = distance(points.times[before], points.times[after]);
        let line = |difference: f64| Line {
            slope: difference / windows,
            distance: distance(points.times[before], starts[window]),
        };
        let is_set = match &mut out.values {
            TypedValues::Floats(out) => {
                let TypedValues::Floats(values) = &values.values else { continue };
                out[window] = line(values[after] - values[before]).value(values[before]);
                true
            }
            TypedValues::Integers(out) => {
                let TypedValues::Integers(values) = &values.values else { continue };
                let difference = values[after].wrapping_sub(values[before]) as f64;
                out[window] = float_to_integer(line(difference).value(values[before] as f64));
                true
            }
            TypedValues::Unsigned(out) => {
                let TypedValues::Unsigned(values) = &values.values else { continue };
                let difference = values[after] as f64 - values[before] as f64;
                out[window] = float_to_unsigned(line(difference).value(values[before] as f64));
                true
            }
            _ => false,
        };
        if is_set && let Some(present) = &mut out.present {
            present[window] = true;
        }
    }
    out
}
