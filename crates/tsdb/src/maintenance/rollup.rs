//! Roll-up job: writes the roll-ups of one block of a Graphite store, next to its samples.
//!
//! Invariants: a block is rolled up once, by the rules of that time; one that replaces others has roll-ups of
//! its own, made of its samples. Queries read samples until then. Damaged roll-ups are written again.
//! Not here: windows and files (`block::rollup`), rules (`server`).

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_block::{Block, BlockEntry, CompactError};
use chronolith_format::block::meta::Ulid;
use chronolith_format::store_name;
use chronolith_model::StoreId;
use chronolith_model::rollup::RollupRules;

use super::compaction::pace::{RewritePace, Urgency};
use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;
use crate::blocks::tenant::TenantBlocks;
use crate::storage::Storage;

/// Runs roll-up jobs.
#[derive(Default)]
pub(super) struct RollupJobs {
    /// Blocks whose samples cannot be read.
    refused: BTreeSet<Ulid>,
}

impl RollupJobs {
    /// Returns the next block of a store without roll-ups, or with damaged ones.
    fn next(&self, storage: &Storage, blocks: &TenantBlocks) -> Option<Arc<BlockEntry>> {
        let list = blocks.list();
        let is_wanted = |entry: &&Arc<BlockEntry>| {
            let is_rolled_up = entry.is_rolled_up().unwrap_or_else(|| {
                let found = chronolith_block::has_rollups(storage.env(), &blocks.block_dir(entry.ulid()));
                entry.note_rolled_up(found);
                found
            });
            (!is_rolled_up || entry.has_damaged_rollups()) && !self.refused.contains(&entry.ulid())
        };
        list.iter().find(is_wanted).cloned()
    }

    fn job(&self, cx: &JobContext<'_>, store: &StoreId) -> Option<Job> {
        let blocks = cx.storage.blocks().tenant(store)?;
        let entry = self.next(cx.storage, &blocks)?;
        Some(Job::of_tenant(JobKind::Rollup, store.clone(), cx.now_ms, entry.size_bytes()))
    }

    fn run_one(&mut self, cx: &JobContext<'_>, store: &StoreId) -> Outcome {
        let Some(rules) = cx.storage.rollup_rules() else { return Outcome::Done };
        let Some(blocks) = cx.storage.blocks().tenant(store) else { return Outcome::Done };
        let Some(entry) = self.next(cx.storage, &blocks) else { return Outcome::Done };
        let outcome = match roll_up(cx, &blocks, &entry, &*rules) {
            Ok(()) => Outcome::Done,
            Err(CompactError::Stopped) => return Outcome::Interrupted,
            Err(CompactError::Read(error)) => {
                self.refused.insert(entry.ulid());
                Outcome::Abandoned(format!("roll-ups of block {}: {error}", entry.ulid()))
            }
            Err(error) => return Outcome::Failed(format!("roll-ups of block {}: {error}", entry.ulid())),
        };
        if let Some(job) = self.job(cx, store) {
            cx.add(job);
        }
        outcome
    }
}

impl JobRunner for RollupJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        if cx.storage.rollup_rules().is_none() {
            return Found::All(Vec::new());
        }
        let catalog = cx.storage.databases().catalog();
        let stores = catalog.tenants().filter_map(|(_, own)| own.graphite.as_ref());
        Found::Some(stores.filter_map(|policy| self.job(cx, &policy.store)).collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |job| job.key.tenant.as_ref().map_or(Outcome::Done, |store| self.run_one(cx, store)))
    }
}

fn roll_up(
    cx: &JobContext<'_>,
    blocks: &TenantBlocks,
    entry: &Arc<BlockEntry>,
    rules: &dyn RollupRules,
) -> Result<(), CompactError> {
    let env = cx.storage.env();
    let store = cx.storage.blocks();
    let started_ns = env.clock.mono_ns();
    let block: Arc<Block> = store.open(blocks, entry)?;
    if entry.has_damaged_rollups() {
        cx.counters.rollup.damaged.increment();
        for damage in block.verify_rollups() {
            tracing::error!(block = %entry.ulid(), file = %damage.path.display(), offset = damage.offset, what = damage.what,
                "roll-ups of a block are damaged and are written again from its samples");
        }
    }
    let bytes_per_second = cx.storage.options().compaction.bytes_per_second;
    let counters = &cx.counters.compaction;
    let pace = RewritePace::new(&*env.clock, bytes_per_second, Urgency::Background, cx.control, counters);
    let written = chronolith_block::write_rollups(env, &block, rules, &pace)?;
    // The next query opens the files.
    store.reopen(entry);
    entry.note_rolled_up(true);
    cx.counters.rollup.blocks.increment();
    cx.counters.rollup.windows.add(written.windows);
    cx.counters.rollup.written_bytes.add(written.bytes);
    let ms = (env.clock.mono_ns() - started_ns) / 1_000_000;
    tracing::info!(store = %store_name(blocks.tenant()), block = %entry.ulid(), files = written.files, windows = written.windows,
        bytes = written.bytes, ms, "roll-ups of a block written");
    Ok(())
}
