//! Owners over a simulated log: stopped after every step, cut off from the log, with records that cannot be
//! applied, and with logs that have lost records.

mod cuts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use chronolith_base::{Env, ManualClock, MemDisk, Rng};
use chronolith_bucket::store::faults::{FaultPlan, FaultStore, MemoryBucket};
use chronolith_bucket::store::list::{ListOptions, ListedObject};
use chronolith_bucket::store::read::ReadRange;
use chronolith_bucket::{Folder, Purpose, RequestContext};
use chronolith_format::record::{
    BatchPart, Record, RecordEncoder, RecordOrigin, RecordStore, SampleOrigin, encode_event,
};
use chronolith_ingest::protocols::sent_keys;
use chronolith_model::databases::BucketStoreId;
use chronolith_model::log_position::{PartitionId, Position, TopicId};
use chronolith_model::{
    Columns, DuplicatePolicy, Labels, Matcher, Queryable, ReadContext, Selector, TenantId, TimeRange,
};
use chronolith_replicated_log::Ticket;
use chronolith_replicated_log::sim::{SimFaults, SimLog, SimOptions, SimTopic};
use chronolith_tsdb::{ReplayProgress, SyncMode, TsdbOptions};
use tokio::runtime::Runtime;

use super::*;
use crate::verify::{Verification, VerifyError, VerifyParts, verify_partition};

const START_MS: i64 = 1_795_132_800_000;
const P0: PartitionId = PartitionId(0);
const SERIES: u64 = 5;
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

/// A machine of an owner, and the topic.
struct TestEnv {
    env: Env,
    clock: Arc<ManualClock>,
    disk: Arc<MemDisk>,
    topic: SimTopic,
    bucket: Arc<MemoryBucket>,
    client: Arc<FaultStore>,
    options: OwnerOptions,
    /// Flush delay of the store.
    delay_ms: i64,
}

impl TestEnv {
    fn new(seed: u64, faults: SimFaults) -> TestEnv {
        let (env, clock, disk) = Env::fake(START_MS, seed);
        let options = SimOptions { faults, ..SimOptions::new(1, seed) };
        let topic = SimTopic::new(clock.clone(), options);
        let options = OwnerOptions::new(sent_keys);
        let bucket = Arc::new(MemoryBucket::new());
        TestEnv {
            env,
            clock,
            disk,
            topic,
            client: bucket.connect(seed),
            bucket,
            options,
            delay_ms: 3_600_000,
        }
    }

    /// Another machine with the same topic.
    fn second(&self, seed: u64) -> TestEnv {
        let (env, _, disk) = Env::fake(START_MS, seed);
        let env = Env { clock: self.env.clock.clone(), ..env };
        let (clock, topic, bucket) = (self.clock.clone(), self.topic.clone(), self.bucket.clone());
        TestEnv {
            env,
            clock,
            disk,
            topic,
            client: bucket.connect(seed),
            bucket,
            options: self.options.clone(),
            delay_ms: self.delay_ms,
        }
    }

    fn connect(&self) -> SimLog {
        self.topic.connect().expect("reachable")
    }

    fn store_of_bucket(&self) -> Arc<Store> {
        Arc::new(Store::simulated(self.client.clone(), &self.env, RUNTIME.handle().clone()))
    }

    fn set_bucket_away(&self, is_away: bool) {
        let unavailable = if is_away { 1000 } else { 0 };
        self.client.set_plan(FaultPlan { unavailable, ..FaultPlan::default() });
    }

    fn store_resume(&self, partition: LogPartition, offset: u64) {
        let handle = RUNTIME.handle().clone();
        let stored = StoredResume::new(self.store_of_bucket(), &self.env, handle, partition);
        stored.store(offset, None).expect("stores");
    }

    /// Refused records, by offset.
    fn kept(&self) -> BTreeMap<u64, Bytes> {
        let objects = self.objects("cluster/refused/0").into_iter();
        objects.map(|(name, bytes)| (name.parse().expect("an offset"), bytes)).collect()
    }

    /// Accepted gaps, by name, with the line of each.
    fn accepted(&self) -> BTreeMap<String, String> {
        let objects = self.objects("cluster/accepted-gaps/0").into_iter();
        objects.map(|(name, bytes)| (name, String::from_utf8(bytes.to_vec()).expect("a text"))).collect()
    }

    /// Objects of a folder of the bucket, by the last part of their keys.
    fn objects(&self, folder: &str) -> BTreeMap<String, Bytes> {
        let request = || {
            let folder = Folder::of_tenant(&TenantId::new("cluster").expect("an id"));
            RequestContext::with_timeout(&*self.env.clock, folder, Duration::from_secs(60), Purpose::Tool)
        };
        let store = self.store_of_bucket();
        let options = ListOptions { prefix: folder.to_owned(), ..ListOptions::default() };
        let page = RUNTIME.block_on(store.list(&request(), &options)).expect("lists");
        let read = |object: ListedObject| {
            let read = RUNTIME.block_on(store.read(&request(), &object.key, ReadRange::Whole, None));
            let name = object.key.rsplit('/').next().expect("a name");
            (name.to_owned(), read.expect("reads").bytes)
        };
        page.objects.into_iter().map(read).collect()
    }

    fn store(&self) -> Arc<Tsdb> {
        let (tsdb, discarded) = self.try_store();
        assert_eq!(discarded, None, "no stop makes a directory unusable");
        tsdb
    }

    /// Opens the store; returns the reason why its directory was made empty as well.
    fn try_store(&self) -> (Arc<Tsdb>, Option<String>) {
        let mut options = TsdbOptions::new(PathBuf::from("/data"));
        options.wal.segment_bytes = 32 << 10;
        options.sync = SyncMode::Interval(1000);
        options.limits.default.retention_ms = 0;
        options.wal.log = Some(LogPartition { topic: self.connect().identity(), number: P0 });
        let progress = Arc::new(ReplayProgress::default());
        options.flush.delay_ms = self.delay_ms;
        open_store(&self.env, &options, &progress, None).expect("opens")
    }

    fn try_owner(&self, tsdb: &Arc<Tsdb>) -> Result<Owner, OwnerError> {
        let parts = OwnerParts {
            log: Arc::new(self.connect()),
            bucket: self.store_of_bucket(),
            handle: RUNTIME.handle().clone(),
            tsdb: tsdb.clone(),
            env: self.env.clone(),
        };
        Owner::open(parts, self.options.clone())
    }

    fn owner(&self) -> (Owner, Arc<Tsdb>) {
        let tsdb = self.store();
        (self.try_owner(&tsdb).expect("opens"), tsdb)
    }

    /// Appends until the log has acknowledged the record.
    fn send(&self, log: &SimLog, record: &[u8]) -> u64 {
        loop {
            let sent = log.append(P0, Bytes::copy_from_slice(record)).and_then(Ticket::wait);
            match sent {
                Ok(position) => return position.offset,
                Err(error) => assert!(error.is_retriable(), "{error}"),
            }
        }
    }

    /// All samples, by series.
    fn content(&self, tsdb: &Tsdb) -> Content {
        read_all(&*tsdb.reader().queryable(&TenantId::anonymous()), self)
    }

    fn verify(&self) -> Verification {
        let handle = RUNTIME.handle().clone();
        let parts = VerifyParts {
            log: Arc::new(self.connect()),
            bucket: Arc::new(Store::simulated(self.bucket.connect(3), &self.env, handle.clone())),
            handle,
            env: self.env.clone(),
            source: sent_keys,
        };
        loop {
            match verify_partition(&parts, P0) {
                Err(VerifyError::Log(error)) if error.is_retriable() => {}
                done => return done.expect("reads"),
            }
        }
    }

    fn stored_resume(&self) -> Option<Position> {
        let partition = LogPartition { topic: self.connect().identity(), number: P0 };
        let handle = RUNTIME.handle().clone();
        let store = Arc::new(Store::simulated(self.bucket.connect(2), &self.env, handle.clone()));
        let stored = StoredResume::new(store, &self.env, handle, partition).read().expect("reads");
        stored.map(|stored| stored.position)
    }
}

/// Samples by series and time.
type Content = BTreeMap<String, BTreeMap<i64, u64>>;

fn read_all(source: &dyn Queryable, test_env: &TestEnv) -> Content {
    let ctx = ReadContext::unlimited(test_env.env.clock.clone());
    let mut all = Content::new();
    for name in (0..SERIES).map(|number| format!("s{number}")) {
        let matchers = [Matcher::equal("__name__", &name)];
        let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
        let mut batches = source.select(&selector, &ctx).expect("selects");
        let mut series = Vec::new();
        while batches.next_batch(&mut series).expect("a batch") {}
        for one in &series {
            let mut columns = Columns::default();
            one.samples.read(TimeRange::ALL, &mut columns).expect("reads");
            let values = columns.values.into_iter().map(f64::to_bits);
            all.insert(name.clone(), columns.times.into_iter().zip(values).collect());
        }
    }
    all
}

/// A record with some samples that arrived at `arrival_ms`.
fn samples(rng: &Rng, arrival_ms: i64) -> Vec<u8> {
    let mut batch = WriteBatch::from_labels();
    for _ in 0..=rng.below(3) {
        let name = format!("s{}", rng.below(SERIES));
        let time = arrival_ms - (rng.below(30) * 1000).cast_signed();
        let value = rng.below(1000) as f64;
        batch.push_labels(&Labels::from_pairs([("__name__", &*name)]), &[(time, value)]);
    }
    let duplicates = if rng.below(2) == 0 { DuplicatePolicy::KeepFirst } else { DuplicatePolicy::LastWins };
    encode_samples(&batch, arrival_ms, duplicates)
}

/// A record with the samples of a batch.
fn encode_samples(batch: &WriteBatch, arrival_ms: i64, duplicates: DuplicatePolicy) -> Vec<u8> {
    let request = RecordOrigin {
        tenant: TenantId::anonymous(),
        store: RecordStore::Default,
        request_id: String::new(),
        arrival_ms,
    };
    encode_of(&request, batch, duplicates)
}

/// A record with the samples of a batch, of a request.
fn encode_of(request: &RecordOrigin, batch: &WriteBatch, duplicates: DuplicatePolicy) -> Vec<u8> {
    let series: Vec<u32> = (0..batch.series.len() as u32).collect();
    let part = BatchPart { series: &series, exemplars: &[], metadata: &[] };
    let mut records = Vec::new();
    RecordEncoder::default()
        .encode(SampleOrigin { request, duplicates }, batch, part, |bytes| {
            records.push(bytes.to_vec());
        })
        .expect("small");
    records.remove(0)
}

fn tick(arrival_ms: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_event(&Record::Tick { arrival_ms }, &mut bytes).expect("small");
    bytes
}

/// Steps until everything in the log is applied.
fn catch_up(test_env: &TestEnv, owner: &Owner) {
    test_env.topic.finish_arrivals();
    let end = test_env.connect().bounds(P0).expect("bounds").end;
    for _ in 0..10_000 {
        match owner.step() {
            Ok(()) | Err(StepError::Retry(_) | StepError::LogAway(_) | StepError::Wait(_)) => {}
            Err(StepError::Stop(error)) => panic!("{error}"),
        }
        let status = owner.status();
        if status.next_offset.is_some_and(|next| next >= end) && status.fault.is_none() {
            return;
        }
    }
    panic!("the owner does not catch up: {:?}", owner.status());
}

fn stopped(owner: &Owner) -> OwnerError {
    match owner.step() {
        Err(StepError::Stop(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Two owners, one of which is killed after every step, and a log with faults: both have the same samples,
/// and each acknowledged record is in them.
#[test]
fn an_owner_that_is_killed_after_each_step_equals_one_that_is_not() {
    for seed in 0..6 {
        let test_env = TestEnv::new(seed, SimFaults { stored_twice: 20, ..SimFaults::some() });
        let (log, rng) = (test_env.connect(), Rng::from_seed(seed));
        let second = test_env.second(100 + seed);
        let (steady, steady_store) = test_env.owner();
        let (mut owner, mut store) = second.owner();
        for round in 0..40 {
            for _ in 0..rng.below(6) {
                test_env.send(&log, &samples(&rng, START_MS + round * 1000));
            }
            for one in [&steady, &owner] {
                if let Err(StepError::Stop(error)) = one.step() {
                    panic!("seed {seed}: {error}");
                }
            }
            if rng.below(3) == 0 {
                store.wal_jobs().roll_checkpoint();
            }
            store.wal_jobs().sync();
            drop((owner, store));
            match rng.below(3) {
                0 => second.disk.kill(),
                1 => second.disk.crash(),
                _ => second.disk.crash_partly(&rng),
            }
            (owner, store) = second.owner();
        }
        catch_up(&test_env, &steady);
        catch_up(&second, &owner);
        let content = test_env.content(&steady_store);
        assert_eq!(content.len(), SERIES as usize, "seed {seed}");
        assert_eq!(second.content(&store), content, "seed {seed}");
        assert_eq!(steady.status().refused_count, 0);
    }
}

#[test]
fn damaged_records_are_kept_aside_and_later_versions_stop_the_owner() {
    let test_env = TestEnv::new(1, SimFaults::default());
    let (log, rng) = (test_env.connect(), Rng::from_seed(1));
    let (owner, _store) = test_env.owner();
    let good = samples(&rng, START_MS);
    let mut damaged = good.clone();
    damaged[20] ^= 1;
    test_env.send(&log, &good);
    let bad_offset = test_env.send(&log, &damaged);
    test_env.send(&log, &tick(START_MS + 5000));
    test_env.set_bucket_away(true);
    assert!(matches!(owner.step(), Err(StepError::Retry(why)) if why.contains("cluster/refused/0/1")));
    let not_ready = owner.check_ready().expect_err("the bucket is away");
    assert!(not_ready.to_string().contains("keeping a refused record"), "{not_ready}");
    test_env.set_bucket_away(false);
    catch_up(&test_env, &owner);
    assert_eq!(owner.check_ready(), Ok(()));
    let status = owner.status();
    assert_eq!((status.applied_count, status.refused_count, status.last_refused), (2, 1, Some(bad_offset)));
    assert_eq!(status.log_time_ms, Some(START_MS + 5000));
    assert_eq!(test_env.kept(), BTreeMap::from([(bad_offset, Bytes::from(damaged))]));

    let mut later = good;
    later[4] = 77;
    let end = later.len() - 4;
    let sum = chronolith_base::crc::crc32c(&later[..end]).to_le_bytes();
    later[end..].copy_from_slice(&sum);
    test_env.send(&log, &later);
    let error = stopped(&owner).to_string();
    assert!(error.contains("record of version 77") && error.contains("upgrade this owner"), "{error}");
    assert_eq!(owner.status().next_offset, Some(3), "the position stays before it");
}

/// Covers a regression: an owner waited for ever at a record of a store that its databases did not have.
#[test]
fn records_of_a_store_that_nobody_knows_and_deletions_without_a_number_are_kept_aside() {
    let test_env = TestEnv::new(7, SimFaults::default());
    let log = test_env.connect();
    let (owner, _store) = test_env.owner();
    let origin = RecordOrigin {
        tenant: TenantId::anonymous(),
        store: RecordStore::Database(BucketStoreId::from_bytes([3; 16])),
        request_id: String::new(),
        arrival_ms: START_MS,
    };
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", "s0")]), &[(START_MS, 1.0)]);
    let of_unknown_store = encode_of(&origin, &batch, DuplicatePolicy::KeepFirst);
    let mut deletion = Vec::new();
    let origin = RecordOrigin { store: RecordStore::Default, ..origin };
    let content = Record::Delete { origin, number: None, selectors: Vec::new(), range: TimeRange::ALL };
    encode_event(&content, &mut deletion).expect("small");
    let first = test_env.send(&log, &of_unknown_store);
    let second = test_env.send(&log, &deletion);
    test_env.send(&log, &tick(START_MS));
    catch_up(&test_env, &owner);
    let status = owner.status();
    assert_eq!((status.applied_count, status.refused_count, status.last_refused), (1, 2, Some(second)));
    let kept = [(first, Bytes::from(of_unknown_store)), (second, Bytes::from(deletion))];
    assert_eq!(test_env.kept(), BTreeMap::from(kept));
}

#[test]
fn refused_records_have_a_limit() {
    let mut test_env = TestEnv::new(2, SimFaults::default());
    test_env.options.refused_max = 2;
    let log = test_env.connect();
    let (owner, _store) = test_env.owner();
    for _ in 0..3 {
        test_env.send(&log, b"no record");
    }
    let error = stopped(&owner).to_string();
    assert!(error.contains("offset 2 of partition 0"), "{error}");
    assert_eq!(owner.status().refused_count, 2);
}

/// Records that retention or a crash took before they were applied are named, and left out only with the
/// consent of the operator.
#[test]
fn lost_records_stop_the_owner_unless_they_are_accepted() {
    let mut test_env = TestEnv::new(3, SimFaults::default());
    let (log, rng) = (test_env.connect(), Rng::from_seed(3));
    let (owner, store) = test_env.owner();
    for round in 0..10 {
        test_env.send(&log, &samples(&rng, START_MS + round));
        if round == 3 {
            catch_up(&test_env, &owner);
        }
    }
    test_env.topic.trim(P0, 7);
    let error = stopped(&owner).to_string();
    assert!(error.contains("lacks offsets 4 to 7") && error.contains("--owner.accept-gap 4-7"), "{error}");
    assert!(error.contains(" written between 2026-"), "{error}");
    drop(owner);
    let error = test_env.try_owner(&store).err().expect("refused").to_string();
    assert!(error.contains(" written before 2026-") && error.contains("--owner.accept-gap 4-7"), "{error}");
    test_env.options.accepted_gap = Some(4..6);
    assert!(test_env.try_owner(&store).is_err(), "more is lost");
    test_env.options.accepted_gap = Some(4..7);
    test_env.set_bucket_away(true);
    assert!(matches!(test_env.try_owner(&store), Err(OwnerError::GapRecord(_))), "is recorded first");
    test_env.set_bucket_away(false);
    assert!(test_env.accepted().is_empty());
    let owner = test_env.try_owner(&store).expect("accepted");
    catch_up(&test_env, &owner);
    assert_eq!(owner.status().applied_count, 3);
    let accepted = test_env.accepted();
    let (name, line) = accepted.first_key_value().expect("is recorded");
    assert!(accepted.len() == 1 && name == "4-7", "{accepted:?}");
    assert!(line.starts_with("accepted at 2026-") && line.contains("lacks offsets 4 to 7"), "{line}");
}

#[test]
fn an_empty_directory_begins_at_the_offset_that_the_bucket_names() {
    let test_env = TestEnv::new(4, SimFaults::default());
    let (log, rng) = (test_env.connect(), Rng::from_seed(4));
    for round in 0..6 {
        test_env.send(&log, &samples(&rng, START_MS + round));
    }
    test_env.topic.trim(P0, 2);
    let store = test_env.store();
    assert!(matches!(test_env.try_owner(&store), Err(OwnerError::Gap { lost, .. }) if lost == (0..2)));
    test_env.set_bucket_away(true);
    assert!(matches!(test_env.try_owner(&store), Err(OwnerError::Bucket(_))));
    test_env.set_bucket_away(false);
    let topic = test_env.connect().identity();
    test_env.store_resume(LogPartition { topic, number: P0 }, 4);
    let owner = test_env.try_owner(&store).expect("opens");
    catch_up(&test_env, &owner);
    assert_eq!(owner.status().applied_count, 2);
    drop((owner, store));
    // Lost records of an owner without a directory.
    test_env.topic.trim(P0, 5);
    let mut other = test_env.second(9);
    let store = other.store();
    assert!(matches!(other.try_owner(&store), Err(OwnerError::Gap { lost, .. }) if lost == (4..5)));
    other.options.accepted_gap = Some(4..5);
    let owner = other.try_owner(&store).expect("accepted");
    catch_up(&other, &owner);
    assert_eq!(owner.status().applied_count, 1);
    assert_eq!(other.accepted().keys().collect::<Vec<_>>(), ["4-5"]);
}

/// Offsets of one topic say nothing about another one.
#[test]
fn an_offset_of_a_topic_that_was_made_again_is_named_and_accepted() {
    let mut test_env = TestEnv::new(8, SimFaults::default());
    let (log, rng) = (test_env.connect(), Rng::from_seed(8));
    test_env.send(&log, &samples(&rng, START_MS));
    test_env.store_resume(LogPartition { topic: TopicId([9; 16]), number: P0 }, 77);
    let store = test_env.store();
    let error = test_env.try_owner(&store).err().expect("refused").to_string();
    assert!(error.contains("(stored at 2026-") && error.contains("--owner.accept-gap 77-78"), "{error}");
    test_env.options.accepted_gap = Some(77..78);
    let owner = test_env.try_owner(&store).expect("accepted");
    catch_up(&test_env, &owner);
    assert_eq!(owner.status().applied_count, 1);
    assert_eq!(test_env.accepted().keys().collect::<Vec<_>>(), ["77-78"]);
}

#[test]
fn a_topic_that_was_made_again_is_refused() {
    let test_env = TestEnv::new(5, SimFaults::default());
    let (log, rng) = (test_env.connect(), Rng::from_seed(5));
    test_env.send(&log, &samples(&rng, START_MS));
    let (owner, store) = test_env.owner();
    catch_up(&test_env, &owner);
    test_env.topic.replace();
    assert!(matches!(stopped(&owner), OwnerError::OtherTopic { .. } | OwnerError::LogEndsEarly { .. }));
    let error = test_env.try_owner(&store).err().expect("refused");
    assert!(matches!(error, OwnerError::OtherTopic { found, .. } if found != TopicId([0; 16])), "{error}");
}

#[test]
fn an_owner_is_ready_while_its_lag_is_short_and_the_log_is_read() {
    let mut test_env = TestEnv::new(6, SimFaults::default());
    test_env.options.read.bytes_max = 1;
    let (log, rng) = (test_env.connect(), Rng::from_seed(6));
    let (owner, _store) = test_env.owner();
    assert_eq!(owner.check_ready(), Err(NotReady::NotStarted));
    for round in 0..3 {
        test_env.send(&log, &samples(&rng, START_MS + round));
    }
    test_env.clock.advance(Duration::from_secs(5));
    owner.step().expect("a record");
    let not_ready = owner.check_ready().expect_err("5 s old");
    assert!(matches!(not_ready, NotReady::Lag { next_offset: 1, log_end: 3, .. }), "{not_ready}");
    test_env.topic.set_reachable(false);
    assert!(matches!(owner.step(), Err(StepError::LogAway(_))));
    assert!(matches!(owner.check_ready(), Err(NotReady::Fault(_))), "it was behind");
    test_env.topic.set_reachable(true);
    catch_up(&test_env, &owner);
    assert_eq!((owner.check_ready(), owner.status().lag_ms), (Ok(()), 0));
    test_env.topic.set_reachable(false);
    for _ in 0..2 {
        assert!(matches!(owner.step(), Err(StepError::LogAway(_))));
        assert!(matches!(owner.check_ready(), Err(NotReady::LogAway(_))));
        assert!(owner.report().partitions[0].is_log_away);
    }
    test_env.topic.set_reachable(true);
    owner.step().expect("reads again");
    assert_eq!(owner.check_ready(), Ok(()));
}

/// A gateway whose clock is hours ahead does not move the time of the partition.
#[test]
fn the_time_of_the_partition_ignores_clocks_that_are_far_ahead() {
    let test_env = TestEnv::new(7, SimFaults::default());
    let log = test_env.connect();
    let (owner, _store) = test_env.owner();
    test_env.send(&log, &tick(START_MS + 7_200_000));
    test_env.send(&log, &tick(START_MS + 1000));
    catch_up(&test_env, &owner);
    let status = owner.status();
    assert_eq!((status.log_time_ms, status.ahead_count), (Some(START_MS + 1000), 1));
}
