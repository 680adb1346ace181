//! Steps with samples: none is left out.

use super::*;

/// Checks that every step whose window has one of `times` is among the populated ones, which are `want`.
#[track_caller]
fn check(grid: Grid, offset_ms: i64, width_ms: i64, times: &[i64], want: Range<usize>) {
    let windows = Windows::new(grid, TimeShift { fixed_ms: None, offset_ms }, width_ms);
    let populated = windows.populated_steps(times);
    for step in 0..grid.count {
        let has_sample = times.iter().any(|&time| windows.start(step) < time && time <= windows.end(step));
        assert!(!has_sample || populated.contains(&step), "step {step} of {populated:?}, {times:?}");
    }
    assert_eq!(populated, want, "{times:?}");
}

#[test]
fn all_steps_with_samples_are_populated() {
    let five = Grid::between(1000, 1400, 100).expect("five steps");
    check(five, 0, 100, &[], 0..0);
    check(five, 0, 100, &[1150], 2..3);
    check(five, 0, 100, &[1100, 1250], 1..4);
    check(five, 0, 300, &[1100], 1..4);
    check(five, 0, 100, &[900], 0..0);
    check(five, 0, 100, &[1401], 5..5);
    check(five, 100, 100, &[1150], 3..4);
}

/// Dividing for each series of an instant query cost up to 9 % of `count by`.
#[test]
fn a_single_step_is_populated_by_any_sample() {
    let one = Grid::instant(1000);
    check(one, 0, 300, &[], 0..0);
    for times in [&[1000][..], &[700], &[701], &[1001], &[i64::MIN], &[i64::MAX], &[0, 2000], &[999, 1000]] {
        check(one, 0, 300, times, 0..1);
        check(one, 500, 1, times, 0..1);
    }
    check(Grid::between(0, 50, 100).expect("one step"), 0, i64::MAX, &[7], 0..1);
}
