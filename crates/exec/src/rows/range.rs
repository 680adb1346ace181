//! Times that a plan reads: its range, and one window more for calls that need the result before the first
//! one. A bound over all plans of a query keeps nested transformations from reading more of them.
//!
//! Invariant: a plan with an empty range reads nothing, whatever its calls need.

use chronolith_model::TimeRange;

use super::plan::{Call, Function, Input, OPEN_END, OPEN_START, Order, RowPlan, Transform};

/// Times that a call reads. Each transformation that looks at the point before it adds one window.
pub(crate) fn range_of_call(plan: &RowPlan, call: &Call) -> TimeRange {
    let mut range = plan.range;
    let Some(windows) = plan.windows.as_ref().filter(|_| !range.is_empty()) else { return range };
    let mut next = Some(call);
    while let Some(call) = next {
        if let Function::Transform(transform) = &call.function
            && !matches!(transform, Transform::CumulativeSum | Transform::HoltWinters(_))
        {
            match plan.order {
                Order::Ascending if range.start > OPEN_START => {
                    range.start = range.start.saturating_sub(windows.width).max(OPEN_START);
                }
                Order::Descending if range.end < OPEN_END => {
                    range.end = range.end.saturating_add(windows.width);
                }
                _ => {}
            }
        }
        next = match &call.input {
            Input::Points(_) => None,
            Input::Call(inner) => Some(inner),
        };
    }
    range
}

/// Ranges that the calls of a plan read, each once; of a plan without calls its own range.
pub(crate) fn ranges_of_calls(plan: &RowPlan) -> Vec<TimeRange> {
    let mut ranges: Vec<TimeRange> = Vec::new();
    for call in &plan.calls {
        let range = range_of_call(plan, call);
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    if ranges.is_empty() { vec![plan.range] } else { ranges }
}

/// Times for which a query reads series, its subqueries included: the range of its outermost plan, and before
/// it the windows of the call that needs most. As in InfluxDB, calls within calls do not add up.
pub(crate) fn readable_range(outermost: &RowPlan) -> TimeRange {
    let mut range = outermost.range;
    let Some(windows) = outermost.windows.as_ref().filter(|_| !range.is_empty()) else { return range };
    let count = outermost.calls.iter().map(windows_before).max().unwrap_or(0);
    let width = windows.width.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
    match outermost.order {
        Order::Ascending => range.start = range.start.saturating_sub(width).max(OPEN_START),
        Order::Descending => range.end = range.end.saturating_add(width),
    }
    range
}

/// Windows that a call or one within it needs before the first one.
fn windows_before(call: &Call) -> usize {
    let own = match &call.function {
        Function::Transform(
            Transform::Derivative { .. } | Transform::Difference { .. } | Transform::Elapsed { .. },
        ) => 1,
        Function::Transform(Transform::MovingAverage { count }) => *count,
        Function::Transform(Transform::Indicator(indicator)) => indicator.period,
        _ => 0,
    };
    match &call.input {
        Input::Points(_) => own,
        Input::Call(inner) => own.max(windows_before(inner)),
    }
}

/// Times that both ranges contain.
pub(crate) fn intersection(a: TimeRange, b: TimeRange) -> TimeRange {
    TimeRange::new(a.start.max(b.start), a.end.min(b.end))
}

/// Times that any part of a plan reads.
pub(crate) fn range_of_plan(plan: &RowPlan) -> TimeRange {
    let ranges = plan.calls.iter().map(|call| range_of_call(plan, call));
    ranges.fold(plan.range, |all, range| TimeRange::new(all.start.min(range.start), all.end.max(range.end)))
}
