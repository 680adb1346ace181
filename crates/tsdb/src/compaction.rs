//! Merges blocks in the background, one step at a time.
//!
//! Holds: merged blocks are complete and durable before they take the place of their inputs, in one change of
//! the list; the inputs' files go after that. A crash in between leaves both, and the blocks that name the
//! others as their parents hide them at the next start (`load`). So no sample is ever missing or seen twice.
//! Inputs whose files cannot be removed keep their tenant waiting: a merged block is not merged again, and so
//! does not vanish, while files that only it hides are there.
//! Not here: what is merged next (`plan`), merging (`block::compact`), when a round runs (`upkeep`).

mod pace;
mod plan;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use chronolith_base::Clock;
use chronolith_block::{Block, BlockEntry, CompactError, MergeRules, open_error};
use chronolith_format::block::meta::Ulid;
use chronolith_model::time::TIME_MIN_MS;
use chronolith_model::{TenantId, TimeRange};

use crate::metric::Metric;
use crate::store::{Tsdb, WINDOW_MS};
use crate::tenant::TenantBlocks;
use pace::MergePace;
pub(crate) use pace::Urgency;
use plan::{Candidate, PlanBounds, plan};

/// A block is rewritten without what is deleted once more than this part of its series have lost samples.
const TOMBSTONE_PART: u64 = 20;
/// With nothing to do the next look comes after this time.
const LOOK_EVERY_MS: i64 = 10_000;
/// Steps of a tenant that one look plans: a tenant with many blocks is not looked through for each.
const STEPS_PLANNED_MAX: usize = 32;
/// Small steps that one round takes: at most so many, until it has taken so long or read so much.
const STEPS_PER_ROUND_MAX: usize = 64;
const ROUND_NS: u64 = 250_000_000;
const ROUND_BYTES: u64 = 1 << 20;
/// A step that only joins neighbours in time reads at most this many times the size of an output.
const INPUT_PART: u64 = 4;
/// After the first failure in a row the next try waits this long, then twice as long each time.
const RETRY_FIRST_MS: i64 = 10_000;
const RETRY_LAST_MS: i64 = 3_600_000;

/// What happened since the start, and whether to stop.
#[derive(Default)]
pub(crate) struct CompactionState {
    pub(crate) stop: AtomicBool,
    pub(crate) paused: AtomicBool,
    /// Requests of operators that wait for background work to give way.
    pub(crate) waiting: AtomicU64,
    /// Time that merges have waited to keep to their pace.
    throttled_ns: AtomicU64,
    /// Bytes of the inputs of the step at work; 0 when there is none.
    step_bytes: AtomicU64,
    /// Bytes that this step has read and written so far.
    moved_bytes: AtomicU64,
    runs: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    failures: AtomicU64,
    refused: AtomicU64,
    space_skips: AtomicU64,
}

impl CompactionState {
    /// How fast a merge that begins now may go.
    fn pace<'a>(&'a self, clock: &'a dyn Clock, bytes_per_second: u64, urgency: Urgency) -> MergePace<'a> {
        MergePace::new(clock, bytes_per_second, urgency, self)
    }

    pub(crate) fn metrics(&self) -> [Metric; 10] {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let (gauge, counter) = (Metric::gauge, Metric::counter);
        let paused = f64::from(u8::from(self.paused.load(Ordering::Relaxed)));
        [
            counter("compaction_runs_total", "Compactions completed.", load(&self.runs)),
            counter("compaction_read_bytes_total", "Bytes read by compaction.", load(&self.read_bytes)),
            counter(
                "compaction_written_bytes_total",
                "Bytes written by compaction.",
                load(&self.written_bytes),
            ),
            counter("compaction_failures_total", "Compactions that failed.", load(&self.failures)),
            counter(
                "compaction_refused_total",
                "Compactions refused because of their inputs, which stay as they are.",
                load(&self.refused),
            ),
            counter(
                "compaction_space_skips_total",
                "Compactions put off for lack of disk space.",
                load(&self.space_skips),
            ),
            counter(
                "compaction_throttled_seconds_total",
                "Time that compaction waited because of compaction-rate.",
                load(&self.throttled_ns) / 1e9,
            ),
            gauge(
                "compaction_step_bytes",
                "Size of the blocks of the running compaction.",
                load(&self.step_bytes),
            ),
            gauge(
                "compaction_step_moved_bytes",
                "Bytes that the running compaction has read and written.",
                load(&self.moved_bytes),
            ),
            gauge("compaction_paused", "1 if compaction is paused by the admin API.", paused),
        ]
    }
}

/// A list of blocks as it was: each change of the list makes another one.
type BlocksThen = Weak<Vec<Arc<BlockEntry>>>;

/// What one round leaves for the next.
#[derive(Default)]
pub(crate) struct CompactionRounds {
    due_ms: i64,
    retry_ms: i64,
    /// Blocks that cannot be merged; tried again after a restart, which may be a version that can.
    left_alone: BTreeSet<Ulid>,
    /// Whose turn it was: the tenants behind it come first.
    last_tenant: Option<TenantId>,
    /// Steps of that tenant that are planned and not taken: they touch neither each other nor blocks that
    /// came since.
    planned: VecDeque<Vec<Arc<BlockEntry>>>,
    /// Tenants whose blocks are as they should be: their list then, and what it was planned by.
    settled: BTreeMap<TenantId, (BlocksThen, PlanBounds)>,
}

impl CompactionRounds {
    fn is_due(&self, now_ms: i64) -> bool {
        // A clock that was set back must not make it wait for long.
        now_ms >= self.due_ms || self.due_ms > now_ms.saturating_add(RETRY_LAST_MS)
    }

    fn back_off(&mut self, now_ms: i64) {
        self.retry_ms = self.retry_ms.saturating_mul(2).clamp(RETRY_FIRST_MS, RETRY_LAST_MS);
        self.due_ms = now_ms.saturating_add(self.retry_ms);
    }
}

/// Blocks of one tenant that are merged in one step.
pub(crate) struct Step {
    pub(crate) tenant: TenantId,
    pub(crate) blocks: Arc<TenantBlocks>,
    /// By precedence.
    pub(crate) inputs: Vec<Arc<BlockEntry>>,
}

impl Step {
    fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|block| block.size_bytes()).sum()
    }

    fn ulids(&self) -> Vec<Ulid> {
        self.inputs.iter().map(|block| block.ulid()).collect()
    }
}

impl Tsdb {
    /// Steps of merging, if they are due: one, or several small ones.
    pub(crate) fn compact_due(&self, rounds: &mut CompactionRounds, now_ms: i64) {
        let started_ns = self.env.clock.mono_ns();
        let read_before = self.compaction.read_bytes.load(Ordering::Relaxed);
        for _ in 0..STEPS_PER_ROUND_MAX {
            let runs_before = self.compaction.runs.load(Ordering::Relaxed);
            self.compact_next(rounds, now_ms);
            let is_idle = self.compaction.runs.load(Ordering::Relaxed) == runs_before;
            let read_bytes = self.compaction.read_bytes.load(Ordering::Relaxed) - read_before;
            let has_waiter = self.compaction.waiting.load(Ordering::SeqCst) > 0;
            let is_late = self.env.clock.mono_ns() - started_ns > ROUND_NS;
            if read_bytes > ROUND_BYTES {
                // It is the next tenant's turn.
                rounds.planned.clear();
            }
            if is_idle || is_late || has_waiter || read_bytes > ROUND_BYTES {
                return;
            }
        }
    }

    fn compact_next(&self, rounds: &mut CompactionRounds, now_ms: i64) {
        let is_paused = self.compaction.paused.load(Ordering::Relaxed);
        if self.options.compaction_bytes_max == 0 || is_paused || !rounds.is_due(now_ms) {
            return;
        }
        rounds.due_ms = now_ms.saturating_add(LOOK_EVERY_MS);
        let Some(step) = self.next_step(rounds, now_ms) else { return };
        rounds.last_tenant = Some(step.tenant.clone());
        if !self.has_room_for(&step) {
            self.compaction.space_skips.fetch_add(1, Ordering::Relaxed);
            rounds.back_off(now_ms);
            return;
        }
        match self.compact_step(&step, Urgency::Background) {
            Ok(()) => (rounds.due_ms, rounds.retry_ms) = (now_ms, 0),
            Err(CompactError::Stopped) => {}
            Err(error @ (CompactError::Write(_) | CompactError::LeftBehind { .. })) => {
                self.count_failure(&step.tenant, &error);
                rounds.back_off(now_ms);
                if let CompactError::LeftBehind { dirs, .. } = error {
                    step.blocks.doom(dirs);
                }
            }
            Err(error @ CompactError::Read(_)) => {
                self.compaction.refused.fetch_add(1, Ordering::Relaxed);
                self.count_failure(&step.tenant, &error);
                // Of a block that cannot be opened it is known which it is.
                let damaged: Vec<_> =
                    step.inputs.iter().filter(|e| e.is_damaged()).map(|e| e.ulid()).collect();
                rounds.left_alone.extend(if damaged.is_empty() { step.ulids() } else { damaged });
                rounds.planned.clear();
                rounds.due_ms = now_ms;
            }
        }
    }

    fn count_failure(&self, tenant: &TenantId, error: &CompactError) {
        self.compaction.failures.fetch_add(1, Ordering::Relaxed);
        self.count_upkeep_error();
        tracing::error!(%tenant, %error, "merging blocks failed; they are kept as they are");
    }

    fn next_step(&self, rounds: &mut CompactionRounds, now_ms: i64) -> Option<Step> {
        let all: Vec<_> = self.tenants.read().iter().map(|(t, b)| (t.clone(), b.clone())).collect();
        let turn = all.partition_point(|(t, _)| rounds.last_tenant.as_ref().is_some_and(|last| t <= last));
        let due_ms = now_ms.saturating_sub(self.options.flush_delay_ms);
        let limits = self.limits();
        let bounds_of = |tenant: &TenantId| PlanBounds {
            closed_ms: TimeRange::window_of(due_ms.max(TIME_MIN_MS), WINDOW_MS).start,
            retention_ms: limits.of(tenant).retention_ms,
            input_bytes_max: self.options.compaction_bytes_max.saturating_mul(INPUT_PART),
        };
        if let Some(step) = self.planned_step(rounds) {
            return Some(step);
        }
        let (mut found, mut stuck) = (None, false);
        for (tenant, blocks) in all.iter().skip(turn).chain(all.iter().take(turn)) {
            if let Err(error) = blocks.remove_doomed(&self.blocks) {
                self.count_failure(tenant, &error.into());
                stuck = true;
                continue;
            }
            let (list, bounds) = (blocks.list(), bounds_of(tenant));
            let settled = rounds.settled.get(tenant);
            if settled
                .is_some_and(|(then, by)| std::ptr::eq(then.as_ptr(), Arc::as_ptr(&list)) && *by == bounds)
            {
                continue;
            }
            let candidates: Vec<_> = list.iter().map(|entry| candidate(entry, &rounds.left_alone)).collect();
            let by_ulid: BTreeMap<Ulid, &Arc<BlockEntry>> = list.iter().map(|e| (e.ulid(), e)).collect();
            let entries =
                |ulids: Vec<Ulid>| ulids.iter().filter_map(|u| by_ulid.get(u).copied().cloned()).collect();
            rounds.planned = plan(&candidates, &bounds, STEPS_PLANNED_MAX).into_iter().map(entries).collect();
            if rounds.planned.is_empty() {
                rounds.settled.insert(tenant.clone(), (Arc::downgrade(&list), bounds));
                continue;
            }
            rounds.settled.remove(tenant);
            rounds.last_tenant = Some(tenant.clone());
            found = self.planned_step(rounds);
            if found.is_some() {
                break;
            }
        }
        if found.is_none() {
            let tenants = self.tenants.read();
            rounds.settled.retain(|tenant, _| tenants.contains_key(tenant));
        }
        if found.is_none() && stuck {
            rounds.back_off(now_ms);
        } else if found.is_none() && !rounds.left_alone.is_empty() {
            let lists: Vec<_> = all.iter().map(|(_, blocks)| blocks.list()).collect();
            let present: BTreeSet<Ulid> =
                lists.iter().flat_map(|list| list.iter()).map(|entry| entry.ulid()).collect();
            rounds.left_alone.retain(|ulid| present.contains(ulid));
        }
        found
    }

    /// The next planned step whose blocks are all there: retention and deletions change lists between steps.
    fn planned_step(&self, rounds: &mut CompactionRounds) -> Option<Step> {
        let tenant = rounds.last_tenant.clone()?;
        let blocks = self.tenants.read().get(&tenant).cloned()?;
        while let Some(mut inputs) = rounds.planned.pop_front() {
            if inputs.iter().all(|entry| blocks.has(entry)) {
                inputs.sort_by_key(|entry| entry.precedence());
                return Some(Step { tenant, blocks, inputs });
            }
        }
        None
    }

    /// Whether the output fits beside the inputs and leaves what writes need.
    pub(crate) fn has_room_for(&self, step: &Step) -> bool {
        let reserve = self.options.free_bytes_min.saturating_add(self.options.wal_segment_bytes);
        let needed = step.input_bytes().saturating_add(reserve);
        match self.env.disk.free_bytes(&step.blocks.dir) {
            Some(free) if free < needed => {
                tracing::warn!(tenant = %step.tenant, free, needed, "blocks are not merged: too little free space");
                false
            }
            _ => true,
        }
    }

    pub(crate) fn compact_step(&self, step: &Step, urgency: Urgency) -> Result<(), CompactError> {
        let Step { tenant, blocks, inputs } = step;
        let (started, read_bytes) = (self.env.clock.mono_ns(), step.input_bytes());
        tracing::info!(%tenant, blocks = inputs.len(), read_bytes, "merging blocks");
        let previous = blocks.newest_ulid();
        let pace = self.compaction.pace(&*self.env.clock, self.options.compaction_bytes_per_second, urgency);
        let limits = self.limits_of(tenant);
        let rules = MergeRules {
            encoding: limits.block_encoding,
            duplicates: limits.duplicates,
            output_bytes_max: self.options.compaction_bytes_max.max(1),
        };
        self.compaction.moved_bytes.store(0, Ordering::Relaxed);
        self.compaction.step_bytes.store(read_bytes, Ordering::Relaxed);
        let merged = self.open_inputs(step).and_then(|opened| {
            chronolith_block::compact(&self.env, &blocks.dir, previous, &opened, rules, &pace)
        });
        self.compaction.step_bytes.store(0, Ordering::Relaxed);
        let outputs = merged?;
        let written_bytes = outputs.iter().map(|block| block.size_bytes()).sum();
        for block in &outputs {
            let ms = (self.env.clock.mono_ns() - started) / 1_000_000;
            let (meta, range) = (block.meta(), block.range());
            tracing::info!(%tenant, ulid = %meta.ulid, level = meta.compaction.level, range.start, range.end,
                series = meta.stats.num_series, samples = meta.stats.num_samples, written_bytes, ms, "blocks merged");
        }
        let outputs = outputs.iter().map(|block| BlockEntry::new(block.record())).collect();
        blocks.replace(&self.blocks, inputs, outputs);
        self.compaction.runs.fetch_add(1, Ordering::Relaxed);
        self.compaction.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        self.compaction.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
        blocks.doom(inputs.iter().map(|entry| blocks.block_dir(entry.ulid())));
        // The output stands: what cannot be removed is tried again before this tenant's next step.
        if let Err(error) = blocks.remove_doomed(&self.blocks) {
            self.count_failure(tenant, &error.into());
        }
        Ok(())
    }

    /// Opens the inputs of a step; damage of one is as damage that is met while it is read.
    fn open_inputs(&self, step: &Step) -> Result<Vec<Arc<Block>>, CompactError> {
        let open = |entry| {
            self.blocks.open(&step.blocks, entry).map_err(|error| {
                if error.is_damage() {
                    CompactError::Read(open_error(error))
                } else {
                    CompactError::Write(error)
                }
            })
        };
        step.inputs.iter().map(open).collect()
    }
}

fn candidate(entry: &BlockEntry, left_alone: &BTreeSet<Ulid>) -> Candidate {
    let record = entry.record();
    Candidate {
        ulid: record.ulid,
        precedence: entry.precedence(),
        range: entry.range(),
        size_bytes: record.size_bytes,
        split_set: record.split_set,
        is_riddled: record.tombstone_count * TOMBSTONE_PART > record.series_count,
        left_alone: record.compaction_failed || left_alone.contains(&record.ulid),
    }
}
