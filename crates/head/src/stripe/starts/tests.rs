//! Tracks say of each time that was set what was set last, in whatever order.

use std::collections::BTreeMap;

use chronolith_base::Rng;
use chronolith_format::starts::{StartRun, start_at};
use chronolith_model::TimeRange;

use super::StartTrack;

fn runs_of(track: &StartTrack) -> Vec<StartRun> {
    let mut out = Vec::new();
    track.runs(&mut out);
    assert_eq!(out.len(), track.run_count());
    assert!(out.is_sorted_by(|a, b| a.time < b.time));
    out
}

/// Against a map: times in any order, starts of several kinds of senders, cut and restored meanwhile.
#[test]
fn a_track_says_what_a_map_would() {
    let rng = Rng::from_seed(11);
    for round in 0..40 {
        let mut track = StartTrack::new(i64::MIN);
        let mut want: BTreeMap<i64, i64> = BTreeMap::new();
        let late_of = [0, 10, 2][round % 3];
        let mut now = 0i64;
        for step in 0..2000i64 {
            now += 1 + rng.below(3) as i64;
            let is_late = late_of > 0 && rng.below(late_of) == 0;
            let time = if is_late { now - rng.below(now as u64) as i64 } else { now };
            let start_ms = match round % 4 {
                0 => time - 7,
                1 => 1 + step / 500,
                2 => rng.below(3) as i64,
                _ => i64::from(is_late),
            };
            track.set(time, start_ms);
            want.insert(time, start_ms);
            assert_eq!(track.at(time), start_ms);
            if rng.below(500) == 0 {
                track = StartTrack::restored(&runs_of(&track), now);
            }
        }
        let runs = runs_of(&track);
        for (&time, &start_ms) in &want {
            assert_eq!((track.at(time), start_at(&runs, time)), (start_ms, start_ms), "at {time}");
        }
        let from = rng.below(now as u64) as i64;
        let range = TimeRange { start: from, end: from + 300 };
        let mut part = Vec::new();
        track.copy(range, &mut part);
        want.range(from..from + 300).for_each(|(&time, &start)| assert_eq!(start_at(&part, time), start));
        track.trim(from);
        want.range(from..).for_each(|(&time, &start)| assert_eq!(track.at(time), start));
    }
}

#[test]
fn a_counter_has_one_run_and_each_sample_of_deltas_few_bytes() {
    let (mut counter, mut deltas) = (StartTrack::new(i64::MIN), StartTrack::new(i64::MIN));
    for i in 1..=10_000i64 {
        counter.set(i * 15_000, 5);
        deltas.set(i * 15_000, (i - 1) * 15_000);
    }
    // The first one counts from 0, which is "nobody knows".
    assert_eq!((counter.run_count(), deltas.run_count()), (1, 9_999));
    assert!(deltas.heap_bytes() < 10_000 * 3, "{}", deltas.heap_bytes());
    assert!(counter.trim(1_000_000) && deltas.trim(9_000 * 15_000));
    assert!(deltas.run_count() < 1_200, "{}", deltas.run_count());
}

/// What is set of a time alone says nothing of its neighbours.
#[test]
fn samples_that_were_there_keep_what_was_said() {
    let mut track = StartTrack::new(100);
    track.set(50, 7);
    assert_eq!([49, 50, 51, 100].map(|time| track.at(time)), [0, 7, 0, 0]);
    track.set(101, 8);
    track.set(99, 8);
    track.set(51, 7);
    assert_eq!([50, 51, 52, 99, 100, 101, 500].map(|time| track.at(time)), [7, 7, 0, 8, 0, 8, 8]);
    // Replaced at the newest time, then the next millisecond.
    track.set(101, 9);
    track.set(102, 5);
    assert_eq!([101, 102, 500].map(|time| track.at(time)), [9, 5, 5]);
    assert!(!StartTrack::new(3).trim(0), "nothing is known");
}
