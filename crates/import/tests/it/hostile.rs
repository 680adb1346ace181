//! Damaged sources: for any flipped or cut byte, an import ends, imports no sample that was not written, and
//! reports the missing parts.

use std::path::Path;

use crate::test_env::log::{PAGE_BYTES, Packing, samples, segment, series, tombstone};
use crate::test_env::{Samples, TestEnv};
use chronolith_import::ImportReport;
use proptest::prelude::*;

const TIME: i64 = 1_700_000_000_000;
const SEGMENT: &str = "wal/00000000";

/// Records of two series whose samples fill more than a page.
fn records() -> Vec<Vec<u8>> {
    let mut records = vec![series(1, &[("__name__", "a"), ("x", "y")]), series(2, &[("__name__", "b")])];
    for step in 0..40i64 {
        records.push(samples(&[
            (1, TIME + step * 15_000, step as f64 * 1.25),
            (2, TIME + step * 15_000, -(step as f64)),
        ]));
    }
    records
}

fn import(bytes: &[u8]) -> (ImportReport, Samples) {
    let test = TestEnv::new();
    test.put(Path::new(SEGMENT), bytes);
    // Damage at the end of the last segment counts as torn, so another segment follows.
    test.put(Path::new("wal/00000001"), &segment(&[series(9, &[("__name__", "last")])], Packing::None));
    let report = test.import().unwrap();
    let samples = test.samples();
    (report, samples)
}

#[track_caller]
fn check(bytes: &[u8], whole: &Samples, place: &str) {
    let (report, found) = import(bytes);
    for (key, bits) in &found {
        assert_eq!(whole.get(key), Some(bits), "{place}: {key:?} was never written");
    }
    let head = &report.head;
    let named = !report.damages.is_empty()
        || head.skipped.unknown_series + head.unknown_records + head.rejected_series > 0;
    assert!(
        named || found.len() == whole.len(),
        "{place}: {} of {} samples, and no loss is reported",
        found.len(),
        whole.len()
    );
}

#[test]
fn every_flipped_byte_is_reported_as_damage() {
    for packing in [Packing::None, Packing::Snappy] {
        let bytes = segment(&records(), packing);
        let (_, whole) = import(&bytes);
        assert_eq!(whole.len(), 80);
        for at in 0..bytes.len() {
            for mask in [0x01, 0x08, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[at] ^= mask;
                check(&bad, &whole, &format!("{packing:?} byte {at} mask {mask:#x}"));
            }
        }
    }
}

#[test]
fn a_cut_segment_keeps_the_samples_before_the_cut() {
    let bytes = segment(&records(), Packing::Snappy);
    let (_, whole) = import(&bytes);
    let mut before = 0;
    for len in 0..bytes.len() {
        let (report, found) = import(&bytes[..len]);
        assert!(found.iter().all(|(key, bits)| whole.get(key) == Some(bits)), "cut at {len}");
        assert!(found.len() >= before, "cut at {len}");
        before = found.len();
        assert!(report.damages.len() <= 1, "{report:?}");
    }
}

#[test]
fn damage_ends_at_the_next_page() {
    let mut all = vec![series(1, &[("__name__", "a")])];
    for step in 0..6000i64 {
        all.push(samples(&[(1, TIME + step * 1000, step as f64)]));
    }
    let bytes = segment(&all, Packing::None);
    let page_count = bytes.len().div_ceil(PAGE_BYTES);
    assert!(page_count > 5);
    let mut bad = bytes.clone();
    bad[2 * PAGE_BYTES + 100] ^= 1;
    let (report, found) = import(&bad);
    assert_eq!(report.damages.len(), 1, "{:?}", report.damages);
    assert_eq!(report.damages[0].offset / PAGE_BYTES as u64, 2);
    let lost = 6000 - found.len();
    assert!((1..=PAGE_BYTES / 30 + 2).contains(&lost), "{lost}");
}

#[test]
fn losses_of_damaged_golden_files_are_reported() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/prometheus-3");
    let mut test = TestEnv::new();
    test.copy_dir(&golden);
    test.import().unwrap();
    let whole = test.samples();
    let mut random = 1u64;
    for round in 0..60 {
        let file = ["chunks_head/000001", "wal/00000000", "wal/00000001", "wbl/00000000"][round % 4];
        let mut test = TestEnv::new();
        test.copy_dir(&golden);
        let path = Path::new(crate::test_env::SOURCE).join(file);
        let mut bytes = test.env.disk.read(&path).unwrap();
        let used = bytes.iter().rposition(|&b| b != 0).unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) as usize % used;
        bytes[at] ^= 1 << (round % 8);
        test.put(Path::new(file), &bytes);
        let report = test.import().unwrap();
        let found = test.samples();
        for (key, bits) in &found {
            // A lost tombstone or first value makes a sample visible that was written, too.
            let is_known =
                whole.get(key) == Some(bits) || key.0.contains("i=\"4\"") || key.0.contains("twice");
            assert!(is_known, "{file} byte {at}: {key:?}");
        }
        let named =
            !report.damages.is_empty() || !report.notes.is_empty() || report.head.skipped.unknown_series > 1;
        assert!(named || found.len() == whole.len(), "{file} byte {at}: {} of {}", found.len(), whole.len());
        if file.starts_with("chunks_head") {
            let fewer = whole.len() - found.len();
            assert!(
                fewer == 0 || file != "chunks_head/000001" || fewer < 600,
                "the log fills in: {fewer} lost"
            );
        }
    }
}

#[test]
fn duplicates_out_of_order_samples_and_tombstones() {
    let test = TestEnv::new();
    let all = [
        series(1, &[("__name__", "a")]),
        samples(&[(1, TIME, 1.0), (1, TIME + 10, 2.0), (1, TIME + 10, 9.0), (1, TIME + 30, 3.0)]),
        samples(&[(1, TIME + 20, 4.0), (1, TIME + 20, 5.0), (1, TIME, 6.0), (1, TIME + 10, 2.0)]),
        series(2, &[("__name__", "a")]),
        samples(&[(2, TIME + 40, 7.0)]),
        tombstone(2, TIME + 25, TIME + 35),
        series(3, &[("__name__", "gone")]),
        samples(&[(3, TIME, 1.0)]),
        tombstone(3, i64::MIN, i64::MAX),
        samples(&[(3, TIME + 1, 1.0), (4, TIME, 1.0)]),
        series(5, &[("__name__", "gone")]),
        samples(&[(5, TIME + 2, 8.0)]),
        samples(&[(5, i64::MAX, 1.0)]),
    ];
    test.put(Path::new(SEGMENT), &segment(&all, Packing::Snappy));
    let report = test.import().unwrap();
    let found: Vec<_> =
        test.samples().into_iter().map(|((l, t), bits)| (l, t - TIME, f64::from_bits(bits))).collect();
    let a = r#"{__name__="a"}"#;
    let gone = r#"{__name__="gone"}"#;
    let expected = [(a, 0, 1.0), (a, 10, 2.0), (a, 20, 4.0), (a, 40, 7.0), (gone, 2, 8.0)];
    assert_eq!(found, expected.map(|(l, t, v)| (l.to_owned(), t, v)));
    let head = &report.head;
    assert_eq!((head.skipped.unknown_series, head.skipped.out_of_bounds), (2, 1), "{head:?}");
    assert_eq!((head.skipped.dropped_series, head.tombstones), (1, 1), "{head:?}");
}

#[test]
fn an_interrupted_import_leaves_no_duplicate_blocks() {
    let mut test = TestEnv::new();
    test.copy_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/prometheus-3"));
    test.import().unwrap();
    let whole = test.samples();
    // State of an import that wrote its blocks and ended before it recorded them.
    let state = Path::new("/data/import/anonymous.json");
    let text = String::from_utf8(test.env.disk.read(state).unwrap()).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["pending"] = json["heads"][0]["blocks"].take();
    json["heads"] = serde_json::json!([]);
    test.env.disk.write_atomic(state, json.to_string().as_bytes()).unwrap();
    let report = test.import().unwrap();
    let (blocks, _) = chronolith_block::open_dir(&test.env, Path::new(crate::test_env::BLOCKS));
    assert_eq!(blocks.len(), report.head_blocks.len(), "the blocks of the first run are gone");
    assert_eq!(test.samples(), whole);
}

#[test]
fn importing_a_grown_log_replaces_its_blocks() {
    let test = TestEnv::new();
    let mut all = records();
    test.put(Path::new(SEGMENT), &segment(&all, Packing::None));
    test.import().unwrap();
    all.push(samples(&[(1, TIME + 3_600_000, 1.0)]));
    test.put(Path::new(SEGMENT), &segment(&all, Packing::None));
    let report = test.import().unwrap();
    let (blocks, _) = chronolith_block::open_dir(&test.env, Path::new(crate::test_env::BLOCKS));
    assert_eq!((blocks.len(), report.head_blocks.len()), (1, 1));
    assert_eq!(test.samples().len(), 81);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn import_of_arbitrary_files_ends(bytes in prop::collection::vec(any::<u8>(), 1..3000)) {
        let test = TestEnv::new();
        test.put(Path::new(SEGMENT), &bytes);
        test.put(Path::new("chunks_head/000001"), &bytes);
        test.put(Path::new("wbl/00000000"), &bytes);
        prop_assert!(test.import().is_ok());
    }

    #[test]
    fn import_of_arbitrary_records_ends(kind in 1u8..15, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let test = TestEnv::new();
        let record = [vec![kind], body].concat();
        let all = [series(1, &[("__name__", "a")]), record];
        test.put(Path::new(SEGMENT), &segment(&all, Packing::None));
        prop_assert!(test.import().is_ok());
    }

    #[test]
    fn the_first_sample_of_each_timestamp_is_imported(
        all in prop::collection::vec((1u64..4, 0i64..400, any::<u64>()), 1..400)
    ) {
        let test = TestEnv::new();
        let mut records: Vec<_> = (1..4).map(|r| series(r, &[("__name__", "a"), ("r", &r.to_string())])).collect();
        let mut expected = Samples::new();
        for part in all.chunks(7) {
            let part: Vec<_> = part.iter().map(|&(r, t, bits)| (r, TIME + t * 600_000, f64::from_bits(bits))).collect();
            for &(r, t, v) in &part {
                let labels = format!("{{__name__=\"a\", r=\"{r}\"}}");
                expected.entry((labels, t)).or_insert(v.to_bits());
            }
            records.push(samples(&part));
        }
        test.put(Path::new(SEGMENT), &segment(&records, Packing::Snappy));
        test.import().unwrap();
        prop_assert_eq!(test.samples(), expected);
    }
}
