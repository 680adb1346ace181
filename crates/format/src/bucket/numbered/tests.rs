//! Tests of hints: round trip, every flipped bit and every cut, hints without a checksum.

use super::{Hint, NumberedSnapshot, SnapshotNames};
use crate::bucket::catalogue::Snapshot;
use crate::bucket::databases::DatabasesSnapshot;

#[test]
fn a_hint_names_its_number() {
    for number in [1, 7, 4711, u64::MAX] {
        let hint = Snapshot::names().encode_hint(number);
        assert_eq!(Snapshot::names().decode_hint(hint.as_bytes()), Some(Hint::Checked(number)));
    }
}

#[test]
fn a_hint_without_checksum_is_told_from_one_with() {
    let hint = b"00000000000000000042";
    assert_eq!(Snapshot::names().decode_hint(hint), Some(Hint::Unchecked(42)));
}

/// A flipped digit must never count as the proof that another snapshot was created.
#[test]
fn damage_never_gives_another_checked_number() {
    let hint = Snapshot::names().encode_hint(42).into_bytes();
    for at in 0..hint.len() {
        for bit in 0..8 {
            let mut damaged = hint.clone();
            damaged[at] ^= 1 << bit;
            assert_eq!(Snapshot::names().decode_hint(&damaged), None, "byte {at}, bit {bit}");
        }
        let cut = Snapshot::names().decode_hint(&hint[..at]);
        assert!(cut.is_none() || cut == Some(Hint::Unchecked(42)), "cut at {at}: {cut:?}");
    }
    assert_eq!(Snapshot::names().decode_hint(&[&hint[..], b" "].concat()), None);
}

#[test]
fn the_hint_of_another_kind_is_damage() {
    assert_eq!(DatabasesSnapshot::names().decode_hint(Snapshot::names().encode_hint(3).as_bytes()), None);
}

/// The hint of one series proves nothing about another one in the same folder.
#[test]
fn series_have_names_of_their_own() {
    let [first, second] = ["resume/1/", "resume/11/"].map(SnapshotNames::new);
    assert_eq!(first.name_of(7), "resume/1/00000000000000000007");
    assert_eq!(first.number_in(&first.name_of(7)), Some(7));
    assert_eq!(first.number_in(&second.name_of(7)), None);
    assert_eq!(second.decode_hint(first.encode_hint(3).as_bytes()), None);
}
