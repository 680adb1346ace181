//! Tests of steps and grids; the selection of series is tested over HTTP.

use super::*;

#[track_caller]
fn check_step(times_s: &[i64], want: i64) {
    let times = times_s.iter().map(|time| time * 1000).collect::<Vec<_>>();
    let values = vec![1.0; times.len()];
    let columns = Columns { times, values, ..Columns::default() };
    assert_eq!(step_of(&columns, 1_000_000), want);
}

#[test]
fn the_step_is_the_interval_of_the_last_points_before_the_end() {
    check_step(&[], 60);
    check_step(&[5], 60);
    check_step(&[0, 10, 20, 30, 90, 150], 10);
    check_step(&[0, 60, 120, 130], 10);
    // Equally frequent: the shorter one.
    check_step(&[0, 10, 70], 10);
    // Points after the end do not count.
    check_step(&[0, 300, 600, 1001, 1002, 1003], 300);
}

/// A sparse series of 10 s data had a step of 170 s, its most frequent gap: points that share a step hide
/// one another. The step is the interval of which most gaps are multiples.
#[test]
fn missing_points_do_not_lengthen_the_step() {
    check_step(&[0, 170, 180, 350, 520, 530, 700], 10);
    check_step(&[0, 170, 340, 510, 550, 720, 810], 10);
    check_step(&[0, 10, 180, 350, 520, 690, 860], 10);
    check_step(&[0, 170, 400, 570, 800], 10);
    check_step(&[0, 120, 180, 420, 480, 780], 60);
    check_step(&[0, 90, 150, 330, 420], 30);
    check_step(&[0, 300, 900, 960], 60);
    check_step(&[0, 35, 50, 85, 155], 5);
    // A regular series keeps its interval, however long it is.
    check_step(&[0, 170, 340, 510, 680, 850], 170);
    check_step(&[0, 300, 600, 900], 300);
    // Times that jitter have no common divisor.
    check_step(&[0, 10, 21, 30, 40, 49, 60, 70, 81, 90], 10);
    check_step(&[0, 59, 120, 181, 240, 299, 360], 60);
    // One point more among many does not make the step of all.
    let with_extra: Vec<i64> = (0..=40).map(|idx| idx * 20).chain([805]).collect();
    check_step(&with_extra, 20);
}

#[test]
fn a_range_begins_after_the_step_of_its_start() {
    let bounds = |from, until, step| {
        let grid = Grid::new(from, until, step);
        (grid.start, grid.end(), grid.count)
    };
    assert_eq!(bounds(100, 130, 10), (110, 140, 3));
    assert_eq!(bounds(101, 139, 10), (110, 140, 3));
    assert_eq!(bounds(101, 102, 10), (110, 120, 1), "at least one step");
}
