//! Methods of times, durations, months, days of the week and histograms.

use super::super::format::stringer;
use super::super::functions::{Failure, Param};
use super::super::value::{IntType, SECOND_NANOS, Time, Value};

/// A method of a type.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) params: &'static [Param],
    pub(super) result_count: usize,
}

const DURATION: Param = Param::Int(IntType::Duration);
const INT: Param = Param::Int(IntType::Int);
const MINUTE_SECONDS: f64 = 60.0;
const HOUR_SECONDS: f64 = 3600.0;

const TIME_METHODS: [(&str, &[Param], usize); 31] = [
    ("Add", &[DURATION], 1),
    ("AddDate", &[INT, INT, INT], 1),
    ("After", &[Param::Time], 1),
    ("Before", &[Param::Time], 1),
    ("Clock", &[], 3),
    ("Compare", &[Param::Time], 1),
    ("Date", &[], 3),
    ("Day", &[], 1),
    ("Equal", &[Param::Time], 1),
    ("Format", &[Param::Text], 1),
    ("GoString", &[], 1),
    ("Hour", &[], 1),
    ("IsDST", &[], 1),
    ("IsZero", &[], 1),
    ("Local", &[], 1),
    ("Minute", &[], 1),
    ("Month", &[], 1),
    ("Nanosecond", &[], 1),
    ("Round", &[DURATION], 1),
    ("Second", &[], 1),
    ("String", &[], 1),
    ("Sub", &[Param::Time], 1),
    ("Truncate", &[DURATION], 1),
    ("UTC", &[], 1),
    ("Unix", &[], 1),
    ("UnixMicro", &[], 1),
    ("UnixMilli", &[], 1),
    ("UnixNano", &[], 1),
    ("Weekday", &[], 1),
    ("Year", &[], 1),
    ("YearDay", &[], 1),
];
const DURATION_METHODS: [(&str, &[Param], usize); 10] = [
    ("Abs", &[], 1),
    ("Hours", &[], 1),
    ("Microseconds", &[], 1),
    ("Milliseconds", &[], 1),
    ("Minutes", &[], 1),
    ("Nanoseconds", &[], 1),
    ("Round", &[DURATION], 1),
    ("Seconds", &[], 1),
    ("String", &[], 1),
    ("Truncate", &[DURATION], 1),
];
const NAME_METHODS: [(&str, &[Param], usize); 1] = [("String", &[], 1)];

impl Method {
    /// Returns the method `name` of the type of `receiver`.
    pub(super) fn find(receiver: &Value, name: &str) -> Option<Method> {
        let methods: &[(&'static str, &'static [Param], usize)] = match receiver {
            Value::Time(_) => &TIME_METHODS,
            Value::Int(IntType::Duration, _) => &DURATION_METHODS,
            Value::Int(IntType::Month | IntType::Weekday, _) | Value::Histogram(_) => &NAME_METHODS,
            _ => return None,
        };
        let (name, params, result_count) = *methods.iter().find(|(known, ..)| *known == name)?;
        Some(Method { name, params, result_count })
    }

    pub(super) fn run(&self, receiver: &Value, arguments: &[Value]) -> Result<Value, Failure> {
        match receiver {
            Value::Time(time) => Ok(self.of_time(*time, arguments)),
            Value::Int(IntType::Duration, nanos) => Ok(self.of_duration(*nanos, arguments)),
            Value::Histogram(histogram) => Ok(Value::text(histogram.to_string())),
            receiver => Ok(Value::text(stringer(receiver).unwrap_or_default())),
        }
    }

    fn of_time(&self, time: Time, arguments: &[Value]) -> Value {
        let calendar = time.calendar();
        let argument = arguments.first();
        let nanos = argument.map_or(0, int_of);
        let other = match argument {
            Some(Value::Time(other)) => *other,
            _ => time,
        };
        match self.name {
            "Add" => Value::Time(time.plus(nanos)),
            "AddDate" => {
                let parts: Vec<i64> = arguments.iter().map(int_of).collect();
                Value::Time(time.plus_date(&parts))
            }
            "After" => Value::Bool(time > other),
            "Before" => Value::Bool(time < other),
            "Compare" => Value::int(time.cmp(&other) as i64),
            "Day" => Value::int(calendar.day_of_month()),
            "Equal" => Value::Bool(time == other),
            "Format" => match argument {
                Some(Value::Text(layout)) => Value::text(time.format(&String::from_utf8_lossy(layout))),
                _ => Value::text(""),
            },
            "GoString" => Value::text(time.go_text()),
            "Hour" => Value::int(calendar.hour()),
            "IsDST" => Value::Bool(false),
            "IsZero" => Value::Bool(time.is_year_one()),
            "Local" | "UTC" => Value::Time(time),
            "Minute" => Value::int(calendar.minute()),
            "Month" => Value::Int(IntType::Month, calendar.month()),
            "Nanosecond" => Value::int(time.nanosecond()),
            "Round" => Value::Time(time.rounded(nanos, true)),
            "Second" => Value::int(calendar.second()),
            "Sub" => Value::Int(IntType::Duration, time.since(other)),
            "Truncate" => Value::Time(time.rounded(nanos, false)),
            "Unix" => Value::Int(IntType::Int64, time.unix(SECOND_NANOS)),
            "UnixMicro" => Value::Int(IntType::Int64, time.unix(1_000)),
            "UnixMilli" => Value::Int(IntType::Int64, time.unix(1_000_000)),
            "UnixNano" => Value::Int(IntType::Int64, time.unix(1)),
            "Weekday" => Value::Int(IntType::Weekday, calendar.day_of_week()),
            "Year" => Value::int(calendar.year()),
            "YearDay" => Value::int(calendar.day_of_year()),
            _ => Value::text(time.text()),
        }
    }

    fn of_duration(&self, nanos: i64, arguments: &[Value]) -> Value {
        let unit = arguments.first().map_or(0, int_of);
        let duration = |nanos| Value::Int(IntType::Duration, nanos);
        let count = |unit_nanos: i64| Value::Int(IntType::Int64, nanos / unit_nanos);
        match self.name {
            "Abs" => duration(nanos.saturating_abs()),
            "Hours" => Value::Float(in_units(nanos, HOUR_SECONDS)),
            "Microseconds" => count(1_000),
            "Milliseconds" => count(1_000_000),
            "Minutes" => Value::Float(in_units(nanos, MINUTE_SECONDS)),
            "Nanoseconds" => count(1),
            "Round" => duration(rounded(nanos, unit)),
            "Seconds" => Value::Float(in_units(nanos, 1.0)),
            "Truncate" if unit > 0 => duration(nanos - nanos % unit),
            "Truncate" => duration(nanos),
            _ => Value::text(stringer(&duration(nanos)).unwrap_or_default()),
        }
    }
}

fn int_of(value: &Value) -> i64 {
    match value {
        Value::Int(_, value) => *value,
        _ => 0,
    }
}

/// Whole units and the fraction, added as Go adds them.
fn in_units(nanos: i64, unit_seconds: f64) -> f64 {
    let unit_nanos = unit_seconds as i64 * SECOND_NANOS;
    (nanos / unit_nanos) as f64 + (nanos % unit_nanos) as f64 / unit_nanos as f64
}

/// Nearest multiple of `unit`; halves are rounded away from zero.
fn rounded(nanos: i64, unit: i64) -> i64 {
    if unit <= 0 {
        return nanos;
    }
    let rest = nanos % unit;
    let half_is_passed = rest.unsigned_abs().saturating_mul(2) >= unit.unsigned_abs();
    let down = nanos - rest;
    match (half_is_passed, nanos < 0) {
        (false, _) => down,
        (true, false) => down.saturating_add(unit),
        (true, true) => down.saturating_sub(unit),
    }
}
