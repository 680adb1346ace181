//! Worlds of owners and gateways: samples that a deletion took are in no block once it is done, and samples
//! that were written after it stay, at whatever time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use chronolith_base::{MemDisk, MemoryBudget, Rng};
use chronolith_bucket::store::faults::Kill;
use chronolith_format::record::{BatchPart, RecordEncoder, SampleOrigin, decode_record};
use chronolith_ingest::protocols::sent_keys;
use chronolith_model::query::TenantSources as _;
use chronolith_model::{
    Columns, DuplicatePolicy, Labels, LabelsBuilder, Queryable, ReadContext, Selector, WriteBatch,
};
use chronolith_replicated_log::sim::{SimFaults, SimLog, SimOptions, SimTopic};
use chronolith_replicated_log::{ReplicatedLog as _, Ticket};
use chronolith_tsdb::{
    BucketOptions, BucketSources, LimitsTable, ReplayProgress, SyncMode, Tsdb, TsdbOptions,
};

use super::*;
use crate::gateway::{DeletionError, Gateway, GatewayDeletion, GatewayParts, RunningDeletion};
use crate::options::GatewayOptions;
use crate::owner::{Owner, OwnerOptions, OwnerParts, open_store};

const PARTITIONS: u32 = 2;
/// Partitions of the owners.
const OWNED: [u32; 3] = [0, 0, 1];
const SERIES: u64 = 4;
const HOUR_MS: i64 = 3_600_000;
const DELAY_MS: i64 = 600_000;

/// Series and time.
type Key = (String, i64);

/// A machine of an owner.
struct Machine {
    env: Env,
    disk: Arc<MemDisk>,
    client: Arc<FaultStore>,
    number: PartitionId,
    running: Option<(Owner, Arc<Tsdb>)>,
}

struct World {
    bucket: TestBucket,
    topic: SimTopic,
    machines: Vec<Machine>,
    gateway: Gateway,
    running: Option<RunningDeletion>,
    rng: Rng,
    count: i64,
    seed: u64,
}

/// Content of the log by the rules of deletions.
#[derive(Default)]
struct Ledger {
    /// Samples that no record deletes, with the partition and offset of their record.
    live: BTreeMap<Key, (u64, u32, u64)>,
    /// Values that were ever sent.
    sent: BTreeMap<Key, BTreeSet<u64>>,
    /// Deletions that took the last value of a sample.
    taken: BTreeMap<Key, u64>,
}

fn series_of(batch: &WriteBatch) -> Vec<(String, i64, u64)> {
    let mut all = Vec::new();
    for (idx, series) in batch.series.iter().enumerate() {
        let mut labels = LabelsBuilder::new();
        (batch.source.parse)(batch.key_of(idx), &mut labels).expect("labels");
        let name = labels.finish().get("__name__").expect("a name").to_owned();
        for at in series.samples.start as usize..series.samples.end as usize {
            all.push((name.clone(), batch.times[at], batch.values[at].to_bits()));
        }
    }
    all
}

fn partition_of(name: &str) -> u32 {
    u32::from(name.as_bytes()[1] - b'0') % PARTITIONS
}

impl Ledger {
    fn of(topic: &SimTopic) -> Ledger {
        let mut ledger = Ledger::default();
        for number in 0..PARTITIONS {
            let mut applied = BTreeSet::new();
            for record in topic.records(PartitionId(number)) {
                let mut batch = WriteBatch::from_labels();
                match decode_record(&record.value, sent_keys, &mut batch).expect("a record") {
                    Record::Samples { .. } => {
                        for (name, time, bits) in series_of(&batch) {
                            let key = (name, time);
                            ledger.sent.entry(key.clone()).or_default().insert(bits);
                            ledger.live.entry(key).or_insert((bits, number, record.offset));
                        }
                    }
                    Record::Delete { number: Some(deletion), selectors, range, .. }
                        if applied.insert(deletion) =>
                    {
                        let names: BTreeSet<&str> =
                            selectors.iter().flatten().map(|matcher| &*matcher.value).collect();
                        let Ledger { live, taken, .. } = &mut ledger;
                        live.retain(|key, (_, of, _)| {
                            let is_taken = *of == number && names.contains(&*key.0) && range.contains(key.1);
                            if is_taken {
                                taken.insert(key.clone(), deletion);
                            }
                            !is_taken
                        });
                    }
                    _ => {}
                }
            }
        }
        ledger
    }
}

fn read_all(source: &dyn Queryable, env: &Env) -> BTreeMap<Key, u64> {
    let ctx = ReadContext::unlimited(env.clock.clone());
    let mut all = BTreeMap::new();
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
            all.extend(columns.times.into_iter().map(|time| (name.clone(), time)).zip(values));
        }
    }
    all
}

fn encode_samples(samples: &[(String, i64, f64)], arrival_ms: i64) -> Vec<u8> {
    let mut batch = WriteBatch::from_labels();
    for (name, time, value) in samples {
        batch.push_labels(&Labels::from_pairs([("__name__", &**name)]), &[(*time, *value)]);
    }
    let series: Vec<u32> = (0..batch.series.len() as u32).collect();
    let part = BatchPart { series: &series, exemplars: &[], metadata: &[] };
    let request = RecordOrigin {
        tenant: TenantId::anonymous(),
        store: RecordStore::Default,
        request_id: String::new(),
        arrival_ms,
    };
    let origin = SampleOrigin { request: &request, duplicates: DuplicatePolicy::KeepFirst };
    let mut records = Vec::new();
    let encoded = RecordEncoder::default().encode(origin, &batch, part, |bytes| records.push(bytes.to_vec()));
    encoded.expect("small");
    records.remove(0)
}

impl Machine {
    fn new(bucket: &TestBucket, topic: &SimTopic, number: u32, seed: u64) -> Machine {
        let (env, _, disk) = Env::fake(START_MS, seed);
        let env = Env { clock: bucket.env.clock.clone(), ..env };
        let client = bucket.bucket.connect(seed);
        let mut machine = Machine { env, disk, client, number: PartitionId(number), running: None };
        machine.start(topic);
        machine
    }

    fn start(&mut self, topic: &SimTopic) {
        let log = topic.connect().expect("is reachable");
        let mut options = TsdbOptions::new(PathBuf::from("/data"));
        options.wal.segment_bytes = 32 << 10;
        options.sync = SyncMode::Interval(1000);
        options.limits.default.retention_ms = 0;
        options.flush.delay_ms = DELAY_MS;
        options.wal.log = Some(LogPartition { topic: log.identity(), number: self.number });
        let (tsdb, _) =
            open_store(&self.env, &options, &Arc::new(ReplayProgress::default()), None).expect("opens");
        let mut owner_options = OwnerOptions::new(sent_keys);
        owner_options.read.bytes_max = 1;
        let parts = OwnerParts {
            log: Arc::new(log),
            bucket: Arc::new(Store::simulated(self.client.clone(), &self.env, RUNTIME.handle().clone())),
            handle: RUNTIME.handle().clone(),
            tsdb: tsdb.clone(),
            env: self.env.clone(),
        };
        self.running = Some((Owner::open(parts, owner_options).expect("opens"), tsdb));
    }

    fn owner(&self) -> &Owner {
        &self.running.as_ref().expect("runs").0
    }

    fn tsdb(&self) -> &Tsdb {
        &self.running.as_ref().expect("runs").1
    }

    fn head(&self) -> BTreeMap<Key, u64> {
        read_all(&*self.tsdb().reader().queryable(&TenantId::anonymous()), &self.env)
    }

    fn catch_up(&self, topic: &SimTopic) {
        let end = topic.connect().expect("is reachable").bounds(self.number).expect("bounds").end;
        for _ in 0..10_000 {
            let waits = self.owner().run_once().expect("runs");
            let status = self.owner().status();
            if status.next_offset.is_some_and(|next| next >= end) && waits.is_none() {
                return;
            }
            drop(self.owner().publish());
        }
        panic!("the owner does not catch up: {:?}", self.owner().status());
    }
}

impl World {
    fn new(seed: u64) -> World {
        let bucket = TestBucket::new();
        let options = SimOptions { faults: SimFaults::default(), ..SimOptions::new(PARTITIONS, seed) };
        let topic = SimTopic::new(bucket.clock.clone(), options);
        let machines = OWNED.iter().zip(0..);
        let machines =
            machines.map(|(number, idx)| Machine::new(&bucket, &topic, *number, seed * 100 + idx)).collect();
        let parts = GatewayParts {
            log: Arc::new(topic.connect().expect("is reachable")),
            bucket: bucket.store(),
            handle: RUNTIME.handle().clone(),
            memory: MemoryBudget::new("records of the log", 8 << 20),
            limits: LimitsTable::default(),
        };
        let gateway = Gateway::new(&bucket.env, parts, GatewayOptions::default());
        gateway.refresh().expect("a partition map");
        let rng = Rng::from_seed(seed);
        World { bucket, topic, machines, gateway, running: None, rng, count: 0, seed }
    }

    fn log(&self) -> SimLog {
        self.topic.connect().expect("is reachable")
    }

    fn send(&self, number: u32, record: Vec<u8>) {
        self.log().append(PartitionId(number), Bytes::from(record)).and_then(Ticket::wait).expect("taken");
    }

    fn now_ms(&self) -> i64 {
        self.bucket.env.clock.now_ms()
    }

    fn send_samples(&mut self) {
        let ledger = Ledger::of(&self.topic);
        let deleted: Vec<&Key> = ledger.taken.keys().filter(|key| !ledger.live.contains_key(*key)).collect();
        self.count += 1;
        let value = self.count as f64;
        let sample = if !deleted.is_empty() && self.rng.below(3) == 0 {
            // Another value at a deleted time.
            let (name, time) = deleted[self.rng.below(deleted.len() as u64) as usize];
            (name.clone(), *time, value)
        } else {
            let age_ms = match self.rng.below(6) {
                0 => self.rng.below(8).cast_signed() * HOUR_MS,
                _ => self.rng.below(30).cast_signed() * 1000,
            };
            let time = (self.now_ms() - age_ms).div_euclid(1_000_000) * 1_000_000 + self.count;
            (format!("s{}", self.rng.below(SERIES)), time, value)
        };
        let number = partition_of(&sample.0);
        self.send(number, encode_samples(&[sample], self.now_ms()));
    }

    fn send_ticks(&self) {
        for number in 0..PARTITIONS {
            let mut bytes = Vec::new();
            let tick = Record::Tick { arrival_ms: self.now_ms() };
            chronolith_format::record::encode_event(&tick, &mut bytes).expect("small");
            self.send(number, bytes);
        }
    }

    fn begin(&mut self) {
        let name = format!("s{}", self.rng.below(SERIES));
        let others = format!("s{}", self.rng.below(SERIES));
        let selectors = [vec![Matcher::equal("__name__", &name)], vec![Matcher::equal("__name__", &others)]];
        let range = match self.rng.below(2) {
            0 => TimeRange::ALL,
            _ => TimeRange { start: self.now_ms() - 4 * HOUR_MS, end: self.now_ms() },
        };
        let request = GatewayDeletion {
            tenant: &TenantId::anonymous(),
            store: RecordStore::Default,
            selectors: &selectors,
            range,
            request_id: &"r",
        };
        match self.gateway.deletions().begin(request) {
            Ok(running) => self.running = Some(running),
            Err(DeletionError::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Acts as the gateway at random.
    fn act_as_gateway(&mut self) {
        match self.rng.below(8) {
            0 | 1 if self.running.is_none() => self.begin(),
            // The gateway dies.
            2 => self.running = None,
            // An answer was lost: the records are sent again.
            3 => {
                let list = self.bucket.deletions().read().expect("a list");
                if let Some(record) = list.open().next().and_then(|open| record_of(open, self.now_ms())) {
                    let mut bytes = Vec::new();
                    chronolith_format::record::encode_event(&record, &mut bytes).expect("small");
                    self.send(self.rng.below(u64::from(PARTITIONS)) as u32, bytes);
                }
            }
            _ => {
                if let Some(running) = &mut self.running
                    && self.gateway.deletions().try_advance(running).is_ok()
                {
                    self.running = None;
                }
            }
        }
    }

    /// Acts as the owner `idx` at random.
    fn act_as_owner(&mut self, idx: usize) {
        let lot = self.rng.below(12);
        let seed = self.rng.next_u64();
        let machine = &mut self.machines[idx];
        match lot {
            0 | 1 => {
                if lot == 1 {
                    let kill = if self.rng.below(2) == 0 { Kill::EndsBefore } else { Kill::EndsAfter };
                    machine.client.kill_after(self.rng.below(40), kill);
                    for _ in 0..self.rng.below(6) {
                        let _ = machine.owner().run_once();
                        let _ = machine.owner().publish();
                    }
                }
                machine.running = None;
                match self.rng.below(3) {
                    0 => machine.disk.kill(),
                    1 => machine.disk.crash(),
                    _ => machine.disk.crash_partly(&self.rng),
                }
                machine.client = self.bucket.bucket.connect(seed);
                machine.start(&self.topic);
            }
            2 => {
                let number = machine.number.0;
                self.machines[idx] = Machine::new(&self.bucket, &self.topic, number, seed);
            }
            // Asleep.
            3 => {}
            4 => drop(machine.owner().publish()),
            5 => {
                machine.tsdb().wal_jobs().sync();
                machine.tsdb().wal_jobs().roll_checkpoint();
            }
            _ => {
                for _ in 0..self.rng.below(12) {
                    machine.owner().run_once().expect("runs");
                    if self.rng.below(3) == 0 {
                        let _ = machine.owner().publish();
                    }
                    if self.rng.below(4) == 0 {
                        machine.tsdb().wal_jobs().sync();
                    }
                }
            }
        }
    }

    fn in_bucket(&self) -> BTreeMap<Key, u64> {
        let options = BucketOptions::new("memory://");
        let sources = BucketSources::over(self.bucket.store(), &options, &self.bucket.env, RUNTIME.handle());
        read_all(&*sources.queryable(&TenantId::anonymous()), &self.bucket.env)
    }

    /// Checks what holds at any time.
    fn check(&self) {
        let seed = self.seed;
        let ledger = Ledger::of(&self.topic);
        // Before the list: a deletion that ends meanwhile has its tombstones.
        let list = self.bucket.deletions().read().expect("a list");
        let bucket = self.in_bucket();
        for (key, bits) in &bucket {
            assert!(ledger.sent.get(key).is_some_and(|sent| sent.contains(bits)), "seed {seed}: {key:?}");
            let Some(deletion) = ledger.taken.get(key).filter(|_| !ledger.live.contains_key(key)) else {
                continue;
            };
            let is_open = list.find(*deletion).is_some_and(ClusterDeletion::is_open);
            assert!(is_open, "seed {seed}: {key:?} is back, deletion {deletion} took it and is done");
        }
        for number in (0..PARTITIONS).map(PartitionId) {
            let resume =
                crate::owner::stored_resume(&self.bucket.store(), &self.bucket.env, RUNTIME.handle(), number);
            let resume = resume.expect("an answer").map_or(0, |position| position.offset);
            for (key, (bits, of, offset)) in &ledger.live {
                let is_passed = *of == number.0 && *offset < resume;
                assert!(
                    !is_passed || bucket.get(key) == Some(bits),
                    "seed {seed}: resume {resume} of partition {number} passes {key:?} at {offset}, the bucket \
                     has {:?}",
                    bucket.get(key)
                );
            }
        }
    }

    /// Ends all faults; returns the deletions that were begun.
    fn settle(mut self) -> u64 {
        let seed = self.seed;
        self.running = None;
        for _ in 0..8 {
            self.bucket.clock.advance(Duration::from_secs(2 * 3600));
            self.send_ticks();
            for round in 0..8 {
                for machine in &self.machines {
                    machine.catch_up(&self.topic);
                    if round < 7 {
                        let _ = machine.owner().publish();
                    }
                }
                // Owners end what the gateway has left.
                self.bucket.clock.advance(Duration::from_secs(40));
            }
            let ledger = Ledger::of(&self.topic);
            for machine in &self.machines {
                let head = machine.head();
                for (key, bits) in &head {
                    let live = ledger.live.get(key).map(|(bits, ..)| *bits);
                    assert_eq!(live, Some(*bits), "seed {seed}: {key:?} in the head of {}", machine.number);
                }
            }
            self.check();
        }
        let list = self.bucket.deletions().read().expect("a list");
        assert_eq!(list.open().count(), 0, "seed {seed}: {list:?}");
        let ledger = Ledger::of(&self.topic);
        let expected: BTreeMap<Key, u64> =
            ledger.live.into_iter().map(|(key, (bits, ..))| (key, bits)).collect();
        assert_eq!(self.in_bucket(), expected, "seed {seed}");
        for machine in &self.machines {
            let cuts = machine.owner().status().cuts;
            assert_eq!((cuts.open_window_count, cuts.held_cut_count), (0, 0), "seed {seed}");
            assert_eq!(machine.head(), BTreeMap::new(), "seed {seed}");
            assert_eq!(machine.owner().status().refused_count, 0, "seed {seed}");
        }
        list.last_number
    }
}

fn run(seed: u64, round_count: u64) -> u64 {
    let mut world = World::new(seed);
    for round in 0..round_count {
        world.bucket.clock.advance(Duration::from_secs([1200, 20, 5][world.rng.below(3) as usize]));
        for _ in 0..world.rng.below(5) {
            world.send_samples();
        }
        world.send_ticks();
        world.act_as_gateway();
        for idx in 0..OWNED.len() {
            world.act_as_owner(idx);
        }
        if round % 4 == 0 {
            world.check();
        }
    }
    world.settle()
}

#[test]
fn deletions_take_the_samples_before_them_and_no_others() {
    let deletions: u64 = (0..10).map(|seed| run(seed, 60)).sum();
    assert!(deletions > 20, "{deletions} deletions");
}

/// A gateway that stays alive ends its deletion itself, and the offsets that it returns belong to records
/// after the end.
#[test]
fn a_gateway_ends_its_deletion_once_owners_have_passed_the_record() {
    let mut world = World::new(1000);
    for _ in 0..20 {
        world.send_samples();
    }
    world.begin();
    let mut running = world.running.take().expect("open");
    let why = world.gateway.deletions().try_advance(&mut running).expect_err("no owner has read it");
    assert!(why.contains("have not passed its record: 0, 1"), "{why}");
    let owners = &world.machines;
    owners[0].catch_up(&world.topic);
    let why = world.gateway.deletions().try_advance(&mut running).expect_err("one owner has read it");
    assert!(why.ends_with(": 1"), "{why}");
    owners[2].catch_up(&world.topic);
    let deleted = world.gateway.deletions().try_advance(&mut running).expect("done");
    let header = deleted.offsets.to_header().expect("two partitions");
    assert_eq!(header.split(',').count(), PARTITIONS as usize, "{header}");
    world.check();
    world.settle();
}

/// A deletion that comes right after a publication does not wait until readers have the catalogue: the
/// samples leave at once, and readers are asked for a newer catalogue.
#[test]
fn samples_of_published_cuts_leave_early_for_a_deletion() {
    let mut world = World::new(1001);
    for _ in 0..20 {
        world.send_samples();
    }
    for machine in &world.machines {
        machine.catch_up(&world.topic);
    }
    world.bucket.clock.advance(Duration::from_secs(12 * 3600));
    for _ in 0..3 {
        world.send_ticks();
        for machine in &world.machines {
            machine.catch_up(&world.topic);
            while machine.owner().publish().expect("publishes") {}
        }
    }
    let held: usize = world.machines.iter().map(|one| one.owner().status().cuts.held_cut_count).sum();
    assert!(held > 0, "the seam is not over");
    let before_ns = world.bucket.env.clock.mono_ns();
    world.begin();
    let mut running = world.running.take().expect("open");
    world.gateway.deletions().try_advance(&mut running).expect_err("no owner has read it");
    for machine in &world.machines {
        machine.catch_up(&world.topic);
    }
    world.gateway.deletions().try_advance(&mut running).expect("done");
    let waited_ns = world.bucket.env.clock.mono_ns() - before_ns;
    assert!(waited_ns < 10_000_000_000, "{waited_ns} ns");
    for machine in &world.machines {
        use crate::owner::PartitionOwner as _;
        let needed = || machine.owner().catalogue_needed(&TenantId::anonymous(), RecordStore::Default);
        let start = machine.owner().read_start_catalogue(&TenantId::anonymous(), RecordStore::Default);
        start.expect("read");
        let before = needed();
        machine.catch_up(&world.topic);
        let after = needed();
        let list = world.bucket.deletions().read().expect("a list");
        let DeletionState::Done { catalogue, .. } = list.deletions[0].state else { panic!("{list:?}") };
        assert!(before > 0 && after >= catalogue && catalogue > 0, "{before} {after} {catalogue}");
    }
    world.settle();
}
