//! Replaces blocks of one tenant by a compacted block, or by several that are split by series.
//!
//! Invariants: outputs are complete and durable before they take the place of their inputs, in one change of
//! the list; the files of the inputs go after that. A crash in between leaves both, and the outputs, which
//! name the inputs as their parents, hide them at the next start (`blocks::load`). So no sample is ever
//! missing or seen twice.
//! Not here: which blocks (`plan`), the merge of their series (`block::compact`).

use std::sync::Arc;

use chronolith_block::{Block, BlockEntry, CompactError, MergeRules, open_error};
use chronolith_format::store_name;
use chronolith_model::StoreId;

use super::super::control::Control;
use super::super::counters::CompactionCounters;
use super::pace::RewritePace;
use crate::blocks::tenant::TenantBlocks;
use crate::storage::Storage;

pub(crate) use super::pace::Urgency;

/// Blocks of one tenant that are replaced together.
pub(crate) struct Rewrite {
    pub(in crate::maintenance) tenant: StoreId,
    pub(in crate::maintenance) blocks: Arc<TenantBlocks>,
    pub(in crate::maintenance) inputs: Vec<Arc<BlockEntry>>,
}

impl Rewrite {
    /// A rewrite of one block, which applies its deletions.
    pub(crate) fn of_block(store: &StoreId, blocks: &Arc<TenantBlocks>, block: Arc<BlockEntry>) -> Rewrite {
        Rewrite { tenant: store.clone(), blocks: blocks.clone(), inputs: vec![block] }
    }

    fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|block| block.size_bytes()).sum()
    }
}

/// Rewrites blocks of one tenant.
pub(crate) struct BlockRewriter<'a> {
    storage: &'a Storage,
    control: &'a Control,
    counters: &'a CompactionCounters,
}

impl<'a> BlockRewriter<'a> {
    pub(crate) fn new(
        storage: &'a Storage,
        control: &'a Control,
        counters: &'a CompactionCounters,
    ) -> BlockRewriter<'a> {
        BlockRewriter { storage, control, counters }
    }

    /// Returns true if the disk has room for the output next to the inputs and for what writes need.
    pub(crate) fn has_room_for(&self, rewrite: &Rewrite) -> bool {
        let options = self.storage.options();
        let reserve = options.free_bytes_min.saturating_add(options.wal.segment_bytes);
        let needed = rewrite.input_bytes().saturating_add(reserve);
        match self.storage.env().disk.free_bytes(rewrite.blocks.dir()) {
            Some(free) if free < needed => {
                let tenant = &rewrite.tenant;
                tracing::warn!(tenant = %store_name(tenant), free, needed, "compaction postponed: too little free disk space");
                false
            }
            _ => true,
        }
    }

    /// Writes the outputs and replaces the inputs by them.
    ///
    /// # Errors
    /// [`CompactError`]; the inputs stay then. Incomplete outputs are scheduled for removal.
    pub(crate) fn run(&self, rewrite: &Rewrite, urgency: Urgency) -> Result<(), CompactError> {
        let Rewrite { tenant, blocks, inputs } = rewrite;
        assert!(!inputs.is_empty(), "a rewrite has inputs");
        let (clock, store) = (&self.storage.env().clock, self.storage.blocks());
        let started_ns = clock.mono_ns();
        let read_bytes = rewrite.input_bytes();
        tracing::info!(tenant = %store_name(tenant), blocks = inputs.len(), read_bytes, "compaction started");
        let outputs = self.write_outputs(rewrite, urgency).inspect_err(|error| {
            if let CompactError::LeftBehind { dirs, .. } = error {
                store.schedule_removal(blocks, dirs.clone());
            }
        })?;
        // Without a local block that stands for it, queries would read the block of the bucket, and see
        // samples that were deleted here.
        let has_deletions = |entry: &Arc<BlockEntry>| self.storage.has_bucket_deletions(tenant, entry);
        if outputs.is_empty() && !inputs.iter().all(has_deletions) {
            tracing::info!(tenant = %store_name(tenant), blocks = inputs.len(), "blocks without samples kept until the bucket has their deletions");
            return Ok(());
        }
        // A start keeps the younger one of two blocks with the same samples.
        let is_younger = |ulid| inputs.iter().all(|input| input.ulid() < ulid);
        assert!(outputs.iter().all(|block| is_younger(block.meta().ulid)), "outputs are named after inputs");
        let written_bytes = outputs.iter().map(|block| block.size_bytes()).sum();
        let ms = (clock.mono_ns() - started_ns) / 1_000_000;
        for block in &outputs {
            let (meta, range) = (block.meta(), block.range());
            tracing::info!(tenant = %store_name(tenant), ulid = %meta.ulid, level = meta.compaction.level, range.start, range.end,
                series = meta.stats.num_series, samples = meta.stats.num_samples, written_bytes, ms,
                "compaction wrote a block");
        }
        let outputs = outputs.iter().map(|block| BlockEntry::new(block.record())).collect();
        store.replace(blocks, inputs, outputs);
        self.counters.runs.increment();
        self.counters.read_bytes.add(read_bytes);
        self.counters.written_bytes.add(written_bytes);
        store.schedule_removal(blocks, inputs.iter().map(|entry| blocks.block_dir(entry.ulid())));
        // The outputs are in place: files that cannot be removed are retried before the tenant's next
        // compaction.
        if let Err(error) = store.remove_files(blocks) {
            self.counters.failures.increment();
            tracing::error!(tenant = %store_name(tenant), %error, "removing the files of compacted blocks failed, retrying later");
        }
        Ok(())
    }

    fn write_outputs(&self, rewrite: &Rewrite, urgency: Urgency) -> Result<Vec<Arc<Block>>, CompactError> {
        let Rewrite { tenant, blocks, .. } = rewrite;
        let (env, options) = (self.storage.env(), self.storage.options());
        let limits = self.storage.limits_of(tenant);
        let rules = MergeRules {
            encoding: self.storage.block_encoding_of(tenant),
            duplicates: limits.duplicates,
            output_bytes_max: options.compaction.block_bytes_max.max(1),
        };
        let bytes_per_second = options.compaction.bytes_per_second;
        let pace = RewritePace::new(&*env.clock, bytes_per_second, urgency, self.control, self.counters);
        self.counters.step_moved_bytes.set(0);
        self.counters.step_bytes.set(rewrite.input_bytes());
        let previous = self.storage.newest_ulid(blocks);
        let written = self
            .open_inputs(rewrite)
            .and_then(|opened| chronolith_block::compact(env, blocks.dir(), previous, &opened, rules, &pace));
        self.counters.step_bytes.set(0);
        written
    }

    /// Opens the inputs; a damaged one counts like damage that is found while it is read.
    fn open_inputs(&self, rewrite: &Rewrite) -> Result<Vec<Arc<Block>>, CompactError> {
        let open = |entry| {
            self.storage.blocks().open(&rewrite.blocks, entry).map_err(|error| {
                if error.is_damage() {
                    CompactError::Read(open_error(error))
                } else {
                    CompactError::Write(error)
                }
            })
        };
        rewrite.inputs.iter().map(open).collect()
    }
}
