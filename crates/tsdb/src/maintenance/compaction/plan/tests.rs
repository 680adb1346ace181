//! Plans over blocks written in the order of the list, `(start hour, end hour, size in kB)`.

use super::*;

const HOUR_MS: i64 = 3_600_000;
const DAY: i64 = 24;

fn blocks(list: &[(i64, i64, u64)]) -> Vec<Candidate> {
    let one = |(i, &(start, end, kb)): (usize, &(i64, i64, u64))| {
        let ulid = Ulid::new(i64::try_from(i).unwrap() + 1, 0);
        let range = TimeRange::new(start * HOUR_MS, end * HOUR_MS);
        Candidate {
            ulid,
            precedence: (ulid, ulid),
            range,
            size_bytes: kb << 10,
            split_set: None,
            has_many_deletions: false,
            is_excluded: false,
        }
    };
    list.iter().enumerate().map(one).collect()
}

fn bounds() -> PlanBounds {
    PlanBounds { closed_ms: 10_000 * HOUR_MS, retention_ms: 0, input_bytes_max: 1 << 30 }
}

fn places(blocks: &[Candidate], bounds: &PlanBounds) -> Vec<usize> {
    let rewritten = || with_deletions(blocks, bounds).into_iter().collect();
    let chosen = plan(blocks, bounds, 1).pop().unwrap_or_else(rewritten);
    chosen.iter().map(|ulid| blocks.iter().position(|b| b.ulid == *ulid).unwrap()).collect()
}

#[track_caller]
fn check(list: &[(i64, i64, u64)], want: &[usize]) {
    assert_eq!(places(&blocks(list), &bounds()), want);
}

#[test]
fn nothing_to_do() {
    check(&[], &[]);
    check(&[(0, 2, 1)], &[]);
    check(&[(0, 2, 1), (2, 4, 1), (4, 6, 1)], &[]);
    check(&[(0, 6, 1), (6, 8, 1)], &[]);
    check(&[(4, 6, 1), (6, 8, 1), (12, 14, 1)], &[]);
}

#[test]
fn complete_aligned_ranges_are_merged_narrowest_first() {
    check(&[(0, 2, 1), (2, 4, 1), (4, 6, 1), (6, 8, 1)], &[0, 1, 2]);
    check(&[(2, 4, 1), (4, 6, 1), (24, 26, 1)], &[0, 1]);
    check(&[(0, 6, 1), (6, 12, 1), (12, 18, 1), (18, 20, 1), (20, 22, 1), (24, 26, 1)], &[3, 4]);
    check(&[(0, 6, 1), (6, 12, 1), (12, 18, 1), (18, 24, 1), (24, 26, 1)], &[0, 1, 2, 3]);
    check(&[(0, DAY, 1), (DAY, 2 * DAY, 1), (2 * DAY, 3 * DAY, 1), (3 * DAY, 3 * DAY + 2, 1)], &[0, 1, 2]);
    check(&[(-6, -4, 1), (-2, 0, 1), (0, 2, 1)], &[0, 1]);
}

#[test]
fn overlapping_blocks_come_first_and_most_overlap_before_less() {
    check(&[(0, 2, 1), (2, 4, 1), (4, 6, 1), (6, 8, 1), (6, 8, 1)], &[3, 4]);
    check(&[(0, 2, 1), (0, 2, 1), (6, 8, 1), (6, 8, 1), (6, 8, 1)], &[2, 3, 4]);
    check(&[(0, DAY, 1), (2, 4, 1), (8, 10, 1)], &[0, 1, 2]);
}

#[test]
fn a_large_block_waits_until_what_overlaps_it_is_worth_it() {
    const MB: u64 = 1 << 10;
    check(&[(0, DAY, 400 * MB), (2, 4, MB)], &[]);
    check(&[(0, DAY, 400 * MB), (2, 4, MB), (2, 4, MB)], &[1, 2]);
    check(&[(0, DAY, 400 * MB), (2, 4, MB), (8, 10, MB)], &[1, 2]);
    check(&[(0, DAY, 400 * MB), (2, 4, 50 * MB)], &[0, 1]);
    check(&[(0, DAY, 400 * MB), (0, 2, 60 * MB), (2, 4, MB), (4, 6, MB)], &[0, 1, 2, 3]);
}

#[test]
fn no_block_between_is_left_out() {
    // The middle one is older than the last and younger than the first: compacting those two would put it
    // after both.
    const MB: u64 = 1 << 10;
    check(&[(2, 4, MB), (0, DAY, 400 * MB), (2, 4, MB)], &[]);
    let mut list = blocks(&[(2, 4, 1), (2, 4, 1), (2, 4, 1), (2, 4, 1), (2, 4, 1)]);
    list[1].is_excluded = true;
    assert_eq!(places(&list, &bounds()), [2, 3, 4]);
    // A compacted block has a late name and an early precedence.
    let mut list = blocks(&[(0, 2, 1), (0, 2, 1), (0, 2, 9 << 20)]);
    list[2].precedence = (Ulid::new(0, 0), list[2].ulid);
    assert_eq!(places(&list, &bounds()), [0, 1]);
}

#[test]
fn what_is_still_written_is_not_touched() {
    let at = |closed_hour: i64| PlanBounds { closed_ms: closed_hour * HOUR_MS, ..bounds() };
    let full = blocks(&[(0, 2, 1), (2, 4, 1), (4, 6, 1), (6, 8, 1)]);
    assert_eq!(places(&full, &at(5)), [] as [usize; 0]);
    assert_eq!(places(&full, &at(6)), [0, 1, 2]);
    let twice = blocks(&[(0, 2, 1), (0, 2, 1)]);
    assert_eq!(places(&twice, &at(1)), [] as [usize; 0]);
    assert_eq!(places(&twice, &at(2)), [0, 1]);
}

#[test]
fn limits_bound_a_step() {
    let full = blocks(&[(0, 2, 1), (2, 4, 1), (4, 6, 1), (6, 8, 1)]);
    assert_eq!(places(&full, &PlanBounds { input_bytes_max: 3 << 10, ..bounds() }), [0, 1, 2]);
    assert_eq!(places(&full, &PlanBounds { input_bytes_max: 2 << 10, ..bounds() }), [] as [usize; 0]);
    let twice = blocks(&[(0, 2, 2), (0, 2, 2), (0, 2, 1), (0, 2, 1)]);
    assert_eq!(places(&twice, &PlanBounds { input_bytes_max: 4 << 10, ..bounds() }), [1, 2, 3]);
    let many = blocks(&vec![(0, 2, 1); 200]);
    assert_eq!(places(&many, &bounds()).len(), INPUT_COUNT_MAX);
    let days = blocks(&[(0, DAY, 1), (DAY, 2 * DAY, 1), (3 * DAY, 4 * DAY, 1)]);
    assert_eq!(places(&days, &bounds()), [0, 1]);
    let short = PlanBounds { retention_ms: 15 * DAY * HOUR_MS, ..bounds() };
    assert_eq!(places(&days, &short), [] as [usize; 0], "three days are more than a tenth of the retention");
}

#[test]
fn blocks_of_others_do_not_confuse_it() {
    // Prometheus's 18 h blocks do not nest with a day: a range that one reaches into is left alone.
    check(&[(0, 18, 1), (18, 36, 1), (36, 38, 1), (40, 42, 1), (50, 52, 1)], &[2, 3]);
    let mut odd = blocks(&[(0, 2, 1), (2, 4, 1), (7, 8, 1)]);
    odd.push(Candidate { range: TimeRange::new(i64::MIN, i64::MIN + 1), ..odd[0].clone() });
    odd.push(Candidate { range: TimeRange::new(5, 5), ..odd[0].clone() });
    assert_eq!(places(&odd, &bounds()), [0, 1]);
}

#[test]
fn planning_comes_to_an_end_with_few_blocks() {
    let mut list = blocks(&(0..1000).map(|i| (i % 300 * 2, i % 300 * 2 + 2, 10)).collect::<Vec<_>>());
    let mut steps = 0;
    while let Some(chosen) = plan(&list, &bounds(), 1).pop() {
        assert!(chosen.len() >= 2);
        let (inputs, mut rest): (Vec<_>, Vec<_>) = list.into_iter().partition(|b| chosen.contains(&b.ulid));
        steps += 1;
        rest.push(Candidate {
            ulid: Ulid::new(10_000 + steps, 0),
            precedence: inputs.iter().map(|b| b.precedence).min().unwrap(),
            range: TimeRange::new(
                inputs.iter().map(|b| b.range.start).min().unwrap(),
                inputs.iter().map(|b| b.range.end).max().unwrap(),
            ),
            size_bytes: inputs.iter().map(|b| b.size_bytes).sum(),
            split_set: None,
            has_many_deletions: false,
            is_excluded: false,
        });
        list = rest;
    }
    assert!(list.len() <= 12, "{} blocks for 25 days", list.len());
}

#[test]
fn a_block_of_which_much_is_deleted_is_rewritten_when_nothing_else_is_due() {
    let mut list = blocks(&[(0, 2, 1), (6, 8, 1), (12, 14, 1)]);
    list[1].has_many_deletions = true;
    assert_eq!(places(&list, &bounds()), [1]);
    list[0].range.end = list[1].range.end;
    assert_eq!(places(&list, &bounds()), [0, 1], "compaction drops it too");
    let mut list = blocks(&[(0, 2, 1)]);
    list[0].has_many_deletions = true;
    list[0].is_excluded = true;
    assert_eq!(places(&list, &bounds()), [] as [usize; 0]);
}

/// Blocks above `compaction-size` were never compacted: overlaps and deletions in them stayed for ever.
#[test]
fn what_overlaps_or_is_deleted_is_resolved_whatever_the_size() {
    const GB: u64 = 1 << 20;
    check(&[(0, 2, 9 * GB), (0, 2, 2 * GB)], &[0, 1]);
    check(&[(0, 2, 9 * GB), (0, 2, GB)], &[]);
    check(&[(0, 2, 9 * GB), (2, 4, 9 * GB), (4, 6, 9 * GB), (6, 8, 1)], &[]);
    let mut list = blocks(&[(0, 2, 9 * GB)]);
    list[0].has_many_deletions = true;
    assert_eq!(places(&list, &bounds()), [0]);
}

#[test]
fn a_set_that_was_split_by_series_counts_as_one_block() {
    const MB: u64 = 1 << 10;
    let set_of = |list: &mut [Candidate], set: u64| {
        let name = Some(Ulid::new(set as i64, 7));
        list.iter_mut().for_each(|block| block.split_set = name);
    };
    let mut list = blocks(&[(0, 2, 100 * MB), (0, 2, 100 * MB), (2, 4, MB)]);
    set_of(&mut list[..2], 1);
    assert_eq!(places(&list, &bounds()), [] as [usize; 0], "two blocks of a set do not overlap");
    list[2].range = list[0].range;
    assert_eq!(places(&list, &bounds()), [] as [usize; 0], "too little to rewrite both for");
    list[2].size_bytes = 30 << 20;
    assert_eq!(places(&list, &bounds()), [0, 1, 2]);
    let mut list = blocks(&[(0, 2, 1), (0, 2, 1), (2, 4, 1), (4, 6, 1), (4, 6, 1), (6, 8, 1)]);
    set_of(&mut list[..2], 1);
    set_of(&mut list[3..5], 2);
    assert_eq!(places(&list, &bounds()), [0, 1, 2, 3, 4]);
    list[1].has_many_deletions = true;
    list.truncate(2);
    assert_eq!(places(&list, &bounds()), [1], "the others of the set stay");
}

/// Each step looked through all blocks once per aligned range: 200,000 blocks of a tenant took minutes.
#[test]
fn many_steps_are_planned_in_one_pass() {
    let list = blocks(&(0..100_000).map(|i| (i * 2 - 150_000, i * 2 - 149_998, 1)).collect::<Vec<_>>());
    let steps = plan(&list, &bounds(), 1000);
    assert_eq!(steps.len(), 1000);
    let mut all: Vec<_> = steps.iter().flatten().collect();
    assert_eq!(all.len(), 3000);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3000, "no block is part of two steps");
}
