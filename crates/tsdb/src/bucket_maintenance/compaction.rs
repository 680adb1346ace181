//! Compaction of blocks that only the bucket has: downloaded, compacted as local ones are, uploaded, and
//! published in place of their inputs.
//!
//! Invariants: inputs have no local copy, and no local block that waits for its upload overlaps them; outputs
//! enter the catalogue in the snapshot in which all inputs leave it, and only if these are as they were
//! downloaded: a deletion meanwhile is not lost. One step runs at a time; its files are removed after it, and
//! files of an earlier process before it.
//! Not here: which blocks (`maintenance::compaction::plan`), the merge of their series (`block::compact`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronolith_block::{Block, CompactError, MergeRules, block_dir};
use chronolith_bucket::lease::Leases;
use chronolith_bucket::maintenance::download::{DownloadError, download_block};
use chronolith_bucket::upload::Published;
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot};
use chronolith_model::StoreId;

use super::counters::BucketMaintenanceCounters;
use crate::bucket::Bucket;
use crate::bucket::upload_state::{BLOCK_TIMEOUT, CATALOG_TIMEOUT, UploadState, text};
use crate::maintenance::compaction::plan::{Candidate, PlanBounds, plan, with_deletions};
use crate::maintenance::compaction::{INPUT_PART, TOMBSTONE_PART};
use crate::maintenance::{JobKind, Maintenance};
use crate::storage::Storage;
use crate::upload::sidecar::make_sidecar;

/// Directory of inputs and outputs below the data directory.
const DIR: &str = "bucket-compaction";

/// Compaction of the blocks of one store in the bucket.
pub(super) struct BucketCompaction<'a> {
    pub(super) storage: &'a Storage,
    pub(super) state: &'a UploadState,
    pub(super) maintenance: &'a Maintenance,
    pub(super) leases: &'a Leases,
    pub(super) counters: &'a BucketMaintenanceCounters,
    pub(super) store: &'a StoreId,
    pub(super) folder: &'a Folder,
    pub(super) now_ms: i64,
    /// Blocks whose compaction was refused because they are damaged.
    pub(super) refused: &'a BTreeSet<Ulid>,
}

/// End of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepEnd {
    /// There is nothing to compact, or another process does it.
    Idle,
    /// Blocks were replaced; there may be more to do.
    Replaced,
    /// Blocks that cannot be read, and the error.
    Damaged(Vec<Ulid>, String),
}

impl BucketCompaction<'_> {
    /// Runs the next step under the lease of the store. Blocks the thread until then.
    pub(super) fn run(&self, snapshot: &Snapshot) -> Result<StepEnd, String> {
        let is_off =
            self.storage.options().compaction.block_bytes_max == 0 || !self.bucket().rules().compacts();
        if is_off || self.maintenance.is_paused(JobKind::Compaction) {
            return Ok(StepEnd::Idle);
        }
        let Some(inputs) = self.next_step(snapshot) else { return Ok(StepEnd::Idle) };
        let request = self.request(CATALOG_TIMEOUT);
        let is_held = self.bucket().wait(self.leases.acquire(&request)).map_err(text)?;
        self.counters.lease_held.set(u64::from(is_held));
        if !is_held {
            return Ok(StepEnd::Idle);
        }
        let dir = self.storage.options().data_dir.join(DIR);
        let end = self.remove_dir(&dir).and_then(|()| self.compact(&inputs, &dir));
        if let Err(error) = self.remove_dir(&dir) {
            tracing::warn!(error, "removing the files of a compaction failed, retrying before the next one");
        }
        let request = self.request(CATALOG_TIMEOUT);
        if let Err(error) = self.bucket().wait(self.leases.release(&request)) {
            tracing::debug!(%error, "releasing the lease failed, it expires instead");
        }
        self.counters.lease_held.set(0);
        end
    }

    fn bucket(&self) -> &Bucket {
        self.state.bucket()
    }

    fn request(&self, timeout: Duration) -> RequestContext {
        let clock = &*self.storage.env().clock;
        RequestContext::with_timeout(clock, self.folder, timeout, Purpose::Maintenance)
    }

    /// Records of the blocks that are compacted next, by precedence.
    fn next_step(&self, snapshot: &Snapshot) -> Option<Vec<BucketBlock>> {
        let local = self.storage.blocks().tenant(self.store);
        let local = local.map(|blocks| blocks.list()).unwrap_or_default();
        let is_recorded = |ulid: Ulid| snapshot.blocks.iter().any(|record| record.ulid == ulid);
        let waiting: Vec<_> = local.iter().filter(|entry| !is_recorded(entry.ulid())).collect();
        // A block that waits for its upload may have been made of those whose times it overlaps.
        let is_input = |record: &BucketBlock| {
            let has_copy = local.iter().any(|entry| entry.ulid() == record.ulid);
            has_copy || waiting.iter().any(|entry| entry.range().overlaps(record.range))
        };
        let is_excluded = |record: &BucketBlock| {
            is_input(record) || self.refused.contains(&record.ulid) || record.ancestry.is_compaction_failed
        };
        let mut candidates: Vec<Candidate> =
            snapshot.blocks.iter().map(|record| candidate(record, is_excluded(record))).collect();
        // Blocks without a record, not uploaded yet, are between others in order of precedence.
        let unit = self.store.time_unit();
        candidates.extend(waiting.iter().map(|entry| {
            let range = unit.range_to_ms(entry.range());
            Candidate::excluded(entry.ulid(), entry.precedence(), range, entry.record().split_set)
        }));
        let limits = self.storage.limits_of(self.store);
        let retention_ms =
            if !self.store.is_default() { limits.retention_ms } else { limits.bucket_retention_ms };
        let bounds = PlanBounds {
            closed_ms: self.now_ms.saturating_sub(self.bucket().rules().compaction_delay_ms()),
            retention_ms,
            input_bytes_max: self.storage.options().compaction.block_bytes_max.saturating_mul(INPUT_PART),
        };
        let step = plan(&candidates, &bounds, 1).into_iter().next();
        let ulids = step.or_else(|| with_deletions(&candidates, &bounds).map(|ulid| vec![ulid]))?;
        let record = |ulid: &Ulid| snapshot.blocks.iter().find(|record| record.ulid == *ulid).cloned();
        ulids.iter().map(record).collect()
    }

    fn compact(&self, inputs: &[BucketBlock], dir: &Path) -> Result<StepEnd, String> {
        let env = self.storage.env();
        let read_bytes = inputs.iter().map(|record| record.files.bytes()).sum::<u64>();
        if !self.has_room_for(read_bytes, dir)? {
            return Ok(StepEnd::Idle);
        }
        tracing::info!(folder = %self.folder, blocks = inputs.len(), read_bytes, "compaction in the bucket started");
        let mut opened = Vec::new();
        for record in inputs {
            let request = self.request(BLOCK_TIMEOUT);
            let download = download_block(self.bucket().store(), env, &request, record, dir);
            let input_dir = match self.bucket().wait(download) {
                Ok(input_dir) => input_dir,
                Err(DownloadError::Bucket(
                    error @ (BucketError::NotFound { .. } | BucketError::Corrupt { .. }),
                )) => return Ok(StepEnd::Damaged(vec![record.ulid], error.to_string())),
                Err(error) => return Err(error.to_string()),
            };
            match Block::open(env, &input_dir) {
                Ok(block) => opened.push(block),
                Err(error) if error.is_damage() => {
                    return Ok(StepEnd::Damaged(vec![record.ulid], error.to_string()));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        let outputs = match self.write_outputs(&opened, dir) {
            Ok(outputs) => outputs,
            Err(CompactError::Read(error)) => {
                let all = inputs.iter().map(|record| record.ulid).collect();
                return Ok(StepEnd::Damaged(all, error.to_string()));
            }
            Err(CompactError::Stopped) => return Ok(StepEnd::Idle),
            Err(error) => return Err(error.to_string()),
        };
        self.counters.read_bytes.add(read_bytes);
        // Renewed, as a large step takes long. If it is lost, the catalogue decides which result counts.
        self.bucket().wait(self.leases.acquire(&self.request(CATALOG_TIMEOUT))).map_err(text)?;
        self.replace(inputs, &outputs, dir)
    }

    fn write_outputs(&self, opened: &[Arc<Block>], dir: &Path) -> Result<Vec<Arc<Block>>, CompactError> {
        let options = self.storage.options();
        let rules = MergeRules {
            encoding: self.storage.block_encoding_of(self.store),
            duplicates: self.storage.limits_of(self.store).duplicates,
            output_bytes_max: options.compaction.block_bytes_max.max(1),
        };
        let pace = self.maintenance.detached_pace(&self.counters.compaction);
        let env = self.storage.env();
        let outputs = chronolith_block::compact(env, dir, None, opened, rules, &pace)?;
        if let Some(rules) = self.storage.rollup_rules().filter(|_| self.store.is_graphite()) {
            for block in &outputs {
                chronolith_block::write_rollups(env, block, &*rules, &pace)?;
            }
        }
        Ok(outputs)
    }

    /// Uploads the outputs and publishes them in place of the inputs.
    fn replace(&self, inputs: &[BucketBlock], outputs: &[Arc<Block>], dir: &Path) -> Result<StepEnd, String> {
        let mut records = Vec::new();
        for block in outputs {
            let sidecar = make_sidecar(self.storage.env(), dir, block)?;
            let request = self.request(BLOCK_TIMEOUT);
            let output_dir: PathBuf = block_dir(dir, block.meta().ulid);
            records.push(self.bucket().upload(&request, &output_dir, sidecar).map_err(text)?);
        }
        let request = self.request(CATALOG_TIMEOUT);
        let published = self.bucket().replace(&request, inputs, &records).map_err(text)?;
        match published {
            Published::Recorded(Some(snapshot)) => {
                self.state.record(self.folder, &snapshot).map_err(text)?;
                let written_bytes: u64 = outputs.iter().map(|block| block.size_bytes()).sum();
                self.counters.compactions.increment();
                self.counters.written_bytes.add(written_bytes);
                let folder = self.folder;
                let blocks = outputs.len();
                tracing::info!(%folder, inputs = inputs.len(), blocks, written_bytes, "compaction in the bucket done");
            }
            Published::Recorded(None) | Published::InputsGone(_) | Published::Superseded(_) => {
                self.counters.dropped_compactions.increment();
            }
        }
        Ok(StepEnd::Replaced)
    }

    /// Returns true if the disk has room for inputs, outputs, sidecars and what writes need.
    fn has_room_for(&self, input_bytes: u64, dir: &Path) -> Result<bool, String> {
        let env = self.storage.env();
        let options = self.storage.options();
        env.disk.create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let reserve = options.free_bytes_min.saturating_add(options.wal.segment_bytes);
        let needed = input_bytes.saturating_mul(3).saturating_add(reserve);
        match env.disk.free_bytes(dir) {
            Some(free) if free < needed => {
                let folder = self.folder;
                tracing::warn!(%folder, free, needed, "compaction in the bucket postponed: too little free disk space");
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    fn remove_dir(&self, dir: &Path) -> Result<(), String> {
        let disk = &self.storage.env().disk;
        if !disk.exists(dir) {
            return Ok(());
        }
        disk.remove_dir_all(dir).map_err(|error| format!("removing {}: {error}", dir.display()))
    }
}

fn candidate(record: &BucketBlock, is_excluded: bool) -> Candidate {
    Candidate {
        ulid: record.ulid,
        precedence: (record.ancestry.oldest_source, record.ulid),
        range: record.time_unit.range_to_ms(record.range),
        size_bytes: record.files.bytes(),
        split_set: record.ancestry.split_set,
        has_many_deletions: record.counts.tombstones.saturating_mul(TOMBSTONE_PART) > record.counts.series,
        is_excluded,
    }
}
