//! Types that have a text of their own: Go's `Stringer`.

use super::super::value::{ElementType, Field, IntType, Time, UintType, Value};
use super::super::value::{SECOND_NANOS, YEAR_ONE_SECONDS, duration_text, month_name, weekday_name};

/// Returns the text of a value that prints itself, or of the value that a pointer leads to.
pub(in crate::template) fn stringer(value: &Value) -> Option<String> {
    match value {
        Value::Pointer(target) => match target.as_ref() {
            Value::Histogram(histogram) => Some(histogram.to_string()),
            Value::Pointer(_) => None,
            target => stringer(target),
        },
        Value::Time(time) => Some(time.text()),
        Value::Int(IntType::Duration, nanos) => Some(duration_text(*nanos)),
        Value::Int(IntType::Month, month) => Some(month_name(*month)),
        Value::Int(IntType::Weekday, weekday) => Some(weekday_name(*weekday)),
        _ => None,
    }
}

/// Fields of a time, for verbs that its text does not suit.
pub(super) fn time_fields(time: Time) -> Vec<Field> {
    let nanosecond = Value::Uint(UintType::Uint64, time.nanosecond().unsigned_abs());
    let seconds = time.unix(SECOND_NANOS).saturating_add(YEAR_ONE_SECONDS);
    let field = |name, value| Field { name, element: ElementType::Other, value };
    vec![
        field("wall", nanosecond),
        field("ext", Value::Int(IntType::Int64, seconds)),
        field("loc", Value::NilPointer("*time.Location")),
    ]
}
