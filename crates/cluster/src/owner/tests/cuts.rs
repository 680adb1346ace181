//! Cuts of two owners that race, stop at any record and any request to the bucket, sleep, and lose their
//! disks; with out-of-order and repeated samples. The ledger is what the log has.

use chronolith_bucket::snapshots::SnapshotReader;
use chronolith_bucket::store::faults::Kill;
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_format::record::decode_record;
use chronolith_model::query::TenantSources;
use chronolith_model::{LabelsBuilder, StoreId};
use chronolith_tsdb::{BucketOptions, BucketSources};

use super::*;

const DELAY_MS: i64 = 600_000;
const ROUND: Duration = Duration::from_secs(1200);
const HOUR_MS: i64 = 3_600_000;

/// Samples by series and time, with the offsets of their records and their value.
type Ledger = BTreeMap<(String, i64), (Vec<u64>, u64)>;

/// A process on a machine.
struct Machine {
    env: TestEnv,
    running: Option<(Owner, Arc<Tsdb>)>,
}

/// Content of the live blocks.
struct InBucket {
    samples: BTreeMap<(String, i64), u64>,
    /// Samples of all blocks, counted block by block.
    count: u64,
    cut: Option<u64>,
}

impl Machine {
    fn start(mut env: TestEnv) -> Machine {
        env.options.read.bytes_max = 1;
        env.delay_ms = DELAY_MS;
        let mut machine = Machine { env, running: None };
        machine.restart();
        machine
    }

    fn owner(&self) -> &Owner {
        &self.running.as_ref().expect("runs").0
    }

    fn restart(&mut self) {
        self.running = None;
        let client = self.env.bucket.connect(self.env.env.rng.next_u64());
        self.env.client = client;
        let (tsdb, _) = self.env.try_store();
        self.running = Some((self.env.try_owner(&tsdb).expect("opens"), tsdb));
    }

    fn kill(&mut self, rng: &Rng) {
        self.running = None;
        match rng.below(3) {
            0 => self.env.disk.kill(),
            1 => self.env.disk.crash(),
            _ => self.env.disk.crash_partly(rng),
        }
        self.restart();
    }

    fn lose_disk(&mut self, seed: u64) {
        self.running = None;
        let mut env = self.env.second(seed);
        env.delay_ms = DELAY_MS;
        self.env = env;
        self.restart();
    }

    fn step(&self) {
        if let Err(StepError::Stop(error)) = self.owner().step() {
            panic!("{error}");
        }
    }

    fn sync(&self) {
        self.running.as_ref().expect("runs").1.wal_jobs().sync();
    }

    /// Acts at random for a round.
    fn act(&mut self, rng: &Rng, seed: u64) {
        match rng.below(12) {
            0 => self.kill(rng),
            1 => self.lose_disk(seed),
            2 => {
                let kill = if rng.below(2) == 0 { Kill::EndsBefore } else { Kill::EndsAfter };
                self.env.client.kill_after(rng.below(40), kill);
                for _ in 0..rng.below(6) {
                    self.step();
                    let _ = self.owner().publish();
                }
                self.kill(rng);
            }
            // Asleep.
            3 => {}
            // A process that wakes up and goes on with its publication.
            4 => drop(self.owner().publish()),
            5 => {
                self.sync();
                self.running.as_ref().expect("runs").1.wal_jobs().roll_checkpoint();
            }
            _ => {
                for _ in 0..rng.below(12) {
                    self.step();
                    if rng.below(3) == 0 {
                        let _ = self.owner().publish();
                    }
                    if rng.below(4) == 0 {
                        self.sync();
                    }
                }
            }
        }
    }
}

/// Samples of the records of the log.
fn ledger(env: &TestEnv) -> Ledger {
    let mut ledger = Ledger::new();
    for record in env.topic.records(P0) {
        let mut batch = WriteBatch::from_labels();
        let Ok(Record::Samples { .. }) = decode_record(&record.value, sent_keys, &mut batch) else {
            continue;
        };
        for (idx, series) in batch.series.iter().enumerate() {
            let mut labels = LabelsBuilder::new();
            (batch.source.parse)(batch.key_of(idx), &mut labels).expect("labels");
            let labels = labels.finish();
            let name = labels.get("__name__").expect("a name").to_owned();
            for at in series.samples.start as usize..series.samples.end as usize {
                let bits = batch.values[at].to_bits();
                let entry =
                    ledger.entry((name.clone(), batch.times[at])).or_insert_with(|| (Vec::new(), bits));
                assert_eq!(entry.1, bits, "a repeat has the same value");
                entry.0.push(record.offset);
            }
        }
    }
    ledger
}

fn in_bucket(env: &TestEnv) -> InBucket {
    let store = Arc::new(Store::simulated(env.bucket.connect(1), &env.env, RUNTIME.handle().clone()));
    let folder = Folder::of_tenant(&TenantId::anonymous());
    let request =
        RequestContext::with_timeout(&*env.env.clock, folder, Duration::from_secs(600), Purpose::Tool);
    let reader: SnapshotReader<Snapshot> = SnapshotReader::of_kind(store.clone(), env.env.clock.clone());
    let latest = RUNTIME.block_on(reader.read_latest(&request)).expect("a catalogue");
    let Some(latest) = latest else { return InBucket { samples: BTreeMap::new(), count: 0, cut: None } };
    let count = latest.snapshot.blocks.iter().map(|block| block.counts.samples).sum();
    let topic = env.connect().identity();
    let cut = latest.snapshot.cut_of(LogPartition { topic, number: P0 });
    let options = BucketOptions::new("memory://");
    let sources = BucketSources::over(store, &options, &env.env, RUNTIME.handle());
    let content = read_all(&*sources.queryable(&TenantId::anonymous()), env);
    let samples = content.into_iter().flat_map(|(name, samples)| {
        samples.into_iter().map(move |(time, bits)| ((name.clone(), time), bits))
    });
    InBucket { samples: samples.collect(), count, cut }
}

/// Checks what holds at any time; returns the content of the bucket.
fn check(env: &TestEnv, ledger: &Ledger, seed: u64) -> InBucket {
    let bucket = in_bucket(env);
    for (key, bits) in &bucket.samples {
        let sent = ledger.get(key).unwrap_or_else(|| panic!("seed {seed}: {key:?} was never sent"));
        assert_eq!(sent.1, *bits, "seed {seed}: {key:?}");
    }
    let repeats: u64 = ledger.values().map(|(offsets, _)| offsets.len() as u64 - 1).sum();
    let twice = bucket.count - bucket.samples.len() as u64;
    assert!(twice <= repeats, "seed {seed}: {twice} samples are in two live blocks, {repeats} were repeated");
    let resume = env.stored_resume().map_or(0, |position| position.offset);
    for (key, (offsets, _)) in ledger {
        let passed = offsets.iter().any(|offset| *offset < resume);
        assert!(
            !passed || bucket.samples.contains_key(key),
            "seed {seed}: resume {resume} passes {key:?} of {offsets:?}"
        );
    }
    bucket
}

/// A record with samples of new times; one in some is hours old.
fn new_samples(rng: &Rng, arrival_ms: i64, count: &mut i64) -> Vec<u8> {
    let mut batch = WriteBatch::from_labels();
    for _ in 0..=rng.below(3) {
        *count += 1;
        let age_ms = match rng.below(6) {
            0 => rng.below(8).cast_signed() * HOUR_MS,
            _ => rng.below(30).cast_signed() * 1000,
        };
        let time = (arrival_ms - age_ms).div_euclid(1_000_000) * 1_000_000 + *count;
        let name = format!("s{}", rng.below(SERIES));
        batch.push_labels(&Labels::from_pairs([("__name__", &*name)]), &[(time, *count as f64)]);
    }
    encode_samples(&batch, arrival_ms, DuplicatePolicy::KeepFirst)
}

/// Runs one world of `round_count` rounds; returns the number of published blocks.
fn run(seed: u64, round_count: u64, repeats: bool) -> u64 {
    let some = SimFaults::some();
    let faults = match repeats {
        true => SimFaults { stored_twice: 20, ..some },
        // A record that may be in the log is sent again.
        false => SimFaults { lost_acks: 0, late_arrivals: 0, ..some },
    };
    let first = TestEnv::new(seed, faults);
    let second = first.second(1000 + seed);
    let mut machines = [Machine::start(first), Machine::start(second)];
    let (log, rng) = (machines[0].env.connect(), Rng::from_seed(seed));
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut count = 0;
    for round in 0..round_count {
        machines[0].env.clock.advance(ROUND);
        let now_ms = machines[0].env.env.clock.now_ms();
        for _ in 0..rng.below(5) {
            let record = match rng.below(8) {
                0 if repeats && !sent.is_empty() => sent[rng.below(sent.len() as u64) as usize].clone(),
                _ => new_samples(&rng, now_ms, &mut count),
            };
            machines[0].env.send(&log, &record);
            sent.push(record);
        }
        machines[0].env.send(&log, &tick(now_ms));
        for (idx, machine) in machines.iter_mut().enumerate() {
            machine.act(&rng, seed * 7919 + round * 2 + idx as u64 + 2000);
        }
        if round % 4 == 0 {
            let env = &machines[0].env;
            check(env, &ledger(env), seed);
        }
    }
    settle(&mut machines, &log, seed)
}

/// Ends all faults, lets all windows be cut, and checks that everything is in the bucket and nowhere else.
fn settle(machines: &mut [Machine; 2], log: &SimLog, seed: u64) -> u64 {
    for _ in 0..8 {
        machines[0].env.clock.advance(Duration::from_secs(2 * 3600));
        let now_ms = machines[0].env.env.clock.now_ms();
        machines[0].env.send(log, &tick(now_ms));
        for machine in &*machines {
            catch_up(&machine.env, machine.owner());
            let ledger = ledger(&machine.env);
            let bucket = check(&machine.env, &ledger, seed);
            let (_, tsdb) = machine.running.as_ref().expect("runs");
            let head = machine.env.content(tsdb);
            for ((name, time), (offsets, bits)) in &ledger {
                let in_head = head.get(name).and_then(|samples| samples.get(time));
                let found = bucket.samples.get(&(name.clone(), *time)).or(in_head);
                assert_eq!(found, Some(bits), "seed {seed}: {name} at {time} of {offsets:?} is lost");
            }
            while machine.owner().publish().expect("publishes") {}
        }
    }
    let ledger = ledger(&machines[0].env);
    let bucket = check(&machines[0].env, &ledger, seed);
    assert_eq!(bucket.samples.len(), ledger.len(), "seed {seed}: all is in blocks");
    for machine in &*machines {
        let status = machine.owner().status().cuts;
        let (open, held) = (status.open_window_count, status.held_cut_count);
        assert_eq!((open, held), (0, 0), "seed {seed}: nothing is left in the head");
        let (_, tsdb) = machine.running.as_ref().expect("runs");
        let head = machine.env.content(tsdb);
        assert!(head.is_empty(), "seed {seed}: {head:?}");
    }
    let resume = machines[0].env.stored_resume().expect("stored").offset;
    assert!(resume >= bucket.cut.expect("a cut"), "seed {seed}: {resume}");
    let verification = machines[0].env.verify();
    assert_eq!(verification.findings, [], "seed {seed}");
    assert_eq!(verification.recent_sample_count, 0, "seed {seed}: all is in blocks");
    assert_eq!(verification.resume, resume, "seed {seed}");
    machines.iter().map(|machine| machine.owner().status().cuts.published_block_count).sum()
}

/// Each sample is in one live block, or in the head of each owner that has read it; none is in two blocks.
#[test]
fn racing_owners_publish_each_sample_once() {
    let blocks: u64 = (0..12).map(|seed| run(seed, 40, false)).sum();
    assert!(blocks > 0, "blocks are published until the end");
}

/// A repeat after a cut is a record of its own: at most as many samples are in two blocks as were repeated.
#[test]
fn repeats_are_in_two_blocks_at_most_with_equal_values() {
    let blocks: u64 = (100..106).map(|seed| run(seed, 40, true)).sum();
    assert!(blocks > 0, "blocks are published until the end");
}

/// A start between a cut and its publication: the samples of the cut alone go on as its block; together with
/// later samples they are read from the log again.
#[test]
fn a_start_goes_on_with_a_cut_or_reads_the_partition_again() {
    let mut machine = Machine::start(TestEnv::new(50, SimFaults::default()));
    let log = machine.env.connect();
    let rng = Rng::from_seed(50);
    let mut count = 0;
    let store = StoreId::anonymous();
    let first_ms = machine.env.env.clock.now_ms();
    machine.env.send(&log, &new_samples(&rng, first_ms, &mut count));
    machine.env.clock.advance(Duration::from_secs(24 * 3600));
    machine.env.send(&log, &tick(machine.env.env.clock.now_ms()));
    for _ in 0..3 {
        catch_up(&machine.env, machine.owner());
    }
    let held = machine.owner().windows.held_of(&store);
    assert!(held.len() == 1 && held[0].catalogue.is_none(), "{held:?}");
    machine.sync();
    machine.running = None;
    let (tsdb, discarded) = machine.env.try_store();
    assert_eq!(discarded, None);
    machine.running = Some((machine.env.try_owner(&tsdb).expect("opens"), tsdb));
    assert_eq!(machine.owner().windows.held_of(&store), held, "the cut is known again");

    machine.env.send(&log, &new_samples(&rng, first_ms, &mut count));
    catch_up(&machine.env, machine.owner());
    machine.sync();
    machine.running = None;
    let (tsdb, discarded) = machine.env.try_store();
    let why = discarded.expect("the window has samples of before and after the cut");
    assert!(why.contains("later samples"), "{why}");
    machine.running = Some((machine.env.try_owner(&tsdb).expect("opens"), tsdb));
    catch_up(&machine.env, machine.owner());
    assert_eq!(machine.owner().windows.held_of(&store).len(), 1);
    while machine.owner().publish().expect("publishes") {}
    let bucket = check(&machine.env, &ledger(&machine.env), 50);
    assert_eq!(bucket.cut, Some(held[0].cut), "the first cut alone is published");
}
