//! Points of archives: rings, retention, finer archives first, and points that are left out.

use chronolith_base::Rng;
use chronolith_ingest::carbon::AggregationMethod;

use super::*;
use crate::whisper::FileBuilder;

/// Six points every 10 s, five every minute, four every 5 minutes.
const ARCHIVES: [Archive; 3] = [
    Archive { step_s: 10, point_count: 6 },
    Archive { step_s: 60, point_count: 5 },
    Archive { step_s: 300, point_count: 4 },
];
const NOW_S: i64 = 10_000_000;

fn file(archives: [&[(u32, f64)]; 3]) -> Vec<u8> {
    let mut builder = FileBuilder::new(AggregationMethod::Average, 0.5, &ARCHIVES).unwrap();
    for (idx, points) in archives.iter().enumerate() {
        builder.put_points(idx, points.iter().copied());
    }
    builder.into_bytes()
}

fn render(points: &FilePoints) -> String {
    let mut parts: Vec<String> = points
        .times
        .iter()
        .zip(&points.values)
        .map(|(time, value)| format!("{}={value}", time / 1000))
        .collect();
    for (idx, counts) in points.archives.iter().enumerate() {
        let SlotCounts { taken: _, covered, unselected, nan, outdated, future, misplaced } = *counts;
        let named = [
            (covered, "covered"),
            (unselected, "unselected"),
            (nan, "nan"),
            (outdated, "outdated"),
            (future, "future"),
            (misplaced, "misplaced"),
        ];
        let named = named.iter().filter(|(count, _)| *count > 0);
        parts.extend(named.map(|(count, what)| format!("{what}[{idx}]={count}")));
    }
    parts.extend(points.damages.iter().map(ToString::to_string));
    parts.join(" ")
}

#[track_caller]
fn check_bytes(bytes: &[u8], selection: TimeSelection, want: &str) {
    let mut points = FilePoints::default();
    points.read(bytes, NOW_S, selection).expect("a sound header");
    assert_eq!(render(&points), want);
    let taken: u64 = points.archives.iter().map(|counts| counts.taken).sum();
    assert_eq!(taken, points.times.len() as u64);
}

#[track_caller]
fn check(archives: [&[(u32, f64)]; 3], want: &str) {
    check_bytes(&file(archives), TimeSelection::ALL, want);
}

#[test]
fn coarser_archives_give_what_is_older() {
    check([&[], &[], &[]], "");
    check([&[(1000, 1.0), (1020, 2.0)], &[], &[]], "1000=1 1020=2");
    check(
        [
            &[(1000, 1.0), (1010, 2.0)],
            &[(840, 7.0), (900, 8.0), (960, 9.0)],
            &[(300, 3.0), (600, 4.0), (900, 5.0)],
        ],
        "300=3 600=4 840=7 900=8 960=9 1000=1 1010=2 covered[2]=1",
    );
    // A time that both have comes from the finer one.
    check([&[(960, 1.0)], &[(900, 8.0), (960, 9.0)], &[]], "900=8 960=1 covered[1]=1");
    // Without points in the finest archive the next one is the finest.
    check([&[], &[(900, 8.0), (960, 9.0)], &[(600, 4.0), (900, 5.0)]], "600=4 900=8 960=9 covered[2]=1");
}

#[test]
fn rings_turn_and_old_turns_do_not_count() {
    let turned: Vec<(u32, f64)> = (100..109).map(|idx| (idx * 10, f64::from(idx))).collect();
    check([&turned, &[], &[]], "1030=103 1040=104 1050=105 1060=106 1070=107 1080=108");
    // 1040 is of the turn before: the archive keeps 1060 to 1110.
    check([&[(1040, 4.0), (1060, 6.0), (1110, 1.0)], &[], &[]], "1060=6 1110=1 outdated[0]=1");
    // The newest time of all archives counts.
    check([&[(1000, 1.0)], &[(1140, 2.0)], &[]], "1140=2 outdated[0]=1");
}

#[test]
fn values_that_cannot_be_stored_are_counted() {
    check([&[(1000, f64::NAN), (1010, f64::INFINITY)], &[(960, 1.0)], &[]], "960=1 1010=inf nan[0]=1");
    // An archive of NaN covers nothing.
    check([&[(1000, f64::NAN)], &[(960, 1.0)], &[]], "960=1 nan[0]=1");
    let future = NOW_S as u32 + 10;
    check([&[(1000, 1.0), (future, 2.0)], &[], &[]], "1000=1 future[0]=1");
    check([&[(future, 2.0)], &[], &[]], "future[0]=1");
}

#[test]
fn a_period_selects_points() {
    let bytes = file([&[(1000, 1.0), (1010, 2.0), (1020, 3.0)], &[(900, 8.0), (960, 9.0)], &[]]);
    let selection = TimeSelection { first_s: 960, last_s: 1010 };
    check_bytes(&bytes, selection, "960=9 1000=1 1010=2 unselected[0]=1 unselected[1]=1");
}

#[test]
fn times_out_of_place_are_damage() {
    let mut bytes = file([&[(1000, 1.0), (1010, 2.0), (1020, 3.0)], &[(960, 9.0)], &[]]);
    let second_slot = 16 + 3 * 12 + POINT_BYTES;
    for time_s in [1011u32, 1050, 1] {
        bytes[second_slot..second_slot + 4].copy_from_slice(&time_s.to_be_bytes());
        check_bytes(&bytes, TimeSelection::ALL, "960=9 1000=1 1020=3 misplaced[0]=1");
    }
    // The base tells the slots of all times.
    let base = 16 + 3 * 12;
    bytes[base..base + 4].copy_from_slice(&1001u32.to_be_bytes());
    check_bytes(
        &bytes,
        TimeSelection::ALL,
        "960=9 offset 52: base time 1001 is not a multiple of 10 s: the archive is lost",
    );
}

/// Any bytes after a sound header, and any changes of a file: nothing panics, times ascend, and each slot is
/// counted at most once.
#[test]
fn arbitrary_bytes_are_read_or_refused() {
    let rng = Rng::from_seed(3);
    let mut points = FilePoints::default();
    for _ in 0..20_000 {
        let times: Vec<(u32, f64)> =
            (0..rng.below(9)).map(|idx| (1000 + idx as u32 * 10, rng.below(9) as f64)).collect();
        let mut bytes = file([&times, &[(960, 1.0)], &[(600, 1.0)]]);
        for _ in 0..rng.below(6) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        bytes.truncate(bytes.len() - (rng.below(20) as usize / 19) * 7);
        if points.read(&bytes, NOW_S, TimeSelection::ALL).is_ok() {
            assert!(points.times.is_sorted_by(|a, b| a < b), "{:?}", points.times);
            assert!(points.values.iter().all(|value| !value.is_nan()));
            let slots: usize = points
                .archives
                .iter()
                .map(|counts| {
                    let SlotCounts { taken, covered, unselected, nan, outdated, future, misplaced } = *counts;
                    (taken + covered + unselected + nan + outdated + future + misplaced) as usize
                })
                .sum();
            assert!(slots * POINT_BYTES <= bytes.len());
        }
    }
}
