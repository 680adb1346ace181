//! Table of folded series: sums, removals, bounds.

use super::*;

fn counter(table: &mut OverflowTable, metric: &str) -> usize {
    table.slot_or_create(metric, None, ValueClass::Float, || SlotKind::Counter).unwrap()
}

#[test]
fn increases_count_from_the_first_sample_and_over_resets() {
    let mut table = OverflowTable::default();
    let slot = counter(&mut table, "m_total");
    let entry = table.insert(7, slot);
    for (time, value, want) in [
        (1_000, 50.0, 0.0),
        (2_000, 53.0, 3.0),
        (3_000, 2.0, 5.0),
        (3_000, 9.0, 5.0),
        (1_500, 99.0, 5.0),
        (4_000, f64::NAN, 5.0),
        (4_000, 2.0, 5.0),
    ] {
        table.fold(entry, time, value);
        assert_eq!(table.slot(slot).unwrap().sum(), Some(want), "{time} {value}");
    }
    assert_eq!(table.slot(slot).unwrap().time, 4_000);
}

#[test]
fn a_stale_gauge_leaves_sum_and_count_at_once() {
    let mut table = OverflowTable::default();
    let slot = table.slot_or_create("g", None, ValueClass::Float, || SlotKind::Gauge).unwrap();
    let a = table.insert(1, slot);
    let b = table.insert(2, slot);
    table.fold(a, 1_000, 4.0);
    table.fold(b, 1_000, 0.5);
    let found =
        |table: &OverflowTable| (table.slot(slot).unwrap().sum(), table.slot(slot).unwrap().active_count());
    assert_eq!(found(&table), (Some(4.5), Some(2)));
    table.fold(a, 2_000, chronolith_model::sample::STALE_NAN);
    assert_eq!(found(&table), (Some(0.5), Some(1)));
    table.fold(a, 3_000, 1.0);
    assert_eq!(found(&table), (Some(1.5), Some(2)));
    assert_eq!(table.remove(&[2, 3]), [2]);
    assert_eq!(found(&table), (Some(1.0), Some(1)));
}

/// Removal, in any order, leaves exactly the other series, and idle slots make room for others.
#[test]
fn series_are_found_after_removals_of_others() {
    let mut table = OverflowTable::default();
    let slot = counter(&mut table, "m_total");
    let count = 3 * BLOCK_COUNT as u128;
    for key in 0..count {
        let entry = table.insert(key << 70 | key, slot);
        table.fold(entry, key as i64, 1.0);
    }
    let gone: Vec<u128> = (0..count).filter(|key| key % 3 == 0).map(|key| key << 70 | key).collect();
    assert_eq!(table.remove(&gone).len(), gone.len());
    table.remove_idle(100);
    for key in 0..count {
        let found = table.find(key << 70 | key, 0);
        assert_eq!(found.is_some(), key % 3 != 0 && key >= 100, "{key}");
        assert!(found.is_none_or(|entry| table.key_of(entry) == key << 70 | key));
    }
    table.remove_idle(i64::MAX >> SLOT_BITS);
    assert!(table.is_empty());
}

#[test]
fn buckets_of_a_metric_are_bounded_and_removed_ones_make_room() {
    let mut table = OverflowTable::default();
    for le in 0..=BUCKET_COUNT_MAX {
        let slot =
            table.slot_or_create("h_bucket", Some(&le.to_string()), ValueClass::Float, || SlotKind::Counter);
        assert_eq!(slot.is_some(), le < BUCKET_COUNT_MAX);
    }
    table.remove_idle(0);
    assert!(table.slot_or_create("h_bucket", Some("new"), ValueClass::Float, || SlotKind::Counter).is_some());
}
