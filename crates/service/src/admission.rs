//! Admission control: how many requests of each class (write, query, remote read, status ...) run at once,
//! and with how much memory.
//!
//! Invariants: every class has a concurrency limit and a bounded wait queue that serves tenants in turn; with
//! multi-tenancy no tenant of the default weight has more than a quarter of the permits of a class unless its
//! limits say so, no more of the memory than leaves some for others, and no more than a quarter of the queue
//! of the WAL before its next write is applied; other weights have more or less.
//! Not here: who is a tenant (`server::http::tenant`), what runs (`server::http`).

pub mod fair_queue;
pub mod share;
pub mod small;
pub mod tenant_memory;
pub mod threads;

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::{Clock, MemoryBudget, thread};
use chronolith_model::TenantId;

pub use self::fair_queue::time_slice::SlicedPermit;
pub use self::fair_queue::{AdmissionError, FairQueue, Permit, QueueOptions, TenantShare, UncommittedBytes};
pub use self::share::Caller;
use self::share::{TenantPart, Weights};
pub use self::tenant_memory::{TenantBudget, TenantMemory};
use self::threads::QueryThreads;
use crate::limits::{
    ADMIN_CONCURRENCY, ADMIN_QUEUE_FACTOR, PAUSED_MEMORY_DIVISOR, PAUSED_QUERY_FACTOR, QUERY_QUEUE_FACTOR,
    REMOTE_READ_QUEUE_FACTOR, RULE_BACKFILLS_MAX, RULE_CONCURRENCY_MIN, STATUS_CONCURRENCY,
    STATUS_QUEUE_FACTOR, TENANT_SHARE_DIVISOR, TENANT_WAL_QUEUE_BYTES_MIN, WAL_QUEUE_BYTES_MAX,
    WRITE_QUEUE_FACTOR,
};
use crate::options::ServiceOptions;

/// Names of a class.
struct ClassNames {
    /// In the names of metrics.
    metric: &'static str,
    /// Requests of the class, in refusals.
    requests: &'static str,
    /// The setting of its permits, in refusals.
    setting: &'static str,
}

impl ClassNames {
    /// Options of the queue of the class. Only queries pause.
    fn queue_options(&self, permit_count: usize, waiting_max: usize) -> QueueOptions {
        let paused_max = if self.metric == QUERY.metric { permit_count * PAUSED_QUERY_FACTOR } else { 0 };
        QueueOptions {
            what: self.requests,
            setting: self.setting,
            permit_count,
            waiting_max,
            paused_max,
            paused_bytes_max: 0,
        }
    }
}

const WRITE: ClassNames = ClassNames { metric: "write", requests: "writes", setting: "write.concurrency" };
const WRITE_APPLY: ClassNames =
    ClassNames { metric: "write_apply", requests: "writes", setting: "the machine's cores" };
const QUERY: ClassNames = ClassNames { metric: "query", requests: "queries", setting: "query.concurrency" };
const REMOTE_READ: ClassNames = ClassNames {
    metric: "remote_read",
    requests: "remote reads",
    setting: "storage.remote.read-concurrent-limit",
};
const SELECT: ClassNames =
    ClassNames { metric: "select", requests: "selects of other nodes", setting: "query.concurrency" };
const FEDERATE: ClassNames =
    ClassNames { metric: "federate", requests: "federations", setting: "query.concurrency" };
const CONTINUOUS: ClassNames =
    ClassNames { metric: "continuous", requests: "continuous queries", setting: "fixed" };
const REPAIRS: ClassNames =
    ClassNames { metric: "rule_repairs", requests: "repairs of rules", setting: "fixed" };
const BACKFILLS: ClassNames =
    ClassNames { metric: "rule_backfills", requests: "backfills of rules", setting: "fixed" };
const RULES: ClassNames = ClassNames { metric: "rules", requests: "batches of rules", setting: "fixed" };
const SELF_SCRAPE: ClassNames =
    ClassNames { metric: "self_scrape", requests: "self-scrapes", setting: "fixed" };
const STATUS: ClassNames =
    ClassNames { metric: "status", requests: "requests for metrics and status", setting: "fixed" };
const ADMIN: ClassNames = ClassNames { metric: "admin", requests: "admin requests", setting: "fixed" };

/// The classes of requests.
pub struct Admission {
    /// Writes, from the permit until they are durable.
    pub write: Class,
    /// The part of a write that needs a core: decoding and applying, not the wait for the disk. Runs little
    /// more often at once than there are cores, because a write that waits for a core after dozens of others
    /// takes long however cheap it is. A tenant whose writes fill its part of the queue of the WAL gets no
    /// permit, because a commit of others would wait until all of these bytes are on the disk.
    pub write_apply: Class,
    /// Queries of all languages.
    pub query: Class,
    /// Remote reads.
    pub remote_read: Class,
    /// Continuous queries: one runs at a time, and none waits for a permit.
    pub continuous: Class,
    /// Batches of rules. The scheduler starts no more rounds than there are permits, so none waits.
    pub rules: Class,
    /// Self-scrapes: one runs at a time.
    pub self_scrape: Class,
    /// Answers that are streamed to other servers.
    pub streams: StreamClasses,
    /// `/metrics` and the status of memory and storage.
    pub status: Class,
    /// The admin API and reloads.
    pub admin: Class,
    /// Memory of write requests.
    pub write_memory: TenantMemory,
    /// Memory of queries and remote reads.
    pub query_memory: TenantMemory,
    /// Repairs and backfills of rules, and the memory of all rules.
    pub rule_work: RuleWork,
    /// Threads that compress blocks of responses, at most one per core.
    pub compressors: QueryThreads,
    /// Weights of tenants, which all classes use.
    pub weights: Arc<Weights>,
}

/// Answers that are streamed to other servers.
pub struct StreamClasses {
    /// Answers to federation, until the client has them. Reading their samples takes a permit of queries too.
    pub federate: Class,
    /// Selects of other nodes, whose queries have permits there. A node that asks itself takes no permit of
    /// queries twice.
    pub select: Class,
}

/// Repairs and backfills of recording rules, and the memory of all rules.
pub struct RuleWork {
    /// Repairs, one at a time.
    pub repairs: Class,
    /// Backfills, which hold their permit from begin to end. None waits for one.
    pub backfills: Class,
    /// Memory of rules: neither takes queries theirs, nor the other way round.
    pub memory: TenantMemory,
}

/// One class: its queue, and the permits of a tenant without a limit of its own.
pub struct Class {
    /// As metrics name it.
    pub name: &'static str,
    /// Permits, and requests that wait for one.
    pub queue: Arc<FairQueue>,
    tenant_permits: TenantPart,
    /// Bytes in the queue of the WAL.
    tenant_uncommitted: TenantPart,
    weights: Arc<Weights>,
}

impl Class {
    /// Permits and weight of `tenant`. `limit` is the tenant's own limit, 0 = the part of its weight.
    pub fn share_of(&self, tenant: &TenantId, limit: usize) -> TenantShare {
        let weight = self.weights.of(tenant);
        let part = || self.tenant_permits.of_weight(weight).min(self.queue.permit_count() as u64) as usize;
        let permit_count = if limit == 0 { part() } else { limit };
        let uncommitted_bytes_max = self.tenant_uncommitted.of_weight(weight);
        TenantShare { permit_count, weight, uncommitted_bytes_max }
    }

    /// Bytes of `tenant` in the queue of the WAL from which on no further request runs; `None` = no limit.
    pub fn uncommitted_limit_of(&self, tenant: &TenantId) -> Option<u64> {
        let limit_bytes = self.tenant_uncommitted.of_weight(self.weights.of(tenant));
        (limit_bytes < u64::MAX).then_some(limit_bytes)
    }

    /// Returns a permit of `tenant` if one is free; it never waits.
    #[must_use]
    pub fn try_acquire(&self, tenant: &TenantId, limit: usize) -> Option<Permit> {
        self.queue.try_acquire(tenant, self.share_of(tenant, limit))
    }

    /// Waits for a permit of the tenant of `caller`, at most `timeout`. `limit` is the tenant's own limit, 0
    /// stands for the part of its weight.
    pub async fn acquire<'a>(
        &self,
        caller: impl Into<Caller<'a>>,
        limit: usize,
        timeout: Duration,
    ) -> Result<Permit, AdmissionError> {
        let caller = caller.into();
        self.queue.acquire(caller, self.share_of(caller.tenant, limit), timeout).await
    }
}

impl StreamClasses {
    fn new(class: impl Fn(ClassNames) -> Class) -> StreamClasses {
        StreamClasses { federate: class(FEDERATE), select: class(SELECT) }
    }
}

impl Admission {
    /// Classes with the permits and the memory that the options set.
    pub fn new(options: &ServiceOptions, clock: &Arc<dyn Clock>) -> Admission {
        let weights = Arc::new(Weights::new(&options.tsdb.limits));
        // `share` permits at the default weight, never more than `most`.
        let part = |share: usize, most: usize| match options.multitenancy {
            true => TenantPart::new(share.max(1) as u64, 1, most.max(1) as u64),
            false => TenantPart::fixed(u64::MAX),
        };
        let class = |names: ClassNames, permits: usize, queue_factor: usize, share: usize| Class {
            name: names.metric,
            queue: FairQueue::new(
                QueueOptions {
                    paused_bytes_max: options.query.memory_total_bytes_max / PAUSED_MEMORY_DIVISOR,
                    ..names.queue_options(permits, permits * queue_factor)
                },
                clock.clone(),
            ),
            tenant_permits: part(share, permits),
            tenant_uncommitted: TenantPart::fixed(u64::MAX),
            weights: weights.clone(),
        };
        let share = |permits: usize| permits.div_ceil(TENANT_SHARE_DIVISOR);
        let query = &options.query;
        let write = &options.write;
        let remote_read = options.remote_read.concurrency;
        let cores = thread::core_count();
        let rule_permits = cores.max(RULE_CONCURRENCY_MIN);
        let rule_memory_max = (query.memory_total_bytes_max / 2).max(query.memory_bytes_max);
        // More queries of a tenant at once would not end sooner, and everything else would wait for their
        // time slices.
        let query_share = share(query.concurrency).min(cores.div_ceil(2));
        let streamed = |names| class(names, query.concurrency, QUERY_QUEUE_FACTOR, share(query.concurrency));
        let share_of_memory = |total, request_max| memory_part(options.multitenancy, total, request_max);
        let write_request_max =
            write.compressed_bytes_max as u64 + write.decompressed_bytes_max as u64 * WRITE_DECODED_FACTOR;
        Admission {
            compressors: QueryThreads::bounded("compress", cores),
            write: class(WRITE, write.concurrency, WRITE_QUEUE_FACTOR, share(write.concurrency)),
            // Waiting writes hold a permit of `write`, which bounds their number.
            write_apply: Class {
                // One is left for other tenants, whatever the weight.
                tenant_permits: part(cores, cores),
                tenant_uncommitted: wal_queue_part(options.multitenancy),
                ..class(WRITE_APPLY, cores + 1, write.concurrency, cores)
            },
            query: class(QUERY, query.concurrency, QUERY_QUEUE_FACTOR, query_share),
            remote_read: class(REMOTE_READ, remote_read, REMOTE_READ_QUEUE_FACTOR, share(remote_read)),
            streams: StreamClasses::new(streamed),
            continuous: class(CONTINUOUS, 1, 0, 1),
            rules: class(RULES, rule_permits, 0, share(rule_permits)),
            self_scrape: class(SELF_SCRAPE, 1, 0, 1),
            // Asked by monitoring, for no tenant.
            status: class(STATUS, STATUS_CONCURRENCY, STATUS_QUEUE_FACTOR, STATUS_CONCURRENCY),
            admin: class(ADMIN, ADMIN_CONCURRENCY, ADMIN_QUEUE_FACTOR, ADMIN_CONCURRENCY / 2),
            write_memory: TenantMemory::new(
                MemoryBudget::new("write", write.memory_bytes_max),
                "writes of the tenant",
                share_of_memory(write.memory_bytes_max, write_request_max),
                weights.clone(),
            ),
            query_memory: TenantMemory::new(
                MemoryBudget::new("queries", query.memory_total_bytes_max),
                "queries of the tenant",
                share_of_memory(query.memory_total_bytes_max, query.memory_bytes_max),
                weights.clone(),
            ),
            rule_work: RuleWork {
                repairs: class(REPAIRS, 1, 0, 1),
                backfills: class(BACKFILLS, RULE_BACKFILLS_MAX, 0, RULE_BACKFILLS_MAX),
                memory: TenantMemory::new(
                    MemoryBudget::new("rules", rule_memory_max),
                    "rules of the tenant",
                    share_of_memory(rule_memory_max, query.memory_bytes_max),
                    weights.clone(),
                ),
            },
            weights,
        }
    }

    /// Memory of the requests of a class that reads.
    pub fn memory_of(&self, class: &Class) -> &TenantMemory {
        if [RULES.metric, REPAIRS.metric, BACKFILLS.metric].contains(&class.name) {
            &self.rule_work.memory
        } else {
            &self.query_memory
        }
    }

    /// All classes, for metrics.
    pub fn classes(&self) -> [&Class; 13] {
        [
            &self.write,
            &self.write_apply,
            &self.query,
            &self.remote_read,
            &self.streams.select,
            &self.continuous,
            &self.rules,
            &self.rule_work.repairs,
            &self.rule_work.backfills,
            &self.self_scrape,
            &self.streams.federate,
            &self.status,
            &self.admin,
        ]
    }
}

/// Memory of the requests of a tenant, of which one of the largest size always fits.
fn memory_part(multitenancy: bool, total: u64, request_max: u64) -> TenantPart {
    if !multitenancy {
        return TenantPart::fixed(u64::MAX);
    }
    let share = (total / TENANT_SHARE_DIVISOR as u64).max(request_max);
    TenantPart::new(share, request_max, total.max(share))
}

/// Bytes of a tenant in the queue of the WAL.
fn wal_queue_part(multitenancy: bool) -> TenantPart {
    if !multitenancy {
        return TenantPart::fixed(u64::MAX);
    }
    let default = WAL_QUEUE_BYTES_MAX / TENANT_SHARE_DIVISOR as u64;
    TenantPart::new(default, TENANT_WAL_QUEUE_BYTES_MIN, WAL_QUEUE_BYTES_MAX)
}

/// Memory of a decoded batch, in decompressed bytes: the bytes themselves and the columns.
pub const WRITE_DECODED_FACTOR: u64 = 2;
