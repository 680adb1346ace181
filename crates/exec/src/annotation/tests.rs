//! Collections of annotations whose emitters are evaluated in the order of their positions.

use super::*;
use crate::note::NotedValue;

fn annotations() -> Annotations<'static> {
    Annotations::new(Box::new(|Position(rank)| rank as usize))
}

fn origin(position: u64, emitter: u64) -> Origin {
    Origin { position: Position(position), emitter: Position(emitter) }
}

fn info(text: &str) -> Note {
    Note::Language(Severity::Info, text.into())
}

fn positions(list: &[Annotation]) -> Vec<u64> {
    list.iter().map(|annotation| annotation.origin.position.0).collect()
}

#[test]
fn equal_notes_are_kept_once_with_the_emitter_evaluated_last() {
    let collected = annotations();
    collected.add(Note::MixedGroup, origin(1, 5));
    collected.add(info("a"), origin(2, 2));
    collected.add(Note::MixedGroup, origin(3, 4));
    collected.add(info("a"), origin(4, 9));
    collected.add(info("a"), origin(5, 9));
    let set = collected.finish();
    assert_eq!(positions(&set.warnings), [1]);
    assert_eq!(positions(&set.infos), [5], "of one emitter, the last position");
    assert!(collected.finish().is_empty());
}

#[test]
fn notes_about_nan_are_equal_and_zeros_differ_by_sign() {
    let collected = annotations();
    for value in [f64::NAN, -f64::NAN, 0.0, -0.0, 2.0] {
        collected.add(Note::BadQuantile(NotedValue(value)), origin(1, 1));
    }
    assert_eq!(collected.finish().warnings.len(), 4);
}

#[test]
fn counted_notes_add_up_at_the_first_emitter() {
    let collected = annotations();
    let tally = |count, value: f64, time_ms| Tally {
        count,
        value_min: value,
        value_max: value,
        change_max: value,
        first_ms: time_ms,
        last_ms: time_ms,
    };
    collected.count(info("repaired"), origin(1, 7), tally(2, 5.0, 30));
    collected.count(info("repaired"), origin(2, 3), tally(1, 1.0, 10));
    let set = collected.finish();
    assert_eq!(positions(&set.infos), [2]);
    let want = Tally { value_max: 5.0, change_max: 5.0, last_ms: 30, ..tally(3, 1.0, 10) };
    assert_eq!(set.infos[0].tally, Some(want));
}

#[test]
fn steps_are_known_only_if_those_of_all_equal_notes_are() {
    let steps = |first_ms, last_ms| StepSet::new(10, [crate::step_set::StepRun { first_ms, last_ms }]);
    let collected = annotations();
    collected.add_at(info("a"), origin(1, 1), steps(0, 20));
    collected.add_at(info("a"), origin(1, 1), steps(30, 40));
    collected.add_at(info("b"), origin(1, 1), steps(0, 20));
    collected.add(info("b"), origin(1, 1));
    let set = collected.finish();
    let known: Vec<_> = set.infos.into_iter().map(|annotation| annotation.steps).collect();
    assert_eq!(known, [steps(0, 40), None]);
}

#[test]
fn a_set_is_swapped_out_and_appended_at_other_positions() {
    let collected = annotations();
    collected.add(info("before"), origin(1, 1));
    let before = collected.start_new();
    collected.add(Note::MixedGroup, origin(2, 2));
    collected.count(Note::StartOverlap("m".into()), origin(3, 3), Tally::of_count(2));
    let of_subplan = collected.restore(before);
    assert!(!of_subplan.is_empty());
    collected.append(of_subplan.moved(|Position(at)| Position(at + 10)));
    let set = collected.finish();
    assert_eq!((positions(&set.warnings), positions(&set.infos)), (vec![12, 13], vec![1]));
}

#[test]
fn notes_beyond_the_limit_are_left_out() {
    let collected = annotations();
    for number in 0..2 * ANNOTATIONS_MAX {
        collected.add(info(&number.to_string()), origin(1, 1));
        collected.count(Note::StartOverlap(number.to_string().into()), origin(1, 1), Tally::of_count(1));
    }
    let set = collected.finish();
    assert_eq!((set.infos.len(), set.warnings.len()), (ANNOTATIONS_MAX, ANNOTATIONS_MAX));
}
