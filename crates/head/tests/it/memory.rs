//! Reported memory of a head with known content.

use chronolith_format::store_name;
use chronolith_head::{Head, MemoryPart};

use crate::harness::{NOW_MS, TestEnv, batch, labels, tenant};

/// Enough dead series that an index rebuild is worth it.
const SERIES: u64 = 20_000;

fn part(head: &Head, name: &str) -> MemoryPart {
    head.statistics().memory().into_iter().find(|part| part.name == name).expect("a part of that name")
}

/// Series of two tenants, the first with three times as many.
fn filled(test_env: &TestEnv) -> Head {
    let (head, _) = test_env.open();
    for (name, range) in [("a", 0..3 * SERIES / 4), ("b", 3 * SERIES / 4..SERIES)] {
        let samples = [(NOW_MS, 1.0), (NOW_MS + 1, 2.5)];
        let series: Vec<_> = range.map(|idx| (labels(idx), samples.to_vec())).collect();
        test_env.write(&head, &tenant(name), &batch(&series)).expect("works");
    }
    head
}

#[test]
fn parts_use_the_memory_that_their_content_needs() {
    let test_env = TestEnv::new(1);
    let head = filled(&test_env);
    let check = |name: &str, count: u64, bytes: std::ops::RangeInclusive<u64>| {
        let found = part(&head, name);
        assert_eq!(found.count, count, "{name}");
        assert!(bytes.contains(&found.bytes), "{name}: {} is not in {bytes:?}", found.bytes);
    };
    check("hot_records", SERIES, SERIES * 64..=SERIES * 64 * 2);
    check("open_chunks", SERIES, SERIES * 64..=SERIES * 64 * 2);
    check("ooo_buffers", 0, 0..=0);
    check("sealed_chunk_refs", 0, 0..=1000);
    // One name, three jobs and the instances, by tenant.
    check("label_text", SERIES + 8, SERIES * 8..=SERIES * 32);
    check("label_pairs", SERIES + 8, SERIES * 48..=SERIES * 128);
    check("series_members", SERIES, SERIES * 6..=SERIES * 20);
    check("postings", SERIES + 8, SERIES..=SERIES * 16);
    check("wire_key_cache", SERIES, SERIES * 20..=SERIES * 40);
    let parts = head.statistics().memory();
    assert!(parts.iter().all(|one| parts.iter().filter(|other| other.name == one.name).count() == 1));
}

#[test]
fn tenants_share_what_belongs_to_all() {
    let test_env = TestEnv::new(2);
    let head = filled(&test_env);
    let found = head.statistics().memory_by_tenant(10);
    let counts: Vec<_> = found.iter().map(|one| (store_name(&one.tenant), one.series_count)).collect();
    assert_eq!(counts, [("a".into(), 3 * SERIES / 4), ("b".into(), SERIES / 4)], "those with most first");
    let all_bytes: u64 = head.statistics().memory().iter().map(|part| part.bytes).sum();
    let sum: u64 = found.iter().map(|one| one.bytes).sum();
    assert!(sum <= all_bytes && sum + 2 >= all_bytes, "{sum} of {all_bytes}");
    assert_eq!(head.statistics().memory_by_tenant(1).len(), 1);
}

/// Bytes of all parts but the buffers of writers, whose size does not depend on the series.
fn content_bytes(head: &Head) -> u64 {
    let is_buffer = |part: &&MemoryPart| ["wal_buffers", "append_scratch"].contains(&part.name);
    head.statistics().memory().iter().filter(|part| !is_buffer(part)).map(|part| part.bytes).sum()
}

#[test]
fn memory_is_freed_with_idle_series() {
    let test_env = TestEnv::new(3);
    let head = filled(&test_env);
    let before = content_bytes(&head);
    assert!(head.windows().age_series().is_empty());
    assert!(head.windows().age_series().is_empty(), "silent for one generation only");
    for idle in head.windows().age_series() {
        assert_eq!(idle.idle_count(), idle.series_count);
        for window in head.windows().list().into_iter().filter(|window| window.tenant == idle.tenant) {
            let snapshot = head.windows().snapshot_idle(&idle, window.range).expect("taken");
            assert_eq!(snapshot.series_count(), idle.idle_count());
            head.windows().drop(snapshot);
        }
    }
    assert_eq!(head.statistics().stats().series, 0);
    assert_eq!(part(&head, "hot_records").count, 0);
    let after = content_bytes(&head);
    // Each stripe keeps one free page of chunk nodes and one of sealed chunk references.
    let spare_bytes = 16 * (128 + 64) * 1024;
    assert!(
        after < spare_bytes && 2 * after < before,
        "{after} of {before}: {:?}",
        head.statistics().memory()
    );
}
