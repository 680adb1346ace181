//! Records that only a checkpoint has, and samples whose series a checkpoint leaves out.

use std::path::Path;

use crate::test_env::TestEnv;
use crate::test_env::log::{Packing, min_valid_time, samples, segment, series};
use chronolith_import::{HeadCounts, ImportReport};

const TIME: i64 = 1_700_000_000_000;

/// Imports a checkpoint with `records` and a WAL of a series `kept` (ref 1) and a series without a record
/// (ref 2), with a sample each at the seconds -2 to 2 around `TIME`.
fn import(checkpoint: &[Vec<u8>]) -> (ImportReport, Vec<i64>) {
    let test = TestEnv::new();
    test.put(Path::new("wal/checkpoint.00000001/00000000"), &segment(checkpoint, Packing::Snappy));
    let scrapes = (-2..=2).map(|second| {
        let time = TIME + second * 1000;
        samples(&[(1, time, 1.0), (2, time, 2.0)])
    });
    test.put(Path::new("wal/00000002"), &segment(&scrapes.collect::<Vec<_>>(), Packing::Snappy));
    let report = test.import().unwrap();
    let seconds = test.samples().keys().map(|(_, time)| (time - TIME) / 1000).collect();
    (report, seconds)
}

fn kept() -> Vec<u8> {
    series(1, &[("__name__", "kept")])
}

#[track_caller]
fn check(record: &[u8], seconds: &[i64], in_block: u64, unknown_series: u64) {
    let (report, found) = import(&[record.to_vec(), kept()]);
    assert_eq!((found.as_slice(), report.damages.as_slice()), (seconds, &[][..]));
    let HeadCounts { skipped, unknown_records, .. } = report.head;
    assert_eq!((skipped.in_block, skipped.unknown_series, unknown_records), (in_block, unknown_series, 0));
}

/// A head of Prometheus 3.16 was imported with "1 records of a kind that this version does not know", and
/// samples that only its blocks should give came from the WAL as well. The record ends the blocks: in-order
/// samples before it are skipped, also for series that the checkpoint leaves out.
#[test]
fn the_end_of_blocks_in_a_checkpoint_skips_older_samples() {
    check(&min_valid_time(TIME), &[0, 1, 2], 4, 3);
    check(&min_valid_time(TIME - 2000), &[-2, -1, 0, 1, 2], 0, 5);
    check(&min_valid_time(TIME - 1999), &[-1, 0, 1, 2], 2, 4);
    check(&min_valid_time(TIME + 2000), &[2], 8, 1);
    for nothing in [TIME + 2001, i64::MAX] {
        check(&min_valid_time(nothing), &[], 10, 0);
    }
    for all in [i64::MIN, -1, 0, TIME - 7_200_000] {
        check(&min_valid_time(all), &[-2, -1, 0, 1, 2], 0, 5);
    }
}

#[test]
fn a_damaged_end_of_blocks_is_reported_and_skips_nothing() {
    let good = min_valid_time(TIME);
    for len in 1..good.len() {
        let (report, seconds) = import(&[good[..len].to_vec(), kept()]);
        assert_eq!((seconds.len(), report.damages.len()), (5, 1), "cut to {len}");
    }
    let (report, seconds) = import(&[[good, vec![0]].concat(), kept()]);
    assert_eq!((seconds.len(), report.damages.len()), (5, 1), "{:?}", report.damages);
}

#[test]
fn types_of_unknown_records_are_named() {
    let records = [15, 200, 15, 255, 0].map(|number| vec![number, 1, 2, 3]);
    let (report, seconds) = import(&[records.to_vec(), vec![kept()]].concat());
    assert_eq!((seconds.len(), report.head.unknown_records), (5, 5));
    assert_eq!(report.head.unknown_record_types, [0, 15, 200, 255].into());
}
