//! Lookups are correct whatever was recorded in whatever order, and known where it matters.

use std::collections::BTreeSet;

use chronolith_base::Rng;

use super::*;

/// Records a gap in a series that has a sample every `step_ms`.
fn note_gap(free: &mut TimestampCache, window: SeriesWindow, step_ms: i64, after: i64, before: i64) {
    free.note_gap(Gap { window, step_ms, after, before });
}

fn window(id: u32, start: i64) -> SeriesWindow {
    SeriesWindow { id, range: TimeRange { start, end: start + 1000 } }
}

/// Records a chunk with these timestamps; all within its grid is known, and nothing wrong is.
#[track_caller]
fn check(times: &[i64], is_known: impl Fn(i64) -> bool) {
    let mut free = TimestampCache::default();
    let of = window(9, -1000);
    free.note_chunk(of, times, std::iter::empty());
    let (first, last) = (times[0], times[times.len() - 1]);
    for time in first - 5..last + 5 {
        let is_free = free.known(of, time) != Known::Unknown;
        let want = first <= time && time <= last && is_known(time) && !times.contains(&time);
        assert_eq!(is_free, want, "{time} of {times:?}");
        assert_eq!(free.known(window(8, -1000), time), Known::Unknown, "another series");
        assert_eq!(free.known(window(9, 0), time), Known::Unknown, "another window");
    }
}

#[test]
fn unused_timestamps_of_a_chunk_are_known() {
    check(&[-40, -10], |_| true);
    check(&[-400, -380, -340, -330, -300], |_| true);
    check(&[-1000, -997, -991, -1], |_| true);
    check(&[-40], |_| false);
    check(&[-1000, -900, -801, -100], |_| false);
}

#[test]
fn a_gap_is_unused_until_an_out_of_order_sample_fills_it() {
    let mut free = TimestampCache::default();
    let of = window(1, 0);
    note_gap(&mut free, of, 10, 203, 243);
    let is_free = |free: &mut TimestampCache| {
        (0..1000).filter(|&t| free.known(of, t) == Known::Unused).collect::<Vec<_>>()
    };
    assert_eq!(is_free(&mut free), [213, 223, 233]);
    free.take(of, 223);
    free.take(of, 230);
    assert_eq!(is_free(&mut free), [213, 233]);
    // A chunk of the same grid does not mark buffered samples as unused.
    free.note_chunk(of, &[193, 203, 243, 263], [223, 253].into_iter());
    assert_eq!(is_free(&mut free), [213, 233]);
    assert_eq!(free.known(of, 254), Known::NotInChunks);
    free.note_merge(of);
    assert_eq!(free.known(of, 254), Known::Unknown);
    assert_eq!(is_free(&mut free), [213, 233]);
    free.clear();
    assert_eq!((is_free(&mut free).len(), free.heap_bytes()), (0, 0));
}

/// A gap across the end of a window is known on both sides.
#[test]
fn gaps_span_windows() {
    let mut free = TimestampCache::default();
    note_gap(&mut free, window(1, 0), 100, 850, 1150);
    note_gap(&mut free, window(1, 1000), 100, 850, 1150);
    let known: Vec<i64> =
        (0..2000).filter(|&t| free.known(window(1, t / 1000 * 1000), t) == Known::Unused).collect();
    assert_eq!(known, [950, 1050]);
}

/// In windows with more scrape intervals than an entry has bits, the newest are known.
#[test]
fn dense_series_are_known_where_they_are_newest() {
    let mut free = TimestampCache::default();
    let of = SeriesWindow { id: 1, range: TimeRange { start: 0, end: 10_000 } };
    for after in (5..9_900).step_by(100) {
        note_gap(&mut free, of, 1, after, after + 4);
        assert_eq!(free.known(of, after), Known::Unknown);
        assert_eq!(free.known(of, after + 2), Known::Unused);
        assert_eq!(free.known(of, after + 4), Known::Unknown);
    }
}

/// As a stripe does it, with random chunks, gaps and out-of-order samples of several grids.
#[test]
fn lookups_are_correct() {
    for seed in 0..300 {
        let rng = Rng::from_seed(seed);
        let mut free = TimestampCache::default();
        let of = window(3, 7000);
        let (mut chunk, mut waiting) = (BTreeSet::new(), BTreeSet::new());
        let mut last = 7000 + rng.below(50) as i64;
        chunk.insert(last);
        let steps = [1, 2, 5, 7, 10];
        let step = steps[rng.below(5) as usize];
        while last < 7990 {
            let next = last + step * (1 + rng.below(4) * rng.below(2)) as i64 + i64::from(rng.below(40) == 0);
            if next >= 8000 {
                break;
            }
            if rng.below(3) > 0 {
                note_gap(&mut free, of, step, last, next);
            }
            last = next;
            chunk.insert(last);
            let late = 7000 + rng.below((last - 6999) as u64) as i64;
            if !chunk.contains(&late) && waiting.insert(late) {
                free.take(of, late);
            }
            if rng.below(50) == 0 {
                let times: Vec<i64> = chunk.iter().copied().collect();
                free.note_chunk(of, &times, waiting.iter().copied());
            }
            if rng.below(70) == 0 {
                chunk.append(&mut waiting);
                free.note_merge(of);
            }
            for time in 7000..last {
                match free.known(of, time) {
                    Known::Unused => {
                        assert!(!chunk.contains(&time) && !waiting.contains(&time), "{seed}: {time}")
                    }
                    Known::NotInChunks => assert!(!chunk.contains(&time), "{seed}: {time}"),
                    Known::Unknown => {}
                }
            }
        }
    }
}

/// More windows than the table ever holds: it stays within its bound, and most of its entries are found.
#[test]
fn full_tables_evict_entries() {
    let mut free = TimestampCache::default();
    let count = 3 * ENTRY_COUNT_MAX as u32;
    for id in 0..count {
        note_gap(
            &mut free,
            window(id / 10, i64::from(id % 10) * 1000),
            10,
            i64::from(id % 10) * 1000,
            30 + i64::from(id % 10) * 1000,
        );
    }
    assert!(free.heap_bytes() <= 128 * ENTRY_COUNT_MAX + size_of::<Gap>() * GAP_COUNT_MAX);
    let mut is_known = |id: u32| {
        free.known(window(id / 10, i64::from(id % 10) * 1000), 10 + i64::from(id % 10) * 1000)
            == Known::Unused
    };
    let known_count = (0..count).filter(|&id| is_known(id)).count();
    assert!(known_count <= free.used_count && known_count > ENTRY_COUNT_MAX / 2, "{known_count}");
}
