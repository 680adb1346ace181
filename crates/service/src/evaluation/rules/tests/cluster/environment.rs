//! Two processes with the roles gateway and query over one log in a directory, one owner and one bucket, with
//! one clock. The owner is read in the process, as over a call.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::{Clock as _, Env, ManualClock, MemDisk, MemoryBudget, Rng};
use chronolith_cluster::gateway::{Gateway, GatewayParts, GatewayWrite, RecordStore};
use chronolith_cluster::options::{GatewayOptions, LogAddress, LogOptions, NewTopic};
use chronolith_cluster::owner::{Owner, OwnerOptions, OwnerParts, open_store};
use chronolith_cluster::rule_lease::RuleLease;
use chronolith_cluster::{LogError, PartitionId, ReplicatedLog, TopicId, open_log};
use chronolith_ingest::added_labels::source_of;
use chronolith_model::change::{ChangeWatch, Changed, Generation};
use chronolith_model::log_position::LogPartition;
use chronolith_model::query::{Opened, Read, Source, TenantSources};
use chronolith_model::{DuplicatePolicy, Labels, QueryError, Queryable, ReadContext, TenantId, WriteBatch};
use chronolith_promql::engine::{Engine, EngineOptions};
use chronolith_promql::parser::{ParserOptions, parse_expr};
use chronolith_promql::{MatrixSeries, Value};
use chronolith_replicated_log::{Bounds, LogStats, ReadLimits, Record, Ticket};
use chronolith_rules::notifier::Alert;
use chronolith_rules::round::RoundSettings;
use chronolith_rules::status::GroupStatus;
use chronolith_tsdb::{Bucket, BucketOptions, BucketSources, LimitsTable, ReplayProgress, Tsdb};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::super::environment::{Points, START_MS};
use crate::evaluation::rules::files::load_rule_files;
use crate::evaluation::rules::lease::keep;
use crate::evaluation::rules::take_due;
use crate::options::ServiceOptions;
use crate::service::{Service, set_gateway};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

/// Labels and start of an alert that was sent, and true if it was resolved.
pub(super) type SentAlert = (String, i64, bool);

/// Called once, while a process waits: everything that happens meanwhile.
type Pause = Box<dyn FnOnce() + Send>;

/// The owner of the only partition.
pub(super) struct OwnedStore {
    pub(super) owner: Owner,
    tsdb: Arc<Tsdb>,
    log: Arc<dyn ReplicatedLog>,
    /// Held while records are applied, which one thread does.
    applying: Mutex<()>,
}

impl OwnedStore {
    /// Applies all records of the log.
    pub(super) fn catch_up(&self) {
        let _applying = self.applying.lock();
        let end = self.log.bounds(PartitionId(0)).expect("bounds").end;
        while self.owner.status().next_offset.is_none_or(|next| next < end) {
            assert_eq!(self.owner.run_once().expect("reads"), None);
        }
    }
}

/// Owner as one process sees it.
pub(super) struct Connection {
    store: Arc<OwnedStore>,
    pub(super) is_away: AtomicBool,
    pause: Mutex<Option<Pause>>,
}

impl ChangeWatch for Connection {
    fn generation(&self, id: &TenantId) -> Generation {
        self.store.tsdb.generation(id)
    }

    fn changed_since(&self, id: &TenantId, generation: &Generation) -> Changed {
        self.store.tsdb.changed_since(id, generation)
    }
}

/// Sources of all tenants of a process.
struct Sources(Arc<Connection>);

impl ChangeWatch for Sources {
    fn generation(&self, id: &TenantId) -> Generation {
        self.0.generation(id)
    }

    fn changed_since(&self, id: &TenantId, generation: &Generation) -> Changed {
        self.0.changed_since(id, generation)
    }
}

impl TenantSources for Sources {
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        let below = self.0.store.tsdb.queryable(tenant);
        Arc::new(OwnerReads { below, connection: self.0.clone() })
    }
}

struct OwnerReads {
    below: Arc<dyn Queryable>,
    connection: Arc<Connection>,
}

impl Source for OwnerReads {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        assert!(
            ctx.consistency().is_some_and(|wanted| wanted.is_strong),
            "rules read what was written before"
        );
        if self.connection.is_away.load(Ordering::Relaxed) {
            return Err(QueryError::Unavailable { what: "partition 0: no ready owner".to_owned() });
        }
        let pause = self.connection.pause.lock().take();
        pause.into_iter().for_each(|pause| pause());
        self.connection.store.catch_up();
        self.below.open(read, ctx)
    }
}

/// Log as one process sees it.
pub(super) struct ProcessLog {
    log: Arc<dyn ReplicatedLog>,
    pub(super) is_away: AtomicBool,
    pause: Mutex<Option<Pause>>,
}

impl ReplicatedLog for ProcessLog {
    fn identity(&self) -> TopicId {
        self.log.identity()
    }

    fn partition_count(&self) -> Result<u32, LogError> {
        self.log.partition_count()
    }

    fn append(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError> {
        let pause = self.pause.lock().take();
        pause.into_iter().for_each(|pause| pause());
        if self.is_away.load(Ordering::Relaxed) {
            return Err(LogError::NotWritten { partition, why: "no broker answers".to_owned() });
        }
        self.log.append(partition, value)
    }

    fn read(&self, partition: PartitionId, from: u64, limits: ReadLimits) -> Result<Vec<Record>, LogError> {
        self.log.read(partition, from, limits)
    }

    fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError> {
        self.log.bounds(partition)
    }

    fn stats(&self) -> LogStats {
        self.log.stats()
    }
}

/// Log, bucket, owner, and a client.
pub(super) struct Cluster {
    pub(super) clock: Arc<ManualClock>,
    log: Arc<dyn ReplicatedLog>,
    bucket: Arc<Bucket>,
    pub(super) owned: Arc<OwnedStore>,
    client: Gateway,
    rules: &'static str,
    limits: LimitsTable,
}

/// A process with the roles gateway and query.
pub(super) struct Process {
    pub(super) service: Service,
    pub(super) owner: Arc<Connection>,
    pub(super) log: Arc<ProcessLog>,
    /// Alerts that were sent.
    pub(super) sent: Mutex<Vec<Arc<Alert>>>,
}

fn env_of(clock: &Arc<ManualClock>, seed: u64) -> Env {
    Env { clock: clock.clone(), disk: Arc::new(MemDisk::new()), rng: Arc::new(Rng::from_seed(seed)) }
}

fn gateway(env: &Env, log: Arc<dyn ReplicatedLog>, bucket: &Bucket, limits: &LimitsTable) -> Gateway {
    let parts = GatewayParts {
        log,
        bucket: bucket.store().clone(),
        handle: RUNTIME.handle().clone(),
        memory: MemoryBudget::new("records of the log", 8 << 20),
        limits: limits.clone(),
    };
    let gateway = Gateway::new(env, parts, GatewayOptions::default());
    gateway.refresh().expect("a partition map");
    gateway
}

impl Cluster {
    /// A cluster whose processes have the rule file `rules`. The last value wins for clients.
    pub(super) fn start(rules: &'static str) -> Cluster {
        let clock = Arc::new(ManualClock::new(START_MS));
        let env = env_of(&clock, 1);
        let mut options = LogOptions::new(LogAddress::Dir("/log".into()));
        options.new_topic = Some(NewTopic { partition_count: 1, replication_factor: 1 });
        let log = open_log(&env, RUNTIME.handle(), &options).expect("a log");
        let sources = BucketSources::open(&BucketOptions::new("memory://"), &env, RUNTIME.handle());
        let bucket = sources.expect("a bucket").bucket().clone();
        let mut limits = LimitsTable::default();
        limits.default.duplicates = DuplicatePolicy::LastWins;
        let client = gateway(&env, log.clone(), &bucket, &limits);
        let mut store = ServiceOptions::new("/owner".into()).tsdb_options();
        store.limits = limits.clone();
        store.wal.log = Some(LogPartition { topic: log.identity(), number: PartitionId(0) });
        let progress = Arc::new(ReplayProgress::default());
        let (tsdb, _) = open_store(&env, &store, &progress, Some(&bucket)).expect("opens");
        let parts = OwnerParts {
            log: log.clone(),
            bucket: bucket.store().clone(),
            handle: RUNTIME.handle().clone(),
            tsdb: tsdb.clone(),
            env: env.clone(),
        };
        let owner = Owner::open(parts, OwnerOptions::new(source_of)).expect("opens");
        let owned = Arc::new(OwnedStore { owner, tsdb, log: log.clone(), applying: Mutex::default() });
        Cluster { clock, log, bucket, owned, client, rules, limits }
    }

    pub(super) fn process(&self, seed: u64) -> Process {
        let env = env_of(&self.clock, seed);
        env.disk.create_dir_all(Path::new("/etc/rules")).expect("a directory");
        env.disk.write_atomic(Path::new("/etc/rules/a.yml"), self.rules.as_bytes()).expect("written");
        let mut options = ServiceOptions::new("/data".into());
        options.rules.files = vec!["/etc/rules/*.yml".into()];
        options.cluster.roles = "gateway,query".parse().expect("roles");
        let service = Service::new(env.clone(), options);
        let log = Arc::new(ProcessLog {
            log: self.log.clone(),
            is_away: AtomicBool::new(false),
            pause: Mutex::default(),
        });
        set_gateway(&service, Arc::new(gateway(&env, log.clone(), &self.bucket, &self.limits)));
        service.set_limits(self.limits.clone());
        let store = self.owned.clone();
        let owner = Connection { store, is_away: AtomicBool::new(false), pause: Mutex::default() };
        let owner = Arc::new(owner);
        service.lifecycle.set_sources(Arc::new(Sources(owner.clone())));
        let duration = service.options.rules.lease_duration;
        let lease = RuleLease::new(self.bucket.store().clone(), &env, RUNTIME.handle().clone(), duration);
        service.lifecycle.roles.set_rule_lease(Arc::new(lease));
        let limits = service.limits_of(&TenantId::anonymous()).queries.rules;
        load_rule_files(&service, &limits).expect("valid");
        Process { service, owner, log, sent: Mutex::default() }
    }

    /// Writes a sample as a client.
    pub(super) fn write(&self, labels: &[(&str, &str)], time_ms: i64, value: f64) {
        write(&self.client, labels, time_ms, value);
    }

    /// Moves the clock on by steps of 10 s. In each, a client writes `x`, then the processes act in turn.
    pub(super) fn run_for(&self, duration: Duration, processes: &[&Process]) {
        let end_ms = self.clock.now_ms() + duration.as_millis() as i64;
        while self.clock.now_ms() < end_ms {
            self.clock.advance(Duration::from_secs(10));
            let now_ms = self.clock.now_ms();
            self.write(&[("__name__", "x")], now_ms, value_at(now_ms));
            processes.iter().for_each(|process| process.act());
        }
    }

    /// Samples of all series that a selector selects, staleness markers left out, by labels.
    pub(super) fn samples(&self, selector: &str) -> BTreeMap<String, Points> {
        self.owned.catch_up();
        let engine = Engine::new(EngineOptions::default());
        let expr = parse_expr(&format!("{selector}[10h]"), ParserOptions::default()).expect("a query");
        let source = self.owned.tsdb.queryable(&TenantId::anonymous());
        let ctx = ReadContext::unlimited(self.clock.clone());
        let result = engine.instant(&*source, &expr, self.clock.now_ms(), None, &ctx).expect("evaluated");
        let Value::Matrix(series) = result.value else { panic!("no matrix") };
        let points = |one: &MatrixSeries| {
            let pairs = one.times.iter().copied().zip(one.values.iter().map(|value| value.to_bits()));
            (one.labels.to_string(), pairs.collect())
        };
        series.iter().map(points).collect()
    }
}

/// Value of the input at a time.
pub(super) fn value_at(time_ms: i64) -> f64 {
    (time_ms - START_MS) as f64 / 10_000.0
}

fn write(gateway: &Gateway, labels: &[(&str, &str)], time_ms: i64, value: f64) {
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs(labels.iter().copied()), &[(time_ms, value)]);
    let tenant = TenantId::anonymous();
    let write = GatewayWrite {
        tenant: &tenant,
        store: RecordStore::Default,
        request_id: &"client",
        arrival_ms: time_ms,
        duplicates: None,
    };
    let written = gateway.append(write, &batch).and_then(|pending| pending.wait()).expect("acknowledged");
    assert_eq!(written.outcome.rejected_count(), 0);
}

impl Process {
    /// Asks for the lease, and evaluates all rounds that are due.
    pub(super) fn act(&self) {
        keep(&self.service).expect("the bucket answers");
        self.run_due();
    }

    pub(super) fn run_due(&self) {
        let settings = RoundSettings {
            resend_delay_ns: 60_000_000_000,
            external_labels: BTreeMap::from([("region".to_owned(), "eu".to_owned())]),
            external_url: "http://c.example".to_owned(),
        };
        loop {
            let due = take_due(&self.service);
            if due.is_empty() {
                return;
            }
            for round in due {
                round.run(&self.service, &settings, &|alerts| {
                    self.sent.lock().extend(alerts.iter().cloned());
                });
            }
        }
    }

    /// Pauses the process in its next read: `meanwhile` happens first.
    pub(super) fn pause_in_read(&self, meanwhile: impl FnOnce() + Send + 'static) {
        *self.owner.pause.lock() = Some(Box::new(meanwhile));
    }

    /// Pauses the process after the last check of its lease, before its next append.
    pub(super) fn pause_in_append(&self, meanwhile: impl FnOnce() + Send + 'static) {
        *self.log.pause.lock() = Some(Box::new(meanwhile));
    }

    pub(super) fn has_lease(&self) -> bool {
        self.service.lifecycle.roles.rule_lease().expect("set").term().is_some()
    }

    /// The status of the only group.
    pub(super) fn status(&self) -> Arc<GroupStatus> {
        self.service.rules.all().into_iter().next().expect("a group").1
    }

    /// Labels, starts and ends of the alerts that were sent.
    pub(super) fn sent_alerts(&self) -> Vec<SentAlert> {
        let sent = self.sent.lock();
        let of_alert =
            |alert: &Arc<Alert>| (alert.labels.to_string(), alert.starts_at_ms, alert.end.is_resolved());
        sent.iter().map(of_alert).collect()
    }
}
