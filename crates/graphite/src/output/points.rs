//! Consolidation to the points that a client shows.
//!
//! Invariant: the start of a consolidated series is moved to a multiple of the bucket, so that buckets stay
//! where they are while the range moves.
//! Not here: the functions of consolidation.

use crate::error::EvalError;
use crate::series::Series;

/// Makes every series of the answer consolidate to `max_data_points` at most.
/// # Errors
/// [`EvalError::Parameter`] if the limit is 0, or a series has no step or less values than its range.
pub fn consolidate_to(list: &mut [Series], max_data_points: u64) -> Result<(), EvalError> {
    if list.iter().all(|series| series.values.is_empty()) {
        return Ok(());
    }
    if max_data_points == 0 {
        return Err(EvalError::Parameter("maxDataPoints must be positive".to_owned()));
    }
    let start = list.iter().map(|series| series.start).min().unwrap_or(0);
    let end = list.iter().map(|series| series.end).max().unwrap_or(0);
    for series in list {
        if max_data_points == 1 {
            series.values_per_point = series.values.len();
            continue;
        }
        nudge(series, end - start, max_data_points)?;
    }
    Ok(())
}

fn nudge(series: &mut Series, range: i64, max_data_points: u64) -> Result<(), EvalError> {
    if series.step <= 0 {
        return Err(EvalError::Parameter(format!("series {} has no step", series.name)));
    }
    let count = range as f64 / series.step as f64;
    if max_data_points as f64 >= count {
        return Ok(());
    }
    let values_per_point = (count / max_data_points as f64).ceil();
    let seconds = (values_per_point * series.step as f64) as i64;
    let nudge = seconds + series.start.rem_euclid(series.step) - series.start.rem_euclid(seconds);
    series.start += nudge;
    let lost = usize::try_from(nudge / series.step - 1).unwrap_or(0);
    if lost > series.values.len() {
        return Err(EvalError::Parameter(format!("series {} has less values than its range", series.name)));
    }
    series.values_mut().drain(..lost);
    series.values_per_point = values_per_point as usize;
    Ok(())
}
