//! The bucket of a simulation: objects that outlive processes, and the connections of processes to them.
//!
//! Invariants: each process has a client of its own, and a process that has ended changes neither the bucket
//! nor its disk; faults follow from the seed and the request, so a run repeats them as long as it sends the
//! same requests.
//! Not here: expected content of the bucket (`bucket_ledger`), operations (`bucket_env`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Env, MemDisk, Rng};
use chronolith_bucket::Store;
use chronolith_bucket::store::faults::{FaultPlan, FaultStore, Kill, MemoryBucket};
use chronolith_tsdb::{Bucket, BucketOptions, BucketSources};
use tokio::runtime::Runtime;

use crate::op::CrashKind;

/// List of a process that is the only writer: it never has to be read again.
const NEVER: Duration = Duration::from_secs(u64::MAX >> 32);

/// The shortest that a server accepts.
const DELETE_DELAY: Duration = Duration::from_secs(2 * 3600);
/// Faults while the bucket is faulty.
const FAULTY: FaultPlan = FaultPlan {
    unavailable: 40,
    cut: 20,
    flipped: 20,
    lost_answer: 40,
    conflict: 40,
    delayed: 30,
    delay_ms: 1,
    stalled: 0,
    stall_ms: 0,
    // Each takes a quarter of a second.
    unanswered: 1,
};

/// An end of the process at a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestKill {
    /// Number of the request, counted from the start of the simulation.
    pub(crate) at: u64,
    /// Kill point: before or after the request takes effect.
    pub(crate) kill: Kill,
    /// Crash of the disk that follows.
    pub(crate) crash: CrashKind,
    pub(crate) seed: u64,
}

/// The bucket, and the client of the process that writes.
pub(crate) struct BucketWorld {
    objects: MemoryBucket,
    runtime: Runtime,
    options: BucketOptions,
    seed: u64,
    /// Clients made up to here.
    client_count: u64,
    client: Arc<FaultStore>,
    /// Requests of clients before this one, of processes that write.
    requests_before: u64,
    faults_before: u64,
    is_faulty: bool,
    kill: Option<RequestKill>,
    /// A read-only process that runs all the time.
    reader: Arc<BucketSources>,
}

impl BucketWorld {
    pub(crate) fn new(seed: u64, local_retention: Duration, env: &Env) -> Result<BucketWorld, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| format!("no threads for requests: {error}"))?;
        let objects = MemoryBucket::new();
        let mut options = BucketOptions::new("memory://");
        options.local_retention = local_retention;
        options.catalog.poll = NEVER;
        options.delete_delay = DELETE_DELAY;
        let mut following = options.clone();
        following.catalog.poll = Duration::ZERO;
        let env = with_own_rng(env, seed);
        let store = Arc::new(Store::simulated(objects.connect(seed), &env, runtime.handle().clone()));
        let reader = Arc::new(BucketSources::over(store, &following, &env, runtime.handle()));
        Ok(BucketWorld {
            client: objects.connect(seed),
            objects,
            runtime,
            options,
            seed,
            client_count: 1,
            requests_before: 0,
            faults_before: 0,
            is_faulty: false,
            kill: None,
            reader,
        })
    }

    /// Connects a new process, whose disk fails with it.
    pub(crate) fn connect(&mut self, env: &Env, disk: &Arc<MemDisk>) -> Arc<Bucket> {
        self.requests_before += self.client.request_count();
        self.faults_before += self.client.injected_count();
        let client = self.next_client();
        let disk = disk.clone();
        client.on_end(move || disk.fail_after(0));
        self.client = client;
        self.arm();
        self.apply_faults();
        self.sources(self.client.clone(), env).bucket().clone()
    }

    /// Connects a process without faults, whose requests are not counted.
    pub(crate) fn connect_probe(&mut self, env: &Env) -> Arc<BucketSources> {
        let client = self.next_client();
        self.sources(client, env)
    }

    /// The read-only process that runs all the time. Its list of blocks may be as old as its last query.
    pub(crate) fn reader(&self) -> Arc<BucketSources> {
        self.reader.clone()
    }

    fn next_client(&mut self) -> Arc<FaultStore> {
        self.client_count += 1;
        self.objects.connect(self.seed.wrapping_add(self.client_count))
    }

    fn sources(&self, client: Arc<FaultStore>, env: &Env) -> Arc<BucketSources> {
        let env = with_own_rng(env, self.seed ^ self.client_count);
        let store = Arc::new(Store::simulated(client, &env, self.runtime.handle().clone()));
        Arc::new(BucketSources::over(store, &self.options, &env, self.runtime.handle()))
    }

    /// Ends the process at a request.
    pub(crate) fn set_kill(&mut self, kill: RequestKill) {
        self.kill = Some(kill);
        self.arm();
    }

    fn arm(&self) {
        let Some(kill) = self.kill else { return };
        if let Some(left) = kill.at.checked_sub(self.requests_before + self.client.request_count()) {
            self.client.kill_after(left, kill.kill);
        }
    }

    /// Requests of processes that write.
    pub(crate) fn request_count(&self) -> u64 {
        self.requests_before + self.client.request_count()
    }

    /// Faults that were injected.
    pub(crate) fn fault_count(&self) -> u64 {
        self.faults_before + self.client.injected_count()
    }

    /// Takes the kill that has ended the process.
    pub(crate) fn take_ended(&mut self) -> Option<RequestKill> {
        self.kill.take_if(|_| self.client.has_ended())
    }

    /// Returns true if the process has ended at a request.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.has_ended()
    }

    /// Returns true if requests may fail.
    pub(crate) fn may_fail(&self) -> bool {
        self.is_faulty || self.client.has_ended()
    }

    pub(crate) fn set_faulty(&mut self, is_faulty: bool) {
        self.is_faulty = is_faulty;
        self.apply_faults();
    }

    /// Lets requests succeed until [`BucketWorld::apply_faults`].
    pub(crate) fn pause_faults(&self) {
        self.client.set_plan(FaultPlan::default());
    }

    pub(crate) fn apply_faults(&self) {
        self.client.set_plan(if self.is_faulty { FAULTY } else { FaultPlan::default() });
    }
}

/// Requests at the same time draw in any order, which must not reach the store.
fn with_own_rng(env: &Env, seed: u64) -> Env {
    Env { rng: Arc::new(Rng::from_seed(seed ^ 0xb0c)), ..env.clone() }
}
