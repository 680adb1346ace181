//! Files as Mimir and Thanos write them are read; unknown fields are ignored; damage, forged sizes and later
//! versions are errors.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::{any, prop};

use super::file::gunzip_within;
use super::*;
use crate::block::meta::{BlockMeta, Ulid};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

const BLOCK: &str = "01JDB5W8X9YZ0123456789ABCD";
const OTHER: &str = "01JDB5W8X9YZ0123456789ABCE";

fn ulid(text: &str) -> Ulid {
    text.parse().expect("is a ULID")
}

fn index(version: i64) -> String {
    format!(
        r#"{{"version":{version},"blocks":[
            {{"block_id":"{BLOCK}","min_time":1000,"max_time":2000,"segments_format":"1b6d","segments_num":3,
              "uploaded_at":1700000000,"compactor_shard_id":"1_of_4","source":"compactor","compaction_level":2,
              "out_of_order":true,"labels":{{"a":"b"}},"later":{{"x":[1]}}}},
            {{"block_id":"{OTHER}","min_time":-5,"max_time":7,"uploaded_at":0,"labels":null}}],
          "block_deletion_marks":[{{"block_id":"{OTHER}","deletion_time":1700000001}}],
          "updated_at":1700000002,"later":1}}"#
    )
}

#[test]
fn a_bucket_index_is_read() {
    for version in 1..=3 {
        let found = BucketIndex::decode(&gzip(index(version).as_bytes())).expect("reads");
        assert_eq!((found.version, found.updated_at), (version, 1_700_000_002));
        let [first, second] = found.blocks.as_slice() else { panic!("{found:?}") };
        assert_eq!((first.block_id, first.min_time, first.max_time), (ulid(BLOCK), 1000, 2000));
        assert_eq!((&*first.segments_format, first.segments_num), ("1b6d", 3));
        assert_eq!((&*first.compactor_shard_id, first.compaction_level), ("1_of_4", 2));
        assert!(first.out_of_order && first.labels["a"] == "b");
        assert!(!second.out_of_order && second.labels.is_empty() && second.segments_num == 0);
        let mark = IndexedMark { block_id: ulid(OTHER), deletion_time: 1_700_000_001 };
        assert_eq!(found.block_deletion_marks, [mark]);
    }
}

#[test]
fn an_empty_bucket_index_has_null_lists() {
    let text = r#"{"version":2,"blocks":null,"block_deletion_marks":null,"updated_at":1}"#;
    let found = BucketIndex::decode(&gzip(text.as_bytes())).expect("reads");
    assert!(found.blocks.is_empty() && found.block_deletion_marks.is_empty());
}

#[test]
fn a_later_or_damaged_bucket_index_is_refused() {
    let later = BucketIndex::decode(&gzip(index(4).as_bytes()));
    assert!(matches!(later, Err(MimirError::Version { found: 4, .. })));
    assert!(matches!(BucketIndex::decode(&gzip(b"{")), Err(MimirError::Json { .. })));
    let whole = gzip(index(2).as_bytes());
    for at in 0..whole.len() {
        assert!(BucketIndex::decode(&whole[..at]).is_err(), "cut at {at}");
    }
    assert!(matches!(BucketIndex::decode(b"{}"), Err(MimirError::Gzip { .. })));
}

#[test]
fn a_file_that_unpacks_to_too_much_is_refused() {
    let bomb = gzip(&vec![b' '; 1 << 20]);
    assert!(bomb.len() < 4096);
    let refused = gunzip_within("file", &bomb, (1 << 20) - 1);
    assert!(matches!(refused, Err(MimirError::TooLong { .. })));
    assert_eq!(gunzip_within("file", &bomb, 1 << 20).expect("fits").len(), 1 << 20);
}

#[test]
fn marks_are_read() {
    let text = format!(r#"{{"id":"{BLOCK}","version":1,"deletion_time":17,"details":"old","later":2}}"#);
    let mark = DeletionMark::decode(text.as_bytes()).expect("reads");
    assert_eq!((mark.id, mark.deletion_time, &*mark.details), (ulid(BLOCK), 17, "old"));
    let text = format!(r#"{{"id":"{BLOCK}","version":1,"no_compact_time":18,"reason":"manual"}}"#);
    let mark = NoCompactMark::decode(text.as_bytes()).expect("reads");
    assert_eq!((mark.id, mark.no_compact_time, &*mark.reason), (ulid(BLOCK), 18, "manual"));
    let later = format!(r#"{{"id":"{BLOCK}","version":2,"deletion_time":17}}"#);
    assert!(matches!(DeletionMark::decode(later.as_bytes()), Err(MimirError::Version { .. })));
    assert!(DeletionMark::decode(&vec![b' '; MARK_BYTES_MAX + 1]).is_err());
    assert!(NoCompactMark::decode(b"").is_err());
}

#[test]
fn a_mark_of_an_upload_has_the_form_of_thanos() {
    let mark = NoCompactMark::of_upload(ulid(BLOCK), "of a server".to_owned());
    let mut text = Vec::new();
    mark.encode(&mut text);
    let seconds = ulid(BLOCK).time_ms() / 1000;
    let want = format!(
        r#"{{"id":"{BLOCK}","version":1,"no_compact_time":{seconds},"reason":"chronolith","details":"of a server"}}"#
    );
    assert_eq!(String::from_utf8(text.clone()).expect("text"), want);
    assert_eq!(NoCompactMark::decode(&text).expect("reads"), mark);
}

#[test]
fn names_of_deletion_markers_round_trip() {
    let name = deletion_marker_name(ulid(BLOCK));
    assert_eq!(name, format!("markers/{BLOCK}-deletion-mark.json"));
    assert_eq!(deletion_marker_of(&name), Some(ulid(BLOCK)));
    let no_compact = format!("markers/{BLOCK}-no-compact-mark.json");
    for other in ["markers/deletion-mark.json", &no_compact, &name[1..], "markers/x-deletion-mark.json"] {
        assert_eq!(deletion_marker_of(other), None, "{other}");
    }
}

fn meta(thanos: &str) -> BlockMeta {
    let text = format!(
        r#"{{"ulid":"{BLOCK}","minTime":0,"maxTime":1,"compaction":{{"level":1}},"version":1{thanos}}}"#
    );
    BlockMeta::decode(text.as_bytes()).expect("reads")
}

#[test]
fn the_thanos_section_is_read() {
    let section = r#","thanos":{"version":1,"labels":{"tenant":"x"},"downsample":{"resolution":300000},
        "source":"compactor","segment_files":["000001"],"later":true,
        "files":[{"rel_path":"chunks/000001","size_bytes":99,"hash":{"func":"SHA256"}},{"rel_path":"meta.json"}]}"#;
    let found = ThanosMeta::of(&meta(section)).expect("reads").expect("is there");
    assert_eq!((&*found.labels["tenant"], &*found.source), ("x", "compactor"));
    assert!(found.is_downsampled());
    assert_eq!(found.size_of("chunks/000001"), Some(99));
    assert_eq!((found.size_of("meta.json"), found.size_of("index")), (None, None));
    // Before versions were written; Mimir leaves lists out or null.
    let section =
        r#","thanos":{"labels":null,"downsample":{"resolution":0},"source":"receive","files":null}"#;
    let found = ThanosMeta::of(&meta(section)).expect("reads").expect("is there");
    assert!(!found.is_downsampled() && found.labels.is_empty());
    assert_eq!(ThanosMeta::of(&meta("")).expect("reads"), None);
}

#[test]
fn the_thanos_section_is_written_as_thanos_does() {
    let file = |rel_path: &str, size_bytes| ThanosFile { rel_path: rel_path.to_owned(), size_bytes };
    let section = ThanosMeta::of_upload(vec![file("index", 9), file("meta.json", 0)]);
    let mut written = meta(r#","thanos":{"version":1,"source":"sidecar"}"#);
    section.put_into(&mut written);
    let expected = serde_json::json!({
        "version": 1, "labels": {}, "downsample": {"resolution": 0}, "source": "chronolith",
        "files": [{"rel_path": "index", "size_bytes": 9}, {"rel_path": "meta.json"}],
    });
    assert_eq!(written.unknown.get("thanos"), Some(&expected));
    assert_eq!(ThanosMeta::of(&written).expect("reads"), Some(section.clone()));
    let of_sidecar = meta(r#","thanos":{"version":1,"source":"sidecar"}"#);
    let mut of_sidecar = ThanosMeta::of(&of_sidecar).expect("reads").expect("a section");
    assert!(section.is_of_chronolith() && !of_sidecar.is_of_chronolith());
    of_sidecar.set_producer([("cluster".to_owned(), "eu".to_owned())].into());
    of_sidecar.upload_time = "2026-11-28T10:00:00.000Z".to_owned();
    of_sidecar.put_into(&mut written);
    let expected = serde_json::json!({
        "version": 1, "labels": {"cluster": "eu"}, "downsample": {"resolution": 0}, "source": "chronolith",
        "files": [], "upload_time": "2026-11-28T10:00:00.000Z",
    });
    assert_eq!(written.unknown.get("thanos"), Some(&expected));
}

#[test]
fn a_thanos_section_of_another_form_is_refused() {
    assert!(matches!(ThanosMeta::of(&meta(r#","thanos":{"version":2}"#)), Err(MimirError::Version { .. })));
    assert!(matches!(ThanosMeta::of(&meta(r#","thanos":7"#)), Err(MimirError::Json { .. })));
}

/// Appends a field with a length.
fn put_bytes(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(field << 3 | 2);
    chronolith_base::bytes::put_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(field: u8, value: u64, out: &mut Vec<u8>) {
    out.push(field << 3);
    chronolith_base::bytes::put_uvarint(out, value);
}

/// The message, with every 32nd value of the names, their last ones, and fields that no version has.
fn sparse_message(names: &[(&str, &[(&str, u64)])]) -> Vec<u8> {
    let mut symbols = Vec::new();
    put_bytes(1, &[8, 0x80, 1], &mut symbols);
    put_varint(2, 40, &mut symbols);
    let mut table = Vec::new();
    for (name, values) in names {
        let mut offsets = Vec::new();
        for (value, offset) in *values {
            let mut sample = Vec::new();
            put_bytes(1, value.as_bytes(), &mut sample);
            put_varint(2, *offset, &mut sample);
            put_bytes(1, &sample, &mut offsets);
        }
        put_varint(2, 4096, &mut offsets);
        let mut entry = Vec::new();
        put_bytes(1, name.as_bytes(), &mut entry);
        put_bytes(2, &offsets, &mut entry);
        put_bytes(1, &entry, &mut table);
    }
    put_varint(2, 32, &mut table);
    let mut out = Vec::new();
    put_bytes(1, &symbols, &mut out);
    put_bytes(2, &table, &mut out);
    out.extend_from_slice(&[9 << 3 | 5, 1, 2, 3, 4, 10 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    out
}

/// Maps have no order in protobuf.
const NAMES: [(&str, &[(&str, u64)]); 3] = [
    ("pod", &[("a00", 12), ("b00", 300), ("b32", 700), ("c07", 900)]),
    ("", &[("", 8)]),
    ("zone", &[("x", 920)]),
];

#[test]
fn a_sparse_index_header_is_read() {
    let header = SparseHeader::decode(&gzip(&sparse_message(&NAMES))).expect("reads");
    assert_eq!((header.symbol_count, header.stride), (40, 32));
    assert_eq!(header.symbol_offsets, [8, 128]);
    assert_eq!(header.label_names().collect::<Vec<_>>(), ["pod", "zone"]);
    assert_eq!(header.names[1].last_list_end, 4096);
    assert_eq!(header.range_of("", ""), Some((8, Some(300))));
    assert_eq!(header.range_of("pod", "a00"), Some((12, Some(700))));
    assert_eq!(header.range_of("pod", "a05"), Some((12, Some(700))));
    assert_eq!(header.range_of("pod", "b32"), Some((700, Some(920))));
    assert_eq!(header.range_of("pod", "c07"), Some((900, None)));
    assert_eq!(header.range_of("zone", "x"), Some((920, None)));
    for (name, value) in [("none", "x"), ("pod", ""), ("pod", "c08"), ("zone", "w"), ("zone", "y")] {
        assert_eq!(header.range_of(name, value), None, "{name} {value}");
    }
    assert_eq!(header.range_of_prefix("pod", "b"), Some((12, Some(920))));
    assert_eq!(header.range_of_prefix("pod", ""), Some((12, None)));
    assert_eq!(header.range_of_prefix("pod", "c1"), None);
    assert_eq!(header.range_of_prefix("pod", "A"), None);
}

#[test]
fn offsets_from_another_origin_are_shifted() {
    let header = SparseHeader::decode(&gzip(&sparse_message(&[("", &[("", 4)]), ("a", &[("b", 9)])])));
    assert_eq!(header.expect("reads").range_of("a", "b"), Some((13, None)));
}

#[test]
fn a_damaged_sparse_index_header_is_refused() {
    let whole = gzip(&sparse_message(&NAMES));
    for at in 0..whole.len() {
        assert!(SparseHeader::decode(&whole[..at]).is_err(), "cut at {at}");
    }
    let descending = sparse_message(&[("pod", &[("b", 9), ("a", 12)])]);
    assert!(matches!(SparseHeader::decode(&gzip(&descending)), Err(MimirError::Protobuf { .. })));
    let groups = [1 << 3 | 3];
    assert!(SparseHeader::decode(&gzip(&groups)).is_err());
}

proptest::proptest! {
    #[test]
    fn forged_files_end_without_panic(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        junk in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut message = sparse_message(&NAMES);
        let idx = at.index(message.len());
        message[idx] = byte;
        for message in [message, junk] {
            let Ok(header) = SparseHeader::decode(&gzip(&message)) else { continue };
            for name in &header.names {
                for sample in &name.values {
                    let range = header.range_of(&name.name, &sample.value);
                    assert!(range.is_none_or(|(start, end)| end.is_none_or(|end| start < end)));
                }
            }
        }
        let mut text = index(2).into_bytes();
        let idx = at.index(text.len());
        text[idx] = byte;
        drop(BucketIndex::decode(&gzip(&text)));
    }
}
