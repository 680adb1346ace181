//! Lists and marks round-trip; damage of any byte is noticed; golden files read as ever.

use chronolith_model::MatchOp;
use chronolith_model::databases::BucketStoreId;
use chronolith_model::log_position::Position;

use super::mark::{decode_mark, encode_mark, mark_name};
use super::*;

const KEY: SnapshotKey<'_> = SnapshotKey { folder: "cluster", number: 42 };
const TOPIC: TopicId = TopicId(*b"a topic's number");

fn snapshot() -> DeletionsSnapshot {
    let matcher = |name, op, value| Matcher::new(name, op, value).expect("a matcher");
    let deletion = |number, store, partitions: &[u32], state| ClusterDeletion {
        number,
        tenant: TenantId::new("team-a").expect("an id"),
        store,
        created_ms: 1_800_000_000_000 + number.cast_signed(),
        topic: TOPIC,
        partitions: partitions.iter().copied().map(PartitionId).collect(),
        state,
    };
    let done =
        DeletionState::Done { done_ms: 1_800_000_000_500, catalogue: 17, marks: vec![0, u64::MAX - 1, 300] };
    let open = DeletionState::Open {
        request_id: "7f-1".to_owned(),
        selectors: vec![
            vec![matcher("job", MatchOp::Equal, "api"), matcher("__name__", MatchOp::Regex, "http_.*")],
            vec![matcher("code", MatchOp::NotRegex, "2..")],
        ],
        range: TimeRange { start: i64::MIN, end: 1_800_000_000_000 },
    };
    DeletionsSnapshot {
        stamp: Stamp { number: 42, writer: *b"sixteen bytes!!!", created_ms: 1_800_000_000_001 },
        last_number: 9,
        deletions: vec![
            deletion(3, RecordStore::Default, &[0, 7, u32::MAX], done),
            deletion(8, RecordStore::Database(BucketStoreId::from_bytes([5; 16])), &[2], open),
        ],
    }
}

fn encoded(snapshot: &DeletionsSnapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.encode_object(KEY.folder, &mut out).expect("encodes");
    out
}

fn mark() -> Position {
    LogPartition { topic: TOPIC, number: PartitionId(3) }.at(u64::MAX - 5)
}

fn encoded_mark() -> Vec<u8> {
    let mut out = Vec::new();
    encode_mark(8, mark(), &mut out);
    out
}

#[test]
fn lists_round_trip() {
    let empty = DeletionsSnapshot { last_number: 0, deletions: Vec::new(), ..snapshot() };
    for snapshot in [snapshot(), empty] {
        assert_eq!(DeletionsSnapshot::decode_object(&encoded(&snapshot), KEY), Ok(snapshot));
    }
    assert_eq!(DeletionsSnapshot::name_of(7), "deletions/00000000000000000007");
}

#[test]
fn deletions_are_found_by_number_and_by_store() {
    let snapshot = snapshot();
    let at = |number| LogPartition { topic: TOPIC, number: PartitionId(number) };
    let done = snapshot.find(3).expect("a deletion");
    assert_eq!([0, 1, 7].map(|number| done.mark_when_done(at(number))), [Some(0), None, Some(u64::MAX - 1)]);
    assert_eq!([0, 1].map(|number| done.has(at(number))), [true, false]);
    let other_topic = LogPartition { topic: TopicId([0; 16]), number: PartitionId(0) };
    assert!(!done.has(other_topic) && done.mark_when_done(other_topic).is_none());
    let tenant = TenantId::new("team-a").expect("an id");
    assert_eq!(snapshot.open_of(&tenant, RecordStore::Default), None);
    let store = RecordStore::Database(BucketStoreId::from_bytes([5; 16]));
    assert_eq!(snapshot.open_of(&tenant, store).map(|open| open.number), Some(8));
    assert_eq!(snapshot.open_of(&TenantId::anonymous(), store), None);
    assert_eq!(snapshot.find(9), None);
}

#[test]
fn no_cut_no_flipped_bit_and_no_further_byte_goes_unnoticed() {
    let list = encoded(&snapshot());
    let mark_bytes = encoded_mark();
    let partition = mark().log_partition();
    for at in 0..list.len() {
        assert!(DeletionsSnapshot::decode_object(&list[..at], KEY).is_err(), "cut at {at}");
        let mut damaged = list.clone();
        damaged[at] ^= 0x10;
        assert!(DeletionsSnapshot::decode_object(&damaged, KEY).is_err(), "byte {at}");
    }
    for at in 0..mark_bytes.len() {
        assert!(decode_mark(&mark_bytes[..at], 8, partition).is_err(), "cut at {at}");
        let mut damaged = mark_bytes.clone();
        damaged[at] ^= 0x10;
        assert!(decode_mark(&damaged, 8, partition).is_err(), "byte {at}");
    }
    assert!(decode_mark(&[&mark_bytes[..], b"x"].concat(), 8, partition).is_err());
}

#[test]
fn objects_of_another_name_are_refused() {
    let list = encoded(&snapshot());
    for (key, want) in [
        (SnapshotKey { number: 41, ..KEY }, "the number of its name"),
        (SnapshotKey { folder: "cluster2", ..KEY }, "the checksum of its folder"),
    ] {
        let error = DeletionsSnapshot::decode_object(&list, key).expect_err("another snapshot");
        assert!(error.to_string().contains(want), "{error}");
    }
    let partition = mark().log_partition();
    assert_eq!(decode_mark(&encoded_mark(), 8, partition), Ok(mark().offset));
    let error = decode_mark(&encoded_mark(), 9, partition).expect_err("another deletion");
    assert!(error.to_string().contains("the number of its name"), "{error}");
    let other = LogPartition { number: PartitionId(4), ..partition };
    let error = decode_mark(&encoded_mark(), 8, other).expect_err("another partition");
    assert!(error.to_string().contains("the partition of its name"), "{error}");
    assert_eq!(mark_name(8, PartitionId(3)), "deletion-marks/00000000000000000008/3");
}

/// Regression guard: a list whose numbers or partitions do not ascend was made by no process.
#[test]
fn lists_out_of_order_are_refused() {
    let refused = |change: &dyn Fn(&mut DeletionsSnapshot), want: &str| {
        let mut wrong = snapshot();
        change(&mut wrong);
        let error = DeletionsSnapshot::decode_object(&encoded(&wrong), KEY).expect_err("out of order");
        assert!(error.to_string().contains(want), "{error}");
    };
    refused(&|wrong| wrong.last_number = 7, "ascending numbers up to the last one");
    refused(&|wrong| wrong.deletions.swap(0, 1), "ascending numbers up to the last one");
    refused(&|wrong| wrong.deletions[0].partitions.swap(0, 1), "ascending partitions");
    refused(&|wrong| wrong.deletions[1].partitions.clear(), "one partition at least");
}

const GOLDEN_1: &[u8] = include_bytes!("../../../testdata/bucket/version-1.deletions");
const GOLDEN_MARK_1: &[u8] = include_bytes!("../../../testdata/bucket/version-1.deletion-mark");

#[test]
fn golden_files_read_as_ever() {
    let changed = "the bytes that are written have changed: that needs a version";
    assert_eq!(encoded(&snapshot()), GOLDEN_1, "{changed}");
    assert_eq!(DeletionsSnapshot::decode_object(GOLDEN_1, KEY), Ok(snapshot()));
    assert_eq!(encoded_mark(), GOLDEN_MARK_1, "{changed}");
    assert_eq!(decode_mark(GOLDEN_MARK_1, 8, mark().log_partition()), Ok(mark().offset));
}
