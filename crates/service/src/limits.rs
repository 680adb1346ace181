//! Limits that are not settings: permits, queues and waits that protect the process from its callers.

use std::time::Duration;

/// Remote reads that wait for a permit, per permit.
pub const REMOTE_READ_QUEUE_FACTOR: usize = 64;
/// Requests for `/metrics` and for the status of memory and storage that are answered at once. Each takes
/// milliseconds.
pub const STATUS_CONCURRENCY: usize = 4;
/// Status requests that wait for a permit, per permit.
pub const STATUS_QUEUE_FACTOR: usize = 64;
/// Longest wait of a status request for a permit.
pub const STATUS_QUEUE_WAIT: Duration = Duration::from_secs(10);
/// Requests of the admin API and reloads that run at once.
pub const ADMIN_CONCURRENCY: usize = 2;
/// Admin requests that wait for a permit, per permit.
pub const ADMIN_QUEUE_FACTOR: usize = 32;
/// Longest wait of an admin request for a permit: a snapshot may take minutes.
pub const ADMIN_QUEUE_WAIT: Duration = Duration::from_secs(600);
/// Rounds of rules that run at the same time on a machine with fewer cores.
pub const RULE_CONCURRENCY_MIN: usize = 2;
/// Shortest time limit of a round; otherwise a round may take as long as the interval of its group.
pub const RULE_ROUND_TIME_MIN_MS: i64 = 10_000;
/// Backfills of rules that run at the same time.
pub const RULE_BACKFILLS_MAX: usize = 2;
/// Evaluations of a backfill: rounds of each rule.
pub const RULE_BACKFILL_ROUNDS_MAX: u64 = 200_000_000;
/// Longest run of a backfill; the next one goes on.
pub const RULE_BACKFILL_TIME_MAX_MS: u64 = 24 * 3_600_000;
/// Rule files that patterns may match.
pub const RULE_FILES_MAX: usize = 10_000;
/// Writes that wait for a permit, per permit.
pub const WRITE_QUEUE_FACTOR: usize = 16;
/// Queries that wait for a permit, per permit. Waiting costs a kilobyte; clients that are refused and ask
/// again at once cost a core.
pub const QUERY_QUEUE_FACTOR: usize = 64;
/// Time for which a query of a tenant of the default weight keeps its permit while others wait for one.
pub const QUERY_SLICE_NS: u64 = 10_000_000;
/// Queries that are paused at a time, per permit. Each has a thread and memory.
pub const PAUSED_QUERY_FACTOR: usize = 4;
/// Paused queries hold at most this part of the memory of queries.
pub const PAUSED_MEMORY_DIVISOR: u64 = 2;
/// A query with a longer text is not taken for a small one.
pub const SMALL_QUERY_BYTES_MAX: usize = 2 << 10;
/// Longest run of a query on the async worker that read it.
pub const SMALL_QUERY_SLICE_NS: u64 = 500_000;
/// Texts of queries that are remembered because they took longer.
pub const SMALL_QUERY_MEMORY_COUNT: usize = 1024;
/// Tenants whose memory budget is remembered while they have no requests.
pub const TENANT_BUDGETS_IDLE_MAX: usize = 4096;
/// With multi-tenancy a tenant of the default weight has this part of the permits and the memory of each
/// class.
pub const TENANT_SHARE_DIVISOR: usize = 4;
/// Bytes in the queue of the WAL that tenants share by weight; the queue is written first if it has more.
/// With multi-tenancy a tenant of the default weight has its part of them, as of permits.
pub const WAL_QUEUE_BYTES_MAX: u64 = 64 << 20;
/// Least part of a tenant, whatever its weight.
pub const TENANT_WAL_QUEUE_BYTES_MIN: u64 = 1 << 20;
/// Results of range queries that are kept, whatever their size.
pub const RANGE_CACHE_ENTRIES_MAX: usize = 4096;
/// Longest wait of a write for its permits.
pub const WRITE_QUEUE_WAIT: Duration = Duration::from_secs(20);
/// Empty batches kept for the next requests.
pub const BATCH_POOL_COUNT_MAX: usize = 16;
/// Memory of a batch beyond which it is not kept.
pub const BATCH_POOL_BYTES_MAX: usize = 8 << 20;
/// Stack of worker threads: deep queries recurse.
pub const THREAD_STACK_BYTES: usize = 32 << 20;
/// Threads that work for carbon connections at the same time.
pub const CARBON_THREADS_MAX: usize = 32;
/// Longest text of a query or a selector.
pub const QUERY_BYTES_MAX: usize = 256 << 10;
