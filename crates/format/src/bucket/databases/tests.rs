//! Tests of the databases in a bucket: round trip, golden object, damage at every bit and length.

use super::*;

fn id(byte: u8) -> StoreId {
    StoreId::from_bytes([byte; 16])
}

fn snapshot() -> DatabasesSnapshot {
    let policy = |name: &str, duration_ns, id| BucketPolicy {
        name: name.to_owned(),
        duration_ns,
        shard_group_ns: 3_600_000_000_000,
        replica_count: 2,
        id,
    };
    let query = ("q".to_owned(), "CREATE CONTINUOUS QUERY q ON \"ä\" BEGIN SELECT 1 END".to_owned());
    let database = BucketDatabase {
        name: "ä".to_owned(),
        default_policy: "autogen".to_owned(),
        policies: vec![policy("autogen", 0, id(1)), policy("week", 604_800_000_000_000, id(2))],
        continuous_queries: vec![query],
    };
    let empty = BucketDatabase {
        name: "empty".to_owned(),
        default_policy: String::new(),
        policies: Vec::new(),
        continuous_queries: Vec::new(),
    };
    DatabasesSnapshot {
        stamp: Stamp { number: 7, writer: [9; 16], created_ms: 1_700_000_000_000 },
        content: BucketDatabases {
            databases: vec![database, empty],
            dropped: vec![DroppedStore { id: id(3), dropped_ms: 1_600_000_000_000 }],
            has_graphite: false,
        },
    }
}

fn with_graphite() -> DatabasesSnapshot {
    let DatabasesSnapshot { stamp, content } = snapshot();
    DatabasesSnapshot { stamp, content: BucketDatabases { has_graphite: true, ..content } }
}

fn encoded(snapshot: &DatabasesSnapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.encode_object(&mut bytes).unwrap();
    bytes
}

#[track_caller]
fn check_comes_back(snapshot: &DatabasesSnapshot, version: u8) {
    let bytes = encoded(snapshot);
    assert_eq!(bytes[4], version);
    assert_eq!(DatabasesSnapshot::decode_object(&bytes, 7).unwrap(), *snapshot);
    assert!(DatabasesSnapshot::decode_object(&bytes, 8).is_err(), "another name");
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(DatabasesSnapshot::decode_object(&damaged, 7).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(DatabasesSnapshot::decode_object(&bytes[..len], 7).is_err(), "{len} bytes");
    }
}

#[test]
fn comes_back_and_any_damage_is_found() {
    check_comes_back(&snapshot(), 1);
    check_comes_back(&with_graphite(), 2);
}

#[test]
fn a_store_that_is_named_twice_is_refused() {
    let mut twice = snapshot();
    twice.content.dropped[0].id = id(1);
    assert!(DatabasesSnapshot::decode_object(&encoded(&twice), 7).is_err());
}

/// Checksums that match must not make a reader trust lengths and numbers.
#[test]
fn forged_content_never_panics() {
    let mut raw = Vec::new();
    let bytes = encoded(&snapshot());
    Unpacker::default().unpack(WHAT, &bytes[HEADER_BYTES..], RAW_BYTES_MAX, &mut raw).unwrap();
    for at in 0..raw.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut forged = raw.clone();
            forged[at] = value;
            let mut object = bytes[..HEADER_BYTES].to_vec();
            put_packed(&forged, &mut object);
            let _ = DatabasesSnapshot::decode_object(&object, 7);
        }
    }
}

#[test]
fn the_golden_object_is_read_and_written() {
    let golden = include_bytes!("../../../testdata/bucket/v1.databases");
    assert_eq!(DatabasesSnapshot::decode_object(golden, 7).unwrap(), snapshot());
    assert_eq!(encoded(&snapshot()), golden);
}

#[test]
fn names_sort_as_numbers_do() {
    assert_eq!(DatabasesSnapshot::name_of(12), "databases/00000000000000000012");
    assert_eq!(DatabasesSnapshot::number_in("databases/00000000000000000012"), Some(12));
    assert_eq!(DatabasesSnapshot::number_in("databases/latest"), None);
}
