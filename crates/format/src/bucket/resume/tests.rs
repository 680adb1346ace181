//! Offsets round-trip; damage of any byte is noticed; the golden file decodes to the same content.

use super::*;

const KEY: SnapshotKey<'_> = SnapshotKey { folder: "cluster", number: 42 };

fn snapshot() -> ResumeSnapshot {
    let partition = LogPartition { topic: TopicId(*b"a topic's number"), number: PartitionId(3) };
    ResumeSnapshot {
        stamp: Stamp { number: 42, writer: *b"sixteen bytes!!!", created_ms: 1_800_000_000_001 },
        position: Some(partition.at(u64::MAX - 5)),
    }
}

fn encoded(snapshot: &ResumeSnapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.encode_object(KEY.folder, &mut out).expect("encodes");
    out
}

#[test]
fn offsets_round_trip() {
    assert_eq!(encoded(&snapshot()).len(), 72 + 4);
    assert_eq!(ResumeSnapshot::decode_object(&encoded(&snapshot()), KEY), Ok(snapshot()));
    let name = ResumeSnapshot::names_of(PartitionId(12)).name_of(7);
    assert_eq!(name, "resume/12/00000000000000000007");
    let empty = ResumeSnapshot::empty();
    assert_eq!(empty.encode_object(KEY.folder, &mut Vec::new()), Err(PositionMissing));
}

#[test]
fn no_cut_no_flipped_bit_and_no_further_byte_goes_unnoticed() {
    let bytes = encoded(&snapshot());
    for at in 0..bytes.len() {
        assert!(ResumeSnapshot::decode_object(&bytes[..at], KEY).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(ResumeSnapshot::decode_object(&damaged, KEY).is_err(), "byte {at}");
    }
    assert!(ResumeSnapshot::decode_object(&[&bytes[..], b"x"].concat(), KEY).is_err());
}

#[test]
fn an_offset_of_another_number_or_folder_is_refused() {
    let bytes = encoded(&snapshot());
    let check = |key, want: &str| {
        let error = ResumeSnapshot::decode_object(&bytes, key).expect_err("another snapshot");
        assert!(error.to_string().contains(want), "{error}");
    };
    check(SnapshotKey { number: 41, ..KEY }, "the number of its name");
    check(SnapshotKey { folder: "cluster2", ..KEY }, "the checksum of its folder");
}

const GOLDEN_1: &[u8] = include_bytes!("../../../testdata/bucket/version-1.resume");

#[test]
fn golden_files_read_as_ever() {
    assert_eq!(
        encoded(&snapshot()),
        GOLDEN_1,
        "the bytes that are written have changed: that needs a version"
    );
    assert_eq!(ResumeSnapshot::decode_object(GOLDEN_1, KEY), Ok(snapshot()));
}
