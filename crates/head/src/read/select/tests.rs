//! The lock of the index is released between two pages of a select.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chronolith_base::clock::Clock;
use chronolith_base::{Env, ManualClock, MemoryBudget, SpareThreads};
use chronolith_model::query::{PresenceHints, Projection, SampleNeed};
use chronolith_model::{
    Columns, Labels, Matcher, ReadContext, Selector, SeriesRead, StoreId, TenantId, TenantLimits, TimeRange,
    WriteBatch,
};

use crate::head::Head;
use crate::options::HeadOptions;
use crate::recovery::progress::ReplayProgress;
use crate::series::stripe::PAGE_SLOTS;

const SERIES_COUNT: usize = 3 * PAGE_SLOTS;

/// A clock that creates a series on each call of a query, and fails if the index lock needed for that is
/// held.
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
    let tenant = StoreId::from(TenantId::new("a").unwrap());
    let (outcome, position) = head.append(&tenant, &TenantLimits::default(), 1000, &batch_of(idx)).unwrap();
    assert_eq!(outcome.series_created_count, 1);
    head.wait(position).unwrap();
}

impl Clock for CreatingClock {
    fn now_ms(&self) -> i64 {
        self.inner.now_ms()
    }

    fn mono_ns(&self) -> u64 {
        let tenant = self.head.state().index.tenant(&StoreId::from(TenantId::new("a").unwrap())).unwrap();
        // Other threads of the query hold the lock for a page at a time.
        let written = tenant.tables.try_write_for(Duration::from_secs(10));
        assert!(written.is_some(), "a query holds the lock between two pages");
        drop(written);
        create(&self.head, 1_000_000 + self.created_count.fetch_add(1, Ordering::Relaxed));
        self.inner.mono_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.inner.sleep(duration);
    }
}

/// Returns a head with some pages of series, a context that creates a series at each check, and their count.
fn filled() -> (Arc<Head>, ReadContext, Arc<CreatingClock>) {
    let (env, clock, _) = Env::fake(1000, 1);
    let options = HeadOptions {
        free_bytes_min: 0,
        wal_segment_bytes: 1 << 20,
        ..HeadOptions::new(PathBuf::from("/d"))
    };
    let (head, _) = Head::open(&env, options, &ReplayProgress::default()).unwrap();
    (0..SERIES_COUNT).for_each(|idx| create(&head, idx));
    let head = Arc::new(head);
    let creating =
        Arc::new(CreatingClock { head: head.clone(), inner: clock, created_count: AtomicUsize::new(0) });
    let budget = MemoryBudget::new("query", u64::MAX);
    let ctx = ReadContext::new(creating.clone(), u64::MAX - 1, budget);
    (head, ctx, creating)
}

/// Regression: label names, label values and the selection for `count` held the index lock for all of their
/// series.
#[test]
fn series_are_created_between_the_pages_of_label_lists() {
    let (head, ctx, creating) = filled();
    let tenant = StoreId::from(TenantId::new("a").unwrap());
    let matchers = [Matcher::equal("__name__", "up")];
    let created_by = |list: &dyn Fn(&Selector<'_>)| {
        let before = creating.created_count.load(Ordering::Relaxed);
        list(&Selector { matchers: &matchers, range: TimeRange::new(0, 2000) });
        creating.created_count.load(Ordering::Relaxed) - before
    };
    let names = created_by(&|selector| {
        let names = head.reader().label_names(&tenant, selector, 0, &ctx).unwrap();
        assert_eq!(names, ["__name__", "instance"]);
    });
    let values = created_by(&|selector| {
        let values = head.reader().label_values(&tenant, "instance", selector, 0, &ctx).unwrap();
        assert!(values.len() >= SERIES_COUNT && values.is_sorted());
    });
    let hints =
        PresenceHints { samples: SampleNeed::Newest, projection: &Projection::new(&["instance"], true) };
    let counted = created_by(&|selector| {
        let mut series = Vec::new();
        let mut batches = head.reader().select_presence(&tenant, selector, &hints, &ctx).unwrap();
        while batches.next_batch(&mut series).unwrap() {}
        assert!(series.len() >= SERIES_COUNT && series.is_sorted_by(|a, b| a.labels < b.labels));
    });
    for created_count in [names, values, counted] {
        assert!(created_count > SERIES_COUNT / PAGE_SLOTS, "a hold has a page at most: {created_count}");
    }
}

/// Regression: a select of all series held the index lock from its first to its last series: a writer that
/// created a series meanwhile waited for all of it, and all queries queued after that. Each page of series
/// takes the lock on its own.
#[test]
fn series_are_created_between_the_pages_of_a_select() {
    let (head, ctx, creating) = filled();
    let count = SERIES_COUNT;
    let selector = Selector { matchers: &[], range: TimeRange::new(0, 2000) };
    let found = head.reader().select(&StoreId::from(TenantId::new("a").unwrap()), &selector, &ctx).unwrap();
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

/// Several threads that copy pages return the same series in the same order as one.
#[test]
fn pages_are_copied_by_several_threads() {
    let (head, ctx, _) = filled();
    let tenant = StoreId::from(TenantId::new("a").unwrap());
    let selector = Selector { matchers: &[], range: TimeRange::new(0, 2000) };
    let select = |ctx: &ReadContext, projection: Option<&Projection>| -> Vec<(String, f64)> {
        let found =
            head.reader().select_labels(&tenant, &selector, SampleNeed::All, projection, ctx).unwrap();
        let value = |one: &SeriesRead| {
            let mut columns = Columns::default();
            one.samples.read(selector.range, &mut columns).unwrap();
            columns.values[0]
        };
        found.iter().map(|one| (one.labels.to_string(), value(one))).filter(|one| one.1 < 1e6).collect()
    };
    let spare = Arc::new(SpareThreads::new(3));
    let parallel = ctx.with_spare_threads(spare, 3);
    let all = select(&ctx, None);
    assert_eq!(all.len(), SERIES_COUNT);
    assert_eq!(select(&parallel, None), all);
    let of_name = Some(Projection::new(&["__name__"], true));
    let projected: Vec<(String, f64)> = all.iter().map(|(_, value)| ("up".to_owned(), *value)).collect();
    assert_eq!(select(&ctx, of_name.as_ref()), projected);
    assert_eq!(select(&parallel, of_name.as_ref()), projected);
}
