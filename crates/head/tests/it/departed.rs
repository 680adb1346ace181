//! Departed tenants and series leave no memory in use, and are created again when they are written to.

use std::path::Path;

use chronolith_base::Disk;
use chronolith_format::store_name;
use chronolith_head::Head;
use chronolith_model::{Selector, TimeRange, WriteBatch};

use crate::harness::{NOW_MS, TestEnv, batch, labels, read_all, read_once, tenant};

const TENANT_COUNT: u64 = 100;
const SERIES_PER_TENANT: u64 = 200;

fn of_tenant(time: i64) -> WriteBatch {
    let series: Vec<_> = (0..SERIES_PER_TENANT).map(|i| (labels(i), vec![(time, i as f64)])).collect();
    batch(&series)
}

fn name(idx: u64) -> String {
    format!("t{idx}")
}

/// Bytes of the parts of the head, except buffers and spare pages, whose size is constant by design.
fn content_bytes(head: &Head) -> u64 {
    let is_spare = |part: &str| {
        ["wal_buffers", "append_scratch", "open_chunks", "sealed_chunk_refs", "ooo_buffers"].contains(&part)
    };
    head.statistics().memory().iter().filter(|part| !is_spare(part.name)).map(|part| part.bytes).sum()
}

fn flush_all(head: &Head) {
    for window in head.windows().list() {
        let snapshot = head.windows().snapshot(&window.tenant, window.range).expect("taken");
        head.windows().drop(snapshot);
    }
    head.checkpointer().checkpoint().expect("written");
    head.windows().forget_unused_tenants();
}

/// Regression: 250 tenants of 4,000 series kept 369 MB after all had left: indexes were rebuilt only beyond
/// 4,096 dead series per tenant, and a tenant was never forgotten.
#[test]
fn memory_of_departed_series_and_tenants_is_freed() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    let empty_bytes = content_bytes(&head);
    for round in 0..3 {
        for idx in 0..TENANT_COUNT {
            test_env.write(&head, &tenant(&name(idx)), &of_tenant(NOW_MS + round)).expect("works");
        }
        assert_eq!(head.statistics().stats().series, TENANT_COUNT * SERIES_PER_TENANT);
        let full_bytes = content_bytes(&head);
        flush_all(&head);
        assert_eq!(head.statistics().stats().series, 0);
        assert!((0..TENANT_COUNT).all(|idx| !head.statistics().has_tenant(&tenant(&name(idx)))));
        let left_bytes = content_bytes(&head) - empty_bytes;
        assert!(
            left_bytes < full_bytes / 100,
            "{left_bytes} of {full_bytes}: {:?}",
            head.statistics().memory()
        );
    }
}

/// Regression: the newest file of sealed chunks stayed, mapped and on disk, when no chunk in it was
/// referenced: 63 MB after a million series had left.
#[test]
fn no_file_of_sealed_chunks_outlives_its_chunks() {
    let test_env = TestEnv::new(6);
    let (head, _) = test_env.open();
    for round in 0..4 {
        let samples =
            |idx: u64| (0..3000).map(move |k| (NOW_MS + k, ((k as u64 * 7919 + idx) % 8191) as f64 * 0.37));
        let series: Vec<_> = (0..200).map(|idx| (labels(idx), samples(idx).collect())).collect();
        test_env.write(&head, &tenant("a"), &batch(&series)).expect("works");
        assert_eq!(
            read_all(&test_env, &head, &["a"]).values().map(|samples| samples.len()).sum::<usize>(),
            200 * 3000,
            "{round}"
        );
        flush_all(&head);
        head.checkpointer().checkpoint().expect("written");
        let left = test_env.disk.list(Path::new("/data/chunks")).expect("listed");
        let left_bytes: u64 = left.iter().map(|entry| entry.len).sum();
        assert!(left_bytes < 1 << 20, "{left:?}");
    }
}

/// A third of the series of each tenant stays: the index has them and not much more.
#[test]
fn indexes_of_small_tenants_are_rebuilt_in_proportion() {
    let test_env = TestEnv::new(2);
    let (head, _) = test_env.open();
    let kept = TimeRange::window_of(NOW_MS, test_env.options.window_ms).end;
    for idx in 0..TENANT_COUNT {
        let tenant = tenant(&name(idx));
        test_env.write(&head, &tenant, &of_tenant(NOW_MS)).expect("works");
        let third: Vec<_> = (0..SERIES_PER_TENANT / 3).map(|i| (labels(i), vec![(kept, 1.0)])).collect();
        test_env.write(&head, &tenant, &batch(&third)).expect("works");
        let snapshot =
            head.windows().snapshot(&tenant, TimeRange::window_of(NOW_MS, test_env.options.window_ms));
        head.windows().drop(snapshot.expect("taken"));
    }
    let count =
        |part: &str| head.statistics().memory().iter().find(|p| p.name == part).map_or(0, |p| p.count);
    assert_eq!(count("series_index"), head.statistics().stats().series);
    assert_eq!(head.statistics().stats().series, TENANT_COUNT * (SERIES_PER_TENANT / 3));
}

/// Regression: a refused write created a tenant for good, and a million of them blocked every further tenant.
#[test]
fn a_refused_write_leaves_no_tenant() {
    let mut test_env = TestEnv::new(3);
    test_env.limits.series_max = 0;
    let (head, _) = test_env.open();
    for idx in 0..50 {
        let outcome = test_env.write(&head, &tenant(&name(idx)), &of_tenant(NOW_MS)).expect("answered");
        assert_eq!((outcome.accepted_count, outcome.rejected_count()), (0, SERIES_PER_TENANT));
        assert!(!head.statistics().has_tenant(&tenant(&name(idx))));
    }
    assert!(head.statistics().memory_by_tenant(10).is_empty());
}

/// Indexes of tenants are reused, so slices, WAL and series file identify tenants by their own numbers or by
/// name: records under an index of a former tenant are not taken for that tenant's, even after a kill.
#[test]
fn a_forgotten_tenant_returns_under_another_index() {
    let test_env = TestEnv::new(4);
    let (mut head, _) = test_env.open();
    let mut round = 0;
    let mut write = |head: &Head, idx: u64| {
        round += 1;
        let series = batch(&[(labels(idx), vec![(NOW_MS + round, round as f64)])]);
        test_env.write(head, &tenant(&name(idx)), &series).expect("works");
    };
    for step in 0..6 {
        (0..8).for_each(|idx| write(&head, idx));
        if step % 2 == 0 {
            head.checkpointer().checkpoint().expect("written");
        }
        // The even ones leave, and return in another order next to new ones.
        for window in head.windows().list() {
            if store_name(&window.tenant)[1..].parse::<u64>().is_ok_and(|idx| idx % 2 == 0) {
                head.windows().drop(head.windows().snapshot(&window.tenant, window.range).expect("taken"));
            }
        }
        head.checkpointer().checkpoint().expect("written");
        head.windows().forget_unused_tenants();
        [9, 8, 6, 4, 2, 0].into_iter().for_each(|idx| write(&head, idx));
        let names: Vec<String> = (0..10).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let before = read_all(&test_env, &head, &names);
        for one in &names {
            let selector = Selector { matchers: &[], range: TimeRange::ALL };
            let own = read_once(&test_env, &head, one, &selector);
            assert!(own.keys().all(|(_, series)| *series == labels(one[1..].parse().expect("a number"))));
        }
        drop(head);
        test_env.disk.crash();
        let (again, report) = test_env.open();
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        head = again;
        assert_eq!(read_all(&test_env, &head, &names), before);
    }
}
