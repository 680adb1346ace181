//! A store on a fake machine, and short ways to write and read.

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::{Env, ManualClock, MemDisk};
use chronolith_model::query::SelectRequest;
use chronolith_model::{
    Columns, Labels, Matcher, Queryable, ReadContext, Selector, StoreId, TimeRange, WriteBatch, WriteOutcome,
};
use chronolith_tsdb::{ReplayProgress, Tsdb, TsdbOptions, WriteError};

/// 2026-11-20 00:00 UTC, aligned to two hours.
pub(crate) const START_MS: i64 = 1_795_132_800_000;
pub(crate) const HOUR_MS: i64 = 3_600_000;

pub(crate) struct Machine {
    pub(crate) env: Env,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) disk: Arc<MemDisk>,
    pub(crate) options: TsdbOptions,
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Machine {
        let (env, clock, disk) = Env::fake(START_MS, seed);
        let mut options = TsdbOptions::new(PathBuf::from("/data"));
        options.wal.segment_bytes = 1 << 20;
        // Windows of tests are small, and each test says itself what waits.
        options.flush.small_window_bytes = 0;
        // Tests set the clock far ahead at once.
        options.retention.clock_guard_ms = 0;
        Machine { env, clock, disk, options }
    }

    pub(crate) fn open(&self) -> Arc<Tsdb> {
        let progress = Arc::new(ReplayProgress::default());
        Tsdb::open(self.env.clone(), self.options.clone(), progress).expect("opens")
    }

    pub(crate) fn open_at(&self, data_dir: &str) -> Arc<Tsdb> {
        let options = TsdbOptions { data_dir: PathBuf::from(data_dir), ..self.options.clone() };
        Tsdb::open(self.env.clone(), options, Arc::new(ReplayProgress::default())).expect("opens")
    }

    /// Everything stored of one series.
    pub(crate) fn read(&self, tsdb: &Tsdb, tenant: &StoreId, name: &str) -> Vec<(i64, u64)> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let matchers = [Matcher::equal("__name__", name)];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let mut batches = view(tsdb, tenant).select(&selector, &ctx).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        assert!(series.len() <= 1, "one series of that name");
        let mut columns = Columns::default();
        for one in &series {
            one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
        }
        let all: Vec<(i64, u64)> =
            columns.times.into_iter().zip(columns.values.into_iter().map(f64::to_bits)).collect();
        for last in [all.last(), all.get(all.len() / 2)].into_iter().flatten() {
            let range = TimeRange::new(i64::MIN, last.0 + 1);
            assert_eq!(self.newest(tsdb, tenant, name, range), Some(*last), "the newest sample of {name}");
        }
        all
    }

    /// The newest sample of one series, as asked for alone.
    fn newest(&self, tsdb: &Tsdb, tenant: &StoreId, name: &str, range: TimeRange) -> Option<(i64, u64)> {
        let ctx = ReadContext::unlimited(self.env.clock.clone());
        let selector = Selector { matchers: &[Matcher::equal("__name__", name)], range };
        let newest = SelectRequest::newest(&selector);
        let mut batches = view(tsdb, tenant).open_series(newest, &ctx).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        let mut columns = Columns::default();
        series.first()?.samples.read(range, &mut columns).expect("reads");
        Some((*columns.times.last()?, columns.values.last()?.to_bits()))
    }
}

/// A tenant as PromQL sees it by its default store, and another store alone.
fn view(tsdb: &Tsdb, store: &StoreId) -> Arc<dyn Queryable> {
    store
        .tenant()
        .map_or_else(|| tsdb.reader().store_queryable(store), |tenant| tsdb.reader().queryable(tenant))
}

pub(crate) fn write(
    tsdb: &Tsdb,
    tenant: &StoreId,
    name: &str,
    samples: &[(i64, f64)],
) -> Result<WriteOutcome, WriteError> {
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", name), ("a", "b")]), samples);
    tsdb.append(tenant, &batch)
}
