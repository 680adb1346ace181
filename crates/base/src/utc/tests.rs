//! Dates within and beyond the years of jiff, and the strict grammar of RFC 3339.

use super::*;

#[test]
fn dates_go_on_beyond_the_years_of_jiff() {
    let shown = |ms: i64| rfc3339_seconds(ms);
    for (ms, want) in [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (1_709_164_800_000, "2024-02-29T00:00:00Z"),
        (1_435_781_451_781, "2015-07-01T20:10:51Z"),
        (-62_167_219_200_000, "0000-01-01T00:00:00Z"),
        (-62_167_219_201_000, "-001-12-31T23:59:59Z"),
        (253_402_300_799_000, "9999-12-31T23:59:59Z"),
        (253_402_300_800_000, "10000-01-01T00:00:00Z"),
        (-377_705_116_800_000, "-9999-01-01T00:00:00Z"),
        (-377_705_116_801_000, "-10000-12-31T23:59:59Z"),
        (i64::MIN, "-292275055-05-16T16:47:04Z"),
        (i64::MAX, "292278994-08-17T07:12:55Z"),
    ] {
        assert_eq!(shown(ms), want, "{ms}");
    }
    assert_eq!(rfc3339_ms(1_435_781_451_781), "2015-07-01T20:10:51.781Z");
    assert_eq!(rfc3339_ms(-1), "1969-12-31T23:59:59.999Z");
    assert_eq!(rfc3339_ms(i64::MAX), "292278994-08-17T07:12:55.807Z");
    assert_eq!(rfc3339_ns(1_435_781_451_000_000_000), "2015-07-01T20:10:51Z");
    assert_eq!(rfc3339_ns(1_435_781_451_781_000_000), "2015-07-01T20:10:51.781Z");
    assert_eq!(rfc3339_ns(-1), "1969-12-31T23:59:59.999999999Z");
    assert_eq!(UtcTime::of_ms(1_795_136_523_456).basic_format(), "20261120T010203Z");
    assert_eq!(UtcTime::of_ms(951_782_399_000).basic_format(), "20000228T235959Z");
    assert_eq!(UtcTime::of_ms(4_107_542_400_000).basic_format(), "21000301T000000Z");
}

/// Every field of the first and the last second of each day of a cycle follows from the day before.
#[test]
fn days_of_a_whole_cycle_follow_each_other() {
    let mut before = UtcTime::of_day(-CYCLE_DAYS - 1, 0);
    for day in -CYCLE_DAYS..CYCLE_DAYS {
        let at = UtcTime::of_day(day, SECONDS_PER_DAY - 1);
        assert_eq!([at.hour(), at.minute(), at.second()], [23, 59, 59]);
        assert_eq!(at.day_of_week(), (before.day_of_week() + 1) % 7, "{day}");
        let is_first_of_month = before.day_of_month() == before.days_in_month();
        let is_first_of_year = is_first_of_month && before.month() == 12;
        let want_month = if is_first_of_month { before.month() % 12 + 1 } else { before.month() };
        assert_eq!(at.month(), want_month, "{day}");
        assert_eq!(at.day_of_month(), if is_first_of_month { 1 } else { before.day_of_month() + 1 }, "{day}");
        assert_eq!(at.day_of_year(), if is_first_of_year { 1 } else { before.day_of_year() + 1 }, "{day}");
        assert_eq!(at.year(), before.year() + i64::from(is_first_of_year), "{day}");
        before = at;
    }
    assert_eq!((before.year(), before.month(), before.day_of_month()), (2369, 12, 31));
}

#[track_caller]
fn check_parsed(text: &str, want_ms: Option<i64>) {
    assert_eq!(parse_rfc3339_ms(text), want_ms, "{text:?}");
}

#[test]
fn rfc_3339_is_read_with_fraction_and_zone() {
    let ms = Some(1_435_781_451_781);
    for text in [
        "2015-07-01T20:10:51.781Z",
        "2015-07-01t20:10:51.781z",
        "2015-07-01T20:10:51.781999999999999Z",
        "2015-07-01T22:10:51.781+02:00",
        "2015-07-01T00:41:51.781-19:29",
    ] {
        check_parsed(text, ms);
    }
    check_parsed("2015-07-01T20:10:51.7Z", Some(1_435_781_451_700));
    check_parsed("1969-12-31T23:59:59.5Z", Some(-500));
    check_parsed("2024-02-29T00:00:00-00:00", Some(1_709_164_800_000));
    // Outside of the range of jiff's timestamps, which keeps a day free for offsets.
    check_parsed("9999-12-31T23:59:59.999Z", Some(253_402_300_799_999));
    check_parsed("9999-12-31T23:59:59-23:59", Some(253_402_387_139_000));
    check_parsed("0000-01-01T00:00:00+23:59", Some(-62_167_305_540_000));
}

/// jiff reads the Temporal grammar, which is wider than the grammar of Go's `time.RFC3339`.
#[test]
fn what_is_not_rfc_3339_is_refused() {
    for text in [
        "",
        "2015-07-01",
        "2015-07-01T20:10:51",
        "2015-07-01T20:10:51.",
        "2015-07-01T20:10:51.Z",
        "2015-07-01T20:10:51,5Z",
        "2015-07-01 20:10:51Z",
        "2015-07-01T20:10Z",
        "2015-07-01T20:10:60Z",
        "2015-07-01T24:00:00Z",
        "2015-07-01T20:60:00Z",
        "2015-02-30T00:00:00Z",
        "2015-13-01T00:00:00Z",
        "2015-00-01T00:00:00Z",
        "2015-07-00T00:00:00Z",
        "+002015-07-01T20:10:51Z",
        "-2015-07-01T20:10:51Z",
        "20150701T201051Z",
        "2015-7-01T20:10:51Z",
        "2015-07-01T20:10:51+0200",
        "2015-07-01T20:10:51+02",
        "2015-07-01T20:10:51+24:00",
        "2015-07-01T20:10:51+02:60",
        "2015-07-01T20:10:51+02:00:00",
        "2015-07-01T20:10:51Z[UTC]",
        "2015-07-01T20:10:51.5.5Z",
        " 2015-07-01T20:10:51Z",
        "2015-07-01T20:10:5\u{b2}Z",
    ] {
        check_parsed(text, None);
    }
}
