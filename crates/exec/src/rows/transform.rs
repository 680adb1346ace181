//! Transformations of the points of a call: differences, sums and averages that move along them.
//!
//! Invariants: points are in the order of the plan and have values. A point at the time of the one before
//! does not advance differences.

pub(crate) mod holt_winters;
pub(crate) mod indicator;
pub(crate) mod integral;

use chronolith_model::query::{ColumnType, TypedValues};

use super::accumulate::Points;
use super::accumulate::moments::Number;
use super::allowance::row_bytes;
use super::column::{RowColumn, cast_values};
use super::error::RowError;
use super::finish::Finish;
use super::plan::{Order, Transform};

/// Bytes per point while points are transformed: pairs of rows, rows that are kept, values as floats, and
/// vectors that grow.
const POINT_BYTES: usize = 16 + 2 * 8 + 8 + 2 * 16;

/// Applies a transformation. `width` is the window width of the plan. The result is taken from the memory of
/// the group.
pub(crate) fn apply(
    transform: &Transform,
    points: &Points,
    order: Order,
    width: Option<i64>,
    to: &mut Finish<'_>,
) -> Result<Points, RowError> {
    let count = points.times.len();
    let _temporary = to.execution.reserve(count.saturating_mul(POINT_BYTES))?;
    to.memory.take(count.saturating_mul(size_of::<i64>() + row_bytes(ColumnType::Float)))?;
    let values = &points.values.values;
    match transform {
        Transform::Derivative { unit, non_negative } => {
            let pairs = advancing_pairs(&points.times);
            let differences = differences_as_floats(values, &pairs)
                .ok_or_else(|| type_error("derivative", values.column_type()))?;
            let rate = |pair: &Pair, difference: f64| {
                let elapsed = points.times[pair.after].wrapping_sub(points.times[pair.before]);
                let elapsed = if order == Order::Descending { elapsed.wrapping_neg() } else { elapsed };
                if elapsed > 0 { difference / (elapsed as f64 / *unit as f64) } else { 0.0 }
            };
            let keeps = |change: f64| !non_negative || change.is_nan() || change >= 0.0;
            let kept = pairs.iter().zip(differences).filter(|(_, change)| keeps(*change));
            let (rows, rates): (Vec<usize>, Vec<f64>) =
                kept.map(|(pair, difference)| (pair.after, rate(pair, difference))).unzip();
            Ok(at_rows(points, &rows, TypedValues::Floats(rates)))
        }
        Transform::Difference { non_negative } => difference(points, *non_negative),
        Transform::MovingAverage { count } => moving_average(points, *count),
        Transform::CumulativeSum => cumulative_sum(points),
        Transform::Elapsed { unit } => {
            let rows: Vec<usize> = (1..points.times.len()).collect();
            let elapsed = |row: &usize| {
                points.times[*row].wrapping_sub(points.times[*row - 1]).wrapping_div((*unit).max(1))
            };
            let values = TypedValues::Integers(rows.iter().map(elapsed).collect());
            Ok(at_rows(points, &rows, values))
        }
        Transform::HoltWinters(arguments) => {
            let floats = as_floats(points, "holt_winters")?;
            let width = width.unwrap_or(1).max(1);
            let (times, values) = holt_winters::forecast(&points.times, &floats, *arguments, width, to)?;
            Ok(Points { times, values: RowColumn::of(TypedValues::Floats(values)), aux: Vec::new() })
        }
        Transform::Indicator(arguments) => {
            let floats = as_floats(points, arguments.kind.name())?;
            let (rows, values) = indicator::compute(*arguments, &floats);
            Ok(at_rows(points, &rows, TypedValues::Floats(values)))
        }
    }
}

/// Type of the results of a transformation; `None` if there is none for values of the type.
pub(crate) fn result_type(transform: &Transform, of: ColumnType) -> Option<ColumnType> {
    let is_number = matches!(of, ColumnType::Float | ColumnType::Integer | ColumnType::Unsigned);
    match transform {
        Transform::Elapsed { .. } => Some(ColumnType::Integer),
        Transform::Difference { .. } | Transform::CumulativeSum => is_number.then_some(of),
        _ => is_number.then_some(ColumnType::Float),
    }
}

fn type_error(function: &'static str, column_type: ColumnType) -> RowError {
    RowError::Type { function, column_type }
}

fn as_floats(points: &Points, function: &'static str) -> Result<Vec<f64>, RowError> {
    match cast_values(&points.values.values, ColumnType::Float) {
        Some(TypedValues::Floats(values)) => Ok(values),
        _ => Err(type_error(function, points.values.values.column_type())),
    }
}

fn at_rows(points: &Points, rows: &[usize], values: TypedValues) -> Points {
    let times = rows.iter().map(|row| points.times[*row]).collect();
    Points { times, values: RowColumn::of(values), aux: Vec::new() }
}

/// Rows of a point and of the one before it.
struct Pair {
    before: usize,
    after: usize,
}

fn advancing_pairs(times: &[i64]) -> Vec<Pair> {
    let mut pairs = Vec::with_capacity(times.len());
    let mut before = 0;
    for after in 1..times.len() {
        if times[after] != times[before] {
            pairs.push(Pair { before, after });
            before = after;
        }
    }
    pairs
}

fn differences_as_floats(values: &TypedValues, pairs: &[Pair]) -> Option<Vec<f64>> {
    let all = |change: &dyn Fn(&Pair) -> f64| pairs.iter().map(change).collect();
    Some(match values {
        TypedValues::Floats(values) => all(&|pair| values[pair.after] - values[pair.before]),
        TypedValues::Integers(values) => {
            all(&|pair| values[pair.after].wrapping_sub(values[pair.before]) as f64)
        }
        TypedValues::Unsigned(values) => all(&|pair| {
            let before = values[pair.before];
            let after = values[pair.after];
            if after >= before { (after - before) as f64 } else { -((before - after) as f64) }
        }),
        _ => return None,
    })
}

fn difference(points: &Points, non_negative: bool) -> Result<Points, RowError> {
    fn of<T: Number>(values: &[T], times: &[i64], keeps: impl Fn(T, T) -> bool) -> (Vec<usize>, Vec<T>) {
        let pairs = advancing_pairs(times);
        let kept = pairs.iter().filter(|pair| keeps(values[pair.before], values[pair.after]));
        kept.map(|pair| (pair.after, values[pair.after].sub(values[pair.before]))).unzip()
    }
    let times = &points.times;
    let (rows, values) = match &points.values.values {
        TypedValues::Floats(values) => {
            let keeps = |change: f64| !non_negative || change.is_nan() || change >= 0.0;
            let (rows, values) = of(values, times, |before, after| keeps(after - before));
            (rows, TypedValues::Floats(values))
        }
        TypedValues::Integers(values) => {
            // A difference that wraps has the wrong sign; the operands decide.
            let keeps = |before: i64, after: i64| !non_negative || after.wrapping_sub(before) >= 0;
            let (rows, values) = of(values, times, keeps);
            (rows, TypedValues::Integers(values))
        }
        TypedValues::Unsigned(values) => {
            let (rows, values) = of(values, times, |before, after| !non_negative || after >= before);
            (rows, TypedValues::Unsigned(values))
        }
        other => return Err(type_error("difference", other.column_type())),
    };
    Ok(at_rows(points, &rows, values))
}

fn moving_average(points: &Points, count: usize) -> Result<Points, RowError> {
    /// The sum moves along: the value that leaves is subtracted.
    fn of<T: Number + Default>(values: &[T], count: usize) -> Vec<f64> {
        let mut sum = T::default();
        let mut means = Vec::new();
        for (row, value) in values.iter().enumerate() {
            if row >= count {
                sum = sum.sub(values[row - count]);
            }
            sum = sum.add(*value);
            if row + 1 >= count {
                means.push(sum.to_f64() / count as f64);
            }
        }
        means
    }
    let count = count.max(1);
    let means = match &points.values.values {
        TypedValues::Floats(values) => of(values, count),
        TypedValues::Integers(values) => of(values, count),
        TypedValues::Unsigned(values) => of(values, count),
        other => return Err(type_error("moving_average", other.column_type())),
    };
    let rows: Vec<usize> = (count - 1..points.times.len().max(count - 1)).collect();
    Ok(at_rows(points, &rows, TypedValues::Floats(means)))
}

fn cumulative_sum(points: &Points) -> Result<Points, RowError> {
    fn of<T: Number>(values: &[T]) -> Vec<T> {
        let mut sum = T::default();
        let add = |value: &T| {
            sum = sum.add(*value);
            sum
        };
        values.iter().map(add).collect()
    }
    let values = match &points.values.values {
        TypedValues::Floats(values) => TypedValues::Floats(of(values)),
        TypedValues::Integers(values) => TypedValues::Integers(of(values)),
        TypedValues::Unsigned(values) => TypedValues::Unsigned(of(values)),
        other => return Err(type_error("cumulative_sum", other.column_type())),
    };
    Ok(Points { times: points.times.clone(), values: RowColumn::of(values), aux: Vec::new() })
}
