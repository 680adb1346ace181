//! Maps round-trip; damage of any byte is noticed; the golden file reads as ever.

use proptest::prelude::{any, prop};

use super::*;
use crate::bucket::packed::put_packed;

const KEY: SnapshotKey<'_> = SnapshotKey { folder: "cluster", number: 42 };

fn snapshot() -> PartitionsSnapshot {
    let epoch = |since_ms, accepting: Vec<u32>| PartitionEpoch { since_ms, accepting };
    let epochs = vec![
        epoch(-5, vec![0, 1, 2]),
        epoch(1_700_000_000_000, (0..300).collect()),
        epoch(i64::MAX, vec![7, u32::MAX]),
    ];
    PartitionsSnapshot {
        stamp: Stamp { number: 42, writer: *b"sixteen bytes!!!", created_ms: 1_800_000_000_001 },
        map: PartitionMap::from_epochs(epochs).expect("a map"),
    }
}

fn encoded(snapshot: &PartitionsSnapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.encode_object(KEY.folder, &mut out).expect("encodes");
    out
}

#[test]
fn maps_round_trip() {
    let empty = PartitionsSnapshot { map: PartitionMap::default(), ..snapshot() };
    for snapshot in [snapshot(), empty] {
        assert_eq!(PartitionsSnapshot::decode_object(&encoded(&snapshot), KEY), Ok(snapshot));
    }
    assert_eq!(PartitionsSnapshot::name_of(7), "partitions/00000000000000000007");
}

#[test]
fn no_cut_and_no_flipped_bit_goes_unnoticed() {
    let bytes = encoded(&snapshot());
    for at in 0..bytes.len() {
        assert!(PartitionsSnapshot::decode_object(&bytes[..at], KEY).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(PartitionsSnapshot::decode_object(&damaged, KEY).is_err(), "byte {at}");
    }
}

#[test]
fn a_map_of_another_number_or_folder_is_refused() {
    let bytes = encoded(&snapshot());
    let check = |key, want: &str| {
        let error = PartitionsSnapshot::decode_object(&bytes, key).expect_err("another snapshot");
        assert!(error.to_string().contains(want), "{error}");
    };
    check(SnapshotKey { number: 41, ..KEY }, "the number of its name");
    check(SnapshotKey { folder: "cluster2", ..KEY }, "the checksum of its folder");
}

proptest::proptest! {
    #[test]
    fn forged_maps_end_without_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        junk in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut raw = Vec::new();
        put_epochs(snapshot().map.epochs(), &mut raw);
        let idx = at.index(raw.len());
        raw[idx] = byte;
        for content in [raw, junk] {
            let mut forged = encoded(&snapshot());
            forged.truncate(44 + 4);
            put_packed(&content, &mut forged);
            if let Ok(snapshot) = PartitionsSnapshot::decode_object(&forged, KEY) {
                assert_eq!(PartitionsSnapshot::decode_object(&encoded(&snapshot), KEY), Ok(snapshot));
            }
        }
    }
}

const GOLDEN_1: &[u8] = include_bytes!("../../../testdata/bucket/version-1.partitions");

#[test]
fn golden_files_read_as_ever() {
    assert_eq!(
        encoded(&snapshot()),
        GOLDEN_1,
        "the bytes that are written have changed: that needs a version"
    );
    assert_eq!(PartitionsSnapshot::decode_object(GOLDEN_1, KEY), Ok(snapshot()));
}
