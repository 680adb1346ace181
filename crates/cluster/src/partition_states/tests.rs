//! States of partitions over a history of additions and drains.

use chronolith_model::partition::PartitionChange;

use super::*;

const HOUR_MS: i64 = 3_600_000;

fn map() -> PartitionMap {
    let changes = [
        (PartitionChange::Add(&[0, 1, 2]), 0),
        (PartitionChange::Drain(&[1]), 10 * HOUR_MS),
        (PartitionChange::Add(&[3]), 20 * HOUR_MS),
        (PartitionChange::Add(&[1]), 30 * HOUR_MS),
        (PartitionChange::Drain(&[0, 2]), 40 * HOUR_MS),
    ];
    changes.into_iter().fold(PartitionMap::default(), |map, (change, at_ms)| {
        map.changed(change, at_ms, i64::MIN).expect("valid")
    })
}

#[test]
fn a_partition_accepts_or_is_drained_since_its_last_change() {
    let state = |number, is_accepting, hour| PartitionState {
        partition: PartitionId(number),
        is_accepting,
        since_ms: hour * HOUR_MS,
    };
    let states = partition_states(&map());
    assert_eq!(states, [state(0, false, 40), state(1, true, 30), state(2, false, 40), state(3, true, 20)]);
    assert_eq!(states[0].owner_needed_until_ms(), Some(52 * HOUR_MS));
    assert_eq!(states[1].owner_needed_until_ms(), None);
    assert_eq!(partition_states(&PartitionMap::default()), []);
}

#[test]
fn drained_partitions_are_recent_for_twelve_hours() {
    let numbers = |hour| -> Vec<u32> {
        recent_partitions(&map(), hour * HOUR_MS).into_iter().map(|partition| partition.0).collect()
    };
    assert_eq!(numbers(45), [0, 1, 2, 3]);
    assert_eq!(numbers(51), [0, 1, 2, 3]);
    assert_eq!(numbers(52), [1, 3]);
}
