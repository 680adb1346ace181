//! Every row of the table.

use chronolith_model::DuplicatePolicy::{KeepFirst, LastWins};

use super::*;

#[track_caller]
fn check(position: Position, stored: Stored, duplicates: DuplicatePolicy, want: AppendOutcome) {
    assert_eq!(decide(position, stored, duplicates), want, "{position:?}, {stored:?}, {duplicates:?}");
}

#[test]
fn a_sample_after_the_newest_is_in_order() {
    check(Position::Newest, Stored::Nothing, KeepFirst, AppendOutcome::InOrder);
    check(Position::Newest, Stored::Nothing, LastWins, AppendOutcome::InOrder);
}

#[test]
fn a_sample_at_an_unused_timestamp_before_the_newest_is_out_of_order() {
    check(Position::NotNewest, Stored::Nothing, KeepFirst, AppendOutcome::OutOfOrder);
    check(Position::NotNewest, Stored::Nothing, LastWins, AppendOutcome::OutOfOrder);
}

#[test]
fn the_same_sample_again_is_a_duplicate_under_every_policy() {
    for position in [Position::Newest, Position::NotNewest] {
        check(position, Stored::Same, KeepFirst, AppendOutcome::Duplicate);
        check(position, Stored::Same, LastWins, AppendOutcome::Duplicate);
    }
}

#[test]
fn another_value_is_refused_or_replaces_by_policy() {
    for position in [Position::Newest, Position::NotNewest] {
        check(position, Stored::Different, KeepFirst, AppendOutcome::DuplicateTimestamp);
        check(position, Stored::Different, LastWins, AppendOutcome::Replaced);
    }
}

#[test]
fn another_start_timestamp_replaces_under_last_wins_only() {
    for position in [Position::Newest, Position::NotNewest] {
        check(position, Stored::OtherStart, KeepFirst, AppendOutcome::Duplicate);
        check(position, Stored::OtherStart, LastWins, AppendOutcome::Replaced);
    }
}
