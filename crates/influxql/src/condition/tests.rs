//! Tests of conditions: tables with bounds and rest, as InfluxDB 1.8.10's own code splits them. Exceptions:
//! bounds saturate instead of wrapping, and floats print all the digits that they need.

use crate::fold::FoldContext;
use crate::parse_expr;
use crate::time::{TIME_MAX_NS, TIME_MIN_NS, zone_named};

use super::split_condition;

const NOW_NS: i64 = 1_600_000_000_123_456_789;

fn render(text: &str, context: &FoldContext) -> String {
    let expr = match parse_expr(text) {
        Ok(expr) => expr,
        Err(error) => return format!("error: {error}"),
    };
    match split_condition(Some(&expr), context) {
        Err(error) => format!("error: {error}"),
        Ok(split) => {
            let [min, max] =
                [split.bounds.min_ns.unwrap_or(TIME_MIN_NS), split.bounds.max_ns.unwrap_or(TIME_MAX_NS)];
            let rest = split.rest.map_or(String::new(), |rest| rest.to_string());
            format!("{min} {max} {rest}").trim_end().to_owned()
        }
    }
}

#[track_caller]
fn check(table: &str, zone: &str) {
    let context = FoldContext { now_ns: Some(NOW_NS), zone: zone_named(zone).unwrap(), computes_math: false };
    let lines: Vec<&str> = table.lines().collect();
    let different: Vec<String> = lines
        .chunks(2)
        .filter(|pair| render(pair[0], &context) != pair[1].trim_start())
        .map(|pair| format!("{}\n  want {}\n  got  {}", pair[0], pair[1], render(pair[0], &context)))
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(lines.len() >= 300, "{} lines", lines.len());
}

#[test]
fn conditions_split_into_bounds_and_rest() {
    check(include_str!("tests/utc.txt"), "UTC");
}

#[test]
fn times_without_offset_are_those_of_the_zone() {
    check(include_str!("tests/berlin.txt"), "Europe/Berlin");
}

#[test]
fn no_condition_has_no_bounds() {
    let split = split_condition(None, &FoldContext::timeless()).unwrap();
    assert_eq!(split, super::Condition::default());
    assert_eq!(split.bounds.range(), chronolith_model::TimeRange::inclusive(TIME_MIN_NS, TIME_MAX_NS));
}
