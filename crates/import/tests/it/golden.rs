//! Imports of heads that Prometheus wrote: the samples equal those that Prometheus itself reads from them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::test_env::TestEnv;

/// Value of a staleness marker.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

fn lines(text: &str) -> impl Iterator<Item = (String, i64, &str)> {
    text.lines().map(|line| {
        let mut fields = line.split('\t');
        let (labels, time) = (fields.next().unwrap().to_owned(), fields.next().unwrap().parse().unwrap());
        (labels, time, fields.next().unwrap())
    })
}

fn golden(name: &str) -> TestEnv {
    let mut test = TestEnv::new();
    test.copy_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name));
    test
}

#[test]
fn prometheus_2_42_after_a_kill() {
    let test = golden("prometheus-2.42");
    let report = test.import().unwrap();
    assert_eq!((&report.damages, report.head.skipped.unknown_series), (&Vec::new(), 0), "{report:?}");
    let mut found = test.samples();
    let text = include_str!("../../testdata/prometheus-2.42.tsv");
    let expected: BTreeMap<_, u64> = lines(text)
        .map(|(labels, time, value)| ((labels, time), value.parse::<f64>().unwrap()))
        .map(|(key, value)| (key, if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }))
        .collect();
    found.retain(|_, bits| *bits != STALE_BITS);
    found
        .values_mut()
        .filter(|bits| f64::from_bits(**bits).is_nan())
        .for_each(|bits| *bits = f64::NAN.to_bits());
    // Samples that it scraped after the query are in the log only.
    for (key, bits) in &expected {
        assert_eq!(found.get(key), Some(bits), "{key:?}");
    }
    assert!(found.len() < expected.len() + 200, "{} and {}", found.len(), expected.len());
}

#[test]
fn prometheus_3_with_all_record_types() {
    let test = golden("prometheus-3");
    let report = test.import().unwrap();
    assert_eq!(report.damages, []);
    let text = include_str!("../../testdata/prometheus-3.tsv");
    let expected: BTreeMap<_, u64> = lines(text)
        .map(|(labels, time, bits)| ((labels, time), u64::from_str_radix(bits, 16).unwrap()))
        .collect();
    let found = test.samples();
    let mut histograms = found;
    let found = histograms.extract_if(.., |key, _| expected.contains_key(key)).collect::<BTreeMap<_, _>>();
    assert_eq!(found, expected);
    let head = &report.head;
    assert_eq!((head.exemplars, head.metadata), (8, 8), "{head:?}");
    assert_eq!((head.histograms_written, histograms.len()), (90, 90), "{head:?}");
    assert_eq!((head.unknown_records, head.skipped.unknown_series, head.tombstones), (1, 1, 1), "{head:?}");
    assert_eq!(head.skipped.conflicting, 1, "the second value of a time: {head:?}");
    assert!(head.out_of_order_samples >= 3 * 180, "{head:?}");
    assert!(head.skipped.mapped > 0, "m-mapped chunks and the log overlap: {head:?}");
}

#[test]
fn a_second_import_adds_no_samples() {
    let test = golden("prometheus-3");
    test.import().unwrap();
    let before = test.samples();
    let report = test.import().unwrap();
    assert!(report.head_present && report.head_blocks.is_empty(), "{report:?}");
    assert_eq!(test.samples(), before);
}
