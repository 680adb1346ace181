//! The lock of the tables is free between two pages of a select.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chronolith_base::clock::Clock;
use chronolith_base::{Env, ManualClock, MemoryBudget};
use chronolith_model::{
    Columns, Labels, ReadContext, Selector, TenantId, TenantLimits, TimeRange, WriteBatch,
};

use crate::head::Head;
use crate::options::HeadOptions;
use crate::progress::ReplayProgress;
use crate::stripe::PAGE_SLOTS;

/// A clock that creates a series whenever a query asks for the time, and fails if the lock for that is taken.
struct CreatingClock {
    head: Arc<Head>,
    inner: Arc<ManualClock>,
    created_count: AtomicUsize,
}

fn batch_of(idx: usize) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    let labels = Labels::from_pairs([("__name__", "up"), ("instance", &*format!("host-{idx:08}"))]);
    batch.push_labels(&labels, &[(1000, idx as f64)]);
    batch
}

fn create(head: &Head, idx: usize) {
    let tenant = TenantId::new("a").unwrap();
    let (outcome, ticket) = head.append(&tenant, &TenantLimits::default(), 1000, &batch_of(idx)).unwrap();
    assert_eq!(outcome.series_created_count, 1);
    head.wait(ticket).unwrap();
}

impl Clock for CreatingClock {
    fn now_ms(&self) -> i64 {
        self.inner.now_ms()
    }

    fn mono_ns(&self) -> u64 {
        let tenant = self.head.tenant(&TenantId::new("a").unwrap()).unwrap();
        assert!(tenant.tables.try_write().is_some(), "a query holds the lock while it does nothing with it");
        create(&self.head, 1_000_000 + self.created_count.fetch_add(1, Ordering::Relaxed));
        self.inner.mono_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.inner.sleep(duration);
    }
}

/// A select of all series held the lock of the index from its first to its last series: whoever created one
/// meanwhile waited for all of it, and every other query behind that. Now each page of series is a hold of
/// its own.
#[test]
fn series_are_created_between_the_pages_of_a_select() {
    let (env, clock, _) = Env::fake(1000, 1);
    let options = HeadOptions {
        free_bytes_min: 0,
        wal_segment_bytes: 1 << 20,
        ..HeadOptions::new(PathBuf::from("/d"))
    };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).unwrap();
    let count = 3 * PAGE_SLOTS;
    (0..count).for_each(|idx| create(&head, idx));
    let head = Arc::new(head);
    let creating =
        Arc::new(CreatingClock { head: head.clone(), inner: clock, created_count: AtomicUsize::new(0) });
    let budget = MemoryBudget::new("query", u64::MAX);
    let ctx = ReadContext::new(creating.clone(), u64::MAX - 1, budget);
    let selector = Selector { matchers: &[], range: TimeRange::new(0, 2000) };
    let found = head.select(&TenantId::new("a").unwrap(), &selector, &ctx).unwrap();
    let created_count = creating.created_count.load(Ordering::Relaxed);
    assert!(created_count > count / PAGE_SLOTS, "no hold has more series than a page: {created_count}");
    assert!(found.is_sorted_by(|a, b| a.labels < b.labels), "each series once");
    let old = found.iter().filter(|one| one.labels.get("instance").is_some_and(|i| i < "host-01"));
    let mut columns = Columns::default();
    let mut values = Vec::new();
    for one in old {
        columns.clear();
        one.samples.read(selector.range, &mut columns).unwrap();
        values.extend_from_slice(&columns.values);
    }
    assert_eq!(values, (0..count).map(|idx| idx as f64).collect::<Vec<_>>(), "all that were there");
}
