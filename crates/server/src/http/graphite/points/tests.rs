//! Tests of steps and grids; what is selected is tested over HTTP.

use super::*;

#[track_caller]
fn check_step(times_s: &[i64], want: i64) {
    let times = times_s.iter().map(|time| time * 1000).collect::<Vec<_>>();
    let values = vec![1.0; times.len()];
    let columns = Columns { times, values, ..Columns::default() };
    assert_eq!(step_of(&columns, 1_000_000), want);
}

#[test]
fn the_step_is_the_most_frequent_gap_before_the_end() {
    check_step(&[], 60);
    check_step(&[5], 60);
    check_step(&[0, 10, 20, 30, 90, 150], 10);
    check_step(&[0, 60, 120, 130], 60);
    // Equally frequent: the shorter one.
    check_step(&[0, 10, 70], 10);
    // Points after the end do not count.
    check_step(&[0, 300, 600, 1001, 1002, 1003], 300);
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
