//! A store on a fake machine, and short ways to write and read: a server with its WAL, or the owner of a
//! partition, which applies the records of a log.
//!
//! Tests that write, restart and read run over both ([`Machine::both`]). The other ones need a part that an
//! owner does not have: blocks by a flush (an owner publishes windows that were cut; tests of `cluster` and
//! the simulator cover them), deletions and corrections by the admin API, stores of databases, which the
//! bucket of a cluster has, or promises about acknowledged samples at each disk operation, which the log
//! makes in a cluster.

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::{Env, ManualClock, MemDisk};
use chronolith_format::record::{
    BatchPart, Record, RecordEncoder, RecordOrigin, RecordStore, SampleOrigin, decode_record,
};
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use chronolith_model::query::SelectRequest;
use chronolith_model::{
    Columns, Labels, Matcher, Queryable, ReadContext, Selector, StoreId, TimeRange, WriteBatch, WriteOutcome,
};
use chronolith_tsdb::{RecordEffect, ReplayProgress, SyncMode, Tsdb, TsdbOptions, WriteError};
use parking_lot::Mutex;

/// 2026-11-20 00:00 UTC, aligned to two hours.
pub(crate) const START_MS: i64 = 1_795_132_800_000;
pub(crate) const HOUR_MS: i64 = 3_600_000;

const PARTITION: LogPartition = LogPartition { topic: TopicId([7; 16]), number: PartitionId(0) };
/// Offset of the first record of the log.
const FIRST: u64 = 40;

pub(crate) struct Machine {
    pub(crate) env: Env,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) disk: Arc<MemDisk>,
    pub(crate) options: TsdbOptions,
    /// Records of the log of an owner, which outlives the machine.
    log: Mutex<Vec<Vec<u8>>>,
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
        Machine { env, clock, disk, options, log: Mutex::default() }
    }

    /// A server with its WAL, and the owner of a partition.
    pub(crate) fn both(seed: u64) -> [Machine; 2] {
        let mut owner = Machine::new(seed);
        owner.options.wal.log = Some(PARTITION);
        owner.options.sync = SyncMode::Interval(1000);
        [Machine::new(seed), owner]
    }

    /// Returns true if the store applies records of a log.
    pub(crate) fn is_owner(&self) -> bool {
        self.options.wal.log.is_some()
    }

    /// Opens the store. An owner applies the records after its position.
    pub(crate) fn open(&self) -> Arc<Tsdb> {
        let progress = Arc::new(ReplayProgress::default());
        let tsdb = Tsdb::open(self.env.clone(), self.options.clone(), progress).expect("opens");
        if let Some(records) = tsdb.records().filter(|records| records.partition() == PARTITION) {
            if records.next().is_none() {
                records.start(FIRST).expect("started");
            }
            let applied_count = records.next().expect("started").offset - FIRST;
            let log = self.log.lock();
            for (offset, bytes) in (FIRST..).zip(&*log).skip(applied_count as usize) {
                apply(&tsdb, offset, bytes);
            }
        }
        tsdb
    }

    /// Writes a batch: a server appends it to its WAL, an owner gets it as a record of the log.
    pub(crate) fn append(
        &self,
        tsdb: &Tsdb,
        store: &StoreId,
        batch: &WriteBatch,
    ) -> Result<WriteOutcome, WriteError> {
        if !self.is_owner() {
            return tsdb.append(store, batch);
        }
        let tenant = store.tenant().expect("a default store").clone();
        let limits = self.options.limits.of(&tenant);
        let arrival_ms = self.env.clock.now_ms();
        let origin =
            RecordOrigin { tenant, store: RecordStore::Default, request_id: "r".to_owned(), arrival_ms };
        let series: Vec<u32> = (0..batch.series.len() as u32).collect();
        let part = BatchPart { series: &series, exemplars: &[], metadata: &[] };
        let origin = SampleOrigin { request: &origin, duplicates: limits.duplicates };
        let mut log = self.log.lock();
        let before = log.len();
        RecordEncoder::default()
            .encode(origin, batch, part, |bytes| log.push(bytes.to_vec()))
            .expect("small");
        assert_eq!(log.len(), before + 1, "a record per write");
        Ok(apply(tsdb, FIRST + before as u64, &log[before]))
    }

    /// Writes samples of one series.
    pub(crate) fn write(
        &self,
        tsdb: &Tsdb,
        store: &StoreId,
        name: &str,
        samples: &[(i64, f64)],
    ) -> Result<WriteOutcome, WriteError> {
        self.append(tsdb, store, &batch_of(name, samples))
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
    tsdb.append(tenant, &batch_of(name, samples))
}

fn batch_of(name: &str, samples: &[(i64, f64)]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", name), ("a", "b")]), samples);
    batch
}

/// Applies a record of samples as an owner does.
fn apply(tsdb: &Tsdb, offset: u64, bytes: &[u8]) -> WriteOutcome {
    let mut batch = WriteBatch::from_labels();
    let source = |number| (number == 0).then(|| WriteBatch::from_labels().source);
    let record: Record = decode_record(bytes, source, &mut batch).expect("a record");
    let effect = tsdb.records().expect("an owner").apply(offset, &record, &batch).expect("applied");
    let RecordEffect::Written(outcome) = effect else { panic!("{effect:?}") };
    *outcome
}
