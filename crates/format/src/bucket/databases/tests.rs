//! Tests of the databases in a bucket: round trip, golden object, damage at every bit and length.

use super::*;

const FOLDER_KEY: &str = "anonymous";
const KEY: SnapshotKey<'_> = SnapshotKey { folder: FOLDER_KEY, number: 7 };

fn id(byte: u8) -> BucketStoreId {
    BucketStoreId::from_bytes([byte; 16])
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
    snapshot.encode_object(FOLDER_KEY, &mut bytes).unwrap();
    bytes
}

#[track_caller]
fn check_comes_back(snapshot: &DatabasesSnapshot) {
    let bytes = encoded(snapshot);
    assert_eq!(DatabasesSnapshot::decode_object(&bytes, KEY).unwrap(), *snapshot);
    assert!(
        DatabasesSnapshot::decode_object(&bytes, SnapshotKey { number: 8, ..KEY }).is_err(),
        "another name"
    );
    for folder in ["tenant", "", "anonymou", "anonymous/", "anonymous/stores/0", "chronolith/cluster=eu"] {
        let error = DatabasesSnapshot::decode_object(&bytes, SnapshotKey { folder, ..KEY });
        let text = error.expect_err("that of another tenant").to_string();
        assert!(text.contains("the checksum of its folder"), "{folder}: {text}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(DatabasesSnapshot::decode_object(&damaged, KEY).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(DatabasesSnapshot::decode_object(&bytes[..len], KEY).is_err(), "{len} bytes");
    }
}

#[test]
fn comes_back_and_any_damage_is_found() {
    check_comes_back(&snapshot());
    check_comes_back(&with_graphite());
}

#[test]
fn a_store_that_is_named_twice_is_refused() {
    let mut twice = snapshot();
    twice.content.dropped[0].id = id(1);
    assert!(DatabasesSnapshot::decode_object(&encoded(&twice), KEY).is_err());
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
            let _ = DatabasesSnapshot::decode_object(&object, KEY);
        }
    }
}

#[test]
fn golden_objects_are_read_and_the_last_one_is_written() {
    let [v1, v2, v3]: [&[u8]; 3] = [
        include_bytes!("../../../testdata/bucket/v1.databases"),
        include_bytes!("../../../testdata/bucket/v2.databases"),
        include_bytes!("../../../testdata/bucket/v3.databases"),
    ];
    assert_eq!(DatabasesSnapshot::decode_object(v1, KEY).unwrap(), snapshot());
    assert_eq!(DatabasesSnapshot::decode_object(v2, KEY).unwrap(), with_graphite());
    assert_eq!(DatabasesSnapshot::decode_object(v3, KEY).unwrap(), snapshot());
    assert_eq!(encoded(&snapshot()), v3);
}

#[test]
fn names_sort_as_numbers_do() {
    assert_eq!(DatabasesSnapshot::name_of(12), "databases/00000000000000000012");
    assert_eq!(DatabasesSnapshot::number_in("databases/00000000000000000012"), Some(12));
    assert_eq!(DatabasesSnapshot::number_in("databases/latest"), None);
}
