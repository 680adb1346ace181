//! Values per interval: `summarize`, `smartSummarize`, `hitcount`.
//!
//! Invariants: intervals are positive; a bucket needs as many values as the xFilesFactor of its series
//! asks for.
//! Not here: consolidation to the points of a request (`consolidation`, `output`).

use jiff::civil::{Date, DateTime};

use super::combine::is_enough;
use super::function::{Function, Group};
use super::signature::{SERIES_LIST, function, optional, required, with_bool, with_text};
use crate::absent::ABSENT;
use crate::aggregation::{Aggregation, sum_in_order};
use crate::error::EvalError;
use crate::parameters::{Bound, ParameterType, Toggle};
use crate::scope::Scope;
use crate::series::Series;
use crate::time::{IntervalUnit, Moment, interval_seconds, interval_unit};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    function(
        "summarize",
        Group::Transform,
        &[
            SERIES_LIST,
            required("intervalString", ParameterType::Interval),
            with_text("func", ParameterType::AggFunc, "sum"),
            with_bool("alignToFrom", false),
        ],
        summarize,
        "Aggregates values per interval.",
    ),
    function(
        "smartSummarize",
        Group::Transform,
        &[
            SERIES_LIST,
            required("intervalString", ParameterType::Interval),
            with_text("func", ParameterType::AggFunc, "sum"),
            optional("alignTo", ParameterType::Text),
        ],
        smart_summarize,
        "Aggregates values per interval, from the start of a unit of time on.",
    ),
    function(
        "hitcount",
        Group::Transform,
        &[
            SERIES_LIST,
            required("intervalString", ParameterType::Interval),
            with_bool("alignToInterval", false),
        ],
        hitcount,
        "Sum of values times seconds, per interval.",
    ),
];

/// Buckets of one series.
const BUCKETS_MAX: i64 = 10_000_000;

fn positive_interval(text: &str) -> Result<i64, EvalError> {
    let seconds = interval_seconds(text)?;
    if seconds > 0 {
        Ok(seconds)
    } else {
        Err(EvalError::Parameter(format!("interval '{text}' is not positive")))
    }
}

/// Number of intervals in `[start, end)`.
/// # Errors
/// [`EvalError::Limit`] if there are more than [`BUCKETS_MAX`].
fn bucket_count(interval: i64, start: i64, end: i64) -> Result<u64, EvalError> {
    let found = (end - start).max(0).unsigned_abs().div_ceil(interval.max(1).unsigned_abs());
    let limit = BUCKETS_MAX.unsigned_abs();
    if found > limit {
        return Err(EvalError::Limit { what: "buckets of one series", found, limit });
    }
    Ok(found)
}

/// Bytes of a bucket with the parts of one value.
const BUCKET_BYTES: u64 = 72;
/// Bytes of each further part of a bucket.
const PART_BYTES: u64 = 16;

/// Aggregates values per `interval` in `[start, end)`; returns them and the end of the last bucket.
pub(super) fn summarized(
    series: &Series,
    aggregation: Aggregation,
    interval: i64,
    start: i64,
    end: i64,
) -> Result<(Vec<f64>, i64), EvalError> {
    if series.step <= 0 || interval <= 0 {
        return Err(EvalError::Parameter(format!(
            "interval {interval} and step {} must be positive",
            series.step
        )));
    }
    let bucket_count = bucket_count(interval, start, end)?;
    let values = &series.values;
    let time_count =
        usize::try_from((series.end - series.start).max(0).saturating_add(series.step - 1) / series.step)
            .unwrap_or(0);
    let len = values.len().min(time_count);
    let time_of = |idx: usize| series.start + i64::try_from(idx).unwrap_or(i64::MAX) * series.step;
    let points_per_bucket = interval as f64 / series.step as f64;
    let mut results = Vec::with_capacity(usize::try_from(bucket_count).unwrap_or(0));
    let mut idx = 0;
    let mut bucket = start;
    while bucket < end {
        let mut first = idx;
        let mut present = 0;
        while idx < len && time_of(idx) < bucket + interval {
            if time_of(idx) <= bucket {
                first = idx;
            }
            present +=
                usize::from(time_of(idx) >= bucket && values.get(idx).is_some_and(|value| !value.is_nan()));
            idx += 1;
        }
        let is_kept = is_enough(present, points_per_bucket, series.x_files_factor);
        results.push(if is_kept { aggregation.apply(values.get(first..idx).unwrap_or(&[])) } else { ABSENT });
        bucket += interval;
    }
    assert_eq!(results.len() as u64, bucket_count, "buckets are reserved before they are filled");
    Ok((results, bucket))
}

fn summarize(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let list = args.take_series(0)?;
    let text = args.text(1)?;
    let name = args.text_or(2, "sum")?;
    let is_aligned = args.is_set_or(3, Toggle::Off);
    let interval = positive_interval(text)?;
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        let aggregation = Aggregation::named(name)?;
        let (start, mut end) = if is_aligned {
            (series.start, series.end)
        } else {
            (
                series.start - series.start.rem_euclid(interval),
                series.end - series.end.rem_euclid(interval) + interval,
            )
        };
        scope.shared.budget.reserve_points(bucket_count(interval, start, end)?)?;
        let (values, aligned_end) = summarized(&series, aggregation, interval, start, end)?;
        if is_aligned {
            end = aligned_end;
        }
        series.tag("summarize", text);
        series.tag("summarizeFunction", name);
        let suffix = if is_aligned { ", true" } else { "" };
        let mut result =
            series.derived(format!("summarize({}, \"{text}\", \"{name}\"{suffix})", series.name), values);
        (result.start, result.end, result.step) = (start, end, interval);
        results.push(result);
    }
    Ok(Value::Series(results))
}

/// The wall clock of `moment`, changed by `change`, with the offset that the moment has.
fn with_wall_clock(moment: Moment, change: impl Fn(DateTime) -> Option<DateTime>) -> Option<Moment> {
    let wall = jiff::Timestamp::from_second(moment.wall_seconds()).ok()?;
    let changed = change(jiff::tz::TimeZone::UTC.to_datetime(wall))?;
    let seconds = jiff::tz::TimeZone::UTC.to_timestamp(changed).ok()?.as_second();
    Some(Moment { seconds: seconds - i64::from(moment.offset), offset: moment.offset })
}

fn midnight(date: Date) -> DateTime {
    date.at(0, 0, 0, 0)
}

/// The start of the unit that `moment` lies in; weeks begin on the day that a digit at the end names, 1
/// is Monday.
fn start_of_unit(moment: Moment, text: &str) -> Result<Moment, EvalError> {
    let unit = interval_unit(text)?;
    let first_day = text.chars().last().and_then(|c| c.to_digit(10)).map_or(1, |digit| digit as i8);
    let moved = with_wall_clock(moment, |wall| {
        let date = wall.date();
        Some(match unit {
            IntervalUnit::Years => midnight(date.first_of_year()),
            IntervalUnit::Months => midnight(date.first_of_month()),
            IntervalUnit::Weeks => {
                let mut back = date.weekday().to_monday_one_offset() - first_day;
                if back < 0 {
                    back += 7;
                }
                midnight(date.checked_sub(jiff::Span::new().days(i64::from(back))).ok()?)
            }
            IntervalUnit::Days => midnight(date),
            IntervalUnit::Hours => date.at(wall.hour(), 0, 0, 0),
            IntervalUnit::Minutes => date.at(wall.hour(), wall.minute(), 0, 0),
            IntervalUnit::Seconds => wall,
        })
    });
    moved.ok_or_else(|| EvalError::Parameter(format!("cannot align the range to {text}")))
}

fn smart_summarize(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let text = args.text(1)?;
    let name = args.text_or(2, "sum")?;
    match args.given(3) {
        None | Some(Value::Bool(_)) => {}
        Some(Value::Text(unit)) => list = scope.reevaluate(start_of_unit(scope.start, unit)?, scope.end)?,
        Some(_) => return Err(EvalError::of_function("smartSummarize", "alignTo must be a unit of time")),
    }
    let interval = positive_interval(text)?;
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        let aggregation = Aggregation::named(name)?;
        scope.shared.budget.reserve_points(bucket_count(interval, series.start, series.end)?)?;
        let (values, end) = summarized(&series, aggregation, interval, series.start, series.end)?;
        series.tag("smartSummarize", text);
        series.tag("smartSummarizeFunction", name);
        let mut result =
            series.derived(format!("smartSummarize({}, \"{text}\", \"{name}\")", series.name), values);
        (result.end, result.step) = (end, interval);
        results.push(result);
    }
    Ok(Value::Series(results))
}

const DAY: i64 = 86_400;
const HOUR: i64 = 3600;
const MINUTE: i64 = 60;

/// The start of the day, hour or minute of the range, by the size of the interval.
fn aligned_start(start: Moment, interval: i64) -> Result<Moment, EvalError> {
    let unit = match interval {
        DAY.. => "d",
        HOUR.. => "h",
        MINUTE.. => "min",
        _ => return Ok(start),
    };
    start_of_unit(start, unit)
}

/// Hits of each bucket, as parts in order of time.
fn hits(series: &Series, interval: i64, bucket_count: usize, first: i64) -> Result<Vec<Vec<f64>>, EvalError> {
    let outside = || EvalError::of_function("hitcount", "a value lies outside of the range of its series");
    let mut buckets = vec![Vec::new(); bucket_count];
    let mut add = |idx: i64, hits: f64| {
        let bucket = usize::try_from(idx).ok().and_then(|idx| buckets.get_mut(idx)).ok_or_else(outside)?;
        bucket.push(hits);
        Ok::<(), EvalError>(())
    };
    let last = i64::try_from(bucket_count).unwrap_or(0) - 1;
    let mut time = series.start;
    for value in series.values.iter() {
        let start = (time - first).div_euclid(interval);
        let start_rest = (time - first).rem_euclid(interval);
        time += series.step;
        let mut end = (time - first).div_euclid(interval);
        let mut end_rest = (time - first).rem_euclid(interval);
        if value.is_nan() {
            continue;
        }
        if end > last {
            (end, end_rest) = (last, interval);
        }
        if start == end {
            add(start, value * (end_rest - start_rest) as f64)?;
            continue;
        }
        add(start, value * (interval - start_rest) as f64)?;
        for between in start + 1..end {
            add(between, value * interval as f64)?;
        }
        if end_rest > 0 {
            add(end, value * end_rest as f64)?;
        }
    }
    Ok(buckets)
}

fn hitcount(scope: &mut Scope<'_>, args: &mut Bound) -> Result<Value, EvalError> {
    let mut list = args.take_series(0)?;
    let text = args.text(1)?;
    let interval = positive_interval(text)?;
    let is_aligned = args.is_set_or(2, Toggle::Off);
    if is_aligned {
        list = scope.reevaluate(aligned_start(scope.start, interval)?, scope.end)?;
        for series in &mut list {
            series.end =
                series.start + (series.end - series.start).div_euclid(interval) * interval + interval;
        }
    }
    let mut results = Vec::with_capacity(list.len());
    for mut series in list {
        let bucket_count = (series.end - series.start + interval - 1).div_euclid(interval).max(0);
        if bucket_count > BUCKETS_MAX {
            return Err(EvalError::Limit {
                what: "buckets of one series",
                found: bucket_count.unsigned_abs(),
                limit: BUCKETS_MAX.unsigned_abs(),
            });
        }
        scope.shared.budget.reserve_points(bucket_count.unsigned_abs())?;
        let used_bytes = scope.shared.budget.used_bytes();
        let part_bytes = series.values.len() as u64 * PART_BYTES;
        scope.shared.budget.reserve_bytes(bucket_count.unsigned_abs() * BUCKET_BYTES + part_bytes)?;
        let start = series.end - bucket_count * interval;
        let buckets = hits(&series, interval, usize::try_from(bucket_count).unwrap_or(0), start)?;
        // Not collected in place, which would keep the memory of the buckets.
        let mut values = Vec::with_capacity(buckets.len());
        values.extend(
            buckets
                .into_iter()
                .map(|bucket| if bucket.is_empty() { ABSENT } else { sum_in_order(bucket.into_iter()) }),
        );
        series.tag("hitcount", text);
        let suffix = if is_aligned { ", true" } else { "" };
        let mut result = series.derived(format!("hitcount({}, \"{text}\"{suffix})", series.name), values);
        scope.shared.budget.release_to(used_bytes);
        (result.start, result.step) = (start, interval);
        results.push(result);
    }
    Ok(Value::Series(results))
}
