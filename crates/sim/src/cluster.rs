//! Simulation of a cluster: gateways, a replicated log, two owners of each partition, a bucket and a query
//! node, with faults of all of them, checked against a ledger.
//!
//! Acknowledgements are lost or late, and senders repeat; owners end at records, disk operations and
//! requests, lose their disks, sleep, and race at each creation of an object; clocks are off by hours; query
//! nodes have old catalogues; partitions are added and drained.
//!
//! Invariants: an acknowledged sample is returned once the faults have ended; nothing is in two live blocks
//! but repeats; `resume` passes no sample that is in no block. Each answer meanwhile has all samples of the
//! records that the asked owners have applied, or is an error. One operation is one sample that a gateway was
//! asked to write, or one act of a process: a read of the log, a publication, an end, a query, a check.
//! Not here: Kafka's protocol, HTTP, the operating system.

mod answer;
mod checks;
mod deletions;
mod gateways;
mod ledger;
mod machine;
mod query_node;
pub(crate) mod scenarios;
mod setup;
mod skewed_clock;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use chronolith_base::{Env, ManualClock, Rng, thread};
use chronolith_bucket::snapshots::{Change, Snapshots};
use chronolith_bucket::store::faults::{FaultPlan, Kill, MemoryBucket};
use chronolith_bucket::{Folder, Purpose, RequestContext};
use chronolith_cluster::gateway::RecordStore;
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_format::bucket::partitions::PartitionsSnapshot;
use chronolith_model::TenantId;
use chronolith_model::databases::{BucketDatabase, BucketPolicy};
use chronolith_model::log_position::PartitionId;
use chronolith_model::partition::PartitionChange;
use chronolith_replicated_log::ReplicatedLog;
use chronolith_replicated_log::sim::{SimOptions, SimTopic};
use chronolith_tsdb::BucketOptions;
use tokio::runtime::Runtime;

use self::answer::compare;
use self::checks::Auditor;
use self::deletions::Deletions;
use self::gateways::Gateways;
use self::ledger::{Ledger, Sample};
use self::machine::{End, Machine, Site};
use self::query_node::QueryNode;
use self::setup::{ClusterSetup, MINUTE_MS, NEVER, OWNERS_PER_PARTITION, PARTITIONS_MAX, START_MS};
use crate::cluster_tally::ClusterTally;
use crate::failure::{Failure, Mode, catch_panic};
use crate::runner::Budget;
use crate::tally::Tally;

/// Steps within which an owner reads everything that the log has.
const CATCH_UP_STEPS_MAX: usize = 200_000;
/// Rounds of a seed, however many samples they have.
const ROUNDS_MIN: u64 = 40;
const ROUNDS_MAX: u64 = 100;
/// Rounds of a script that is run to each of its ends.
const SCRIPT_ROUNDS: u64 = 12;
/// Rounds of two hours after which all windows are in blocks.
const SETTLING_ROUNDS: usize = 6;
const SETTLING_ROUND: Duration = Duration::from_secs(2 * 3600 + 60);
/// Steps after each of these rounds in which owners append lost records of deletions, and end them.
const DELETION_STEPS: usize = 4;
const DELETION_STEP: Duration = Duration::from_secs(100);
/// Faults of requests to the bucket while it is faulty.
const FAULTY: FaultPlan = FaultPlan {
    unavailable: 60,
    cut: 20,
    flipped: 20,
    lost_answer: 60,
    conflict: 40,
    delayed: 0,
    delay_ms: 0,
    stalled: 0,
    stall_ms: 0,
    unanswered: 0,
};

/// Runtimes of the requests: the two owners of a partition have different ones, since a request of one of
/// them may wait for the publication of the other.
static RUNTIMES: [LazyLock<Runtime>; OWNERS_PER_PARTITION] =
    [LazyLock::new(new_runtime), LazyLock::new(new_runtime)];

fn new_runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("threads for requests")
}

/// Simulates clusters of the seeds from `seed` on until `budget` is used up. `progress` is called after each
/// seed.
///
/// # Errors
/// The first failure.
pub fn run_cluster_seeds(
    seed: u64,
    budget: Budget,
    mut progress: impl FnMut(u64, &Tally),
) -> Result<Tally, Failure> {
    let mut all = Tally::default();
    let mut seed = seed;
    while all.ops() < budget.ops {
        let seed_ops = budget.seed_ops.min(budget.ops - all.ops());
        let mode = Mode::Cluster { seed_ops };
        let fail = |(op_idx, text)| Failure { seed, op_idx, text, mode };
        let tally = catch_panic(|| run_cluster(seed, seed_ops).map_err(|text| (0, text))).map_err(fail)?;
        progress(seed, &tally);
        all.add(&tally);
        seed += 1;
    }
    Ok(all)
}

fn run_cluster(seed: u64, ops: u64) -> Result<Tally, String> {
    let mut env = ClusterEnv::new(ClusterSetup::from_seed(seed), Ends::Random)?;
    let mut round = 0;
    while env.tally().ops() < ops && round < ROUNDS_MAX || round < ROUNDS_MIN {
        env.run_round(round).map_err(|text| format!("round {round}: {text}"))?;
        round += 1;
    }
    env.settle().map_err(|text| format!("after {round} rounds: {text}"))?;
    Ok(env.tally())
}

/// Asks one query node again and again during cuts of a cluster whose owners live, until the log has
/// `cut_count` cuts. The catalogue of the node is read again only where an owner refuses it.
///
/// # Errors
/// The first failure.
pub fn run_seam(seed: u64, cut_count: u64) -> Result<Tally, Failure> {
    let run = || {
        let setup = ClusterSetup {
            partition_count: 2,
            changes_partitions: false,
            delay_ms: MINUTE_MS,
            seam: Duration::from_secs(60),
            run_count_max: 10,
            ..ClusterSetup::from_seed(seed)
        };
        let mut env = ClusterEnv::new(setup, Ends::None)?;
        let mut round = 0;
        while env.ledger.cut_count < cut_count {
            env.run_round(round).map_err(|text| format!("round {round}: {text}"))?;
            env.query_all().map_err(|text| format!("round {round}: {text}"))?;
            round += 1;
        }
        env.settle()?;
        Ok(env.tally())
    };
    let fail = |(op_idx, text)| Failure { seed, op_idx, text, mode: Mode::Seam { cut_count } };
    catch_panic(|| run().map_err(|text: String| (0, text))).map_err(fail)
}

/// Runs a short script of a cluster, and ends its first owner at every `step`-th record, disk operation and
/// request, before and after it. Returns the sum and the number of ends.
///
/// # Errors
/// The first failure.
pub fn run_cluster_ends(seed: u64, step: usize) -> Result<(Tally, u64), Failure> {
    let mut all = Tally::default();
    let mut end_count = 0;
    let kinds = [
        EndPoint::Record,
        EndPoint::DiskOp,
        EndPoint::Request(Kill::EndsBefore),
        EndPoint::Request(Kill::EndsAfter),
    ];
    for kind in kinds {
        for at in (0..).step_by(step) {
            let run = || run_to_end(seed, kind, at).map_err(|text| (0, format!("{kind:?} {at}: {text}")));
            let fail = |(op_idx, text)| Failure { seed, op_idx, text, mode: Mode::ClusterEnds };
            let (tally, has_ended) = catch_panic(run).map_err(fail)?;
            all.add(&tally);
            if !has_ended {
                break;
            }
            end_count += 1;
        }
    }
    Ok((all, end_count))
}

/// Point at which a process ends.
#[derive(Debug, Clone, Copy)]
enum EndPoint {
    Record,
    DiskOp,
    Request(Kill),
}

/// Returns true as well if the script came to the point.
fn run_to_end(seed: u64, kind: EndPoint, at: u64) -> Result<(Tally, bool), String> {
    let setup = ClusterSetup {
        partition_count: 1,
        changes_partitions: false,
        run_count_max: 10,
        ..ClusterSetup::from_seed(seed)
    };
    let mut env = ClusterEnv::new(setup, Ends::None)?;
    match kind {
        EndPoint::Record => env.machines[0].end_at_step(at),
        EndPoint::DiskOp => env.machines[0].end_at_disk_op(at),
        EndPoint::Request(kill) => env.machines[0].end_at_request(at, kill),
    }
    for round in 0..SCRIPT_ROUNDS {
        env.run_round(round)?;
    }
    let has_ended = env.machines[0].tally().starts > 1;
    env.settle()?;
    Ok((env.tally(), has_ended))
}

/// Ends of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// At any time.
    Random,
    /// None but those that a script names.
    None,
}

/// A cluster, and what it should have.
struct ClusterEnv {
    site: Site,
    env: Env,
    rng: Rng,
    ledger: Ledger,
    gateways: Gateways,
    deletions: Deletions,
    machines: Vec<Machine>,
    partition_count: u32,
    auditor: Auditor,
    /// Query node that runs for long.
    node: QueryNode,
    /// Starts of owners when it was made.
    node_starts: u64,
    counts: ClusterTally,
    is_faulty: bool,
    ends: Ends,
}

impl ClusterEnv {
    fn new(setup: ClusterSetup, ends: Ends) -> Result<ClusterEnv, String> {
        let seed = setup.seed;
        let clock = Arc::new(ManualClock::new(START_MS));
        let options = SimOptions { faults: setup.faults, ..SimOptions::new(setup.partition_count, seed) };
        let mut bucket_options = BucketOptions::new("memory://");
        bucket_options.catalog.poll = setup.catalogue_poll;
        let partition_count = setup.partition_count;
        let site = Site {
            topic: SimTopic::new(clock.clone(), options),
            setup: Arc::new(setup),
            clock,
            objects: Arc::new(MemoryBucket::new()),
            bucket_options,
            handle: RUNTIMES[0].handle().clone(),
        };
        let (env, _) = site.env(seed, 0);
        create_databases(&site, &env)?;
        let gateways = Gateways::start(&site)?;
        let mut cluster = ClusterEnv {
            ledger: Ledger::new(&site.setup.stores),
            auditor: Auditor::new(&site, seed + 1),
            node: QueryNode::new(&site, seed + 2),
            node_starts: 0,
            rng: Rng::from_seed(seed),
            gateways,
            deletions: Deletions::default(),
            machines: Vec::new(),
            partition_count,
            counts: ClusterTally::default(),
            is_faulty: false,
            ends,
            site,
            env,
        };
        for partition in 0..partition_count {
            cluster.start_owners(partition)?;
        }
        Ok(cluster)
    }

    fn start_owners(&mut self, partition: u32) -> Result<(), String> {
        for (idx, runtime) in RUNTIMES.iter().enumerate() {
            let name = format!("owner-{partition}-{idx}:9595");
            let seed = self.rng.next_u64();
            let site = Site { handle: runtime.handle().clone(), ..self.site.clone() };
            self.machines.push(Machine::start(&site, name, PartitionId(partition), seed)?);
        }
        Ok(())
    }

    fn tally(&self) -> Tally {
        let mut counts = self.counts;
        for machine in &self.machines {
            counts.owners.add(&machine.tally());
        }
        counts.acknowledged = self.gateways.tally.acknowledged_requests;
        counts.unacknowledged = self.gateways.tally.failed_attempts;
        counts.repeats = self.gateways.tally.repeats;
        counts.deletions_begun = self.deletions.tally.begun;
        counts.deletions_done = self.deletions.tally.done;
        counts.records = self.ledger.record_count;
        counts.cuts = self.ledger.cut_count;
        Tally {
            samples: self.gateways.tally.samples,
            controls: counts.acts(),
            starts: counts.owners.starts,
            compared: counts.compared,
            cluster: counts,
            ..Tally::default()
        }
    }

    fn run_round(&mut self, round: u64) -> Result<(), String> {
        let pause_s = match self.rng.below(8) {
            0..5 => self.rng.below(30),
            5 | 6 => self.rng.below(900),
            _ => self.rng.below(2 * 3600),
        };
        self.site.clock.advance(Duration::from_secs(pause_s));
        self.change_cluster()?;
        for _ in 0..self.rng.below(5) {
            self.gateways.write(&self.site, &self.rng, &mut self.ledger)?;
        }
        if self.site.setup.deletes {
            self.deletions.act(&self.gateways, &self.site, &self.rng)?;
        }
        self.gateways.tick();
        for idx in 0..self.machines.len() {
            self.act(idx)?;
        }
        self.site.topic.set_reachable(true);
        // A rival may have come to its end by the publication of another one.
        (0..self.machines.len()).try_for_each(|idx| self.replace_ended(idx))?;
        if self.rng.below(3) == 0 {
            let tenants = self.site.setup.tenants();
            self.query(&tenants[self.rng.below(tenants.len() as u64) as usize])?;
        }
        if round.is_multiple_of(10) {
            self.read_log()?;
            self.counts.checks += 1;
            self.counts.compared += self.auditor.check_resume(&self.ledger, self.partition_count)?;
        }
        Ok(())
    }

    fn read_log(&mut self) -> Result<(), String> {
        self.ledger.read_log(&self.site.topic, self.partition_count)
    }

    /// Changes the faults and the partitions, now and then.
    fn change_cluster(&mut self) -> Result<(), String> {
        match self.rng.below(40) {
            0..2 if self.site.setup.changes_partitions => self.change_partitions()?,
            2..6 => {
                self.is_faulty = !self.is_faulty;
                let plan = if self.is_faulty { FAULTY } else { FaultPlan::default() };
                self.machines.iter_mut().for_each(|machine| machine.set_plan(plan));
            }
            6 => self.gateways.restart(&self.site, &self.rng)?,
            7..12 => self.gateways.refresh(Some(self.rng.below(8) as usize)),
            12 => self.site.topic.set_reachable(false),
            _ => {}
        }
        Ok(())
    }

    /// Adds a partition, or drains one.
    fn change_partitions(&mut self) -> Result<(), String> {
        let is_added = self.partition_count < PARTITIONS_MAX && self.rng.below(3) > 0;
        let drained = [self.rng.below(u64::from(self.partition_count)) as u32];
        let added = [self.partition_count];
        if !is_added {
            return self.change_map(PartitionChange::Drain(&drained));
        }
        self.site.topic.add_partitions(1);
        self.change_map(PartitionChange::Add(&added))?;
        self.partition_count += 1;
        self.start_owners(self.partition_count - 1)
    }

    /// Changes the partition map, unless it is as wanted.
    fn change_map(&mut self, change: PartitionChange<'_>) -> Result<(), String> {
        let (store, _) = self.site.connect(&self.env, self.rng.next_u64());
        let snapshots: Snapshots<PartitionsSnapshot> = Snapshots::of_kind(store, &self.env);
        let request = request(&self.env, "cluster");
        let now_ms = self.env.clock.now_ms();
        let update = snapshots.update(&request, |snapshot| {
            match snapshot.map.changed(change, now_ms, i64::MIN) {
                Ok(map) => {
                    snapshot.map = map;
                    Change::Write
                }
                // The last partition, or one that is drained.
                Err(_) => Change::Keep,
            }
        });
        let updated = self.site.handle.block_on(update).map_err(|error| format!("partition map: {error}"))?;
        self.counts.map_changes += u64::from(updated.is_written);
        Ok(())
    }

    /// Lets one machine act at random.
    fn act(&mut self, idx: usize) -> Result<(), String> {
        self.replace_ended(idx)?;
        let draw = self.rng.below(14);
        match draw {
            0..3 if self.ends == Ends::None => {}
            0 => {
                let rng = &self.rng;
                self.machines[idx].end(End::draw(rng), rng);
                self.machines[idx].restart()?;
                return Ok(());
            }
            1 => {
                let kill = if self.rng.below(2) == 0 { Kill::EndsBefore } else { Kill::EndsAfter };
                self.machines[idx].end_at_request(self.rng.below(40), kill);
            }
            2 => self.machines[idx].end_at_disk_op(self.rng.below(60)),
            // Asleep.
            3 => return Ok(()),
            4 => self.machines[idx].maintain(),
            5 | 6 => {
                self.counts.races += 1;
                self.race(idx)?;
            }
            _ => {}
        }
        for _ in 0..self.rng.below(12) {
            if !self.machines[idx].has_ended() {
                self.machines[idx].step()?;
            }
            match self.rng.below(8) {
                0..2 => drop(self.machines[idx].publish()),
                2 => self.machines[idx].sync(false),
                3 => self.machines[idx].sync(true),
                _ => {}
            }
        }
        self.replace_ended(idx)
    }

    /// Starts a process again that has ended.
    fn replace_ended(&mut self, idx: usize) -> Result<(), String> {
        if self.machines[idx].has_ended() {
            self.machines[idx].end(End::draw(&self.rng), &self.rng);
            self.machines[idx].restart()?;
        }
        Ok(())
    }

    /// Publishes as another owner of the partition does so before each creation of an object.
    fn race(&mut self, idx: usize) -> Result<(), String> {
        let partition = self.machines[idx].partition;
        let rival =
            self.machines.iter().enumerate().find(|(other, machine)| {
                *other != idx && machine.partition == partition && !machine.has_ended()
            });
        let Some((_, rival)) = rival else { return Ok(()) };
        let rival = rival.owner().clone();
        let publish = move || {
            let rival = rival.clone();
            let published = thread::spawn("rival", move || rival.publish());
            // A failure is repeated by its next publication.
            drop(published.expect("a thread").join().expect("the rival does not panic"));
        };
        let machine = &mut self.machines[idx];
        machine.step()?;
        machine.set_rival(Some(Arc::new(publish)));
        let _ = machine.publish();
        machine.set_rival(None);
        Ok(())
    }

    /// Asks the query node, whose catalogue is as old as owners allow, or a new one.
    fn query(&mut self, tenant: &TenantId) -> Result<(), String> {
        let starts: u64 = self.machines.iter().map(|machine| machine.tally().starts).sum();
        // An owner that has started, and gets no answer of the bucket, does not know which samples left
        // before: a node reads older catalogues again.
        let is_outdated = self.site.setup.catalogue_poll == NEVER
            && starts > self.node_starts
            && self.node.age() > self.site.setup.seam;
        if is_outdated || self.ends == Ends::Random && self.rng.below(8) == 0 {
            self.node = QueryNode::new(&self.site, self.rng.next_u64());
            self.node_starts = starts;
        }
        self.read_log()?;
        let mut asked: Vec<&Machine> = Vec::new();
        for partition in 0..self.partition_count {
            let owners: Vec<&Machine> =
                self.machines.iter().filter(|one| one.partition.0 == partition).collect();
            asked.push(owners[self.rng.below(owners.len() as u64) as usize]);
        }
        let next: Vec<u64> = asked.iter().map(|machine| machine.next_offset()).collect();
        let is_applied =
            |sample: &Sample| sample.place.is_some_and(|place| place.offset < next[place.partition as usize]);
        self.counts.queries += 1;
        let answer = self.node.read(tenant, &asked);
        let answer = answer.map_err(|error| format!("a query of {tenant:?} failed: {error}"))?;
        let is_hidden = |number| self.deletions.is_hidden(number, &next);
        let compared = compare(&self.ledger, tenant, &answer, is_applied, is_hidden);
        self.counts.compared += compared.map_err(|text| {
            let age_s = self.node.age().as_secs();
            format!("a query of {tenant:?} over owners at {next:?}, by a node of {age_s} s: {text}")
        })?;
        Ok(())
    }

    fn query_all(&mut self) -> Result<(), String> {
        let tenants = self.site.setup.tenants();
        tenants.iter().try_for_each(|tenant| self.query(tenant))
    }

    /// Reads until everything is applied.
    fn catch_up(&mut self, idx: usize) -> Result<(), String> {
        let log = self.site.topic.connect().map_err(|error| error.to_string())?;
        let machine = &mut self.machines[idx];
        let end = log.bounds(machine.partition).map_err(|error| error.to_string())?.end;
        for _ in 0..CATCH_UP_STEPS_MAX {
            // Once more at the end: a cut is sent after the records were read.
            let before = machine.next_offset();
            let is_done = before >= end;
            machine.step()?;
            if is_done && machine.owner().status().fault.is_none() {
                return Ok(());
            }
            if machine.next_offset() == before {
                // The record of a deletion waits until the samples of cuts have left.
                let _ = machine.publish();
            }
        }
        Err(format!("{} does not catch up: {:?}", machine.name, machine.owner().status()))
    }

    /// Ends all faults; everything that was acknowledged is readable, and gets into blocks.
    fn settle(&mut self) -> Result<(), String> {
        self.is_faulty = false;
        self.machines.iter_mut().for_each(|machine| machine.set_plan(FaultPlan::default()));
        self.machines.iter_mut().for_each(Machine::disarm);
        // Owners end what the gateways have left.
        self.deletions.abandon();
        self.site.topic.finish_arrivals();
        for round in 0..SETTLING_ROUNDS {
            self.site.clock.advance(SETTLING_ROUND);
            self.gateways.refresh(None);
            self.gateways.tick();
            self.site.topic.finish_arrivals();
            (0..self.machines.len()).try_for_each(|idx| self.catch_up(idx))?;
            if round < 2 {
                self.read_log()?;
                self.ledger.check_acknowledged()?;
                self.query_all()?;
            }
            for _ in 0..DELETION_STEPS {
                self.site.clock.advance(DELETION_STEP);
                for machine in &mut self.machines {
                    while machine.publish()? {}
                }
                (0..self.machines.len()).try_for_each(|idx| self.catch_up(idx))?;
            }
        }
        self.check_settled()
    }

    /// Returns an error unless all samples are in blocks, and nowhere else.
    fn check_settled(&mut self) -> Result<(), String> {
        self.site.clock.advance(self.site.setup.seam);
        for machine in &mut self.machines {
            while machine.publish()? {}
            let cuts = machine.owner().status().cuts;
            let windows = machine.running().tsdb.cuts().windows();
            if (cuts.open_window_count, cuts.held_cut_count) != (0, 0) || !windows.is_empty() {
                return Err(format!("{} has {cuts:?} and windows {windows:?}", machine.name));
            }
        }
        self.read_log()?;
        let open: Vec<u64> = self.auditor.deletions()?.open().map(|deletion| deletion.number).collect();
        if !open.is_empty() {
            return Err(format!("the deletions {open:?} are not done"));
        }
        self.counts.compared += self.auditor.check_blocks(&self.ledger, |sample| sample.place.is_some())?;
        self.auditor.check_resume(&self.ledger, self.partition_count)?;
        (0..self.partition_count).try_for_each(|partition| self.auditor.verify(partition))
    }
}

fn request(env: &Env, tenant: &str) -> RequestContext {
    let folder = Folder::of_tenant(&TenantId::new(tenant).expect("an id"));
    RequestContext::with_timeout(&*env.clock, folder, Duration::from_secs(60), Purpose::Tool)
}

/// Creates the databases of the setup in the bucket.
fn create_databases(site: &Site, env: &Env) -> Result<(), String> {
    for store in &site.setup.stores {
        let RecordStore::Database(id) = store.store else { continue };
        let (client, _) = site.connect(env, 1);
        let snapshots: Snapshots<DatabasesSnapshot> = Snapshots::of_kind(client, env);
        let policy = BucketPolicy {
            name: "autogen".to_owned(),
            duration_ns: 0,
            shard_group_ns: 7 * 24 * 3600 * 1_000_000_000,
            replica_count: 1,
            id,
        };
        let database = BucketDatabase {
            name: "db".to_owned(),
            default_policy: policy.name.clone(),
            policies: vec![policy],
            continuous_queries: Vec::new(),
        };
        let request = request(env, store.tenant.as_str());
        let update = snapshots.update(&request, |snapshot| {
            snapshot.content.databases = vec![database.clone()];
            Change::Write
        });
        site.handle.block_on(update).map_err(|error| format!("creating a database: {error}"))?;
    }
    Ok(())
}
