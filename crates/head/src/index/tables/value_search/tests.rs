//! Searches against a sorted set, over series that come and go.

use std::collections::BTreeSet;

use chronolith_base::Rng;

use super::*;

/// Returns the first value from `start` on that a series without other labels has.
fn first_sole(position: &mut ValuePosition, tables: &TenantIndex, start: &str) -> Option<String> {
    position.seek(tables, start);
    while let Some(value) = position.value(tables) {
        assert_eq!(position.is_sole(tables), position.sole_series(tables).is_some());
        if position.is_sole(tables) {
            return Some(value.to_owned());
        }
        position.skip();
    }
    None
}

#[test]
fn a_search_finds_the_first_live_series_without_other_labels() {
    for seed in 0..30 {
        let rng = Rng::from_seed(seed);
        let mut tables = TenantIndex::new(seed);
        let mut sole: BTreeSet<(String, u32)> = BTreeSet::new();
        let mut known: BTreeSet<Vec<(String, String)>> = BTreeSet::new();
        let text = |rng: &Rng| format!("{}.{}", rng.below(40), rng.below(9));
        for id in 0..400 {
            let mut labels = vec![("n".to_owned(), text(&rng))];
            if rng.below(4) == 0 {
                labels.push(("tag".to_owned(), rng.below(3).to_string()));
            }
            if !known.insert(labels.clone()) {
                continue;
            }
            tables.insert(id, labels.iter().map(|(name, value)| (&**name, &**value)), &mut Vec::new());
            if labels.len() == 1 {
                sole.insert((labels[0].1.clone(), id));
            }
            if rng.below(5) == 0
                && let Some(dead) = sole.iter().nth(rng.below(sole.len().max(1) as u64) as usize).cloned()
            {
                tables.remove(dead.1);
                sole.remove(&dead);
            }
            if rng.below(8) != 0 {
                continue;
            }
            // Starts ascend, and sometimes go back.
            let mut position = ValuePosition::new(&tables, "n");
            for _ in 0..20 {
                let start = text(&rng);
                let want = sole.iter().map(|(value, _)| value).find(|value| **value >= start).cloned();
                assert_eq!(first_sole(&mut position, &tables, &start), want, "seed {seed}, from {start}");
            }
        }
        let pairs = tables.pairs_of_name("n");
        assert!(pairs.is_sorted_by_key(|&pair| value_of(&tables, pair).to_owned()), "seed {seed}");
        assert!(ValuePosition::new(&tables, "other").value(&tables).is_none());
    }
}

#[test]
fn the_distance_is_that_of_a_scan() {
    for len in 0..70_u32 {
        let items: Vec<u32> = (0..len).collect();
        for bound in 0..=len + 1 {
            assert_eq!(distance(&items, |item| item < bound), bound.min(len) as usize, "{bound} of {len}");
        }
    }
}
