//! Records of a replicated log: owners of a partition, stopped or not, and a single server that got the same
//! requests, have equal samples. A failure prints its seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Rng;
use chronolith_format::record::{
    BatchPart, Record, RecordEncoder, RecordOrigin, RecordStore, SampleOrigin, decode_record, encode_event,
};
use chronolith_model::databases::BucketStoreId;
use chronolith_model::log_position::{LogPartition, PartitionId, TopicId};
use chronolith_model::{
    Columns, DuplicatePolicy, Labels, Matcher, MetadataEntry, MetricKind, ReadContext, Selector, StoreId,
    TenantId, TimeRange, WriteBatch,
};
use chronolith_tsdb::check::check_dir;
use chronolith_tsdb::{ApplyRecordError, RecordEffect, SyncMode, Tsdb};

use crate::fixture::{HOUR_MS, Machine, START_MS};
use crate::kinds::{push, random_sample, texts};

const PARTITION: LogPartition = LogPartition { topic: TopicId([9; 16]), number: PartitionId(2) };
const FIRST: u64 = 100;
const NAMES: u64 = 6;

/// A record as bytes, and the time of its gateway.
struct LoggedRecord {
    bytes: Vec<u8>,
    arrival_ms: i64,
}

fn tenants() -> [TenantId; 2] {
    ["a", "b"].map(|name| TenantId::new(name).expect("a tenant"))
}

fn origin(rng: &Rng, arrival_ms: i64) -> RecordOrigin {
    let tenant = tenants()[rng.below(2) as usize].clone();
    RecordOrigin { tenant, store: RecordStore::Default, request_id: "r".to_owned(), arrival_ms }
}

fn samples_record(rng: &Rng, arrival_ms: i64, duplicates: DuplicatePolicy) -> Vec<u8> {
    let mut batch = WriteBatch::from_labels();
    for _ in 0..=rng.below(4) {
        let name = format!("s{}", rng.below(NAMES));
        let mut samples = Vec::new();
        for _ in 0..=rng.below(12) {
            // Some are older than the limits of the tenants allow, some in the future; few distinct times, so
            // that most samples meet another one.
            let age = match rng.below(10) {
                0 => rng.below(40 * HOUR_MS.unsigned_abs()).cast_signed(),
                1 => -rng.below(HOUR_MS.unsigned_abs()).cast_signed(),
                _ => rng.below(900_000).cast_signed(),
            };
            let time = (arrival_ms - age).div_euclid(20_000) * 20_000;
            samples.push((time, random_sample(rng, time.unsigned_abs() / 60_000 % 10_000)));
        }
        push(&mut batch, &Labels::from_pairs([("__name__", &*name), ("a", "b")]), &samples);
    }
    let series: Vec<u32> = (0..batch.series.len() as u32).collect();
    let part = BatchPart { series: &series, exemplars: &[], metadata: &[] };
    let origin = origin(rng, arrival_ms);
    let mut records = Vec::new();
    let sample_origin = SampleOrigin { request: &origin, duplicates };
    RecordEncoder::default()
        .encode(sample_origin, &batch, part, |bytes| records.push(bytes.to_vec()))
        .expect("small");
    assert_eq!(records.len(), 1);
    records.remove(0)
}

/// Records of which up to `deletions` in 20 are deletions.
fn random_log(seed: u64, count: u64, duplicates: DuplicatePolicy, deletions: u64) -> Vec<LoggedRecord> {
    let rng = Rng::from_seed(seed);
    let mut arrival_ms = START_MS;
    let record = |_| {
        arrival_ms += rng.below(90_000).cast_signed();
        let mut bytes = Vec::new();
        match rng.below(20) {
            0 => encode_event(&Record::Tick { arrival_ms }, &mut bytes).expect("small"),
            lot if (1..=deletions).contains(&lot) => {
                let selectors = vec![vec![Matcher::equal("__name__", &format!("s{}", rng.below(NAMES)))]];
                let range = TimeRange::new(arrival_ms - 600_000, arrival_ms - 300_000);
                let origin = origin(&rng, arrival_ms);
                let record = Record::Delete { origin, number: None, selectors, range };
                encode_event(&record, &mut bytes).expect("small");
            }
            _ => bytes = samples_record(&rng, arrival_ms, duplicates),
        }
        LoggedRecord { bytes, arrival_ms }
    };
    (0..count).map(record).collect()
}

fn decode(bytes: &[u8], batch: &mut WriteBatch) -> Record {
    decode_record(bytes, |number| (number == 0).then(|| WriteBatch::from_labels().source), batch)
        .expect("a record")
}

fn machine(seed: u64, duplicates: DuplicatePolicy) -> Machine {
    let mut machine = Machine::new(seed);
    let limits = &mut machine.options.limits.default;
    limits.duplicates = duplicates;
    limits.future_ms_max = 600_000;
    limits.retention_ms = 30 * HOUR_MS;
    if seed.is_multiple_of(2) {
        limits.out_of_order_ms = 2 * HOUR_MS;
    }
    machine.options.wal.segment_bytes = 32 << 10;
    machine
}

fn owner(seed: u64, duplicates: DuplicatePolicy) -> Machine {
    let mut owner = machine(seed, duplicates);
    owner.options.wal.log = Some(PARTITION);
    owner.options.sync = SyncMode::Interval(1000);
    // The clock of an owner decides nothing.
    owner.clock.set_now_ms(START_MS - 1000 * HOUR_MS);
    owner
}

fn apply(tsdb: &Tsdb, offset: u64, logged: &LoggedRecord) -> RecordEffect {
    let mut batch = WriteBatch::from_labels();
    let record = decode(&logged.bytes, &mut batch);
    tsdb.records().expect("an owner").apply(offset, &record, &batch).expect("applied")
}

/// All samples of all series, and series in the head, by tenant.
fn content(machine: &Machine, tsdb: &Tsdb) -> BTreeMap<String, Vec<(i64, String)>> {
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let mut all = BTreeMap::new();
    for tenant in tenants() {
        for name in (0..NAMES).map(|number| format!("s{number}")) {
            let matchers = [Matcher::equal("__name__", &name)];
            let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
            let source = tsdb.reader().queryable(&tenant);
            let mut batches = source.select(&selector, &ctx).expect("selects");
            let mut series = Vec::new();
            while batches.next_batch(&mut series).expect("a batch") {}
            for one in &series {
                let mut columns = Columns::default();
                one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
                all.insert(format!("{}/{}", tenant.as_str(), one.labels), texts(&columns));
            }
        }
    }
    all.retain(|_, samples| !samples.is_empty());
    all
}

/// A single server that gets the requests at their times.
fn single_server(seed: u64, duplicates: DuplicatePolicy, log: &[LoggedRecord]) -> (Machine, Arc<Tsdb>) {
    let machine = machine(seed, duplicates);
    let tsdb = machine.open();
    for logged in log {
        machine.clock.set_now_ms(logged.arrival_ms);
        let mut batch = WriteBatch::from_labels();
        match decode(&logged.bytes, &mut batch) {
            Record::Samples { origin, .. } => {
                let _ = tsdb.append(&StoreId::from(&origin.tenant), &batch).expect("written");
            }
            Record::Delete { origin, selectors, range, .. } => {
                let store = StoreId::from(&origin.tenant);
                let _ = tsdb.admin().delete_series(&store, &selectors, range).expect("deleted");
            }
            Record::Tick { .. } | Record::Cut(_) => {}
        }
    }
    (machine, tsdb)
}

/// Stops an owner in one of several ways.
fn stop(machine: &Machine, tsdb: Arc<Tsdb>, rng: &Rng) {
    let how = rng.below(4);
    if how == 0 {
        tsdb.close().expect("closed");
    }
    drop(tsdb);
    match how {
        1 => machine.disk.kill(),
        2 => machine.disk.crash(),
        3 => machine.disk.crash_partly(rng),
        _ => {}
    }
}

#[test]
fn owners_and_a_single_server_have_equal_samples() {
    let (mut resumed_count, mut repeated_count) = (0, 0);
    for seed in 0..10 {
        let duplicates = if seed % 4 < 2 { DuplicatePolicy::KeepFirst } else { DuplicatePolicy::LastWins };
        // A deletion makes a single server flush; its newest sample, which limits out-of-order ones, may go.
        let log = random_log(seed, 150, duplicates, seed % 2);
        let (first, second) = (owner(seed, duplicates), owner(seed, duplicates));
        let steady = first.open();
        steady.records().expect("an owner").start(FIRST).expect("started");
        let (rng, mut applied) = (Rng::from_seed(500 + seed), 0);
        let mut stopped = second.open();
        stopped.records().expect("an owner").start(FIRST).expect("started");
        for end in 1..=log.len() {
            apply(&steady, FIRST + end as u64 - 1, &log[end - 1]);
            if rng.below(8) > 0 && end < log.len() {
                continue;
            }
            for (offset, logged) in (FIRST..).zip(&log).skip(applied).take(end - applied) {
                apply(&stopped, offset, logged);
                second.clock.advance(Duration::from_millis(rng.below(400)));
                stopped.wal_jobs().sync();
                match rng.below(10) {
                    0 => stopped.wal_jobs().roll_checkpoint(),
                    1 => stopped.maintenance().run(),
                    _ => {}
                }
            }
            stop(&second, stopped, &rng);
            stopped = second.open();
            let checked = check_dir(&second.env, &second.options.data_dir).expect("listed");
            let missing = checked.damages.iter().find(|damage| damage.what.contains("are missing"));
            assert_eq!(missing, None, "seed {seed}: removed frames are no damage");
            let records = stopped.records().expect("an owner");
            if records.next().is_none() {
                records.start(FIRST).expect("started");
            }
            let next = records.next().expect("started").offset;
            resumed_count += u64::from(next > FIRST);
            applied = (next - FIRST) as usize;
            assert!(applied <= end, "seed {seed}");
            repeated_count += end - applied;
        }
        for (offset, logged) in (FIRST..).zip(&log).skip(applied) {
            apply(&stopped, offset, logged);
        }
        let want = content(&first, &steady);
        assert!(want.len() > 6, "seed {seed}: {} series", want.len());
        assert_eq!(content(&second, &stopped), want, "seed {seed}: the owner that was stopped");
        let (server, single) = single_server(seed, duplicates, &log);
        assert_eq!(content(&server, &single), want, "seed {seed}: a single server");
    }
    assert!(resumed_count > 50, "{resumed_count} starts found a position");
    assert!(repeated_count > 50, "{repeated_count} records were read again");
}

/// The position is not ahead of metadata, which has a file of its own.
#[test]
fn metadata_of_a_record_is_durable_before_its_position() {
    let machine = owner(1, DuplicatePolicy::KeepFirst);
    let tsdb = machine.open();
    tsdb.records().expect("an owner").start(FIRST).expect("started");
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", "up")]), &[(START_MS, 1.0)]);
    let entry = MetadataEntry {
        metric: "up".to_owned(),
        kind: MetricKind::Gauge,
        help: "h".to_owned(),
        unit: String::new(),
    };
    batch.metadata.push(entry);
    let origin = origin(&Rng::from_seed(1), START_MS);
    let record = Record::Samples { origin, duplicates: DuplicatePolicy::KeepFirst };
    let _ = tsdb.records().expect("an owner").apply(FIRST, &record, &batch).expect("applied");
    machine.clock.advance(Duration::from_secs(2));
    tsdb.wal_jobs().sync();
    drop(tsdb);
    machine.disk.kill();
    let tsdb = machine.open();
    let records = tsdb.records().expect("an owner");
    assert_eq!((records.partition(), records.next()), (PARTITION, Some(PARTITION.at(FIRST + 1))));
    let Record::Samples { origin, .. } = record else { panic!("samples") };
    assert_eq!(tsdb.reader().metadata(&origin.tenant, None, 0), batch.metadata);
}

/// A record of a store that is not known here waits; one that cannot be applied is skipped.
#[test]
fn a_record_of_an_unknown_store_is_not_applied() {
    let machine = owner(2, DuplicatePolicy::KeepFirst);
    let tsdb = machine.open();
    let records = tsdb.records().expect("an owner");
    records.start(FIRST).expect("started");
    let mut origin = origin(&Rng::from_seed(1), START_MS);
    origin.store = RecordStore::Database(BucketStoreId::from_bytes([3; 16]));
    let record = Record::Samples { origin, duplicates: DuplicatePolicy::LastWins };
    let error = records.apply(FIRST, &record, &WriteBatch::from_labels()).expect_err("no such store");
    assert!(matches!(error, ApplyRecordError::UnknownStore { .. }), "{error}");
    assert_eq!(records.next(), Some(PARTITION.at(FIRST)));
    records.skip(FIRST).expect("skipped");
    assert_eq!(records.next(), Some(PARTITION.at(FIRST + 1)));
    // Windows of an owner become blocks by cuts alone.
    machine.clock.set_now_ms(START_MS + 100 * HOUR_MS);
    tsdb.maintenance().run();
}
