//! Owner of a partition on a machine of its own: its disk, its connection to the bucket, and its ends.
//!
//! Invariant: a process that has ended changes neither disk nor bucket; a machine that has lost its disk
//! begins with an empty one.
//! Not here: when a machine acts (the parent), its answers (`query_node`).

use std::path::PathBuf;
use std::sync::Arc;

use chronolith_base::{Clock, Env, ManualClock, MemDisk, Rng};
use chronolith_bucket::Store;
use chronolith_bucket::store::faults::{FaultPlan, FaultStore, Kill, MemoryBucket};
use chronolith_cluster::owner::{Owner, OwnerError, OwnerOptions, OwnerParts, open_store};
use chronolith_model::log_position::{LogPartition, PartitionId};
use chronolith_replicated_log::ReplicatedLog;
use chronolith_replicated_log::sim::SimTopic;
use chronolith_tsdb::{Bucket, BucketOptions, ReplayProgress, SyncMode, Tsdb, TsdbOptions};
use tokio::runtime::Handle;

use super::ledger::source_of;
use super::setup::{ClusterSetup, HOUR_MS};
use super::skewed_clock::SkewedClock;
use crate::cluster_tally::OwnerTally;

/// Attempts to start until a failure counts.
const STARTS_MAX: usize = 5;

/// Parts that all machines share.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) setup: Arc<ClusterSetup>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) topic: SimTopic,
    pub(super) objects: Arc<MemoryBucket>,
    pub(super) bucket_options: BucketOptions,
    pub(super) handle: Handle,
}

impl Site {
    /// Environment of a machine whose clock is off.
    pub(super) fn env(&self, seed: u64, skew_ms: i64) -> (Env, Arc<MemDisk>) {
        let (env, _, disk) = Env::fake(0, seed);
        let clock: Arc<dyn Clock> = Arc::new(SkewedClock { base: self.clock.clone(), skew_ms });
        (Env { clock, ..env }, disk)
    }

    /// Requests of a new process.
    pub(super) fn connect(&self, env: &Env, seed: u64) -> (Arc<Store>, Arc<FaultStore>) {
        let client = self.objects.connect(seed);
        (Arc::new(Store::simulated(client.clone(), env, self.handle.clone())), client)
    }
}

/// End of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The process ends alone.
    Kill,
    /// The machine ends: bytes that were not synced are lost.
    PowerCut,
    /// As [`End::PowerCut`], but some of the bytes that were not synced are there.
    TornPowerCut,
    /// The disk is lost as well.
    LostDisk,
}

impl End {
    pub(super) fn draw(rng: &Rng) -> End {
        [End::Kill, End::PowerCut, End::TornPowerCut, End::LostDisk][rng.below(4) as usize]
    }
}

/// Process of an owner that runs.
pub(super) struct Running {
    pub(super) owner: Arc<Owner>,
    pub(super) tsdb: Arc<Tsdb>,
}

/// Machine of an owner, with its process.
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) partition: PartitionId,
    site: Site,
    seed: u64,
    env: Env,
    disk: Arc<MemDisk>,
    client: Arc<FaultStore>,
    running: Option<Running>,
    /// Bytes that a read of the log asks for.
    read_bytes: usize,
    plan: FaultPlan,
    refused_before: u64,
    /// Reads of the log after which the process ends.
    end_at_step: Option<u64>,
    tally: OwnerTally,
}

impl Machine {
    /// Starts a machine of the site.
    pub(super) fn start(
        site: &Site,
        name: String,
        partition: PartitionId,
        seed: u64,
    ) -> Result<Machine, String> {
        let rng = Rng::from_seed(seed);
        let skew_ms = [0, 0, HOUR_MS, -3 * HOUR_MS][rng.below(4) as usize];
        let (env, disk) = site.env(seed, skew_ms);
        let (_, client) = site.connect(&env, seed);
        let mut machine = Machine {
            name,
            partition,
            site: site.clone(),
            seed,
            env,
            disk,
            client,
            running: None,
            read_bytes: [1, 4096, 8 << 20][rng.below(3) as usize],
            plan: FaultPlan::default(),
            refused_before: 0,
            end_at_step: None,
            tally: OwnerTally::default(),
        };
        machine.restart()?;
        Ok(machine)
    }

    pub(super) fn running(&self) -> &Running {
        self.running.as_ref().expect("a machine runs between two acts")
    }

    pub(super) fn owner(&self) -> &Arc<Owner> {
        &self.running().owner
    }

    /// Offset of the next record.
    pub(super) fn next_offset(&self) -> u64 {
        let records = self.running().tsdb.records().expect("the store of an owner has a partition");
        records.next().map_or(0, |position| position.offset)
    }

    /// Counts, with what the process that runs has published.
    pub(super) fn tally(&self) -> OwnerTally {
        let published = self.running.as_ref().map_or(0, |running| published_blocks(&running.owner));
        let OwnerTally { published_blocks, requests, .. } = self.tally;
        OwnerTally {
            published_blocks: published_blocks + published,
            requests: requests + self.client.request_count(),
            ..self.tally
        }
    }

    /// Sets the faults of requests to the bucket.
    pub(super) fn set_plan(&mut self, plan: FaultPlan) {
        self.plan = plan;
        self.client.set_plan(plan);
    }

    /// Ends the process at its request after `request_count` others.
    pub(super) fn end_at_request(&self, request_count: u64, kill: Kill) {
        self.client.kill_after(request_count, kill);
    }

    /// Ends the process after this number of reads of the log, each of one record at most.
    pub(super) fn end_at_step(&mut self, step_count: u64) {
        self.end_at_step = Some(self.tally.steps + step_count);
    }

    /// Ends the process at its disk operation after `op_count` others.
    pub(super) fn end_at_disk_op(&self, op_count: u64) {
        self.disk.fail_after(op_count);
    }

    /// Lets the process live.
    pub(super) fn disarm(&mut self) {
        self.client.is_alive();
        self.end_at_step = None;
        self.disk.heal();
    }

    /// Calls `rival` before each creation of an object, once per creation.
    pub(super) fn set_rival(&self, rival: Option<Arc<dyn Fn() + Send + Sync>>) {
        self.client.on_create(rival);
    }

    /// Returns true if a request or a disk operation has ended the process.
    pub(super) fn has_ended(&self) -> bool {
        let is_past_end = self.end_at_step.is_some_and(|end| self.tally.steps >= end);
        is_past_end || self.client.has_ended() || self.disk.refused_count() > self.refused_before
    }

    /// Reads the log once. An owner that needs an operator is a failure, unless its process has ended.
    pub(super) fn step(&mut self) -> Result<(), String> {
        self.tally.steps += 1;
        match self.owner().run_once() {
            Ok(_) => Ok(()),
            Err(_) if self.has_ended() => Ok(()),
            Err(error) => Err(format!("{} stopped: {error}", self.name)),
        }
    }

    /// Publishes once; returns true if there may be more.
    pub(super) fn publish(&mut self) -> Result<bool, String> {
        self.tally.publications += 1;
        self.owner().publish()
    }

    /// Syncs the WAL, and writes a slice of the checkpoint if `has_checkpoint`.
    pub(super) fn sync(&self, has_checkpoint: bool) {
        let tsdb = &self.running().tsdb;
        tsdb.wal_jobs().sync();
        if has_checkpoint {
            tsdb.wal_jobs().roll_checkpoint();
        }
    }

    /// Runs the background jobs of the store.
    pub(super) fn maintain(&self) {
        self.running().tsdb.maintenance().run();
    }

    /// Ends the process.
    pub(super) fn end(&mut self, end: End, rng: &Rng) {
        self.tally.request_ends += u64::from(self.client.has_ended());
        self.tally.disk_ends += u64::from(self.disk.refused_count() > self.refused_before);
        self.tally = OwnerTally { ..self.tally() };
        self.set_rival(None);
        self.end_at_step = None;
        self.running = None;
        match end {
            End::Kill => self.disk.kill(),
            End::PowerCut => self.disk.crash(),
            End::TornPowerCut => self.disk.crash_partly(rng),
            End::LostDisk => {
                self.tally.lost_disks += 1;
                self.seed = rng.next_u64();
                self.disk = Arc::new(MemDisk::new());
                self.env = Env { disk: self.disk.clone(), ..self.env.clone() };
            }
        }
        // A new process has other names for its blocks.
        self.env.rng = Arc::new(Rng::from_seed(rng.next_u64()));
    }

    /// Starts the process.
    ///
    /// # Errors
    /// It does not start, and nothing has ended it.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        for _ in 0..STARTS_MAX {
            self.refused_before = self.disk.refused_count();
            match self.try_start() {
                Ok(running) => {
                    self.running = Some(running);
                    self.client.set_plan(self.plan);
                    self.tally.starts += 1;
                    return Ok(());
                }
                // A process waits for a broker that is away.
                Err(OpenFailure::Retry) => self.site.topic.set_reachable(true),
                Err(OpenFailure::Stop(why)) => return Err(format!("{} does not start: {why}", self.name)),
            }
        }
        Err(format!("{} does not start", self.name))
    }

    fn try_start(&mut self) -> Result<Running, OpenFailure> {
        let retry_log = |_| OpenFailure::Retry;
        let log = Arc::new(self.site.topic.connect().map_err(retry_log)?);
        let seed = self.env.rng.next_u64();
        let (store, client) = self.site.connect(&self.env, seed);
        let disk = self.disk.clone();
        client.on_end(move || disk.fail_after(0));
        self.client = client;
        let bucket = Bucket::over(store, &self.site.bucket_options, &self.env, &self.site.handle);
        let bucket = Arc::new(bucket);
        let mut options = TsdbOptions::new(PathBuf::from("/data"));
        options.wal.segment_bytes = 64 << 10;
        options.sync = SyncMode::Interval(1000);
        options.flush.delay_ms = self.site.setup.delay_ms;
        options.wal.log = Some(LogPartition { topic: log.identity(), number: self.partition });
        let progress = Arc::new(ReplayProgress::default());
        let stop = |error: String| OpenFailure::Stop(error);
        let (tsdb, _) = open_store(&self.env, &options, &progress, Some(&bucket))
            .map_err(|error| stop(error.to_string()))?;
        let parts = OwnerParts {
            log,
            bucket: bucket.store().clone(),
            handle: self.site.handle.clone(),
            tsdb: tsdb.clone(),
            env: self.env.clone(),
        };
        let mut owner_options = OwnerOptions { seam: self.site.setup.seam, ..OwnerOptions::new(source_of) };
        owner_options.read.bytes_max = self.read_bytes;
        match Owner::open(parts, owner_options) {
            Ok(owner) => Ok(Running { owner: Arc::new(owner), tsdb }),
            Err(OwnerError::Log(error)) if error.is_retriable() => Err(OpenFailure::Retry),
            Err(error) => Err(stop(error.to_string())),
        }
    }
}

/// Reason why a process did not start.
enum OpenFailure {
    /// The log did not answer.
    Retry,
    Stop(String),
}

fn published_blocks(owner: &Owner) -> u64 {
    owner.status().cuts.published_block_count
}
