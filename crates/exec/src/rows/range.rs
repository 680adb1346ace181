//! Times that a plan reads: its range, and one window more for calls that need the result before the first
//! one.

use chronolith_model::TimeRange;

use super::plan::{Call, Function, Input, OPEN_END, OPEN_START, Order, RowPlan, Transform};

/// Times that a call reads. Each transformation that looks at the point before it adds one window.
pub(crate) fn range_of_call(plan: &RowPlan, call: &Call) -> TimeRange {
    let mut range = plan.range;
    let Some(windows) = &plan.windows else { return range };
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

/// Times that any part of a plan reads.
pub(crate) fn range_of_plan(plan: &RowPlan) -> TimeRange {
    let ranges = plan.calls.iter().map(|call| range_of_call(plan, call));
    ranges.fold(plan.range, |all, range| TimeRange::new(all.start.min(range.start), all.end.max(range.end)))
}
