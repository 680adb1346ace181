//! Slices, the record of copied periods, and compared periods.

use super::*;

const HOUR_NS: i64 = 3_600_000_000_000;

fn period(first_ns: i64, last_ns: i64) -> Period {
    Period { first_ns, last_ns }
}

fn task(first_ns: i64, last_ns: i64, duration_ns: i64) -> Task {
    let target = PolicyName { database: "d".to_owned(), policy: "p".to_owned() };
    Task { target, measurement: "m".to_owned(), first_ns, last_ns, duration_ns }
}

#[test]
fn a_shard_group_is_cut_without_gaps() {
    let cut = |first, last| slices_of(period(first, last)).collect::<Vec<_>>();
    assert_eq!(cut(5, 9), [period(5, 9)]);
    let week = cut(-HOUR_NS, 7 * 24 * HOUR_NS - HOUR_NS - 1);
    assert_eq!((week.len(), week[0]), (7, period(-HOUR_NS, 23 * HOUR_NS - 1)));
    assert!(week.windows(2).all(|pair| pair[0].last_ns + 1 == pair[1].first_ns));
    let end = i64::MAX - 1;
    assert_eq!(cut(end - 3, end), [period(end - 3, end)]);
}

#[test]
fn the_record_merges_adjacent_periods() {
    let mut state = CopyState::default();
    state.add("m", period(10, 19));
    state.add("m", period(30, 39));
    assert!(!state.contains("m", period(10, 39)) && !state.contains("n", period(10, 19)));
    state.add("m", period(20, 29));
    assert_eq!(state.copied["m"], [(10, 39)]);
    assert!(state.contains("m", period(12, 38)));
}

#[test]
fn only_what_is_kept_and_stands_still_is_compared() {
    let all = Period::ALL;
    let day = 24 * HOUR_NS;
    let past = task(0, day - 1, 0);
    assert_eq!(past.comparable(5 * day, all), Some(past.slice()));
    assert_eq!(past.comparable(HOUR_NS, all), Some(period(0, HOUR_NS)), "points arrive in it");
    assert_eq!(past.comparable(-HOUR_NS, all), Some(past.slice()), "points in the future stand still");
    let expiring = task(0, day - 1, day);
    assert_eq!(expiring.kept(day + HOUR_NS, all), Some(period(HOUR_NS, day - 1)));
    let compared = expiring.comparable(day + HOUR_NS, all);
    assert_eq!(compared, Some(period(HOUR_NS + EXPIRY_SLACK_NS, day - 1)));
    assert_eq!(expiring.kept(5 * day, all), None);
    assert_eq!(past.kept(5 * day, period(7, 8)), Some(period(7, 8)));
}
