//! Retention job: expired blocks of one tenant leave its list of blocks, by age and then by total size;
//! blocks of Graphite stores by the schemas of their series.
//!
//! Invariants: age is measured by a clock that does not follow jumps (`clock_guard`); by size, every block
//! older than the first one beyond the limit goes. Files are removed by a later job, after the files of
//! blocks that an expired block was compacted from: without it, a start would take those for complete.
//! Not here: removal of files (`block_removal`).

mod by_schema;
mod clock_file;
mod clock_guard;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_block::BlockEntry;
use chronolith_format::store_name;
use chronolith_model::StoreId;

use super::counters::RetentionCounters;
use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;
use crate::schema_retention::SchemaRetentions;
use crate::storage::Storage;
use by_schema::expired_by_schema;
pub(crate) use clock_file::GuardedClock;

/// Runs retention jobs.
pub(super) struct RetentionJobs {
    clock: GuardedClock,
    /// Expired blocks of the queued jobs.
    expired: BTreeMap<StoreId, Vec<Arc<BlockEntry>>>,
    by_schema: SchemaRetentions,
}

impl RetentionJobs {
    pub(super) fn new(clock: GuardedClock) -> RetentionJobs {
        RetentionJobs { clock, expired: BTreeMap::new(), by_schema: SchemaRetentions::default() }
    }

    /// Compares the wall clock with the monotonic one; called with every run.
    pub(super) fn observe_clock(&mut self, cx: &JobContext<'_>) {
        if let Err(error) = self.clock.observe(cx.storage.env(), cx.now_ms, &cx.counters.retention) {
            cx.counters.errors.increment();
            tracing::error!(%error, "writing the retention clock failed, retrying later");
        }
        cx.counters.retention.trusted_ms.set(self.clock.time_ms().cast_unsigned());
        if let Some(uploads) = cx.storage.uploads() {
            uploads.set_retention_now(self.clock.time_ms());
        }
    }

    pub(super) fn clock(&self) -> &GuardedClock {
        &self.clock
    }

    /// Returns the expired blocks by tenant. Cost: a pass over all blocks, sorted by time.
    fn find_expired(
        &self,
        storage: &Storage,
        now_ms: i64,
        counters: &RetentionCounters,
    ) -> BTreeMap<StoreId, Vec<Arc<BlockEntry>>> {
        let limits = storage.limits();
        let bytes_max = storage.options().retention.bytes_max;
        let mut held_count = 0;
        let mut expired: BTreeMap<StoreId, Vec<Arc<BlockEntry>>> = BTreeMap::new();
        let has_retention = bytes_max > 0
            || limits.default.retention_ms > 0
            || limits.by_tenant.values().any(|limits| limits.retention_ms > 0)
            || storage.databases().has_retention();
        let tenants = if has_retention { storage.blocks().all() } else { Vec::new() };
        let lists: Vec<_> = tenants.iter().map(|(tenant, blocks)| (tenant, blocks.list())).collect();
        let mut all: Vec<(&StoreId, &Arc<BlockEntry>)> =
            lists.iter().flat_map(|(tenant, list)| list.iter().map(|block| (*tenant, block))).collect();
        all.sort_by_key(|(tenant, block)| Reverse(end_ms(tenant, block)));
        let retentions_ms: BTreeMap<&StoreId, i64> =
            tenants.iter().map(|(tenant, _)| (tenant, storage.limits_of(tenant).retention_ms)).collect();
        let oldest_ms = |tenant: &StoreId, time_ms: i64| match retentions_ms.get(tenant) {
            None | Some(0) => i64::MIN,
            Some(retention_ms) => time_ms.saturating_sub(*retention_ms),
        };
        let (mut kept_bytes, mut is_full) = (0u64, false);
        for (tenant, block) in all {
            let is_too_old = end_ms(tenant, block) <= oldest_ms(tenant, self.clock.time_ms());
            is_full |= bytes_max > 0 && kept_bytes.saturating_add(block.size_bytes()) > bytes_max;
            if is_too_old || is_full {
                expired.entry(tenant.clone()).or_default().push(block.clone());
            } else {
                kept_bytes = kept_bytes.saturating_add(block.size_bytes());
                held_count += u64::from(end_ms(tenant, block) <= oldest_ms(tenant, now_ms));
            }
        }
        counters.held_blocks.set(held_count);
        expired
    }

    fn remove(&mut self, cx: &JobContext<'_>, tenant: &StoreId) {
        let store = cx.storage.blocks();
        let Some(blocks) = store.tenant(tenant) else { return };
        for block in self.expired.remove(tenant).unwrap_or_default() {
            if !blocks.has(&block) {
                continue;
            }
            let ulid = block.ulid();
            let end_ms = end_ms(tenant, &block);
            store.replace(&blocks, &[block], Vec::new());
            cx.storage.changes().note_removed(tenant, end_ms);
            if let Some(owner) = cx.storage.databases().owner_of(tenant) {
                cx.storage.changes().note_removed(&owner.into(), end_ms);
            }
            cx.counters.retention.removed_blocks.increment();
            tracing::info!(tenant = %store_name(tenant), %ulid, end_ms, "expired block removed by retention");
            store.schedule_removal(&blocks, [blocks.block_dir(ulid)]);
        }
        cx.add(Job::of_tenant(JobKind::BlockRemoval, tenant.clone(), cx.now_ms, 0));
    }
}

/// Returns the end of a block of `store`, rounded up to a millisecond.
fn end_ms(store: &StoreId, block: &BlockEntry) -> i64 {
    store.time_unit().to_ms_ceil(block.range().end)
}

impl JobRunner for RetentionJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        self.expired = self.find_expired(cx.storage, cx.now_ms, &cx.counters.retention);
        let time_ms = self.clock.time_ms();
        for (store, block) in expired_by_schema(&mut self.by_schema, cx.storage, time_ms) {
            let of_store = self.expired.entry(store).or_default();
            if !of_store.iter().any(|other| other.ulid() == block.ulid()) {
                of_store.push(block);
            }
        }
        let job = |(tenant, blocks): (&StoreId, &Vec<Arc<BlockEntry>>)| {
            let bytes = blocks.iter().map(|block| block.size_bytes()).sum();
            Job::of_tenant(JobKind::Retention, tenant.clone(), cx.now_ms, bytes)
        };
        Found::All(self.expired.iter().map(job).collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |job| {
            if let Some(tenant) = &job.key.tenant {
                self.remove(cx, tenant);
            }
            Outcome::Done
        })
    }
}
