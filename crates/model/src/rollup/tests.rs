//! Windows of samples, and joined answers.

use super::*;
use crate::{Columns, TimeRange};

fn archive(span_ms: i64, slot_ms: i64) -> RollupArchive {
    RollupArchive::new(span_ms, slot_ms, RollupMethods::of(&RollupMethod::ALL)).expect("spans of slots")
}

fn columns(samples: &[(i64, f64)]) -> Columns {
    let mut columns = Columns::default();
    samples.iter().for_each(|(time, value)| columns.push(*time, *value));
    columns
}

/// Windows of 60 over slots of 20: start, and values in the order of [`RollupMethod::ALL`].
#[track_caller]
fn check(samples: &[(i64, f64)], want: &[(i64, [f64; 9])]) {
    let archive = archive(60, 20);
    let mut windows = RolledWindows::new(archive.methods);
    archive.roll_up(&columns(samples), &mut windows);
    let values = |at: usize| RollupMethod::ALL.map(|method| windows.column(method).expect("all methods")[at]);
    let got: Vec<_> = windows.starts().iter().enumerate().map(|(at, start)| (*start, values(at))).collect();
    assert_eq!(got, want, "{samples:?}");
}

#[test]
fn a_window_has_the_last_sample_of_each_slot() {
    check(&[], &[]);
    check(&[(5, f64::NAN)], &[]);
    check(&[(5, 2.0)], &[(0, [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0])]);
    check(&[(0, 3.0), (20, -4.0), (59, 1.0)], &[(0, [3.0, 0.0, -4.0, 3.0, 3.0, 1.0, -4.0, 1.0, 1.0])]);
    // Samples of one slot, of which one is no value.
    check(
        &[(0, 9.0), (19, 1.0), (20, 5.0), (39, f64::NAN), (60, 7.0)],
        &[
            (0, [2.0, 6.0, 1.0, 5.0, 1.0, 5.0, 5.0, 1.0, 0.0]),
            (60, [1.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 0.0]),
        ],
    );
    // Windows before 1970 start at multiples of the span, too.
    check(
        &[(-1, 2.0), (0, 3.0)],
        &[
            (-60, [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0]),
            (0, [1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 0.0]),
        ],
    );
}

#[test]
fn spans_are_multiples_of_slots() {
    let methods = RollupMethods::default();
    for (span_ms, slot_ms, is_valid) in
        [(60, 20, true), (60, 60, true), (60, 25, false), (0, 1, false), (5, 0, false)]
    {
        assert_eq!(RollupArchive::new(span_ms, slot_ms, methods).is_some(), is_valid, "{span_ms} {slot_ms}");
    }
    let archive = archive(60, 20);
    assert_eq!(archive.widened(TimeRange::new(61, 121)), TimeRange::new(60, 180));
    assert_eq!(archive.narrowed(TimeRange::new(60, 179)), Some(TimeRange::new(60, 120)));
    assert_eq!(archive.narrowed(TimeRange::new(61, 179)), None);
}

/// A source with windows at `starts`, and raw ranges.
fn read(starts: &[i64], raw: &[(i64, i64)]) -> RollupRead {
    let mut read = RollupRead::new(RollupMethods::of(&[RollupMethod::Sum]));
    starts.iter().for_each(|start| read.windows.push(*start, |_| *start as f64));
    read.raw = raw.iter().map(|(start, end)| TimeRange::new(*start, *end)).collect();
    read
}

#[track_caller]
fn check_merged(reads: &[RollupRead], want: &RollupRead) {
    let archive = archive(60, 20).with_methods(RollupMethods::of(&[RollupMethod::Sum]));
    assert_eq!(&RollupRead::merged(&archive, reads.to_vec()), want);
    let reversed: Vec<_> = reads.iter().rev().cloned().collect();
    assert_eq!(&RollupRead::merged(&archive, reversed), want);
}

#[test]
fn windows_that_several_sources_may_have_are_raw() {
    check_merged(&[], &read(&[], &[]));
    check_merged(&[read(&[0, 60], &[]), read(&[120], &[])], &read(&[0, 60, 120], &[]));
    // Both have samples of the window at 60.
    check_merged(&[read(&[0, 60], &[]), read(&[60, 120], &[])], &read(&[0, 120], &[(60, 120)]));
    // Samples of one source where the other has windows.
    check_merged(
        &[read(&[0, 60, 120, 240], &[]), read(&[], &[(60, 120), (120, 180)])],
        &read(&[0, 240], &[(60, 180)]),
    );
    check_merged(
        &[read(&[120], &[(0, 60)]), read(&[], &[(300, 360)]), read(&[180], &[])],
        &read(&[120, 180], &[(0, 60), (300, 360)]),
    );
}
