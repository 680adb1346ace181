//! Partitions of tenants and series: balance, moves, and values that no version changes.

use super::*;

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a tenant id")
}

fn key(idx: u32) -> Vec<u8> {
    format!(
        "http_requests_total{{instance=\"10.0.{}.{}:9100\",code=\"{}\"}}",
        idx / 250 % 250,
        idx % 250,
        idx % 7
    )
    .into_bytes()
}

/// Number of the partition of a series.
fn number_of(partitions: &TenantPartitions, raw: &[u8]) -> u32 {
    partitions.numbers()[partitions.idx_of(raw)]
}

/// Series were found in the partition where an earlier version had put them, or nowhere: a change of these
/// numbers makes every series appear twice until its windows are blocks.
#[test]
fn partitions_of_tenants_and_series_are_the_same_in_every_version() {
    let all: Vec<u32> = (0..16).collect();
    let check = |name: &str, numbers: [u32; 4], series: [u32; 6]| {
        let partitions = TenantPartitions::of(&tenant(name), &all, 4);
        let found: Vec<u32> = (0..6).map(|idx| number_of(&partitions, &key(idx))).collect();
        assert_eq!((partitions.numbers(), &found[..]), (&numbers[..], &series[..]), "{name}");
    };
    check("anonymous", [12, 5, 13, 4], [13, 4, 13, 4, 12, 13]);
    check("team-1", [7, 1, 15, 10], [10, 10, 1, 10, 7, 1]);
    check("t", [13, 10, 15, 14], [10, 13, 14, 10, 15, 14]);
}

#[test]
fn series_are_spread_evenly_over_the_partitions_of_a_tenant() {
    for count in [2_usize, 3, 10, 100] {
        let all: Vec<u32> = (0..100).collect();
        let partitions = TenantPartitions::of(&tenant("a"), &all, count);
        let series_count = 2_000 * count as u32;
        let mut counts = vec![0_u32; count];
        (0..series_count).for_each(|idx| counts[partitions.idx_of(&idx.to_le_bytes())] += 1);
        let worst = counts.iter().map(|&found| found.abs_diff(2_000)).max();
        // Five standard deviations of a binomial distribution are at most 224.
        assert!(worst < Some(224), "{count} partitions: {counts:?}");
    }
}

#[test]
fn tenants_are_spread_evenly_over_partitions() {
    let all: Vec<u32> = (0..20).collect();
    let mut counts = [0_u32; 20];
    for idx in 0..20_000 {
        let partitions = TenantPartitions::of(&tenant(&format!("tenant-{idx}")), &all, 1);
        counts[partitions.numbers()[0] as usize] += 1;
    }
    assert!(counts.iter().all(|found| found.abs_diff(1_000) < 130), "{counts:?}");
}

#[test]
fn a_new_partition_takes_its_share_and_nothing_else_moves() {
    let before: Vec<u32> = (0..10).collect();
    let after: Vec<u32> = (0..11).collect();
    let of = |numbers: &[u32]| TenantPartitions::of(&tenant("a"), numbers, numbers.len());
    let (before, after) = (of(&before), of(&after));
    let mut moved = 0;
    for idx in 0..110_000_u32 {
        let raw = idx.to_le_bytes();
        let old = number_of(&before, &raw);
        let new = number_of(&after, &raw);
        if old != new {
            assert_eq!(new, 10, "series {idx} moves to the new partition alone");
            moved += 1;
        }
    }
    assert!((9_500..10_500).contains(&moved), "an eleventh of the series, found {moved}");
}

#[test]
fn a_drained_partition_leaves_its_series_alone_to_the_others() {
    let before: Vec<u32> = (0..11).collect();
    let after: Vec<u32> = (0..11).filter(|number| *number != 4).collect();
    let of = |numbers: &[u32]| TenantPartitions::of(&tenant("a"), numbers, numbers.len());
    let (before, after) = (of(&before), of(&after));
    let mut takers = [0_u32; 11];
    for idx in 0..110_000_u32 {
        let raw = idx.to_le_bytes();
        let old = number_of(&before, &raw);
        let new = number_of(&after, &raw);
        assert!(old == new || old == 4, "series {idx} moves from {old} to {new}");
        if old == 4 {
            takers[new as usize] += 1;
        }
    }
    assert!(
        takers.iter().enumerate().all(|(idx, taken)| idx == 4 || (800..1_200).contains(taken)),
        "{takers:?}"
    );
}

#[test]
fn a_tenant_keeps_its_partitions_when_it_gets_one_more_or_the_map_does() {
    let all: Vec<u32> = (0..30).collect();
    let more: Vec<u32> = (0..31).collect();
    let mut changed = 0;
    for idx in 0..3_100 {
        let tenant = tenant(&format!("tenant-{idx}"));
        let three = TenantPartitions::of(&tenant, &all, 3);
        let four = TenantPartitions::of(&tenant, &all, 4);
        assert_eq!(three.numbers(), &four.numbers()[..3]);
        let grown = TenantPartitions::of(&tenant, &more, 3);
        let kept = grown.numbers().iter().filter(|number| three.numbers().contains(number)).count();
        assert!(kept == 3 || (kept == 2 && grown.numbers().contains(&30)), "{three:?} {grown:?}");
        changed += u32::from(kept == 2);
    }
    assert!((240..360).contains(&changed), "three in 31 tenants, found {changed}");
}

#[test]
fn the_number_of_partitions_follows_the_limit_of_series() {
    let check = |series_max, want| {
        let found = tenant_partition_count(series_max, 5_000_000, 2, 12);
        assert_eq!(found, want, "{series_max}");
    };
    check(1, 2);
    check(10_000_000, 2);
    check(10_000_001, 3);
    check(50_000_000, 10);
    check(1_000_000_000, 12);
    check(0, 12);
    assert_eq!(tenant_partition_count(1, 5_000_000, 0, 12), 1);
    assert_eq!(tenant_partition_count(1, 0, 0, 0), 0, "no partition accepts writes");
}

#[test]
fn a_map_has_its_history_and_forgets_it() {
    let start = PartitionMap::default();
    assert!(start.accepting().is_empty());
    let first = start.changed(PartitionChange::Add(&[2, 0, 1]), 1_000, 0).expect("a first map");
    assert_eq!(first.accepting(), [0, 1, 2]);
    let grown = first.changed(PartitionChange::Add(&[7]), 2_000, 0).expect("one more");
    // A clock that is before the last change.
    let drained = grown.changed(PartitionChange::Drain(&[0, 1]), 1_500, 0).expect("two fewer");
    assert_eq!(drained.accepting(), [2, 7]);
    let times: Vec<i64> = drained.epochs().iter().map(|epoch| epoch.since_ms).collect();
    assert_eq!(times, [1_000, 2_000, 2_001]);
    let later = drained.changed(PartitionChange::Add(&[3]), 9_000, 2_000).expect("one more");
    let times: Vec<i64> = later.epochs().iter().map(|epoch| epoch.since_ms).collect();
    assert_eq!(times, [2_000, 2_001, 9_000], "the first epoch ended before the time to forget");
}

#[test]
fn changes_that_make_no_map_are_refused() {
    let map = PartitionMap::default().changed(PartitionChange::Add(&[1, 2]), 1_000, 0).expect("a map");
    let check = |change, want| assert_eq!(map.changed(change, 2_000, 0), Err(want));
    check(PartitionChange::Add(&[3, 2]), PartitionMapError::Accepting(2));
    check(PartitionChange::Add(&[3, 3]), PartitionMapError::Accepting(3));
    check(PartitionChange::Drain(&[3]), PartitionMapError::NotAccepting(3));
    check(PartitionChange::Drain(&[1, 2]), PartitionMapError::NoneLeft);
    let many: Vec<u32> = (10..10 + PARTITIONS_MAX as u32).collect();
    check(PartitionChange::Add(&many), PartitionMapError::TooMany(PARTITIONS_MAX + 2));
    let epoch = |since_ms, accepting: &[u32]| PartitionEpoch { since_ms, accepting: accepting.to_vec() };
    let not_ascending = Err(PartitionMapError::NotAscending);
    assert_eq!(PartitionMap::from_epochs(vec![epoch(2, &[1]), epoch(2, &[1])]), not_ascending);
    assert_eq!(PartitionMap::from_epochs(vec![epoch(2, &[1, 1])]), not_ascending);
    assert_eq!(PartitionMap::from_epochs(vec![epoch(2, &[])]), Err(PartitionMapError::NoneLeft));
    let long = (0..=PARTITION_EPOCHS_MAX as i64).map(|at| epoch(at, &[1])).collect();
    assert_eq!(
        PartitionMap::from_epochs(long),
        Err(PartitionMapError::TooManyChanges(PARTITION_EPOCHS_MAX + 1))
    );
}

#[test]
fn reads_ask_every_partition_that_a_tenant_had_in_the_time() {
    let tenant = tenant("a");
    let mut map =
        PartitionMap::default().changed(PartitionChange::Add(&[0, 1, 2, 3]), 1_000, 0).expect("a map");
    for (number, at) in (4..12).zip(2_000..) {
        map = map.changed(PartitionChange::Add(&[number]), at, 0).expect("one more");
    }
    let now = map.tenant(&tenant, 3);
    let all = map.tenant_since(&tenant, 3, 0);
    let first = TenantPartitions::of(&tenant, &[0, 1, 2, 3], 3);
    assert_eq!(&all[..3], first.numbers(), "partitions of the first epoch come first");
    assert!(now.numbers().iter().all(|number| all.contains(number)));
    assert_eq!(map.tenant_since(&tenant, 3, 5_000), now.numbers());
    // The epoch in which the time lies counts, and each epoch after it.
    assert_eq!(map.tenant_since(&tenant, 3, 1_999), all);
}

#[test]
fn a_partition_may_have_its_share_of_the_series_and_a_tenth_more() {
    assert_eq!(partition_series_max(1000, 1), 1000);
    assert_eq!(partition_series_max(1000, 4), 275);
    assert_eq!(partition_series_max(10, 3), 4);
    assert_eq!(partition_series_max(0, 3), 0);
    assert_eq!(partition_series_max(usize::MAX, 2), usize::MAX / 100 * 55 + 9);
}

/// A query asked the owner of a drained partition for 12 hours, also if all of its samples were in blocks.
#[test]
fn a_removed_partition_leaves_the_whole_history() {
    let changes = [
        (PartitionChange::Add(&[4]), 0),
        (PartitionChange::Add(&[0, 1]), 10),
        (PartitionChange::Drain(&[4]), 20),
        (PartitionChange::Drain(&[1]), 30),
    ];
    let map = changes.into_iter().fold(PartitionMap::default(), |map, (change, at_ms)| {
        map.changed(change, at_ms, i64::MIN).expect("valid")
    });
    let epochs = |map: &PartitionMap| -> Vec<(i64, Vec<u32>)> {
        map.epochs().iter().map(|epoch| (epoch.since_ms, epoch.accepting.clone())).collect()
    };
    let removed = map.changed(PartitionChange::Remove(&[4]), 40, i64::MIN).expect("drained");
    assert_eq!(epochs(&removed), [(10, vec![0, 1]), (30, vec![0])]);
    let refused = |numbers| map.changed(PartitionChange::Remove(numbers), 40, i64::MIN);
    assert_eq!(refused(&[4, 0]), Err(PartitionMapError::NotDrained(0)));
    assert_eq!(refused(&[7]), Err(PartitionMapError::Unknown(7)));
}
