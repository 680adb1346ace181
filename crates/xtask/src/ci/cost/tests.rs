//! Comparison with recorded figures.

use super::{StepCost, built_before, compare, parse, render};
use crate::process::TempDir;

fn costs(units: &[(&str, f64)]) -> Vec<StepCost> {
    let cost =
        |&(name, units): &(&str, f64)| StepCost { name: name.to_owned(), wall_s: 1.0, cpu_s: 2.0, units };
    units.iter().map(cost).collect()
}

#[track_caller]
fn check(recorded: &[(&str, f64)], found: &[(&str, f64)], want: &[&str]) {
    assert_eq!(compare(&costs(recorded), &costs(found)).failures, want);
}

#[test]
fn a_step_fails_with_its_name_and_both_figures_above_ten_percent() {
    check(&[("build", 400.0), ("test", 100.0)], &[("build", 439.0), ("test", 100.0)], &[]);
    check(
        &[("build", 400.0), ("test", 100.0)],
        &[("build", 300.0), ("test", 111.0)],
        &["test: 111.0 units of CPU, recorded 100.0 (+11 %)"],
    );
}

#[test]
fn small_steps_fail_together_and_not_alone() {
    let recorded = [("abuse", 1.0), ("demo", 9.0), ("build", 400.0)];
    check(&recorded, &[("abuse", 1.9), ("demo", 9.0), ("build", 400.0)], &[]);
    check(
        &recorded,
        &[("abuse", 2.5), ("demo", 9.0), ("build", 400.0)],
        &["steps below 10 units together: 11.5 units of CPU, recorded 10.0 (+15 %)"],
    );
}

/// A step that did not run counts neither in the recorded sum nor in the other one.
#[test]
fn steps_of_one_run_alone_are_not_compared() {
    check(&[("abuse", 5.0), ("demo", 4.0)], &[("demo", 4.1), ("loom", 80.0)], &[]);
    let comparison = compare(&costs(&[("demo", 4.0)]), &costs(&[("demo", 4.0), ("loom", 80.0)]));
    assert_eq!(comparison.notes, ["loom: no figure is recorded"]);
    check(&[], &[("loom", 80.0)], &[]);
}

#[test]
fn a_cheaper_step_is_a_note() {
    let comparison = compare(&costs(&[("build", 400.0)]), &costs(&[("build", 300.0)]));
    assert!(comparison.failures.is_empty());
    assert!(comparison.notes[0].starts_with("build: 300.0 units of CPU, recorded 400.0 (-25 %)"));
}

#[test]
fn a_record_reads_as_it_was_written() {
    let steps = costs(&[("build", 412.25), ("influx-clients", 0.5)]);
    let text = render("- compiler: rustc 1\n", &steps);
    assert_eq!(parse(&text).expect("a record"), steps);
    assert!(text.contains("- compiler: rustc 1\n"));
    for damaged in ["", "| build | 1 | 2 |\n", "| build | 1 | 2 | x |\n"] {
        assert!(parse(damaged).is_err(), "{damaged:?}");
    }
}

/// The run itself has compiled `xtask` before.
#[test]
fn a_target_directory_with_crates_or_environments_is_not_empty() {
    let dir = TempDir::new("cost").expect("a directory");
    let add = |name: &str| std::fs::create_dir_all(dir.path.join(name)).expect("created");
    assert_eq!(built_before(&dir.path.join("none")), None);
    add("debug/.fingerprint/xtask-1");
    assert_eq!(built_before(&dir.path), None);
    add("ci-venv");
    assert_eq!(built_before(&dir.path).as_deref(), Some("ci-venv"));
    add("debug/.fingerprint/chronolith-head-1");
    assert_eq!(built_before(&dir.path).as_deref(), Some("chronolith-head-1"));
}
