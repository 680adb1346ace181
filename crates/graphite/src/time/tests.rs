//! Times and intervals, with the oddities of graphite-web.

use jiff::tz::TimeZone;

use super::{IntervalUnit, TimeError, interval_seconds, interval_unit, parse_time, request_range};

/// 2023-11-14 22:13:20 UTC, a Tuesday.
const NOW: i64 = 1_700_000_000;
const MIDNIGHT: i64 = NOW - NOW % 86_400;

#[track_caller]
fn check(text: &str, want: i64) {
    assert_eq!(parse_time(text, &TimeZone::UTC, NOW), Ok(want), "{text}");
}

#[test]
fn references() {
    check("now", NOW);
    check("", NOW);
    check("1700000001", NOW + 1);
    check("20231114", MIDNIGHT);
    check("midnight", MIDNIGHT);
    check("noon_yesterday", MIDNIGHT - 43_200);
    check("6am_today", MIDNIGHT + 6 * 3600);
    check("10pm", MIDNIGHT + 22 * 3600);
    check("12am", MIDNIGHT + 12 * 3600);
    check("12:10pm", MIDNIGHT + 600);
    check("23:10_20231113", MIDNIGHT - 3000);
    check("11/13/23", MIDNIGHT - 86_400);
    check("Nov 13", MIDNIGHT - 86_400);
    check("monday", MIDNIGHT - 86_400);
    check("wednesday", MIDNIGHT - 6 * 86_400);
    check("teatime", MIDNIGHT + 16 * 3600);
}

#[test]
fn offsets() {
    check("-1h30min", NOW - 5400);
    check("now+1d", NOW + 86_400);
    check("noon+1d", MIDNIGHT + 129_600);
    check("-1mon", NOW - 30 * 86_400);
    assert_eq!(interval_seconds("1w2d"), Ok(9 * 86_400));
    assert_eq!(interval_seconds("-5min"), Ok(-300));
    assert_eq!(interval_unit("monthly"), Ok(IntervalUnit::Months));
}

#[test]
fn refused() {
    for text in [
        "-1m",
        "-5",
        "1h",
        "-1.5h",
        "-1h-10min",
        "garbage",
        "25:00",
        "13/45/23",
        "nov",
        "99999999999999",
        "-99999999999999999999y",
    ] {
        assert!(parse_time(text, &TimeZone::UTC, NOW).is_err(), "{text}");
    }
    assert_eq!(request_range(Some("now"), Some("now"), &TimeZone::UTC, NOW), Err(TimeError::EmptyRange));
}

#[test]
fn days_are_those_of_the_zone_and_gaps_use_standard_time() {
    let zone = TimeZone::get("America/New_York").unwrap();
    assert_eq!(parse_time("midnight", &zone, NOW), Ok(MIDNIGHT + 5 * 3600));
    // 2023-03-12 02:30 does not exist; 2023-11-05 01:30 exists twice.
    assert_eq!(parse_time("02:30_20230312", &zone, NOW), Ok(1_678_606_200));
    assert_eq!(parse_time("01:30_20231105", &zone, NOW), Ok(1_699_165_800));
}

#[test]
fn a_reversed_range_is_swapped_and_the_default_is_a_day() {
    let range = request_range(Some("now"), Some("-1h"), &TimeZone::UTC, NOW).unwrap();
    assert_eq!((range.start.seconds, range.end.seconds), (NOW - 3600, NOW));
    let range = request_range(None, None, &TimeZone::UTC, NOW).unwrap();
    assert_eq!((range.start.seconds, range.end.seconds), (NOW - 86_400, NOW));
}
