//! Heads that Prometheus wrote: what comes out of an import is what Prometheus itself reads out of them.

mod world;

use std::collections::BTreeMap;
use std::path::Path;

use world::World;

/// Value of a staleness marker.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;

fn lines(text: &str) -> impl Iterator<Item = (String, i64, &str)> {
    text.lines().map(|line| {
        let mut fields = line.split('\t');
        let (labels, time) = (fields.next().unwrap().to_owned(), fields.next().unwrap().parse().unwrap());
        (labels, time, fields.next().unwrap())
    })
}

fn world(name: &str) -> World {
    let mut world = World::new();
    world.take_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name));
    world
}

#[test]
fn prometheus_2_42_after_a_kill() {
    let world = world("prometheus-2.42");
    let report = world.import().unwrap();
    assert_eq!((&report.damages, report.head.unknown_series_samples), (&Vec::new(), 0), "{report:?}");
    let mut found = world.samples();
    let text = include_str!("../testdata/prometheus-2.42.tsv");
    let expected: BTreeMap<_, u64> = lines(text)
        .map(|(labels, time, value)| ((labels, time), value.parse::<f64>().unwrap()))
        .map(|(key, value)| (key, if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }))
        .collect();
    found.retain(|_, bits| *bits != STALE_BITS);
    found
        .values_mut()
        .filter(|bits| f64::from_bits(**bits).is_nan())
        .for_each(|bits| *bits = f64::NAN.to_bits());
    // What it scraped between its answer and its end is in the log only; what it answered is all there.
    for (key, bits) in &expected {
        assert_eq!(found.get(key), Some(bits), "{key:?}");
    }
    assert!(found.len() < expected.len() + 200, "{} and {}", found.len(), expected.len());
}

#[test]
fn prometheus_3_with_every_kind_of_record() {
    let world = world("prometheus-3");
    let report = world.import().unwrap();
    assert_eq!(report.damages, []);
    let text = include_str!("../testdata/prometheus-3.tsv");
    let expected: BTreeMap<_, u64> = lines(text)
        .map(|(labels, time, bits)| ((labels, time), u64::from_str_radix(bits, 16).unwrap()))
        .collect();
    let found = world.samples();
    let mut histograms = found;
    let found = histograms.extract_if(.., |key, _| expected.contains_key(key)).collect::<BTreeMap<_, _>>();
    assert_eq!(found, expected);
    let head = &report.head;
    assert_eq!((head.exemplars, head.metadata), (8, 8), "{head:?}");
    assert_eq!((head.histograms_written, histograms.len()), (90, 90), "{head:?}");
    assert_eq!((head.unknown_records, head.unknown_series_samples, head.tombstones), (1, 1, 1), "{head:?}");
    assert_eq!(head.conflicting_samples, 1, "the second value of a time: {head:?}");
    assert!(head.late_samples >= 3 * 180, "{head:?}");
    assert!(head.mapped_samples > 0, "m-mapped chunks and the log overlap: {head:?}");
}

#[test]
fn a_second_import_brings_nothing() {
    let world = world("prometheus-3");
    world.import().unwrap();
    let before = world.samples();
    let report = world.import().unwrap();
    assert!(report.head_present && report.head_blocks.is_empty(), "{report:?}");
    assert_eq!(world.samples(), before);
}
