//! Snapshots round-trip and are the same for the same content; damage of any byte is noticed; 10,000 blocks
//! stay small; the golden file reads as ever.

use chronolith_base::crc::crc32c;
use chronolith_model::log_position::TopicId;
use proptest::prelude::{any, prop};

use super::super::packed::{Unpacker, put_packed};
use super::*;

const FOLDER_KEY: &str = "anonymous";
const KEY: SnapshotKey<'_> = SnapshotKey { folder: FOLDER_KEY, number: 42 };

fn ulid(n: u64) -> Ulid {
    // Two hours apart; random parts that do not compress.
    let random = u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Ulid::new(1_700_000_000_000 + n.cast_signed() * 7_200_000, random)
}

/// A block that was merged from 12 others.
fn block(n: u64) -> BucketBlock {
    BucketBlock {
        ulid: ulid(1_000_000 + n),
        folder: if n.is_multiple_of(5) { BlockFolder::Thanos } else { BlockFolder::Mimir },
        time_unit: if n.is_multiple_of(3) { TimeUnit::Nano } else { TimeUnit::Milli },
        range: TimeRange { start: -5, end: i64::MAX - n.cast_signed() },
        counts: BlockCounts { series: 1_000_000 + n, chunks: n << 20, samples: n << 30, tombstones: n % 2 },
        files: BlockFiles {
            index: 77_777_777 + n,
            segments: vec![(512 << 20) - n; (n % 4) as usize],
            meta: 900,
            rollups: Vec::new(),
        },
        etags: EtagSums::default(),
        sidecar: (n % 7 != 1).then_some(SidecarObject { len: n << 24, head_len: 40_000, crc: n as u32 }),
        tombstones: (n % 7 == 2).then(|| TombstonesObject {
            name: format!("tombstones-{n:020}"),
            len: 1 + n,
            crc: u32::MAX - n as u32,
        }),
        ancestry: Ancestry {
            level: 2 + (n % 2) as u32,
            oldest_source: ulid(12 * n),
            sources: (12 * n..12 * n + 12).map(ulid).collect(),
            parents: vec![ulid(500_000 + 2 * n), ulid(500_001 + 2 * n)],
            split_set: n.is_multiple_of(2).then(|| ulid(900_000 + n)),
            split_blocks: if n.is_multiple_of(2) { vec![ulid(1_000_000 + n), ulid(1)] } else { Vec::new() },
            is_compaction_failed: n % 11 == 3,
        },
        uploaded_ms: 1_800_000_000_000 + n.cast_signed(),
    }
}

fn snapshot(block_count: u64) -> Snapshot {
    let mark = |n: u64| DeletionMark { ulid: ulid(2_000_000 + n), marked_ms: n.cast_signed() };
    Snapshot {
        number: 42,
        writer: *b"sixteen bytes!!!",
        created_ms: 1_800_000_000_001,
        duplicates: DuplicatePolicy::KeepFirst,
        blocks: (0..block_count).map(block).collect(),
        deletion_marks: (0..block_count / 3).map(mark).collect(),
        cuts: Vec::new(),
    }
}

fn encoded(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.encode(FOLDER_KEY, &mut out).expect("encodes");
    out
}

#[test]
fn snapshots_round_trip() {
    for count in [0, 1, 100] {
        let snapshot = snapshot(count);
        let last_wins = Snapshot { duplicates: DuplicatePolicy::LastWins, ..snapshot.clone() };
        assert_eq!(Snapshot::decode(&encoded(&snapshot), KEY), Ok(snapshot));
        assert_eq!(Snapshot::decode(&encoded(&last_wins), KEY), Ok(last_wins));
    }
}

fn with_rollups() -> Snapshot {
    let mut with_rollups = snapshot(20);
    let span = RollupSpan { span_ms: 3_600_000, slot_ms: 10_000 };
    let object = RollupObject { span, len: 1 << 40 };
    with_rollups.blocks[7].files.rollups = vec![object, RollupObject { len: 0, ..object }];
    with_rollups
}

#[test]
fn rollups_round_trip() {
    assert_eq!(Snapshot::decode(&encoded(&with_rollups()), KEY), Ok(with_rollups()));
}

/// ETags of all objects of three in four blocks.
fn with_etags() -> Snapshot {
    let mut with_etags = with_rollups();
    for (n, block) in (1u32..).zip(&mut with_etags.blocks).filter(|(n, _)| !n.is_multiple_of(4)) {
        let sums =
            |count: usize, kind: u32| (0u32..).take(count).map(|idx| n << 16 | kind << 8 | idx).collect();
        let sidecar = if block.sidecar.is_some() { n << 16 | 4 } else { 0 };
        block.etags = EtagSums {
            index: n << 16,
            segments: sums(block.files.segments.len(), 1),
            rollups: sums(block.files.rollups.len(), 2),
            sidecar,
        };
    }
    with_etags
}

#[test]
fn etags_round_trip() {
    assert_eq!(Snapshot::decode(&encoded(&with_etags()), KEY), Ok(with_etags()));
    // Unknown sums of a list are 0.
    let mut partial = with_etags();
    partial.blocks[2].etags.segments.clear();
    let decoded = Snapshot::decode(&encoded(&partial), KEY).expect("decodes");
    assert_eq!(decoded.blocks[2].etags.segments, [0, 0]);
}

fn partition(topic: u8, number: u32) -> LogPartition {
    LogPartition { topic: TopicId([topic; 16]), number: PartitionId(number) }
}

/// Cuts of three partitions, two of them of a topic that was made again.
fn with_cuts() -> Snapshot {
    let mut with_cuts = with_etags();
    with_cuts.set_cut(partition(9, 0), u64::MAX);
    with_cuts.set_cut(partition(1, u32::MAX), 0);
    with_cuts.set_cut(partition(1, 7), 1_234_567);
    with_cuts
}

#[test]
fn cuts_round_trip_in_any_order() {
    let snapshot = with_cuts();
    assert_eq!(Snapshot::decode(&encoded(&snapshot), KEY).as_ref(), Ok(&snapshot));
    let mut other = snapshot.clone();
    other.cuts.reverse();
    assert_eq!(encoded(&other), encoded(&snapshot));
    let offsets = [partition(1, 7), partition(9, 0), partition(9, 7)].map(|one| snapshot.cut_of(one));
    assert_eq!(offsets, [Some(1_234_567), Some(u64::MAX), None]);
}

/// A server that uploads without a log writes what servers without cuts read.
#[test]
fn a_snapshot_without_cuts_has_the_bytes_of_the_version_before() {
    let mut snapshot = with_cuts();
    snapshot.cuts.clear();
    assert_eq!(encoded(&snapshot), GOLDEN_4);
}

#[test]
fn a_partition_has_one_cut_and_it_grows() {
    let mut snapshot = with_cuts();
    snapshot.set_cut(partition(1, 7), 1_234_568);
    assert_eq!((snapshot.cut_of(partition(1, 7)), snapshot.cuts.len()), (Some(1_234_568), 3));
    snapshot.cuts.push(snapshot.cuts[0]);
    let mut out = Vec::new();
    assert_eq!(snapshot.encode(FOLDER_KEY, &mut out), Err(EncodeError::RepeatedCut(PartitionId(7))));
    assert!(out.is_empty());
}

#[test]
#[should_panic(expected = "blocks of a cut are published once")]
fn a_cut_that_is_published_is_not_set_again() {
    with_cuts().set_cut(partition(1, 7), 1_234_567);
}

#[test]
fn an_etag_has_one_sum_in_all_forms() {
    let sum = etag_sum("\"9b2cf535f27731c974343645a3985328\"");
    for same in ["9b2cf535f27731c974343645a3985328", "W/\"9b2cf535f27731c974343645a3985328\""] {
        assert_eq!(etag_sum(same), sum);
    }
    for other in
        ["", "\"\"", "9b2cf535f27731c974343645a3985329", "9b2cf535f27731c974343645a3985328-2", "W/", "0"]
    {
        assert_ne!(etag_sum(other), sum, "{other}");
        assert_ne!(etag_sum(other), 0, "{other}");
    }
}

#[test]
fn equal_content_gives_equal_bytes() {
    let mut other = snapshot(50);
    other.blocks.reverse();
    other.deletion_marks.rotate_left(3);
    assert_eq!(encoded(&other), encoded(&snapshot(50)));
}

#[test]
fn a_block_that_is_listed_twice_is_refused() {
    let mut twice = snapshot(3);
    twice.blocks.push(block(1));
    let mut out = Vec::new();
    assert_eq!(twice.encode(FOLDER_KEY, &mut out), Err(EncodeError::Repeated(block(1).ulid)));
    twice.blocks.pop();
    twice.deletion_marks.extend(twice.deletion_marks.clone());
    assert!(twice.encode(FOLDER_KEY, &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn ten_thousand_blocks_take_little_room() {
    let bytes = encoded(&snapshot(10_000));
    assert!(bytes.len() < 3 << 20, "{} bytes", bytes.len());
    assert_eq!(Snapshot::decode(&bytes, KEY).expect("decodes").blocks.len(), 10_000);
}

#[test]
fn no_cut_and_no_flipped_bit_goes_unnoticed() {
    let bytes = encoded(&with_cuts());
    for at in 0..bytes.len() {
        assert!(Snapshot::decode(&bytes[..at], KEY).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Snapshot::decode(&damaged, KEY).is_err(), "byte {at}");
    }
}

#[test]
fn a_snapshot_under_another_name_is_refused() {
    assert!(Snapshot::decode(&encoded(&snapshot(1)), SnapshotKey { number: 41, ..KEY }).is_err());
}

/// The snapshot of another tenant with the same number was taken for the own one, with a right checksum: its
/// blocks were read, and the tenant's blocks were not.
#[test]
fn a_snapshot_of_another_folder_is_refused() {
    let stores = [1, 2].map(|n| format!("anonymous/stores/{n:032x}"));
    let writers = ["chronolith/cluster=eu", "chronolith/cluster=us"];
    let folders = ["anonymous", "anonymous2", "Anonymous", "tenant", "", "a/b"].into_iter();
    let folders: Vec<&str> = folders.chain(writers).chain(stores.iter().map(String::as_str)).collect();
    for own in &folders {
        let mut bytes = Vec::new();
        snapshot(2).encode(own, &mut bytes).expect("encodes");
        for folder in &folders {
            let decoded = Snapshot::decode(&bytes, SnapshotKey { folder, number: 42 });
            match decoded {
                Ok(_) => assert_eq!(own, folder),
                Err(error) => {
                    assert_ne!(own, folder);
                    assert!(error.to_string().contains("the checksum of its folder"), "{error}");
                }
            }
        }
    }
}

#[test]
fn names_are_numbers_of_twenty_digits() {
    assert_eq!(Snapshot::object_name(7), "catalog/00000000000000000007");
    for number in [0, 7, u64::MAX] {
        assert_eq!(Snapshot::number_of(&Snapshot::object_name(number)), Some(number));
    }
    for name in [
        "catalog/7",
        "catalog/000000000000000000007",
        "catalog/99999999999999999999",
        "catalog/+0000000000000000007",
        "catalog/0000000000000000000x",
        "other/00000000000000000007",
        "00000000000000000007",
    ] {
        assert_eq!(Snapshot::number_of(name), None, "{name}");
    }
}

proptest::proptest! {
    #[test]
    fn forged_snapshots_end_without_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        junk in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let bytes = encoded(&Snapshot { cuts: with_cuts().cuts, ..snapshot(4) });
        let record_bytes = u32::from_le_bytes(bytes[40..44].try_into().unwrap()) as usize;
        let random_parts = &bytes[HEADER_BYTES + record_bytes..];
        let mut raw = Vec::new();
        let records = &bytes[HEADER_BYTES..HEADER_BYTES + record_bytes];
        Unpacker::default().unpack("test", records, 1 << 20, &mut raw).expect("unpacks");
        let idx = at.index(raw.len());
        raw[idx] = byte;
        for content in [raw, junk] {
            let mut records = Vec::new();
            put_packed(&content, &mut records);
            let mut forged = bytes[..HEADER_BYTES].to_vec();
            forged[40..44].copy_from_slice(&u32::try_from(records.len()).unwrap().to_le_bytes());
            let sum = crc32c(&forged[..48]);
            forged[48..].copy_from_slice(&sum.to_le_bytes());
            forged.extend_from_slice(&records);
            forged.extend_from_slice(random_parts);
            if let Ok(snapshot) = Snapshot::decode(&forged, KEY) {
                // Whatever decodes is a snapshot, so it encodes to one that decodes to the same.
                assert_eq!(Snapshot::decode(&encoded(&snapshot), KEY), Ok(snapshot));
            }
        }
    }
}

const GOLDEN_1: &[u8] = include_bytes!("../../../testdata/bucket/version-1.catalogue");
const GOLDEN_2: &[u8] = include_bytes!("../../../testdata/bucket/version-2.catalogue");
const GOLDEN_3: &[u8] = include_bytes!("../../../testdata/bucket/version-3.catalogue");
const GOLDEN_4: &[u8] = include_bytes!("../../../testdata/bucket/version-4.catalogue");
const GOLDEN_5: &[u8] = include_bytes!("../../../testdata/bucket/version-5.catalogue");

#[test]
fn golden_files_read_as_ever() {
    for (snapshot, golden) in [(with_etags(), GOLDEN_4), (with_cuts(), GOLDEN_5)] {
        assert_eq!(
            encoded(&snapshot),
            golden,
            "the bytes that are written have changed: that needs a version"
        );
    }
    assert_eq!(Snapshot::decode(GOLDEN_1, KEY), Ok(snapshot(9)));
    assert_eq!(Snapshot::decode(GOLDEN_2, KEY), Ok(with_rollups()));
    assert_eq!(Snapshot::decode(GOLDEN_3, KEY), Ok(with_rollups()));
    assert_eq!(Snapshot::decode(GOLDEN_4, KEY), Ok(with_etags()));
    assert_eq!(Snapshot::decode(GOLDEN_5, KEY), Ok(with_cuts()));
}
