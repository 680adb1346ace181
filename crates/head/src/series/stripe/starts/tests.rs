//! The function returns for each timestamp the start that was set last, in whatever order.

use std::collections::BTreeMap;

use chronolith_base::Rng;
use chronolith_format::chunk::starts::{StartRun, start_at};
use chronolith_model::TimeRange;

use super::StartTimestamps;

fn runs_of(starts: &StartTimestamps) -> Vec<StartRun> {
    let mut out = Vec::new();
    starts.runs(&mut out);
    assert_eq!(out.len(), starts.run_count());
    assert!(out.is_sorted_by(|a, b| a.time < b.time));
    out
}

/// Against a map: timestamps in any order, starts of several kinds of senders, trimmed and restored
/// meanwhile.
#[test]
fn start_timestamps_match_a_map() {
    let rng = Rng::from_seed(11);
    for round in 0..40 {
        let mut starts = StartTimestamps::new(i64::MIN);
        let mut want: BTreeMap<i64, i64> = BTreeMap::new();
        let ooo_of = [0, 10, 2][round % 3];
        let mut now = 0i64;
        for step in 0..2000i64 {
            now += 1 + rng.below(3) as i64;
            let is_out_of_order = ooo_of > 0 && rng.below(ooo_of) == 0;
            let time = if is_out_of_order { now - rng.below(now as u64) as i64 } else { now };
            let start_ms = match round % 4 {
                0 => time - 7,
                1 => 1 + step / 500,
                2 => rng.below(3) as i64,
                _ => i64::from(is_out_of_order),
            };
            starts.set(time, start_ms);
            want.insert(time, start_ms);
            assert_eq!(starts.at(time), start_ms);
            if rng.below(500) == 0 {
                starts = StartTimestamps::restored(&runs_of(&starts), now);
            }
        }
        let runs = runs_of(&starts);
        for (&time, &start_ms) in &want {
            assert_eq!((starts.at(time), start_at(&runs, time)), (start_ms, start_ms), "at {time}");
        }
        let from = rng.below(now as u64) as i64;
        let range = TimeRange { start: from, end: from + 300 };
        let mut part = Vec::new();
        starts.copy(range, &mut part);
        want.range(from..from + 300).for_each(|(&time, &start)| assert_eq!(start_at(&part, time), start));
        starts.trim(from);
        want.range(from..).for_each(|(&time, &start)| assert_eq!(starts.at(time), start));
    }
}

#[test]
fn a_counter_has_one_run_and_each_delta_sample_few_bytes() {
    let (mut counter, mut deltas) = (StartTimestamps::new(i64::MIN), StartTimestamps::new(i64::MIN));
    for i in 1..=10_000i64 {
        counter.set(i * 15_000, 5);
        deltas.set(i * 15_000, (i - 1) * 15_000);
    }
    // The first one counts from 0, which is "unknown".
    assert_eq!((counter.run_count(), deltas.run_count()), (1, 9_999));
    assert!(deltas.heap_bytes() < 10_000 * 3, "{}", deltas.heap_bytes());
    assert!(counter.trim(1_000_000) && deltas.trim(9_000 * 15_000));
    assert!(deltas.run_count() < 1_200, "{}", deltas.run_count());
}

/// A start that is set for one timestamp does not affect its neighbours.
#[test]
fn existing_samples_keep_their_start_times() {
    let mut starts = StartTimestamps::new(100);
    starts.set(50, 7);
    assert_eq!([49, 50, 51, 100].map(|time| starts.at(time)), [0, 7, 0, 0]);
    starts.set(101, 8);
    starts.set(99, 8);
    starts.set(51, 7);
    assert_eq!([50, 51, 52, 99, 100, 101, 500].map(|time| starts.at(time)), [7, 7, 0, 8, 0, 8, 8]);
    // Replaced at the newest timestamp, then the next millisecond.
    starts.set(101, 9);
    starts.set(102, 5);
    assert_eq!([101, 102, 500].map(|time| starts.at(time)), [9, 5, 5]);
    assert!(!StartTimestamps::new(3).trim(0), "nothing is known");
}
