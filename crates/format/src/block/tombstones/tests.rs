//! Tombstones: joining, golden file, damage at every byte.

use super::*;

const GOLDEN: &[u8] = include_bytes!("../../../testdata/golden/prometheus-3-deleted/tombstones");
const GOLDEN_NONE: &[u8] = include_bytes!("../../../testdata/golden/prometheus-2.42/tombstones");

fn of(intervals: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut t = Tombstones::new();
    intervals.iter().for_each(|&(first, last)| t.add(1, Interval { first, last }));
    t.get(1).iter().map(|i| (i.first, i.last)).collect()
}

#[test]
fn touching_intervals_join() {
    assert_eq!(of(&[(5, 7), (1, 2)]), [(1, 2), (5, 7)]);
    assert_eq!(of(&[(5, 7), (1, 4)]), [(1, 7)]);
    assert_eq!(of(&[(1, 2), (5, 7), (9, 9), (2, 8)]), [(1, 9)]);
    assert_eq!(of(&[(1, 9), (3, 4)]), [(1, 9)]);
    assert_eq!(of(&[(4, 3)]), []);
    assert_eq!(of(&[(i64::MIN, i64::MAX), (0, 0)]), [(i64::MIN, i64::MAX)]);
    assert_eq!(of(&[(0, i64::MAX), (i64::MIN, -2)]), [(i64::MIN, -2), (0, i64::MAX)]);
}

#[test]
fn the_golden_files_are_read_and_written_byte_for_byte() {
    let read = Tombstones::decode(GOLDEN).unwrap();
    let mut want = Tombstones::new();
    want.add(9, Interval { first: -5, last: 1_600_000_000_000 });
    want.add(9, Interval { first: 1_600_000_000_002, last: 1_600_000_000_003 });
    assert_eq!(read, want);
    assert_eq!(read.interval_count(), 2);
    let mut out = Vec::new();
    read.encode(&mut out);
    assert_eq!(out, GOLDEN);
    assert!(Tombstones::decode(GOLDEN_NONE).unwrap().is_empty());
}

#[test]
fn every_flipped_or_missing_byte_is_noticed() {
    for at in 0..GOLDEN.len() {
        let mut bad = GOLDEN.to_vec();
        bad[at] ^= 1;
        assert!(Tombstones::decode(&bad).is_err(), "byte {at}");
        assert!(Tombstones::decode(&GOLDEN[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn tombstones_in_nanoseconds_have_a_version_of_their_own() {
    for unit in [TimeUnit::Milli, TimeUnit::Nano] {
        let mut tombstones = Tombstones::of_unit(unit);
        tombstones.add(7, Interval { first: i64::MIN, last: -9_223_372_036_854_775_806 });
        let mut bytes = Vec::new();
        tombstones.encode(&mut bytes);
        assert_eq!(bytes[4], if unit == TimeUnit::Milli { 1 } else { 2 });
        let again = Tombstones::decode(&bytes).unwrap();
        assert_eq!((again.unit(), &again), (unit, &tombstones));
        bytes[4] = 3;
        assert!(Tombstones::decode(&bytes).is_err());
    }
}
