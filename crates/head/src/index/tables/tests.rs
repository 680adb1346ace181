//! Series are created and removed; dead ones are hidden; a rebuild changes nothing.

use std::cell::Cell;

use chronolith_base::MemoryBudget;
use chronolith_model::index::{LabelIndex, RegexCache, RegexCacheLimits, select_refs};
use chronolith_model::{METRIC_NAME, MatchOp, Matcher, Reject, TenantLimits};

use chronolith_base::sync::RwLock;

use chronolith_model::Labels;
use chronolith_model::labels::LabelsBuilder;

use super::lookup::find_cached;
use super::tenant_index::DEAD_COUNT_MIN;
use super::*;

fn pairs(i: u32) -> [(&'static str, String); 2] {
    [("__name__", format!("m{}", i % 3)), ("id", i.to_string())]
}

fn insert(tables: &mut TenantIndex, id: u32) {
    let pairs = pairs(id);
    tables.insert(id, pairs.iter().map(|(n, v)| (*n, &**v)), &mut Vec::new());
}

#[test]
fn dead_series_are_hidden_and_removed_when_they_are_many() {
    let mut tables = TenantIndex::new(5);
    let count = 3 * DEAD_COUNT_MIN as u32;
    (0..count).for_each(|id| insert(&mut tables, id));
    (0..count).filter(|id| id % 8 != 1).for_each(|id| tables.remove(id));
    let look = |tables: &TenantIndex| {
        let mut ids = Vec::new();
        tables.postings("__name__", "m1", &mut ids).unwrap();
        let want: Vec<u32> = (0..count).filter(|id| id % 8 == 1 && id % 3 == 1).collect();
        assert_eq!(ids, want);
        assert_eq!(tables.rows.live_ids().len(), count as usize / 8);
        assert_eq!(tables.values("id", usize::MAX).len(), count as usize / 8);
        let known = pairs(9);
        let find = |p: &[(&str, String)]| tables.find(p.iter().map(|(n, v)| (*n, &**v)), &mut Vec::new());
        assert_eq!((find(&known), find(&pairs(10))), (Some(9), None));
        let labels = tables.labels(9, &mut LabelsBuilder::new()).unwrap();
        assert_eq!(labels.to_string(), r#"m0{id="9"}"#);
        assert!(tables.labels(10, &mut LabelsBuilder::new()).is_none());
    };
    look(&tables);
    assert!(tables.is_sparse());
    // Slice by slice, as a window drop does.
    let mut fresh = tables.empty_copy();
    let mut from = Some(0);
    while let Some(start) = from {
        from = fresh.copy_from(&tables, start, 100);
    }
    assert_eq!(fresh.id_end(), tables.rows.live_ids().last().unwrap() + 1);
    tables = fresh;
    assert_eq!(tables.rows.dead_count(), 0);
    look(&tables);
    insert(&mut tables, count + 8);
    assert_eq!(tables.live_count(), count as usize / 8 + 1);
}

#[test]
fn series_sort_by_labels() {
    let mut tables = TenantIndex::new(1);
    let sets = [
        vec![("a", "2")],
        vec![("a", "1"), ("b", "1")],
        vec![("a", "1")],
        vec![("0", "z")],
        vec![("b", "0")],
    ];
    for (id, set) in sets.iter().enumerate() {
        tables.insert(id as u32, set.iter().copied(), &mut Vec::new());
    }
    let mut ids: Vec<u32> = tables.rows.live_ids();
    let tables = RwLock::new(tables);
    sort_by_labels(&tables, &mut ids);
    let mut want: Vec<u32> = (0..5).collect();
    want.sort_by_key(|&id| Labels::from_pairs(sets[id as usize].iter().copied()));
    assert_eq!(ids, want);
}

#[test]
fn many_series_are_sorted_in_slices() {
    let mut tables = TenantIndex::new(5);
    (0..9001).for_each(|id| insert(&mut tables, id));
    tables.remove(17);
    let mut ids: Vec<u32> = (0..9001).rev().collect();
    let lock = RwLock::new(tables);
    sort_by_labels(&lock, &mut ids);
    let key = |id: &u32| pairs(*id).map(|(_, value)| value);
    assert!(ids.is_sorted_by(|a, b| key(a) < key(b)));
    assert_eq!(ids.len(), 9000, "the removed one is left out");
}

/// A matcher must return the same series whether postings answer it or a check of each series.
#[test]
fn matchers_find_the_same_series_as_a_full_scan() {
    let rng = chronolith_base::Rng::from_seed(17);
    let mut tables = TenantIndex::new(5);
    let mut series = Vec::new();
    for id in 0..3000u32 {
        let mut pairs = vec![("__name__", format!("m{}", id % 3)), ("id", id.to_string())];
        if id % 5 != 0 {
            pairs.push(("instance", format!("i{}", id / 20)));
        }
        tables.insert(id, pairs.iter().map(|(n, v)| (*n, &**v)), &mut Vec::new());
        series.push(pairs);
    }
    let is_dead = |id: u32| id % 11 == 3;
    (0..3000).filter(|&id| is_dead(id)).for_each(|id| tables.remove(id));
    let (mut looked_count, mut few) = (0, 0);
    for round in 0..2000 {
        let mut matchers = Vec::new();
        for _ in 0..1 + rng.below(3) {
            let name = ["__name__", "id", "instance", "none"][rng.below(4) as usize];
            let (a, b) = (rng.below(200), rng.below(3));
            let op = [MatchOp::Equal, MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex]
                [rng.below(5) as usize];
            let value = match (op, name) {
                (MatchOp::Equal | MatchOp::NotEqual, "__name__") => format!("m{b}"),
                (MatchOp::Equal | MatchOp::NotEqual, "instance") => format!("i{a}"),
                (MatchOp::Equal | MatchOp::NotEqual, _) => ["", "7", "1234"][b as usize].to_owned(),
                _ => [".*1.*", "m1|m2", "i1.|i20", "", "i5|", ".+"][rng.below(6) as usize].to_owned(),
            };
            matchers.push(Matcher::new(name, op, &value).unwrap());
        }
        let fits = |id: &u32| {
            let value = |name: &str| series[*id as usize].iter().find(|(n, _)| *n == name);
            !is_dead(*id) && matchers.iter().all(|m| m.matches(value(&m.name).map_or("", |(_, v)| v)))
        };
        let want: Vec<u32> = (0..3000).filter(fits).collect();
        assert_eq!(select_refs(&tables, &matchers).unwrap(), want, "round {round}: {matchers:?}");
        let mut few_refs = vec![4, 9, 2999];
        if tables.retain_few(&matchers[0], &mut few_refs).unwrap() {
            looked_count += 1;
            few += few_refs.len();
        }
    }
    assert!(looked_count > 200 && few > 0, "{looked_count} matchers were checked against single series");
}

/// Values are appended while regexes are cached: each is matched once.
#[test]
fn a_cached_regex_matches_later_values_only() {
    let limits = RegexCacheLimits { regex_count_max: 4, value_count_min: 1024, found_count_max: 1 << 16 };
    let cache = RegexCache::new(limits, MemoryBudget::new("regex cache", u64::MAX));
    let all: Vec<u32> = (0..6000).collect();
    let find = |matcher: &Matcher, pairs: &[u32], of: u32| {
        let matched_count = Cell::new(0);
        let found = find_cached(&cache, matcher, pairs, |pair| {
            matched_count.set(matched_count.get() + 1);
            pair.is_multiple_of(of)
        });
        (found.to_vec(), matched_count.get())
    };
    let matcher = Matcher::new("path", MatchOp::Regex, ".*7").unwrap();
    for (len, want) in [(10, 10), (2000, 2000), (2000, 0), (2001, 1), (6000, 3999)] {
        let (found, matched_count) = find(&matcher, &all[..len], 7);
        assert_eq!(found, (0..len as u32).step_by(7).collect::<Vec<_>>());
        assert_eq!(matched_count, want, "{len}");
    }
    let other = Matcher::new("path", MatchOp::NotRegex, ".*7").unwrap();
    assert_eq!(find(&other, &all, 2), ((0..6000).step_by(2).collect(), 6000));
}

fn insert_host(index: &mut TenantIndex, id: u32, measurement: &str, host: &str) {
    let labels = [(METRIC_NAME, measurement), ("host", host)];
    index.insert(id, labels.into_iter(), &mut Vec::new());
}

#[track_caller]
fn check_full(index: &mut TenantIndex, measurement: &str, host: &str, want: Option<usize>) {
    let labels = [("__field__", "v"), (METRIC_NAME, measurement), ("host", host)];
    let found = index.full_tag(&labels, 3).map(|full| full.value_count);
    assert_eq!(found, want, "{measurement} {host}");
}

#[test]
fn values_are_counted_per_measurement_without_those_of_series_that_left() {
    let mut index = TenantIndex::new(1);
    (0..3).for_each(|id| insert_host(&mut index, id, "cpu", &format!("h{id}")));
    (3..5).for_each(|id| insert_host(&mut index, id, "mem", &format!("h{id}")));
    check_full(&mut index, "cpu", "new", Some(3));
    check_full(&mut index, "cpu", "h3", Some(3));
    check_full(&mut index, "cpu", "h1", None);
    check_full(&mut index, "mem", "new", None);
    check_full(&mut index, "disk", "new", None);
    insert_host(&mut index, 5, "mem", "h5");
    check_full(&mut index, "mem", "new", Some(3));
    index.remove(1);
    check_full(&mut index, "cpu", "new", None);
    check_full(&mut index, "mem", "new", Some(3));
}

#[test]
fn a_series_that_left_makes_room_below_the_limits() {
    let mut limits = TenantLimits::default();
    (limits.ingestion.metric_series_max, limits.ingestion.label_values_max) = (2, 2);
    let mut index = TenantIndex::new(1);
    let full = |index: &TenantIndex, metric: &str, host: &str| {
        index.full_limit(&[(METRIC_NAME, metric), ("host", host)], &limits).map(|full| (full.kind, full.used))
    };
    assert_eq!(full(&index, "cpu", "h0"), None);
    (0..2).for_each(|id| insert_host(&mut index, id, "cpu", &format!("h{id}")));
    assert_eq!(full(&index, "cpu", "h0"), Some((Reject::MetricSeriesLimit, 2)));
    assert_eq!(full(&index, "mem", "h2"), Some((Reject::LabelValueLimit, 2)));
    assert_eq!(full(&index, "mem", "h1"), None);
    index.remove(1);
    assert_eq!(full(&index, "cpu", "h2"), None);
    insert_host(&mut index, 2, "mem", "h2");
    // The pair is there, and no live series has it.
    assert_eq!(full(&index, "mem", "h1"), Some((Reject::LabelValueLimit, 2)));
}
