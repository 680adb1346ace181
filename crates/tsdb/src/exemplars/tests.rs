//! Stored exemplars, their order, and the tenants whose exemplars are evicted.

use super::*;
use chronolith_model::{StoreId, TenantId, TenantLimits};

const NOW_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 3_600_000;

fn window(out_of_order_ms: i64) -> ExemplarWindow {
    let limits = TenantLimits { out_of_order_ms, future_ms_max: 600_000, ..TenantLimits::default() };
    ExemplarWindow::of(&limits, NOW_MS)
}

fn exemplar(trace: &str, value: f64, time_ms: i64) -> Exemplar {
    Exemplar { labels: Labels::from_pairs([("trace_id", trace)]), value, time_ms }
}

fn series() -> Labels {
    Labels::from_pairs([("__name__", "x")])
}

fn push(storage: &ExemplarStorage, store: &StoreId, exemplars: &[Exemplar]) -> (u64, ExemplarRejects) {
    let mut rejects = ExemplarRejects::default();
    let exemplars = exemplars.iter().map(|exemplar| (series(), exemplar.clone())).collect();
    (storage.push_all(store, window(0), exemplars, &mut rejects), rejects)
}

fn times(storage: &ExemplarStorage, store: &StoreId, range: TimeRange) -> Vec<i64> {
    let found = storage.select(store, &[vec![Matcher::equal("__name__", "x")]], range);
    found.iter().flat_map(|(_, exemplars)| exemplars.iter().map(|e| e.time_ms)).collect()
}

/// Sends requests of (trace, value, seconds before now) one after the other; compares the counts of accepted
/// ones and the traces in order of the answer.
#[track_caller]
fn check(out_of_order_ms: i64, requests: &[&[(&str, f64, i64)]], accepted: &[u64], stored: &[&str]) {
    let (storage, tenant) = (ExemplarStorage::new(100), StoreId::anonymous());
    let mut found = Vec::new();
    for request in requests {
        let exemplars = request
            .iter()
            .map(|&(trace, value, before_s)| (series(), exemplar(trace, value, NOW_MS - before_s * 1000)));
        let mut rejects = ExemplarRejects::default();
        let count = storage.push_all(&tenant, window(out_of_order_ms), exemplars.collect(), &mut rejects);
        assert_eq!(count + rejects.total(), request.len() as u64);
        found.push(count);
    }
    assert_eq!(found, accepted, "accepted");
    let found = storage.select(&tenant, &[vec![Matcher::equal("__name__", "x")]], TimeRange::ALL);
    let traces =
        found.iter().flat_map(|(_, exemplars)| exemplars.iter().filter_map(|e| e.labels.get("trace_id")));
    assert_eq!(traces.collect::<Vec<_>>(), stored, "stored");
}

/// Exemplars were stored in strictly ascending time only: a second one at the same time and any older one
/// was refused, and one from the future blocked its series. The rules are Prometheus's with an out-of-order
/// window; without a window exemplars of any age are stored, as samples are. Checked against Prometheus 3.16.
#[test]
fn exemplars_are_taken_in_any_order_of_time() {
    // Equal values ascend by the hash of the labels: trace `b` has the largest, `c` the least.
    for ms in [0, HOUR_MS] {
        check(ms, &[&[("a", 1.0, 0)], &[("b", 2.0, 0)]], &[1, 1], &["a", "b"]);
        check(ms, &[&[("a", 2.0, 0)], &[("b", 1.0, 0)]], &[1, 0], &["a"]);
        check(ms, &[&[("a", 1.0, 0)], &[("a", 1.0, 0)]], &[1, 1], &["a"]);
        check(ms, &[&[("a", 1.0, 0)], &[("b", 1.0, 0)]], &[1, 1], &["a", "b"]);
        check(ms, &[&[("b", 1.0, 0)], &[("a", 1.0, 0)]], &[1, 0], &["b"]);
        check(ms, &[&[("a", 1.0, 0)], &[("c", 1.0, 0)]], &[1, 0], &["a"]);
        check(ms, &[&[("b", 1.0, 0), ("a", 1.0, 0), ("c", 1.0, 0)]], &[3], &["a", "b"]);
        check(ms, &[&[("a", 1.0, 0), ("b", 2.0, 0)]], &[2], &["a", "b"]);
        check(ms, &[&[("b", 2.0, 0), ("a", 1.0, 0)]], &[2], &["a", "b"]);
        check(ms, &[&[("a", 1.0, 0)], &[("b", 1.0, 60)]], &[1, 1], &["b", "a"]);
        check(ms, &[&[("a", 1.0, 0)], &[("b", 1.0, 60)], &[("c", 9.0, 60)]], &[1, 1, 1], &["b", "a"]);
        check(ms, &[&[("a", 1.0, 0)], &[("b", 1.0, 60)], &[("c", 0.0, 30)]], &[1, 1, 1], &["b", "c", "a"]);
        check(ms, &[&[("a", 1.0, -7200)], &[("b", 1.0, 0)]], &[0, 1], &["b"]);
        check(ms, &[&[("a", 1.0, -599)], &[("b", 1.0, 0)]], &[1, 1], &["b", "a"]);
        check(ms, &[&[("a", 1.0, 9)], &[("b", 1.0, 8)], &[("c", 1.0, 7)]], &[1, 1, 1], &["a", "b", "c"]);
        check(ms, &[&[("c", 1.0, 7), ("b", 1.0, 8), ("a", 1.0, 9)]], &[3], &["a", "b", "c"]);
        check(ms, &[&[("a", f64::NAN, 0)], &[("b", f64::NAN, 0)]], &[1, 1], &["a", "b"]);
        check(ms, &[&[("a", 1.0, 3599), ("b", 1.0, 0)], &[("c", 1.0, 3598)]], &[2, 1], &["a", "c", "b"]);
    }
    check(HOUR_MS, &[&[("a", 1.0, 0)], &[("b", 1.0, 3600)]], &[1, 0], &["a"]);
    check(HOUR_MS, &[&[("a", 1.0, 0)], &[("b", 1.0, 3599)]], &[1, 1], &["b", "a"]);
    check(0, &[&[("a", 1.0, 0)], &[("b", 1.0, 360_000)]], &[1, 1], &["b", "a"]);
    let long = "x".repeat(LABEL_CHARS_MAX);
    check(0, &[&[(&long, 1.0, 0)], &[("a", 1.0, 0)]], &[0, 1], &["a"]);
}

#[test]
fn the_oldest_arrivals_are_evicted_and_tenants_are_separate() {
    let storage = ExemplarStorage::new(2);
    let (a, b) = (StoreId::anonymous(), StoreId::from(TenantId::new("b").expect("valid")));
    for time in [1, 2, 2, 3, 3] {
        push(&storage, &a, &[exemplar("t", 1.0, time)]);
    }
    assert_eq!(times(&storage, &a, TimeRange::ALL), [2, 3]);
    assert!(times(&storage, &b, TimeRange::ALL).is_empty());
    assert!(times(&storage, &a, TimeRange::new(4, 9)).is_empty());
    // An old one is the newest arrival.
    push(&storage, &a, &[exemplar("t", 1.0, 1)]);
    assert_eq!(times(&storage, &a, TimeRange::ALL), [1, 3]);
    push(&storage, &a, &[exemplar("t", 1.0, 9), exemplar("t", 1.0, 8), exemplar("t", 1.0, 7)]);
    assert_eq!(times(&storage, &a, TimeRange::ALL), [8, 9]);
    let none = ExemplarStorage::new(0);
    let (accepted, rejects) = push(&none, &a, &[exemplar("t", 1.0, 1)]);
    assert_eq!((accepted, rejects.of(ExemplarReject::Disabled), none.len()), (0, 1, 0));
}

/// With one buffer for all, a tenant that sent many exemplars evicted all others'.
#[test]
fn a_busy_tenant_does_not_evict_exemplars_of_others() {
    let storage = ExemplarStorage::new(100);
    let (small, busy) = (
        StoreId::from(TenantId::new("small").expect("valid")),
        StoreId::from(TenantId::new("busy").expect("valid")),
    );
    for time in 0..3 {
        push(&storage, &small, &[exemplar("t", 1.0, time)]);
    }
    for time in 0..1000 {
        push(&storage, &busy, &[exemplar("t", 1.0, time)]);
    }
    let of = |tenant| times(&storage, tenant, TimeRange::ALL);
    assert_eq!((of(&small), of(&busy).len(), storage.len()), (vec![0, 1, 2], 97, 100));
    assert_eq!(of(&busy).last(), Some(&999));
    // More tenants than exemplars that fit: one each, the total stays.
    for idx in 0..300 {
        push(
            &storage,
            &StoreId::from(TenantId::new(&format!("t{idx}")).expect("valid")),
            &[exemplar("t", 1.0, 1)],
        );
    }
    assert_eq!(storage.len(), 100);
    let buffers = storage.buffers.lock();
    assert_eq!(buffers.by_len.len(), buffers.by_tenant.len());
    for buffer in buffers.by_tenant.values() {
        assert_eq!((buffer.ids.len(), buffer.series.len(), buffer.exemplars.len()), (1, 1, 1));
    }
}
