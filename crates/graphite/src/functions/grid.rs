//! Common grid of several series, and rows across them.
//!
//! Invariants: the common step is the least common multiple; a series that ends early is empty from there
//! on.
//! Not here: aggregation of rows.

use std::borrow::Cow;

use crate::absent::ABSENT;
use crate::error::EvalError;
use crate::series::{Grid, Series};

/// Steps beyond which a common grid is refused, seconds.
const STEP_MAX: i64 = i64::MAX / 4;

fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn least_common_multiple(a: i64, b: i64) -> Option<i64> {
    if a <= 0 || b <= 0 {
        return None;
    }
    (a / greatest_common_divisor(a, b)).checked_mul(b).filter(|step| *step < STEP_MAX)
}

/// Makes all series consolidate to a common step and returns their grid; `None` if there is no series.
/// # Errors
/// [`EvalError::Parameter`] if a step is 0 or the common one is out of range.
pub(super) fn normalize<'a>(
    series: impl IntoIterator<Item = &'a mut Series>,
) -> Result<Option<Grid>, EvalError> {
    let mut list: Vec<&mut Series> = series.into_iter().collect();
    let Some(first) = list.first() else { return Ok(None) };
    let no_step = || EvalError::Parameter("series have no common step".to_owned());
    let mut step = first.step;
    for other in &list {
        step = least_common_multiple(step, other.step).ok_or_else(no_step)?;
    }
    for one in &mut list {
        one.values_per_point = usize::try_from(step / one.step).map_err(|_| no_step())?;
    }
    let is_common = |one: &&mut Series| one.values_per_point > 0 && step % one.step == 0;
    assert!(list.iter().all(is_common), "the points of all series are as far apart as the step says");
    let start = list.iter().map(|one| one.start).min().unwrap_or(0);
    let end = list.iter().map(|one| one.end).max().unwrap_or(0);
    Ok(Some(Grid { start, end: end - (end - start).rem_euclid(step), step }))
}

/// Points of all series, consolidated.
pub(super) fn all_points(list: &[Series]) -> Result<Vec<Cow<'_, [f64]>>, EvalError> {
    list.iter().map(Series::points).collect()
}

/// Calls `row` with one value per series, for each point of the longest; the buffer is used again.
pub(super) fn for_each_row(points: &[Cow<'_, [f64]>], mut row: impl FnMut(&[f64])) {
    let count = points.iter().map(|points| points.len()).max().unwrap_or(0);
    let mut buffer = vec![ABSENT; points.len()];
    for idx in 0..count {
        for (slot, points) in buffer.iter_mut().zip(points) {
            *slot = points.get(idx).copied().unwrap_or(ABSENT);
        }
        row(&buffer);
    }
}

/// Combines two rows of points to the length of the longer; missing points are empty.
pub(super) fn zip_longest(left: &[f64], right: &[f64], combine: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let at = |points: &[f64], idx: usize| points.get(idx).copied().unwrap_or(ABSENT);
    (0..left.len().max(right.len())).map(|idx| combine(at(left, idx), at(right, idx))).collect()
}

/// Quotient; empty if either is empty or the divisor is 0.
pub(super) fn divide(dividend: f64, divisor: f64) -> f64 {
    if divisor == 0.0 { ABSENT } else { dividend / divisor }
}
