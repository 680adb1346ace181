//! Compaction job: one step of a tenant, which replaces several blocks by one or by a set split by series.
//!
//! Invariants: a tenant is planned only when its blocks changed, when a window closed or when its retention
//! changed; a step whose blocks changed meanwhile is skipped. A tenant with files of earlier inputs that
//! cannot be removed waits: an output must not be compacted again, and so vanish, while files are there that
//! only it hides.
//! Not here: which blocks (`plan`), the replacement of blocks (`rewrite`), blocks with deletions
//! (`deletion`).

pub(crate) mod pace;
pub(crate) mod plan;
pub(crate) mod rewrite;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use chronolith_block::{BlockEntry, CompactError};
use chronolith_format::block::meta::Ulid;
use chronolith_model::time::TIME_MIN_MS;
use chronolith_model::{StoreId, TimeRange};

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;
use crate::blocks::tenant::TenantBlocks;
use crate::bucket::upload_state::BlockPlace;
use crate::storage::Storage;
use crate::window::WINDOW_MS;
use plan::{Candidate, PlanBounds, plan, with_deletions};
use rewrite::{BlockRewriter, Rewrite, Urgency};

/// A block is rewritten alone once more than one in this many of its series have deleted samples.
pub(crate) const TOMBSTONE_PART: u64 = 20;
/// Steps that are planned at once: a tenant with many blocks is not planned again for each step.
const STEPS_PLANNED_MAX: usize = 32;
/// A step that only joins adjacent blocks reads at most this many times the size of an output.
pub(crate) const INPUT_PART: u64 = 4;

/// Blocks of one step, by precedence.
type Step = Vec<Arc<BlockEntry>>;

/// Runs compaction jobs.
#[derive(Default)]
pub(super) struct CompactionJobs {
    /// Steps of the queued jobs. The steps of a tenant share no block.
    planned: BTreeMap<StoreId, VecDeque<Step>>,
    /// End of the last closed window at the last search.
    closed_ms: Option<i64>,
}

impl CompactionJobs {
    /// Plans the blocks of `store` and returns the job of the first step, or of a block with deletions.
    fn plan_tenant(&mut self, storage: &Storage, store: &StoreId, now_ms: i64) -> Option<Job> {
        self.planned.remove(store);
        let blocks = storage.blocks().tenant(store)?;
        let list = blocks.list();
        let mut candidates = candidates(storage, store, &list);
        let Some(others) = only_in_bucket(storage, store, &list) else {
            // Planned again with the next search.
            storage.blocks().mark_changed(store);
            return None;
        };
        candidates.extend(others);
        let bounds = plan_bounds(storage, store, now_ms);
        let by_ulid: BTreeMap<Ulid, &Arc<BlockEntry>> =
            list.iter().map(|entry| (entry.ulid(), entry)).collect();
        let entries = |ulids: Vec<Ulid>| -> Step {
            let step: Step =
                ulids.iter().filter_map(|ulid| by_ulid.get(ulid).map(|entry| Arc::clone(entry))).collect();
            // A block of a split set that stays would be read next to the output that has its samples.
            assert_eq!(step.len(), ulids.len(), "a plan names local blocks");
            step
        };
        let steps: VecDeque<Step> =
            plan(&candidates, &bounds, STEPS_PLANNED_MAX).into_iter().map(entries).collect();
        if steps.is_empty() {
            let ulid = with_deletions(&candidates, &bounds)?;
            let bytes = by_ulid.get(&ulid).map_or(0, |entry| entry.size_bytes());
            return Some(Job::of_tenant(JobKind::Deletion, store.clone(), now_ms, bytes));
        }
        let job = step_job(store, &steps, now_ms);
        self.planned.insert(store.clone(), steps);
        job
    }

    /// Returns the job of the next step of `store`, planned again if none is left.
    fn next_job(&mut self, storage: &Storage, store: &StoreId, now_ms: i64) -> Option<Job> {
        match self.planned.get(store) {
            Some(steps) if !steps.is_empty() => step_job(store, steps, now_ms),
            _ => self.plan_tenant(storage, store, now_ms),
        }
    }

    /// Takes the next planned step of `store` whose blocks are all in the list.
    fn take_step(&mut self, blocks: &TenantBlocks, store: &StoreId) -> Option<Step> {
        let steps = self.planned.get_mut(store)?;
        while let Some(mut step) = steps.pop_front() {
            if step.iter().all(|entry| blocks.has(entry)) {
                step.sort_by_key(|entry| entry.precedence());
                return Some(step);
            }
        }
        None
    }

    fn run_one(&mut self, cx: &JobContext<'_>, tenant: &StoreId) -> Outcome {
        let store = cx.storage.blocks();
        let Some(blocks) = store.tenant(tenant) else {
            self.planned.remove(tenant);
            return Outcome::Done;
        };
        let outcome = match self.take_step(&blocks, tenant) {
            None => Outcome::Done,
            Some(inputs) => {
                let step = Rewrite { tenant: tenant.clone(), blocks, inputs };
                let outcome = run_step(cx, &step);
                if matches!(outcome, Outcome::Interrupted | Outcome::Postponed | Outcome::Failed(_)) {
                    self.planned.entry(tenant.clone()).or_default().push_front(step.inputs);
                    return outcome;
                }
                outcome
            }
        };
        if matches!(outcome, Outcome::Abandoned(_)) {
            self.planned.remove(tenant);
        }
        if let Some(job) = self.next_job(cx.storage, tenant, cx.now_ms) {
            cx.add(job);
        }
        outcome
    }
}

impl JobRunner for CompactionJobs {
    /// Cost: a plan of each tenant whose blocks changed, or of all tenants after the end of a window.
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let mut changed = cx.storage.blocks().take_changed();
        if cx.storage.options().compaction.block_bytes_max == 0 {
            return Found::Some(Vec::new());
        }
        let closed_ms = closed_ms(cx.storage, cx.now_ms);
        if self.closed_ms.replace(closed_ms) != Some(closed_ms) {
            changed.extend(cx.storage.blocks().all().into_iter().map(|(tenant, _)| tenant));
        }
        let jobs = changed.iter().filter_map(|tenant| self.plan_tenant(cx.storage, tenant, cx.now_ms));
        Found::Some(jobs.collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |job| {
            job.key.tenant.as_ref().map_or(Outcome::Done, |tenant| self.run_one(cx, tenant))
        })
    }
}

/// Rewrites blocks within the limits of background work.
pub(super) fn run_step(cx: &JobContext<'_>, step: &Rewrite) -> Outcome {
    let counters = &cx.counters.compaction;
    let store = cx.storage.blocks();
    if let Err(error) = store.remove_files(&step.blocks) {
        counters.failures.increment();
        return Outcome::Failed(error.to_string());
    }
    let rewriter = BlockRewriter::new(cx.storage, cx.control, counters);
    if !rewriter.has_room_for(step) {
        counters.space_skips.increment();
        return Outcome::Postponed;
    }
    let Err(error) = rewriter.run(step, Urgency::Background) else { return Outcome::Done };
    if matches!(error, CompactError::Stopped) {
        return Outcome::Interrupted;
    }
    counters.failures.increment();
    if matches!(error, CompactError::Read(_)) {
        counters.refused.increment();
        // A block that cannot be opened is marked as damaged; damage that is found later is not.
        let damaged: Vec<Ulid> =
            step.inputs.iter().filter(|entry| entry.is_damaged()).map(|entry| entry.ulid()).collect();
        let all = || step.inputs.iter().map(|entry| entry.ulid()).collect();
        store.refuse_compaction(if damaged.is_empty() { all() } else { damaged });
        return Outcome::Abandoned(error.to_string());
    }
    Outcome::Failed(error.to_string())
}

/// Returns the block of `store` that is rewritten next because of its deletions. With a bucket, one whose
/// deletions are not there yet waits for its upload.
pub(super) fn next_with_deletions(
    storage: &Storage,
    blocks: &TenantBlocks,
    store: &StoreId,
    now_ms: i64,
) -> Option<Arc<BlockEntry>> {
    let list = blocks.list();
    let mut candidates = candidates(storage, store, &list);
    let is_waiting = |ulid: Ulid| {
        let entry = list.iter().find(|entry| entry.ulid() == ulid);
        entry.is_some_and(|entry| !storage.has_bucket_deletions(store, entry))
    };
    candidates.retain(|candidate| !is_waiting(candidate.ulid));
    let ulid = with_deletions(&candidates, &plan_bounds(storage, store, now_ms))?;
    list.iter().find(|entry| entry.ulid() == ulid).cloned()
}

fn step_job(store: &StoreId, steps: &VecDeque<Step>, now_ms: i64) -> Option<Job> {
    let bytes = steps.front()?.iter().map(|entry| entry.size_bytes()).sum();
    Some(Job::of_tenant(JobKind::Compaction, store.clone(), now_ms, bytes))
}

/// Returns the end of the last window that is flushed by now.
fn closed_ms(storage: &Storage, now_ms: i64) -> i64 {
    let flushed_ms = now_ms.saturating_sub(storage.options().flush.delay_ms);
    TimeRange::window_of(flushed_ms.max(TIME_MIN_MS), WINDOW_MS).start
}

fn plan_bounds(storage: &Storage, store: &StoreId, now_ms: i64) -> PlanBounds {
    PlanBounds {
        closed_ms: closed_ms(storage, now_ms),
        retention_ms: storage.limits_of(store).retention_ms,
        input_bytes_max: storage.options().compaction.block_bytes_max.saturating_mul(INPUT_PART),
    }
}

/// Blocks that only the bucket has and that overlap local ones of `list`: they may be between these in order
/// of precedence. `None` if they are not known.
fn only_in_bucket(storage: &Storage, store: &StoreId, list: &[Arc<BlockEntry>]) -> Option<Vec<Candidate>> {
    if list.len() < 2 {
        return Some(Vec::new());
    }
    let mut others = storage.places_in_bucket(store)?;
    let local: BTreeSet<Ulid> = list.iter().map(|entry| entry.ulid()).collect();
    others.retain(|place| {
        !local.contains(&place.ulid) && list.iter().any(|entry| entry.range().overlaps(place.range))
    });
    let candidate = |BlockPlace { ulid, precedence, range, split_set }: BlockPlace| {
        Candidate::excluded(ulid, precedence, store.time_unit().range_to_ms(range), split_set)
    };
    Some(others.into_iter().map(candidate).collect())
}

fn candidates(storage: &Storage, store: &StoreId, list: &[Arc<BlockEntry>]) -> Vec<Candidate> {
    let refused = storage.blocks().compaction_refused();
    let candidate = |entry: &Arc<BlockEntry>| {
        let record = entry.record();
        Candidate {
            ulid: record.ulid,
            precedence: entry.precedence(),
            range: store.time_unit().range_to_ms(entry.range()),
            size_bytes: record.size_bytes,
            split_set: record.split_set,
            has_many_deletions: record.tombstone_count * TOMBSTONE_PART > record.series_count,
            is_excluded: record.compaction_failed || refused.contains(&record.ulid),
        }
    };
    list.iter().map(candidate).collect()
}
